//! Pieces of attention over latents: rows that are key and value at once, compressed history, and
//! an indexer that picks from it.
//!
//! Every result depends on its own arguments alone, in one order of summation.

use std::cell::RefCell;

use crate::math;

thread_local! {
    static SCORES: RefCell<Vec<f32>> = RefCell::default();
}

/// The sum of products of two rows.
///
/// # Panics
/// When the lengths differ.
#[must_use]
pub fn dot(x: &[f32], y: &[f32]) -> f32 {
    assert_eq!(x.len(), y.len(), "a product needs equal lengths");
    math::dot(x, y)
}

/// Attention of one query head over `count` rows that are key and value at once, `row(0)` to
/// `row(count - 1)`: `out = sum p_i row_i` with `p = softmax(query . row * scale)`, where `sink` is
/// one more score that takes its share and adds no row. Allocates nothing once the calling thread
/// has seen its largest `count`.
///
/// # Panics
/// When a row or `out` has another length than the query.
pub fn attend_rows<'a>(
    query: &[f32],
    scale: f32,
    sink: f32,
    count: usize,
    row: impl Fn(usize) -> &'a [f32],
    out: &mut [f32],
) {
    assert_eq!(query.len(), out.len(), "output must have the shape of the query");
    SCORES.with_borrow_mut(|scores| {
        scores.clear();
        scores.extend((0..count).map(|i| dot(query, row(i)) * scale));
        let max = math::max_value(scores).0;
        let max = if sink > max { sink } else { max };
        let sum = math::exp_shifted(scores, max) + f64::from(math::exp(sink - max));
        out.fill(0.0);
        for (i, weight) in scores.iter().enumerate() {
            math::add_scaled(out, *weight, row(i));
        }
        let scale = (1.0 / sum) as f32;
        for value in out {
            *value *= scale;
        }
    });
}

/// Mixes `count` rows into one, each channel by a softmax of its own over the rows' gates:
/// `out[j] = sum_i softmax_i(gate_i[j]) value_i[j]`. `row(i)` gives values and gates of row `i`.
///
/// # Panics
/// When a row has another length than `out`.
pub fn mix_rows<'a>(count: usize, row: impl Fn(usize) -> (&'a [f32], &'a [f32]), out: &mut [f32]) {
    SCORES.with_borrow_mut(|scratch| {
        let len = out.len();
        scratch.clear();
        scratch.resize(2 * len, 0.0);
        let (max, sum) = scratch.split_at_mut(len);
        max.fill(f32::NEG_INFINITY);
        for i in 0..count {
            let (values, gates) = row(i);
            assert!(values.len() == len && gates.len() == len, "rows of {len} values");
            for (max, gate) in max.iter_mut().zip(gates) {
                *max = if *gate > *max { *gate } else { *max };
            }
        }
        out.fill(0.0);
        for i in 0..count {
            let (values, gates) = row(i);
            accumulate(values, gates, max, sum, out);
        }
        for (value, sum) in out.iter_mut().zip(sum) {
            *value /= *sum;
        }
    });
}

/// Adds one row to the sums of [`mix_rows`].
fn accumulate(values: &[f32], gates: &[f32], max: &[f32], sum: &mut [f32], out: &mut [f32]) {
    let columns = out.iter_mut().zip(sum).zip(max).zip(values.iter().zip(gates));
    for (((out, sum), max), (value, gate)) in columns {
        let weight = math::exp(gate - max);
        *sum += weight;
        *out += weight * value;
    }
}

/// `out = silu(min(gate, limit)) * clamp(up, -limit, limit)`, where `silu(g) = g / (1 + e^-g)`.
///
/// # Panics
/// When the lengths differ.
pub fn silu_mul_clamped(gate: &[f32], up: &[f32], limit: f32, out: &mut [f32]) {
    assert!(gate.len() == up.len() && up.len() == out.len(), "equal lengths");
    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
        let gate = if *gate > limit { limit } else { *gate };
        let up = if *up > limit { limit } else { *up };
        let up = if up < -limit { -limit } else { up };
        *out = gate / (1.0 + math::exp(-gate)) * up;
    }
}

/// `out += factor * row`.
///
/// # Panics
/// When the lengths differ.
pub fn add_scaled(out: &mut [f32], factor: f32, row: &[f32]) {
    assert_eq!(out.len(), row.len(), "equal lengths");
    math::add_scaled(out, factor, row);
}

/// The factor that gives a row a mean square of one: `1 / sqrt(mean(x^2) + eps)`.
///
/// # Panics
/// When the row is empty.
#[must_use]
pub fn rms_scale(row: &[f32], eps: f32) -> f32 {
    assert!(!row.is_empty(), "a row has values");
    1.0 / (math::sum_squares(row) / row.len() as f32 + eps).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(seed: u32, len: usize) -> Vec<f32> {
        let number =
            |i: usize| (i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed * 40_503) >> 16;
        (0..len).map(|i| (number(i) % 2001) as f32 / 500.0 - 2.0).collect()
    }

    #[test]
    fn attention_is_a_softmax_with_a_sink() {
        let (dim, count) = (12, 9);
        let (query, rows) = (numbers(1, dim), numbers(2, dim * count));
        for sink in [-30.0, 0.5, 4.0] {
            let row = |i: usize| &rows[i * dim..(i + 1) * dim];
            let mut out = vec![7.0; dim];
            attend_rows(&query, 0.3, sink, count, row, &mut out);
            let score = |i: usize| {
                let products = query.iter().zip(row(i)).map(|(a, b)| f64::from(*a) * f64::from(*b));
                (products.sum::<f64>() * 0.3).exp()
            };
            let total: f64 = (0..count).map(score).sum::<f64>() + f64::from(sink).exp();
            for (j, out) in out.iter().enumerate() {
                let want: f64 = (0..count).map(|i| score(i) * f64::from(row(i)[j])).sum();
                assert!((f64::from(*out) - want / total).abs() < 1e-5, "{sink}: {out}");
            }
        }
        let mut out = vec![7.0; dim];
        attend_rows(&query, 0.3, 1.0, 0, |_| &[], &mut out);
        assert_eq!(out, vec![0.0; dim], "the sink alone adds nothing");
    }

    #[test]
    fn each_channel_mixes_by_its_own_gates() {
        let (len, count) = (11, 5);
        let (values, gates) = (numbers(3, len * count), numbers(4, len * count));
        let mut out = vec![0.0; len];
        let part = |i: usize| i * len..(i + 1) * len;
        mix_rows(count, |i| (&values[part(i)], &gates[part(i)]), &mut out);
        for (j, out) in out.iter().enumerate() {
            let weight = |i: usize| f64::from(gates[i * len + j]).exp();
            let total: f64 = (0..count).map(weight).sum();
            let want: f64 = (0..count).map(|i| weight(i) * f64::from(values[i * len + j])).sum();
            assert!((f64::from(*out) - want / total).abs() < 1e-5);
        }
    }

    #[test]
    fn the_gate_is_cut_above_only() {
        let (gate, up) = (vec![-9.0, 9.0, 0.5, 0.5], vec![1.0, 1.0, 9.0, -9.0]);
        let mut out = [0.0; 4];
        silu_mul_clamped(&gate, &up, 1.5, &mut out);
        let silu = |x: f32| x / (1.0 + (-x).exp());
        let want = [silu(-9.0), silu(1.5), silu(0.5) * 1.5, silu(0.5) * -1.5];
        for (out, want) in out.iter().zip(want) {
            assert!((out - want).abs() < 1e-6, "{out} {want}");
        }
    }
}
