//! The only worker of a model is away for a moment.

use std::time::Duration;

use protocol::internal::{LoadRole, LoadState};
use tokio_util::task::TaskTracker;

use super::mock::{Act, Mock, events, load};
use super::rig::{Answer, PATIENCE, Rig, chat, post, settings};
use crate::serve::Settings;
use crate::worker::WorkerRole::{Decode, Prefill, Unified};
use crate::{Held, HoldConfig, PolicyKind};

fn good() -> Act {
    Act::Events(events(&["a"]))
}

/// Settings under which so many requests wait for so long.
fn holding(workers: &[(&Mock, crate::WorkerRole)], time: Duration, requests: usize) -> Settings {
    let mut settings = settings(workers);
    settings.core.hold = HoldConfig { time, requests, tokens: 1000 };
    settings
}

fn held(rig: &Rig) -> usize {
    rig.gateway.core().held().requests
}

/// A request that is under way while the test goes on.
fn ask(rig: &Rig) -> tokio::task::JoinHandle<Answer> {
    let router = rig.router.clone();
    TaskTracker::new().spawn(async move {
        use tower::ServiceExt;
        let request = post("/v1/chat/completions", &chat(true));
        Answer::read(router.oneshot(request).await.expect("infallible")).await
    })
}

async fn ended(asked: tokio::task::JoinHandle<Answer>) -> Answer {
    tokio::time::timeout(PATIENCE, asked).await.expect("in time").expect("no panic")
}

async fn holds(rig: &Rig, outcome: &str) -> f64 {
    rig.metric("router_holds_total", &[&format!("outcome=\"{outcome}\""), "\"m\""]).await
}

#[tokio::test]
async fn requests_wait_for_the_only_worker_and_are_answered_when_it_is_back() {
    let worker = Mock::of(LoadRole::Unified, good()).await;
    let address = worker.address;
    let rig = Rig::ready(holding(&[(&worker, Unified)], PATIENCE, 8)).await;
    assert_eq!(rig.metric("router_held_requests_limit", &[]).await, 8.0);
    worker.kill().await;
    rig.until("it is missed", |rig| rig.up() == 0).await;
    let asked = [ask(&rig), ask(&rig)];
    rig.until("both wait", |rig| held(rig) == 2).await;
    assert_eq!(rig.metric("router_held_requests", &[]).await, 2.0);
    assert!(rig.metric("router_held_tokens", &[]).await >= 2.0);
    let told = rig.get("/internal/workers").await.json();
    assert_eq!(told["held"]["requests"], 2);
    let _back = Mock::at(address, good(), Some(load(LoadRole::Unified, "i-2"))).await;
    for asked in asked {
        let answer = ended(asked).await;
        assert_eq!(answer.status, 200);
        assert!(answer.text().ends_with("data: [DONE]\n\n"));
    }
    assert_eq!(rig.gateway.core().held(), Held::default());
    assert_eq!(holds(&rig, "routed").await, 2.0);
    assert_eq!(rig.metric("router_hold_duration_seconds_count", &["\"m\""]).await, 2.0);
    assert_eq!(rig.metric("requests_rejected_total", &[]).await, 0.0);
}

#[tokio::test]
async fn a_pair_is_waited_for_whichever_half_restarts() {
    let decode = Mock::of(LoadRole::Decode, good()).await;
    let prefill = Mock::of(LoadRole::Prefill, Act::Hang).await;
    let workers = [(&decode, Decode), (&prefill, Prefill)];
    let rig = Rig::ready(holding(&workers, PATIENCE, 8)).await;
    prefill.tell(|load| load.state = LoadState::Starting);
    rig.until("it is missed", |rig| rig.up() == 1).await;
    let asked = ask(&rig);
    rig.until("it waits", |rig| held(rig) == 1).await;
    prefill.tell(|load| (load.state, load.instance_id) = (LoadState::Ready, "i-2".to_owned()));
    assert_eq!(ended(asked).await.status, 200);
    assert_eq!(holds(&rig, "routed").await, 1.0);
}

