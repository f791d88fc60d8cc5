//! A host tier behind a device that is too small for what is talked about: the same answers, and
//! pages that come back from the host.

use std::path::Path;

use serde_json::json;

use super::rig::Rig;

/// Conversations that take turns.
const TALKS: usize = 4;
/// Rounds of turns. The third uses what the second has used again.
const ROUNDS: usize = 3;

/// A model, pools of its device that hold two conversations at most, and how long turns are.
#[derive(Debug, Clone, Copy)]
struct Talk {
    model: &'static str,
    device: &'static str,
    page: usize,
    /// Tokens of the first turn: whole pages and a bit.
    first: usize,
    /// Tokens that each later turn adds, at least a page.
    more: usize,
}

const LLAMA: Talk = Talk {
    model: "tiny-llama",
    device: "--kv-pool-bytes 700KiB --max-context 400",
    page: 16,
    first: 200,
    more: 45,
};

/// Two pools, one of them with a window of 20 tokens.
const GEMMA: Talk =
    Talk { model: "tiny-gemma3", device: "--kv-pool-bytes 1MiB --max-context 400", ..LLAMA };

/// Seven parts in two pools, one of them with a window of 128 tokens and the states at its end.
const DEEPSEEK: Talk = Talk {
    model: "tiny-deepseek-v4",
    device: "--kv-pool-bytes 1300KiB --max-context 1300",
    page: 256,
    first: 600,
    more: 260,
};

/// Pretends to have bytes; what its pages hold is moved all the same.
const FAKE: Talk =
    Talk { model: "fake:step=0ms", device: "--kv-pool-bytes 440KiB --max-context 400", ..LLAMA };

/// The same with a second pool, whose window is 20 tokens.
const FAKE_WINDOW: Talk = Talk {
    model: "fake:step=0ms,window=20",
    device: "--kv-pool-bytes 560KiB --max-context 400",
    ..LLAMA
};

impl Talk {
    fn flags(self, more: &str) -> String {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models");
        let Self { model, device, .. } = self;
        let base = "--prefill-chunk 64 --max-running-requests 4 --threads 1";
        let folder = models.join(model).display().to_string();
        let model = if model.starts_with("fake") { model } else { &folder };
        format!("--model {model} {device} {base} {more}")
    }

    /// All turns of all conversations, one request at a time, each asked `times` times. Every turn
    /// begins with the ones before it, but not with their answers, so that what is asked does not
    /// depend on what was answered.
    async fn hold(self, rig: &Rig, times: usize) -> Talked {
        let mut talked = Talked { texts: Vec::new(), cached: Vec::new() };
        for round in 0..ROUNDS {
            for turn in 0..TALKS * times {
                let (talk, length) = (turn / times, self.first + round * self.more);
                let prompt: Vec<usize> =
                    (0..length).map(|at| 5 + (talk * 61 + at * 7 + at / 200) % 200).collect();
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

    /// A tier with these flags serves the answers of no tier, and more of their tokens from the
    /// cache.
    async fn check(self, flags: &str, times: usize) {
        let tier = self.flags(&format!("--enable-hierarchical-cache {flags}"));
        let plain = self.hold(&Rig::new(&self.flags("")), times).await;
        let rig = Rig::new(&tier);
        let talked = self.hold(&rig, times).await;
        assert_eq!(talked.texts, plain.texts, "{tier}");
        let (with, without): (u64, u64) = (talked.cached.iter().sum(), plain.cached.iter().sum());
        assert!(with > without, "{tier}: {with} tokens cached, {without} without");
        assert!(host_hits(&rig) > 0, "{tier}");
        // The last round finds whole what the round before has computed.
        let last = talked.cached.iter().step_by(times).skip((ROUNDS - 1) * TALKS);
        let whole = (self.first + (ROUNDS - 2) * self.more) / self.page * self.page;
        assert_eq!(last.copied().collect::<Vec<_>>(), [whole as u64; TALKS], "{tier}");
    }
}

/// What the turns were answered, and how many of their tokens were cached.
#[derive(Debug, PartialEq)]
struct Talked {
    texts: Vec<String>,
    cached: Vec<u64>,
}

/// Pages that were found on the host.
fn host_hits(rig: &Rig) -> u64 {
    let pools = rig.serving().engine.snapshot().pools;
    pools.iter().filter_map(|pool| pool.host.as_ref()).map(|host| host.hit_pages).sum()
}

#[tokio::test]
async fn answers_are_the_same_and_pages_come_back_from_the_host() {
    for talk in [LLAMA, GEMMA, DEEPSEEK, FAKE, FAKE_WINDOW] {
        talk.check("--hicache-ratio 4", 1).await;
    }
}

#[tokio::test]
async fn every_policy_serves() {
    // What is used once is not kept by the first of them.
    for (policy, times) in [("write_through_selective", 2), ("write_back", 1)] {
        let flags = format!("--hicache-ratio 4 --hicache-write-policy {policy}");
        for talk in [LLAMA, GEMMA, DEEPSEEK, FAKE, FAKE_WINDOW] {
            talk.check(&flags, times).await;
        }
    }
}

#[tokio::test]
async fn every_layout_serves() {
    for layout in ["layer_first", "page_first_direct"] {
        let flags = format!("--hicache-ratio 4 --hicache-mem-layout {layout}");
        for talk in [LLAMA, DEEPSEEK] {
            talk.check(&flags, 1).await;
        }
    }
}

#[tokio::test]
async fn every_rank_has_its_part() {
    // Every rank of the second has all pages, so both have twice as many bytes.
    let twice = "--kv-pool-bytes 2600KiB --max-context 1300";
    for talk in [LLAMA, Talk { device: twice, ..DEEPSEEK }] {
        talk.check("--tp-size 2 --hicache-ratio 4", 1).await;
    }
}
