//! Do the numbers add up?

use axum::body::Body;
use axum::http::Request;
use serde_json::json;

use super::rig::{Rig, completion, part, post, stream};

#[tokio::test]
async fn the_numbers_of_a_mixed_load_add_up() {
    let rig = Rig::new("--model fake:step=0ms --max-running-requests 2");
    let mut generated = 0;
    for tokens in [1, 7, 20] {
        let usage = rig.complete(tokens).await.json()["usage"].clone();
        generated += usage["completion_tokens"].as_u64().expect("a count");
        assert_eq!(rig.post("/v1/completions", &stream(tokens)).await.status, 200);
        generated += tokens as u64;
    }
    let mut left = rig.send(post("/v1/completions", &stream(4000))).await.into_body();
    assert!(part(&mut left).await.is_some());
    drop(left);
    rig.idle().await;
    assert_eq!(rig.post("/v1/completions", &json!({"model": "fake"})).await.status, 400);

    let admitted = rig.metric("requests_admitted_total", &[]).await;
    let finished = rig.metric("requests_finished_total", &[]).await;
    assert_eq!((admitted, finished), (7.0, 7.0));
    assert_eq!(rig.metric("requests_finished_total", &["outcome=\"aborted\""]).await, 1.0);
    assert_eq!(rig.metric("requests_rejected_total", &["reason=\"invalid\""]).await, 1.0);
    assert_eq!(rig.metric("request_prompt_tokens_sum", &[]).await, 63.0);
    assert_eq!(rig.metric("prompt_tokens_total", &["source=\"computed\""]).await, 63.0);
    let produced = rig.metric("generation_tokens_total", &[]).await;
    assert!(produced > generated as f64, "the request that was left made tokens, too");
    assert_eq!(rig.metric("request_generated_tokens_sum", &[]).await, produced);

    assert_eq!(rig.metric("time_to_first_token_seconds_count", &[]).await, 7.0);
    let streams = &["streaming=\"true\""];
    assert_eq!(rig.metric("time_to_first_token_seconds_count", streams).await, 4.0);
    let whole = rig.metric("time_to_first_token_seconds_sum", &[]).await;
    let parts = rig.metric("ttft_phase_seconds_sum", &[]).await;
    assert!((whole - parts).abs() <= whole * 0.01, "{whole} {parts}");
    assert_eq!(rig.metric("inter_token_latency_seconds_count", &[]).await, produced - 7.0);
    assert_eq!(rig.metric("slo_requests_total", &["slo=\"ttft\""]).await, 7.0);
    for gauge in ["running_requests", "queue_requests"] {
        assert_eq!(rig.metric(gauge, &[]).await, 0.0, "{gauge}");
    }
    assert_eq!(rig.metric("kv_pool_used_slots", &["state=\"active\""]).await, 0.0);
}

#[tokio::test]
async fn a_page_can_be_asked_for_in_part_and_without_a_body() {
    let rig = Rig::new("--model fake:step=0ms");
    let page = rig.get("/metrics").await;
    assert!(page.header("content-type").starts_with("text/plain; version=0.0.4"));
    let part = rig.get("/metrics?name[]=sightline_running_requests").await.text();
    assert_eq!(part.lines().filter(|line| !line.starts_with('#')).count(), 1, "{part}");
    let head = Request::builder().method("HEAD").uri("/metrics").body(Body::empty());
    let head = rig.send(head.expect("a request")).await;
    assert_eq!(head.status(), 200);
    drop(head);
    let heads = rig.metric("http_requests_total", &["method=\"HEAD\"", "/metrics"]).await;
    assert_eq!(heads, 1.0);
}

#[tokio::test]
async fn requests_in_flight_are_those_in_flight() {
    let rig = Rig::new("--model fake:step=1ms");
    let route = &["route=\"/v1/completions\""];
    let body = rig.send(post("/v1/completions", &stream(4000))).await;
    assert_eq!(rig.metric("http_requests_in_flight", route).await, 1.0);
    drop(body);
    assert_eq!(rig.metric("http_requests_in_flight", route).await, 0.0);
    rig.idle().await;
    let status = &["status_code=\"499\"", "/v1/completions"];
    assert_eq!(rig.metric("http_requests_total", status).await, 1.0);
    assert_eq!(rig.post("/v1/completions", &completion(2)).await.status, 200);
}
