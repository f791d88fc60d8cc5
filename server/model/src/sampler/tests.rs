//! Properties of sampling: what each parameter promises, and that draws follow the distribution.

use super::*;

mod reference;
mod restrict;

/// A row of logits that looks like a model's: a few likely tokens and a long tail.
pub(super) fn row(vocab: usize, seed: u64) -> Vec<f32> {
    let mut random = SplitMix(seed);
    let normal = |random: &mut SplitMix| (0..12).map(|_| random.next_unit()).sum::<f64>() - 6.0;
    (0..vocab).map(|_| normal(&mut random) as f32 * 2.5).collect()
}

fn params(temperature: f32, top_k: u32, top_p: f32) -> SamplingParams {
    SamplingParams { temperature, top_k, top_p, seed: Some(7), ..SamplingParams::default() }
}

/// A sampler without prompt, stop tokens and constraint.
fn plain(params: SamplingParams, vocab: usize, fallback: u64) -> Sampler {
    Sampler::new(params, &[], None, &[], vocab, fallback)
}

fn tokens(params: &SamplingParams, rows: &[Vec<f32>], fallback: u64) -> Vec<u32> {
    let mut sampler = plain(params.clone(), rows[0].len(), fallback);
    rows.iter().map(|row| sampler.sample(row).unwrap().token.0).collect()
}

fn rows(count: u64) -> Vec<Vec<f32>> {
    (0..count).map(|seed| row(700, seed)).collect()
}

#[test]
fn greedy_takes_the_lowest_of_equals() {
    let pick = |logits: &[f32]| {
        let mut sampler = plain(SamplingParams::default(), logits.len(), 0);
        sampler.sample(logits).unwrap().token.0
    };
    assert_eq!(pick(&[0.0, 3.0, 3.0]), 1);
    assert_eq!(pick(&[-2.0]), 0);
    assert_eq!(pick(&[-0.0, 0.0]), 0);
    let mut long = vec![1.0; 100];
    long[77] = 2.0;
    long[99] = 2.0;
    assert_eq!(pick(&long), 77);
}

#[test]
fn narrow_parameters_are_greedy() {
    let rows = rows(40);
    let greedy = tokens(&params(0.0, 0, 1.0), &rows, 0);
    for narrow in [params(1.3, 1, 1.0), params(1.3, 0, 1e-9), params(1.3, 0, 0.0)] {
        assert_eq!(tokens(&narrow, &rows, 0), greedy, "{narrow:?}");
    }
    let odd = [params(f32::NAN, 0, 1.0), params(-1.0, 0, 1.0), params(1e-6, 0, f32::NAN)];
    for odd in odd {
        assert_eq!(tokens(&odd, &rows, 0), greedy, "{odd:?}");
    }
}

#[test]
fn the_seed_decides_everything() {
    let rows = rows(40);
    let warm = params(1.0, 0, 0.95);
    assert_eq!(tokens(&warm, &rows, 1), tokens(&warm, &rows, 2));
    let unseeded = SamplingParams { seed: None, ..warm.clone() };
    assert_eq!(tokens(&unseeded, &rows, 7), tokens(&warm, &rows, 0));
    assert_ne!(tokens(&unseeded, &rows, 8), tokens(&warm, &rows, 0));
}

#[test]
fn only_allowed_tokens_are_drawn() {
    let logits = row(700, 3);
    let mut order: Vec<u32> = (0..700).collect();
    order.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]));
    let check = |params: SamplingParams, allowed: usize| {
        let mut sampler = plain(SamplingParams { seed: None, ..params }, 700, 1);
        let mut seen = vec![0u32; 700];
        for _ in 0..4000 {
            seen[sampler.sample(&logits).unwrap().token.index()] += 1;
        }
        let kinds = seen.iter().filter(|n| **n > 0).count();
        assert!(order[allowed..].iter().all(|id| seen[*id as usize] == 0), "{kinds} kinds");
        assert!(kinds * 3 > allowed, "{kinds} kinds of {allowed}");
    };
    check(params(1.5, 5, 1.0), 5);
    check(params(1.0, 5, 1.0), 5);
    let weights: Vec<f64> = order.iter().map(|id| f64::from(logits[*id as usize]).exp()).collect();
    let total: f64 = weights.iter().sum();
    let mut mass = 0.0;
    let nucleus = weights.iter().position(|w| {
        mass += w / total;
        mass >= 0.8
    });
    check(params(1.0, 0, 0.8), nucleus.unwrap() + 1);
}

