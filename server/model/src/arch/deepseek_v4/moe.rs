//! Experts: a router chooses some for each token, or a table of token ids does; one serves all.

use kernels::{Activations, Linear, ThreadPool, add, add_scaled, forward_all, silu_mul_clamped};
use types::TokenId;

use super::Watch;
use crate::config::{DeepseekV4, ModelConfig};

/// Rows that one thread should at least take.
const ROWS: usize = 4;

pub(super) struct Moe {
    pub(super) router: Box<dyn Linear>,
    pub(super) choice: Choice,
    pub(super) experts: Vec<Expert>,
    pub(super) shared: Expert,
}

/// How experts are chosen.
pub(super) enum Choice {
    /// The best by score and this bias, which counts only here.
    Score(Vec<f32>),
    /// By token id: `experts_per_token` numbers per row.
    Table(Vec<u32>),
}

pub(super) struct Expert {
    pub(super) gate: Box<dyn Linear>,
    pub(super) up: Box<dyn Linear>,
    pub(super) down: Box<dyn Linear>,
}

#[derive(Default)]
pub(super) struct Scratch {
    /// The routers' results.
    scores: Vec<f32>,
    /// `experts_per_token` per row, by ascending number, and the weight of each.
    chosen: Vec<u32>,
    weights: Vec<f32>,
    order: Vec<u32>,
    /// Rows of one expert, and the weight of each.
    members: Vec<(usize, f32)>,
    input: Activations,
    output: Vec<f32>,
    inner: Inner,
}

/// Inside an expert.
#[derive(Default)]
struct Inner {
    gate: Vec<f32>,
    up: Vec<f32>,
    activated: Activations,
}

impl Moe {
    /// Leaves in `delta` what the experts of each row add: those that were chosen, by ascending
    /// number, then the one of all.
    pub(super) fn forward<W: Watch>(
        &self,
        (config, v4): (&ModelConfig, &DeepseekV4),
        tokens: &[TokenId],
        x: &Activations,
        scratch: &mut Scratch,
        (delta, layer, watch): (&mut Vec<f32>, usize, &mut W),
        threads: &ThreadPool,
    ) {
        let (rows, hidden) = (x.rows(), config.hidden);
        scratch.scores.resize(rows * v4.experts, 0.0);
        self.router.forward(x, &mut scratch.scores, threads);
        watch.see(Some(layer), "router.logits", &scratch.scores);
        self.choose(v4, tokens, scratch);
        if W::ON {
            let experts: Vec<f32> = scratch.chosen.iter().map(|e| *e as f32).collect();
            watch.see(Some(layer), "router.experts", &experts);
            watch.see(Some(layer), "router.weights", &scratch.weights);
        }
        let Scratch { chosen, weights, members, input, output, inner, .. } = scratch;
        delta.clear();
        delta.resize(rows * hidden, 0.0);
        for (number, expert) in self.experts.iter().enumerate() {
            members.clear();
            let uses = chosen.iter().zip(weights.iter()).enumerate();
            let uses = uses.filter(|(_, (chosen, _))| **chosen as usize == number);
            members.extend(uses.map(|(at, (_, weight))| (at / v4.experts_per_token, *weight)));
            if members.is_empty() {
                continue;
            }
            let rows = input.resize(members.len(), hidden);
            for (to, (row, _)) in rows.chunks_exact_mut(hidden).zip(members.iter()) {
                to.copy_from_slice(x.row(*row));
            }
            expert.forward(input, v4.swiglu_limit, inner, output, threads);
            for (from, (row, weight)) in output.chunks_exact(hidden).zip(members.iter()) {
                add_scaled(&mut delta[row * hidden..(row + 1) * hidden], *weight, from);
            }
        }
        self.shared.forward(x, v4.swiglu_limit, inner, output, threads);
        add(delta, output, threads);
    }

    /// Fills `chosen` and `weights`.
    fn choose(&self, v4: &DeepseekV4, tokens: &[TokenId], scratch: &mut Scratch) {
        let Scratch { scores, chosen, weights, order, .. } = scratch;
        let count = v4.experts_per_token;
        chosen.clear();
        weights.clear();
        for (token, scores) in tokens.iter().zip(scores.chunks_exact_mut(v4.experts)) {
            for score in scores.iter_mut() {
                *score = softplus(*score).sqrt() as f32;
            }
            let first = chosen.len();
            match &self.choice {
                Choice::Table(table) => {
                    chosen.extend_from_slice(&table[token.index() * count..][..count]);
                }
                Choice::Score(bias) => {
                    order.clear();
                    order.extend(0..v4.experts as u32);
                    let rank = |expert: &u32| scores[*expert as usize] + bias[*expert as usize];
                    order.select_nth_unstable_by(count - 1, |a, b| {
                        rank(b).total_cmp(&rank(a)).then(a.cmp(b))
                    });
                    chosen.extend_from_slice(&order[..count]);
                }
            }
            let chosen = &mut chosen[first..];
            chosen.sort_unstable();
            let score = |expert: &u32| scores[*expert as usize];
            let sum = chosen.iter().map(score).sum::<f32>() + 1e-20;
            weights.extend(chosen.iter().map(|expert| v4.routed_scale * (score(expert) / sum)));
        }
    }

    pub(super) fn list_linears<'a>(&'a self, all: &mut Vec<&'a dyn Linear>) {
        all.push(&*self.router);
        for expert in self.experts.iter().chain([&self.shared]) {
            all.extend([&*expert.gate, &*expert.up, &*expert.down]);
        }
    }
}

impl Expert {
    fn forward(
        &self,
        x: &Activations,
        limit: f32,
        inner: &mut Inner,
        output: &mut Vec<f32>,
        threads: &ThreadPool,
    ) {
        let (rows, width) = (x.rows(), self.gate.out_features());
        let Inner { gate, up, activated } = inner;
        gate.resize(rows * width, 0.0);
        up.resize(rows * width, 0.0);
        forward_all([&*self.gate, &*self.up], x, [&mut **gate, &mut **up], threads);
        let out = activated.resize(rows, width);
        threads.for_each_row(out, width, ROWS, |row, out| {
            let at = row * width..(row + 1) * width;
            silu_mul_clamped(&gate[at.clone()], &up[at], limit, out);
        });
        output.resize(rows * self.down.out_features(), 0.0);
        self.down.forward(activated, output, threads);
    }
}

/// `ln(1 + e^x)`.
fn softplus(x: f32) -> f64 {
    let x = f64::from(x);
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}