#[tokio::test]
async fn who_finds_no_connection_before_the_worker_is_missed_waits_too() {
    let worker = Mock::of(LoadRole::Unified, good()).await;
    let address = worker.address;
    let rig = Rig::ready(holding(&[(&worker, Unified)], PATIENCE, 8)).await;
    let asks_no_more = PATIENCE * 10;
    rig.gateway.configure(|settings| settings.poll_every = asks_no_more);
    let polled = worker.counts().polled;
    worker.until("the last poll by the old rhythm", |counts| counts.polled > polled).await;
    worker.kill().await;
    let asked = ask(&rig);
    rig.until("it waits", |rig| held(rig) == 1).await;
    assert_eq!(rig.up(), 1, "nobody has noticed");
    let _back = Mock::at(address, good(), Some(load(LoadRole::Unified, "i-2"))).await;
    assert_eq!(ended(asked).await.status, 200);
    assert_eq!(rig.metric("router_requests_total", &["outcome=\"ok\""]).await, 1.0);
}

#[tokio::test]
async fn a_worker_that_says_that_it_stops_is_waited_for() {
    let body = r#"{"error":{"message":"It drains.","type":"t","param":null,"code":"draining"}}"#;
    let stops = Act::Whole(503, "retry-after: 1\r\n", body.to_owned());
    let worker = Mock::of(LoadRole::Unified, stops).await;
    let rig = Rig::ready(holding(&[(&worker, Unified)], PATIENCE, 8)).await;
    let asked = ask(&rig);
    rig.until("it waits", |rig| held(rig) == 1).await;
    worker.act(good());
    worker.tell(|load| load.instance_id = "i-2".to_owned());
    assert_eq!(ended(asked).await.status, 200);
    let other = r#"{"error":{"message":"No room.","type":"t","param":null,"code":"alloc"}}"#;
    worker.act(Act::Whole(503, "", other.to_owned()));
    let answer = rig.stream().await;
    assert_eq!(answer.error(), (503, "alloc".to_owned()), "a refusal is one");
}

