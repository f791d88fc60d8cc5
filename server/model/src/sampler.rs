//! From a row of logits to a token: greedy, temperature, top-k, top-p, log-probabilities.
//!
//! A sampler belongs to one request and owns its randomness, so that what runs beside the request
//! never changes its tokens. Stop conditions and penalties are not here.

use std::cmp::Ordering;

use types::TokenId;

use crate::runner::RunError;

/// Below this a temperature means greedy: dividing by it would only overflow.
const MIN_TEMPERATURE: f32 = 1e-5;
/// The first guess of how many candidates hold the `top_p` mass; grows fourfold until they do.
const FIRST_NUCLEUS: usize = 256;

/// How to choose the next token. `Default` is greedy without log-probabilities.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SamplingParams {
    /// Divides the logits; zero (or anything not above 1e-5) means greedy.
    pub temperature: f32,
    /// Only the k most likely tokens take part; 0 means all.
    pub top_k: u32,
    /// Only the fewest most likely tokens whose probabilities reach this take part. Anything
    /// outside `0.0..1.0` means all; the most likely token always takes part.
    pub top_p: f32,
    /// Start of the random numbers; `None` takes the seed that the caller of [`Sampler::new`]
    /// gives.
    pub seed: Option<u64>,
    /// Wanted log-probabilities: of the chosen token and of this many most likely ones.
    pub logprobs: Option<u8>,
}

impl SamplingParams {
    /// Whether the most likely token is always chosen.
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        self.temperature.is_nan() || self.temperature <= MIN_TEMPERATURE || self.top_k == 1
    }
}

/// A chosen token. Log-probabilities are natural logarithms of the model's own distribution:
/// before temperature and truncation.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// The token.
    pub token: TokenId,
    /// Its log-probability, where [`SamplingParams::logprobs`] asked.
    pub logprob: Option<f32>,
    /// The most likely tokens, most likely first, where asked; may not hold `token`.
    pub top: Vec<(TokenId, f32)>,
}

/// Draws the tokens of one request.
#[derive(Debug, Clone)]
pub struct Sampler {
    params: SamplingParams,
    random: SplitMix,
    /// Reused candidate list: (logit, id).
    candidates: Vec<(f32, u32)>,
}

impl Sampler {
    /// A sampler that starts at `params.seed`, or at `fallback_seed` where there is none.
    #[must_use]
    pub fn new(params: SamplingParams, fallback_seed: u64) -> Self {
        let random = SplitMix(params.seed.unwrap_or(fallback_seed));
        Self { params, random, candidates: Vec::new() }
    }

    /// What this sampler was made with.
    #[must_use]
    pub const fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// Chooses a token. Takes exactly one random number unless greedy, so the n-th token of a
    /// request depends on the seed, on n and on its logits only.
    ///
    /// # Errors
    /// [`RunError::NonFinite`] where a logit is not finite; [`RunError::Backend`] where there are
    /// no logits at all.
    pub fn sample(&mut self, logits: &[f32]) -> Result<Sampled, RunError> {
        let best = finite_argmax(logits)?;
        let token = if self.params.is_greedy() { best } else { self.draw(logits, best) };
        let mut sampled = Sampled { token: TokenId(token), logprob: None, top: Vec::new() };
        if let Some(wanted) = self.params.logprobs {
            let normaliser = log_sum_exp(logits, logits[best as usize]);
            let logprob = |logit: f32| (f64::from(logit) - normaliser) as f32;
            sampled.logprob = Some(logprob(logits[token as usize]));
            self.take_most_likely(logits, usize::from(wanted));
            sampled.top =
                self.candidates.iter().map(|&(logit, id)| (TokenId(id), logprob(logit))).collect();
        }
        Ok(sampled)
    }

    fn draw(&mut self, logits: &[f32], best: u32) -> u32 {
        let uniform = self.random.next_unit();
        let scale = 1.0 / f64::from(self.params.temperature);
        let top = logits[best as usize];
        let weight = |logit: f32| (f64::from(logit - top) * scale).exp();
        if self.params.top_k == 0 && !(0.0..1.0).contains(&self.params.top_p) {
            return draw_in_order(logits, weight, uniform).unwrap_or(best);
        }
        let k = match self.params.top_k as usize {
            0 => logits.len(),
            k => k.min(logits.len()),
        };
        self.take_nucleus(logits, k, weight);
        let total: f64 = self.candidates.iter().map(|&(logit, _)| weight(logit)).sum();
        let mut left = uniform * total;
        for &(logit, id) in &self.candidates {
            left -= weight(logit);
            if left < 0.0 {
                return id;
            }
        }
        best
    }

