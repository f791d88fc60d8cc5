//! A server without sockets, and what tests do with it.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use metric_catalog::install::Registry;
use serde_json::{Value, json};
use tower::ServiceExt;
use types::Clock;

use crate::app;
use crate::cli::{Cli, Command, Settings};
use crate::http::{Api, Peer, Serving, router};
use crate::lifecycle::Lifecycle;
use crate::pd;

/// No test waits longer for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Rig {
    pub(crate) api: Arc<Api>,
    pub(crate) router: Router,
}

/// The settings of these flags of `serve`.
pub(crate) fn settings(flags: &str) -> Settings {
    let args = ["sightline-server", "serve"].into_iter().chain(flags.split_whitespace());
    match Cli::parse_args(args).expect("the flags of a test are valid").command {
        Command::Serve(settings) => *settings,
        Command::Plan(_) | Command::Router(_) | Command::Metrics | Command::Health(_) => {
            panic!("not serve")
        }
    }
}

impl Rig {
    /// A server with these flags that is ready.
    pub(crate) fn new(flags: &str) -> Self {
        Self::with_thread(flags).0
    }

    /// The same with the engine's thread.
    pub(crate) fn with_thread(flags: &str) -> (Self, JoinHandle<()>) {
        let checked = app::check(&settings(flags)).expect("the flags can work");
        let rig = Self::of(&checked);
        let started = app::startup::start(checked, &rig.api).expect("the engine starts");
        rig.api.ready();
        (rig, started.thread)
    }

    /// A worker of a pair with its link open, called `own` by the others. What it needs of them may
    /// be missing.
    pub(crate) async fn worker(flags: &str, own: &str) -> Self {
        let checked = app::check(&settings(flags)).expect("the flags can work");
        let (rig, plan) = (Self::of(&checked), checked.resolved.roles.clone());
        let started = app::startup::start(checked, &rig.api).expect("the engine starts");
        let cargo = started.cargo.expect("a worker of a pair has a link");
        let opened = pd::start::open(&rig.api, &plan, own.to_owned(), cargo).await;
        opened.expect("the link opens");
        rig.api.ready();
        rig
    }

    /// A server whose model is not loaded.
    pub(crate) fn loading(flags: &str) -> Self {
        Self::of(&app::check(&settings(flags)).expect("the flags can work"))
    }

    pub(crate) fn of(checked: &app::Checked) -> Self {
        let resolved = &checked.resolved;
        let role = crate::telemetry::role(resolved.roles.role);
        let registry = Registry::new(role, &resolved.model_name).expect("a registry");
        let life = Arc::new(Lifecycle::new(checked.first_phase()));
        let api = Api::new(resolved, registry, life, Clock::start());
        Self { router: router(&api), api }
    }

    pub(crate) fn serving(&self) -> &Serving {
        self.api.serving().expect("the server is ready")
    }

    /// Sends a request and returns the head of the answer with its body unread.
    ///
    /// It comes from this host, unless it says otherwise.
    pub(crate) async fn send(&self, mut request: Request<Body>) -> Response<Body> {
        if request.extensions().get::<Peer>().is_none() {
            request.extensions_mut().insert(Peer(([127, 0, 0, 1], 9).into()));
        }
        let answer = self.router.clone().oneshot(request);
        let answer = tokio::time::timeout(PATIENCE, answer).await.expect("an answer in time");
        answer.expect("the router is infallible")
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        let request = Request::builder().uri(path).body(Body::empty()).expect("a request");
        Answer::read(self.send(request).await).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        Answer::read(self.send(post(path, body)).await).await
    }

    /// A completion of `tokens` tokens.
    pub(crate) async fn complete(&self, tokens: usize) -> Answer {
        self.post("/v1/completions", &completion(tokens)).await
    }

    /// The value of a series on the metrics page; the sum, where several match.
    pub(crate) async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let page = self.get("/metrics").await.text();
        let of_name = |line: &&str| {
            let rest = line.strip_prefix("sightline_").and_then(|l| l.strip_prefix(name));
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
        };
        let matching = page
            .lines()
            .filter(of_name)
            .filter(|line| labels.iter().all(|label| line.contains(label)));
        let value = |line: &str| line.rsplit_once(' ').and_then(|(_, v)| v.parse::<f64>().ok());
        matching.filter_map(value).sum()
    }

    /// Lets everything else run until `condition` holds.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let wait = async {
            while !condition(self) {
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, wait).await;
        waited.unwrap_or_else(|_| panic!("waited in vain until {what}"));
    }

    pub(crate) fn running(&self) -> usize {
        self.serving().engine.snapshot().running
    }

    pub(crate) fn waiting(&self) -> usize {
        self.serving().admission.snapshot(self.api.clock.now()).requests
    }

    /// Requests that the engine has in its queue.
    pub(crate) fn queued(&self) -> usize {
        self.serving().engine.snapshot().waiting
    }

    /// Until nothing runs or waits.
    pub(crate) async fn idle(&self) {
        self.until("idle", |rig| rig.running() == 0 && rig.waiting() == 0).await;
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(serving) = self.api.serving() {
            serving.engine.shutdown();
        }
    }
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    headers: axum::http::HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    pub(crate) async fn read(response: Response<Body>) -> Self {
        let (head, body) = response.into_parts();
        let body = tokio::time::timeout(PATIENCE, body.collect()).await.expect("a body in time");
        let body = body.expect("a whole body").to_bytes().to_vec();
        Self { status: head.status, headers: head.headers, body }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("UTF-8")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The objects of a stream, and whether it ended as it should.
    pub(crate) fn events(&self) -> (Vec<Value>, bool) {
        let text = self.text();
        let data = text.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
        let objects = data.clone().filter(|event| *event != "[DONE]");
        let objects = objects.map(|event| serde_json::from_str(event).expect("JSON")).collect();
        (objects, data.last() == Some("[DONE]"))
    }

    /// The error's code; panics where the body is no error in OpenAI's form.
    pub(crate) fn error_code(&self) -> String {
        let body = self.json();
        let error = body["error"].as_object().expect("an error object");
        assert!(error["message"].is_string() && error["type"].is_string(), "{body}");
        assert!(error.contains_key("param"), "{body}");
        error["code"].as_str().expect("a code").to_owned()
    }
}

pub(crate) fn post(path: &str, body: &Value) -> Request<Body> {
    raw(path, body.to_string())
}

pub(crate) fn raw(path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::builder()
        .method(Method::POST)
        .uri(path)
        .header("content-type", "application/json")
        .body(body.into())
        .expect("a request")
}

pub(crate) fn completion(tokens: usize) -> Value {
    json!({
        "model": "fake", "prompt": "Once upon", "max_tokens": tokens, "temperature": 0,
        "ignore_eos": true
    })
}

pub(crate) fn stream(tokens: usize) -> Value {
    let mut body = completion(tokens);
    body["stream"] = json!(true);
    body
}

/// Reads the next part of a body.
pub(crate) async fn part(body: &mut Body) -> Option<String> {
    let frame = tokio::time::timeout(PATIENCE, body.frame()).await.expect("a part in time");
    let data = frame?.expect("no error").into_data().expect("data");
    assert!(!body.is_end_stream() || !data.is_empty());
    Some(String::from_utf8(data.to_vec()).expect("UTF-8"))
}
