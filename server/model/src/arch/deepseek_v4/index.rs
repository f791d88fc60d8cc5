//! The indexer: scores all finished entries for each query and picks the best.

use std::cell::RefCell;

use kernels::{Activations, Linear, ThreadPool, dot};
use memory_pool::Compute;

use super::compress::{Compressor, Rows};
use super::pools::{Block, HISTORY};
use super::rope::Angles;
use crate::arch::share::Peers;
use crate::arch::trace::Trace;
use crate::config::Indexer as Shape;
use crate::runner::{Batch, RunError};

/// Scores that one thread computes at a turn.
const TURN: usize = 64;
/// Scores that are kept at once: rows are taken in groups that need no more.
const SCORES: usize = 1 << 18;

pub(super) struct Indexer {
    pub(super) shape: Shape,
    pub(super) query: Box<dyn Linear>,
    /// The weight of each head.
    pub(super) weights: Box<dyn Linear>,
    pub(super) compressor: Compressor,
}

#[derive(Default)]
pub(super) struct Scratch {
    pub(super) rows: Rows,
    query: Vec<f32>,
    weights: Vec<f32>,
    scores: Vec<f32>,
    /// `top` entries per row, ascending; of rows that see no more than `top` unspecified.
    pub(super) chosen: Vec<u32>,
}

/// What is scored.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) batch: &'a Batch,
    pub(super) positions: &'a [u32],
    /// The slice of each row.
    pub(super) slices: &'a [u32],
    pub(super) page_tokens: usize,
    pub(super) threads: &'a ThreadPool,
}

thread_local! {
    static ORDER: RefCell<Vec<u32>> = RefCell::default();
}

impl Indexer {
    /// Computes queries and weights of all rows.
    pub(super) fn project(
        &self,
        (x, query): (&Activations, &Activations),
        angles: &Angles,
        scratch: &mut Scratch,
        threads: &ThreadPool,
    ) {
        let Scratch { query: out, weights, .. } = scratch;
        out.resize(x.rows() * self.query.out_features(), 0.0);
        self.query.forward(query, out, threads);
        angles.rotate(out, self.shape.head_dim, false, threads);
        weights.resize(x.rows() * self.shape.heads, 0.0);
        self.weights.forward(x, weights, threads);
        let scale = 1.0 / ((self.shape.heads * self.shape.head_dim) as f32).sqrt();
        for weight in weights {
            *weight *= scale;
        }
    }

    /// Chooses for all rows, whose entries are written. Each rank scores a part of the entries, and
    /// all of them pick from the same scores.
    ///
    /// # Errors
    /// Another rank gave up.
    pub(super) fn choose(
        &self,
        step: Step<'_>,
        keys: Block,
        memory: &Compute,
        scratch: &mut Scratch,
        peers: &mut Peers<'_>,
    ) -> Result<(), RunError> {
        let top = self.shape.top;
        let ratio = self.compressor.ratio;
        let visible = |row: usize| (step.positions[row] as usize + 1) / ratio;
        let Scratch { query, weights, scores, chosen, .. } = scratch;
        let rows = step.positions.len();
        chosen.resize(rows * top, 0);
        let mut row = 0;
        while row < rows {
            if visible(row) <= top {
                row += 1;
                continue;
            }
            let (mut end, mut stride) = (row, 0usize);
            while end < rows && visible(end) > top {
                let wider = stride.max(visible(end).next_multiple_of(TURN));
                if end > row && (end + 1 - row) * wider > SCORES {
                    break;
                }
                (end, stride) = (end + 1, wider);
            }
            scores.resize((end - row) * stride, 0.0);
            let (turns, part) = ((end - row) * stride / TURN, peers.part(TURN));
            peers.join(turns, [TURN], [scores.as_mut_slice()], |[out]| {
                step.threads.for_each_row(out, part.len(), 1, |turn, out| {
                    let at = row + turn * TURN / stride;
                    let first = turn * TURN % stride + part.start;
                    let seen = visible(at).saturating_sub(first).min(part.len());
                    let out = &mut out[..seen];
                    self.score(step, (at, first), (query, weights), (keys, memory), out);
                });
            })?;
            let chosen = &mut chosen[row * top..end * top];
            step.threads.for_each_row(chosen, top, 1, |index, chosen| {
                pick(&scores[index * stride..][..visible(row + index)], chosen);
            });
            row = end;
        }
        Ok(())
    }

    /// The scores of the entries from `first` on for one row.
    fn score(
        &self,
        step: Step<'_>,
        (row, first): (usize, usize),
        (query, weights): (&[f32], &[f32]),
        (keys, memory): (Block, &Compute),
        out: &mut [f32],
    ) {
        let Shape { heads, head_dim, .. } = self.shape;
        let ratio = self.compressor.ratio;
        let pages = step.batch.pages(step.slices[row] as usize, HISTORY);
        let query = &query[row * heads * head_dim..(row + 1) * heads * head_dim];
        let weights = &weights[row * heads..(row + 1) * heads];
        for (entry, out) in (first..).zip(out) {
            let page = pages.page_of(entry * ratio, step.page_tokens);
            let slot = entry * ratio % step.page_tokens / ratio;
            let block = memory.block::<f32>(keys.part, page, keys.layer);
            let key = &block[slot * head_dim..(slot + 1) * head_dim];
            let mut sum = 0.0;
            for (query, weight) in query.chunks_exact(head_dim).zip(weights) {
                sum += weight * dot(query, key).max(0.0);
            }
            *out = sum;
        }
    }

    pub(super) fn list_linears<'a>(&'a self, all: &mut Vec<&'a dyn Linear>) {
        all.extend([&*self.query, &*self.weights]);
        self.compressor.list_linears(all);
    }
}

/// The numbers of the largest scores, of equal ones the first, in ascending order.
fn pick(scores: &[f32], chosen: &mut [u32]) {
    let top = chosen.len();
    ORDER.with_borrow_mut(|order| {
        order.clear();
        order.extend(0..scores.len() as u32);
        let score = |entry: &u32| scores[*entry as usize];
        order.select_nth_unstable_by(top - 1, |a, b| score(b).total_cmp(&score(a)).then(a.cmp(b)));
        chosen.copy_from_slice(&order[..top]);
    });
    chosen.sort_unstable();
}

/// What a traceer sees of the choice: `top` numbers per row, filled up with -1.
pub(super) fn shown<T: Trace>(
    layer: usize,
    positions: &[u32],
    (top, ratio): (usize, usize),
    chosen: &[u32],
    trace: &mut T,
) {
    let mut seen = Vec::with_capacity(chosen.len());
    for (row, position) in positions.iter().enumerate() {
        let visible = (*position as usize + 1) / ratio;
        let entry = |i: usize| match (visible <= top, i < visible) {
            (true, false) => -1.0,
            (true, true) => i as f32,
            (false, _) => chosen[row * top + i] as f32,
        };
        seen.extend((0..top).map(entry));
    }
    trace.see(Some(layer), "indexer.topk", &seen);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_are_picked_and_the_first_of_equals() {
        let mut chosen = [0; 3];
        pick(&[1.0, 3.0, 2.0, 3.0, 2.0, 0.5], &mut chosen);
        assert_eq!(chosen, [1, 2, 3]);
        pick(&[0.0, -0.0, -1.0, 0.0], &mut chosen);
        assert_eq!(chosen, [0, 1, 3]);
    }
}
