//! One request: what passes, what is sent again, what is never sent again.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use serde_json::json;
use tokio::sync::Semaphore;

use super::mock::{Act, Mock, events};
use super::rig::{Answer, Rig, chat, part, post, settings};
use crate::worker::WorkerRole::Unified;

const SHORT: Duration = Duration::from_millis(60);

#[tokio::test]
async fn a_stream_passes_byte_for_byte_with_its_names() {
    let worker = Mock::plain(Act::Events(events(&["Once", " upon"]))).await;
    let rig = Rig::of(&[&worker]).await;
    let mut request = post("/v1/chat/completions?a=b", &chat(true));
    let headers = request.headers_mut();
    headers.insert("x-request-id", "mine".parse().expect("a value"));
    headers.insert("x-sightline-prefill", "evil:1".parse().expect("a value"));
    headers.insert("authorization", "Bearer key".parse().expect("a value"));
    let answer = Answer::read(rig.send(request).await).await;
    assert_eq!(answer.text(), events(&["Once", " upon"]).concat());
    assert_eq!((answer.header("x-request-id"), answer.header("content-length")), ("mine", ""));
    assert_eq!(answer.header("content-type"), "text/event-stream");
    let received = &worker.received()[0];
    assert_eq!(received.path, "/v1/chat/completions?a=b");
    assert_eq!(received.body, chat(true).to_string());
    let header = |name: &str| received.headers.get(name).map(String::as_str).unwrap_or_default();
    assert_eq!(header("x-request-id"), "mine");
    assert_eq!(header("x-sightline-drain-aware"), "1");
    assert_eq!(header("x-sightline-prefill"), "", "a client names no peer");
    assert_eq!(header("authorization"), "Bearer key");
    assert_eq!(header("host"), worker.address.to_string());
    assert_eq!(header("traceparent").len(), 55);
    let named = rig.stream().await;
    assert!(named.header("x-request-id").starts_with("req-"));
}

#[tokio::test]
async fn how_long_a_prompt_was_is_learnt_from_the_worker_and_from_its_refusals_too() {
    let refusal = r#"{"error":{"message":"No.","type":"t","param":null,"code":"drain_time"}}"#;
    let told = "retry-after: 1\r\nx-sightline-prompt-tokens: 30\r\n";
    let worker = Mock::plain(Act::Whole(429, told, refusal.to_owned())).await;
    let rig = Rig::of(&[&worker]).await;
    let tokens = || rig.gateway.core().tokens("m", 1000);
    assert_eq!(tokens(), 250, "four bytes, before anything is known");
    let refused = rig.stream().await;
    assert_eq!((refused.status.as_u16(), refused.header("x-sightline-prompt-tokens")), (429, ""));
    let after = tokens();
    assert!((300..400).contains(&after), "{after}");
    let whole = json!({"usage": {"prompt_tokens": 700, "completion_tokens": 1}}).to_string();
    worker.act(Act::Whole(200, "x-sightline-prompt-tokens: 1\r\n", whole));
    rig.gateway.configure(|settings| settings.core.retry.cool_max = Duration::ZERO);
    rig.until("it is left alone no more", |rig| rig.view(&worker).cooling.is_none()).await;
    assert_eq!(rig.post("/v1/chat/completions", &chat(false)).await.status, 200);
    assert!(tokens() < after, "once, and the head comes first");
}

#[tokio::test]
async fn parts_pass_when_they_come_and_not_later() {
    let gate = Arc::new(Semaphore::new(0));
    let texts = events(&["a", "b"]);
    let worker = Mock::plain(Act::Gated(texts.clone(), Arc::clone(&gate))).await;
    let rig = Rig::of(&[&worker]).await;
    let mut body = rig.send(post("/v1/chat/completions", &chat(true))).await.into_body();
    for text in &texts {
        assert_eq!(part(&mut body).await.as_ref(), Some(text));
        gate.add_permits(1);
    }
    assert_eq!(part(&mut body).await, None);
    assert_eq!(rig.view(&worker).own.requests, 0);
}

