//! What has gone wrong in other routers, one test each.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use protocol::internal::{LoadRole, LoadState};
use serde_json::json;
use tokio::sync::Semaphore;

use super::mock::{Act, Mock, events, load};
use super::rig::{Rig, chat, part, post, settings};
use crate::worker::WorkerRole::{Decode, Prefill, Unified};
use crate::worker::{CircuitState, WorkerState};

fn good() -> Act {
    Act::Events(events(&["a"]))
}

fn busy(status: u16) -> Act {
    Act::Whole(status, "retry-after: 1\r\n", "{\"error\":{}}".to_owned())
}

#[tokio::test]
async fn it_starts_without_workers_and_says_what_is_missing() {
    let rig = Rig::new(settings(&[]));
    let missing = rig.gateway.readiness().expect_err("nobody is there").to_string();
    assert!(missing.contains("no unified worker is ready"), "{missing}");
    let answer = rig.stream().await;
    assert_eq!(answer.error(), (503, "no_worker".to_owned()));
    assert!(!answer.header("retry-after").is_empty());

    let decode = Mock::of(LoadRole::Decode, good()).await;
    let gone = Mock::of(LoadRole::Prefill, Act::Hang).await;
    let listed = settings(&[(&decode, Decode), (&gone, Prefill)]);
    let address = gone.address;
    gone.kill().await;
    let rig = Rig::new(listed);
    rig.until("the decode worker is up", |rig| rig.up() == 1).await;
    let missing = rig.gateway.readiness().expect_err("half a pair").to_string();
    assert!(missing.contains("prefill") && missing.contains(&address.to_string()), "{missing}");
    let answer = rig.stream().await;
    assert_eq!(answer.error(), (503, "no_worker".to_owned()));
    assert!(answer.message().contains("no prefill worker is ready"), "{}", answer.message());
    let prefill = Mock::at(address, Act::Hang, Some(load(LoadRole::Prefill, "p"))).await;
    rig.until("a pair is there", |rig| rig.gateway.readiness().is_ok()).await;
    assert_eq!(rig.stream().await.status, 200);
    assert_eq!(prefill.counts().asked, 0, "decode leads");
}

#[tokio::test]
async fn a_worker_is_removed_during_a_hundred_streams() {
    let gate = Arc::new(Semaphore::new(0));
    let texts = events(&["a"]);
    let act = Act::Gated(texts.clone(), Arc::clone(&gate));
    let (one, two) = (Mock::plain(act.clone()).await, Mock::plain(act).await);
    let path = std::env::temp_dir().join(format!("sightline-hundred-{}", std::process::id()));
    let line = |mock: &Mock| format!("{{\"url\":\"{}\"}}\n", mock.url());
    std::fs::write(&path, line(&one) + &line(&two)).expect("the folder is writable");
    let mut settings = settings(&[]);
    settings.file = Some(path.clone());
    let rig = Rig::new(settings);
    rig.until("both are up", |rig| rig.up() == 2).await;
    let mut bodies: Vec<Body> = Vec::new();
    for _ in 0..100 {
        bodies.push(rig.send(post("/v1/chat/completions", &chat(true))).await.into_body());
    }
    assert_eq!((one.counts().asked, two.counts().asked), (50, 50));
    std::fs::write(&path, line(&two)).expect("the folder is writable");
    rig.until("one has left", |rig| rig.views().len() == 1).await;
    gate.add_permits(100 * texts.len());
    for mut body in bodies {
        let mut text = String::new();
        while let Some(part) = part(&mut body).await {
            text.push_str(&part);
        }
        assert_eq!(text, texts.concat());
    }
    assert_eq!(rig.stream().await.status, 200);
    assert_eq!((one.counts().asked, two.counts().asked), (50, 51));
    one.until("its connections are closed", |counts| counts.open == 0).await;
    std::fs::remove_file(path).expect("it was there");
}

#[tokio::test]
async fn models_are_told_without_asking_a_worker_that_is_dead() {
    let (one, two) = (Mock::plain(good()).await, Mock::plain(good()).await);
    one.models(&["a"]);
    two.models(&["b"]);
    let rig = Rig::of(&[&one, &two]).await;
    one.kill().await;
    let list = rig.get("/v1/models").await;
    let models = list.json();
    let names: Vec<_> = models["data"].as_array().expect("a list").iter().collect();
    assert_eq!(names.iter().filter(|model| model["id"] == "b").count(), 1, "{models}");
    assert_eq!(rig.get("/v1/models/b").await.json()["id"], "b");
    assert_eq!(rig.get("/v1/models/c").await.error(), (404, "model_not_found".to_owned()));
}

