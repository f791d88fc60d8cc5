//! A real model whose layers see a window: what is served is what its reference computes, in as few
//! pages as the window needs.

use std::path::{Path, PathBuf};

use model::{Batch, LoadOptions, Logits, PageList};
use serde_json::{Value, json};
use types::{PageId, TokenId};

use super::rig::Rig;

const MODEL: &str = "tiny-gemma3";

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models").join(MODEL)
}

/// A server with just the pages of one request of 512 tokens.
fn tight() -> Rig {
    let model = fixture();
    let flags = "--kv-pool-bytes 712KiB --max-context 512 --prefill-chunk 16 --threads 1";
    let rig = Rig::new(&format!("--model {} {flags}", model.display()));
    let pools = rig.serving().engine.snapshot().pools.clone();
    let pages: Vec<_> =
        pools.iter().map(|pool| (pool.device.name, pool.device.capacity.0)).collect();
    // 20 tokens of a window and 16 of a chunk lie in five pages of 16.
    assert_eq!(pages, [("kv", 32), ("swa", 5)]);
    rig
}

fn ids(values: &Value) -> Vec<TokenId> {
    let values = values.as_array().expect("a list").iter();
    values.map(|id| TokenId(u32::try_from(id.as_u64().expect("an id")).expect("small"))).collect()
}

async fn check(rig: &Rig, prompt: &[TokenId], expect: &[TokenId]) {
    let prompt: Vec<u32> = prompt.iter().map(|id| id.0).collect();
    let body = json!({
        "model": MODEL, "prompt": prompt, "max_tokens": expect.len(), "temperature": 0,
        "ignore_eos": true
    });
    let answer = rig.post("/v1/completions", &body).await.json();
    assert_eq!(answer["usage"]["completion_tokens"], expect.len(), "{answer}");
    let text = rig.serving().tokenizer.decode(expect, true).expect("known tokens");
    assert_eq!(answer["choices"][0]["text"], text);
}

#[tokio::test]
async fn answers_are_those_of_the_reference() {
    let golden = std::fs::read(fixture().join("golden.json")).expect("the fixture is there");
    let golden: Value = serde_json::from_slice(&golden).expect("JSON");
    let rig = tight();
    for prompt in golden["prompts"].as_array().expect("prompts") {
        check(&rig, &ids(&prompt["input_ids"]), &ids(&prompt["greedy_ids"])).await;
    }
}

/// What the model answers when it keeps every page.
fn keeping_everything(prompt: &[TokenId], count: usize) -> Vec<TokenId> {
    let mut runner = model::load(&fixture(), LoadOptions::default()).expect("it loads").runner;
    runner.allocate(&[32, 32]).expect("small");
    let pages: Vec<_> = (0..32).map(PageId).collect();
    let (mut batch, mut logits) = (Batch::default(), Logits::new());
    let (mut tokens, mut computed) = (prompt.to_vec(), 0);
    for _ in 0..count {
        batch.clear();
        batch.push(&tokens[computed..], computed, 1, [PageList::whole(&pages); 2]);
        runner.execute(&batch, &mut logits).expect("a good batch");
        computed = tokens.len();
        let row = logits.row(0);
        let best = (0..row.len()).rev().max_by(|a, b| row[*a].total_cmp(&row[*b]));
        tokens.push(TokenId(u32::try_from(best.expect("a vocabulary")).expect("small")));
    }
    tokens.split_off(prompt.len())
}

#[tokio::test]
async fn a_long_answer_takes_no_more_pages_than_its_window() {
    let rig = tight();
    let prompt: Vec<_> = (40..90).map(TokenId).collect();
    // 450 tokens are 29 pages; there are five.
    check(&rig, &prompt, &keeping_everything(&prompt, 400)).await;
}
