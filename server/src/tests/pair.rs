//! Prefill and decode apart, over real sockets: two servers that answer like one.

use axum::body::Body;
use axum::http::Request;
use engine::EngineSnapshot;
use serde_json::{Value, json};

use super::rig::{Answer, PATIENCE, Rig, part, post};

/// What the workers call each other.
const PREFILL: &str = "127.0.0.1:7001";
const DECODE: &str = "127.0.0.1:7002";
const TINY: &str = "--model ../tests/fixtures/models/tiny-llama --served-model-name tiny \
                    --threads 1";
const TEXT: &str = "The harbour office keeps a ledger of ships, of crews and of storms, and the \
                    oldest page of it is older than the harbour.";

struct Pair {
    prefill: Rig,
    decode: Rig,
}

impl Pair {
    /// A pair of which both have these flags, and each its own.
    async fn new(both: &str, prefill: &str, decode: &str) -> Self {
        let flags =
            format!("{both} {prefill} --role prefill --transfer-port 0 --decode-peer {DECODE}");
        let prefill = Rig::worker(&flags, PREFILL).await;
        let link = prefill.api.link().expect("a link");
        let port = link.address().expect("a listener").port();
        let peer = format!("--role decode --prefill-peer {PREFILL}@{port}");
        let decode = Rig::worker(&format!("{both} {decode} {peer}"), DECODE).await;
        let pair = Self { prefill, decode };
        pair.until("they have found each other", |pair| pair.decode.api.life.is_ready()).await;
        pair
    }

    async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let wait = async {
            while !condition(self) {
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, wait).await;
        let [prefill, decode] = self.snapshots();
        waited.unwrap_or_else(|_| panic!("in vain until {what}: {prefill:?} {decode:?}"));
    }

    fn snapshots(&self) -> [EngineSnapshot; 2] {
        [&self.prefill, &self.decode].map(|rig| rig.serving().engine.snapshot())
    }

    /// Until nothing of any request is left on either side, and no page is used but by caches.
    async fn idle(&self) {
        self.until("nothing is left", |pair| {
            let rigs = [&pair.prefill, &pair.decode];
            let waiting = rigs.iter().any(|rig| rig.waiting() > 0);
            let open = rigs.iter().any(|rig| {
                let peers = rig.api.link().expect("a link").snapshot().peers;
                peers.iter().any(|peer| peer.waiting + peer.wire + peer.held_bytes > 0)
            });
            !waiting && !open && pair.snapshots().iter().all(is_idle)
        })
        .await;
    }
}

fn is_idle(engine: &EngineSnapshot) -> bool {
    let queues = [&engine.bootstrap, &engine.inflight_send, &engine.prealloc, &engine.transfer];
    engine.running + engine.waiting + engine.retracted.requests + engine.landed.requests == 0
        && queues.iter().all(|queue| queue.requests == 0)
        && engine.held.requests == 0
        && engine.pools.iter().all(|pool| pool.device.used_active.0 == 0)
}

/// What does not depend on which server answers.
fn answer_of(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let body = answer.json();
    json!([body["choices"], body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]])
}

