//! From a row of logits to a token: greedy, temperature, top-k, top-p, log-probabilities.
//!
//! A sampler belongs to one request and owns its randomness, so that what runs beside the request
//! never changes its tokens. Stop conditions and penalties are not here.

use std::cmp::Ordering;

use kernels::{all_finite, argmax, log_sum_exp, softmax};
use types::TokenId;

use crate::runner::RunError;

/// Below this a temperature means greedy: dividing by it would only overflow.
const MIN_TEMPERATURE: f32 = 1e-5;
/// How many candidates are sorted first in search of the `top_p` mass; four times as many next.
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
    /// Reused: each token's probability at the temperature.
    shares: Vec<f32>,
}

impl Sampler {
    /// A sampler that starts at `params.seed`, or at `fallback_seed` where there is none.
    #[must_use]
    pub fn new(params: SamplingParams, fallback_seed: u64) -> Self {
        let random = SplitMix(params.seed.unwrap_or(fallback_seed));
        Self { params, random, candidates: Vec::new(), shares: Vec::new() }
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
            let normaliser = log_sum_exp(logits);
            let logprob = |logit: f32| logit - normaliser;
            sampled.logprob = Some(logprob(logits[token as usize]));
            self.take_most_likely(logits, usize::from(wanted));
            sampled.top =
                self.candidates.iter().map(|&(logit, id)| (TokenId(id), logprob(logit))).collect();
        }
        Ok(sampled)
    }

    fn draw(&mut self, logits: &[f32], best: u32) -> u32 {
        let uniform = self.random.next_unit();
        let (scale, top) = (1.0 / self.params.temperature, logits[best as usize]);
        self.shares.clear();
        self.shares.extend(logits.iter().map(|logit| (logit - top) * scale));
        softmax(&mut self.shares);
        let cut = (0.0..1.0).contains(&self.params.top_p).then(|| f64::from(self.params.top_p));
        let k = match self.params.top_k as usize {
            0 => logits.len(),
            k => k.min(logits.len()),
        };
        if k == logits.len() && cut.is_none() {
            return pick(&self.shares, 0..logits.len() as u32, uniform).unwrap_or(best);
        }
        if k < logits.len() {
            self.take_most_likely(logits, k);
        } else {
            self.take_likely(logits, cut.unwrap_or(1.0));
        }
        if let Some(cut) = cut {
            self.cut_nucleus(cut, k < logits.len());
        }
        let ids = self.candidates.iter().map(|(_, id)| *id);
        pick(&self.shares, ids, uniform).unwrap_or(best)
    }

    /// Leaves in `candidates`, in any order, every token that can be among the most likely ones
    /// that hold `cut` of the mass.
    fn take_likely(&mut self, logits: &[f32], cut: f64) {
        // All tokens below this share hold less than `1 - cut` together. Half of it leaves room
        // for the rounding of shares.
        let least = ((1.0 - cut) / logits.len() as f64 * 0.5) as f32;
        self.candidates.clear();
        let all = logits.iter().zip(&self.shares).zip(0..);
        let likely = all.filter(|((_, share), _)| **share >= least);
        self.candidates.extend(likely.map(|((logit, _), id)| (*logit, id)));
    }

    /// Leaves the fewest most likely candidates that hold `cut` of the mass: of the candidates'
    /// own where `narrowed` (by `top_k`), else of the whole distribution's.
    fn cut_nucleus(&mut self, cut: f64, narrowed: bool) {
        let shares = &self.shares;
        let share = |id: u32| f64::from(shares[id as usize]);
        let total: f64 = if narrowed {
            self.candidates.iter().map(|(_, id)| share(*id)).sum()
        } else {
            shares.iter().map(|share| f64::from(*share)).sum()
        };
        let (mut sorted, mut mass) = (0, 0.0);
        let mut part = FIRST_NUCLEUS;
        while sorted < self.candidates.len() {
            // Only as much as is needed gets sorted.
            let rest = &mut self.candidates[sorted..];
            let part_len = part.min(rest.len());
            if part_len < rest.len() {
                rest.select_nth_unstable_by(part_len - 1, more_likely);
            }
            rest[..part_len].sort_unstable_by(more_likely);
            for (index, (_, id)) in rest[..part_len].iter().enumerate() {
                mass += share(*id);
                if mass >= cut * total {
                    return self.candidates.truncate(sorted + index + 1);
                }
            }
            sorted += part_len;
            part *= 4;
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
    if !all_finite(logits) {
        let (token, value) =
            (0u32..).zip(logits).find(|(_, x)| !x.is_finite()).expect("one was not finite");
        return Err(RunError::NonFinite { token, value: value.to_string() });
    }
    let best = argmax(logits).and_then(|best| u32::try_from(best).ok());
    best.ok_or_else(|| RunError::Backend("no logits to choose from".to_owned()))
}

/// Draws one of `ids` by share, in their order.
fn pick(shares: &[f32], ids: impl Iterator<Item = u32> + Clone, uniform: f64) -> Option<u32> {
    let share = |id: u32| f64::from(shares[id as usize]);
    let total: f64 = ids.clone().map(share).sum();
    let mut left = uniform * total;
    ids.into_iter().find(|id| {
        left -= share(*id);
        left < 0.0
    })
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
