//! Block weights times int8 activations: eight outputs side by side.
//!
//! Each block's exact integer sum is multiplied by the product of both scales and added to the
//! output, block after block, for any number of rows.

use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::ops::Range;

use super::block::{BlockFormat, OUTPUTS, Rows};
use super::panel::{Outputs, PanelKernel, Panels};
use crate::activations::Int8Rows;
use crate::format::{BLOCK, Block};
use crate::linear::StoredMatrix;
use crate::{Activations, ThreadPool, WeightFormat};

/// Rows of the largest tile.
const TILE_ROWS: usize = 4;
/// Weights of a group of panels should stay in the second-level cache.
const GROUP_BYTES: usize = 192 * 1024;
/// Panels of a group at most.
const GROUP_PANELS: usize = 64;

/// The kernel for blocks of format `F`.
pub(super) struct Quant<F>(PhantomData<F>);

/// The int8 form of activation rows.
#[derive(Clone, Copy)]
pub(super) struct Int8Input<'a> {
    form: &'a Int8Rows,
    /// Empty where the format does not use them.
    lanes: &'a [[i32; 2]],
    /// Blocks of a row.
    blocks: usize,
}

// SAFETY: `run` stores outputs of its panels only.
unsafe impl<F: BlockFormat> PanelKernel for Quant<F> {
    const NAME: &'static str = F::NAME;
    const FORMAT: WeightFormat = F::FORMAT;
    const OUTPUTS: usize = OUTPUTS;
    const TOGETHER: usize = TILE_ROWS;

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
        let (form, blocks) = (x.int8(pool), x.features() / BLOCK);
        let lanes = if F::LANES { x.lanes(pool) } else { &[] };
        let count = x.rows() * blocks;
        assert!(form.q.len() == count * BLOCK && (!F::LANES || lanes.len() == count));
        Int8Input { form, lanes, blocks }
    }

    unsafe fn run(w: Panels<'_>, range: Range<usize>, input: Int8Input<'_>, out: &Outputs<'_>) {
        // Whole numbers of tiles, except at the end of the range.
        let group = (GROUP_BYTES / w.stride().max(1)).clamp(8, GROUP_PANELS) / 4 * 4;
        for start in range.clone().step_by(group) {
            let end = range.end.min(start + group);
            for row in (0..out.rows).step_by(TILE_ROWS) {
                let rows = row..out.rows.min(row + TILE_ROWS);
                // Few rows mean that memory sets the pace; more panels at once are more requests
                // to it, and as many rows' reads of the activations are shared.
                let together = if rows.len() <= 2 { 4 } else { 2 };
                let mut panel = start;
                while panel < end {
                    let count = if end - panel >= together { together } else { 1 };
                    // SAFETY: the caller's promises; the panels and rows exist.
                    unsafe { any_tile::<F>(w, panel, count, input, rows.clone(), out) };
                    panel += count;
                }
            }
        }
    }
}

/// A few panels times a few rows; there is a tile for these numbers.
///
/// # Safety
/// AVX2, FMA and F16C; the panels and rows exist, have as many features, and no other thread has
/// the panels' outputs.
unsafe fn any_tile<F: BlockFormat>(
    w: Panels<'_>,
    panel: usize,
    count: usize,
    input: Int8Input<'_>,
    rows: Range<usize>,
    out: &Outputs<'_>,
) {
    macro_rules! dispatch {
        ($($rows:literal x $panels:literal)*) => {
            match (rows.len(), count) {
                $(($rows, $panels) => {
                    const SUMS: usize = $rows * $panels;
                    // SAFETY: the caller's promise.
                    unsafe { tile::<F, $rows, SUMS>(w, panel, input, rows.start, out) }
                })*
                (rows, panels) => unreachable!("no tile of {rows} rows and {panels} panels"),
            }
        };
    }
    dispatch!(1 x 4  2 x 4  3 x 2  4 x 2  1 x 1  2 x 1  3 x 1  4 x 1);
}

