//! Block weights times int8 activations: eight outputs side by side.
//!
//! Block sums are exact in i32, so how a format forms them cannot change a bit. Each block's sum is
//! then multiplied by the product of both scales and added to the output, block after block.

use std::arch::x86_64::*;
use std::ops::Range;

use super::panel::{PanelKernel, Sums};
use crate::activations::Int8Rows;
use crate::format::BLOCK;
use crate::linear::StoredMatrix;
use crate::{Activations, ThreadPool, WeightFormat};

/// Outputs of a panel.
const OUTPUTS: usize = 8;
/// Bytes of one f16 per output.
const HALVES: usize = 2 * OUTPUTS;
/// Bytes of the nibbles of a block of all outputs.
const NIBBLES: usize = OUTPUTS * BLOCK / 2;
/// Bytes of the int8 weights of a block of all outputs.
const BYTES: usize = OUTPUTS * BLOCK;

/// The int8 form of activation rows.
#[derive(Clone, Copy)]
pub(super) struct Int8Input<'a> {
    form: &'a Int8Rows,
    /// The same integers as i16, for the kernels that want them.
    wide: &'a [i16],
    blocks: usize,
}

/// Block `block` of a row: where its integers are, and its place among the blocks of all rows.
#[derive(Clone, Copy)]
struct XBlock {
    q: *const i8,
    wide: *const i16,
    index: usize,
}

impl Int8Input<'_> {
    /// # Safety
    /// The row and the block must exist.
    #[inline]
    unsafe fn block(&self, row: usize, block: usize) -> XBlock {
        let index = row * self.blocks + block;
        debug_assert!(index < self.form.scale.len());
        // `wide` is empty when the kernel does not read it, hence the wrapping arithmetic.
        let wide = self.wide.as_ptr().wrapping_add(index * BLOCK);
        // SAFETY: 32 integers belong to every block.
        XBlock { q: unsafe { self.form.q.as_ptr().add(index * BLOCK) }, wide, index }
    }
}

/// How a block format lies in a panel and is multiplied: integers, 8 scales, maybe 8 offsets.
///
/// # Safety
/// `dot` must read `INTEGERS` bytes of the panel block and one block of each activation row.
unsafe trait BlockFormat: Send + Sync + 'static {
    const NAME: &'static str;
    const FORMAT: WeightFormat;
    /// Bytes of the integers of a block of all outputs.
    const INTEGERS: usize;
    /// Whether an offset per output follows the scale.
    const OFFSETS: bool;
    /// Whether the activations are read as i16.
    const WIDE: bool;
    /// Bytes of a block of all outputs.
    const BLOCK_BYTES: usize = Self::INTEGERS + HALVES * (1 + Self::OFFSETS as usize);

    /// Where integer byte `at` of an output's stored block goes inside the panel block.
    fn place(output: usize, at: usize) -> usize;

    /// Exact sums of products: eight outputs for each row.
    ///
    /// # Safety
    /// The processor has AVX2; `w` points to a panel block and `x` to activation blocks of `form`.
    unsafe fn dot<const R: usize>(w: *const u8, x: &[XBlock; R], form: &Int8Rows) -> [__m256i; R];
}

/// Four bits with an offset.
pub(super) struct Q4_1;
/// Four bits around 8.
pub(super) struct Q4_0;
/// Eight bits.
pub(super) struct Q8_0;

// SAFETY: reads the nibbles and 32 activations.
unsafe impl BlockFormat for Q4_1 {
    const NAME: &'static str = "avx2-q4_1-8x32";
    const FORMAT: WeightFormat = WeightFormat::Q4_1;
    const INTEGERS: usize = NIBBLES;
    const OFFSETS: bool = true;
    const WIDE: bool = false;

    fn place(output: usize, at: usize) -> usize {
        nibble_place(output, at)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn dot<const R: usize>(w: *const u8, x: &[XBlock; R], _: &Int8Rows) -> [__m256i; R] {
        // SAFETY: the caller's promise.
        unsafe { nibble_dot(w, x) }
    }
}

// SAFETY: reads the nibbles and 32 activations.
unsafe impl BlockFormat for Q4_0 {
    const NAME: &'static str = "avx2-q4_0-8x32";
    const FORMAT: WeightFormat = WeightFormat::Q4_0;
    const INTEGERS: usize = NIBBLES;
    const OFFSETS: bool = false;
    const WIDE: bool = false;

