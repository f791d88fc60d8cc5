//! What the block formats share: how integers of four to six bits lie in a panel, and how they are
//! multiplied with int8 activations.
//!
//! A vector of weights holds four consecutive values of each of eight outputs; the activations that
//! they meet are the same for all outputs, so a tile reads them as four bytes for all lanes.
//! Block sums are exact in i32, so how they are formed cannot change a bit.

use std::arch::asm;
use std::arch::x86_64::*;

use crate::WeightFormat;
use crate::activations::Int8Rows;
use crate::format::{BLOCK, Block};

/// Outputs of a panel: the lanes of a vector.
pub(super) const OUTPUTS: usize = 8;
/// Bytes of one f16 per output.
pub(super) const HALVES: usize = 2 * OUTPUTS;
/// Bytes of a vector.
const VECTOR: usize = 4 * OUTPUTS;
/// Bytes of the low four bits of a block of all outputs.
pub(super) const NIBBLES: usize = OUTPUTS * BLOCK / 2;
/// Bytes of five-bit integers: the fifth bits follow the nibbles.
pub(super) const FIVE_BITS: usize = NIBBLES + OUTPUTS * BLOCK / 8;

/// One block of a few rows of activations: where each row's values are.
///
/// Plain pointers, so that the compiler reads each number where it is used instead of collecting
/// them in vectors.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    q: *const i8,
    lanes: *const [i32; 2],
    scale: *const f32,
    sum: *const i32,
    total: *const f32,
    /// Blocks of a row: the distance of the rows.
    blocks: usize,
}

impl Rows {
    /// Block `at` of all rows' blocks, and the same block of the rows that follow.
    ///
    /// `lanes` are as [`crate::activations::Lanes`] has them, or nothing where the format does not
    /// use them.
    pub(super) fn new(form: &Int8Rows, lanes: &[[i32; 2]], blocks: usize, at: usize) -> Self {
        let Int8Rows { q, scale, sum, total } = form;
        assert!(at <= scale.len() && scale.len() == sum.len() && scale.len() == total.len());
        assert!(q.len() == scale.len() * BLOCK);
        Self {
            q: q[at * BLOCK..].as_ptr(),
            lanes: lanes.get(at..).map_or(lanes.as_ptr(), <[_]>::as_ptr),
            scale: scale[at..].as_ptr(),
            sum: sum[at..].as_ptr(),
            total: total[at..].as_ptr(),
            blocks,
        }
    }

    /// The block `count` further on. There must be one when it is read.
    pub(super) const fn skip(&self, count: usize) -> Self {
        Self {
            q: self.q.wrapping_add(count * BLOCK),
            lanes: self.lanes.wrapping_add(count),
            scale: self.scale.wrapping_add(count),
            sum: self.sum.wrapping_add(count),
            total: self.total.wrapping_add(count),
            blocks: self.blocks,
        }
    }

    /// Word `at` of a row: four consecutive values, for every output.
    ///
    /// # Safety
    /// AVX2; there are that row and eight words.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn word(&self, row: usize, at: usize) -> __m256i {
        // SAFETY: the caller's promise.
        let word = unsafe { self.q.add(row * self.blocks * BLOCK + 4 * at).cast::<i32>() };
        // SAFETY: as above; any alignment will do.
        _mm256_set1_epi32(unsafe { word.read_unaligned() })
    }

    /// The lane sums of half a block.
    ///
    /// # Safety
    /// AVX2; there are that row, two halves, and lanes.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn lanes(&self, row: usize, half: usize) -> __m256i {
        // SAFETY: the caller's promise.
        _mm256_set1_epi32(unsafe { (*self.lanes.add(row * self.blocks))[half] })
    }

    /// The scale.
    ///
    /// # Safety
    /// AVX2; there is that row.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn scale(&self, row: usize) -> __m256 {
        // SAFETY: the caller's promise.
        _mm256_set1_ps(unsafe { *self.scale.add(row * self.blocks) })
    }

    /// The sum of the int8 values.
    ///
    /// # Safety
    /// There is that row.
    #[inline]
    pub(super) unsafe fn sum(&self, row: usize) -> i32 {
        // SAFETY: the caller's promise.
        unsafe { *self.sum.add(row * self.blocks) }
    }

    /// Scale times sum.
    ///
    /// # Safety
    /// AVX2; there is that row.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn total(&self, row: usize) -> __m256 {
        // SAFETY: the caller's promise.
        _mm256_set1_ps(unsafe { *self.total.add(row * self.blocks) })
    }
}

