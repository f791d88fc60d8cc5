//! The formats whose 32-value blocks have their own f16 scale and offset. In a panel a block is its
//! integers, 8 scales, and 8 offsets if any.

use std::arch::x86_64::*;

use super::block::{
    BlockFormat, FIVE_BITS, HALVES, NIBBLES, OUTPUTS, Rows, five_bit_lanes, four_bit_lanes, halves,
    pack_five, pack_nibbles, pinned,
};
use crate::WeightFormat;
use crate::format::{BLOCK, Block};

/// Four bits with an offset.
pub(super) struct Q4_1;
/// Four bits around 8.
pub(super) struct Q4_0;
/// Five bits with an offset.
pub(super) struct Q5_1;
/// Five bits around 16.
pub(super) struct Q5_0;
/// Eight bits.
pub(super) struct Q8_0;

/// Puts a block's scale and offset behind `integers` bytes.
fn pack_scale<F: BlockFormat>(block: &Block, output: usize, integers: usize, place: &mut [u8]) {
    let at = integers + 2 * output;
    place[at..at + 2].copy_from_slice(&block.d);
    if F::OFFSETS {
        place[at + HALVES..at + HALVES + 2].copy_from_slice(&block.m);
    }
}

/// Implements a format of `$integers` bytes of integers in a panel block.
macro_rules! block_format {
    ($type:ident, $name:literal, $integers:expr, $offsets:literal, $bias:literal, $lanes:literal,
        $pack:expr, $dot:ident) => {
        // SAFETY: `dot` reads the integers, and `scale` and `offset` what lies right behind them,
        // all inside `BLOCK_BYTES`.
        unsafe impl BlockFormat for $type {
            const NAME: &'static str = $name;
            const FORMAT: WeightFormat = WeightFormat::$type;
            const UNIT: usize = 1;
            const HEAD: usize = 0;
            const BLOCK_BYTES: usize = $integers + HALVES * (1 + $offsets as usize);
            const OFFSETS: bool = $offsets;
            const LANES: bool = $lanes;
            const BIAS: i32 = $bias;

            fn pack(block: &Block, output: usize, _: &mut [u8], place: &mut [u8]) {
                $pack(&block.q, output, place);
                pack_scale::<Self>(block, output, $integers, place);
            }

            #[inline]
            #[target_feature(enable = "avx2")]
            unsafe fn dot<const R: usize, const S: usize>(
                w: *const u8,
                stride: usize,
                x: &Rows,
            ) -> [__m256i; S] {
                // SAFETY: the caller's promise.
                unsafe { $dot::<R, S>(w, stride, x) }
            }

            #[inline]
            #[target_feature(enable = "avx2,f16c")]
            unsafe fn scale(_: *const u8, block: *const u8) -> __m256 {
                // SAFETY: scales follow the integers.
                unsafe { halves(block.add($integers)) }
            }

            #[inline]
            #[target_feature(enable = "avx2,f16c")]
            unsafe fn offset(_: *const u8, block: *const u8) -> __m256 {
                // SAFETY: called for formats with offsets only, where they follow the scales.
                unsafe { halves(block.add($integers + HALVES)) }
            }
        }
    };
}

/// The bytes are signed again: the kernel takes their magnitudes and signs.
fn pack_bytes(q: &[u8; BLOCK], output: usize, place: &mut [u8]) {
    for (v, word) in q.as_chunks::<4>().0.iter().enumerate() {
        let at = v * 4 * OUTPUTS + 4 * output;
        place[at..at + 4].copy_from_slice(&word.map(|q| q ^ 0x80));
    }
}

block_format!(Q4_0, "avx2-q4_0-8x32", NIBBLES, false, 8, false, pack_nibbles, four);
block_format!(Q4_1, "avx2-q4_1-8x32", NIBBLES, true, 0, false, pack_nibbles, four);
block_format!(Q5_0, "avx2-q5_0-8x32", FIVE_BITS, false, 0, true, pack_five, five);
block_format!(Q5_1, "avx2-q5_1-8x32", FIVE_BITS, true, -16, true, pack_five, five);
block_format!(Q8_0, "avx2-q8_0-8x32", OUTPUTS * BLOCK, false, 0, false, pack_bytes, eight);

/// # Safety
/// AVX2, and nibbles at `w` and each further `stride`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn four<const R: usize, const S: usize>(
    w: *const u8,
    stride: usize,
    x: &Rows,
) -> [__m256i; S] {
    // SAFETY: the caller's promise.
    let mut dots = unsafe { four_bit_lanes::<R, S>(w, stride, x) };
    for dot in &mut dots {
        *dot = _mm256_madd_epi16(*dot, _mm256_set1_epi16(1));
    }
    dots
}

/// # Safety
/// AVX2, and five-bit integers at `w` and each further `stride`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn five<const R: usize, const S: usize>(
    w: *const u8,
    stride: usize,
    x: &Rows,
) -> [__m256i; S] {
    // SAFETY: the caller's promise.
    let mut dots = unsafe { five_bit_lanes::<R, S>(w, stride, x) };
    for dot in &mut dots {
        *dot = _mm256_madd_epi16(*dot, _mm256_set1_epi16(1));
    }
    dots
}

/// # Safety
/// AVX2, and bytes at `w` and each further `stride`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn eight<const R: usize, const S: usize>(
    w: *const u8,
    stride: usize,
    x: &Rows,
) -> [__m256i; S] {
    let one = _mm256_set1_epi16(1);
    let mut dots = [_mm256_setzero_si256(); S];
    for v in 0..BLOCK / 4 {
        let mut signed = [_mm256_setzero_si256(); S];
        let mut sizes = signed;
        for p in 0..S / R {
            // SAFETY: eight vectors make the 256 bytes.
            signed[p] = unsafe { _mm256_loadu_si256(w.add(p * stride + 4 * OUTPUTS * v).cast()) };
            // Of -128 as well: it is unsigned from here on.
            sizes[p] = _mm256_abs_epi8(signed[p]);
        }
        for r in 0..R {
            // SAFETY: the caller's promise.
            let x = unsafe { x.word(r, v) };
            for p in 0..S / R {
                // The sign goes to the activation, which is no less than -127. A pair of products
                // is at most 2 * 128 * 127 in magnitude: no i16 overflows.
                let pairs = _mm256_maddubs_epi16(sizes[p], _mm256_sign_epi8(x, signed[p]));
                let dot = &mut dots[p * R + r];
                *dot = pinned(_mm256_add_epi32(*dot, _mm256_madd_epi16(pairs, one)));
            }
        }
    }
    dots
}
