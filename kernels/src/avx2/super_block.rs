//! The K formats: eight blocks of 32 under one pair of f16 scales. In a panel a unit is those
//! scales (8 of each), then for each block its integers and its 8-bit scales and minima.
//!
//! Integer scales take part in the exact sums: at most 32 * 15 * 127 * 63 (Q4_K), twice that
//! (Q5_K), or 32 * 32 * 127 * 128 (Q6_K) in magnitude, which are also exact as f32.

use std::arch::x86_64::*;

use super::block::{
    BlockFormat, FIVE_BITS, HALVES, NIBBLES, OUTPUTS, Rows, five_bit_lanes, four_bit_lanes, halves,
    pack_five, pack_nibbles, pack_upper_pairs, six_bit_lanes,
};
use crate::WeightFormat;
use crate::format::{BLOCK, Block, SUPER_BLOCK};

/// Four bits, with scales and minima.
pub(super) struct Q4K;
/// Five bits, with scales and minima.
pub(super) struct Q5K;
/// Six bits around 32, with two scales a block.
pub(super) struct Q6K;

/// Blocks of a super-block.
const PARTS: usize = SUPER_BLOCK / BLOCK;
/// Bytes of six-bit integers: the upper pairs of bits follow the nibbles.
const SIX_BITS: usize = NIBBLES + OUTPUTS * BLOCK / 4;

/// Puts a block's scales and minimum into head and block.
fn pack_minimum(block: &Block, output: usize, head: &mut [u8], bytes: &mut [u8]) {
    head[2 * output..2 * output + 2].copy_from_slice(&block.d);
    head[HALVES + 2 * output..HALVES + 2 * output + 2].copy_from_slice(&block.m);
    bytes[output] = block.scales[0].cast_unsigned();
    bytes[OUTPUTS + output] = block.min;
}

/// Implements a format of `$integers` bytes of integers followed by 8 scales and 8 minima.
macro_rules! with_minimum {
    ($type:ident, $name:literal, $integers:expr, $lanes:literal, $pack:expr, $dots:ident) => {
        // SAFETY: `dot` reads the integers and scales, `offset` the minima right behind them, and
        // both read the head: all inside their bytes.
        unsafe impl BlockFormat for $type {
            const NAME: &'static str = $name;
            const FORMAT: WeightFormat = WeightFormat::$type;
            const UNIT: usize = PARTS;
            const HEAD: usize = 2 * HALVES;
            const BLOCK_BYTES: usize = $integers + 2 * OUTPUTS;
            const OFFSETS: bool = true;
            const LANES: bool = $lanes;
            const BIAS: i32 = 0;

            fn pack(block: &Block, output: usize, head: &mut [u8], place: &mut [u8]) {
                $pack(&block.q, output, place);
                pack_minimum(block, output, head, &mut place[$integers..]);
            }

            #[inline]
            #[target_feature(enable = "avx2")]
            unsafe fn dot<const R: usize, const S: usize>(
                w: *const u8,
                stride: usize,
                x: &Rows,
            ) -> [__m256i; S] {
                // SAFETY: the caller's promise.
                unsafe { $dots::<R, S>(w, stride, x) }
            }

            #[inline]
            #[target_feature(enable = "avx2,f16c")]
            unsafe fn scale(head: *const u8, _: *const u8) -> __m256 {
                // SAFETY: the head starts with the scales.
                unsafe { halves(head) }
            }

            #[inline]
            #[target_feature(enable = "avx2,f16c")]
            unsafe fn offset(head: *const u8, block: *const u8) -> __m256 {
                // SAFETY: the minima follow the block's scales, and their factors the head's.
                let (minima, factors) = unsafe {
                    let minima = block.add($integers + OUTPUTS);
                    (_mm_loadl_epi64(minima.cast()), halves(head.add(HALVES)))
                };
                let minima = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(minima));
                _mm256_xor_ps(_mm256_mul_ps(factors, minima), _mm256_set1_ps(-0.0))
            }
        }
    };
}

with_minimum!(Q4K, "avx2-q4_k-8x256", NIBBLES, false, pack_nibbles, four);
with_minimum!(Q5K, "avx2-q5_k-8x256", FIVE_BITS, true, pack_five, five);

