//! Float weights: 16 outputs side by side, one fused multiply-add chain per output.

use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::ops::Range;

use super::panel::{Outputs, PanelKernel, Panels};
use crate::linear::StoredMatrix;
use crate::{Activations, ThreadPool, WeightFormat};

/// Outputs of a panel: two vectors.
const OUTPUTS: usize = 16;
/// Rows of the largest tile; with two vectors each that fills the registers.
const TILE_ROWS: usize = 6;
/// Rows that share one pass over a panel at most.
const BLOCK_ROWS: usize = 10 * TILE_ROWS;
/// Activations of such rows should stay in the second-level cache.
const BLOCK_BYTES: usize = 192 * 1024;
/// Input features of one pass, so that its weights stay in the first-level cache.
const PASS: usize = 256;

/// How many bytes ahead of their use weights are fetched.
const AHEAD: usize = 1024;

/// Running sums of a row.
type Sums = [f32; OUTPUTS];

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
    const NAME: &'static str = "avx2-f32-16";
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
    const NAME: &'static str = "avx2-f16-16";
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
    const NAME: &'static str = "avx2-bf16-16";
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

/// The kernel for elements `E`. A panel is `k x 16` values.
pub(super) struct Float<E>(PhantomData<E>);

/// Activations as they are.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    values: &'a [f32],
    features: usize,
}

// SAFETY: `run` stores outputs of its panels only.
unsafe impl<E: Element> PanelKernel for Float<E> {
    const NAME: &'static str = E::NAME;
    const FORMAT: WeightFormat = E::FORMAT;
    const OUTPUTS: usize = OUTPUTS;
    const TOGETHER: usize = 1;

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

    unsafe fn run(w: Panels<'_>, range: Range<usize>, input: Rows<'_>, out: &Outputs<'_>) {
        let fitting = BLOCK_BYTES / (w.k * 4).max(1);
        let block = (fitting / TILE_ROWS * TILE_ROWS).clamp(TILE_ROWS, BLOCK_ROWS);
        // Few rows make few chains of multiply-adds; more panels at once hide their latency.
        let together = match out.rows {
            1 => 4,
            2 | 3 => 2,
            _ => 1,
        };
        let mut sums = [[0.0; OUTPUTS]; BLOCK_ROWS];
        for first in (0..out.rows).step_by(block) {
            let rows = first..out.rows.min(first + block);
            let mut panel = range.start;
            while panel < range.end {
                let count = if range.end - panel >= together { together } else { 1 };
                let sums = &mut sums[..rows.len() * count];
                // SAFETY: the caller's promises; the panels and the rows exist.
                unsafe { block_rows::<E>(w, panel, count, input, rows.clone(), sums) };
                for (i, sums) in sums.iter().enumerate() {
                    let (row, panel) = (rows.start + i / count, panel + i % count);
                    // SAFETY: this thread alone has these panels.
                    unsafe { out.store(row, panel * OUTPUTS, sums) };
                }
                panel += count;
            }
        }
    }
}

/// The sums of `rows` for `count` panels from `panel` on, row after row.
///
/// # Safety
/// AVX2, FMA and F16C; `sums` holds `rows.len() * count` sums.
unsafe fn block_rows<E: Element>(
    w: Panels<'_>,
    panel: usize,
    count: usize,
    input: Rows<'_>,
    rows: Range<usize>,
    sums: &mut [Sums],
) {
    sums.fill([0.0; OUTPUTS]);
    assert_eq!(input.features, w.k, "activations and panels have the same features");
    assert!(rows.end * input.features <= input.values.len(), "rows outside the activations");
    let panels = w.from(panel);
    assert!(panels.len() >= count * w.stride(), "panels outside the matrix");
    // Equal tiles, so that none is too small to hide the latency of its chains.
    let tile = rows.len().div_ceil(rows.len().div_ceil(TILE_ROWS).max(1)).max(1);
    for start in (0..w.k).step_by(PASS) {
        let pass = start..w.k.min(start + PASS);
        for (i, sums) in sums.chunks_mut(tile * count).enumerate() {
            let row = rows.start + i * tile;
            // SAFETY: the panels and the rows of the chunk exist, as just checked.
            unsafe { any_tile::<E>(panels, w.stride(), count, input, row, pass.clone(), sums) };
        }
    }
}

/// `count` panels times `sums.len() / count` rows.
///
/// # Safety
/// As [`tile`].
unsafe fn any_tile<E: Element>(
    panels: &[u8],
    stride: usize,
    count: usize,
    input: Rows<'_>,
    row: usize,
    k: Range<usize>,
    sums: &mut [Sums],
) {
    macro_rules! dispatch {
        ($($rows:literal x $count:literal = $sums:literal)*) => {
            match (sums.len() / count, count) {
                $(($rows, $count) => if let Some(sums) = sums.first_chunk_mut() {
                    // SAFETY: the caller's promises are those of `tile`.
                    unsafe { tile::<E, $rows, $count, $sums>(panels, stride, input, row, k, sums) }
                },)*
                (rows, count) => unreachable!("no tile of {rows} rows and {count} panels"),
            }
        };
    }
    dispatch!(
        1 x 4 = 4  2 x 2 = 4  3 x 2 = 6
        1 x 1 = 1  2 x 1 = 2  3 x 1 = 3  4 x 1 = 4  5 x 1 = 5  6 x 1 = 6
    );
}

/// Adds the products of features `k` of `R` rows and `P` panels to `S = R * P` sums, row by row.
///
/// # Safety
/// AVX2, FMA and F16C; `P` panels, `stride` bytes apart, and `R` rows from `row` on exist and have
/// the features `k`.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn tile<E: Element, const R: usize, const P: usize, const S: usize>(
    panels: &[u8],
    stride: usize,
    input: Rows<'_>,
    row: usize,
    k: Range<usize>,
    sums: &mut [Sums; S],
) {
    const { assert!(R * P == S) };
    let mut acc = [[_mm256_setzero_ps(); 2]; S];
    for (acc, sums) in acc.iter_mut().zip(&*sums) {
        // SAFETY: `Sums` has 16 values.
        *acc = unsafe { [_mm256_loadu_ps(sums.as_ptr()), _mm256_loadu_ps(sums.as_ptr().add(8))] };
    }
    let vector = 8 * E::BYTES;
    for k in k {
        for p in 0..P {
            // SAFETY: the panel has the feature `k`, hence these 16 values; so do the rows.
            unsafe {
                let at = panels.as_ptr().add(p * stride + k * 2 * vector);
                if R < 4 {
                    // Few rows mean that memory sets the pace. A prefetch may point anywhere.
                    _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(AHEAD).cast());
                }
                let w = [E::load(at), E::load(at.add(vector))];
                for r in 0..R {
                    let x = *input.values.as_ptr().add((row + r) * input.features + k);
                    let x = _mm256_set1_ps(x);
                    let acc = &mut acc[r * P + p];
                    acc[0] = _mm256_fmadd_ps(w[0], x, acc[0]);
                    acc[1] = _mm256_fmadd_ps(w[1], x, acc[1]);
                }
            }
        }
    }
    for (acc, sums) in acc.iter().zip(sums) {
        // SAFETY: `Sums` has 16 values.
        unsafe {
            _mm256_storeu_ps(sums.as_mut_ptr(), acc[0]);
            _mm256_storeu_ps(sums.as_mut_ptr().add(8), acc[1]);
        }
    }
}
