//! What is answered when all goes well.

use serde_json::{Value, json};

use super::rig::{Rig, completion, stream};

const FLAGS: &str = "--model fake:step=0ms";

fn joined(events: &[Value], index: u64) -> String {
    let choices = events.iter().flat_map(|event| event["choices"].as_array().expect("choices"));
    let of_index = choices.filter(|choice| choice["index"] == index);
    of_index
        .map(|choice| {
            let text = choice["text"].as_str();
            text.or(choice["delta"]["content"].as_str()).unwrap_or_default()
        })
        .collect()
}

#[tokio::test]
async fn a_stream_tells_what_a_whole_answer_tells() {
    let rig = Rig::new(FLAGS);
    let whole = rig.complete(40).await.json();
    let text = whole["choices"][0]["text"].as_str().expect("a text");
    assert_eq!(text.len(), 40);
    assert_eq!(whole["choices"][0]["finish_reason"], "length");
    assert_eq!(
        whole["usage"],
        json!({
            "prompt_tokens": 9, "completion_tokens": 40, "total_tokens": 49,
            "prompt_tokens_details": {"cached_tokens": 0}
        })
    );
    let mut body = stream(40);
    body["stream_options"] = json!({"include_usage": true});
    let answer = rig.post("/v1/completions", &body).await;
    assert!(answer.header("content-type").starts_with("text/event-stream"));
    let (events, done) = answer.events();
    assert!(done);
    assert_eq!(joined(&events, 0), text);
    let last = events.last().expect("events");
    assert_eq!(last["usage"], whole["usage"]);
    assert_eq!(last["choices"], json!([]));
    assert!(events[..events.len() - 1].iter().all(|event| event["usage"].is_null()));
}

#[tokio::test]
async fn chat_begins_with_the_role_and_ends_with_a_reason() {
    let rig = Rig::new(FLAGS);
    let mut body = json!({
        "model": "fake", "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 12, "ignore_eos": true, "temperature": 0
    });
    let whole = rig.post("/v1/chat/completions", &body).await.json();
    body["stream"] = json!(true);
    let (events, done) = rig.post("/v1/chat/completions", &body).await.events();
    assert!(done);
    assert_eq!(events[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert_eq!(joined(&events, 0), whole["choices"][0]["message"]["content"]);
    let reasons: Vec<&Value> = events
        .iter()
        .map(|event| &event["choices"][0]["finish_reason"])
        .filter(|reason| !reason.is_null())
        .collect();
    assert_eq!(reasons, ["length"]);
    assert!(events.iter().all(|event| event.get("usage").is_none()));
}

#[tokio::test]
async fn several_answers_to_several_prompts_are_numbered_in_order() {
    let rig = Rig::new(FLAGS);
    let mut body = completion(5);
    body["prompt"] = json!(["one", "three"]);
    body["n"] = json!(2);
    body["temperature"] = json!(1.0);
    body["seed"] = json!(7);
    let whole = rig.post("/v1/completions", &body).await.json();
    let choices = whole["choices"].as_array().expect("choices");
    let numbers: Vec<u64> = choices.iter().filter_map(|c| c["index"].as_u64()).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
    assert_eq!(whole["usage"]["prompt_tokens"], 8);
    assert_eq!(whole["usage"]["completion_tokens"], 20);
    body["stream"] = json!(true);
    let (events, _) = rig.post("/v1/completions", &body).await.events();
    for (index, choice) in choices.iter().enumerate() {
        assert_eq!(joined(&events, index as u64), choice["text"]);
    }
}

#[tokio::test]
async fn echo_log_probabilities_and_stop_strings() {
    let rig = Rig::new(FLAGS);
    let mut body = completion(8);
    let plain = rig.post("/v1/completions", &body).await.json();
    let plain = plain["choices"][0]["text"].as_str().expect("a text").to_owned();
    body["echo"] = json!(true);
    let echoed = rig.post("/v1/completions", &body).await.json();
    assert_eq!(echoed["choices"][0]["text"], format!("Once upon{plain}"));
    let mut body = completion(8);
    body["logprobs"] = json!(2);
    let answer = rig.post("/v1/completions", &body).await.json();
    let logprobs = &answer["choices"][0]["logprobs"];
    let tokens: String =
        logprobs["tokens"].as_array().expect("tokens").iter().filter_map(Value::as_str).collect();
    assert_eq!(tokens, plain);
    assert_eq!(logprobs["text_offset"], json!([0, 1, 2, 3, 4, 5, 6, 7]));
    let mut body = completion(8);
    body["stop"] = json!([&plain[3..5]]);
    let cut = rig.post("/v1/completions", &body).await.json();
    let at = plain.find(&plain[3..5]).expect("it is in there");
    assert_eq!(cut["choices"][0]["text"], plain[..at]);
    assert_eq!(cut["choices"][0]["finish_reason"], "stop");
    assert_eq!(cut["usage"]["completion_tokens"], at + 2, "not one token too many");
}

#[tokio::test]
async fn tokens_models_and_the_version() {
    let rig = Rig::new("--model fake:step=0ms,context=1024 --served-model-name small");
    let body = json!({"model": "small", "prompt": "hä", "return_token_strs": true});
    let answer = rig.post("/tokenize", &body).await.json();
    assert_eq!(answer["tokens"], json!([104, 0xc3, 0xa4]));
    assert_eq!((&answer["count"], &answer["max_model_len"]), (&json!(3), &json!(1024)));
    let answer = rig.post("/detokenize", &json!({"tokens": [104, 0xc3, 0xa4]})).await.json();
    assert_eq!(answer["prompt"], "hä");
    let models = rig.get("/v1/models").await.json();
    assert_eq!(models["data"][0]["id"], "small");
    assert_eq!(rig.get("/v1/models/small").await.json()["max_model_len"], 1024);
    assert_eq!(rig.get("/v1/models/large").await.error_code(), "model_not_found");
    assert_eq!(rig.get("/version").await.json()["model"], "small");
    for probe in ["/livez", "/readyz", "/startupz", "/health"] {
        assert_eq!(rig.get(probe).await.json()["state"], "ready", "{probe}");
    }
}

#[tokio::test]
async fn a_request_keeps_its_name_or_gets_one() {
    let rig = Rig::new(FLAGS);
    let named = axum::http::Request::builder()
        .uri("/version")
        .header("x-request-id", "mine-7")
        .body(axum::body::Body::empty())
        .expect("a request");
    let response = rig.send(named).await;
    assert_eq!(response.headers()["x-request-id"], "mine-7");
    let (one, two) = (rig.get("/version").await, rig.get("/version").await);
    assert!(one.header("x-request-id").starts_with("req-"));
    assert_ne!(one.header("x-request-id"), two.header("x-request-id"));
}
