//! Parameters of sampling, from the wire to the tokens.

use serde_json::{Value, json};

use super::rig::{Rig, completion};

const FLAGS: &str = "--model fake:step=0ms --max-running-requests 4 --max-queued-requests 8";

/// A completion of `tokens` tokens with these fields added.
async fn text(rig: &Rig, tokens: usize, fields: Value) -> String {
    let mut body = completion(tokens);
    for (name, value) in fields.as_object().expect("an object") {
        body[name] = value.clone();
    }
    let answer = rig.post("/v1/completions", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["choices"][0]["text"].as_str().expect("a text").to_owned()
}

fn kinds(text: &str) -> usize {
    text.bytes().collect::<std::collections::HashSet<_>>().len()
}

#[tokio::test]
async fn every_parameter_reaches_the_sampler() {
    let rig = Rig::new(FLAGS);
    let greedy = text(&rig, 24, json!({})).await;
    let first = greedy.as_bytes()[0];
    let banned = text(&rig, 24, json!({"logit_bias": {first.to_string(): -100}})).await;
    assert!(!banned.as_bytes().contains(&first), "{banned}");
    let forced = text(&rig, 5, json!({"logit_bias": {"122": 100}})).await;
    assert_eq!(forced, "zzzzz");
    assert_ne!(text(&rig, 24, json!({"repetition_penalty": 10})).await, greedy);
    // Against a bias that forces one token, each penalty wins at some point.
    let biased = |fields: Value| {
        let mut all = json!({"logit_bias": {"122": 20, "121": 19}});
        for (name, value) in fields.as_object().expect("an object") {
            all[name] = value.clone();
        }
        all
    };
    assert_eq!(kinds(&text(&rig, 24, biased(json!({}))).await), 1);
    assert!(kinds(&text(&rig, 24, biased(json!({"presence_penalty": 2}))).await) > 1);
    assert!(kinds(&text(&rig, 24, biased(json!({"frequency_penalty": 2}))).await) > 1);
    let narrow = json!({"temperature": 2, "min_p": 1, "seed": 1});
    assert_eq!(text(&rig, 24, narrow).await, greedy);
}

#[tokio::test]
async fn nothing_ends_an_answer_before_its_least_length() {
    let rig = Rig::new(FLAGS);
    // Token 122 always comes and is a stop token; then 121, whose text is a stop string.
    let bias = json!({"122": 100, "121": 50});
    let fields = json!({
        "logit_bias": bias, "stop_token_ids": [122], "min_tokens": 5, "ignore_eos": false,
    });
    assert_eq!(text(&rig, 24, fields).await, "yyyyy");
    let fields = json!({"logit_bias": bias, "stop": "zz", "min_tokens": 3});
    assert_eq!(text(&rig, 24, fields).await, "zzz");
    let fields = json!({"logit_bias": bias, "stop": "zz"});
    assert_eq!(text(&rig, 24, fields).await, "");
}

#[tokio::test]
async fn answers_have_seeds_of_their_own() {
    let rig = Rig::new(FLAGS);
    let mut body = completion(16);
    body["temperature"] = json!(2.0);
    body["logit_bias"] = json!({"97": 9, "98": 9, "99": 9, "100": 9});
    body["seed"] = json!(40);
    body["n"] = json!(3);
    let answer = rig.post("/v1/completions", &body).await.json();
    let texts: Vec<&str> = answer["choices"]
        .as_array()
        .expect("choices")
        .iter()
        .filter_map(|c| c["text"].as_str())
        .collect();
    for (at, expect) in texts.iter().enumerate() {
        body["n"] = json!(1);
        body["seed"] = json!(40 + at);
        let alone = rig.post("/v1/completions", &body).await.json();
        assert_eq!(alone["choices"][0]["text"], *expect, "answer {at}");
    }
    assert_eq!(texts.iter().collect::<std::collections::HashSet<_>>().len(), 3, "{texts:?}");
}

#[tokio::test]
async fn a_list_that_never_fits_is_named() {
    let rig = Rig::new("--model fake:step=0ms --max-running-requests 2 --max-queued-requests 6");
    let refused = async |fields: Value| {
        let mut body = completion(1);
        for (name, value) in fields.as_object().expect("an object") {
            body[name] = value.clone();
        }
        let answer = rig.post("/v1/completions", &body).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        let error = answer.json()["error"].clone();
        let text = |name: &str| error[name].as_str().expect("a text").to_owned();
        (text("param"), text("message"))
    };
    let (param, message) = refused(json!({"prompt": vec!["a"; 9]})).await;
    assert_eq!(param, "prompt");
    assert!(message.contains("the answers to 9 prompts never fit into 8 places"), "{message}");
    assert!(message.contains("send at most 8 in one list"), "{message}");
    let (param, message) = refused(json!({"prompt": ["a", "b", "c"], "n": 3})).await;
    assert_eq!(param, "prompt");
    assert!(message.contains("3 prompts with n = 3") && message.contains("at most 2"), "{message}");
    let (param, message) = refused(json!({"n": 9})).await;
    assert_eq!(param, "n");
    assert!(message.contains("9 answers never fit") && message.contains("at most 8"), "{message}");
}
