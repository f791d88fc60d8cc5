//! What the metrics page and `/internal/workers` say.

use std::sync::Arc;

use protocol::internal::LoadRole;
use tokio::sync::Semaphore;

use super::mock::{Act, Mock, events};
use super::rig::{Rig, chat, part, post, settings};
use crate::worker::WorkerRole::{Decode, Prefill, Unified};

#[tokio::test]
async fn workers_have_series_from_the_moment_they_join() {
    let decode = Mock::of(LoadRole::Decode, Act::Events(events(&["a"]))).await;
    let prefill = Mock::of(LoadRole::Prefill, Act::Hang).await;
    let rig = Rig::ready(settings(&[(&decode, Decode), (&prefill, Prefill)])).await;
    let page = rig.get("/metrics").await.text();
    for mock in [&decode, &prefill] {
        let worker = format!("worker=\"{}\"", mock.address);
        let of = |family: &str| {
            let name = format!("sightline_{family}{{");
            page.lines().any(|line| line.starts_with(&name) && line.contains(&worker))
        };
        for family in [
            "router_upstream_responses_total",
            "router_worker_up",
            "router_worker_active_requests",
            "router_worker_pending_tokens",
            "router_load_report_age_seconds",
            "router_circuit_state",
        ] {
            assert!(of(family), "{family}");
        }
    }
    let up = |role: &'static str| ["sightline", role].map(|_| role);
    assert_eq!(rig.metric("router_worker_up", &up("worker_role=\"decode\"")).await, 1.0);
    assert_eq!(rig.metric("router_circuit_state", &["state=\"closed\""]).await, 2.0);
    let declared = ["worker_role=\"prefill\"", "model_name=\"m\""];
    assert_eq!(rig.metric("router_workers_declared", &declared).await, 1.0);
    assert_eq!(rig.metric("engine_state", &["state=\"ready\"", "model_name=\"m\""]).await, 1.0);
    decode.kill().await;
    rig.until("it is missed", |rig| rig.up() == 1).await;
    assert_eq!(rig.metric("router_worker_up", &["worker_role=\"decode\""]).await, 0.0);
    assert_eq!(rig.metric("router_workers_declared", &["\"decode\""]).await, 1.0, "still wanted");
    assert_eq!(rig.metric("engine_state", &["state=\"ready\""]).await, 0.0);
}

#[tokio::test]
async fn clients_waits_are_measured_where_they_end() {
    let gate = Arc::new(Semaphore::new(0));
    let mut texts = events(&["a", "b", "c"]);
    texts.insert(0, "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n".to_owned());
    let worker = Mock::of(LoadRole::Unified, Act::Gated(texts.clone(), Arc::clone(&gate))).await;
    let rig = Rig::ready(settings(&[(&worker, Unified)])).await;
    let mut body = rig.send(post("/v1/chat/completions", &chat(true))).await.into_body();
    part(&mut body).await.expect("the role");
    let streamed = ["streaming=\"true\"", "model_name=\"m\""];
    let first = "time_to_first_token_seconds_count";
    assert_eq!(rig.metric(first, &streamed).await, 0.0, "a role is no token");
    assert_eq!(rig.metric("router_worker_active_requests", &[]).await, 1.0);
    assert_eq!(rig.metric("http_requests_in_flight", &["model_name=\"m\""]).await, 1.0);
    gate.add_permits(1);
    part(&mut body).await.expect("the first token");
    assert_eq!(rig.metric(first, &streamed).await, 1.0);
    gate.add_permits(10);
    while part(&mut body).await.is_some() {}
    let model = ["model_name=\"m\""];
    // Two more texts; the counts and the end are no tokens.
    assert_eq!(rig.metric("inter_token_latency_seconds_count", &model).await, 2.0);
    assert_eq!(rig.metric("request_generated_tokens_sum", &model).await, 3.0, "as it counted");
    assert_eq!(rig.metric("request_time_per_output_token_seconds_count", &model).await, 1.0);
    assert_eq!(rig.metric("requests_finished_total", &["outcome=\"stop\""]).await, 1.0);
    assert_eq!(rig.metric("requests_admitted_total", &model).await, 1.0);
    for slo in ["slo=\"ttft\"", "slo=\"itl\"", "slo=\"e2e\""] {
        assert_eq!(rig.metric("slo_requests_total", &[slo, "result=\"good\""]).await, 1.0);
    }
    assert_eq!(rig.metric("router_requests_total", &["outcome=\"ok\""]).await, 1.0);
    assert_eq!(rig.metric("router_decisions_total", &model).await, 1.0);
    assert_eq!(rig.metric("router_upstream_responses_total", &["\"200\""]).await, 1.0);
    assert_eq!(rig.metric("router_prefix_match_ratio_count", &model).await, 1.0);
    drop(body);
    assert_eq!(rig.metric("http_requests_in_flight", &model).await, 0.0);
}

#[tokio::test]
async fn the_page_can_be_asked_for_in_part_and_counts_itself() {
    let rig = Rig::new(settings(&[]));
    let page = rig.get("/metrics?name[]=sightline_router_requests_total").await.text();
    let families = page.lines().filter(|line| line.starts_with("# TYPE")).count();
    assert_eq!(families, 1, "{page}");
    assert!(page.contains("model_name=\"other\""), "{page}");
    assert_eq!(rig.metric("http_requests_total", &["route=\"/metrics\""]).await, 1.0);
    assert_eq!(rig.get("/version").await.json()["role"], "router");
}

#[tokio::test]
async fn what_is_known_of_workers_is_told_to_people() {
    let worker = Mock::of(LoadRole::Unified, Act::Events(events(&["a"]))).await;
    let rig = Rig::ready(settings(&[(&worker, Unified)])).await;
    assert_eq!(rig.stream().await.status, 200);
    let told = rig.get("/internal/workers").await.json();
    assert_eq!((&told["ready"], &told["policy"]), (&true.into(), &"round_robin".into()));
    let one = &told["workers"][0];
    assert_eq!(one["worker"], worker.address.to_string());
    assert_eq!((&one["state"], &one["circuit"]), (&"ready".into(), &"closed".into()));
    assert_eq!(one["models"][0], "m");
    assert!(one["idle_connections"].as_u64().expect("a number") >= 1, "{one}");
    assert_eq!(told["sources"][0]["listed"], 1);
}
