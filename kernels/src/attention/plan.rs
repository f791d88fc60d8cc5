//! How a call is split over threads.
//!
//! With enough rows, tiles are shared out whole. With few (a decode step), each segment of a tile
//! is a part of its own and the parts are merged afterwards, in the same order and by the same
//! operations, so the choice does not show in the result.

use std::cell::RefCell;

use super::segment::merge;
use super::tile::{Call, Scratch, Tile};
use crate::ThreadPool;
use crate::buffer::SharedOut;

/// Tiles per thread from which on they are not cut.
const TILES_PER_THREAD: usize = 4;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
    static PLAN: RefCell<Plan> = RefCell::default();
}

/// Buffers of the calling thread, reused from call to call.
#[derive(Default)]
struct Plan {
    tiles: Vec<Tile>,
    /// What is computed apart: a tile and one of its segments.
    parts: Vec<(Tile, usize)>,
    /// The outcomes of the parts.
    results: Vec<f32>,
    sums: Vec<f32>,
    outs: Vec<f32>,
}

/// Computes all rows of the call.
pub(super) fn run(call: &Call<'_>, pool: &ThreadPool) {
    PLAN.with_borrow_mut(|plan| run_planned(call, plan, pool));
}

fn run_planned(call: &Call<'_>, plan: &mut Plan, pool: &ThreadPool) {
    list_tiles(call, &mut plan.tiles);
    let tiles = plan.tiles.as_slice();
    let parts: usize = tiles.iter().map(|t| call.segments(*t).len()).sum();
    let cut = pool.threads() > 1
        && tiles.len() < pool.threads() * TILES_PER_THREAD
        && tiles.iter().all(|t| t.rows == 1)
        && parts > tiles.len();
    if cut {
        run_cut(call, plan, pool);
        return;
    }
    // A tile over a short context is too little to wake a thread for.
    let grain = if parts == tiles.len() && tiles.iter().all(|t| t.rows == 1) { 4 } else { 1 };
    pool.parallel_for(tiles.len(), grain, |range| {
        SCRATCH.with_borrow_mut(|scratch| {
            // The last rows see most positions: they come first, so that none is left for last.
            for tile in range.map(|i| tiles[tiles.len() - 1 - i]) {
                // SAFETY: `parallel_for` hands out each tile once.
                unsafe { call.run(tile, scratch) };
            }
        });
    });
}

/// The tiles of all sequences, in the order of their rows.
fn list_tiles(call: &Call<'_>, tiles: &mut Vec<Tile>) {
    tiles.clear();
    for (sequence, s) in call.sequences.iter().enumerate() {
        for first in (0..s.rows).step_by(call.tile_rows()) {
            let rows = call.tile_rows().min(s.rows - first);
            let heads = 0..call.kv.geometry().kv_heads;
            tiles.extend(heads.map(|kv_head| Tile { sequence, first, rows, kv_head }));
        }
    }
}

/// Computes tiles of single rows segment by segment.
fn run_cut(call: &Call<'_>, plan: &mut Plan, pool: &ThreadPool) {
    let Plan { tiles, parts, results, sums, outs } = plan;
    let dim = call.kv.geometry().head_dim;
    let queries = call.queries(tiles[0]);
    let part_len = queries * (dim + 2);
    parts.clear();
    parts.extend(tiles.iter().flat_map(|t| call.segments(*t).map(|s| (*t, s))));
    results.resize(parts.len() * part_len, 0.0);
    sums.resize(queries, 0.0);
    outs.resize(queries * dim, 0.0);
    let shared = SharedOut::new(results);
    pool.parallel_for(parts.len(), 1, |range| {
        SCRATCH.with_borrow_mut(|scratch| {
            for part in range {
                let (tile, segment) = parts[part];
                // SAFETY: `parallel_for` hands out each part once.
                let to = unsafe { shared.slice(part * part_len..(part + 1) * part_len) };
                call.run_segment(tile, segment, scratch, to);
            }
        });
    });
    let mut rest = results.as_mut_slice();
    for tile in tiles {
        let (own, after) = rest.split_at_mut(call.segments(*tile).len() * part_len);
        rest = after;
        let (whole, next) = own.split_at_mut(part_len);
        for part in next.chunks_exact(part_len) {
            for (to, from) in whole.chunks_exact_mut(dim + 2).zip(part.chunks_exact(dim + 2)) {
                let [max, sum, out @ ..] = to else { continue };
                merge((max, sum, out), (from[0], from[1], &from[2..]));
            }
        }
        for (i, query) in whole.chunks_exact(dim + 2).enumerate() {
            sums[i] = query[1];
            outs[i * dim..(i + 1) * dim].copy_from_slice(&query[2..]);
        }
        // SAFETY: all workers are done.
        unsafe { call.store(*tile, sums, outs) };
    }
}
