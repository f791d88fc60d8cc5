//! Refusals, places in the queue, clients that leave.

use axum::body::Body;
use futures_util::stream::pending;
use protocol::internal::PROMPT_TOKENS_HEADER;
use serde_json::json;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::rig::{Answer, PATIENCE, Rig, completion, part, post, raw, stream};

/// One request runs, one waits.
const TIGHT: &str = "--model fake:step=5ms --max-running-requests 1 --max-queued-requests 1";

#[tokio::test]
async fn a_full_queue_refuses_before_any_header_and_says_when_to_come_back() {
    let rig = Rig::new(TIGHT);
    let running = rig.send(post("/v1/completions", &stream(3000))).await;
    rig.until("one runs", |rig| rig.running() == 1).await;
    let waiting = rig.send(post("/v1/completions", &completion(3000)));
    tokio::pin!(waiting);
    tokio::select! {
        _ = &mut waiting => panic!("the running request is longer than this"),
        () = rig.until("one waits", |rig| rig.waiting() == 1) => {}
    }
    for body in [completion(2), stream(2)] {
        let refused = rig.post("/v1/completions", &body).await;
        assert_eq!(refused.status, 429);
        assert_eq!(refused.error_code(), "queue_requests_full");
        assert_eq!(refused.header("content-type"), "application/json");
        let seconds: u64 = refused.header("retry-after").parse().expect("whole seconds");
        assert!(seconds >= 1);
    }
    let label = "reason=\"queue_requests_full\"";
    assert_eq!(rig.metric("requests_rejected_total", &[label]).await, 2.0);
    assert_eq!(rig.metric("admission_retry_after_seconds_count", &[]).await, 2.0);
    let late = &["slo=\"ttft\"", "result=\"bad\""];
    assert_eq!(rig.metric("slo_requests_total", late).await, 2.0);
    assert_eq!(rig.metric("queue_requests", &["queue=\"waiting\""]).await, 1.0);
    drop(running);
    assert_eq!(Answer::read(waiting.await).await.status, 200);
    rig.idle().await;
}

