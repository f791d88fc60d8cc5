//! Float weights: 24 outputs side by side, one fused multiply-add chain per output.

use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::ops::Range;

use super::panel::{PanelKernel, Sums};
use crate::linear::StoredMatrix;
use crate::{Activations, ThreadPool, WeightFormat};

/// Outputs of a panel.
const OUTPUTS: usize = 24;
/// Vectors of a panel.
const VECTORS: usize = 3;

/// How eight stored weights become f32.
///
/// # Safety
/// `load` must read exactly `8 * BYTES` bytes.
pub(super) unsafe trait Element: Send + Sync + 'static {
    const NAME: &'static str;
    const FORMAT: WeightFormat;
    /// Bytes of one stored value.
    const BYTES: usize;

    /// Loads and widens eight values.
    ///
    /// # Safety
    /// The processor has AVX2 and F16C, and `8 * BYTES` bytes at `at` may be read.
    unsafe fn load(at: *const u8) -> __m256;
}

/// IEEE single.
pub(super) struct F32;
/// IEEE half.
pub(super) struct F16;
/// bfloat16.
pub(super) struct Bf16;

// SAFETY: reads 32 bytes.
unsafe impl Element for F32 {
    const NAME: &'static str = "avx2-f32-24";
    const FORMAT: WeightFormat = WeightFormat::F32;
    const BYTES: usize = 4;

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: the caller promises 32 readable bytes.
        unsafe { _mm256_loadu_ps(at.cast()) }
    }
}

// SAFETY: reads 16 bytes.
unsafe impl Element for F16 {
    const NAME: &'static str = "avx2-f16-24";
    const FORMAT: WeightFormat = WeightFormat::F16;
    const BYTES: usize = 2;

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: the caller promises 16 readable bytes.
        _mm256_cvtph_ps(unsafe { _mm_loadu_si128(at.cast()) })
    }
}

// SAFETY: reads 16 bytes.
unsafe impl Element for Bf16 {
    const NAME: &'static str = "avx2-bf16-24";
    const FORMAT: WeightFormat = WeightFormat::Bf16;
    const BYTES: usize = 2;

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: the caller promises 16 readable bytes.
        let half = unsafe { _mm_loadu_si128(at.cast()) };
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(half)))
    }
}

/// The kernel for elements `E`. A panel is `k x 24` values.
pub(super) struct Float<E>(PhantomData<E>);

// SAFETY: a panel has `k * 24` values, of which `tile` reads those of its features; rows have
// `features` values, as `Rows` says.
unsafe impl<E: Element> PanelKernel for Float<E> {
    const NAME: &'static str = E::NAME;
    const FORMAT: WeightFormat = E::FORMAT;
    const OUTPUTS: usize = OUTPUTS;
    // A pass over a panel stays near the core while all rows of a block use it.
    const PASS: usize = 512;
    const VALUE_BYTES: usize = 4;

    type Input<'a> = Rows<'a>;

    fn panel_bytes(k: usize) -> usize {
        k * OUTPUTS * E::BYTES
    }

    fn pack_panel(w: &StoredMatrix<'_>, first: usize, panel: &mut [u8]) {
        let outputs = OUTPUTS.min(w.out_features - first);
        for output in 0..outputs {
            let row = w.row(first + output).chunks_exact(E::BYTES);
            let places = panel.chunks_exact_mut(OUTPUTS * E::BYTES);
            for (value, place) in row.zip(places) {
                place[output * E::BYTES..(output + 1) * E::BYTES].copy_from_slice(value);
            }
        }
    }

    fn input<'a>(x: &'a Activations, _: &ThreadPool) -> Rows<'a> {
        Rows { values: x.as_slice(), features: x.features() }
    }

    unsafe fn tile(panel: &[u8], input: Rows<'_>, row: usize, k: Range<usize>, sums: &mut [Sums]) {
        debug_assert!(panel.len() >= Self::panel_bytes(k.end));
        debug_assert!((row + sums.len()) * input.features <= input.values.len());
        // SAFETY: the caller's promises are those of `tile`.
        unsafe {
            match sums {
                [a] => tile::<E, 1>(panel, input, row, k, [a]),
                [a, b] => tile::<E, 2>(panel, input, row, k, [a, b]),
                [a, b, c] => tile::<E, 3>(panel, input, row, k, [a, b, c]),
                [a, b, c, d, ..] => tile::<E, 4>(panel, input, row, k, [a, b, c, d]),
                [] => {}
            }
        }
    }
}

/// Activations as they are.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    values: &'a [f32],
    features: usize,
}

/// `R` rows times one panel.
///
/// # Safety
/// As [`PanelKernel::tile`], for `R` rows.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn tile<E: Element, const R: usize>(
    panel: &[u8],
    input: Rows<'_>,
    row: usize,
    k: Range<usize>,
    sums: [&mut Sums; R],
) {
    let mut acc = [[_mm256_setzero_ps(); VECTORS]; R];
    for (acc, sums) in acc.iter_mut().zip(&sums) {
        for (v, acc) in acc.iter_mut().enumerate() {
            // SAFETY: `Sums` has 24 values.
            *acc = unsafe { _mm256_loadu_ps(sums.as_ptr().add(8 * v)) };
        }
    }
    let step = OUTPUTS * E::BYTES;
    for k in k {
        let mut w = [_mm256_setzero_ps(); VECTORS];
        for (v, w) in w.iter_mut().enumerate() {
            // SAFETY: the panel has the feature `k`, hence these 24 values.
            *w = unsafe { E::load(panel.as_ptr().add(k * step + 8 * v * E::BYTES)) };
        }
        for (r, acc) in acc.iter_mut().enumerate() {
            // SAFETY: the row exists and has the feature `k`.
            let x = unsafe { *input.values.as_ptr().add((row + r) * input.features + k) };
            let x = _mm256_set1_ps(x);
            for (acc, w) in acc.iter_mut().zip(&w) {
                *acc = _mm256_fmadd_ps(*w, x, *acc);
            }
        }
    }
    for (acc, sums) in acc.iter().zip(sums) {
        for (v, acc) in acc.iter().enumerate() {
            // SAFETY: `Sums` has 24 values.
            unsafe { _mm256_storeu_ps(sums.as_mut_ptr().add(8 * v), *acc) };
        }
    }
}
