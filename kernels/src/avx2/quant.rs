//! Block weights times int8 activations: eight outputs side by side.
//!
//! Each block's exact integer sum is multiplied by the product of both scales and added to the
//! output, block after block, for any number of rows.

use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::ops::Range;

use super::block::{BlockFormat, HALVES, OUTPUTS, Spread, floats, halves, word};
use super::panel::{Outputs, PanelKernel, Panels};
use crate::activations::Int8Rows;
use crate::format::BLOCK;
use crate::linear::StoredMatrix;
use crate::{Activations, ThreadPool, WeightFormat};

/// Rows of the largest tile.
const TILE_ROWS: usize = 4;
/// Activation blocks that are spread at a time, shared by the rows of a tile: 17 KiB.
const SPREAD_BLOCKS: usize = 48;
/// Weights of a group of panels should stay in the second-level cache.
const GROUP_BYTES: usize = 192 * 1024;
/// Panels of a group at most.
const GROUP_PANELS: usize = 64;

/// Running sums of a row.
type Sums = [f32; OUTPUTS];

/// The kernel for blocks of format `F`.
pub(super) struct Quant<F>(PhantomData<F>);

/// The int8 form of activation rows.
#[derive(Clone, Copy)]
pub(super) struct Int8Input<'a> {
    form: &'a Int8Rows,
    /// Blocks of a row.
    blocks: usize,
}

impl Int8Input<'_> {
    /// Repeats the blocks of a row for each output.
    fn spread<F: BlockFormat>(&self, row: usize, blocks: Range<usize>, to: &mut [Spread]) {
        let first = row * self.blocks + blocks.start;
        for (i, to) in to.iter_mut().take(blocks.len()).enumerate() {
            to.fill::<F>(self.form, first + i);
        }
    }
}

// SAFETY: `run` stores outputs of its panels only.
unsafe impl<F: BlockFormat> PanelKernel for Quant<F> {
    const NAME: &'static str = F::NAME;
    const FORMAT: WeightFormat = F::FORMAT;
    const OUTPUTS: usize = OUTPUTS;

    type Input<'a> = Int8Input<'a>;

    fn panel_bytes(k: usize) -> usize {
        k / BLOCK * F::BLOCK_BYTES
    }

    /// Vector `v` of a panel block holds, for each output, bytes `4 v..4 v + 4` of its stored
    /// block.
    fn pack_panel(w: &StoredMatrix<'_>, first: usize, panel: &mut [u8]) {
        let head = if F::OFFSETS { 4 } else { 2 };
        for output in 0..OUTPUTS.min(w.out_features - first) {
            let blocks = w.row(first + output).chunks_exact(F::FORMAT.block_bytes());
            for (block, place) in blocks.zip(panel.chunks_exact_mut(F::BLOCK_BYTES)) {
                let (head, integers) = block.split_at(head);
                for (v, word) in integers.as_chunks::<4>().0.iter().enumerate() {
                    let at = v * 4 * OUTPUTS + 4 * output;
                    place[at..at + 4].copy_from_slice(&word.map(F::byte));
                }
                for (i, half) in head.as_chunks::<2>().0.iter().enumerate() {
                    let at = F::INTEGERS + i * HALVES + 2 * output;
                    place[at..at + 2].copy_from_slice(half);
                }
            }
        }
    }

    fn input<'a>(x: &'a Activations, pool: &ThreadPool) -> Int8Input<'a> {
        Int8Input { form: x.int8(pool), blocks: x.features() / BLOCK }
    }

    unsafe fn run(w: Panels<'_>, range: Range<usize>, input: Int8Input<'_>, out: &Outputs<'_>) {
        let group = (GROUP_BYTES / w.stride().max(1)).clamp(8, GROUP_PANELS);
        let mut sums = [[0.0; OUTPUTS]; GROUP_PANELS * TILE_ROWS];
        let mut spread = [Spread::EMPTY; SPREAD_BLOCKS];
        for start in range.clone().step_by(group) {
            let panels = start..range.end.min(start + group);
            for row in (0..out.rows).step_by(TILE_ROWS) {
                let rows = row..out.rows.min(row + TILE_ROWS);
                let sums = &mut sums[..panels.len() * rows.len()];
                // SAFETY: the caller's promises; the panels and rows exist.
                unsafe {
                    group_rows::<F>(w, panels.clone(), input, rows.clone(), sums, &mut spread)
                };
                for (panel, sums) in panels.clone().zip(sums.chunks_exact(rows.len())) {
                    for (row, sums) in rows.clone().zip(sums) {
                        // SAFETY: this thread alone has these panels.
                        unsafe { out.store(row, panel * OUTPUTS, sums) };
                    }
                }
            }
        }
    }
}

