//! Arithmetic building blocks written so that compilers vectorise them and every processor gives
//! the same bits: no fused operations, fixed lanes, one order.

use crate::format::BLOCK;

/// Lanes of every sum over a row; part of the definition of the result.
const LANES: usize = 8;

/// Adding and subtracting this rounds an f32 of at most 2^22 in magnitude to the nearest integer,
/// ties to even.
const ROUND: f32 = 12_582_912.0;

/// Compiles a body twice, for the baseline and for AVX2, and picks one at run time. The bits do not
/// depend on the choice, because the compiler never fuses or reorders float operations.
macro_rules! vectorised {
    (
        $(#[$doc:meta])*
        $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block
    ) => {
        $(#[$doc])*
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn wide($($arg: $ty),*) $(-> $ret)? {
                    body($($arg),*)
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has AVX2, as just checked.
                    return unsafe { wide($($arg),*) };
                }
            }
            body($($arg),*)
        }
    };
}

/// e^x within 2 units in the last place; 0 below -87.3, infinity above 88.7, NaN for NaN.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    // ln 2 in two parts, the first with few bits so that `n * LN2_HIGH` is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let bounded = if x > 89.0 { 89.0 } else { x };
    let bounded = if bounded < -88.0 { -88.0 } else { bounded };
    let shifted = bounded * LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (bounded - n * LN2_HIGH) - n * LN2_LOW;
    let mut p = 1.987_569_1e-4f32;
    p = p * r + 1.398_2e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 0.5;
    let y = (p * (r * r) + r) + 1.0;
    // 2^n in two factors, so that n = 128 and n = -127 do not leave the exponent range.
    let n = shifted.to_bits().cast_signed().wrapping_sub(ROUND.to_bits().cast_signed());
    let half = n >> 1;
    let scale = |e: i32| f32::from_bits((e.wrapping_add(127) << 23).cast_unsigned());
    let result = y * scale(half) * scale(n.wrapping_sub(half));
    if x < -87.3 { 0.0 } else { result }
}