/// Requests of every kind, with what they are sent to.
fn requests() -> Vec<(&'static str, Value)> {
    const TEXTS: &str = "/v1/completions";
    const CHAT: &str = "/v1/chat/completions";
    let completion = |fields: Value| {
        let mut body = json!({"model": "tiny", "prompt": TEXT, "max_tokens": 12, "seed": 7});
        for (key, value) in fields.as_object().expect("fields") {
            body[key] = value.clone();
        }
        (TEXTS, body)
    };
    let chat = |fields: Value| {
        let messages = json!([{"role": "user", "content": TEXT}]);
        let mut body = json!({"model": "tiny", "messages": messages, "max_tokens": 40, "seed": 7});
        for (key, value) in fields.as_object().expect("fields") {
            body[key] = value.clone();
        }
        (CHAT, body)
    };
    let tool = json!([{"type": "function", "function": {"name": "now", "parameters": {
        "type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}}, "required": ["zone"]
    }}}]);
    let mut all = vec![
        completion(json!({"temperature": 0})),
        completion(json!({"temperature": 1.3, "top_p": 0.9, "top_k": 40})),
        completion(json!({"temperature": 1, "n": 3, "logprobs": 2})),
        completion(json!({"temperature": 0.9, "repetition_penalty": 1.3, "stop": ["a", "e"]})),
        completion(json!({"temperature": 0, "echo": true})),
        completion(json!({"temperature": 0, "echo": true, "logprobs": 1})),
        completion(json!({"temperature": 0, "prompt": [TEXT, "short", format!("{TEXT} {TEXT}")]})),
        chat(json!({"temperature": 1, "logprobs": true, "top_logprobs": 3})),
    ];
    if cfg!(feature = "structured-output") {
        all.push(chat(json!({"temperature": 1, "tools": tool, "tool_choice": "required"})));
        let form = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {
            "type": "object", "properties": {"n": {"type": "integer", "maximum": 9}},
            "required": ["n"], "additionalProperties": false}}});
        all.push(chat(json!({"temperature": 1, "response_format": form})));
    }
    all
}

#[tokio::test]
async fn two_workers_answer_like_one_token_for_token() {
    let unified = Rig::new(TINY);
    let pair = Pair::new(TINY, "", "").await;
    for (path, body) in requests() {
        let expected = answer_of(&unified.post(path, &body).await);
        let answer = answer_of(&pair.decode.post(path, &body).await);
        assert_eq!(answer, expected, "{body}");
        let mut streamed = body.clone();
        streamed["stream"] = json!(true);
        let text = |answer: Answer| {
            let (events, done) = answer.events();
            assert!(done, "{events:?}");
            let choices = events.iter().flat_map(|event| event["choices"].as_array());
            let texts = choices.flatten().map(|choice| {
                let delta = &choice["delta"]["content"];
                let text = choice["text"].as_str().or_else(|| delta.as_str());
                (choice["index"].as_u64(), text.unwrap_or_default().to_owned())
            });
            let mut all = std::collections::BTreeMap::<_, String>::new();
            texts.for_each(|(index, text)| all.entry(index).or_default().push_str(&text));
            all
        };
        let expected = text(unified.post(path, &streamed).await);
        assert_eq!(text(pair.decode.post(path, &streamed).await), expected, "{body}");
    }
    pair.idle().await;
    let computed = pair.prefill.serving().admission.prefill_rate();
    assert!(computed > 0.0);
    // What is cached there by now is not sent again.
    let (path, body) = requests().swap_remove(0);
    let bytes = |pair: &Pair| pair.prefill.api.load().queued.tokens;
    assert_eq!(bytes(&pair), 0);
    let again = pair.decode.post(path, &body).await.json();
    let cached = again["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    assert!(cached > Some(0), "{again}");
}

fn long(tokens: usize) -> Value {
    json!({
        "model": "fake", "prompt": "x".repeat(900), "max_tokens": tokens, "temperature": 0,
        "ignore_eos": true
    })
}

fn with_header(body: &Value, peer: &str) -> Request<Body> {
    let mut request = post("/v1/completions", body);
    request.headers_mut().insert("x-sightline-prefill", peer.parse().expect("a header value"));
    request
}

#[tokio::test]
async fn a_refusal_of_the_prefill_worker_is_the_clients_before_any_header() {
    // One prompt takes about a second there, and no other may wait beside it.
    let busy = "--max-running-requests 1 --max-queued-requests 1 --ttft-objective 0s";
    let model = "--model fake:step=1ms,prefill-token=1ms --prefix-cache off";
    let pair = Pair::new(model, &format!("{busy} --max-batch-tokens 8"), "").await;
    let first = pair.decode.send(post("/v1/completions", &long(2)));
    let second = pair.decode.send(post("/v1/completions", &long(2)));
    let third = async {
        pair.until("two are there", |pair| {
            let [prefill, decode] = pair.snapshots();
            prefill.running + prefill.waiting == 2 && decode.transfer.requests == 2
        })
        .await;
        let mut streamed = long(2);
        streamed["stream"] = json!(true);
        let refused = Answer::read(pair.decode.send(with_header(&streamed, PREFILL)).await).await;
        assert_eq!(refused.status, 429, "{}", refused.text());
        assert_eq!(refused.error_code(), "queue_requests_full");
        assert!(refused.text().contains(PREFILL), "{}", refused.text());
        assert!(refused.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds >= 1));
        assert_eq!(refused.header("x-sightline-cause"), "prefill");
        assert_eq!(pair.decode.waiting(), 0, "its place was given back");
    };
    let (first, second, ()) = tokio::join!(first, second, third);
    for answer in [first, second] {
        assert_eq!(Answer::read(answer).await.status, 200);
    }
    pair.idle().await;
    for rig in [&pair.prefill, &pair.decode] {
        let refused = rig.metric("requests_rejected_total", &["queue_requests_full"]).await;
        assert_eq!(refused, 1.0);
    }
}