/// How a block format lies in a panel: units of a head and one or several blocks. A block is its
/// integers and, in formats with several blocks under a head, their integer scales.
///
/// # Safety
/// The functions must read only `HEAD` bytes of a head and `BLOCK_BYTES` of a panel block.
pub(super) unsafe trait BlockFormat: Send + Sync + 'static {
    const NAME: &'static str;
    const FORMAT: WeightFormat;
    /// Blocks of a unit.
    const UNIT: usize;
    /// Bytes of what all blocks of a unit share, for all outputs.
    const HEAD: usize;
    /// Bytes of a block of all outputs.
    const BLOCK_BYTES: usize;
    /// Whether an offset is added to each weight.
    const OFFSETS: bool;
    /// Whether [`Rows::lanes`] is used.
    const LANES: bool;
    /// What was added to the weights that `dot` multiplies with: its result has so many times the
    /// sum of the activations too much.
    const BIAS: i32;
    /// Bytes of a unit of all outputs.
    const UNIT_BYTES: usize = Self::HEAD + Self::UNIT * Self::BLOCK_BYTES;

    /// Puts a block of output `output` into its place.
    fn pack(block: &Block, output: usize, head: &mut [u8], place: &mut [u8]);

    /// Exact sums of products, with the bias still in them: eight outputs for each panel of `w`
    /// (their number is `S / R`) and each row of `x`; result `p * R + r` is of panel p and row r.
    ///
    /// # Safety
    /// The processor has AVX2, at `w` and each further `stride` is a block, and `x` has `R` rows
    /// (and lanes, if used).
    unsafe fn dot<const R: usize, const S: usize>(
        w: *const u8,
        stride: usize,
        x: &Rows,
    ) -> [__m256i; S];

    /// What the sums are multiplied with.
    ///
    /// # Safety
    /// F16C; at `head` is a head and at `block` one of its blocks.
    unsafe fn scale(head: *const u8, block: *const u8) -> __m256;

    /// What is added to each weight, in formats that have it.
    ///
    /// # Safety
    /// As of `scale`.
    unsafe fn offset(head: *const u8, block: *const u8) -> __m256;
}

/// Puts the low four bits of an output's integers in place: byte `4 output + t` of vector `v` has
/// values `4 v + t` and, above it, `16 + 4 v + t`.
pub(super) fn pack_nibbles(q: &[u8; BLOCK], output: usize, place: &mut [u8]) {
    for i in 0..BLOCK / 2 {
        place[i / 4 * VECTOR + 4 * output + i % 4] = q[i] & 0x0f | q[i + BLOCK / 2] << 4;
    }
}

/// Puts an output's five-bit integers in place: behind the nibbles is a vector whose byte
/// `4 output + t` has the fifth bits of the values `16 + 4 v + t` and, above them, those of
/// `4 v + t`, v from 0 to 3.
pub(super) fn pack_five(q: &[u8; BLOCK], output: usize, place: &mut [u8]) {
    pack_nibbles(q, output, place);
    for i in 0..BLOCK / 2 {
        let (low, high) = (q[i] >> 4 & 1, q[i + BLOCK / 2] >> 4 & 1);
        place[NIBBLES + 4 * output + i % 4] |= low << (4 + i / 4) | high << (i / 4);
    }
}

/// Puts the fifth and sixth bits of an output's integers in two vectors, one for each half of the
/// values: byte `4 output + t` has those of `4 v + t` at [`two_bits`]' place for `v`.
pub(super) fn pack_upper_pairs(q: &[u8; BLOCK], output: usize, place: &mut [u8]) {
    for (half, q) in q.as_chunks::<16>().0.iter().enumerate() {
        for (i, q) in q.iter().enumerate() {
            let at = half * VECTOR + 4 * output + i % 4;
            place[at] |= (q >> 4 & 3) << ((2 * (i / 4) + 4) % 8);
        }
    }
}

/// Vector `v` of the values of a block of `BITS` bits; 0 to 3 are the low nibbles, 4 to 7 the high.
///
/// # Safety
/// AVX2; at `w` are the nibbles of a block and, right behind them, its upper bits.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn values<const BITS: usize>(w: *const u8, v: usize) -> __m256i {
    // SAFETY: there are four vectors of nibbles and then one or two of upper bits.
    let load = |at: usize| unsafe { _mm256_loadu_si256(w.add(at).cast()) };
    let (half, v) = (v / 4, v % 4);
    let both = load(VECTOR * v);
    let both = if half == 0 { both } else { _mm256_srli_epi16::<4>(both) };
    let nibbles = _mm256_and_si256(both, _mm256_set1_epi8(0x0f));
    let upper = match BITS {
        4 => return nibbles,
        5 if half == 0 => shift_right(load(NIBBLES), v),
        5 => shift_left(load(NIBBLES), 4 - v),
        _ => two_bits(load(NIBBLES + VECTOR * half), v),
    };
    let mask = _mm256_set1_epi8(if BITS == 5 { 0x10 } else { 0x30 });
    _mm256_or_si256(nibbles, _mm256_and_si256(upper, mask))
}

/// Brings the pair of bits of vector `v` to bits 4 and 5 of each byte.
#[inline]
#[target_feature(enable = "avx2")]
fn two_bits(upper: __m256i, v: usize) -> __m256i {
    match v {
        0 => upper,
        1 => _mm256_srli_epi16::<2>(upper),
        2 => _mm256_slli_epi16::<4>(upper),
        _ => _mm256_slli_epi16::<2>(upper),
    }
}

