//! Settings that change while the server runs, drains that end, and who may do so.

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::rig::{Answer, Rig, completion, post, settings, stream};
use crate::app;
use crate::http::Peer;

fn request(method: Method, path: &str, headers: &[(&str, &str)], body: &Value) -> Request<Body> {
    let mut builder = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    let builder = builder.header("content-type", "application/json");
    builder.body(Body::from(body.to_string())).expect("a request")
}

async fn change(rig: &Rig, known: &str, body: &Value) -> Answer {
    let request = request(Method::POST, "/admin/config", &[("if-match", known)], body);
    Answer::read(rig.send(request).await).await
}

#[tokio::test]
async fn limits_change_at_once_and_nobody_who_waits_is_thrown_out() {
    let rig = Rig::new("--model fake:step=5ms --max-running-requests 1 --max-queued-requests 2");
    let before = rig.get("/admin/config").await;
    assert_eq!((before.status.as_u16(), before.header("etag")), (200, "\"1\""));
    assert_eq!(before.json()["settings"]["max-queued-requests"], "2");
    assert_eq!(before.json()["drift"], json!([]));
    let running = rig.send(post("/v1/completions", &stream(3000))).await;
    rig.until("one runs", |rig| rig.running() == 1).await;
    let waiting = rig.send(post("/v1/completions", &completion(2)));
    tokio::pin!(waiting);
    tokio::select! {
        _ = &mut waiting => panic!("the running request is longer than this"),
        () = rig.until("one waits", |rig| rig.waiting() == 1) => {}
    }
    let changed = change(&rig, "\"1\"", &json!({"max_queued_requests": 1, "port": 1})).await;
    assert_eq!((changed.status.as_u16(), changed.header("etag")), (200, "\"2\""));
    let told = changed.json();
    assert_eq!(told["applied"], json!(["max-queued-requests"]));
    assert_eq!(told["needs_restart"], json!(["port"]));
    assert_eq!(rig.waiting(), 1, "its place is kept");
    let refused = rig.complete(1).await;
    assert_eq!(
        (refused.status.as_u16(), refused.error_code()),
        (429, "queue_requests_full".into())
    );
    let raised = change(&rig, "*", &json!({"max-queued-requests": null})).await;
    assert_eq!(raised.json()["generation"], 3);
    drop(running);
    assert_eq!(Answer::read(waiting.await).await.status, 200);
    rig.idle().await;
}

#[tokio::test]
async fn a_change_says_what_it_knows_and_is_all_or_nothing() {
    let rig = Rig::new("--model fake");
    let check = async |known: &[(&str, &str)], body: Value, status: u16, says: &str| {
        let answer = rig.send(request(Method::POST, "/admin/config", known, &body)).await;
        let answer = Answer::read(answer).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        answer.error_code();
        assert!(answer.text().contains(says), "{}", answer.text());
    };
    let good = json!({"ttft-objective": "10s"});
    check(&[], good.clone(), 428, "If-Match").await;
    check(&[("if-match", "x")], good.clone(), 400, "no generation").await;
    check(&[("if-match", "7")], good, 412, "generation 1").await;
    let star = [("if-match", "*")];
    let half = json!({"ttft-objective": "10s", "log-level": "loud"});
    check(&star, half, 400, "log-level").await;
    check(&star, json!({"ttft-objective": 30}), 400, "needs a unit").await;
    check(&star, json!({"ttft-objective": [30]}), 400, "a setting is").await;
    check(&star, json!({"nonsense": 1}), 400, "no such setting").await;
    check(&star, json!({}), 400, "max-queued-requests").await;
    check(&star, json!([]), 400, "one JSON object").await;
    assert_eq!(rig.get("/admin/config").await.json()["generation"], 1);
    let drained = change(&rig, "1", &json!({"max-queued-tokens": 5})).await;
    assert_eq!(drained.status, 200);
    let drift = rig.get("/admin/config").await.json();
    assert_eq!(drift["drift"], json!(["max-queued-tokens"]));
    assert_eq!(rig.get("/internal/load").await.json()["limits"]["tokens"], 5);
}