#[tokio::test]
async fn whole_answers_keep_their_length() {
    let body = json!({"choices": [{"finish_reason": "length"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2}});
    let worker = Mock::plain(Act::Whole(200, "", body.to_string())).await;
    let rig = Rig::of(&[&worker]).await;
    let answer = rig.post("/v1/chat/completions", &chat(false)).await;
    assert_eq!(answer.json(), body);
    assert_eq!(answer.header("content-length"), body.to_string().len().to_string());
    assert_eq!(rig.metric("requests_finished_total", &["outcome=\"length\""]).await, 1.0);
    assert_eq!(rig.metric("request_generated_tokens_sum", &["model_name=\"m\""]).await, 2.0);
    let tokens = rig.post("/tokenize", &json!({"model": "m", "prompt": "x"})).await;
    assert_eq!(tokens.status, 200);
    assert_eq!(worker.received()[1].path, "/tokenize");
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_request_at_the_worker_at_once() {
    let gate = Arc::new(Semaphore::new(0));
    let worker = Mock::plain(Act::Gated(events(&["a", "b"]), gate)).await;
    let rig = Rig::of(&[&worker]).await;
    let mut body = rig.send(post("/v1/chat/completions", &chat(true))).await.into_body();
    part(&mut body).await.expect("the first event");
    drop(body);
    worker.until("the stream is given up", |counts| counts.aborted == 1).await;
    let aborted = ["stage=\"decode\"", "initiator=\"client\"", "reason=\"client_gone\""];
    assert_eq!(rig.metric("requests_aborted_total", &aborted).await, 1.0);

    worker.act(Act::Hang);
    let mut waiting = Box::pin(rig.send(post("/v1/chat/completions", &chat(true))));
    tokio::select! {
        _ = waiting.as_mut() => panic!("nothing answers"),
        () = worker.until("it has the request", |counts| counts.asked == 2) => {}
    }
    assert_eq!(rig.view(&worker).own.requests, 1);
    drop(waiting);
    worker.until("the request is given up", |counts| counts.aborted == 2).await;
    assert_eq!(rig.view(&worker).own.requests, 0);
    let gone = ["status_code=\"499\"", "route=\"/v1/chat/completions\""];
    assert_eq!(rig.metric("http_requests_total", &gone).await, 2.0);
    assert_eq!(rig.metric("router_requests_total", &["outcome=\"client_gone\""]).await, 2.0);
    assert_eq!(rig.metric("http_requests_in_flight", &["chat"]).await, 0.0);
}

#[tokio::test]
async fn a_stream_that_breaks_off_says_so_and_is_not_sent_again() {
    let mut texts = events(&["a"]);
    texts.truncate(1);
    let worker = Mock::plain(Act::Cut(texts.clone())).await;
    let other = Mock::plain(Act::Cut(texts.clone())).await;
    let rig = Rig::of(&[&worker, &other]).await;
    let answer = rig.stream().await;
    assert_eq!(answer.status, 200);
    let text = answer.text();
    let error = text.strip_prefix(&texts[0]).expect("what came first").to_owned();
    assert!(error.starts_with("data: {\"error\":") && error.ends_with("\n\n"), "{error}");
    assert!(error.contains("bad_gateway") && error.contains("127.0.0.1:"), "{error}");
    assert_eq!(worker.counts().asked + other.counts().asked, 1);
    assert_eq!(rig.metric("http_requests_total", &["status_code=\"502\""]).await, 1.0);
    assert_eq!(rig.metric("requests_finished_total", &["outcome=\"error\""]).await, 1.0);

    let half = vec!["data: {\"choi".to_owned()];
    for mock in [&worker, &other] {
        mock.act(Act::Cut(half.clone()));
    }
    let text = rig.stream().await.text();
    assert!(text.starts_with("data: {\"choi\n\ndata: {\"error\":"), "an event of its own: {text}");
}

#[tokio::test]
async fn a_stream_that_falls_silent_ends_with_an_error() {
    let mut texts = events(&["a"]);
    texts.truncate(1);
    let worker = Mock::plain(Act::Silent(texts)).await;
    let mut settings = settings(&[(&worker, Unified)]);
    settings.stream.idle = SHORT;
    let rig = Rig::ready(settings).await;
    let text = rig.stream().await.text();
    assert!(text.contains("gateway_timeout") && text.contains("nothing came for 60 ms"), "{text}");
    worker.until("it is given up", |counts| counts.aborted == 1).await;
    assert_eq!(rig.metric("http_requests_total", &["status_code=\"504\""]).await, 1.0);
}

#[tokio::test]
async fn what_has_not_begun_is_sent_to_another_worker() {
    let ways: [(&str, Act, &str); 7] = [
        ("closed", Act::Close, "broken"),
        ("no HTTP", Act::Garbage, "broken"),
        ("hangs", Act::Hang, "timeout"),
        ("hangs after its head", Act::HeadOnly, "timeout"),
        ("breaks off before an event", Act::Cut(Vec::new()), "broken"),
        ("fails", Act::Whole(500, "", "{}".to_owned()), "error"),
        ("drains", Act::Whole(503, "retry-after: 1\r\n", "{}".to_owned()), "rejected"),
    ];
    for (name, act, reason) in ways {
        let bad = Mock::plain(act).await;
        let good = Mock::plain(Act::Events(events(&["a"]))).await;
        let mut settings = settings(&[(&bad, Unified), (&good, Unified)]);
        settings.stream.first_byte = SHORT * 5;
        let rig = Rig::ready(settings).await;
        for _ in 0..2 {
            let answer = rig.stream().await;
            assert_eq!(answer.text(), events(&["a"]).concat(), "{name}");
        }
        assert_eq!(good.counts().asked, 2, "{name}");
        let label = format!("reason=\"{reason}\"");
        let retries = rig.metric("router_retries_total", &[&label]).await;
        assert!((1.0..=2.0).contains(&retries), "{name}: {retries}");
        // A connection that was kept and breaks off is tried anew, once.
        let asked = bad.counts().asked as f64;
        assert!((retries..=retries * 2.0).contains(&asked), "{name}: {asked}");
        rig.stop().await;
    }
}

#[tokio::test]
async fn a_worker_that_cannot_be_reached_is_no_reason_to_fail() {
    let gone = Mock::plain(Act::Hang).await;
    let good = Mock::plain(Act::Events(events(&["a"]))).await;
    let mut settings = settings(&[(&gone, Unified), (&good, Unified)]);
    settings.poll_every = Duration::from_secs(600);
    let rig = Rig::ready(settings).await;
    gone.kill().await;
    for _ in 0..2 {
        assert_eq!(rig.stream().await.status, 200);
    }
    assert!(rig.metric("router_retries_total", &["reason=\"connect\""]).await >= 1.0);
}

#[tokio::test]
async fn errors_name_the_worker_and_what_it_did() {
    let worker = Mock::plain(Act::Close).await;
    let mut settings = settings(&[(&worker, Unified)]);
    settings.stream.first_byte = SHORT;
    let rig = Rig::ready(settings).await;
    let answer = rig.stream().await;
    assert_eq!(answer.error(), (502, "bad_gateway".to_owned()));
    assert!(answer.message().contains(&worker.address.to_string()), "{}", answer.message());
    worker.act(Act::Hang);
    let answer = rig.stream().await;
    assert_eq!(answer.error(), (504, "gateway_timeout".to_owned()));
    assert!(answer.message().contains("no answer within 60 ms"), "{}", answer.message());
    assert_eq!(rig.metric("router_requests_total", &["outcome=\"upstream_error\""]).await, 2.0);
}

#[tokio::test]
async fn what_a_worker_refuses_is_passed_on_as_it_is() {
    let error = json!({"error": {"message": "full", "type": "rate_limit_error", "param": null,
        "code": "drain_time"}});
    let full = Act::Whole(429, "retry-after: 17\r\n", error.to_string());
    let worker = Mock::plain(full).await;
    let rig = Rig::of(&[&worker]).await;
    let answer = rig.stream().await;
    assert_eq!((answer.json(), answer.header("retry-after")), (error, "17"));
    assert_eq!(answer.status, 429);
    let labels = ["reason=\"drain_time\"", "model_name=\"m\""];
    assert_eq!(rig.metric("requests_rejected_total", &labels).await, 1.0);
    let slo = ["slo=\"ttft\"", "result=\"bad\""];
    assert_eq!(rig.metric("slo_requests_total", &slo).await, 1.0);

    let wrong = Mock::plain(Act::Whole(422, "", "{\"detail\":\"no\"}".to_owned())).await;
    let rig = Rig::of(&[&wrong]).await;
    let answer = rig.stream().await;
    assert_eq!((answer.status.as_u16(), answer.text().as_str()), (422, "{\"detail\":\"no\"}"));
    assert_eq!(rig.metric("requests_rejected_total", &["reason=\"invalid\""]).await, 1.0);
    assert_eq!(rig.metric("slo_requests_total", &slo).await, 0.0, "the client's fault");
}

#[tokio::test]
async fn requests_that_are_none_reach_no_worker() {
    let worker = Mock::plain(Act::Hang).await;
    let rig = Rig::of(&[&worker]).await;
    let wrong = rig.send(post("/v1/chat/completions", &json!([1]))).await;
    assert_eq!(Answer::read(wrong).await.error(), (400, "invalid_json".to_owned()));
    let long = json!({"model": "m", "prompt": "x".repeat(2 << 20)});
    assert_eq!(rig.post("/v1/completions", &long).await.error().0, 413);
    let mut plain = post("/v1/completions", &chat(true));
    plain.headers_mut().insert("content-type", "text/plain".parse().expect("a value"));
    assert_eq!(Answer::read(rig.send(plain).await).await.error().0, 415);
    let mut packed = post("/v1/completions", &chat(true));
    packed.headers_mut().insert("content-encoding", "gzip".parse().expect("a value"));
    assert_eq!(Answer::read(rig.send(packed).await).await.error().0, 415);
    let other = json!({"model": "none such", "prompt": "x"});
    let answer = rig.post("/v1/completions", &other).await;
    assert_eq!(answer.error(), (404, "model_not_found".to_owned()));
    assert!(answer.message().contains("none such"), "{}", answer.message());
    assert_eq!(rig.get("/v1/nothing").await.error(), (404, "not_found".to_owned()));
    assert_eq!(rig.get("/v1/completions").await.error(), (405, "method_not_allowed".to_owned()));
    assert_eq!(worker.counts().asked, 0);
    assert_eq!(rig.metric("requests_rejected_total", &["reason=\"invalid\""]).await, 5.0);
}

#[tokio::test]
async fn connections_are_used_again_and_replaced_when_closed() {
    let worker = Mock::plain(Act::Events(events(&["a"]))).await;
    let mut settings = settings(&[(&worker, Unified)]);
    settings.poll_every = Duration::from_secs(600);
    let rig = Rig::ready(settings).await;
    for _ in 0..20 {
        assert_eq!(rig.stream().await.status, 200);
    }
    assert_eq!(worker.counts().opened, 1, "polls and requests one after the other");
    let many = (0..10).map(|_| rig.stream());
    for answer in futures_util::future::join_all(many).await {
        assert_eq!(answer.status, 200);
    }
    worker.until("as many as together", |counts| counts.open <= 10).await;
    let address = worker.address;
    worker.kill().await;
    let worker = Mock::at(address, Act::Events(events(&["b"])), None).await;
    for _ in 0..12 {
        let answer = rig.stream().await;
        assert_eq!(answer.text(), events(&["b"]).concat(), "closed connections cost nothing");
    }
    assert_eq!(rig.metric("router_retries_total", &[]).await, 0.0);
    assert_eq!(worker.counts().opened, 1);
}

#[tokio::test]
async fn a_drain_lets_streams_end_and_its_deadline_ends_them() {
    let (gate, shut) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let texts = events(&["a"]);
    let worker = Mock::plain(Act::Gated(texts.clone(), Arc::clone(&gate))).await;
    let rig = Rig::of(&[&worker]).await;
    let open = async || rig.send(post("/v1/chat/completions", &chat(true))).await.into_body();
    let mut first: Body = open().await;
    worker.act(Act::Gated(texts.clone(), shut));
    let mut second: Body = open().await;
    rig.gateway.drain();
    let refused = rig.stream().await;
    assert_eq!(refused.error(), (503, "server_draining".to_owned()));
    assert_eq!(refused.header("retry-after"), "5");
    assert_eq!(rig.gateway.in_flight(), 2);
    assert_eq!(part(&mut first).await.as_ref(), Some(&texts[0]));
    assert_eq!(part(&mut second).await.as_ref(), Some(&texts[0]));
    gate.add_permits(2);
    assert_eq!(part(&mut first).await.as_ref(), Some(&texts[1]));
    while part(&mut first).await.is_some() {}
    drop(first);
    assert_eq!(rig.gateway.in_flight(), 1);
    rig.gateway.cut();
    let mut rest = String::new();
    while let Some(part) = part(&mut second).await {
        rest.push_str(&part);
    }
    assert!(rest.contains("server_draining"), "no silent end: {rest}");
    drop(second);
    rig.gateway.finished().await;
    let aborted = ["initiator=\"server\"", "reason=\"drain_deadline\""];
    assert_eq!(rig.metric("requests_aborted_total", &aborted).await, 1.0);
}
