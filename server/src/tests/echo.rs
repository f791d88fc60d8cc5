//! Prompts that come back with log-probabilities, as evaluation tools ask for them, against a
//! forward pass of the model's own over the whole prompt.

use std::path::PathBuf;

use model::{Batch, LoadOptions, Logits, PageList};
use serde_json::{Value, json};
use types::{PageId, TokenId};

use super::rig::Rig;

fn model() -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join("../tests/fixtures/models/tiny-llama")
}

fn rig(flags: &str) -> Rig {
    let model = model();
    Rig::new(&format!("--model {} --threads 1 {flags}", model.display()))
}

const TEXT: &str = "The harbour office keeps a ledger of ships, of crews and of storms.";

/// The tokens of [`TEXT`] as the server makes them.
async fn tokens(rig: &Rig) -> Vec<u32> {
    let answer = rig.post("/tokenize", &json!({"prompt": TEXT})).await.json();
    serde_json::from_value(answer["tokens"].clone()).expect("ids")
}

/// The natural logarithm of each token's probability, given those before it; from the second on.
fn independent(ids: &[u32]) -> Vec<Vec<f64>> {
    let mut loaded = model::load(&model(), LoadOptions::default()).expect("the fixture loads");
    let tokens: Vec<TokenId> = ids.iter().copied().map(TokenId).collect();
    let pages = tokens.len().div_ceil(loaded.spec.pools[0].page_tokens);
    loaded.runner.allocate(&vec![pages; loaded.spec.pools.len()]).expect("a small pool");
    let pages: Vec<PageId> = (0..pages as u32).map(PageId).collect();
    let (mut batch, mut logits) = (Batch::default(), Logits::new());
    let lists = loaded.spec.pools.iter().map(|_| PageList::whole(&pages));
    batch.push(&tokens, 0, tokens.len(), lists);
    loaded.runner.execute(&batch, &mut logits).expect("the model runs");
    let row = |at: usize| {
        let row = logits.row(at);
        let total: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
        row.iter().map(|logit| f64::from(*logit) - total.ln()).collect()
    };
    (0..tokens.len()).map(row).collect()
}

fn numbers(value: &Value) -> Vec<Option<f64>> {
    value.as_array().expect("an array").iter().map(Value::as_f64).collect()
}

/// Checks the log-probabilities of a scored prompt.
fn check(choice: &Value, ids: &[u32], rows: &[Vec<f64>]) {
    let logprobs = &choice["logprobs"];
    let found = numbers(&logprobs["token_logprobs"]);
    assert_eq!(found[0], None, "nothing precedes the first token");
    assert!(logprobs["top_logprobs"][0].is_null());
    let (mut sum, mut expect_sum) = (0.0, 0.0);
    for at in 1..ids.len() {
        let (found, row) = (found[at].expect("a number"), &rows[at - 1]);
        let expect = row[ids[at] as usize];
        assert!((found - expect).abs() < 1e-4, "token {at}: {found}, {expect}");
        (sum, expect_sum) = (sum + found, expect_sum + expect);
        let top = logprobs["top_logprobs"][at].as_object().expect("alternatives");
        let best = top.values().filter_map(Value::as_f64).fold(f64::MIN, f64::max);
        let most = row.iter().copied().fold(f64::MIN, f64::max);
        assert!((best - most).abs() < 1e-4, "token {at}: {best} is not the best, {most}");
        assert!(top.values().any(|value| value.as_f64() == Some(found)), "its own is among them");
    }
    assert!((sum - expect_sum).abs() < 1e-3, "{sum}, {expect_sum}");
}