#[tokio::test]
async fn a_prompt_that_is_too_long_for_the_prefill_worker_is_the_clients_mistake() {
    let pair = Pair::new("--model fake:step=0ms", "--max-context 512", "").await;
    let refused = pair.decode.post("/v1/completions", &long(2)).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert_eq!(refused.error_code(), "context_length_exceeded");
    assert!(refused.text().contains("maximum context length is 512 tokens"), "{}", refused.text());
    pair.idle().await;
}

#[tokio::test]
async fn a_peer_that_is_not_there_is_named() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = nobody.local_addr().expect("an address").port();
    drop(nobody);
    let flags = format!("--model fake:step=0ms --role decode --prefill-peer {PREFILL}@{port}");
    let decode = Rig::worker(&flags, DECODE).await;
    let ready = decode.get("/readyz").await;
    assert_eq!((ready.status.as_u16(), &ready.json()["state"]), (503, &json!("waiting_for_peers")));
    assert_eq!(ready.json()["missing_peers"][0]["peer"], PREFILL);
    let load = decode.get("/internal/load").await.json();
    assert_eq!((&load["state"], &load["peers_up"]), (&json!("starting"), &json!([])));
    let refused = decode.post("/v1/completions", &long(2)).await;
    assert_eq!((refused.status.as_u16(), refused.error_code()), (503, "no_prefill_worker".into()));
    assert_eq!(refused.header("x-sightline-retryable"), "1");
    assert!(refused.text().contains(PREFILL), "{}", refused.text());
    let refused = Answer::read(decode.send(with_header(&long(2), PREFILL)).await).await;
    assert_eq!((refused.status.as_u16(), refused.error_code()), (502, "connect".into()));
    assert_eq!(refused.header("x-sightline-retryable"), "1");
    let refused = Answer::read(decode.send(with_header(&long(2), "10.0.0.7:80")).await).await;
    assert_eq!((refused.status.as_u16(), refused.error_code()), (400, "invalid_value".into()));
    assert!(refused.text().contains(PREFILL), "{}", refused.text());
    // What is short needs nobody.
    let short = json!({"model": "fake", "prompt": "hello", "max_tokens": 2});
    assert_eq!(decode.post("/v1/completions", &short).await.status, 200);
    decode.idle().await;
}

#[tokio::test]
async fn a_prefill_worker_answers_no_requests_and_says_who_does() {
    let flags = format!("--model fake --role prefill --transfer-port 0 --decode-peer {DECODE}");
    let prefill = Rig::worker(&flags, PREFILL).await;
    let refused = prefill.post("/v1/completions", &long(2)).await;
    assert_eq!((refused.status.as_u16(), refused.error_code()), (404, "wrong_role".into()));
    assert!(refused.text().contains(DECODE), "{}", refused.text());
    for path in ["/readyz", "/livez", "/metrics", "/v1/models", "/internal/load"] {
        assert_eq!(prefill.get(path).await.status, 200, "{path}");
    }
    let load = prefill.get("/internal/load").await.json();
    assert_eq!((&load["role"], &load["state"]), (&json!("prefill"), &json!("ready")));
    assert_eq!(load.get("peers_up"), None);
    assert_eq!(load["fingerprint"].as_str().map(str::len), Some(32));
}

