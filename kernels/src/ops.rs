//! Normalisation, activation and reduction over rows.
//!
//! Every result is a function of its own row. The same bits come out on every processor.

use crate::math;
use crate::{Activations, ThreadPool};

/// Values that one thread should at least have before a loop is split.
const MIN_VALUES: usize = 16 * 1024;

/// Rows of `len` values that make a worthwhile part.
pub(crate) fn grain(len: usize) -> usize {
    MIN_VALUES.div_ceil(len.max(1))
}

/// `out = x / rms(x) * weight` for each row of `weight.len()` values, rms with `eps` added to the
/// mean square. `out` gets the shape of `x`.
///
/// # Panics
/// When `x` is not whole rows of `weight.len()` values.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut Activations, pool: &ThreadPool) {
    let len = weight.len();
    assert!(len > 0 && x.len().is_multiple_of(len), "{} values, rows of {len}", x.len());
    let out = out.resize(x.len() / len, len);
    pool.for_each_row(out, len, grain(len), |row, out| {
        let x = &x[row * len..(row + 1) * len];
        math::scale_by(x, rms_scale(x, eps), weight, out);
    });
}

/// [`rms_norm`] of each row of `weight.len()` values of `x` in place (also per attention head).
///
/// # Panics
/// When `x` is not whole rows of `weight.len()` values.
pub fn rms_norm_in_place(x: &mut [f32], weight: &[f32], eps: f32, pool: &ThreadPool) {
    let len = weight.len();
    assert!(len > 0 && x.len().is_multiple_of(len), "{} values, rows of {len}", x.len());
    pool.for_each_row(x, len, grain(len), |_, x| {
        let scale = rms_scale(x, eps);
        math::scale_in_place(x, scale, weight);
    });
}

fn rms_scale(x: &[f32], eps: f32) -> f32 {
    1.0 / (math::sum_squares(x) / x.len() as f32 + eps).sqrt()
}

/// `x += y`.
///
/// # Panics
/// When the lengths differ.
pub fn add(x: &mut [f32], y: &[f32], pool: &ThreadPool) {
    assert_eq!(x.len(), y.len(), "add needs equal lengths");
    for_each_part(x, pool, |part, x| math::add_to(x, &y[part..part + x.len()]));
}

/// `out = silu(gate) * up`, where `silu(g) = g / (1 + e^-g)`; `out` becomes `rows` rows.
///
/// # Panics
/// When the lengths differ or are not whole rows.
pub fn silu_mul(gate: &[f32], up: &[f32], rows: usize, out: &mut Activations, pool: &ThreadPool) {
    assert_eq!(gate.len(), up.len(), "silu_mul needs equal lengths");
    assert!(rows > 0 && gate.len().is_multiple_of(rows), "{} values in {rows} rows", gate.len());
    let out = out.resize(rows, gate.len() / rows);
    for_each_part(out, pool, |part, out| {
        let part = part..part + out.len();
        math::silu_times(&gate[part.clone()], &up[part], out);
    });
}

/// `out = gelu(gate) * up`, where `gelu(g) = g / 2 (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3)))`;
/// `out` becomes `rows` rows.
///
/// # Panics
/// When the lengths differ or are not whole rows.
pub fn gelu_tanh_mul(
    gate: &[f32],
    up: &[f32],
    rows: usize,
    out: &mut Activations,
    pool: &ThreadPool,
) {
    assert_eq!(gate.len(), up.len(), "gelu_tanh_mul needs equal lengths");
    assert!(rows > 0 && gate.len().is_multiple_of(rows), "{} values in {rows} rows", gate.len());
    let out = out.resize(rows, gate.len() / rows);
    for_each_part(out, pool, |part, out| {
        let part = part..part + out.len();
        math::gelu_tanh_times(&gate[part.clone()], &up[part], out);
    });
}

/// `x *= factor`.
pub fn scale(x: &mut [f32], factor: f32, pool: &ThreadPool) {
    for_each_part(x, pool, |_, x| {
        for x in x {
            *x *= factor;
        }
    });
}

/// Calls `body(first index, part)` for parts of `data`.
fn for_each_part(data: &mut [f32], pool: &ThreadPool, body: impl Fn(usize, &mut [f32]) + Sync) {
    let len = data.len();
    let out = crate::buffer::SharedOut::new(data);
    pool.parallel_for(len, MIN_VALUES, |part| {
        // SAFETY: `parallel_for` hands out disjoint ranges.
        body(part.start, unsafe { out.slice(part) });
    });
}

/// Turns `values` into a probability distribution. Nothing happens to an empty slice.
pub fn softmax(values: &mut [f32]) {
    let (max, _) = math::max_value(values);
    let sum = math::exp_shifted(values, max);
    let scale = (1.0 / sum) as f32;
    for v in values {
        *v *= scale;
    }
}

/// `ln(sum of e^value)`: subtract it from a logit for its log-probability. -infinity for nothing.
#[must_use]
pub fn log_sum_exp(values: &[f32]) -> f32 {
    if values.is_empty() {
        return f32::NEG_INFINITY;
    }
    let (max, _) = math::max_value(values);
    (f64::from(max) + math::sum_exp(values, max).ln()) as f32
}

/// The index of the largest value, the lowest among equals; `None` for an empty slice and when any
/// value is NaN.
#[must_use]
pub fn argmax(values: &[f32]) -> Option<usize> {
    match math::max_value(values) {
        (_, false) => None,
        (max, true) => values.iter().position(|v| *v == max),
    }
}

/// Whether no value is NaN or infinite.
#[must_use]
pub fn all_finite(values: &[f32]) -> bool {
    math::largest_magnitude_bits(values) < f32::INFINITY.to_bits()
}

#[cfg(test)]
mod tests;
