//! Attention of a few queries over one segment of positions.
//!
//! A score is a sum over the head in eight lanes that are added in one fixed order; a query's
//! output is one chain of multiply-adds over the positions. Neither depends on which queries share
//! a tile.

use std::arch::x86_64::*;
use std::ops::Range;

use crate::attention::segment::{Partial, SEGMENT, Seen, Segment};
use crate::math;

/// Keys that are multiplied at a time.
const KEYS: usize = 4;
/// Queries of the largest tile; with four keys or four vectors of a value, that fills the
/// registers.
const QUERIES: usize = 3;
/// Positions whose values stay in the first-level cache while all queries use them.
const VALUES: usize = 64;

/// Computes a segment.
///
/// # Safety
/// AVX2 and FMA; `s.dim` is a multiple of 8; the shapes agree, as `segment::attend` checks.
#[target_feature(enable = "avx2,fma")]
pub(crate) unsafe fn attend(s: &Segment<'_>, scores: &mut [f32], part: &mut Partial) {
    // SAFETY: the caller's promise.
    unsafe { score_all(s, scores) };
    let rows = scores.chunks_exact_mut(SEGMENT).zip(s.seen);
    for (i, (scores, seen)) in rows.enumerate() {
        (part.max[i], part.sum[i]) = exponentials(scores, *seen);
    }
    part.out.fill(0.0);
    // SAFETY: the caller's promise.
    unsafe { weigh_all(s, scores, &mut part.out) };
}

/// Scores of every query against the keys that it sees; some around those are written as well.
///
/// # Safety
/// As [`attend`].
#[target_feature(enable = "avx2,fma")]
unsafe fn score_all(s: &Segment<'_>, scores: &mut [f32]) {
    let Some(least) = s.seen.first() else { return };
    for first in (least.start / KEYS * KEYS..s.keys.len()).step_by(KEYS) {
        // Beyond the last key it is repeated; those scores are not used.
        let mut keys = [s.pool.as_ptr(); KEYS];
        for (i, key) in keys.iter_mut().enumerate() {
            *key = s.key((first + i).min(s.keys.len() - 1)).as_ptr();
        }
        // What queries see ascends: some end before these keys, some begin after them.
        let mut query = s.seen.partition_point(|seen| seen.end <= first);
        let queries = s.seen.partition_point(|seen| seen.start < first + KEYS);
        while query < queries {
            let rows = tile(queries - query);
            let at = query * SEGMENT + first;
            // SAFETY: `rows` queries follow; a score row has room for whole groups of keys,
            // because its length is a multiple of their number.
            unsafe {
                let q = s.q.as_ptr().add(query * s.dim);
                let to = scores[at..(query + rows - 1) * SEGMENT + first + KEYS].as_mut_ptr();
                match rows {
                    1 => score::<1>(q, keys, s.dim, to),
                    2 => score::<2>(q, keys, s.dim, to),
                    _ => score::<QUERIES>(q, keys, s.dim, to),
                }
            }
            query += rows;
        }
    }
}

/// How many of `left` queries the next tile takes; never leaves a single one for last.
fn tile(left: usize) -> usize {
    if left == QUERIES + 1 { 2 } else { left.min(QUERIES) }
}

/// Scores of `R` queries, `dim` values apart, against four keys, stored `SEGMENT` values apart.
///
/// # Safety
/// AVX2 and FMA; the queries and keys have `dim` values, a multiple of 8; room for the scores.
#[target_feature(enable = "avx2,fma")]
unsafe fn score<const R: usize>(q: *const f32, keys: [*const f32; KEYS], dim: usize, to: *mut f32) {
    let mut acc = [[_mm256_setzero_ps(); KEYS]; R];
    for at in (0..dim).step_by(8) {
        let mut query = [_mm256_setzero_ps(); R];
        for (r, query) in query.iter_mut().enumerate() {
            // SAFETY: the query has these eight values.
            *query = unsafe { _mm256_loadu_ps(q.add(r * dim + at)) };
        }
        for (k, key) in keys.iter().enumerate() {
            // SAFETY: the key has these eight values.
            let key = unsafe { _mm256_loadu_ps(key.add(at)) };
            for (acc, query) in acc.iter_mut().zip(&query) {
                acc[k] = _mm256_fmadd_ps(*query, key, acc[k]);
            }
        }
    }
    for (r, [a, b, c, d]) in acc.into_iter().enumerate() {
        let pairs = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
        let (low, high) = (_mm256_castps256_ps128(pairs), _mm256_extractf128_ps::<1>(pairs));
        // SAFETY: the caller promises room for four scores.
        unsafe { _mm_storeu_ps(to.add(r * SEGMENT), _mm_add_ps(low, high)) };
    }
}

/// Turns the scores of what is `seen` into e^(score - max); returns the maximum and the sum.
///
/// A position keeps its lane wherever the window begins, and positions outside add nothing.
#[target_feature(enable = "avx2,fma")]
fn exponentials(scores: &mut [f32], seen: Seen) -> (f32, f32) {
    let whole = seen.start / 8 * 8..seen.end.next_multiple_of(8).min(scores.len());
    scores[whole.start..seen.start].fill(f32::NEG_INFINITY);
    scores[seen.end..whole.end].fill(f32::NEG_INFINITY);
    let mut lanes = [f32::NEG_INFINITY; 8];
    for chunk in scores[whole.clone()].as_chunks::<8>().0 {
        for (lane, v) in lanes.iter_mut().zip(chunk) {
            *lane = if *v > *lane { *v } else { *lane };
        }
    }
    let max = lanes.iter().fold(f32::NEG_INFINITY, |a, b| if *b > a { *b } else { a });
    let mut sums = [0.0f32; 8];
    for chunk in scores[whole].as_chunks_mut::<8>().0 {
        for (sum, v) in sums.iter_mut().zip(chunk) {
            *v = math::exp(*v - max);
            *sum += *v;
        }
    }
    (max, math::sum_lanes(sums))
}

