//! Attention of a few query rows over one segment of positions, and the merge of two segments.

use std::ops::Range;

use super::PoolRows;
use crate::{KernelPath, math};

/// Positions of a segment; part of the definition of the result.
pub(crate) const SEGMENT: usize = 256;

/// The work: `seen.len()` queries over the segment's first positions.
pub(crate) struct Segment<'a> {
    /// Values of a head.
    pub(crate) dim: usize,
    /// Scaled queries, `dim` values each.
    pub(crate) q: &'a [f32],
    /// Which positions each query sees; starts and ends ascend, up to the number of keys.
    pub(crate) seen: &'a [Seen],
    /// Where keys and values lie.
    pub(crate) pool: PoolRows<'a>,
    /// Where the key of each position starts in `pool`; `dim` values each. Those of positions that
    /// no query sees may be any key's.
    pub(crate) keys: &'a [usize],
    /// From a key to the value of the same position, wrapping.
    pub(crate) to_value: usize,
}

/// The positions of a segment that a query sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Seen {
    pub(crate) const fn is_empty(self) -> bool {
        self.start >= self.end
    }

    pub(crate) const fn range(self) -> Range<usize> {
        self.start..self.end
    }
}

impl<'a> Segment<'a> {
    /// The key of a position.
    pub(crate) fn key(&self, position: usize) -> &'a [f32] {
        self.pool.row(self.keys[position], self.dim)
    }

    /// The value of a position.
    pub(crate) fn value(&self, position: usize) -> &'a [f32] {
        self.pool.row(self.keys[position].wrapping_add(self.to_value), self.dim)
    }

    /// Whether every key and value lies inside the pool.
    fn is_inside(&self) -> bool {
        let Some(last) = self.pool.len().checked_sub(self.dim) else {
            return self.keys.is_empty();
        };
        self.keys.iter().all(|at| (*at <= last) & (at.wrapping_add(self.to_value) <= last))
    }
}

/// The outcome for each query, not yet divided by the sum.
#[derive(Default)]
pub(crate) struct Partial {
    /// The largest score.
    pub(crate) max: Vec<f32>,
    /// The sum of e^(score - max).
    pub(crate) sum: Vec<f32>,
    /// The sum of values weighted with e^(score - max), `dim` values per query.
    pub(crate) out: Vec<f32>,
}

impl Partial {
    /// Makes room for `queries` outcomes. Their contents are unspecified.
    pub(crate) fn resize(&mut self, queries: usize, dim: usize) {
        self.max.resize(queries, 0.0);
        self.sum.resize(queries, 0.0);
        self.out.resize(queries * dim, 0.0);
    }
}

/// The path that computes heads of `dim` values, when `path` is asked for and resolved.
pub(crate) fn chosen(path: KernelPath, dim: usize) -> KernelPath {
    match path {
        KernelPath::Avx2 if dim.is_multiple_of(8) => KernelPath::Avx2,
        KernelPath::Avx2 | KernelPath::Detect | KernelPath::Reference => KernelPath::Reference,
    }
}

/// Computes a segment. Queries that see nothing get unspecified outcomes.
///
/// `path` must be resolved; `scores` is scratch of at least [`SEGMENT`] values per query.
pub(crate) fn attend(path: KernelPath, s: &Segment<'_>, scores: &mut [f32], part: &mut Partial) {
    let queries = s.seen.len();
    assert_eq!(s.q.len(), queries * s.dim, "queries must be whole");
    assert!(s.keys.len() <= SEGMENT && s.is_inside(), "keys and values must lie in the pool");
    let ordered = s.seen.is_sorted_by(|a, b| a.start <= b.start && a.end <= b.end);
    let inside = |seen: &Seen| seen.start <= seen.end && seen.end <= s.keys.len();
    assert!(ordered && s.seen.iter().all(inside), "positions that queries see");
    assert!(scores.len() >= queries * SEGMENT, "scratch is too small");
    assert!(part.max.len() == queries && part.out.len() == s.q.len(), "room for each query");
    match chosen(path, s.dim) {
        #[cfg(target_arch = "x86_64")]
        KernelPath::Avx2 => {
            // SAFETY: a resolved path names what the processor has; the shapes were checked.
            unsafe { crate::avx2::attend(s, scores, part) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        KernelPath::Avx2 => portable(s, scores, part),
        KernelPath::Detect | KernelPath::Reference => {
            portable(s, scores, part);
        }
    }
}

/// The plain version.
fn portable(s: &Segment<'_>, scores: &mut [f32], part: &mut Partial) {
    let outs = part.out.chunks_exact_mut(s.dim);
    let queries = s.q.chunks_exact(s.dim).zip(s.seen).zip(scores.chunks_exact_mut(SEGMENT));
    for (i, (((q, seen), scores), out)) in queries.zip(outs).enumerate() {
        let scores = &mut scores[seen.range()];
        for (position, score) in seen.range().zip(scores.iter_mut()) {
            *score = math::dot(q, s.key(position));
        }
        let (max, _) = math::max_value(scores);
        part.max[i] = max;
        part.sum[i] = math::exp_shifted(scores, max) as f32;
        out.fill(0.0);
        for (position, weight) in seen.range().zip(scores.iter()) {
            math::add_scaled(out, *weight, s.value(position));
        }
    }
}

/// Merges the outcome of the next segment into that of all before it.
///
/// `to` is (max, sum, out) of one query, `from` that of the next segment.
pub(crate) fn merge(to: (&mut f32, &mut f32, &mut [f32]), from: (f32, f32, &[f32])) {
    let max = if from.0 > *to.0 { from.0 } else { *to.0 };
    let (old, new) = (math::exp(*to.0 - max), math::exp(from.0 - max));
    *to.0 = max;
    *to.1 = *to.1 * old + from.1 * new;
    math::blend(to.2, old, from.2, new);
}
