//! Every parameter, alone and together, against a naive implementation in double precision that
//! sorts the whole vocabulary and follows the documented order word by word.

use std::collections::{HashMap, HashSet};

use super::*;

/// What the documented order makes of a row: each token's probability, zero for those that do not
/// take part.
fn naive(logits: &[f32], params: &SamplingParams, prompt: &[u32], answer: &[u32]) -> Vec<f64> {
    let mut row: Vec<f64> = logits.iter().map(|x| f64::from(*x)).collect();
    let mut counts: HashMap<u32, u32> = HashMap::new();
    answer.iter().for_each(|token| *counts.entry(*token).or_default() += 1);
    for (at, logit) in row.iter_mut().enumerate() {
        let id = at as u32;
        let penalty = f64::from(params.repetition_penalty);
        if prompt.contains(&id) || answer.contains(&id) {
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
        }
        if let Some(count) = counts.get(&id) {
            *logit -= f64::from(params.presence_penalty);
            *logit -= f64::from(params.frequency_penalty) * f64::from(*count);
        }
        for (token, bias) in &params.logit_bias {
            if token.0 == id {
                *logit += f64::from(*bias);
            }
        }
        *logit /= f64::from(params.temperature);
    }
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|a, b| row[*b].total_cmp(&row[*a]).then(a.cmp(b)));
    let best = row[order[0]];
    let mut shares: Vec<f64> = row.iter().map(|logit| (logit - best).exp()).collect();
    if params.top_k > 0 {
        order.iter().skip(params.top_k as usize).for_each(|at| shares[*at] = 0.0);
    }
    let total: f64 = shares.iter().sum();
    let mut mass = 0.0;
    for at in &order {
        if params.top_p < 1.0 && mass > 0.0 && mass >= f64::from(params.top_p) * total {
            shares[*at] = 0.0;
        }
        mass += shares[*at];
    }
    for share in &mut shares {
        if *share < f64::from(params.min_p) {
            *share = 0.0;
        }
    }
    let total: f64 = shares.iter().sum();
    shares.iter().map(|share| share / total).collect()
}

const DRAWS: u32 = 2000;

/// The distribution that a sampler draws from, found with a sweep of its random number.
fn drawn(logits: &[f32], params: &SamplingParams, prompt: &[u32], answer: &[u32]) -> Vec<f64> {
    let prompt: Vec<TokenId> = prompt.iter().copied().map(TokenId).collect();
    let mut sampler = Sampler::new(params.clone(), &[], None, &prompt, logits.len(), 0);
    answer.iter().for_each(|token| sampler.history.add(TokenId(*token)));
    let row = if sampler.shape(logits).unwrap() { sampler.shaped.clone() } else { logits.to_vec() };
    let best = argmax(&row).unwrap() as u32;
    let mut seen = vec![0u32; logits.len()];
    for at in 0..DRAWS {
        let uniform = (f64::from(at) + 0.5) / f64::from(DRAWS);
        seen[sampler.draw.draw(&row, best, &sampler.params, uniform) as usize] += 1;
    }
    seen.iter().map(|seen| f64::from(*seen) / f64::from(DRAWS)).collect()
}

/// A sweep misses each share by less than one draw at either edge.
fn compare(logits: &[f32], params: &SamplingParams, prompt: &[u32], answer: &[u32]) {
    let expect = naive(logits, params, prompt, answer);
    let found = drawn(logits, params, prompt, answer);
    for (id, (expect, found)) in expect.iter().zip(&found).enumerate() {
        let close = (expect - found).abs() < 1.1 / f64::from(DRAWS) + 1e-6;
        assert!(close, "token {id}: {expect} expected, {found} drawn, {params:?}");
    }
}

fn warm() -> SamplingParams {
    SamplingParams { temperature: 1.0, ..SamplingParams::default() }
}

const PROMPT: [u32; 5] = [3, 9, 9, 60, 41];
const ANSWER: [u32; 6] = [5, 9, 5, 5, 77, 41];

#[test]
fn each_parameter_alone() {
    let bias = vec![(TokenId(5), 4.0), (TokenId(9), -100.0), (TokenId(80), 100.0)];
    let cases = [
        warm(),
        SamplingParams { temperature: 0.3, ..warm() },
        SamplingParams { temperature: 2.0, ..warm() },
        SamplingParams { top_k: 7, ..warm() },
        SamplingParams { top_k: 90, ..warm() },
        SamplingParams { top_k: 5000, ..warm() },
        SamplingParams { top_p: 0.35, ..warm() },
        SamplingParams { top_p: 0.95, ..warm() },
        SamplingParams { top_p: 0.0, ..warm() },
        SamplingParams { min_p: 0.05, ..warm() },
        SamplingParams { min_p: 1.0, ..warm() },
        SamplingParams { repetition_penalty: 1.7, ..warm() },
        SamplingParams { repetition_penalty: 0.6, ..warm() },
        SamplingParams { presence_penalty: 1.5, ..warm() },
        SamplingParams { presence_penalty: -2.0, ..warm() },
        SamplingParams { frequency_penalty: 0.9, ..warm() },
        SamplingParams { frequency_penalty: -0.7, ..warm() },
        SamplingParams { logit_bias: bias, ..warm() },
    ];
    for params in cases {
        for seed in 0..3 {
            compare(&row(100, seed), &params, &PROMPT, &ANSWER);
        }
    }
}

