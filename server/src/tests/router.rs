//! The router's flags, and the router in front of real servers that serve a model which computes
//! nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::middleware::from_fn_with_state;
use metric_catalog::install::Registry;
use router::serve::{Gateway, admin, api, recorded};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;
use types::Clock;

use super::rig::{Answer, PATIENCE, Rig, completion, part, post, stream};
use crate::cli::{Cli, Command, RouterArgs};
use crate::config::Findings;
use crate::config::router::{RouterPlan, resolve};
use crate::http::guard;
use crate::http::listener::{Bound, Bounds};
use crate::http::settings::{self, RouterSettings};
use crate::live::{Live, RouterValues};
use crate::telemetry::settings::SettingsMetrics;

fn args(flags: &str) -> RouterArgs {
    let args = ["sightline-server", "router"].into_iter().chain(flags.split_whitespace());
    match Cli::parse_args(args).expect("the flags of a test are valid").command {
        Command::Router(args) => *args,
        Command::Serve(_) | Command::Plan(_) | Command::Metrics | Command::Health(_) => {
            panic!("not router")
        }
    }
}

fn plan(flags: &str) -> Result<RouterPlan, Findings> {
    resolve(&args(flags), u64::MAX)
}

#[test]
fn flags_that_do_not_go_together_say_what_would() {
    let refused = |flags: &str, wants: &[&str]| {
        let findings = plan(flags).expect_err(flags);
        let text = findings.to_string();
        assert_eq!(findings.exit() as u8, 78, "{text}");
        for want in wants {
            assert!(text.contains(want), "{flags}: {want} in {text}");
        }
    };
    refused("", &["--worker", "nothing lists a worker", "--workers-file"]);
    let pair = ["--prefill http://a:1", "no decode worker is listed", "try --decode"];
    refused("--prefill http://a:1", &pair);
    refused("--decode http://a:1", &["no prefill worker is listed", "try --prefill"]);
    let twice = "--prefill http://a:1 --decode http://a:1";
    refused(twice, &["--decode http://a:1", "--prefill lists it already"]);
    refused("--worker 127.0.0.1:8000", &["that is this router itself"]);
    refused("--worker a:1 --poll-interval 0s", &["--poll-interval 0s", "500ms"]);
    refused("--worker a:1 --retry-share 2", &["--retry-share 2", "from 0 to 1"]);
    refused("--worker a:1 --hold-time 2m", &["--hold-time 120s", "at most 90s"]);
    refused("--worker a:1 --hold-requests 0", &["--hold-requests 0", "--hold-time 0s"]);
    refused("--worker a:1 --port 65500", &["--port 65500", "--probe-port"]);
    refused("--worker a:1 --workers-file /nowhere.toml", &["/nowhere.toml", "cannot be read"]);
    refused(
        "--worker a:1 --admin-token-file /nowhere",
        &["--admin-token-file /nowhere", "No such file"],
    );
    let plan = plan("--prefill a:1,b:1 --decode c:1 --port 0 --retries 0").expect("they can work");
    assert_eq!((plan.settings.workers.len(), plan.settings.core.retry.tries), (3, 1));
    assert_eq!((plan.api.port(), plan.probes.port()), (0, 0));

    let parsed = |flags: &str| {
        let args = ["sightline-server", "router"].into_iter().chain(flags.split_whitespace());
        Cli::parse_args(args).expect_err(flags).to_string()
    };
    assert!(parsed("--worker https://a:1").contains("http://HOST:PORT"));
    assert!(parsed("--worker a:1 --policy best").contains("cache_aware, least_pending_tokens"));
    assert!(parsed("--workers-dns boss=a:1").contains("no role \"boss\""));
}

