//! Who goes before whom, over HTTP: priorities, tenants, and limits of time.

use axum::body::Body;
use axum::http::{HeaderValue, Request};
use serde_json::{Value, json};

use super::rig::{Answer, Rig, completion, post, stream};

/// One request runs, one waits, and nobody is preempted.
const TIGHT: &str = "--model fake:step=5ms --max-running-requests 1 --max-queued-requests 1 \
                     --preemption-threshold 0";

fn at(level: i64, mut body: Value) -> Request<Body> {
    body["priority"] = json!(level);
    post("/v1/completions", &body)
}

fn of(tenant: &'static str, body: &Value) -> Request<Body> {
    let mut request = post("/v1/completions", body);
    request.headers_mut().insert("x-tenant-id", HeaderValue::from_static(tenant));
    request
}

fn check_refused(refused: &Answer, code: &str) {
    assert_eq!((refused.status.as_u16(), refused.error_code().as_str()), (429, code));
    assert_eq!(refused.header("content-type"), "application/json", "no header of a stream");
    let seconds: u64 = refused.header("retry-after").parse().expect("whole seconds");
    assert!(seconds >= 1);
}

#[tokio::test]
async fn a_better_request_takes_the_place_of_one_that_waits() {
    // On the wire, either the larger or the smaller number is the better one.
    for (order, sign) in [("high-first", 1), ("low-first", -1)] {
        let rig = Rig::new(&format!("{TIGHT} --priority-order {order}"));
        let running = rig.send(post("/v1/completions", &stream(3000))).await;
        rig.until("one runs", |rig| rig.running() == 1).await;
        for body in [completion(3000), stream(3000)] {
            rig.until("the place is free", |rig| rig.waiting() == 0).await;
            let victim = rig.send(at(0, body));
            let newcomer = rig.send(at(5 * sign, completion(3)));
            tokio::pin!(victim, newcomer);
            tokio::select! {
                _ = &mut victim => panic!("the running request is longer than this"),
                () = rig.until("one waits", |rig| rig.queued() == 1) => {}
            }
            let worse = rig.send(at(-5 * sign, completion(3))).await;
            check_refused(&Answer::read(worse).await, "queue_requests_full");
            let refused = tokio::select! {
                refused = &mut victim => refused,
                _ = &mut newcomer => panic!("nothing has ended"),
            };
            check_refused(&Answer::read(refused).await, "priority_evicted");
            assert_eq!(rig.waiting(), 1, "the newcomer has the place");
        }
        drop(running);
        rig.idle().await;
    }
}

#[tokio::test]
async fn a_request_that_waits_too_long_is_refused() {
    let rig = Rig::new(&format!("{TIGHT} --queue-timeout 50ms"));
    let running = rig.send(post("/v1/completions", &stream(3000))).await;
    for body in [completion(3), stream(3)] {
        let refused = rig.post("/v1/completions", &body).await;
        check_refused(&refused, "queue_timeout");
        let message = refused.json()["error"]["message"].to_string();
        assert!(message.contains("and 0.1 s is the limit"), "{message}");
    }
    assert_eq!(rig.waiting(), 0);
    drop(running);
    rig.idle().await;
    assert_eq!(rig.complete(3).await.status, 200, "a free slot is no waiting");
}

#[tokio::test]
async fn the_limit_on_waiting_changes_while_requests_wait() {
    let rig = Rig::new(TIGHT);
    let running = rig.send(post("/v1/completions", &stream(3000))).await;
    let body = stream(3);
    let waiting = rig.post("/v1/completions", &body);
    tokio::pin!(waiting);
    tokio::select! {
        _ = &mut waiting => panic!("there is no limit yet"),
        () = rig.until("one waits", |rig| rig.waiting() == 1) => {}
    }
    let limit = serde_json::json!({"queue-timeout": "50ms"});
    let mut request = post("/admin/config", &limit);
    request.headers_mut().insert("if-match", "*".parse().expect("a header"));
    let told = Answer::read(rig.send(request).await).await.json();
    assert_eq!(told["applied"], serde_json::json!(["queue-timeout"]));
    check_refused(&waiting.await, "queue_timeout");
    drop(running);
    rig.idle().await;
}

#[tokio::test]
async fn a_request_that_runs_too_long_is_given_up_by_name() {
    let rig = Rig::new("--model fake:step=5ms --request-timeout 100ms");
    let whole = rig.complete(3000).await;
    assert_eq!((whole.status.as_u16(), whole.error_code().as_str()), (503, "running_timeout"));
    let cut = rig.post("/v1/completions", &stream(3000)).await;
    assert_eq!(cut.status, 200, "the head had left");
    let (events, done) = cut.events();
    assert!(!done && events.len() > 5, "an answer that was cut is not called done");
    assert_eq!(events.last().expect("events")["error"]["code"], "running_timeout");
    assert_eq!(rig.complete(3).await.status, 200);
    rig.idle().await;
}

#[tokio::test]
async fn a_running_request_gives_way_to_a_much_better_one() {
    let flags = "--model fake:step=2ms --max-running-requests 1 --preemption-threshold 5";
    let rig = Rig::new(flags);
    let long = rig.send(at(0, completion(500)));
    tokio::pin!(long);
    tokio::select! {
        _ = &mut long => panic!("it is longer than this"),
        () = rig.until("it runs", |rig| rig.running() == 1) => {}
    }
    let better = rig.send(at(10, completion(5))).await;
    assert_eq!(Answer::read(better).await.status, 200);
    let alone = rig.send(at(0, completion(500)));
    let (long, alone) = tokio::join!(long, alone);
    let text = |answer: Answer| answer.json()["choices"][0]["text"].clone();
    assert_eq!(text(Answer::read(long).await), text(Answer::read(alone).await));
}

#[tokio::test]
async fn a_flood_of_one_tenant_does_not_delay_another() {
    let flags = "--model fake:step=2ms --max-running-requests 1 --fair-share on";
    let rig = Rig::new(flags);
    let flood = async {
        let each = (0..12).map(|_| rig.send(of("flood", &completion(40))));
        futures_util::future::join_all(each).await
    };
    tokio::pin!(flood);
    tokio::select! {
        _ = &mut flood => panic!("these are longer than this"),
        () = rig.until("eleven wait", |rig| rig.queued() == 11) => {}
    }
    let mut named = completion(3);
    named["user"] = json!("quiet");
    for quiet in [of("quiet", &completion(3)), post("/v1/completions", &named)] {
        assert_eq!(Answer::read(rig.send(quiet).await).await.status, 200);
        assert!(rig.waiting() >= 7, "{} of the flood still wait", rig.waiting());
    }
    let answers = flood.await;
    assert!(answers.iter().all(|answer| answer.status() == 200));
}

#[tokio::test]
async fn what_cannot_be_a_priority_or_a_tenant_is_refused_by_name() {
    let rig = Rig::new("--model fake:step=0ms");
    let refused = Answer::read(rig.send(at(101, completion(1))).await).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["error"]["param"], "priority");
    let mut body = completion(1);
    body["user"] = json!("x".repeat(300));
    let refused = rig.post("/v1/completions", &body).await;
    assert_eq!((refused.status.as_u16(), &refused.json()["error"]["param"]), (400, &json!("user")));
}
