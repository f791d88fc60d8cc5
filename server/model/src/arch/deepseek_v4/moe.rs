//! Experts: a router chooses some for each token, or a table of token ids does; one serves all.

use std::ops::Range;

use kernels::{Activations, Linear, ThreadPool, add_scaled, forward_all, silu_mul_clamped};
use types::TokenId;

use crate::arch::share::{Left, Peers, part};
use crate::arch::trace::Trace;
use crate::config::{DeepseekV4, ModelConfig};
use crate::runner::RunError;

/// Rows that one thread should at least take.
const ROWS: usize = 4;

pub(super) struct Moe {
    /// The rank's rows.
    pub(super) router: Box<dyn Linear>,
    pub(super) choice: Choice,
    /// Those of the rank.
    pub(super) experts: Vec<Expert>,
    /// The rank's rows of each matrix.
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
    /// The router's results.
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
    activated: Activations,
    /// Inside the expert of all.
    shared: Activations,
}

/// Inside an expert.
#[derive(Default)]
struct Inner {
    gate: Vec<f32>,
    up: Vec<f32>,
}

/// What is the same for all layers.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) config: &'a ModelConfig,
    pub(super) v4: &'a DeepseekV4,
    pub(super) tokens: &'a [TokenId],
    pub(super) threads: &'a ThreadPool,
}

impl Moe {
    /// Leaves in `delta` what the experts of each row add: those that were chosen, by ascending
    /// number, then the one of all.
    ///
    /// # Errors
    /// Another rank gave up.
    pub(super) fn forward<T: Trace>(
        &self,
        step: Step<'_>,
        x: &Activations,
        scratch: &mut Scratch,
        (delta, peers): (&mut Vec<f32>, &mut Peers<'_>),
        (layer, trace): (usize, &mut T),
    ) -> Result<(), RunError> {
        let Step { config, v4, tokens, threads } = step;
        let (rows, width, limit) = (x.rows(), config.intermediate, v4.swiglu_limit);
        let Scratch { scores, inner, shared, .. } = &mut *scratch;
        scores.resize(rows * v4.experts, 0.0);
        let whole = [&mut **scores, shared.resize(rows, width)];
        peers.join(rows, [v4.experts, width], whole, |[scores, activated]| {
            self.router.forward(x, scores, threads);
            self.shared.activate(x, limit, inner, activated, threads);
        })?;
        trace.see(Some(layer), "router.logits", scores);
        self.choose(v4, tokens, scratch);
        if T::ON {
            let experts: Vec<f32> = scratch.chosen.iter().map(|e| *e as f32).collect();
            trace.see(Some(layer), "router.experts", &experts);
            trace.see(Some(layer), "router.weights", &scratch.weights);
        }
        delta.clear();
        delta.resize(rows * config.hidden, 0.0);
        let own = peers.part(v4.experts);
        if peers.is_alone() {
            self.run(step, own, x, scratch, |members, output| add_to(delta, members, output));
            scratch.output.resize(delta.len(), 0.0);
            self.shared.down.forward(&scratch.shared, &mut scratch.output, threads);
            kernels::add(delta, &scratch.output, threads);
            return Ok(());
        }
        let all = peers.leave(|left| {
            left.clear();
            self.run(step, own, x, scratch, |_, output| left.extend_from_slice(output));
            let at = left.len();
            left.resize(at + rows * self.shared.down.out_features(), 0.0);
            self.shared.down.forward(&scratch.shared, &mut left[at..], threads);
        })?;
        scratch.add_up(v4, peers.ranks(), &all, delta);
        Ok(())
    }

    /// Runs the rank's experts, by ascending number, each on the rows that chose it: `take` gets
    /// those and what it makes of them.
    fn run(
        &self,
        step: Step<'_>,
        own: Range<usize>,
        x: &Activations,
        scratch: &mut Scratch,
        mut take: impl FnMut(&[(usize, f32)], &[f32]),
    ) {
        let Step { config, v4, threads, .. } = step;
        let hidden = config.hidden;
        for (number, expert) in own.zip(&self.experts) {
            scratch.find_members(v4, number);
            let Scratch { members, input, output, inner, activated, .. } = &mut *scratch;
            if members.is_empty() {
                continue;
            }
            let rows = input.resize(members.len(), hidden);
            for (to, (row, _)) in rows.chunks_exact_mut(hidden).zip(members.iter()) {
                to.copy_from_slice(x.row(*row));
            }
            let out = activated.resize(members.len(), config.intermediate);
            expert.activate(input, v4.swiglu_limit, inner, out, threads);
            output.resize(members.len() * hidden, 0.0);
            expert.down.forward(activated, output, threads);
            take(members, output);
        }
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

impl Scratch {
    /// Finds the rows that chose expert `number`.
    fn find_members(&mut self, v4: &DeepseekV4, number: usize) {
        let Self { chosen, weights, members, .. } = self;
        members.clear();
        let uses = chosen.iter().zip(weights.iter()).enumerate();
        let uses = uses.filter(|(_, (chosen, _))| **chosen as usize == number);
        members.extend(uses.map(|(at, (_, weight))| (at / v4.experts_per_token, *weight)));
    }

    /// Adds to `delta` what the experts of all ranks have left, in the order in which a single rank
    /// adds: that of the experts, then the one of all.
    fn add_up(&mut self, v4: &DeepseekV4, ranks: usize, all: &Left<'_>, delta: &mut [f32]) {
        let rows = self.shared.rows();
        let hidden = delta.len() / rows;
        for rank in 0..ranks {
            let left = all.of(rank);
            let mut rest = left.as_slice();
            for number in part(v4.experts, rank, ranks) {
                self.find_members(v4, number);
                let (output, others) = rest.split_at(self.members.len() * hidden);
                add_to(delta, &self.members, output);
                rest = others;
            }
        }
        for rank in 0..ranks {
            let (left, own) = (all.of(rank), part(hidden, rank, ranks));
            let shared = &left[left.len() - rows * own.len()..];
            for (to, from) in delta.chunks_exact_mut(hidden).zip(shared.chunks_exact(own.len())) {
                to[own.clone()].iter_mut().zip(from).for_each(|(to, from)| *to += from);
            }
        }
    }
}

/// Adds an expert's rows to those of its members, by their weights.
fn add_to(delta: &mut [f32], members: &[(usize, f32)], output: &[f32]) {
    let hidden = output.len() / members.len().max(1);
    for (from, (row, weight)) in output.chunks_exact(hidden.max(1)).zip(members) {
        add_scaled(&mut delta[row * hidden..(row + 1) * hidden], *weight, from);
    }
}

impl Expert {
    /// What comes before the last matrix.
    fn activate(
        &self,
        x: &Activations,
        limit: f32,
        inner: &mut Inner,
        out: &mut [f32],
        threads: &ThreadPool,
    ) {
        let (rows, width) = (x.rows(), self.gate.out_features());
        let Inner { gate, up } = inner;
        gate.resize(rows * width, 0.0);
        up.resize(rows * width, 0.0);
        forward_all([&*self.gate, &*self.up], x, [&mut **gate, &mut **up], threads);
        threads.for_each_row(out, width, ROWS, |row, out| {
            let at = row * width..(row + 1) * width;
            silu_mul_clamped(&gate[at.clone()], &up[at], limit, out);
        });
    }
}

/// `ln(1 + e^x)`.
fn softplus(x: f32) -> f64 {
    let x = f64::from(x);
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}