/// A worker that refuses with this status for long.
fn refuses(status: u16, code: &str) -> Act {
    let body =
        format!(r#"{{"error":{{"message":"No.","type":"t","param":null,"code":"{code}"}}}}"#);
    Act::Whole(status, "retry-after: 30\r\n", body)
}

#[tokio::test]
async fn a_worker_that_takes_nothing_is_not_called_full() {
    let worker = Mock::of(LoadRole::Unified, refuses(503, "alloc")).await;
    let rig = Rig::ready(settings(&[(&worker, Unified)])).await;
    // A later report would say that there is room.
    rig.gateway.configure(|settings| settings.poll_every = PATIENCE * 10);
    let polled = worker.counts().polled;
    worker.until("the last poll by the old rhythm", |counts| counts.polled > polled).await;
    assert_eq!(rig.stream().await.error(), (503, "alloc".to_owned()));
    let refused = rig.stream().await;
    assert_eq!(refused.error(), (503, "closed".to_owned()), "left alone now");
    assert!(refused.header("retry-after").parse::<u64>().expect("seconds") > 20);
    assert_eq!(rig.metric("requests_rejected_total", &["reason=\"unhealthy\""]).await, 2.0);
    let full = ["reason=\"queue_requests_full\""];
    assert_eq!(rig.metric("requests_rejected_total", &full).await, 0.0);
}

#[tokio::test]
async fn waiting_has_bounds_and_an_end_with_a_time_to_come_back() {
    let worker = Mock::of(LoadRole::Unified, good()).await;
    let rig = Rig::ready(holding(&[(&worker, Unified)], PATIENCE, 1)).await;
    worker.kill().await;
    rig.until("it is missed", |rig| rig.up() == 0).await;
    let asked = ask(&rig);
    rig.until("one waits", |rig| held(rig) == 1).await;
    let refused = rig.stream().await;
    assert_eq!(refused.error(), (503, "no_worker".to_owned()));
    assert!(refused.header("retry-after").parse::<u64>().expect("seconds") >= 1);
    assert_eq!(holds(&rig, "full").await, 1.0);
    asked.abort();
    rig.until("the place is free", |rig| held(rig) == 0).await;
    assert_eq!(holds(&rig, "client_gone").await, 1.0);
    assert_eq!(rig.metric("router_requests_total", &["outcome=\"client_gone\""]).await, 1.0);
    // Who waits now is told how long: what is in force counts from its next wait on.
    let short = |settings: &mut Settings| settings.core.hold.time = Duration::ZERO;
    rig.gateway.configure(short);
    assert_eq!(rig.stream().await.error(), (503, "no_worker".to_owned()));
    assert_eq!(holds(&rig, "full").await, 1.0, "nothing is held any more");
}

#[tokio::test]
async fn who_has_waited_long_enough_is_told_to_come_back() {
    let worker = Mock::of(LoadRole::Unified, good()).await;
    let time = Duration::from_secs(1);
    let rig = Rig::ready(holding(&[(&worker, Unified)], time, 8)).await;
    worker.kill().await;
    rig.until("it is missed", |rig| rig.up() == 0).await;
    let asked = ask(&rig);
    rig.until("it waits", |rig| held(rig) == 1).await;
    let answer = ended(asked).await;
    assert_eq!(answer.error(), (503, "no_worker".to_owned()));
    assert!(answer.header("retry-after").parse::<u64>().expect("seconds") >= 1);
    assert_eq!(holds(&rig, "expired").await, 1.0);
    assert_eq!(rig.metric("requests_rejected_total", &["reason=\"unhealthy\""]).await, 1.0);
}

#[tokio::test]
async fn a_worker_that_comes_back_full_refuses_who_waited() {
    let worker = Mock::of(LoadRole::Unified, good()).await;
    let rig = Rig::ready(holding(&[(&worker, Unified)], PATIENCE, 8)).await;
    worker.tell(|load| load.state = LoadState::Starting);
    rig.until("it is missed", |rig| rig.up() == 0).await;
    let asked = ask(&rig);
    rig.until("it waits", |rig| held(rig) == 1).await;
    worker.tell(|load| {
        load.state = LoadState::Ready;
        (load.queued.requests, load.running) = (load.limits.requests, load.running_limit);
    });
    assert_eq!(ended(asked).await.error(), (429, "queue_requests_full".to_owned()));
    assert_eq!(holds(&rig, "refused").await, 1.0);
}

#[tokio::test]
async fn a_router_that_stops_lets_nobody_wait() {
    let worker = Mock::of(LoadRole::Unified, good()).await;
    let rig = Rig::ready(holding(&[(&worker, Unified)], PATIENCE, 8)).await;
    worker.kill().await;
    rig.until("it is missed", |rig| rig.up() == 0).await;
    let asked = ask(&rig);
    rig.until("it waits", |rig| held(rig) == 1).await;
    rig.gateway.drain();
    assert_eq!(ended(asked).await.error(), (503, "server_draining".to_owned()));
    assert_eq!(holds(&rig, "draining").await, 1.0);
    assert_eq!(rig.metric("requests_rejected_total", &["reason=\"draining\""]).await, 1.0);
}

#[tokio::test]
async fn settings_change_while_requests_are_answered() {
    let worker = Mock::of(LoadRole::Unified, good()).await;
    let rig = Rig::ready(settings(&[(&worker, Unified)])).await;
    assert_eq!(rig.stream().await.status, 200);
    rig.gateway.configure(|settings| settings.core.policy = PolicyKind::PrefixHash);
    assert_eq!(rig.stream().await.status, 200);
    for policy in ["round_robin", "prefix_hash"] {
        let of = [&*format!("policy=\"{policy}\"")];
        assert_eq!(rig.metric("router_requests_total", &of).await, 1.0, "{policy}");
        assert_eq!(rig.metric("router_decisions_total", &of).await, 1.0, "{policy}");
    }
    assert_eq!(rig.get("/version").await.json()["policy"], "prefix_hash");
    let body = |settings: &mut Settings| settings.body_bytes = 10;
    rig.gateway.configure(body);
    assert_eq!(rig.stream().await.status, 413);
}
