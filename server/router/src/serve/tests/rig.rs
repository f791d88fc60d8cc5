//! A running router without a socket of its own, and what tests do with it.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use metric_catalog::install::Registry;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;
use types::Clock;

use super::mock::Mock;
use crate::serve::{self, Gateway, Objectives, Patience, Settings, discovery};
use crate::worker::WorkerRole;
use crate::{Config, HealthConfig, HoldConfig, PolicyKind, WorkerView};

/// No test waits longer for anything.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Longer than any test takes, for limits that must not matter.
const LONG: Duration = Duration::from_secs(600);

pub(super) struct Rig {
    pub(super) gateway: Arc<Gateway>,
    pub(super) router: Router,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// Settings for these workers, asked often.
pub(super) fn settings(workers: &[(&Mock, WorkerRole)]) -> Settings {
    let spec = |(mock, role): &(&Mock, WorkerRole)| {
        discovery::spec(&mock.url(), *role, None).expect("an address")
    };
    Settings {
        core: Config {
            policy: PolicyKind::RoundRobin,
            health: HealthConfig { report_fresh: LONG, ..HealthConfig::default() },
            slow_start: Duration::ZERO,
            hold: HoldConfig { time: Duration::ZERO, ..HoldConfig::default() },
            ..Config::default()
        },
        workers: workers.iter().map(spec).collect(),
        file: None,
        groups: Vec::new(),
        poll_every: Duration::from_millis(20),
        poll_timeout: LONG,
        resolve_every: Duration::from_millis(50),
        worker_token: None,
        stream: Patience { connect: LONG, first_byte: LONG, idle: LONG },
        whole: LONG,
        body_bytes: 1 << 20,
        body_time: LONG,
        objectives: Objectives {
            ttft: Duration::from_secs(30),
            itl: Duration::from_secs(1),
            e2e: Duration::from_secs(60),
        },
    }
}

impl Rig {
    /// A router for unified workers, once all of them take requests.
    pub(super) async fn of(mocks: &[&Mock]) -> Self {
        let workers: Vec<_> = mocks.iter().map(|mock| (*mock, WorkerRole::Unified)).collect();
        Self::ready(settings(&workers)).await
    }

    /// A router, once all its workers take requests.
    pub(super) async fn ready(settings: Settings) -> Self {
        let workers = settings.workers.len();
        let rig = Self::new(settings);
        rig.until("all workers are up", |rig| rig.up() == workers).await;
        rig
    }

    /// A router that has just been started.
    pub(super) fn new(settings: Settings) -> Self {
        let registry = Registry::router().expect("a registry");
        let gateway = Gateway::new(settings, &registry, Clock::start());
        let router = serve::api(&gateway, Router::new())
            .merge(serve::recorded(&gateway, serve::admin(&gateway)));
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(Arc::clone(&gateway).run(stop.clone()));
        Self { gateway, router, stop, tasks }
    }

    /// Ends its tasks.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    pub(super) fn views(&self) -> Vec<WorkerView> {
        self.gateway.core().workers(self.gateway.clock.now())
    }

    pub(super) fn view(&self, mock: &Mock) -> WorkerView {
        let name = mock.address.to_string();
        let views = self.views();
        let view = views.into_iter().find(|view| view.name.as_str() == name);
        view.expect("it is listed")
    }

    pub(super) fn up(&self) -> usize {
        self.views().iter().filter(|view| view.up).count()
    }

    /// Lets everything else run until `condition` holds.
    pub(super) async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let wait = async {
            while !condition(self) {
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, wait).await;
        waited.unwrap_or_else(|_| panic!("in vain until {what}: {:#?}", self.views()));
    }

    /// Sends a request and returns the head of the answer with its body unread.
    pub(super) async fn send(&self, request: Request<Body>) -> Response<Body> {
        let answer = self.router.clone().oneshot(request);
        let answer = tokio::time::timeout(PATIENCE, answer).await.expect("an answer in time");
        answer.expect("the router is infallible")
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        let request = Request::builder().uri(path).body(Body::empty()).expect("a request");
        Answer::read(self.send(request).await).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Answer {
        Answer::read(self.send(post(path, body)).await).await
    }

    /// A chat, as a stream.
    pub(super) async fn stream(&self) -> Answer {
        self.post("/v1/chat/completions", &chat(true)).await
    }

    /// The value of a series on the metrics page; the sum, where several match.
    pub(super) async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let page = self.get("/metrics").await.text();
        let of_name = |line: &&str| {
            let rest = line.strip_prefix("sightline_").and_then(|l| l.strip_prefix(name));
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
        };
        let matching = page.lines().filter(of_name);
        let matching = matching.filter(|line| labels.iter().all(|label| line.contains(label)));
        let value = |line: &str| line.rsplit_once(' ').and_then(|(_, v)| v.parse::<f64>().ok());
        matching.filter_map(value).sum()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A whole answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    headers: axum::http::HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    pub(super) async fn read(response: Response<Body>) -> Self {
        let (head, body) = response.into_parts();
        let body = tokio::time::timeout(PATIENCE, body.collect()).await.expect("a body in time");
        let body = body.expect("a whole body").to_bytes().to_vec();
        Self { status: head.status, headers: head.headers, body }
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("UTF-8")
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {}", self.text()))
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Status and code of an error in OpenAI's form; panics where it is none.
    pub(super) fn error(&self) -> (u16, String) {
        let body = self.json();
        let error = body["error"].as_object().expect("an error object");
        assert!(error["message"].is_string() && error["type"].is_string(), "{body}");
        assert!(error.contains_key("param"), "{body}");
        let code = error["code"].as_str().expect("a code").to_owned();
        (self.status.as_u16(), code)
    }

    pub(super) fn message(&self) -> String {
        self.json()["error"]["message"].as_str().expect("a message").to_owned()
    }
}

pub(super) fn chat(stream: bool) -> Value {
    json!({
        "model": "m", "messages": [{"role": "user", "content": "Once upon"}], "stream": stream
    })
}

pub(super) fn post(path: &str, body: &Value) -> Request<Body> {
    Request::builder()
        .method(Method::POST)
        .uri(path)
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .expect("a request")
}

/// Reads the next part of a body.
pub(super) async fn part(body: &mut Body) -> Option<String> {
    let frame = tokio::time::timeout(PATIENCE, body.frame()).await.expect("a part in time");
    let data = frame?.expect("no error").into_data().expect("data");
    assert!(!body.is_end_stream() || !data.is_empty());
    Some(String::from_utf8(data.to_vec()).expect("UTF-8"))
}