/// Shifts by an amount that is known once the loop around it is unrolled.
#[inline]
#[target_feature(enable = "avx2")]
fn shift_right(value: __m256i, bits: usize) -> __m256i {
    match bits {
        0 => value,
        1 => _mm256_srli_epi16::<1>(value),
        2 => _mm256_srli_epi16::<2>(value),
        _ => _mm256_srli_epi16::<3>(value),
    }
}

/// As [`shift_right`].
#[inline]
#[target_feature(enable = "avx2")]
fn shift_left(value: __m256i, bits: usize) -> __m256i {
    match bits {
        1 => _mm256_slli_epi16::<1>(value),
        2 => _mm256_slli_epi16::<2>(value),
        3 => _mm256_slli_epi16::<3>(value),
        _ => _mm256_slli_epi16::<4>(value),
    }
}

/// Adds the products of vectors `from..to` of a block of `BITS` bits to `dots`, in two i16 lanes an
/// output. Sums wrap around; single products pairs (at most 2 * 63 * 127) do not.
///
/// # Safety
/// As of [`values`] at `w` and each further `stride`, and of [`BlockFormat::dot`].
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn add_lanes<const BITS: usize, const R: usize, const S: usize>(
    w: *const u8,
    stride: usize,
    x: &Rows,
    half: usize,
    dots: &mut [__m256i; S],
) {
    for v in BLOCK / 8 * half..BLOCK / 8 * (half + 1) {
        let mut w_values = [_mm256_setzero_si256(); S];
        for (p, values_p) in w_values.iter_mut().enumerate().take(S / R) {
            // SAFETY: the caller's promise.
            *values_p = unsafe { values::<BITS>(w.add(p * stride), v) };
        }
        for r in 0..R {
            // SAFETY: as above.
            let x = unsafe { x.word(r, v) };
            for p in 0..S / R {
                let dot = &mut dots[p * R + r];
                *dot = pinned(_mm256_add_epi16(*dot, _mm256_maddubs_epi16(w_values[p], x)));
            }
        }
    }
}

/// Sums of nibbles times activations, in two i16 lanes an output.
///
/// # Safety
/// As of [`add_lanes`].
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn four_bit_lanes<const R: usize, const S: usize>(
    w: *const u8,
    stride: usize,
    x: &Rows,
) -> [__m256i; S] {
    // A pair of products is at most 2 * 15 * 127 in magnitude and the sum of eight pairs at most
    // 30,480: no i16 overflows.
    let mut dots = [_mm256_setzero_si256(); S];
    for half in 0..2 {
        // SAFETY: the caller's promise.
        unsafe { add_lanes::<4, R, S>(w, stride, x, half, &mut dots) };
    }
    dots
}

/// Sums of five-bit values less 16 times activations, in two i16 lanes an output.
///
/// # Safety
/// As of [`add_lanes`].
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn five_bit_lanes<const R: usize, const S: usize>(
    w: *const u8,
    stride: usize,
    x: &Rows,
) -> [__m256i; S] {
    // Each lane starts with what the 16 takes from it. What is left in the end is the sum of 16
    // products of at most 16 * 127 in magnitude, which a lane holds, so wrapping on the way is
    // harmless.
    let mut dots = [_mm256_setzero_si256(); S];
    for r in 0..R {
        // SAFETY: the caller's promise.
        let both = unsafe { _mm256_add_epi16(x.lanes(r, 0), x.lanes(r, 1)) };
        let start = _mm256_mullo_epi16(both, _mm256_set1_epi16(-16));
        (0..S / R).for_each(|p| dots[p * R + r] = start);
    }
    for half in 0..2 {
        // SAFETY: the caller's promise.
        unsafe { add_lanes::<5, R, S>(w, stride, x, half, &mut dots) };
    }
    dots
}

/// Sums of half a block of six-bit values less 32 times activations, in two i16 lanes an output.
///
/// # Safety
/// As of [`add_lanes`].
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn six_bit_lanes<const R: usize, const S: usize>(
    w: *const u8,
    stride: usize,
    x: &Rows,
    half: usize,
) -> [__m256i; S] {
    // As in `five_bit_lanes`, with eight products of at most 32 * 127.
    let mut dots = [_mm256_setzero_si256(); S];
    for r in 0..R {
        // SAFETY: the caller's promise.
        let lanes = unsafe { x.lanes(r, half) };
        let start = _mm256_mullo_epi16(lanes, _mm256_set1_epi16(-32));
        (0..S / R).for_each(|p| dots[p * R + r] = start);
    }
    // SAFETY: the caller's promise.
    unsafe { add_lanes::<6, R, S>(w, stride, x, half, &mut dots) };
    dots
}

/// The same value in a register, opaque to the compiler.
///
/// Without it, and its fixed place in the order of the code, the compiler turns the sums into trees
/// over all rows at once and runs out of registers, which halves the speed.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn pinned(mut value: __m256i) -> __m256i {
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
