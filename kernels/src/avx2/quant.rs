//! Block weights times int8 activations: eight outputs side by side.
//!
//! Each block's exact integer sum is multiplied by the product of both scales and added to the
//! output, block after block, for any number of rows.

use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::ops::Range;

use super::block::{BlockFormat, OUTPUTS, Spread, floats, word};
use super::panel::{Outputs, PanelKernel, Panels};
use crate::activations::Int8Rows;
use crate::format::{BLOCK, Block};
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
        k / (BLOCK * F::UNIT) * F::UNIT_BYTES
    }

    fn pack_panel(w: &StoredMatrix<'_>, first: usize, panel: &mut [u8]) {
        for output in 0..OUTPUTS.min(w.out_features - first) {
            let row = w.row(first + output);
            for (unit, place) in panel.chunks_exact_mut(F::UNIT_BYTES).enumerate() {
                let (head, blocks) = place.split_at_mut(F::HEAD);
                for (part, place) in blocks.chunks_exact_mut(F::BLOCK_BYTES).enumerate() {
                    let block = Block::read(F::FORMAT, row, unit * F::UNIT + part);
                    F::pack(&block, output, head, place);
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
    let pass = pass::<F>(count);
    for start in (0..input.blocks).step_by(pass) {
        let blocks = start..input.blocks.min(start + pass);
        for (row, to) in rows.clone().zip(spread.chunks_exact_mut(pass)) {
            input.spread::<F>(row, blocks.clone(), to);
        }
        // Few rows mean that memory sets the pace; more panels at once are more requests to it.
        let together = TILE_ROWS / count;
        let mut panel = panels.start;
        for sums in sums.chunks_mut(together * count) {
            let units = blocks.start / F::UNIT..blocks.end / F::UNIT;
            let w = w.part(panel, sums.len() / count, units, F::UNIT_BYTES);
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

/// Blocks of a row that are spread at a time where there are `rows` rows: whole units.
const fn pass<F: BlockFormat>(rows: usize) -> usize {
    SPREAD_BLOCKS / rows / F::UNIT * F::UNIT
}

/// Units of a few panels of equal length, `stride` bytes apart.
#[derive(Clone, Copy)]
struct Part<'a> {
    bytes: &'a [u8],
    stride: usize,
    /// Bytes of the part in each panel.
    len: usize,
}

impl Panels<'_> {
    /// Units of `count` panels.
    fn part(&self, panel: usize, count: usize, units: Range<usize>, unit_bytes: usize) -> Part<'_> {
        let bytes = &self.from(panel)[..count * self.stride()][units.start * unit_bytes..];
        Part { bytes, stride: self.stride(), len: units.len() * unit_bytes }
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
    let pass = pass::<F>(R);
    assert!((S / R - 1) * w.stride + w.len <= w.bytes.len(), "a panel lies outside the matrix");
    assert!(w.len / F::UNIT_BYTES * F::UNIT <= pass, "more blocks than were spread");
    let mut acc = [_mm256_setzero_ps(); S];
    for (acc, sums) in acc.iter_mut().zip(&*sums) {
        *acc = floats(sums);
    }
    for unit in 0..w.len / F::UNIT_BYTES {
        // SAFETY: each panel has this unit.
        let head = unsafe { w.bytes.as_ptr().add(unit * F::UNIT_BYTES) };
        for part in 0..F::UNIT {
            let mut x = [&spread[unit * F::UNIT + part]; R];
            for (r, x) in x.iter_mut().enumerate() {
                *x = &spread[r * pass + unit * F::UNIT + part];
            }
            // SAFETY: the head has this block.
            unsafe {
                let block = head.add(F::HEAD + part * F::BLOCK_BYTES);
                add_block::<F, R, S>(head, block, w.stride, &x, &mut acc);
            }
        }
    }
    for (acc, sums) in acc.iter().zip(sums) {
        // SAFETY: `Sums` has eight values.
        unsafe { _mm256_storeu_ps(sums.as_mut_ptr(), *acc) };
    }
}

/// Adds the products of one block of each panel.
///
/// # Safety
/// AVX2, FMA and F16C; at `head` and `block` and each further `stride` are a unit's head and one
/// of its blocks.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add_block<F: BlockFormat, const R: usize, const S: usize>(
    head: *const u8,
    block: *const u8,
    stride: usize,
    x: &[&Spread; R],
    acc: &mut [__m256; S],
) {
    // SAFETY: the caller's promises.
    unsafe {
        let dots = F::dot::<R, S>(block, stride, x);
        for p in 0..S / R {
            let (head, block) = (head.add(p * stride), block.add(p * stride));
            for line in (0..F::BLOCK_BYTES).step_by(64) {
                // A prefetch may point anywhere.
                let next = block.wrapping_add(S / R * stride + line);
                _mm_prefetch::<_MM_HINT_T1>(next.cast());
            }
            let scale = F::scale(head, block);
            for (r, x) in x.iter().enumerate() {
                let i = p * R + r;
                let dot = match F::BIAS {
                    0 => dots[i],
                    _ => _mm256_sub_epi32(dots[i], word(&x.bias)),
                };
                let both = _mm256_mul_ps(scale, floats(&x.scale));
                acc[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), both, acc[i]);
                if F::OFFSETS {
                    let offset = F::offset(head, block);
                    acc[i] = _mm256_fmadd_ps(offset, floats(&x.total), acc[i]);
                }
            }
        }
    }
}