/// Random sets of parameters; a seed always makes the same set.
#[test]
fn parameters_together() {
    for seed in 0..150 {
        let mut random = SplitMix(seed);
        let mut pick = |values: &[f32]| values[(random.next_unit() * values.len() as f64) as usize];
        let params = SamplingParams {
            temperature: pick(&[0.2, 0.8, 1.0, 1.9]),
            top_k: pick(&[0.0, 0.0, 3.0, 40.0, 99.0]) as u32,
            top_p: pick(&[1.0, 1.0, 0.5, 0.9, 0.99]),
            min_p: pick(&[0.0, 0.0, 0.02, 0.3]),
            repetition_penalty: pick(&[1.0, 1.0, 1.3, 0.8]),
            presence_penalty: pick(&[0.0, 0.0, 1.0, -1.0]),
            frequency_penalty: pick(&[0.0, 0.0, 0.5, -0.3]),
            logit_bias: vec![(TokenId(pick(&[0.0, 9.0, 99.0]) as u32), pick(&[0.0, 2.5, -7.0]))],
            ..SamplingParams::default()
        };
        println!("seed {seed}");
        compare(&row(100, seed ^ 0x5eed), &params, &PROMPT, &ANSWER);
    }
}

/// Greedy is the naive implementation's most likely token, step by step, penalties included.
#[test]
fn greedy_with_penalties_follows_its_own_answer() {
    for seed in 0..40 {
        let params = SamplingParams {
            repetition_penalty: 1.2,
            presence_penalty: 0.4,
            frequency_penalty: 0.6,
            logit_bias: vec![(TokenId(7), 1.0)],
            ..SamplingParams::default()
        };
        let mut sampler = Sampler::new(params.clone(), &[], None, &PROMPT.map(TokenId), 100, 0);
        let even = SamplingParams { temperature: 1.0, ..params };
        let mut answer = Vec::new();
        // The same row again and again, so that only the penalties move the choice.
        let base = row(100, seed);
        for _ in 0..30 {
            let expect = naive(&base, &even, &PROMPT, &answer);
            let best = (0..100).max_by(|a, b| expect[*a].total_cmp(&expect[*b])).unwrap();
            let found = sampler.sample(&base).unwrap().token;
            assert_eq!(found.index(), best, "seed {seed}, after {answer:?}");
            answer.push(found.0);
        }
        let distinct: HashSet<_> = answer.iter().collect();
        assert!(distinct.len() > 5, "penalties spread the answer: {answer:?}");
    }
}

/// The selection of the most likely is that of a full sort, ties and forbidden tokens included.
#[test]
fn the_most_likely_are_those_of_a_full_sort() {
    let mut kept = Vec::new();
    for seed in 0..60u64 {
        let mut logits = row(1 + (seed as usize * 977) % 6000, seed);
        // Few distinct values: many ties. Some tokens are not allowed.
        for (at, logit) in logits.iter_mut().enumerate() {
            if seed % 3 == 0 {
                *logit = logit.round();
            }
            if seed % 4 == 1 && at % 7 < 3 {
                *logit = f32::NEG_INFINITY;
            }
        }
        let mut order: Vec<usize> =
            (0..logits.len()).filter(|at| logits[*at].is_finite()).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
        for k in [0, 1, 2, 20, 63, 64, 65, 500, logits.len(), usize::MAX] {
            select::take_most_likely(&logits, k, &mut kept);
            let found: Vec<usize> = kept.iter().map(|candidate| candidate.id as usize).collect();
            assert_eq!(found, order[..k.min(order.len())], "seed {seed}, k {k}");
        }
    }
}

/// Over a large vocabulary only tokens that take part are drawn, and all likely ones are.
#[test]
fn a_large_vocabulary_is_cut_exactly() {
    for (seed, top_p, top_k) in [(1, 0.9, 0), (2, 0.999, 0), (3, 0.5, 3000), (4, 1.0, 50)] {
        let logits = row(150_000, seed);
        let params = SamplingParams { top_p, top_k, ..warm() };
        let expect = naive(&logits, &params, &[], &[]);
        let mut draw = Draw::default();
        let best = argmax(&logits).unwrap() as u32;
        let mut drawn = HashSet::new();
        for at in 0..80 {
            let uniform = (f64::from(at) + 0.5) / 80.0;
            let token = draw.draw(&logits, best, &params, uniform) as usize;
            assert!(expect[token] > 0.0, "token {token} takes no part: seed {seed}");
            drawn.insert(token);
        }
        let likely = expect.iter().zip(0..).filter(|(share, _)| **share > 0.026);
        assert!(likely.map(|(_, token)| token).all(|token| drawn.contains(&token)));
        // The edge of the nucleus: the highest random number draws the last candidate there is.
        let last = draw.draw(&logits, best, &params, 1.0 - 1e-12) as usize;
        let least = expect.iter().copied().filter(|share| *share > 0.0).fold(1.0, f64::min);
        if top_k > 0 {
            assert!((expect[last] / least - 1.0).abs() < 1e-9, "seed {seed}");
        }
    }
}