    fn place(output: usize, at: usize) -> usize {
        nibble_place(output, at)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn dot<const R: usize>(w: *const u8, x: &[XBlock; R], form: &Int8Rows) -> [__m256i; R] {
        // SAFETY: the caller's promise.
        let mut dots = unsafe { nibble_dot(w, x) };
        for (dot, x) in dots.iter_mut().zip(x) {
            // SAFETY: every block has a sum.
            let sum = unsafe { *form.sum.get_unchecked(x.index) };
            *dot = _mm256_sub_epi32(*dot, _mm256_set1_epi32(8 * sum));
        }
        dots
    }
}

// SAFETY: reads 256 bytes of weights and 32 activations as i16.
unsafe impl BlockFormat for Q8_0 {
    const NAME: &'static str = "avx2-q8_0-8x32";
    const FORMAT: WeightFormat = WeightFormat::Q8_0;
    const INTEGERS: usize = BYTES;
    const OFFSETS: bool = false;
    const WIDE: bool = true;

    /// Vector `v` holds features `4 v..4 v + 4`; i16 lane `2 output + i` has feature `4 v + i` in
    /// its low and `4 v + 2 + i` in its high byte, so that shifts widen either pair.
    fn place(output: usize, at: usize) -> usize {
        let (vector, pair, i) = (at / 4, at / 2 % 2, at % 2);
        vector * 32 + output * 4 + i * 2 + pair
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn dot<const R: usize>(w: *const u8, x: &[XBlock; R], _: &Int8Rows) -> [__m256i; R] {
        let mut dots = [_mm256_setzero_si256(); R];
        for v in 0..BLOCK / 4 {
            // SAFETY: eight vectors make the 256 bytes of the block.
            let both = unsafe { _mm256_loadu_si256(w.add(32 * v).cast()) };
            let low = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(both));
            let high = _mm256_srai_epi16::<8>(both);
            for (dot, x) in dots.iter_mut().zip(x) {
                // SAFETY: 32 i16 belong to the block.
                let (a, b) = unsafe { (pair(x.wide.add(4 * v)), pair(x.wide.add(4 * v + 2))) };
                *dot = _mm256_add_epi32(*dot, _mm256_madd_epi16(low, a));
                *dot = _mm256_add_epi32(*dot, _mm256_madd_epi16(high, b));
            }
        }
        dots
    }
}

/// Two i16 in every 32-bit lane.
///
/// # Safety
/// AVX2, and two values at `at`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn pair(at: *const i16) -> __m256i {
    // SAFETY: the caller promises 4 readable bytes.
    _mm256_set1_epi32(unsafe { at.cast::<i32>().read_unaligned() })
}

/// Vector `v` of four holds, for each output, nibble bytes `4 v..4 v + 4` of its stored block.
fn nibble_place(output: usize, at: usize) -> usize {
    at / 4 * 32 + output * 4 + at % 4
}

/// Sums of nibbles (0..=15) times activations.
///
/// # Safety
/// AVX2, 128 bytes at `w`, and activation blocks.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn nibble_dot<const R: usize>(w: *const u8, x: &[XBlock; R]) -> [__m256i; R] {
    let mask = _mm256_set1_epi8(0x0f);
    let mut weights = [mask; 8];
    for v in 0..4 {
        // SAFETY: four vectors make the 128 bytes.
        let both = unsafe { _mm256_loadu_si256(w.add(32 * v).cast()) };
        weights[v] = _mm256_and_si256(both, mask);
        weights[4 + v] = _mm256_and_si256(_mm256_srli_epi16::<4>(both), mask);
    }
    let mut dots = [mask; R];
    for (dot, x) in dots.iter_mut().zip(x) {
        let x = x.q.cast::<i32>();
        // A pair of products is at most 2 * 15 * 127 in magnitude and the sum of eight pairs at
        // most 30,480: no i16 overflows.
        let mut sum = _mm256_setzero_si256();
        for (v, w) in weights.iter().enumerate() {
            // SAFETY: eight groups of four activations make the block.
            let x = _mm256_set1_epi32(unsafe { x.add(v).read_unaligned() });
            sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(*w, x));
        }
        *dot = _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
    }
    dots
}

// SAFETY: a panel is `k / 32` blocks of `BLOCK_BYTES`; rows have as many blocks, as `Int8Input`
// says.
unsafe impl<F: BlockFormat> PanelKernel for F {
    const NAME: &'static str = F::NAME;
    const FORMAT: WeightFormat = F::FORMAT;
    const OUTPUTS: usize = OUTPUTS;
    const PASS: usize = usize::MAX;
    const VALUE_BYTES: usize = if F::WIDE { 2 } else { 1 };