/// The sum of eight lanes in the order every kernel uses.
#[inline(always)]
pub(crate) fn sum_lanes(lanes: [f32; LANES]) -> f32 {
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

vectorised! {
    /// Sum of squares of a row.
    pub(crate) fn sum_squares(x: &[f32]) -> f32 {
        let mut lanes = [0.0f32; LANES];
        let (chunks, rest) = x.as_chunks::<LANES>();
        for chunk in chunks {
            for (lane, v) in lanes.iter_mut().zip(chunk) {
                *lane += v * v;
            }
        }
        for (lane, v) in lanes.iter_mut().zip(rest) {
            *lane += v * v;
        }
        sum_lanes(lanes)
    }
}

vectorised! {
    /// `out = x * scale * weight`.
    pub(crate) fn scale_by(x: &[f32], scale: f32, weight: &[f32], out: &mut [f32]) {
        for ((o, x), w) in out.iter_mut().zip(x).zip(weight) {
            *o = (x * scale) * w;
        }
    }
}

vectorised! {
    /// `x = x * scale * weight`.
    pub(crate) fn scale_in_place(x: &mut [f32], scale: f32, weight: &[f32]) {
        for (x, w) in x.iter_mut().zip(weight) {
            *x = (*x * scale) * w;
        }
    }
}

vectorised! {
    /// `out = x * scale`.
    pub(crate) fn scale_to(x: &[f32], scale: f32, out: &mut [f32]) {
        for (o, x) in out.iter_mut().zip(x) {
            *o = x * scale;
        }
    }
}

vectorised! {
    /// `x += scale * y`.
    pub(crate) fn add_scaled(x: &mut [f32], scale: f32, y: &[f32]) {
        for (x, y) in x.iter_mut().zip(y) {
            *x += scale * y;
        }
    }
}

vectorised! {
    /// `x = x * a + y * b`.
    pub(crate) fn blend(x: &mut [f32], a: f32, y: &[f32], b: f32) {
        for (x, y) in x.iter_mut().zip(y) {
            *x = *x * a + y * b;
        }
    }
}

vectorised! {
    /// The sum of products, in eight lanes.
    pub(crate) fn dot(x: &[f32], y: &[f32]) -> f32 {
        let mut lanes = [0.0f32; LANES];
        let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
        for (x, y) in x.iter().zip(y) {
            for ((lane, x), y) in lanes.iter_mut().zip(x).zip(y) {
                *lane += x * y;
            }
        }
        for ((lane, x), y) in lanes.iter_mut().zip(x_rest).zip(y_rest) {
            *lane += x * y;
        }
        sum_lanes(lanes)
    }
}

vectorised! {
    /// `x += y`.
    pub(crate) fn add_to(x: &mut [f32], y: &[f32]) {
        for (x, y) in x.iter_mut().zip(y) {
            *x += y;
        }
    }
}

vectorised! {
    /// `out = gate / (1 + e^-gate) * up`.
    pub(crate) fn silu_times(gate: &[f32], up: &[f32], out: &mut [f32]) {
        for ((o, g), u) in out.iter_mut().zip(gate).zip(up) {
            *o = g / (1.0 + exp(-g)) * u;
        }
    }
}

vectorised! {
    /// `out = gelu(gate) * up`, with the hyperbolic tangent: `1 + tanh(u)` is `2 / (1 + e^-2u)`.
    pub(crate) fn gelu_tanh_times(gate: &[f32], up: &[f32], out: &mut [f32]) {
        // 2 sqrt(2 / pi)
        const SLOPE: f32 = 1.595_769;
        const CUBIC: f32 = 0.044_715;
        for ((o, g), u) in out.iter_mut().zip(gate).zip(up) {
            let inner = SLOPE * (g + CUBIC * g * g * g);
            *o = g / (1.0 + exp(-inner)) * u;
        }
    }
}

vectorised! {
    /// `x = e^(x - shift)`; the sum of the results in double precision, in eight lanes.
    pub(crate) fn exp_shifted(x: &mut [f32], shift: f32) -> f64 {
        let mut lanes = [0.0f64; LANES];
        let (chunks, rest) = x.as_chunks_mut::<LANES>();
        for chunk in chunks {
            for (lane, v) in lanes.iter_mut().zip(chunk) {
                *v = exp(*v - shift);
                *lane += f64::from(*v);
            }
        }
        for (lane, v) in lanes.iter_mut().zip(rest) {
            *v = exp(*v - shift);
            *lane += f64::from(*v);
        }
        lanes.iter().sum()
    }
}

vectorised! {
    /// The sum of e^(x - shift), as [`exp_shifted`].
    pub(crate) fn sum_exp(x: &[f32], shift: f32) -> f64 {
        let mut lanes = [0.0f64; LANES];
        let (chunks, rest) = x.as_chunks::<LANES>();
        for chunk in chunks {
            for (lane, v) in lanes.iter_mut().zip(chunk) {
                *lane += f64::from(exp(*v - shift));
            }
        }
        for (lane, v) in lanes.iter_mut().zip(rest) {
            *lane += f64::from(exp(*v - shift));
        }
        lanes.iter().sum()
    }
}

vectorised! {
    /// The largest value and whether all are numbers; (-infinity, true) for nothing.
    pub(crate) fn max_value(x: &[f32]) -> (f32, bool) {
        let mut lanes = [f32::NEG_INFINITY; LANES];
        let mut nan = [false; LANES];
        let (chunks, rest) = x.as_chunks::<LANES>();
        for chunk in chunks {
            for ((lane, nan), v) in lanes.iter_mut().zip(&mut nan).zip(chunk) {
                *lane = if *v > *lane { *v } else { *lane };
                *nan |= v.is_nan();
            }
        }
        for (lane, v) in lanes.iter_mut().zip(rest) {
            *lane = if *v > *lane { *v } else { *lane };
            nan[0] |= v.is_nan();
        }
        let max = lanes.iter().fold(f32::NEG_INFINITY, |a, b| if *b > a { *b } else { a });
        (max, !nan.contains(&true))
    }
}

vectorised! {
    /// The bits of the largest magnitude. They order like the magnitude, above it infinity, NaN.
    pub(crate) fn largest_magnitude_bits(x: &[f32]) -> u32 {
        let mut top = 0u32;
        for v in x {
            top = top.max(v.to_bits() & 0x7fff_ffff);
        }
        top
    }
}

vectorised! {
    /// Int8 blocks of `x`: values, scales and sums. `x` holds whole blocks.
    pub(crate) fn quantize(x: &[f32], q: &mut [i8], scale: &mut [f32], sum: &mut [i32]) {
        let blocks = x.as_chunks::<BLOCK>().0.iter().zip(q.as_chunks_mut::<BLOCK>().0);
        for (((x, q), scale), sum) in blocks.zip(scale).zip(sum) {
            // The bits of a magnitude order like the magnitude; NaN and infinity are the largest.
            let mut top = 0u32;
            for v in x {
                top = top.max(v.to_bits() & 0x7fff_ffff);
            }
            let magnitude = f32::from_bits(top);
            let tiny = magnitude < 1e-36;
            let inverse = if tiny || !magnitude.is_finite() { 0.0 } else { 127.0 / magnitude };
            *scale = if magnitude.is_finite() { magnitude / 127.0 } else { f32::NAN };
            *scale = if tiny { 0.0 } else { *scale };
            let mut total = 0i32;
            for (q, v) in q.iter_mut().zip(x) {
                let shifted = v * inverse + ROUND;
                let value = shifted.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
                // A value that is not finite times 0 is NaN: its block counts as zeros.
                let value = if inverse == 0.0 { 0 } else { value };
                *q = value as i8;
                total += i32::from(*q);
            }
            *sum = total;
        }
    }
}

#[cfg(target_arch = "x86_64")]
vectorised! {
    /// Sums of the halves of int8 blocks, as [`crate::activations::Lanes`] says.
    pub(crate) fn lane_sums(q: &[i8], lanes: &mut [[i32; 2]]) {
        for (q, lanes) in q.as_chunks::<BLOCK>().0.iter().zip(lanes) {
            for (lane, half) in lanes.iter_mut().zip(q.as_chunks::<16>().0) {
                let mut sums = [0i32; 4];
                for four in half.as_chunks::<4>().0 {
                    for (sum, q) in sums.iter_mut().zip(four) {
                        *sum += i32::from(*q);
                    }
                }
                *lane = (sums[0] + sums[1]) & 0xffff | (sums[2] + sums[3]) << 16;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_everywhere() {
        let mut x = -87.2f32;
        while x < 88.7 {
            let (got, want) = (f64::from(exp(x)), f64::from(x).exp());
            assert!(((got - want) / want).abs() < 2.5e-7, "exp({x}) = {got}, not {want}");
            x += 0.001_37;
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-100.0), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(90.0), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
    }
}