#[tokio::test]
async fn a_drain_by_an_admin_ends_when_the_admin_says_so() {
    let rig = Rig::new("--model fake:step=1ms");
    let running = rig.send(post("/v1/completions", &stream(3000))).await;
    rig.until("one runs", |rig| rig.running() == 1).await;
    let drain = |body: Value| request(Method::POST, "/admin/drain", &[], &body);
    for (body, says) in [
        (json!({"deadline": 3}), "takes reason, rollout_id, settle_s, deadline_s"),
        (json!({"settle_s": "5s"}), "no number of seconds from 0 to 86400"),
        (json!({"settle_s": 9, "deadline_s": 3}), "shorter than the 9 s of settle_s"),
        (json!({"deadline_s": 3}), "shorter than the 5 s of settle_s"),
    ] {
        let wrong = Answer::read(rig.send(drain(body)).await).await;
        assert_eq!(wrong.status, 400);
        assert!(wrong.text().contains(says), "{}", wrong.text());
    }
    assert_eq!(rig.get("/readyz").await.status, 200, "nothing has happened");
    for _ in 0..2 {
        let body = json!({"reason": "a test", "settle_s": 0});
        let drained = Answer::read(rig.send(drain(body)).await).await;
        assert_eq!(drained.status, 200);
        assert_eq!(drained.json()["held"], true);
        assert_eq!(drained.json()["in_flight"], 1);
    }
    let ready = rig.get("/readyz").await;
    assert_eq!((ready.status.as_u16(), ready.json()["state"].as_str()), (503, Some("draining")));
    assert_eq!(rig.get("/livez").await.status, 200);
    assert_eq!(rig.get("/internal/load").await.json()["state"], "draining");
    let refused = rig.complete(1).await;
    assert_eq!((refused.status.as_u16(), refused.error_code()), (503, "draining".into()));
    let back = request(Method::DELETE, "/admin/drain", &[], &json!({}));
    assert_eq!(Answer::read(rig.send(back).await).await.json()["held"], false);
    assert_eq!(rig.get("/readyz").await.status, 200);
    assert_eq!(rig.complete(1).await.status, 200);
    drop(running);
    rig.idle().await;
}

#[tokio::test]
async fn a_drain_that_came_while_the_model_was_loaded_holds_when_it_is() {
    let checked = app::check(&settings("--model fake:step=1ms")).expect("the flags can work");
    let rig = Rig::of(&checked);
    let drain = |method| request(method, "/admin/drain", &[], &json!({"settle_s": 0}));
    assert_eq!(rig.send(drain(Method::POST)).await.status(), 200);
    app::startup::start(checked, &rig.api).expect("the engine starts");
    rig.api.ready();
    let refused = rig.complete(1).await;
    assert_eq!((refused.status.as_u16(), refused.error_code()), (503, "draining".into()));
    let back = request(Method::DELETE, "/admin/drain", &[], &json!({}));
    assert_eq!(rig.send(back).await.status(), 200);
    assert_eq!(rig.complete(1).await.status, 200);
}

#[tokio::test]
async fn a_drain_lets_in_those_who_cannot_know_of_it_until_it_has_settled() {
    let rig = Rig::new("--model fake:step=1ms");
    let drain = |body: Value| request(Method::POST, "/admin/drain", &[], &body);
    let told = Answer::read(rig.send(drain(json!({"settle_s": 600}))).await).await.json();
    assert_eq!((&told["settle_s"], &told["deadline_s"]), (&600.0.into(), &Value::Null));
    assert_eq!(rig.get("/readyz").await.status, 503);
    assert_eq!(rig.get("/internal/load").await.json()["state"], "draining");
    assert_eq!(rig.complete(1).await.status, 200, "a balancer has not seen it yet");
    let aware = [("x-sightline-drain-aware", "1")];
    let routed = request(Method::POST, "/v1/completions", &aware, &completion(1));
    let refused = Answer::read(rig.send(routed).await).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(refused.error_code(), "draining", "a router knows by that who goes away");
    assert!(refused.header("retry-after").parse::<u64>().expect("seconds") >= 1);
    let short = json!({"settle_s": 0.05, "rollout_id": "r-1"});
    assert_eq!(rig.send(drain(short)).await.status(), 200);
    let mut refused = rig.complete(1).await;
    while refused.status == 200 {
        refused = rig.complete(1).await;
    }
    assert_eq!((refused.status.as_u16(), refused.error_code()), (503, "draining".into()));
    let back = request(Method::DELETE, "/admin/drain", &[], &json!({}));
    assert_eq!(rig.send(back).await.status(), 200);
    assert_eq!(rig.complete(1).await.status, 200);
    rig.idle().await;
}