#[tokio::test]
async fn saturation_and_bad_requests_open_no_breaker() {
    for act in [busy(429), busy(503), Act::Whole(400, "", "{}".to_owned())] {
        let worker = Mock::plain(act).await;
        let rig = Rig::of(&[&worker]).await;
        for _ in 0..100 {
            assert_ne!(rig.stream().await.status, 200);
        }
        assert_eq!(rig.view(&worker).circuit, CircuitState::Closed);
        worker.act(good());
        rig.until("it is asked again", |rig| rig.view(&worker).cooling.is_none()).await;
        assert_eq!(rig.stream().await.status, 200);
    }
    let broken = Mock::plain(Act::Close).await;
    let rig = Rig::of(&[&broken]).await;
    for _ in 0..20 {
        assert_ne!(rig.stream().await.status, 200);
    }
    assert_eq!(rig.view(&broken).circuit, CircuitState::Open, "failures do");
    assert_eq!(rig.metric("router_circuit_state", &["state=\"open\""]).await, 1.0);
}

#[tokio::test]
async fn overload_is_not_multiplied() {
    let mocks =
        [Mock::plain(busy(429)).await, Mock::plain(busy(429)).await, Mock::plain(busy(429)).await];
    let rig = Rig::of(&[&mocks[0], &mocks[1], &mocks[2]]).await;
    let answer = rig.stream().await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.header("retry-after"), "1");
    let asked: usize = mocks.iter().map(|mock| mock.counts().asked).sum();
    assert!(asked <= 2, "at most one other worker: {asked}");
}

#[tokio::test]
async fn the_half_of_a_pair_that_fails_is_replaced_and_nothing_hangs() {
    let decode = Mock::of(LoadRole::Decode, good()).await;
    let (one, two) = (
        Mock::of(LoadRole::Prefill, Act::Hang).await,
        Mock::of(LoadRole::Prefill, Act::Hang).await,
    );
    let rig = Rig::ready(settings(&[(&decode, Decode), (&one, Prefill), (&two, Prefill)])).await;
    let error = "{\"error\":{\"code\":\"kv_transfer\"}}".to_owned();
    decode.act(Act::Whole(502, "x-sightline-cause: prefill\r\n", error.clone()));
    let answer = rig.stream().await;
    assert_eq!((answer.status.as_u16(), answer.header("x-sightline-cause")), (502, ""));
    let named = |at: usize| decode.received()[at].headers["x-sightline-prefill"].clone();
    assert_ne!(named(0), named(1), "the other prefill worker");
    assert_eq!(rig.view(&decode).circuit, CircuitState::Closed, "it is not at fault");
    decode.act(good());
    assert_eq!(rig.stream().await.status, 200);
    for mock in [&decode, &one, &two] {
        assert_eq!(rig.view(mock).own.requests, 0);
        assert_eq!(rig.view(mock).own.pending, 0);
    }
    assert_eq!((one.counts().asked, two.counts().asked), (0, 0), "one leg alone");
}

#[tokio::test]
async fn a_decode_worker_that_is_gone_costs_no_time() {
    let prefill = Mock::of(LoadRole::Prefill, Act::Hang).await;
    let gone = Mock::of(LoadRole::Decode, Act::Hang).await;
    let decode = Mock::of(LoadRole::Decode, good()).await;
    let mut settings = settings(&[(&gone, Decode), (&decode, Decode), (&prefill, Prefill)]);
    settings.poll_every = Duration::from_secs(600);
    let rig = Rig::ready(settings).await;
    gone.kill().await;
    for _ in 0..4 {
        assert_eq!(rig.stream().await.status, 200);
    }
    assert_eq!((decode.counts().asked, prefill.counts().asked), (4, 0));
    assert_eq!(rig.view(&prefill).own.requests, 0);
}