/// The products of `S / R` panels and `R` rows. The panels that follow are fetched meanwhile.
///
/// # Safety
/// As of [`any_tile`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn tile<F: BlockFormat, const R: usize, const S: usize>(
    w: Panels<'_>,
    panel: usize,
    input: Int8Input<'_>,
    row: usize,
    out: &Outputs<'_>,
) {
    const { assert!(S.is_multiple_of(R)) };
    let bytes = w.from(panel);
    let units = input.blocks / F::UNIT;
    assert!(units * F::UNIT_BYTES <= w.stride(), "more blocks than a panel has");
    assert!((S / R - 1) * w.stride() + units * F::UNIT_BYTES <= bytes.len(), "no such panel");
    assert!((row + R) * input.blocks * BLOCK <= input.form.q.len(), "no such rows");
    let first = Rows::new(input.form, input.lanes, input.blocks, row * input.blocks);
    // The first rows bring the next panels closer for all.
    let fetch = row == 0;
    let mut acc = [_mm256_setzero_ps(); S];
    for unit in 0..units {
        // SAFETY: each panel has this unit.
        let head = unsafe { bytes.as_ptr().add(unit * F::UNIT_BYTES) };
        for part in 0..F::UNIT {
            // SAFETY: the head has this block, and so has each row.
            unsafe {
                let x = first.skip(unit * F::UNIT + part);
                let block = head.add(F::HEAD + part * F::BLOCK_BYTES);
                if fetch {
                    prefetch::<F>(block, w.stride(), S / R);
                }
                add_block::<F, R, S>(head, block, w.stride(), &x, &mut acc);
            }
        }
    }
    for (i, acc) in acc.iter().enumerate() {
        let (row, first) = (row + i % R, (panel + i / R) * OUTPUTS);
        // SAFETY: the caller has these outputs, and they are eight values.
        unsafe {
            if let Some(place) = out.whole::<OUTPUTS>(row, first) {
                _mm256_storeu_ps(place.as_mut_ptr(), *acc);
            } else {
                let mut sums = [0.0; OUTPUTS];
                _mm256_storeu_ps(sums.as_mut_ptr(), *acc);
                out.store(row, first, &sums);
            }
        }
    }
}

/// Asks for the blocks that lie `panels` panels after `block` and the panels next to it.
#[inline(always)]
fn prefetch<F: BlockFormat>(block: *const u8, stride: usize, panels: usize) {
    for p in panels..2 * panels {
        for line in (0..F::BLOCK_BYTES).step_by(64) {
            let next = block.wrapping_add(p * stride + line);
            // SAFETY: a prefetch may point anywhere.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(next.cast()) };
        }
    }
}

/// Adds the products of one block of each panel.
///
/// # Safety
/// AVX2, FMA and F16C; at `head` and `block` and each further `stride` are a unit's head and one
/// of its blocks; `x` has `R` rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add_block<F: BlockFormat, const R: usize, const S: usize>(
    head: *const u8,
    block: *const u8,
    stride: usize,
    x: &Rows,
    acc: &mut [__m256; S],
) {
    // SAFETY: the caller's promises.
    unsafe {
        let dots = F::dot::<R, S>(block, stride, x);
        let (mut scales, mut offsets) = ([_mm256_setzero_ps(); S], [_mm256_setzero_ps(); S]);
        for p in 0..S / R {
            let (head, block) = (head.add(p * stride), block.add(p * stride));
            scales[p] = F::scale(head, block);
            if F::OFFSETS {
                offsets[p] = F::offset(head, block);
            }
        }
        for r in 0..R {
            let scale = x.scale(r);
            for p in 0..S / R {
                let i = p * R + r;
                let dot = match F::BIAS {
                    0 => dots[i],
                    bias => _mm256_sub_epi32(dots[i], _mm256_set1_epi32(bias * x.sum(r))),
                };
                let both = _mm256_mul_ps(scales[p], scale);
                acc[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), both, acc[i]);
                if F::OFFSETS {
                    acc[i] = _mm256_fmadd_ps(offsets[p], x.total(r), acc[i]);
                }
            }
        }
    }
}