/// Adds the values, weighted with the scores, to the outputs of all queries.
///
/// # Safety
/// As [`attend`].
#[target_feature(enable = "avx2,fma")]
unsafe fn weigh_all(s: &Segment<'_>, scores: &[f32], out: &mut [f32]) {
    let Some(least) = s.seen.first() else { return };
    for first in (least.start / VALUES * VALUES..s.keys.len()).step_by(VALUES) {
        let last = s.keys.len().min(first + VALUES);
        let mut query = s.seen.partition_point(|seen| seen.end <= first);
        let queries = s.seen.partition_point(|seen| seen.start < last);
        while query < queries {
            let rows = tile(queries - query);
            // SAFETY: the caller's promise; `rows` queries follow.
            unsafe { weigh_tile(s, scores, query..query + rows, first..last, out) };
            query += rows;
        }
    }
}

/// Adds the weighted values of `block` to the outputs of up to `QUERIES` queries, each of which
/// sees some of it.
///
/// # Safety
/// As [`attend`]; the positions and the queries exist.
#[target_feature(enable = "avx2,fma")]
unsafe fn weigh_tile(
    s: &Segment<'_>,
    scores: &[f32],
    queries: Range<usize>,
    block: Range<usize>,
    out: &mut [f32],
) {
    // All see the positions from where the last one begins to where the first one ends. Before and
    // after those each goes on alone, so that the order of its sum stays the same.
    let own = |query: usize| {
        let seen = s.seen[query];
        seen.start.max(block.start)..seen.end.min(block.end)
    };
    let shared = own(queries.end - 1).start..own(queries.start).end;
    let shared = shared.start..shared.end.max(shared.start);
    for query in queries.clone() {
        let before = own(query).start..own(query).end.min(shared.start);
        if !before.is_empty() {
            // SAFETY: the caller's promise.
            unsafe { weigh::<1>(s, scores, query, before, out) };
        }
    }
    if !shared.is_empty() {
        // SAFETY: the caller's promise.
        unsafe {
            match queries.len() {
                1 => weigh::<1>(s, scores, queries.start, shared.clone(), out),
                2 => weigh::<2>(s, scores, queries.start, shared.clone(), out),
                _ => weigh::<QUERIES>(s, scores, queries.start, shared.clone(), out),
            }
        }
    }
    for query in queries {
        let after = own(query).start.max(shared.end)..own(query).end;
        if !after.is_empty() {
            // SAFETY: the caller's promise.
            unsafe { weigh::<1>(s, scores, query, after, out) };
        }
    }
}

/// Adds the weighted values of `positions` to the outputs of `R` queries.
///
/// # Safety
/// As [`attend`]; the positions and the queries exist.
#[target_feature(enable = "avx2,fma")]
unsafe fn weigh<const R: usize>(
    s: &Segment<'_>,
    scores: &[f32],
    query: usize,
    positions: Range<usize>,
    out: &mut [f32],
) {
    let weights = &scores[query * SEGMENT..(query + R) * SEGMENT];
    let out = &mut out[query * s.dim..(query + R) * s.dim];
    let mut at = 0;
    while at + 32 <= s.dim {
        // SAFETY: four vectors of the head remain.
        unsafe { weigh_part::<R, 4>(s, positions.clone(), weights, at, out) };
        at += 32;
    }
    while at + 8 <= s.dim {
        // SAFETY: one vector of the head remains.
        unsafe { weigh_part::<R, 1>(s, positions.clone(), weights, at, out) };
        at += 8;
    }
}

/// `V` vectors, from value `at` of the head on, of [`weigh`].
///
/// # Safety
/// As [`attend`]; the positions exist; heads have `at + 8 V` values; `weights` has `R` rows of
/// `SEGMENT`.
#[target_feature(enable = "avx2,fma")]
unsafe fn weigh_part<const R: usize, const V: usize>(
    s: &Segment<'_>,
    positions: Range<usize>,
    weights: &[f32],
    at: usize,
    out: &mut [f32],
) {
    let dim = out.len() / R;
    let mut acc = [[_mm256_setzero_ps(); V]; R];
    for (r, acc) in acc.iter_mut().enumerate() {
        for (v, acc) in acc.iter_mut().enumerate() {
            // SAFETY: the output has these eight values.
            *acc = unsafe { _mm256_loadu_ps(out.as_ptr().add(r * dim + at + 8 * v)) };
        }
    }
    let values = s.pool.as_ptr().wrapping_add(s.to_value);
    let keys = &s.keys[positions.clone()];
    for (position, key) in positions.zip(keys) {
        let mut weight = [_mm256_setzero_ps(); R];
        for (r, weight) in weight.iter_mut().enumerate() {
            // SAFETY: a row of weights has all positions of the segment.
            *weight = _mm256_set1_ps(unsafe { *weights.get_unchecked(r * SEGMENT + position) });
        }
        for v in 0..V {
            // SAFETY: the value has these eight values.
            let vector = unsafe { _mm256_loadu_ps(values.wrapping_add(key + at + 8 * v)) };
            for (acc, weight) in acc.iter_mut().zip(&weight) {
                acc[v] = _mm256_fmadd_ps(*weight, vector, acc[v]);
            }
        }
    }
    for (r, acc) in acc.iter().enumerate() {
        for (v, acc) in acc.iter().enumerate() {
            // SAFETY: the output has these eight values.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr().add(r * dim + at + 8 * v), *acc) };
        }
    }
}
