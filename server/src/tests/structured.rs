//! Answers held to a form, over a model with random weights: what ends is what was asked for.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::rig::{Answer, Rig};

const TINY: &str = "--model ../tests/fixtures/models/tiny-llama --served-model-name tiny";
const CHAT: &str = "/v1/chat/completions";

fn person() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 6},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "kind": {"enum": ["Gr\u{fc}n", "\u{65e5}\u{672c}"]},
            "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}
        },
        "required": ["name", "age", "kind", "tags"],
        "additionalProperties": false
    })
}

fn is_person(text: &str) -> bool {
    let Ok(Value::Object(object)) = serde_json::from_str::<Value>(text) else { return false };
    let name = object["name"].as_str().map_or(0, |name| name.chars().count());
    let tags = object["tags"].as_array().map_or(9, Vec::len);
    object.len() == 4
        && (1..=6).contains(&name)
        && object["age"].as_u64().is_some_and(|age| age <= 120)
        && ["Gr\u{fc}n", "\u{65e5}\u{672c}"].map(Value::from).contains(&object["kind"])
        && tags <= 2
}

fn ask(format: Value) -> Value {
    json!({
        "model": "tiny", "messages": [{"role": "user", "content": "Who?"}], "temperature": 1.0,
        "max_tokens": 120, "response_format": format
    })
}

fn schema(schema: Value) -> Value {
    json!({"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": schema}})
}

fn texts(answer: &Answer) -> Vec<(String, String)> {
    let body = answer.json();
    let choices = body["choices"].as_array().unwrap_or_else(|| panic!("no choices: {body}"));
    let part = |choice: &Value| {
        let text = choice["message"]["content"].as_str().or(choice["text"].as_str());
        let reason = choice["finish_reason"].as_str().expect("a reason");
        (text.expect("a text").to_owned(), reason.to_owned())
    };
    choices.iter().map(part).collect()
}

#[tokio::test]
async fn every_answer_that_ends_is_valid() {
    let rig = Rig::new(TINY);
    let (mut ended, mut cut) = (0, 0);
    for seed in 0..4 {
        let mut body = ask(schema(person()));
        body["n"] = json!(8);
        body["seed"] = json!(seed * 100);
        for (text, reason) in texts(&rig.post(CHAT, &body).await) {
            match reason.as_str() {
                "stop" => {
                    assert!(is_person(&text), "{text}");
                    ended += 1;
                }
                "length" => cut += 1,
                other => panic!("{other}: {text}"),
            }
        }
    }
    assert!(ended >= 16, "{ended} ended, {cut} were cut");
    let mut body = ask(json!({"type": "json_object"}));
    body["n"] = json!(8);
    body["max_tokens"] = json!(300);
    for (text, reason) in texts(&rig.post(CHAT, &body).await) {
        // JSON has numbers that no float holds, such as 1E999.
        let value = serde_json::from_str::<BTreeMap<String, IgnoredAny>>(&text);
        assert!(reason == "length" || value.is_ok(), "{text}");
    }
}

#[tokio::test]
async fn streams_seeds_and_log_probabilities() {
    let rig = Rig::new(TINY);
    let mut body = ask(schema(person()));
    body["n"] = json!(3);
    body["seed"] = json!(7);
    body["logprobs"] = json!(true);
    // Benchmarks send it with everything; a form has an end all the same.
    body["ignore_eos"] = json!(true);
    let whole = rig.post(CHAT, &body).await;
    assert_eq!(texts(&whole), texts(&rig.post(CHAT, &body).await), "a seed is a seed");
    let tokens = whole.json()["choices"][0]["logprobs"]["content"].clone();
    let tokens = tokens.as_array().expect("log-probabilities");
    assert!(tokens.iter().all(|token| token["logprob"].as_f64().is_some_and(|p| p <= 0.0)));
    let bytes = tokens.iter().filter_map(|token| token["bytes"].as_array()).flatten();
    let bytes: Vec<u8> = bytes.filter_map(Value::as_u64).map(|byte| byte as u8).collect();
    assert_eq!(String::from_utf8_lossy(&bytes), texts(&whole)[0].0);
    body["stream"] = json!(true);
    let (events, done) = rig.post(CHAT, &body).await.events();
    assert!(done);
    for (index, (text, reason)) in texts(&whole).iter().enumerate() {
        let choices = events.iter().flat_map(|event| event["choices"].as_array().expect("array"));
        let mine: Vec<&Value> = choices.filter(|choice| choice["index"] == json!(index)).collect();
        let parts = mine.iter().filter_map(|choice| choice["delta"]["content"].as_str());
        assert_eq!(&parts.collect::<String>(), text);
        assert_eq!(mine.last().map(|choice| &choice["finish_reason"]), Some(&json!(reason)));
    }
}