/// Which queue or batch a client leaves from: the slow part is there.
#[tokio::test]
async fn a_client_that_leaves_is_gone_on_both_sides_wherever_it_was() {
    let slow = "--model fake:step=2ms,prefill-token=1ms --prefix-cache off --max-batch-tokens 64";
    let pair = Pair::new(slow, "--max-running-requests 1", "--max-running-requests 2").await;
    type State = fn(&EngineSnapshot, &EngineSnapshot) -> bool;
    let states: [(&str, State); 4] = [
        ("it is computed", |prefill, _| prefill.running == 1),
        ("its KV is awaited", |_, decode| decode.transfer.requests == 1),
        ("another one waits at the prefill worker", |prefill, _| prefill.waiting == 1),
        ("it is decoded", |_, decode| decode.running == 1),
    ];
    for (what, reached) in states {
        let count = if what.starts_with("another") { 2 } else { 1 };
        let asked: Vec<_> = (0..count)
            .map(|_| Box::pin(pair.decode.send(post("/v1/completions", &long(2000)))))
            .collect();
        let all = futures_util::future::join_all(asked);
        tokio::select! {
            _ = all => panic!("2000 tokens take longer than that"),
            () = pair.until(what, |pair| {
                let [prefill, decode] = pair.snapshots();
                reached(&prefill, &decode)
            }) => {}
        }
        pair.idle().await;
    }
    let left = pair.decode.metric("requests_aborted_total", &["reason=\"client_gone\""]).await;
    assert_eq!(left, 5.0);
    // And the pair works as before.
    let mut streamed = long(3);
    streamed["stream"] = json!(true);
    let mut body = pair.decode.send(post("/v1/completions", &streamed)).await.into_body();
    while part(&mut body).await.is_some() {}
    pair.idle().await;
}

#[tokio::test]
async fn a_prefill_worker_that_restarts_is_found_again() {
    let pair = Pair::new("--model fake:step=0ms --prefix-cache off", "", "").await;
    assert_eq!(pair.decode.post("/v1/completions", &long(2)).await.status, 200);
    let Pair { prefill, decode } = pair;
    let port = prefill.api.link().and_then(|link| link.address()).expect("a listener").port();
    prefill.api.link().expect("a link").shut_down().await;
    prefill.serving().engine.shutdown();
    decode.until("it is missed", |rig| !rig.api.life.is_ready()).await;
    let refused = decode.post("/v1/completions", &long(2)).await;
    assert!(refused.status.is_server_error(), "{}", refused.text());
    drop(prefill);
    let flags = format!("--model fake:step=0ms --role prefill --transfer-port {port}");
    let prefill = Rig::worker(&flags, PREFILL).await;
    decode.until("it is found again", |rig| rig.api.life.is_ready()).await;
    let pair = Pair { prefill, decode };
    assert_eq!(pair.decode.post("/v1/completions", &long(2)).await.status, 200);
    pair.idle().await;
}

#[tokio::test]
async fn another_model_is_refused_with_both_names() {
    let flags = "--model fake:seed=1 --role prefill --transfer-port 0";
    let prefill = Rig::worker(flags, PREFILL).await;
    let port = prefill.api.link().and_then(|link| link.address()).expect("a listener").port();
    let flags = format!("--model fake:seed=2 --role decode --prefill-peer {PREFILL}@{port}");
    let decode = Rig::worker(&flags, DECODE).await;
    decode
        .until("it is refused", |rig| {
            let missing = rig.api.life.needs().missing_peers;
            missing.iter().any(|(_, why)| why.matches("fake-").count() == 2)
        })
        .await;
    assert!(!decode.api.life.is_ready());
}