/// As evaluation tools ask: token ids or text, one token of answer or none, any chunk size.
#[tokio::test]
async fn the_prompts_log_probabilities_are_those_of_one_forward_pass() {
    for flags in ["--prefill-chunk 5 --max-batch-tokens 64", ""] {
        let rig = rig(flags);
        let ids = tokens(&rig).await;
        let rows = independent(&ids);
        for (prompt, max_tokens) in [(json!(ids), 1), (json!(ids), 0), (json!(TEXT), 1)] {
            let body = json!({
                "model": "tiny-llama", "prompt": prompt, "max_tokens": max_tokens, "logprobs": 1,
                "echo": true, "temperature": 0, "ignore_eos": true,
            });
            let answer = rig.post("/v1/completions", &body).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let answer = answer.json();
            let choice = &answer["choices"][0];
            check(choice, &ids, &rows);
            let count = ids.len() + max_tokens;
            for array in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
                let found = choice["logprobs"][array].as_array().expect("an array");
                assert_eq!(found.len(), count, "{array}");
            }
            let text = choice["text"].as_str().expect("a text");
            let joined: String = choice["logprobs"]["tokens"]
                .as_array()
                .expect("an array")
                .iter()
                .filter_map(Value::as_str)
                .collect();
            assert_eq!((joined.as_str(), text.starts_with(TEXT)), (text, true));
            assert_eq!(text == TEXT, max_tokens == 0);
            assert_eq!(choice["finish_reason"], "length");
            assert_eq!(answer["usage"]["prompt_tokens"], ids.len());
            assert_eq!(answer["usage"]["completion_tokens"], max_tokens);
            // Each offset is where the token's text begins.
            let chars: Vec<char> = text.chars().collect();
            for at in 0..count {
                let token = choice["logprobs"]["tokens"][at].as_str().expect("a text");
                let offset = choice["logprobs"]["text_offset"][at].as_u64().expect("a number");
                let rest: String = chars[offset as usize..].iter().collect();
                assert!(rest.starts_with(token), "{at}: {token:?} at {offset}");
            }
        }
    }
}

/// The model's first end token.
const END: u32 = 499;

/// Evaluation tools leave out the last entry, which is the generated token's: it has to be there
/// when that token ends the answer and adds no text.
#[tokio::test]
async fn a_stop_token_has_its_entry_behind_the_prompts() {
    let rig = rig("");
    let ids = tokens(&rig).await;
    let rows = independent(&ids);
    let last = &rows[ids.len() - 1];
    let name = json!({"prompt": "", "tokens": [END]});
    let name = rig.post("/detokenize", &name).await.json()["prompt"].clone();
    let ends = [
        json!({"logit_bias": {END.to_string(): 100}}),
        json!({"logit_bias": {END.to_string(): 100}, "max_tokens": 9}),
        json!({"logit_bias": {"7": 100}, "stop_token_ids": [7]}),
    ];
    for (end, token) in ends.into_iter().zip([END, END, 7]) {
        let mut body = json!({
            "model": "tiny-llama", "prompt": ids, "max_tokens": 1, "logprobs": 1, "echo": true,
            "temperature": 0,
        });
        let fields = body.as_object_mut().expect("an object");
        fields.extend(end.as_object().expect("an object").clone());
        let answer = rig.post("/v1/completions", &body).await.json();
        let choice = &answer["choices"][0];
        assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!(TEXT), &json!("stop")));
        assert_eq!(answer["usage"]["completion_tokens"], 1);
        check(choice, &ids, &rows);
        let logprobs = &choice["logprobs"];
        let found = numbers(&logprobs["token_logprobs"]);
        assert_eq!(found.len(), ids.len() + 1);
        // As the model gives it, whatever made it come.
        let own = found[ids.len()].expect("a number");
        assert!((own - last[token as usize]).abs() < 1e-4, "{own}");
        assert_eq!(logprobs["text_offset"][ids.len()], TEXT.len());
        let spelled = logprobs["tokens"][ids.len()].as_str().expect("a text");
        let top = logprobs["top_logprobs"][ids.len()].as_object().expect("alternatives");
        assert_eq!((top.len(), top[spelled].as_f64()), (2, Some(own)), "its own and the best");
        if token == END {
            assert_eq!(name, spelled);
        }
    }
}

