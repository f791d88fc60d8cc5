//! A host tier behind a device that is too small for what is talked about: the same answers, and
//! pages that come back from the host.

use std::path::Path;

use serde_json::json;

use super::rig::Rig;

/// Conversations that take turns.
const TALKS: u32 = 4;
/// Rounds of turns. The third uses what the second has used again.
const ROUNDS: usize = 3;
/// Tokens of the first turn: twelve pages and a bit.
const FIRST: u32 = 200;
/// Tokens that each later turn adds.
const MORE: u32 = 45;

/// A server whose device holds two conversations at most.
pub(super) fn server(model: &str, flags: &str) -> Rig {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models").join(model);
    let base = "--max-context 400 --prefill-chunk 64 --threads 1";
    Rig::new(&format!("--model {} {base} {flags}", model.display()))
}

/// What the turns were answered, and how many of their tokens were cached.
#[derive(Debug, PartialEq)]
pub(super) struct Talked {
    pub(super) texts: Vec<String>,
    pub(super) cached: Vec<u64>,
}

/// All turns of all conversations, one request at a time, each asked `times` times. Every turn
/// begins with the ones before it, but not with their answers, so that what is asked does not
/// depend on what was answered.
pub(super) async fn talk(rig: &Rig, times: usize) -> Talked {
    let mut talked = Talked { texts: Vec::new(), cached: Vec::new() };
    for round in 0..ROUNDS as u32 {
        for turn in 0..TALKS as usize * times {
            let (talk, length) = ((turn / times) as u32, FIRST + round * MORE);
            let prompt: Vec<u32> = (0..length).map(|at| 5 + (talk * 61 + at * 7) % 200).collect();
            let body = json!({
                "model": rig.api.model_name, "prompt": prompt, "max_tokens": 6,
                "temperature": 0, "ignore_eos": true
            });
            let answer = rig.post("/v1/completions", &body).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let answer = answer.json();
            let text = answer["choices"][0]["text"].as_str().expect("a text");
            talked.texts.push(text.to_owned());
            let cached = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
            talked.cached.push(cached.as_u64().expect("a count"));
        }
    }
    talked
}

/// Pages that were found on the host.
fn host_hits(rig: &Rig) -> u64 {
    let pools = rig.serving().engine.snapshot().pools;
    pools.iter().filter_map(|pool| pool.host.as_ref()).map(|host| host.hit_pages).sum()
}

/// A tier with these flags serves the answers of no tier, and more of their tokens from the cache.
async fn check(model: &str, device: &str, flags: &str, times: usize) {
    let plain = talk(&server(model, device), times).await;
    let tier = format!("{device} --enable-hierarchical-cache {flags}");
    let rig = server(model, &tier);
    let talked = talk(&rig, times).await;
    assert_eq!(talked.texts, plain.texts, "{tier}");
    let (with, without): (u64, u64) = (talked.cached.iter().sum(), plain.cached.iter().sum());
    assert!(with > without, "{tier}: {with} tokens cached, {without} without");
    assert!(host_hits(&rig) > 0, "{tier}");
    // The last round finds whole what the round before has computed.
    let last = talked.cached.iter().step_by(times).skip((ROUNDS - 1) * TALKS as usize);
    let whole = u64::from(FIRST + MORE) / 16 * 16;
    assert_eq!(last.copied().collect::<Vec<_>>(), [whole; TALKS as usize], "{tier}");
}

const LLAMA: &str = "--kv-pool-bytes 700KiB";

#[tokio::test]
async fn answers_are_the_same_and_pages_come_back_from_the_host() {
    // What is used once is not kept by the second policy.
    for (policy, times) in [("write_through", 1), ("write_through_selective", 2)] {
        let flags = format!("--hicache-ratio 4 --hicache-write-policy {policy}");
        check("tiny-llama", LLAMA, &flags, times).await;
    }
}

#[tokio::test]
async fn every_layout_serves() {
    for layout in ["layer_first", "page_first", "page_first_direct"] {
        let flags = format!("--hicache-ratio 4 --hicache-mem-layout {layout}");
        check("tiny-llama", LLAMA, &flags, 1).await;
    }
}

#[tokio::test]
async fn every_rank_has_its_part() {
    check("tiny-llama", &format!("{LLAMA} --tp-size 2"), "--hicache-ratio 4", 1).await;
}