/// A server with a socket.
struct Worker {
    rig: Rig,
    address: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Worker {
    async fn new(flags: &str) -> Self {
        let flags = flags.to_owned();
        let rig = tokio::task::spawn_blocking(move || Rig::new(&flags)).await.expect("it starts");
        let bound = Bound::new(([127, 0, 0, 1], 0).into()).await.expect("a free port");
        let (address, stop, tasks) =
            (bound.address(), CancellationToken::new(), TaskTracker::new());
        let bounds = Bounds { connections: 64, write_timeout: PATIENCE };
        tasks.spawn(bound.serve(rig.router.clone(), bounds, stop.clone()));
        Self { rig, address, stop, tasks }
    }
}

/// A router in front of workers, without a socket of its own.
struct Front {
    gateway: Arc<Gateway>,
    router: Router,
    _stop: tokio_util::sync::DropGuard,
}

impl Front {
    async fn new(workers: &[&Worker], flags: &str) -> Self {
        let urls: Vec<String> = workers.iter().map(|w| w.address.to_string()).collect();
        let plan = plan(&format!(
            "--worker {} --poll-interval 20ms --slow-start 0s {flags}",
            urls.join(",")
        ));
        let plan = plan.expect("they can work");
        let registry = Registry::router().expect("a registry");
        let gateway = Gateway::new(plan.settings, &registry, Clock::start());
        let live = RouterValues::new(&args(&format!("--worker {} {flags}", urls.join(","))));
        let metrics = SettingsMetrics::new(&registry, Clock::start());
        let changed = Arc::new(RouterSettings {
            live: Live::new(live, None, metrics),
            gateway: Arc::clone(&gateway),
        });
        let guarded = admin(&gateway).merge(settings::of_router(&changed));
        let guarded = guarded.layer(from_fn_with_state(plan.admin_token, guard::router));
        let router = api(&gateway, Router::new()).merge(recorded(&gateway, guarded));
        let stop = CancellationToken::new();
        TaskTracker::new().spawn(Arc::clone(&gateway).run(stop.clone()));
        let front = Self { gateway, router, _stop: stop.drop_guard() };
        let wait = async {
            while front.gateway.readiness().is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("a worker is ready");
        front
    }

    async fn send(&self, request: Request<Body>) -> axum::http::Response<Body> {
        let answer = self.router.clone().oneshot(request);
        let answer = tokio::time::timeout(PATIENCE, answer).await.expect("an answer in time");
        answer.expect("the router is infallible")
    }

    async fn post(&self, body: &Value) -> Answer {
        Answer::read(self.send(post("/v1/completions", body)).await).await
    }
}

/// What an answer says, without what names it.
fn said(answer: &Value) -> Value {
    json!({"choices": answer["choices"], "usage": answer["usage"], "model": answer["model"]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_through_the_router_are_those_of_its_workers() {
    let worker = Worker::new("--model fake:step=0ms --served-model-name small").await;
    let front = Front::new(&[&worker], "").await;
    let mut body = completion(20);
    body["model"] = json!("small");
    let direct = worker.rig.post("/v1/completions", &body).await;
    let routed = front.post(&body).await;
    assert_eq!((routed.status, said(&routed.json())), (direct.status, said(&direct.json())));
    body["stream"] = json!(true);
    let direct = worker.rig.post("/v1/completions", &body).await.events();
    let routed = front.post(&body).await.events();
    let texts = |events: &[Value]| events.iter().map(said).collect::<Vec<_>>();
    assert_eq!((texts(&routed.0), routed.1), (texts(&direct.0), direct.1));
    body["temperature"] = json!("warm");
    let direct = worker.rig.post("/v1/completions", &body).await;
    let routed = front.post(&body).await;
    assert_eq!((routed.status, routed.json()), (direct.status, direct.json()));
    let models = Request::get("/v1/models").body(Body::empty()).expect("a request");
    let models = Answer::read(front.send(models).await).await.json();
    assert_eq!(models["data"][0]["id"], "small");
    worker.rig.idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_frees_the_worker() {
    let worker = Worker::new("--model fake:step=1ms,context=100000").await;
    let front = Front::new(&[&worker], "").await;
    let mut body = front.send(post("/v1/completions", &stream(90_000))).await.into_body();
    part(&mut body).await.expect("the first token");
    assert_eq!(worker.rig.running(), 1);
    drop(body);
    worker.rig.idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_worker_is_passed_over_and_full_ones_are_passed_on() {
    let flags = "--model fake:step=2ms,context=100000 --max-running-requests 1 \
                 --max-queued-requests 1";
    let (one, two) = (Worker::new(flags).await, Worker::new(flags).await);
    let front = Front::new(&[&one, &two], "--policy round_robin").await;
    let mut open = Vec::new();
    // One runs and one waits at each.
    for _ in 0..2 {
        let mut body = front.send(post("/v1/completions", &stream(90_000))).await.into_body();
        part(&mut body).await.expect("the first token");
        open.push(body);
    }
    let router = front.router.clone();
    let tasks = TaskTracker::new();
    for _ in 0..2 {
        tasks.spawn(router.clone().oneshot(post("/v1/completions", &stream(10))));
    }
    let waits = |rig: &Rig| rig.waiting() == 1;
    one.rig.until("one waits at the first", waits).await;
    two.rig.until("one waits at the second", waits).await;
    let refused = front.post(&completion(10)).await;
    assert_eq!(
        (refused.status.as_u16(), refused.error_code().as_str()),
        (429, "queue_requests_full")
    );
    assert!(refused.header("retry-after").parse::<u64>().expect("seconds") >= 1);
    drop(open);
    tasks.close();
    tokio::time::timeout(PATIENCE, tasks.wait()).await.expect("they get their turn");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_stops_is_left_by_new_requests_only() {
    let flags = "--model fake:step=1ms,context=100000";
    let (one, two) = (Worker::new(flags).await, Worker::new(flags).await);
    let front = Front::new(&[&one, &two], "--policy round_robin").await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut body = front.send(post("/v1/completions", &stream(400))).await.into_body();
        part(&mut body).await.expect("the first token");
        open.push(body);
    }
    one.rig.api.life.advance(crate::lifecycle::Phase::Draining);
    one.rig.serving().engine.drain(one.rig.api.clock.now() + Duration::from_secs(60));
    for _ in 0..6 {
        assert_eq!(front.post(&completion(3)).await.status, 200);
    }
    for mut body in open {
        let mut text = String::new();
        while let Some(part) = part(&mut body).await {
            text.push_str(&part);
        }
        assert!(text.ends_with("data: [DONE]\n\n") && !text.contains("\"error\""), "{text}");
    }
    one.stop.cancel();
    one.tasks.close();
    tokio::time::timeout(PATIENCE, one.tasks.wait()).await.expect("nobody holds its connections");
    assert_eq!(front.post(&completion(3)).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_need_to_be_here_or_to_have_the_token() {
    let worker = Worker::new("--model fake:step=0ms").await;
    let path = std::env::temp_dir().join(format!("sightline-router-{}", std::process::id()));
    std::fs::write(&path, "sixteen bytes it\n").expect("the folder is writable");
    let mine = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, mine).expect("it is ours");
    let front = Front::new(&[&worker], &format!("--admin-token-file {}", path.display())).await;
    std::fs::remove_file(&path).expect("it was there");
    let drain = |token: Option<&str>| {
        let path = format!("/admin/workers/{}/drain", worker.address);
        let mut request = post(&path, &json!({}));
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse().expect("a value");
            request.headers_mut().insert("authorization", value);
        }
        request
    };
    for token in [None, Some("another")] {
        let refused = Answer::read(front.send(drain(token)).await).await;
        assert_eq!((refused.status.as_u16(), refused.error_code().as_str()), (403, "forbidden"));
    }
    let told = Answer::read(front.send(drain(Some("sixteen bytes it"))).await).await;
    assert_eq!(told.json()["state"], "draining");
    let mut here = drain(None);
    here.extensions_mut().insert(crate::http::Peer(([127, 0, 0, 1], 1).into()));
    assert_eq!(front.send(here).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_the_router_change_at_run_time_by_those_who_may() {
    let worker = Worker::new("--model fake:step=0ms").await;
    let front = Front::new(&[&worker], "--policy round_robin").await;
    let send = async |method: &str, known: &str, body: Value, here: bool| {
        let mut request = post("/admin/config", &body);
        *request.method_mut() = method.parse().expect("a method");
        if !known.is_empty() {
            request.headers_mut().insert("if-match", known.parse().expect("a value"));
        }
        if here {
            request.extensions_mut().insert(crate::http::Peer(([127, 0, 0, 1], 1).into()));
        }
        Answer::read(front.send(request).await).await
    };
    let shown = send("GET", "", json!({}), true).await;
    assert_eq!((shown.status.as_u16(), shown.header("etag")), (200, "\"1\""));
    assert_eq!(shown.json()["settings"]["hold-time"], "10s");
    assert_eq!(send("GET", "", json!({}), false).await.status, 403);
    let change = json!({"policy": "prefix_hash", "max-body-bytes": "100B", "port": 1});
    assert_eq!(send("POST", "", change.clone(), true).await.status, 428);
    assert_eq!(send("POST", "\"9\"", change.clone(), true).await.status, 412);
    assert_eq!(send("POST", "*", change.clone(), false).await.status, 403);
    for (body, says) in [
        (json!({"policy": "prefix_hash", "poll-interval": "0s"}), "try --poll-interval 500ms"),
        (json!({"policy": "prefix_hash", "hold-time": 30}), "needs a unit"),
        (json!({"policy": "prefix_hash", "queue": 1}), "those that can change are policy"),
    ] {
        let wrong = send("POST", "1", body, true).await;
        assert_eq!(wrong.status, 400);
        assert!(wrong.text().contains(says), "{}", wrong.text());
    }
    let version = async || {
        let request = Request::get("/version").body(Body::empty()).expect("a request");
        Answer::read(front.send(request).await).await.json()["policy"].clone()
    };
    assert_eq!(version().await, "round_robin", "all or nothing");
    let told = send("POST", "\"1\"", change, true).await.json();
    assert_eq!(told["applied"], json!(["policy", "max-body-bytes"]));
    assert_eq!((&told["needs_restart"], &told["generation"]), (&json!(["port"]), &2.into()));
    assert_eq!(version().await, "prefix_hash");
    let mut long = completion(1);
    long["prompt"] = "a".repeat(200).into();
    assert_eq!(front.post(&long).await.status, 413, "the new bound");
    let metrics = Request::get("/metrics").body(Body::empty()).expect("a request");
    let page = Answer::read(front.send(metrics).await).await.text();
    let line = |start: &str| page.lines().find(|line| line.starts_with(start)).unwrap_or_default();
    let reloads = line("sightline_config_reload_total{engine_role=\"router\",result=\"ok\"}");
    assert!(reloads.ends_with(" 1"), "{reloads}");
    let info = line("sightline_config_generation_info{");
    assert!(info.contains("generation=\"2\""), "{info}");
    let refused = page.lines().find(|line| {
        line.starts_with("sightline_http_requests_total")
            && line.contains("\"412\"")
            && line.contains("/admin/config")
            && line.contains("POST")
    });
    assert!(refused.is_some_and(|line| line.ends_with(" 1")), "{refused:?}");
}