    type Input<'a> = Int8Input<'a>;

    fn panel_bytes(k: usize) -> usize {
        k / BLOCK * F::BLOCK_BYTES
    }

    fn pack_panel(w: &StoredMatrix<'_>, first: usize, panel: &mut [u8]) {
        let head = if F::OFFSETS { 4 } else { 2 };
        for output in 0..OUTPUTS.min(w.out_features - first) {
            let blocks = w.row(first + output).chunks_exact(F::FORMAT.block_bytes());
            for (block, place) in blocks.zip(panel.chunks_exact_mut(F::BLOCK_BYTES)) {
                let (head, integers) = block.split_at(head);
                for (at, byte) in integers.iter().enumerate() {
                    place[F::place(output, at)] = *byte;
                }
                for (i, half) in head.as_chunks::<2>().0.iter().enumerate() {
                    let at = F::INTEGERS + i * HALVES + 2 * output;
                    place[at..at + 2].copy_from_slice(half);
                }
            }
        }
    }

    fn input<'a>(x: &'a Activations, pool: &ThreadPool) -> Int8Input<'a> {
        let wide = if F::WIDE { x.int16(pool) } else { &[] };
        Int8Input { form: x.int8(pool), wide, blocks: x.features() / BLOCK }
    }

    unsafe fn tile(
        panel: &[u8],
        input: Int8Input<'_>,
        row: usize,
        k: Range<usize>,
        sums: &mut [Sums],
    ) {
        debug_assert!(panel.len() >= Self::panel_bytes(k.end));
        let blocks = k.start / BLOCK..k.end / BLOCK;
        // SAFETY: the caller's promises are those of `tile`.
        unsafe {
            match sums {
                [a] => tile::<F, 1>(panel, input, row, blocks, [a]),
                [a, b] => tile::<F, 2>(panel, input, row, blocks, [a, b]),
                [a, b, c] => tile::<F, 3>(panel, input, row, blocks, [a, b, c]),
                [a, b, c, d, ..] => tile::<F, 4>(panel, input, row, blocks, [a, b, c, d]),
                [] => {}
            }
        }
    }
}

/// `R` rows times one panel.
///
/// # Safety
/// As [`PanelKernel::tile`], for `R` rows.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn tile<F: BlockFormat, const R: usize>(
    panel: &[u8],
    input: Int8Input<'_>,
    row: usize,
    blocks: Range<usize>,
    sums: [&mut Sums; R],
) {
    let mut acc = [_mm256_setzero_ps(); R];
    for (acc, sums) in acc.iter_mut().zip(&sums) {
        // SAFETY: `Sums` has more than eight values.
        *acc = unsafe { _mm256_loadu_ps(sums.as_ptr()) };
    }
    let form = input.form;
    for block in blocks {
        // SAFETY: the panel and the rows have this block; its scales and offsets follow its
        // integers; every activation block has a scale and a total.
        unsafe {
            let w = panel.as_ptr().add(block * F::BLOCK_BYTES);
            let mut x = [input.block(row, block); R];
            for (r, x) in x.iter_mut().enumerate() {
                *x = input.block(row + r, block);
            }
            let dots = F::dot(w, &x, form);
            let scale = halves(w.add(F::INTEGERS));
            for (acc, (dot, x)) in acc.iter_mut().zip(dots.iter().zip(&x)) {
                let scale_x = _mm256_set1_ps(*form.scale.get_unchecked(x.index));
                let both = _mm256_mul_ps(scale, scale_x);
                *acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(*dot), both, *acc);
                if F::OFFSETS {
                    let offset = halves(w.add(F::INTEGERS + HALVES));
                    let total = _mm256_set1_ps(*form.total.get_unchecked(x.index));
                    *acc = _mm256_fmadd_ps(offset, total, *acc);
                }
            }
        }
    }
    for (acc, sums) in acc.iter().zip(sums) {
        // SAFETY: `Sums` has more than eight values.
        unsafe { _mm256_storeu_ps(sums.as_mut_ptr(), *acc) };
    }
}

/// Eight f16, widened.
///
/// # Safety
/// F16C, and 16 readable bytes.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn halves(at: *const u8) -> __m256 {
    // SAFETY: the caller's promise.
    _mm256_cvtph_ps(unsafe { _mm_loadu_si128(at.cast()) })
}