#[tokio::test]
async fn completions_take_patterns_choices_and_grammars() {
    let rig = Rig::new(TINY);
    let complete = |fields: Value| {
        let mut body = json!({"model": "tiny", "prompt": "x", "temperature": 1.0, "n": 4});
        for (name, value) in fields.as_object().expect("an object").clone() {
            body[name] = value;
        }
        body
    };
    let path = "/v1/completions";
    let date = rig.post(path, &complete(json!({"guided_regex": "[0-9]{4}-[0-9]{2}"}))).await;
    for (text, reason) in texts(&date) {
        assert_eq!((text.len(), &text[4..5], reason.as_str()), (7, "-", "stop"), "{text}");
    }
    let choice = rig.post(path, &complete(json!({"guided_choice": ["red", "green"]}))).await;
    assert!(texts(&choice).iter().all(|(text, _)| ["red", "green"].contains(&text.as_str())));
    let nested = json!({"structured_outputs": {"grammar": "start: \"aaa\" \"b\"?"}});
    for (text, _) in texts(&rig.post(path, &complete(nested)).await) {
        assert!(["aaa", "aaab"].contains(&text.as_str()), "{text}");
    }
    let cut = complete(json!({"guided_regex": "a{50}", "max_tokens": 5}));
    assert!(texts(&rig.post(path, &cut).await).iter().all(|(_, reason)| reason == "length"));
}

#[tokio::test]
async fn a_form_that_is_wrong_is_named() {
    let rig = Rig::new("--model fake:step=0ms");
    let check = async |format: Value, param: &str, words: &str| {
        let mut body = ask(format);
        body["model"] = json!("fake");
        if param == "stop_token_ids" {
            body[param] = json!([65]);
        }
        let answer = rig.post(CHAT, &body).await;
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status.as_u16(), error["param"].as_str()), (400, Some(param)));
        assert!(error["message"].as_str().expect("a message").contains(words), "{error}");
    };
    let path = "response_format.json_schema.schema";
    let minimum = json!({"type": "object", "properties": {"age": {"minimum": "3"}}});
    let param = format!("{path}.properties.age.minimum");
    check(schema(minimum), &param, "expected a number, found \"3\"").await;
    let pattern = json!({"type": "object", "properties": {"a": {"pattern": "("}}});
    check(schema(pattern), &format!("{path}.properties.a"), "unclosed group").await;
    check(schema(json!({"not": {}})), &format!("{path}.not"), "cannot be enforced").await;
    let form = json!({"type": "json_object"});
    check(form, "stop_token_ids", "ends where its form does").await;
    assert_eq!(rig.waiting(), 0);
    assert_eq!(rig.metric("requests_rejected_total", &["reason=\"invalid\""]).await, 4.0);
}

#[tokio::test]
async fn answers_survive_preemption() {
    // Two answers of this length do not fit.
    let rig = Rig::new("--model fake:step=0ms --kv-pool-bytes 128KiB");
    let body = |seed: u64| {
        json!({
            "model": "fake", "prompt": "x".repeat(40), "temperature": 1.0, "seed": seed,
            "max_tokens": 150, "guided_regex": "(abc|xyz){45}"
        })
    };
    let posts = (0..6).map(|seed| {
        let body = body(seed);
        let rig = &rig;
        async move { rig.post("/v1/completions", &body).await }
    });
    let together = futures_util::future::join_all(posts).await;
    assert!(rig.metric("preemptions_total", &[]).await > 0.0, "the pool was large enough");
    for (seed, answer) in (0..).zip(together) {
        let (text, reason) = texts(&answer).remove(0);
        assert_eq!((text.len(), reason.as_str()), (135, "stop"), "{text}");
        let alone = rig.post("/v1/completions", &body(seed)).await;
        assert_eq!(texts(&alone)[0].0, text, "as if it had run alone");
    }
}

#[tokio::test]
async fn a_form_that_cannot_be_followed_ends_its_request_alone() {
    let rig = Rig::new("--model fake:step=0ms");
    // Token 257 is the end token, which no form may have inside.
    let stuck = json!({
        "model": "fake", "prompt": "x", "guided_grammar": "start: \"ab\" <[257]> \"c\""
    });
    let fine = json!({
        "model": "fake", "prompt": "x", "guided_regex": "(ab){12}", "max_tokens": 40
    });
    let (stuck, fine) =
        tokio::join!(rig.post("/v1/completions", &stuck), rig.post("/v1/completions", &fine));
    assert_eq!(stuck.status, 500, "{}", stuck.text());
    assert!(stuck.text().contains("no token of the vocabulary"), "{}", stuck.text());
    assert_eq!(texts(&fine)[0], ("ab".repeat(12), "stop".to_owned()));
    assert_eq!(rig.metric("requests_finished_total", &["outcome=\"error\""]).await, 1.0);
    assert_eq!(rig.complete(3).await.status, 200);
}