#[tokio::test]
async fn either_half_restarts_alone() {
    let decode = Mock::of(LoadRole::Decode, good()).await;
    let prefill = Mock::of(LoadRole::Prefill, Act::Hang).await;
    let rig = Rig::ready(settings(&[(&decode, Decode), (&prefill, Prefill)])).await;
    assert_eq!(rig.stream().await.status, 200);
    let mut alive = Vec::new();
    for (mock, role) in [(prefill, LoadRole::Prefill), (decode, LoadRole::Decode)] {
        let address = mock.address;
        mock.kill().await;
        rig.until("it is missed", |rig| rig.gateway.readiness().is_err()).await;
        let act = if role == LoadRole::Decode { good() } else { Act::Hang };
        let back = Mock::at(address, act, Some(load(role, "i-2"))).await;
        rig.until("it is back", |rig| rig.gateway.readiness().is_ok()).await;
        assert_eq!(rig.stream().await.status, 200);
        alive.push(back);
    }
}

#[tokio::test]
async fn another_process_at_the_same_place_is_another_worker() {
    let worker = Mock::of(LoadRole::Unified, Act::Close).await;
    let rig = Rig::ready(settings(&[(&worker, Unified)])).await;
    for _ in 0..20 {
        assert_ne!(rig.stream().await.status, 200);
    }
    assert_eq!(rig.view(&worker).circuit, CircuitState::Open);
    worker.act(good());
    worker.tell(|load| {
        load.instance_id = "i-2".to_owned();
        load.state = LoadState::Starting;
    });
    rig.until("it joins", |rig| rig.view(&worker).state == WorkerState::Joining).await;
    assert_eq!(rig.view(&worker).circuit, CircuitState::Closed, "what another did is forgotten");
    worker.tell(|load| load.state = LoadState::Ready);
    rig.until("it is ready", |rig| rig.up() == 1).await;
    assert_eq!(rig.stream().await.status, 200);
}

#[tokio::test]
async fn a_pair_that_was_idle_answers_at_once() {
    let decode = Mock::of(LoadRole::Decode, good()).await;
    let prefill = Mock::of(LoadRole::Prefill, Act::Hang).await;
    let rig = Rig::ready(settings(&[(&decode, Decode), (&prefill, Prefill)])).await;
    assert_eq!(rig.stream().await.status, 200);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(600)).await;
    tokio::time::resume();
    rig.until("they are there", |rig| rig.up() == 2).await;
    assert_eq!(rig.stream().await.status, 200);
    assert_eq!(rig.metric("router_retries_total", &[]).await, 0.0);
}

#[tokio::test]
async fn draining_wins_over_healthy() {
    let (one, two) =
        (Mock::of(LoadRole::Unified, good()).await, Mock::of(LoadRole::Unified, good()).await);
    let rig = Rig::ready(settings(&[(&one, Unified), (&two, Unified)])).await;
    one.tell(|load| load.state = LoadState::Draining);
    rig.until("it drains", |rig| rig.view(&one).state == WorkerState::Draining).await;
    for _ in 0..4 {
        assert_eq!(rig.stream().await.status, 200);
    }
    assert_eq!((one.counts().asked, two.counts().asked), (0, 4));
    // Told by an operator, at once and without a poll.
    let path = format!("/admin/workers/{}/drain", two.address);
    let answer = rig.post(&path, &json!({})).await;
    assert_eq!(answer.json()["state"], "draining");
    assert_eq!(rig.stream().await.error(), (503, "no_worker".to_owned()));
    let request = axum::http::Request::delete(&path).body(Body::empty()).expect("a request");
    assert_eq!(rig.send(request).await.status(), 200);
    assert_eq!(rig.stream().await.status, 200);
    let unknown = rig.post("/admin/workers/10.0.0.1:1/drain", &json!({})).await;
    assert_eq!(unknown.error().0, 404);
    assert!(unknown.message().contains("10.0.0.1:1"), "{}", unknown.message());
    assert_eq!(rig.post("/admin/workers/nothing/drain", &json!({})).await.error().0, 404);
}

#[tokio::test]
async fn being_ready_depends_on_what_workers_answer_now() {
    let worker = Mock::of(LoadRole::Unified, good()).await;
    let mut settings = settings(&[(&worker, Unified)]);
    settings.poll_timeout = Duration::from_millis(30);
    let rig = Rig::ready(settings).await;
    assert!(rig.gateway.readiness().is_ok());
    worker.deaf(true);
    rig.until("that is noticed", |rig| rig.gateway.readiness().is_err()).await;
    worker.deaf(false);
    rig.until("it answers again", |rig| rig.gateway.readiness().is_ok()).await;
}

