//! What the block formats share: an activation block repeated for each output, and how integers of
//! four to six bits lie in a panel and are multiplied with int8 activations.
//!
//! Block sums are exact in i32, so how they are formed cannot change a bit.

use std::arch::asm;
use std::arch::x86_64::*;

use crate::WeightFormat;
use crate::activations::Int8Rows;
use crate::format::{BLOCK, Block, centre};

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

/// An activation block with everything repeated for each output, so that the multiplications take
/// it from memory.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Spread {
    /// Four consecutive activations each.
    pub(super) words: [[i32; OUTPUTS]; BLOCK / 4],
    /// What the centre of stored integers adds to a sum of products.
    pub(super) bias: [i32; OUTPUTS],
    /// For each half of the block what the centre takes from the two i16 lanes of an output: in
    /// one lane are the first two of each four activations, in the other the last two.
    pub(super) lanes: [[i32; OUTPUTS]; 2],
    pub(super) scale: [f32; OUTPUTS],
    /// Scale times the sum of the activations.
    pub(super) total: [f32; OUTPUTS],
}

impl Spread {
    pub(super) const EMPTY: Self = Self {
        words: [[0; OUTPUTS]; BLOCK / 4],
        bias: [0; OUTPUTS],
        lanes: [[0; OUTPUTS]; 2],
        scale: [0.0; OUTPUTS],
        total: [0.0; OUTPUTS],
    };

    /// Takes block `at` of `form` for format `F`.
    pub(super) fn fill<F: BlockFormat>(&mut self, form: &Int8Rows, at: usize) {
        let q = &form.q[at * BLOCK..(at + 1) * BLOCK];
        for (word, q) in self.words.iter_mut().zip(q.as_chunks::<4>().0) {
            *word = [i32::from_le_bytes(q.map(i8::cast_unsigned)); OUTPUTS];
        }
        if F::LANES {
            for (lanes, half) in self.lanes.iter_mut().zip(q.as_chunks::<16>().0) {
                *lanes = [lane_sums(half, centre(F::FORMAT)); OUTPUTS];
            }
        } else if F::BIAS != 0 {
            self.bias = [F::BIAS * form.sum[at]; OUTPUTS];
        }
        self.scale = [form.scale[at]; OUTPUTS];
        if F::OFFSETS {
            self.total = [form.total[at]; OUTPUTS];
        }
    }
}

/// Minus `centre` times the activations, summed for the two i16 lanes of an output.
fn lane_sums(q: &[i8; 16], centre: i32) -> i32 {
    let mut sums = [0i32; 2];
    for q in q.as_chunks::<2>().0.as_chunks::<2>().0 {
        for (sum, pair) in sums.iter_mut().zip(q) {
            *sum -= centre * (i32::from(pair[0]) + i32::from(pair[1]));
        }
    }
    // At most 32 * 8 * 127 in magnitude, so both are whole in 16 bits.
    sums[0] & 0xffff | sums[1] << 16
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
    /// Whether [`Spread::lanes`] is used.
    const LANES: bool = false;
    /// What is still in the weights that `dot` multiplies with.
    const BIAS: i32 = if Self::LANES { 0 } else { centre(Self::FORMAT) };
    /// Bytes of a unit of all outputs.
    const UNIT_BYTES: usize = Self::HEAD + Self::UNIT * Self::BLOCK_BYTES;

    /// Puts a block of output `output` into its place.
    fn pack(block: &Block, output: usize, head: &mut [u8], place: &mut [u8]);

    /// Exact sums of products, with the bias still in them: eight outputs for each panel of `w`
    /// (their number is `S / R`) and each row of `x`.
    ///
    /// # Safety
    /// The processor has AVX2, and at `w` and each further `stride` is a block.
    unsafe fn dot<const R: usize, const S: usize>(
        w: *const u8,
        stride: usize,
        x: &[&Spread; R],
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

/// Vectors `v` of the low and the high values of a block of `BITS` bits.
///
/// # Safety
/// AVX2; at `w` are the nibbles of a block and, right behind them, its upper bits.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn split<const BITS: usize>(w: *const u8, v: usize) -> [__m256i; 2] {
    // SAFETY: there are four vectors of nibbles and then one or two of upper bits.
    let load = |at: usize| unsafe { _mm256_loadu_si256(w.add(at).cast()) };
    let mask = _mm256_set1_epi8(0x0f);
    let both = load(VECTOR * v);
    let low = _mm256_and_si256(both, mask);
    let high = _mm256_and_si256(_mm256_srli_epi16::<4>(both), mask);
    match BITS {
        4 => [low, high],
        5 => {
            let (mask, upper) = (_mm256_set1_epi8(0x10), load(NIBBLES));
            let (down, up) = (shift_right(upper, v), shift_left(upper, 4 - v));
            let (down, up) = (_mm256_and_si256(down, mask), _mm256_and_si256(up, mask));
            [_mm256_or_si256(low, down), _mm256_or_si256(high, up)]
        }
        _ => {
            let mask = _mm256_set1_epi8(0x30);
            let first = _mm256_and_si256(two_bits(load(NIBBLES), v), mask);
            let second = _mm256_and_si256(two_bits(load(NIBBLES + VECTOR), v), mask);
            [_mm256_or_si256(low, first), _mm256_or_si256(high, second)]
        }
    }
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

/// Sums of products of both halves of a block of at most five bits, in two i16 lanes an output.
///
/// # Safety
/// As of [`split`] at `w` and each further `stride`.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn lane_dots<const BITS: usize, const R: usize, const S: usize>(
    w: *const u8,
    stride: usize,
    x: &[&Spread; R],
) -> [[__m256i; S]; 2] {
    // A pair of products is at most 2 * 31 * 127 in magnitude, and the sum of the four pairs that
    // a half adds to a lane at most 31,496: no i16 overflows.
    let mut dots = [[_mm256_setzero_si256(); S]; 2];
    for v in 0..BLOCK / 8 {
        for p in 0..S / R {
            // SAFETY: the caller's promise.
            let [low, high] = unsafe { split::<BITS>(w.add(p * stride), v) };
            for (r, x) in x.iter().enumerate() {
                let i = p * R + r;
                let product = _mm256_maddubs_epi16(low, word(&x.words[v]));
                dots[0][i] = pinned(_mm256_add_epi16(dots[0][i], product));
                let product = _mm256_maddubs_epi16(high, word(&x.words[BLOCK / 8 + v]));
                dots[1][i] = pinned(_mm256_add_epi16(dots[1][i], product));
            }
        }
    }
    dots
}

/// Sums of nibbles times activations, in two i16 lanes an output.
///
/// # Safety
/// As of [`split`] at `w` and each further `stride`.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn nibble_dots<const R: usize, const S: usize>(
    w: *const u8,
    stride: usize,
    x: &[&Spread; R],
) -> [__m256i; S] {
    // A pair of products is at most 2 * 15 * 127 in magnitude and the sum of eight pairs at most
    // 30,480: no i16 overflows.
    let mut dots = [_mm256_setzero_si256(); S];
    for v in 0..BLOCK / 8 {
        for p in 0..S / R {
            // SAFETY: the caller's promise.
            let [low, high] = unsafe { split::<4>(w.add(p * stride), v) };
            for (r, x) in x.iter().enumerate() {
                let dot = &mut dots[p * R + r];
                let product = _mm256_maddubs_epi16(low, word(&x.words[v]));
                *dot = _mm256_add_epi16(*dot, product);
                let product = _mm256_maddubs_epi16(high, word(&x.words[BLOCK / 8 + v]));
                *dot = pinned(_mm256_add_epi16(*dot, product));
            }
        }
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