    /// Leaves in `candidates`, most likely first, the shortest run of the `k` most likely tokens
    /// that holds `top_p` of their mass.
    fn take_nucleus(&mut self, logits: &[f32], k: usize, weight: impl Fn(f32) -> f64) {
        let top_p = f64::from(self.params.top_p);
        if !(0.0..1.0).contains(&top_p) {
            return self.take_most_likely(logits, k);
        }
        // With top_k in force its candidates are the distribution that top_p cuts.
        let total: f64 = if k < logits.len() {
            self.take_most_likely(logits, k);
            self.candidates.iter().map(|&(logit, _)| weight(logit)).sum()
        } else {
            logits.iter().map(|&logit| weight(logit)).sum()
        };
        let mut guess = FIRST_NUCLEUS;
        loop {
            self.take_most_likely(logits, guess.min(k));
            let mut mass = 0.0;
            for (index, &(logit, _)) in self.candidates.iter().enumerate() {
                mass += weight(logit);
                if mass >= top_p * total {
                    return self.candidates.truncate(index + 1);
                }
            }
            if guess >= k {
                return;
            }
            guess *= 4;
        }
    }

    /// Leaves the `n` most likely tokens in `candidates`, most likely first, lowest id first among
    /// equals.
    fn take_most_likely(&mut self, logits: &[f32], n: usize) {
        self.candidates.clear();
        if n == 0 {
            return;
        }
        let all = logits.iter().zip(0..).map(|(&logit, id)| (logit, id));
        self.candidates.extend(all);
        if n < self.candidates.len() {
            self.candidates.select_nth_unstable_by(n - 1, more_likely);
            self.candidates.truncate(n);
        }
        self.candidates.sort_unstable_by(more_likely);
    }
}

fn more_likely(a: &(f32, u32), b: &(f32, u32)) -> Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// The lowest index of the largest logit.
fn finite_argmax(logits: &[f32]) -> Result<u32, RunError> {
    // One pass that vectorises: a sum of x * 0 is zero exactly where all are finite.
    let mut poison = [0.0f32; 16];
    let (chunks, rest) = logits.as_chunks::<16>();
    for chunk in chunks {
        for (lane, value) in poison.iter_mut().zip(chunk) {
            *lane += value * 0.0;
        }
    }
    let clean = poison.iter().all(|lane| *lane == 0.0) && rest.iter().all(|x| x.is_finite());
    if !clean {
        let (token, value) =
            (0u32..).zip(logits).find(|(_, x)| !x.is_finite()).expect("one was not finite");
        return Err(RunError::NonFinite { token, value: value.to_string() });
    }
    if logits.is_empty() {
        return Err(RunError::Backend("no logits to choose from".to_owned()));
    }
    let largest = largest(logits);
    let first = logits.iter().position(|&x| x == largest).unwrap_or(0);
    Ok(u32::try_from(first).unwrap_or(u32::MAX))
}

fn largest(values: &[f32]) -> f32 {
    let (chunks, rest) = values.as_chunks::<16>();
    let mut lanes = [f32::NEG_INFINITY; 16];
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = if *value > *lane { *value } else { *lane };
        }
    }
    lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max)
}

fn log_sum_exp(logits: &[f32], largest: f32) -> f64 {
    let sum: f64 = logits.iter().map(|&x| f64::from((x - largest).exp())).sum();
    f64::from(largest) + sum.ln()
}

/// Draws among all tokens by weight, in id order.
fn draw_in_order(logits: &[f32], weight: impl Fn(f32) -> f64, uniform: f64) -> Option<u32> {
    let total: f64 = logits.iter().map(|&logit| weight(logit)).sum();
    let mut left = uniform * total;
    for (&logit, id) in logits.iter().zip(0..) {
        left -= weight(logit);
        if left < 0.0 {
            return Some(id);
        }
    }
    None
}

/// SplitMix64: small, seedable with any number, good enough to draw tokens with.
#[derive(Debug, Clone)]
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in `0.0..1.0`.
    fn next_unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests;