#[tokio::test]
async fn lists_are_told_again_whatever_was_missed() {
    let worker = Mock::plain(good()).await;
    let rig = Rig::of(&[&worker]).await;
    let listed = |rig: &Rig| {
        let discovered = rig.gateway.discovered();
        discovered.sources.get(&crate::Source::Flags).and_then(|look| look.good)
    };
    let first = listed(&rig).expect("it was listed");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    rig.until("it is listed again", |rig| listed(rig).is_some_and(|last| last > first)).await;
    assert_eq!(rig.stream().await.status, 200);
}

#[tokio::test]
async fn a_worker_that_hangs_holds_up_nobody_else() {
    let (hung, good_one) = (Mock::plain(Act::Hang).await, Mock::plain(good()).await);
    let mut settings = settings(&[(&hung, Unified), (&good_one, Unified)]);
    settings.stream.first_byte = Duration::from_millis(100);
    let rig = Rig::ready(settings).await;
    hung.deaf(true);
    let polled = good_one.counts().polled;
    let answers = futures_util::future::join_all((0..20).map(|_| rig.stream())).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    good_one.until("it is polled on", |counts| counts.polled > polled + 4).await;
}

#[tokio::test]
async fn nobody_is_asked_before_its_model_can_be_used() {
    let told = Mock::of(LoadRole::Unified, good()).await;
    told.tell(|load| load.state = LoadState::Starting);
    let plain = Mock::plain(good()).await;
    plain.health(503);
    let rig = Rig::new(settings(&[(&told, Unified), (&plain, Unified)]));
    let polled = |counts: super::mock::Counts| counts.polled > 8;
    told.until("it is polled", polled).await;
    plain.until("it is polled", polled).await;
    assert_eq!(rig.up(), 0);
    plain.health(200);
    plain.models(&[]);
    let before = plain.counts().polled;
    plain.until("it is polled", |counts| counts.polled > before + 8).await;
    assert_eq!(rig.up(), 0, "no model yet");
    assert_eq!(rig.stream().await.error(), (503, "no_worker".to_owned()));
    plain.models(&["m"]);
    told.tell(|load| load.state = LoadState::Ready);
    rig.until("both are up", |rig| rig.up() == 2).await;
    assert_eq!(rig.stream().await.status, 200);
}

#[tokio::test]
async fn halves_of_different_versions_are_not_paired() {
    let decode = Mock::of(LoadRole::Decode, good()).await;
    let old = Mock::of(LoadRole::Prefill, Act::Hang).await;
    old.tell(|load| load.fingerprint = "older".to_owned());
    let same = Mock::of(LoadRole::Prefill, Act::Hang).await;
    let rig = Rig::ready(settings(&[(&decode, Decode), (&old, Prefill), (&same, Prefill)])).await;
    for _ in 0..6 {
        assert_eq!(rig.stream().await.status, 200);
    }
    let named = decode.received();
    let same = same.address.to_string();
    assert!(named.iter().all(|request| request.headers["x-sightline-prefill"] == same));
}

#[tokio::test]
async fn a_restart_under_load_costs_only_its_own_streams() {
    let gate = Arc::new(Semaphore::new(0));
    let texts = events(&["a"]);
    let act = Act::Gated(texts.clone(), Arc::clone(&gate));
    let (one, two) = (Mock::plain(act.clone()).await, Mock::plain(act).await);
    let rig = Rig::of(&[&one, &two]).await;
    let mut bodies: Vec<Body> = Vec::new();
    for _ in 0..40 {
        bodies.push(rig.send(post("/v1/chat/completions", &chat(true))).await.into_body());
    }
    let address = one.address;
    one.kill().await;
    gate.add_permits(1000);
    let (mut whole, mut broken) = (0, 0);
    for mut body in bodies {
        let mut text = String::new();
        while let Some(part) = part(&mut body).await {
            text.push_str(&part);
        }
        if text == texts.concat() {
            whole += 1;
        } else {
            assert!(text.contains("\"code\":\"bad_gateway\""), "{text}");
            broken += 1;
        }
    }
    assert_eq!((whole, broken), (20, 20));
    let back = Mock::at(address, good(), None).await;
    rig.until("it is back", |rig| rig.up() == 2).await;
    for _ in 0..4 {
        assert_eq!(rig.stream().await.status, 200);
    }
    assert!(back.counts().asked > 0);
    assert_eq!(rig.metric("router_worker_active_requests", &[]).await, 0.0);
}