/// Eight signed or small unsigned bytes, each twice, as i16.
///
/// # Safety
/// AVX2, and eight readable bytes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn pairs(at: *const u8) -> __m256i {
    // SAFETY: the caller's promise.
    let bytes = unsafe { _mm_loadl_epi64(at.cast()) };
    _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(bytes, bytes))
}

/// # Safety
/// AVX2, and blocks of Q4_K at `w` and each further `stride`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn four<const R: usize, const S: usize>(
    w: *const u8,
    stride: usize,
    x: &Rows,
) -> [__m256i; S] {
    // SAFETY: the caller's promise.
    let mut dots = unsafe { four_bit_lanes::<R, S>(w, stride, x) };
    for (p, dots) in dots.chunks_exact_mut(R).enumerate() {
        // SAFETY: as above.
        let scale = unsafe { pairs(w.add(p * stride + NIBBLES)) };
        for dot in dots {
            *dot = _mm256_madd_epi16(*dot, scale);
        }
    }
    dots
}

/// # Safety
/// AVX2, and blocks of Q5_K at `w` and each further `stride`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn five<const R: usize, const S: usize>(
    w: *const u8,
    stride: usize,
    x: &Rows,
) -> [__m256i; S] {
    // SAFETY: the caller's promise.
    let mut dots = unsafe { five_bit_lanes::<R, S>(w, stride, x) };
    for (p, dots) in dots.chunks_exact_mut(R).enumerate() {
        // SAFETY: as above.
        let scale = unsafe { pairs(w.add(p * stride + FIVE_BITS)) };
        for (r, dot) in dots.iter_mut().enumerate() {
            // The 16 that was taken from each value, in two equal parts of at most 8 * 32 * 127.
            // SAFETY: as above.
            let centre = _mm256_set1_epi16((8 * unsafe { x.sum(r) }) as i16);
            let sums = _mm256_madd_epi16(*dot, scale);
            *dot = _mm256_add_epi32(sums, _mm256_madd_epi16(centre, scale));
        }
    }
    dots
}

// SAFETY: `dot` reads integers and scales, `scale` the head: all inside their bytes.
unsafe impl BlockFormat for Q6K {
    const NAME: &'static str = "avx2-q6_k-8x256";
    const FORMAT: WeightFormat = WeightFormat::Q6K;
    const UNIT: usize = PARTS;
    const HEAD: usize = HALVES;
    const BLOCK_BYTES: usize = SIX_BITS + 2 * OUTPUTS;
    const OFFSETS: bool = false;
    const LANES: bool = true;
    const BIAS: i32 = 0;

    fn pack(block: &Block, output: usize, head: &mut [u8], place: &mut [u8]) {
        pack_nibbles(&block.q, output, place);
        pack_upper_pairs(&block.q, output, &mut place[NIBBLES..SIX_BITS]);
        head[2 * output..2 * output + 2].copy_from_slice(&block.d);
        for (half, scale) in block.scales.into_iter().enumerate() {
            place[SIX_BITS + half * OUTPUTS + output] = scale.cast_unsigned();
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn dot<const R: usize, const S: usize>(
        w: *const u8,
        stride: usize,
        x: &Rows,
    ) -> [__m256i; S] {
        // SAFETY: the caller's promise.
        let (mut dots, high) = unsafe {
            (six_bit_lanes::<R, S>(w, stride, x, 0), six_bit_lanes::<R, S>(w, stride, x, 1))
        };
        for (p, (dots, high)) in dots.chunks_exact_mut(R).zip(high.chunks_exact(R)).enumerate() {
            // SAFETY: two scales per output follow the integers.
            let scales = unsafe {
                let at = w.add(p * stride + SIX_BITS);
                [pairs(at), pairs(at.add(OUTPUTS))]
            };
            for (dot, high) in dots.iter_mut().zip(high) {
                let low = _mm256_madd_epi16(*dot, scales[0]);
                *dot = _mm256_add_epi32(low, _mm256_madd_epi16(*high, scales[1]));
            }
        }
        dots
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn scale(head: *const u8, _: *const u8) -> __m256 {
        // SAFETY: the head is the scales.
        unsafe { halves(head) }
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn offset(_: *const u8, _: *const u8) -> __m256 {
        _mm256_setzero_ps()
    }
}