/// The sums of a few rows for a group of panels, panel after panel.
///
/// # Safety
/// AVX2, FMA and F16C; the panels have as many features as the rows; `sums` holds
/// `panels.len() * rows.len()` sums, and there are 1 to 4 rows.
unsafe fn group_rows<F: BlockFormat>(
    w: Panels<'_>,
    panels: Range<usize>,
    input: Int8Input<'_>,
    rows: Range<usize>,
    sums: &mut [Sums],
    spread: &mut [Spread; SPREAD_BLOCKS],
) {
    sums.fill([0.0; OUTPUTS]);
    let count = rows.len();
    // As many blocks as fit the buffer for all rows: a whole panel is read in one go for one row.
    let pass = SPREAD_BLOCKS / count;
    for start in (0..input.blocks).step_by(pass) {
        let blocks = start..input.blocks.min(start + pass);
        for (row, to) in rows.clone().zip(spread.chunks_exact_mut(pass)) {
            input.spread::<F>(row, blocks.clone(), to);
        }
        // Few rows mean that memory sets the pace; more panels at once are more requests to it.
        let together = TILE_ROWS / count;
        let mut panel = panels.start;
        for sums in sums.chunks_mut(together * count) {
            let w = w.part(panel, sums.len() / count, blocks.clone(), F::BLOCK_BYTES);
            if sums.len() < together * count {
                for (p, sums) in sums.chunks_mut(count).enumerate() {
                    // SAFETY: the caller's promise about the processor.
                    unsafe { any_tile::<F>(w.only(p), count, spread, sums) };
                }
            } else {
                // SAFETY: as above.
                unsafe { any_tile::<F>(w, count, spread, sums) };
            }
            panel += together;
        }
    }
}

/// Blocks of a few panels of equal length, `stride` bytes apart.
#[derive(Clone, Copy)]
struct Part<'a> {
    bytes: &'a [u8],
    stride: usize,
    /// Bytes of the part in each panel.
    len: usize,
}

impl Panels<'_> {
    /// Blocks of `count` panels.
    fn part(
        &self,
        panel: usize,
        count: usize,
        blocks: Range<usize>,
        block_bytes: usize,
    ) -> Part<'_> {
        let bytes = &self.from(panel)[..count * self.stride()][blocks.start * block_bytes..];
        Part { bytes, stride: self.stride(), len: blocks.len() * block_bytes }
    }
}

impl Part<'_> {
    /// The part of one panel.
    fn only(&self, panel: usize) -> Self {
        Self { bytes: &self.bytes[panel * self.stride..], ..*self }
    }
}

/// `rows` spread rows times the panels of `w`; there is a tile for this number of sums.
///
/// # Safety
/// AVX2, FMA and F16C.
unsafe fn any_tile<F: BlockFormat>(
    w: Part<'_>,
    rows: usize,
    spread: &[Spread; SPREAD_BLOCKS],
    sums: &mut [Sums],
) {
    macro_rules! dispatch {
        ($($rows:literal x $sums:literal)*) => {
            match (rows, sums.len()) {
                $(($rows, $sums) => if let Some(sums) = sums.first_chunk_mut() {
                    // SAFETY: the caller's promise.
                    unsafe { tile::<F, $rows, $sums>(w, spread, sums) }
                },)*
                (rows, sums) => unreachable!("no tile of {rows} rows and {sums} sums"),
            }
        };
    }
    dispatch!(1 x 4  2 x 4  1 x 1  2 x 2  3 x 3  4 x 4);
}

/// Adds the products of blocks of `S / R` panels and `R` spread rows to their sums, panel by panel.
/// The panels that follow are fetched meanwhile.
///
/// # Safety
/// AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn tile<F: BlockFormat, const R: usize, const S: usize>(
    w: Part<'_>,
    spread: &[Spread; SPREAD_BLOCKS],
    sums: &mut [Sums; S],
) {
    const { assert!(S.is_multiple_of(R)) };
    let pass = SPREAD_BLOCKS / R;
    assert!((S / R - 1) * w.stride + w.len <= w.bytes.len(), "a panel lies outside the matrix");
    assert!(w.len <= pass * F::BLOCK_BYTES, "more blocks than were spread");
    let mut acc = [_mm256_setzero_ps(); S];
    for (acc, sums) in acc.iter_mut().zip(&*sums) {
        *acc = floats(sums);
    }
    for i in 0..w.len / F::BLOCK_BYTES {
        let mut x = [&spread[i]; R];
        for (r, x) in x.iter_mut().enumerate() {
            *x = &spread[r * pass + i];
        }
        // SAFETY: each panel has this block: integers, scales and, if any, offsets.
        unsafe {
            let block = w.bytes.as_ptr().add(i * F::BLOCK_BYTES);
            let dots = F::dot::<R, S>(block, w.stride, &x);
            for p in 0..S / R {
                let panel = block.add(p * w.stride);
                for line in (0..F::BLOCK_BYTES).step_by(64) {
                    // A prefetch may point anywhere.
                    let next = panel.wrapping_add(S / R * w.stride + line);
                    _mm_prefetch::<_MM_HINT_T1>(next.cast());
                }
                let scale = halves(panel.add(F::INTEGERS));
                for (r, x) in x.iter().enumerate() {
                    let i = p * R + r;
                    let dot = match F::BIAS {
                        0 => dots[i],
                        _ => _mm256_sub_epi32(dots[i], word(&x.bias)),
                    };
                    let both = _mm256_mul_ps(scale, floats(&x.scale));
                    acc[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), both, acc[i]);
                    if F::OFFSETS {
                        let offset = halves(panel.add(F::INTEGERS + HALVES));
                        acc[i] = _mm256_fmadd_ps(offset, floats(&x.total), acc[i]);
                    }
                }
            }
        }
    }
    for (acc, sums) in acc.iter().zip(sums) {
        // SAFETY: `Sums` has eight values.
        unsafe { _mm256_storeu_ps(sums.as_mut_ptr(), *acc) };
    }
}