#[tokio::test]
async fn a_client_that_leaves_gives_its_place_back() {
    let rig = Rig::new(TIGHT);
    let mut running = rig.send(post("/v1/completions", &stream(3000))).await.into_body();
    assert!(part(&mut running).await.is_some());
    {
        let waiting = rig.send(post("/v1/completions", &completion(3000)));
        tokio::pin!(waiting);
        tokio::select! {
            _ = &mut waiting => panic!("the running request is longer than this"),
            () = rig.until("one waits", |rig| rig.queued() == 1) => {}
        }
    }
    rig.until("the place is free", |rig| rig.waiting() == 0).await;
    assert_eq!(rig.running(), 1);
    drop(running);
    rig.idle().await;
    let left = "reason=\"client_gone\"";
    for stage in ["stage=\"queued\"", "stage=\"decode\""] {
        assert_eq!(rig.metric("requests_aborted_total", &[left, stage]).await, 1.0, "{stage}");
    }
    assert_eq!(rig.metric("http_requests_total", &["status_code=\"499\""]).await, 2.0);
    assert_eq!(rig.complete(3).await.status, 200, "the slot is usable again");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_given_up() {
    let rig = Rig::new("--model fake:step=0ms --max-unsent-tokens 4");
    let response = rig.send(post("/v1/completions", &stream(3000))).await;
    rig.idle().await;
    let slow = &["reason=\"slow_client\"", "initiator=\"server\"", "stage=\"decode\""];
    assert_eq!(rig.metric("requests_aborted_total", slow).await, 1.0);
    let (events, done) = Answer::read(response).await.events();
    assert!(!done, "an answer that was cut is not called done");
    assert_eq!(events.last().expect("events")["error"]["code"], "slow_client");
    assert_eq!(rig.metric("http_requests_total", &["status_code=\"503\""]).await, 1.0);
}

#[tokio::test]
async fn tokens_and_drain_time_are_bounds_too() {
    let busy = |limit: &str| {
        format!(
            "--model fake:step=1ms,prefill-token=1ms --max-running-requests 1 \
             --max-batch-tokens 8 {limit}"
        )
    };
    let prompt = json!({"model": "fake", "prompt": "x".repeat(900), "max_tokens": 2});
    for (limit, code) in [
        ("--max-queued-tokens 1000 --ttft-objective 0s", "queue_tokens_full"),
        ("--ttft-objective 1s", "drain_time"),
    ] {
        let rig = Rig::new(&busy(limit));
        let first = rig.send(post("/v1/completions", &prompt));
        tokio::pin!(first);
        tokio::select! {
            _ = &mut first => panic!("the prompt takes longer than this"),
            () = rig.until("it runs", |rig| rig.running() == 1) => {}
        }
        let refused = rig.post("/v1/completions", &prompt).await;
        assert_eq!((refused.status.as_u16(), refused.error_code().as_str()), (429, code));
        assert_eq!(rig.waiting(), 0, "the place was given back");
        assert_eq!(Answer::read(first.await).await.header(PROMPT_TOKENS_HEADER), "900");
    }
}

#[tokio::test]
async fn what_must_be_refused_is_not_tokenised_and_does_not_wait_for_it() {
    let rig = Rig::new(
        "--model fake:step=5ms,context=16384 --max-running-requests 1 --max-queued-tokens 6000 \
         --ttft-objective 0s --tokenizer-threads 1",
    );
    let prompt = |letter: &str, tokens: usize| {
        let text = letter.repeat(tokens);
        json!({"model": "fake", "prompt": text, "max_tokens": 1})
    };
    assert_eq!(rig.post("/v1/completions", &prompt("k", 5000)).await.status, 200);
    let long = json!({"model": "fake", "prompt": "x".repeat(1000), "max_tokens": 9000,
                      "ignore_eos": true, "stream": true});
    let running = rig.send(post("/v1/completions", &long)).await;
    rig.until("one runs", |rig| rig.running() == 1).await;
    let waiting = rig.send(post("/v1/completions", &prompt("y", 5000)));
    tokio::pin!(waiting);
    tokio::select! {
        _ = &mut waiting => panic!("the running request is longer than this"),
        () = rig.until("one waits", |rig| rig.queued() == 1) => {}
    }
    let place = rig.api.tokenizing().acquire_owned().await.expect("never closed");
    let refused = rig.post("/v1/completions", &prompt("z", 5000)).await;
    assert_eq!((refused.status.as_u16(), refused.error_code()), (429, "queue_tokens_full".into()));
    assert!(refused.json()["error"]["message"].to_string().contains("10000"));
    assert_eq!(refused.header(PROMPT_TOKENS_HEADER), "", "nobody has counted them");
    let chat =
        json!({"model": "fake", "messages": [{"role": "user", "content": "z".repeat(5000)}]});
    assert_eq!(rig.post("/v1/chat/completions", &chat).await.status, 429);
    // One that is cached, and one of which is not known that it is too long, wait to be tokenised;
    // what the first of them has at least counts for those behind it.
    let cached = rig.send(post("/v1/completions", &prompt("k", 5000)));
    let fits = rig.send(post("/v1/completions", &prompt("a", 900)));
    tokio::pin!(cached, fits);
    tokio::select! {
        _ = &mut cached => panic!("nobody has tokenised it"),
        _ = &mut fits => panic!("nobody has tokenised it"),
        () = rig.until("both have places", |rig| rig.waiting() == 3) => {}
    }
    drop(place);
    drop(running);
    for answer in [waiting.await, cached.await, fits.await] {
        assert_eq!(Answer::read(answer).await.status, 200);
    }
    rig.idle().await;
}

#[tokio::test]
async fn several_answers_are_admitted_together_or_not_at_all() {
    let rig = Rig::new("--model fake:step=1ms --max-running-requests 1 --max-queued-requests 3");
    let mut body = completion(2);
    // One running and three waiting.
    body["n"] = json!(5);
    let never = rig.post("/v1/completions", &body).await;
    assert_eq!(never.status, 400, "it could never be admitted");
    let running = rig.send(post("/v1/completions", &stream(3000))).await;
    rig.until("one runs", |rig| rig.running() == 1).await;
    body["n"] = json!(2);
    let waiting = rig.send(post("/v1/completions", &body));
    tokio::pin!(waiting);
    tokio::select! {
        _ = &mut waiting => panic!("the running request is longer than this"),
        () = rig.until("two wait", |rig| rig.waiting() == 2) => {}
    }
    let refused = rig.post("/v1/completions", &body).await;
    assert_eq!(refused.status, 429);
    assert_eq!(rig.waiting(), 2, "no place is kept by a request that was refused");
    assert_eq!(rig.metric("requests_rejected_total", &["queue_requests_full"]).await, 2.0);
    drop(running);
    assert_eq!(Answer::read(waiting.await).await.status, 200);
    assert_eq!(rig.metric("requests_admitted_total", &[]).await, 3.0);
}

#[tokio::test]
async fn requests_for_tokens_have_a_bound_of_their_own() {
    let rig = Rig::new("--model fake:step=0ms --max-tokenize-requests 2");
    // Bodies that never come hold places.
    let never = || Body::from_stream(pending::<Result<bytes::Bytes, String>>());
    let tasks = TaskTracker::new();
    let held = [0, 1].map(|_| {
        let (router, request) = (rig.router.clone(), raw("/tokenize", never()));
        tasks.spawn(async move { router.oneshot(request).await })
    });
    // They have to be in before the first question, which takes a place too.
    tokio::task::yield_now().await;
    let ask = json!({"prompt": "a"});
    let refused = async {
        loop {
            let answer = rig.post("/tokenize", &ask).await;
            if answer.status != 200 {
                break answer;
            }
            tokio::task::yield_now().await;
        }
    };
    let refused = tokio::time::timeout(PATIENCE, refused).await.expect("both hold their places");
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, "1"));
    assert_eq!(refused.error_code(), "tokenize_requests_full");
    let detokenize = rig.post("/detokenize", &json!({"tokens": [97]})).await;
    assert_eq!(detokenize.status, 429);
    // Prompts that are to be answered do not wait for them.
    assert_eq!(rig.complete(2).await.status, 200);
    held.iter().for_each(tokio::task::JoinHandle::abort);
    let again = async {
        while rig.post("/tokenize", &ask).await.status != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("a client that leaves frees its place");
}
