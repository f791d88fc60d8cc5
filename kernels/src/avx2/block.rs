//! The block formats: how their integers lie in a panel and are multiplied with int8 activations.
//!
//! All are sums of products of nibbles (0..=15) and activations; eight-bit weights are two planes
//! of nibbles. Block sums are exact in i32, so how they are formed cannot change a bit.

use std::arch::asm;
use std::arch::x86_64::*;

use crate::WeightFormat;
use crate::activations::Int8Rows;
use crate::format::BLOCK;

/// Outputs of a panel: the lanes of a vector.
pub(super) const OUTPUTS: usize = 8;
/// Bytes of one f16 per output.
pub(super) const HALVES: usize = 2 * OUTPUTS;

/// An activation block with everything repeated for each output, so that the multiplications take
/// it from memory.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct Spread {
    /// Four consecutive activations each.
    pub(super) words: [[i32; OUTPUTS]; BLOCK / 4],
    /// What the offset of stored integers adds to a sum of products.
    pub(super) bias: [i32; OUTPUTS],
    pub(super) scale: [f32; OUTPUTS],
    /// Scale times the sum of the activations.
    pub(super) total: [f32; OUTPUTS],
}

impl Spread {
    pub(super) const EMPTY: Self = Self {
        words: [[0; OUTPUTS]; BLOCK / 4],
        bias: [0; OUTPUTS],
        scale: [0.0; OUTPUTS],
        total: [0.0; OUTPUTS],
    };

    /// Takes block `at` of `form` for format `F`.
    pub(super) fn fill<F: BlockFormat>(&mut self, form: &Int8Rows, at: usize) {
        let q = &form.q[at * BLOCK..(at + 1) * BLOCK];
        for (word, q) in self.words.iter_mut().zip(q.as_chunks::<4>().0) {
            *word = [i32::from_le_bytes(q.map(i8::cast_unsigned)); OUTPUTS];
        }
        self.bias = [F::BIAS * form.sum[at]; OUTPUTS];
        self.scale = [form.scale[at]; OUTPUTS];
        self.total = [form.total[at]; OUTPUTS];
    }
}

/// How a block format lies in a panel: integers, then 8 scales, maybe 8 offsets.
///
/// # Safety
/// `dot` must read only `INTEGERS` bytes of the panel block.
pub(super) unsafe trait BlockFormat: Send + Sync + 'static {
    const NAME: &'static str;
    const FORMAT: WeightFormat;
    /// Bytes of the integers of a block of all outputs.
    const INTEGERS: usize;
    /// Whether an offset per output follows the scale.
    const OFFSETS: bool;
    /// What was added to the weights to make them unsigned.
    const BIAS: i32;
    /// Bytes of a block of all outputs.
    const BLOCK_BYTES: usize = Self::INTEGERS + HALVES * (1 + Self::OFFSETS as usize);

    /// The integer byte of a panel block from that of a stored block.
    fn byte(stored: u8) -> u8 {
        stored
    }

    /// Exact sums of products, with the bias still in them: eight outputs for each panel of `w`
    /// (their number is `S / R`) and each row of `x`.
    ///
    /// # Safety
    /// The processor has AVX2, and at `w` and each further `stride` are `INTEGERS` bytes.
    unsafe fn dot<const R: usize, const S: usize>(
        w: *const u8,
        stride: usize,
        x: &[&Spread; R],
    ) -> [__m256i; S];
}

/// Four bits with an offset.
pub(super) struct Q4_1;
/// Four bits around 8.
pub(super) struct Q4_0;
/// Eight bits.
pub(super) struct Q8_0;

// SAFETY: reads 128 bytes.
unsafe impl BlockFormat for Q4_1 {
    const NAME: &'static str = "avx2-q4_1-8x32";
    const FORMAT: WeightFormat = WeightFormat::Q4_1;
    const INTEGERS: usize = OUTPUTS * BLOCK / 2;
    const OFFSETS: bool = true;
    const BIAS: i32 = 0;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn dot<const R: usize, const S: usize>(
        w: *const u8,
        stride: usize,
        x: &[&Spread; R],
    ) -> [__m256i; S] {
        // SAFETY: the caller's promise.
        unsafe { nibble_dot(w, stride, x) }
    }
}

// SAFETY: reads 128 bytes.
unsafe impl BlockFormat for Q4_0 {
    const NAME: &'static str = "avx2-q4_0-8x32";
    const FORMAT: WeightFormat = WeightFormat::Q4_0;
    const INTEGERS: usize = OUTPUTS * BLOCK / 2;
    const OFFSETS: bool = false;
    const BIAS: i32 = 8;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn dot<const R: usize, const S: usize>(
        w: *const u8,
        stride: usize,
        x: &[&Spread; R],
    ) -> [__m256i; S] {
        // SAFETY: the caller's promise.
        unsafe { nibble_dot(w, stride, x) }
    }
}

