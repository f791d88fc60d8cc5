//! Before the model is loaded, while draining, after a failure.

use std::time::Duration;

use serde_json::json;

use super::rig::{Answer, Rig, completion, part, post, stream};
use crate::lifecycle::Phase;

#[tokio::test]
async fn while_loading_everything_answers_and_nothing_is_served() {
    let rig = Rig::loading("--model fake");
    let refused = rig.complete(1).await;
    assert_eq!((refused.status.as_u16(), refused.error_code().as_str()), (503, "loading"));
    assert!(!refused.header("retry-after").is_empty());
    assert_eq!(rig.get("/readyz").await.status, 503);
    assert_eq!(rig.get("/startupz").await.status, 503);
    assert_eq!(rig.get("/livez").await.status, 200);
    assert_eq!(rig.get("/v1/models").await.status, 200);
    assert_eq!(rig.metric("engine_state", &["state=\"loading\""]).await, 1.0);
    assert_eq!(rig.metric("ready_timestamp_seconds", &[]).await, 0.0);
}

#[tokio::test]
async fn while_memory_is_taken_for_the_host_tier_the_probes_say_so() {
    let rig = Rig::loading("--model fake --enable-hierarchical-cache");
    for path in ["/startupz", "/readyz"] {
        let probe = rig.get(path).await;
        assert_eq!((probe.status.as_u16(), &probe.json()["state"]), (503, &json!("host_pools")));
    }
    assert_eq!(rig.get("/livez").await.status, 200);
    assert_eq!(rig.metric("engine_state", &["state=\"loading\""]).await, 1.0);
    let refused = rig.complete(1).await;
    assert_eq!((refused.status.as_u16(), refused.error_code().as_str()), (503, "loading"));
    rig.api.life.advance(Phase::Loading);
    assert_eq!(rig.get("/startupz").await.json()["state"], "loading");
}

#[tokio::test]
async fn draining_refuses_new_requests_and_finishes_old_ones() {
    let rig = Rig::new("--model fake:step=1ms");
    let mut old = rig.send(post("/v1/completions", &stream(200))).await.into_body();
    let mut text = part(&mut old).await.expect("a part");
    rig.api.life.advance(Phase::Draining);
    let deadline = rig.api.clock.now() + Duration::from_secs(60);
    rig.serving().engine.drain(deadline);
    let refused = rig.complete(1).await;
    assert_eq!((refused.status.as_u16(), refused.error_code().as_str()), (503, "draining"));
    assert!(!refused.header("retry-after").is_empty());
    assert_eq!(rig.get("/readyz").await.json()["state"], "draining");
    assert_eq!(rig.get("/livez").await.status, 200);
    while let Some(more) = part(&mut old).await {
        text.push_str(&more);
    }
    assert!(text.ends_with("data: [DONE]\n\n"));
    assert_eq!(rig.metric("requests_rejected_total", &["reason=\"draining\""]).await, 1.0);
}

#[tokio::test]
async fn the_deadline_ends_streams_with_an_error_event_and_the_others_with_a_status() {
    let rig = Rig::new("--model fake:step=1ms --max-running-requests 1");
    let old = rig.send(post("/v1/completions", &stream(4000))).await;
    let waiting = rig.send(post("/v1/completions", &stream(10)));
    tokio::pin!(waiting);
    tokio::select! {
        _ = &mut waiting => panic!("the running request is longer than this"),
        () = rig.until("one waits", |rig| rig.queued() == 1) => {}
    }
    rig.serving().engine.drain(rig.api.clock.now());
    let cut = Answer::read(waiting.await).await;
    assert_eq!((cut.status.as_u16(), cut.error_code().as_str()), (503, "server_draining"));
    let (events, done) = Answer::read(old).await.events();
    assert!(!done);
    assert_eq!(events.last().expect("events")["error"]["code"], "server_draining");
    assert_eq!(rig.metric("http_requests_total", &["status_code=\"503\""]).await, 2.0);
    for stage in ["stage=\"queued\"", "stage=\"decode\""] {
        let cut = &["reason=\"drain_deadline\"", stage];
        assert_eq!(rig.metric("requests_aborted_total", cut).await, 1.0, "{stage}");
    }
}

#[tokio::test]
async fn a_failed_engine_is_an_error_then_a_refusal() {
    for failure in ["fail-at=6", "panic-at=6"] {
        let rig = Rig::new(&format!("--model fake:step=0ms,{failure}"));
        let broken = rig.post("/v1/completions", &completion(50)).await;
        assert_eq!((broken.status.as_u16(), broken.error_code().as_str()), (500, "internal_error"));
        let refused = rig.complete(1).await;
        assert_eq!((refused.status.as_u16(), refused.error_code().as_str()), (503, "unhealthy"));
        assert_eq!(rig.metric("engine_state", &["state=\"failed\""]).await, 1.0);
        assert_eq!(rig.metric("engine_state", &[]).await, 1.0, "one state at a time");
        assert_eq!(rig.metric("requests_finished_total", &["outcome=\"error\""]).await, 1.0);
        assert_eq!(rig.metric("running_requests", &[]).await, 0.0);
    }
}

#[tokio::test]
async fn numbers_that_are_none_end_one_request_only() {
    let rig = Rig::new("--model fake:step=0ms,nan-at=6");
    let mut body = completion(50);
    body["temperature"] = json!(1.0);
    let broken = rig.post("/v1/completions", &body).await;
    assert_eq!(broken.status, 500, "{}", broken.text());
    assert_eq!(rig.complete(3).await.status, 200);
}