#[tokio::test]
async fn a_drain_with_a_deadline_ends_what_still_runs_and_says_so() {
    let rig = Rig::new("--model fake:step=1ms,context=100000 --max-running-requests 1");
    let running = rig.send(post("/v1/completions", &stream(90_000))).await;
    rig.until("one runs", |rig| rig.running() == 1).await;
    let router = rig.router.clone();
    let waiting = TaskTracker::new().spawn(async move {
        let answer = router.oneshot(post("/v1/completions", &completion(2))).await;
        Answer::read(answer.expect("infallible")).await
    });
    rig.until("one waits", |rig| rig.waiting() == 1).await;
    let body = json!({"settle_s": 0, "deadline_s": 0.1});
    let drained = request(Method::POST, "/admin/drain", &[], &body);
    let told = Answer::read(rig.send(drained).await).await.json();
    assert_eq!((&told["settle_s"], &told["deadline_s"]), (&0.0.into(), &0.1.into()));
    let cut = Answer::read(running).await.text();
    assert!(cut.contains("server_draining") && !cut.contains("[DONE]"), "{cut:.300}");
    assert_eq!(waiting.await.expect("no panic").status, 503);
    rig.idle().await;
    let page = rig.get("/metrics").await.text();
    let aborted = |stage: &str| {
        let of = |line: &&str| {
            line.starts_with("sightline_requests_aborted_total")
                && line.contains("reason=\"drain_deadline\"")
                && line.contains(&format!("stage=\"{stage}\""))
        };
        page.lines().find(of).and_then(|line| line.rsplit(' ').next()).map(str::to_owned)
    };
    assert_eq!((aborted("decode"), aborted("queued")), (Some("1".into()), Some("1".into())));
    let back = request(Method::DELETE, "/admin/drain", &[], &json!({}));
    assert_eq!(rig.send(back).await.status(), 200);
    assert_eq!(rig.complete(1).await.status, 200, "the engine goes on");
}

#[tokio::test]
async fn others_need_the_token_and_pages_of_a_browser_are_others() {
    let path = std::env::temp_dir().join(format!("sightline-token-{}", std::process::id()));
    std::fs::write(&path, "0123456789abcdef\n").expect("the temporary folder is writable");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, private).expect("it is ours");
    let with = Rig::new(&format!("--model fake --admin-token-file {}", path.display()));
    let without = Rig::new("--model fake");
    std::fs::remove_file(&path).expect("it is there");
    let ask = async |rig: &Rig, path: &str, from: [u8; 4], headers: &[(&str, &str)]| {
        let mut request = request(Method::GET, path, headers, &json!({}));
        request.extensions_mut().insert(Peer((from, 9).into()));
        let answer = Answer::read(rig.send(request).await).await;
        if answer.status == 403 {
            assert_eq!(answer.error_code(), "forbidden");
        }
        answer.status.as_u16()
    };
    let (here, there) = ([127, 0, 0, 1], [10, 0, 0, 7]);
    let (good, bad) = ("bearer 0123456789abcdef", "Bearer 0123456789abcdeF");
    assert_eq!(ask(&without, "/admin/config", here, &[]).await, 200);
    assert_eq!(ask(&without, "/admin/config", there, &[]).await, 403);
    assert_eq!(ask(&without, "/admin/config", there, &[("authorization", good)]).await, 403);
    assert_eq!(ask(&without, "/internal/load", there, &[]).await, 200);
    let page = [("origin", "http://127.0.0.1:8000")];
    assert_eq!(ask(&without, "/admin/config", here, &page).await, 403);
    for path in ["/admin/config", "/internal/load"] {
        assert_eq!(ask(&with, path, here, &[]).await, 200, "{path}");
        assert_eq!(ask(&with, path, there, &[]).await, 403, "{path}");
        assert_eq!(ask(&with, path, there, &[("authorization", bad)]).await, 403, "{path}");
        assert_eq!(ask(&with, path, there, &[("authorization", good)]).await, 200, "{path}");
    }
}

#[tokio::test]
async fn a_router_is_told_health_and_load_in_one() {
    let rig = Rig::new("--model fake:step=5ms --max-running-requests 1 --max-queued-tokens 90");
    let load = rig.get("/internal/load").await.json();
    assert_eq!((load["role"].as_str(), load["state"].as_str()), (Some("unified"), Some("ready")));
    assert_eq!((load["model"].as_str(), load["running_limit"].as_u64()), (Some("fake"), Some(1)));
    assert_eq!(load["limits"], json!({"requests": 32, "tokens": 90, "drain_ms": 30000}));
    assert_eq!(load["queued"], json!({"requests": 0, "tokens": 0, "uncached_tokens": 0}));
    let free = load["free_tokens"].as_u64().expect("a number");
    assert_eq!(free, 4096);
    assert!(load["prefill_rate"].as_f64().is_some_and(|rate| rate >= 1.0));
    assert_eq!(load["instance_id"], rig.get("/internal/load").await.json()["instance_id"]);
    let running = rig.send(post("/v1/completions", &stream(3000))).await;
    rig.until("one runs", |rig| rig.running() == 1).await;
    let load = rig.get("/internal/load").await.json();
    assert_eq!(load["running"], 1);
    assert!(load["free_tokens"].as_u64() < Some(free), "{load}");
    drop(running);
    rig.idle().await;
    let loading = Rig::loading("--model fake");
    assert_eq!(loading.get("/internal/load").await.json()["state"], "starting");
}