/// Without an echo, and as a stream, whose last chunk it comes with; a chat has none.
#[tokio::test]
async fn a_stop_tokens_entry_ends_completions_and_no_chats() {
    let rig = rig("");
    let mut body = json!({
        "model": "tiny-llama", "prompt": TEXT, "max_tokens": 9, "logprobs": 2, "temperature": 0,
        "min_tokens": 3, "logit_bias": {END.to_string(): 100},
    });
    let whole = rig.post("/v1/completions", &body).await.json();
    let expect = &whole["choices"][0];
    assert_eq!(whole["usage"]["completion_tokens"], 4);
    let entries = expect["logprobs"]["tokens"].as_array().expect("an array");
    let joined: String = entries[..3].iter().filter_map(Value::as_str).collect();
    assert_eq!((entries.len(), expect["text"].as_str()), (4, Some(joined.as_str())));
    assert_eq!(expect["logprobs"]["text_offset"][3], joined.chars().count());
    body["stream"] = json!(true);
    let (events, done) = rig.post("/v1/completions", &body).await.events();
    let last = &events.last().expect("events")["choices"][0];
    let end = (&last["text"], &last["finish_reason"], &last["logprobs"]["tokens"]);
    assert_eq!((done, end), (true, (&json!(""), &json!("stop"), &json!(entries[3..]))));
    let parts = events
        .iter()
        .filter_map(|event| event["choices"][0]["logprobs"]["token_logprobs"].as_array());
    let parts: Vec<Value> = parts.flatten().cloned().collect();
    assert_eq!(expect["logprobs"]["token_logprobs"], json!(parts));
    let chat = json!({
        "model": "tiny-llama", "messages": [{"role": "user", "content": TEXT}], "max_tokens": 9,
        "logprobs": true, "temperature": 0, "min_tokens": 3,
        "logit_bias": {END.to_string(): 100},
    });
    let answer = rig.post("/v1/chat/completions", &chat).await.json();
    assert_eq!(answer["usage"]["completion_tokens"], 4);
    let content = answer["choices"][0]["logprobs"]["content"].as_array().expect("an array");
    assert_eq!(content.len(), 3);
}

#[tokio::test]
async fn a_stream_carries_the_same() {
    let rig = rig("");
    let mut body = json!({
        "model": "tiny-llama", "prompt": [TEXT, "Storms"], "max_tokens": 4, "logprobs": 2,
        "echo": true, "temperature": 0, "ignore_eos": true,
    });
    let whole = rig.post("/v1/completions", &body).await.json();
    body["stream"] = json!(true);
    let (events, done) = rig.post("/v1/completions", &body).await.events();
    assert!(done);
    for index in 0..2 {
        let choices = events.iter().flat_map(|event| event["choices"].as_array().expect("choices"));
        let parts: Vec<&Value> = choices.filter(|choice| choice["index"] == index).collect();
        let text: String = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        let expect = &whole["choices"][index];
        assert_eq!(expect["text"], text.as_str());
        for array in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
            let joined: Vec<Value> = parts
                .iter()
                .filter_map(|part| part["logprobs"][array].as_array())
                .flatten()
                .cloned()
                .collect();
            assert_eq!(expect["logprobs"][array], json!(joined), "{array}");
        }
    }
}

#[tokio::test]
async fn an_echo_is_bounded_and_only_an_echo_may_be_empty() {
    let rig = rig("--max-context 512");
    let ids = vec![7; 500];
    let mut body = json!({
        "model": "tiny-llama", "prompt": vec![ids; 8], "max_tokens": 0, "logprobs": 20,
        "echo": true, "n": 4,
    });
    let answer = rig.post("/v1/completions", &body).await;
    assert_eq!(answer.status, 400);
    let error = answer.json()["error"].clone();
    assert_eq!(error["param"], "echo");
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains("4000 prompt tokens"), "{message}");
    assert!(message.contains("336000 log-probabilities; at most 262144"), "{message}");
    // The echo of a prompt alone, without log-probabilities.
    body = json!({"model": "tiny-llama", "prompt": TEXT, "max_tokens": 0, "echo": true});
    let answer = rig.post("/v1/completions", &body).await.json();
    let choice = &answer["choices"][0];
    assert_eq!((&choice["text"], &choice["logprobs"]), (&json!(TEXT), &Value::Null));
    assert_eq!(
        (&choice["finish_reason"], &answer["usage"]["completion_tokens"]),
        (&json!("length"), &json!(0))
    );
    body["echo"] = json!(false);
    let answer = rig.post("/v1/completions", &body).await;
    assert_eq!(
        (answer.status.as_u16(), answer.json()["error"]["param"].clone()),
        (400, json!("max_tokens"))
    );
}