// SAFETY: reads 256 bytes.
unsafe impl BlockFormat for Q8_0 {
    const NAME: &'static str = "avx2-q8_0-8x32";
    const FORMAT: WeightFormat = WeightFormat::Q8_0;
    const INTEGERS: usize = OUTPUTS * BLOCK;
    const OFFSETS: bool = false;
    const BIAS: i32 = 128;

    /// -128..=127 becomes 0..=255.
    fn byte(stored: u8) -> u8 {
        stored ^ 0x80
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn dot<const R: usize, const S: usize>(
        w: *const u8,
        stride: usize,
        x: &[&Spread; R],
    ) -> [__m256i; S] {
        let mask = _mm256_set1_epi8(0x0f);
        let mut low = [_mm256_setzero_si256(); S];
        let mut high = [_mm256_setzero_si256(); S];
        for v in 0..BLOCK / 4 {
            for p in 0..S / R {
                // SAFETY: eight vectors make the 256 bytes.
                let both = unsafe { _mm256_loadu_si256(w.add(p * stride + 32 * v).cast()) };
                let w_low = _mm256_and_si256(both, mask);
                let w_high = _mm256_and_si256(_mm256_srli_epi16::<4>(both), mask);
                for (r, x) in x.iter().enumerate() {
                    let x = word(&x.words[v]);
                    // No i16 overflows, as in `nibble_dot`.
                    let i = p * R + r;
                    low[i] = pinned(_mm256_add_epi16(low[i], _mm256_maddubs_epi16(w_low, x)));
                    high[i] = pinned(_mm256_add_epi16(high[i], _mm256_maddubs_epi16(w_high, x)));
                }
            }
        }
        let mut dots = low;
        for (dot, high) in dots.iter_mut().zip(high) {
            let low = _mm256_madd_epi16(*dot, _mm256_set1_epi16(1));
            *dot = _mm256_add_epi32(low, _mm256_madd_epi16(high, _mm256_set1_epi16(16)));
        }
        dots
    }
}

/// Sums of nibbles times activations.
///
/// # Safety
/// AVX2, and 128 bytes at `w` and each further `stride`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn nibble_dot<const R: usize, const S: usize>(
    w: *const u8,
    stride: usize,
    x: &[&Spread; R],
) -> [__m256i; S] {
    let mask = _mm256_set1_epi8(0x0f);
    // A pair of products is at most 2 * 15 * 127 in magnitude and the sum of eight pairs at most
    // 30,480: no i16 overflows.
    let mut dots = [_mm256_setzero_si256(); S];
    for v in 0..BLOCK / 8 {
        for p in 0..S / R {
            // SAFETY: four vectors make the 128 bytes.
            let both = unsafe { _mm256_loadu_si256(w.add(p * stride + 32 * v).cast()) };
            let low = _mm256_and_si256(both, mask);
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(both), mask);
            for (r, x) in x.iter().enumerate() {
                let dot = &mut dots[p * R + r];
                let product = _mm256_maddubs_epi16(low, word(&x.words[v]));
                *dot = _mm256_add_epi16(*dot, product);
                let product = _mm256_maddubs_epi16(high, word(&x.words[BLOCK / 8 + v]));
                *dot = pinned(_mm256_add_epi16(*dot, product));
            }
        }
    }
    for dot in &mut dots {
        *dot = _mm256_madd_epi16(*dot, _mm256_set1_epi16(1));
    }
    dots
}

/// A part of [`Spread`] as a vector.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn word(values: &[i32; OUTPUTS]) -> __m256i {
    // SAFETY: 32 bytes.
    unsafe { _mm256_loadu_si256(values.as_ptr().cast()) }
}

/// A part of [`Spread`] or a row's sums as a vector.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn floats(values: &[f32; OUTPUTS]) -> __m256 {
    // SAFETY: 32 bytes.
    unsafe { _mm256_loadu_ps(values.as_ptr()) }
}

/// The same value in a register, opaque to the compiler.
///
/// Without it, and its fixed place in the order of the code, the compiler turns the sums into trees
/// over all rows at once and runs out of registers, which halves the speed.
#[inline]
#[target_feature(enable = "avx2")]
fn pinned(mut value: __m256i) -> __m256i {
    // SAFETY: no instruction is emitted.
    unsafe { asm!("/* {0} */", inout(ymm_reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Eight f16, widened.
///
/// # Safety
/// F16C, and 16 readable bytes.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn halves(at: *const u8) -> __m256 {
    // SAFETY: the caller's promise.
    _mm256_cvtph_ps(unsafe { _mm_loadu_si128(at.cast()) })
}
