//! Models whose answers are known, through the whole server: text, pages, prefix cache.

use serde_json::{Value, json};

use super::process::{Server, post};

/// A list of integers of a safetensors file.
fn integers(file: &[u8], name: &str) -> Vec<i64> {
    let (length, rest) = file.split_at(8);
    let length = u64::from_le_bytes(length.try_into().expect("8 bytes")) as usize;
    let header: Value = serde_json::from_slice(&rest[..length]).expect("a header");
    let tensor = &header[name];
    assert_eq!(tensor["dtype"], "I32", "{name}");
    let offset = |at: usize| tensor["data_offsets"][at].as_u64().expect("an offset") as usize;
    let bytes = &rest[length + offset(0)..length + offset(1)];
    let number = |four: &[u8]| i32::from_le_bytes(four.try_into().expect("4 bytes"));
    bytes.chunks_exact(4).map(|four| number(four).into()).collect()
}

/// Ids that are not shown in an answer.
fn special(model: &str) -> Vec<i64> {
    let text = std::fs::read_to_string(format!("{model}/tokenizer.json")).expect("a fixture");
    let tokenizer: Value = serde_json::from_str(&text).expect("JSON");
    let added = tokenizer["added_tokens"].as_array().expect("added tokens");
    let special = added.iter().filter(|token| token["special"] == true);
    special.map(|token| token["id"].as_i64().expect("an id")).collect()
}

#[test]
fn a_deepseek_v4_model_answers_as_its_reference_cold_and_from_the_cache() {
    for ranks in [1, 2] {
        check(ranks);
    }
}

fn check(ranks: usize) {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/tiny-deepseek-v4");
    let golden = std::fs::read(format!("{model}/golden.safetensors")).expect("a fixture");
    let special = special(model);
    let server = Server::start(&format!("--probe-port 0 --model {model} --tp-size {ranks}"));
    for prompt in 0..5 {
        let ids = integers(&golden, &format!("p{prompt}.input_ids"));
        let expected = integers(&golden, &format!("p{prompt}.greedy_ids"));
        let shown: Vec<_> = expected.iter().filter(|id| !special.contains(id)).collect();
        let text = post(&server.api, "/detokenize", &json!({"tokens": shown}));
        let body = json!({
            "model": "tiny-deepseek-v4", "prompt": ids, "max_tokens": expected.len(),
            "temperature": 0, "ignore_eos": true,
        });
        // The second time whole pages of 256 tokens come from the cache, with the states in them.
        for cached in [0, (ids.len() - 1) / 256 * 256] {
            let answer = post(&server.api, "/v1/completions", &body);
            assert_eq!(answer["choices"][0]["text"], text["prompt"], "prompt {prompt}");
            let found = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
            assert_eq!(*found, cached, "prompt {prompt}");
        }
    }
}