/// Pearson's statistic of `draws` draws stays below `mean + 5 sigma` of its chi-square law.
#[test]
fn draws_follow_the_distribution() {
    let logits = row(64, 11);
    let draws = 40_000;
    for (temperature, top_p) in [(1.0, 1.0), (0.7, 1.0), (2.0, 0.999_999)] {
        let mut sampler =
            plain(SamplingParams { seed: None, ..params(temperature, 0, top_p) }, 64, 99);
        let mut seen = vec![0.0f64; logits.len()];
        for _ in 0..draws {
            seen[sampler.sample(&logits).unwrap().token.index()] += 1.0;
        }
        let weights: Vec<f64> =
            logits.iter().map(|x| (f64::from(*x) / f64::from(temperature)).exp()).collect();
        let total: f64 = weights.iter().sum();
        let mut chi = 0.0;
        let mut classes = 0.0f64;
        for (seen, weight) in seen.iter().zip(&weights) {
            let expect = weight / total * f64::from(draws);
            if expect >= 5.0 {
                chi += (seen - expect).powi(2) / expect;
                classes += 1.0;
            }
        }
        let bound = classes + 5.0 * (2.0 * classes).sqrt();
        assert!(chi < bound, "chi-square {chi} of {classes} classes, bound {bound}");
    }
}

#[test]
fn logprobs_are_of_the_raw_distribution() {
    let logits = row(300, 5);
    let wanted = SamplingParams { logprobs: Some(4), ..params(3.0, 2, 0.5) };
    let mut sampler = plain(wanted, 300, 0);
    let sampled = sampler.sample(&logits).unwrap();
    let total: f64 = logits.iter().map(|x| f64::from(*x).exp()).sum();
    let expect = |id: TokenId| (f64::from(logits[id.index()]).exp() / total).ln() as f32;
    assert!((sampled.logprob.unwrap() - expect(sampled.token)).abs() < 1e-5);
    assert_eq!(sampler.top().len(), 4);
    for pair in sampler.top().windows(2) {
        assert!(pair[0].1 >= pair[1].1);
    }
    for &(id, logprob) in sampler.top() {
        assert!((logprob - expect(id)).abs() < 1e-5);
    }
    let none = SamplingParams { logprobs: Some(0), ..SamplingParams::default() };
    let mut sampler = plain(none, 300, 0);
    let sampled = sampler.sample(&logits).unwrap();
    assert!(sampled.logprob.is_some() && sampler.top().is_empty());
}

#[test]
fn what_is_not_finite_is_an_error() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in [0, 5, 16, 39] {
            let mut logits = vec![0.5; 40];
            logits[at] = bad;
            let error = plain(params(1.0, 0, 1.0), 40, 0).sample(&logits).unwrap_err();
            let expect = RunError::NonFinite { token: at as u32, value: bad.to_string() };
            assert_eq!(error, expect);
        }
    }
    assert!(plain(SamplingParams::default(), 0, 0).sample(&[]).is_err());
    let short = plain(SamplingParams::default(), 3, 0).sample(&[1.0]);
    assert_eq!(short.unwrap_err().to_string(), "1 logits of a vocabulary of 3");
}

/// The nucleus is found among thousands of near equals too, where the first guess is too short.
#[test]
fn a_flat_distribution_has_a_wide_nucleus() {
    let logits: Vec<f32> = (0..5000).map(|i| (i % 7) as f32 * 1e-3).collect();
    let mut sampler = plain(params(1.0, 0, 0.9), 5000, 0);
    let mut kinds = std::collections::HashSet::new();
    for _ in 0..300 {
        kinds.insert(sampler.sample(&logits).unwrap().token);
    }
    assert!(kinds.len() > 250, "{}", kinds.len());
}
