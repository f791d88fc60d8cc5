//! The demo model (SmolLM2-135M-Instruct, GGUF Q4_1) against values made by
//! `scripts/golden_gguf.py`. Skipped, with a line that says so, where the file is not at hand.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use types::TokenId;

use super::golden::Tables;
use crate::load::{LoadOptions, load_dense};
use crate::ranks::DenseRunner;
use crate::runner::{Batch, Logits, ModelRunner};

const MODEL: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
/// Largest difference of a logit on the f32 path.
const TOLERANCE: f32 = 1e-3;
/// Largest divergence of the quantised path's next-token distribution from the f32 path's, in
/// nats, after each prompt.
const MAX_KL: f64 = 0.02;
/// Least share of steps, fed with the reference's tokens, at which the quantised path would have
/// chosen the reference's next token.
const MIN_AGREEMENT: f64 = 0.93;

#[derive(Deserialize)]
struct Golden {
    prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
struct Prompt {
    ids: Vec<u32>,
    greedy_ids: Vec<u32>,
    top: Vec<(usize, f32)>,
    log_sum_exp: f64,
}

fn golden() -> Golden {
    let path = "../../tests/fixtures/smollm2_golden.json";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[expect(clippy::disallowed_methods, reason = "tests have no command line")]
fn model() -> Option<PathBuf> {
    if let Ok(path) = std::env::var("SIGHTLINE_TEST_MODEL") {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "SIGHTLINE_TEST_MODEL={} is no file", path.display());
        return Some(path);
    }
    let home = std::env::var("HOME").unwrap_or_default();
    let cache = std::env::var("XDG_CACHE_HOME").unwrap_or_else(|_| format!("{home}/.cache"));
    let path = Path::new(&cache).join("sightline/models").join(MODEL);
    if path.is_file() {
        return Some(path);
    }
    println!(
        "SKIP: no {}; scripts/fetch-model.sh gets it, SIGHTLINE_TEST_MODEL names it",
        path.display()
    );
    None
}

fn runner(path: &Path, dequantize: bool) -> DenseRunner {
    let options = LoadOptions { threads: 2, dequantize, ..LoadOptions::default() };
    let (mut runner, _) = load_dense(path, options).unwrap();
    runner.allocate(&[40]).unwrap();
    runner
}

fn log_sum_exp(row: &[f32]) -> f64 {
    row.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln()
}

/// The best token of each row.
fn choices(logits: &Logits) -> Vec<u32> {
    let best = |row| kernels::argmax(logits.row(row)).expect("finite") as u32;
    (0..logits.rows()).map(best).collect()
}

/// Logits after the prompt and after each of the reference's tokens but the last.
fn teacher_forced(runner: &mut DenseRunner, prompt: &Prompt) -> Logits {
    let tables = Tables::of(runner);
    let mut batch = Batch::default();
    let ids: Vec<TokenId> = prompt.ids.iter().copied().map(TokenId).collect();
    batch.push(&ids, 0, 1, tables.lists());
    for (step, id) in prompt.greedy_ids[..prompt.greedy_ids.len() - 1].iter().enumerate() {
        batch.push(&[TokenId(*id)], prompt.ids.len() + step, 1, tables.lists());
    }
    let mut logits = Logits::new();
    runner.execute(&batch, &mut logits).unwrap();
    logits
}

#[test]
fn the_demo_model_is_reproduced() {
    let Some(path) = model() else { return };
    let prompts = golden().prompts;
    let mut exact = runner(&path, true);
    let mut quantised = runner(&path, false);
    let (mut agreed, mut steps, mut worst_kl) = (0, 0, 0.0f64);
    for (number, prompt) in prompts.iter().enumerate() {
        // Each step's best token is the one that was fed next: the same as decoding greedily.
        let reference = teacher_forced(&mut exact, prompt);
        assert_eq!(choices(&reference), prompt.greedy_ids, "prompt {number}");
        let first = reference.row(0);
        for (id, logit) in &prompt.top {
            let off = (first[*id] - logit).abs();
            assert!(off <= TOLERANCE, "prompt {number}, logit {id} off by {off}");
        }
        let normaliser = log_sum_exp(first);
        assert!((normaliser - prompt.log_sum_exp).abs() <= f64::from(TOLERANCE));
        let found = teacher_forced(&mut quantised, prompt);
        let found_normaliser = log_sum_exp(found.row(0));
        let kl: f64 = std::iter::zip(first, found.row(0))
            .map(|(p, q)| {
                let (p, q) = (f64::from(*p) - normaliser, f64::from(*q) - found_normaliser);
                p.exp() * (p - q)
            })
            .sum();
        worst_kl = worst_kl.max(kl);
        steps += prompt.greedy_ids.len();
        let pairs = choices(&found).into_iter().zip(&prompt.greedy_ids);
        agreed += pairs.filter(|(found, expect)| found == *expect).count();
    }
    let agreement = f64::from(agreed as u32) / steps as f64;
    println!("quantised path: KL at most {worst_kl:.5}, agreement {agreement:.3} of {steps} steps");
    assert!(worst_kl <= MAX_KL, "KL {worst_kl}");
    assert!(agreement >= MIN_AGREEMENT, "agreement {agreement}");
}
