//! Which tokens take part in a draw, and the draw itself: exact, without sorting the vocabulary.
//!
//! Logits of minus infinity are tokens that are not allowed: they are never selected.

use std::cmp::Ordering;

use kernels::softmax;

use super::SamplingParams;

/// How many candidates are sorted first in search of the `top_p` mass; four times as many next.
const FIRST_NUCLEUS: usize = 256;
/// Logits looked at together in search of the largest.
const STRIDE: usize = 64;
/// Least room of a search for the largest.
const LEAST_ROOM: usize = 64;

/// A token with its logit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    pub(super) logit: f32,
    pub(super) id: u32,
}

/// The more likely first; the lower id first among equals.
fn more_likely(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

/// Leaves the `k` most likely tokens of `row` in `kept`, most likely first, lowest id first among
/// equals. One pass over the row; what it keeps is at most `2 k + 64` tokens.
pub(super) fn take_most_likely(row: &[f32], k: usize, kept: &mut Vec<Candidate>) {
    kept.clear();
    if k == 0 {
        return;
    }
    let room = k.saturating_mul(2).max(LEAST_ROOM).min(row.len());
    kept.reserve(room);
    // Not above this, a token comes after `k` others.
    let mut floor = f32::NEG_INFINITY;
    for (stride, first) in row.chunks(STRIDE).zip((0u32..).step_by(STRIDE)) {
        // Without a branch per logit: in most strides there is nothing.
        if !stride.iter().fold(false, |any, &logit| any | (logit > floor)) {
            continue;
        }
        for (&logit, id) in stride.iter().zip(first..) {
            if logit > floor {
                kept.push(Candidate { logit, id });
                if kept.len() == room && k < room {
                    kept.select_nth_unstable_by(k - 1, more_likely);
                    kept.truncate(k);
                    floor = kept[k - 1].logit;
                }
            }
        }
    }
    if k < kept.len() {
        kept.select_nth_unstable_by(k - 1, more_likely);
        kept.truncate(k);
    }
    kept.sort_unstable_by(more_likely);
}

/// The memory of draws, kept from one to the next.
#[derive(Debug, Clone, Default)]
pub(super) struct Draw {
    candidates: Vec<Candidate>,
    /// Each token's share of the whole distribution.
    shares: Vec<f32>,
    /// Each candidate's weight.
    weights: Vec<f64>,
}

impl Draw {
    /// Draws a token of `row`, whose best one is `best`, with a number in `0.0..1.0`.
    pub(super) fn draw(
        &mut self,
        row: &[f32],
        best: u32,
        params: &SamplingParams,
        uniform: f64,
    ) -> u32 {
        let (scale, top) = (1.0 / params.temperature, row[best as usize]);
        let cut = (0.0..1.0).contains(&params.top_p).then(|| f64::from(params.top_p));
        let k = match params.top_k as usize {
            0 => row.len(),
            k => k.min(row.len()),
        };
        if k < row.len() {
            take_most_likely(row, k, &mut self.candidates);
            self.weigh(top, scale);
            if let Some(cut) = cut {
                self.cut_weighed(cut);
            }
        } else if let Some(cut) = cut {
            self.share_out(row, top, scale);
            self.take_likely(row, cut);
            self.cut_nucleus(cut);
            self.weigh(top, scale);
        } else if params.min_p > 0.0 {
            self.take_above(row, top + params.min_p.ln() * params.temperature);
            self.weigh(top, scale);
        } else {
            self.share_out(row, top, scale);
            let shares = self.shares.iter().map(|share| f64::from(*share));
            return pick(shares, uniform).and_then(|at| u32::try_from(at).ok()).unwrap_or(best);
        }
        self.drop_below(f64::from(params.min_p));
        let picked = pick(self.weights.iter().copied(), uniform);
        picked.and_then(|at| self.candidates.get(at)).map_or(best, |candidate| candidate.id)
    }

    /// Every token's share at the temperature.
    fn share_out(&mut self, row: &[f32], top: f32, scale: f32) {
        self.shares.clear();
        self.shares.extend(row.iter().map(|logit| (logit - top) * scale));
        softmax(&mut self.shares);
    }

    /// Weighs the candidates; the most likely token of all weighs 1.
    fn weigh(&mut self, top: f32, scale: f32) {
        let (top, scale) = (f64::from(top), f64::from(scale));
        let weight = |candidate: &Candidate| ((f64::from(candidate.logit) - top) * scale).exp();
        self.weights.clear();
        self.weights.extend(self.candidates.iter().map(weight));
    }

    /// Leaves the fewest of the sorted, weighed candidates that hold `cut` of their mass.
    fn cut_weighed(&mut self, cut: f64) {
        let enough = cut * self.weights.iter().sum::<f64>();
        let mut mass = 0.0;
        let reached = self.weights.iter().position(|weight| {
            mass += weight;
            mass >= enough
        });
        if let Some(last) = reached {
            self.weights.truncate(last + 1);
            self.candidates.truncate(last + 1);
        }
    }

    /// Leaves in `candidates`, in order of id, the tokens of at least this logit.
    fn take_above(&mut self, row: &[f32], least: f32) {
        self.candidates.clear();
        let likely = row.iter().zip(0..).filter(|(logit, _)| **logit >= least);
        self.candidates.extend(likely.map(|(&logit, id)| Candidate { logit, id }));
    }

    /// Leaves in `candidates`, in any order, every token that can be among the most likely ones
    /// that hold `cut` of the mass.
    fn take_likely(&mut self, row: &[f32], cut: f64) {
        // All tokens below this share hold less than `1 - cut` together. Half of it leaves room
        // for the rounding of shares.
        let least = ((1.0 - cut) / row.len() as f64 * 0.5) as f32;
        self.candidates.clear();
        let all = row.iter().zip(&self.shares).zip(0..);
        let likely =
            all.filter(|((logit, share), _)| **share >= least && **logit > f32::NEG_INFINITY);
        self.candidates.extend(likely.map(|((&logit, _), id)| Candidate { logit, id }));
    }

    /// Leaves the fewest most likely candidates that hold `cut` of the whole distribution's mass.
    fn cut_nucleus(&mut self, cut: f64) {
        let shares = &self.shares;
        let enough = cut * shares.iter().map(|share| f64::from(*share)).sum::<f64>();
        let (mut sorted, mut mass, mut part) = (0, 0.0, FIRST_NUCLEUS);
        while sorted < self.candidates.len() {
            // Only as much as is needed gets sorted.
            let rest = &mut self.candidates[sorted..];
            let part_len = part.min(rest.len());
            if part_len < rest.len() {
                rest.select_nth_unstable_by(part_len - 1, more_likely);
            }
            rest[..part_len].sort_unstable_by(more_likely);
            for (index, candidate) in rest[..part_len].iter().enumerate() {
                mass += f64::from(shares[candidate.id as usize]);
                if mass >= enough {
                    return self.candidates.truncate(sorted + index + 1);
                }
            }
            sorted += part_len;
            part *= 4;
        }
    }

    /// Leaves the weighed candidates of at least this weight. The best token weighs 1.
    fn drop_below(&mut self, least: f64) {
        if least <= 0.0 {
            return;
        }
        let mut kept = 0;
        for at in 0..self.candidates.len() {
            if self.weights[at] >= least {
                self.candidates.swap(kept, at);
                self.weights.swap(kept, at);
                kept += 1;
            }
        }
        self.candidates.truncate(kept);
        self.weights.truncate(kept);
    }
}

/// Draws an index by weight.
fn pick(weights: impl Iterator<Item = f64> + Clone, uniform: f64) -> Option<usize> {
    let total: f64 = weights.clone().sum();
    let mut left = uniform * total;
    weights.into_iter().position(|weight| {
        left -= weight;
        left < 0.0
    })
}
