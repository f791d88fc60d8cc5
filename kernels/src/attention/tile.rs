//! A tile: a few rows of a sequence, for the query heads that share one key/value head.

use std::ops::Range;

use super::segment::{Partial, SEGMENT, Seen, Segment, attend, merge};
use super::{AttentionSequence, AttentionShape, PagedKv};
use crate::buffer::SharedOut;
use crate::math;

/// Queries (rows times heads) of a tile; enough to reuse keys and values from the nearest cache.
const TILE_QUERIES: usize = 24;

/// The arguments of one call, checked.
pub(super) struct Call<'a> {
    pub(super) shape: AttentionShape,
    pub(super) q: &'a [f32],
    pub(super) kv: PagedKv<'a>,
    pub(super) pages: &'a [u32],
    pub(super) sequences: &'a [AttentionSequence],
    pub(super) out: SharedOut<'a, f32>,
}

/// Which rows and which key/value head.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tile {
    pub(super) sequence: usize,
    /// First row, counted within the sequence.
    pub(super) first: usize,
    pub(super) rows: usize,
    pub(super) kv_head: usize,
}

/// Buffers of a worker, reused from call to call.
#[derive(Default)]
pub(super) struct Scratch {
    q: Vec<f32>,
    seen: Vec<Seen>,
    /// Whether `whole` holds something of the query.
    begun: Vec<bool>,
    scores: Vec<f32>,
    part: Partial,
    whole: Partial,
}

impl Call<'_> {
    /// Query heads per key/value head.
    fn group(&self) -> usize {
        self.shape.heads / self.kv.geometry().kv_heads
    }

    /// Rows of a full tile.
    pub(super) fn tile_rows(&self) -> usize {
        (TILE_QUERIES / self.group()).max(1)
    }

    /// Queries of a tile.
    pub(super) fn queries(&self, tile: Tile) -> usize {
        tile.rows * self.group()
    }

    /// Segments that the tile's rows see something of.
    pub(super) fn segments(&self, tile: Tile) -> Range<usize> {
        let first = self.sequences[tile.sequence].start + tile.first;
        self.shape.first_seen(first) / SEGMENT..(first + tile.rows).div_ceil(SEGMENT)
    }

    /// Where the queries of row `row` of the tile start, in `q` and in `out`.
    fn place(&self, tile: Tile, row: usize) -> Range<usize> {
        let dim = self.kv.geometry().head_dim;
        let row = self.sequences[tile.sequence].first_row + tile.first + row;
        let start = (row * self.shape.heads + tile.kv_head * self.group()) * dim;
        start..start + self.group() * dim
    }

    /// Computes a whole tile and writes its rows.
    ///
    /// # Safety
    /// No other thread works on this tile.
    pub(super) unsafe fn run(&self, tile: Tile, scratch: &mut Scratch) {
        let dim = self.kv.geometry().head_dim;
        self.load_queries(tile, scratch);
        for segment in self.segments(tile) {
            self.segment(tile, segment, scratch);
            let Scratch { seen, begun, part, whole, .. } = &mut *scratch;
            if begun.is_empty() {
                std::mem::swap(part, whole);
                begun.extend(seen.iter().map(|seen| !seen.is_empty()));
                continue;
            }
            for i in (0..seen.len()).filter(|i| !seen[*i].is_empty()) {
                let at = i * dim..(i + 1) * dim;
                if std::mem::replace(&mut begun[i], true) {
                    let to = (&mut whole.max[i], &mut whole.sum[i], &mut whole.out[at.clone()]);
                    merge(to, (part.max[i], part.sum[i], &part.out[at]));
                } else {
                    (whole.max[i], whole.sum[i]) = (part.max[i], part.sum[i]);
                    whole.out[at.clone()].copy_from_slice(&part.out[at]);
                }
            }
        }
        let whole = &scratch.whole;
        // SAFETY: the caller's promise.
        unsafe { self.store(tile, &whole.sum, &whole.out) };
    }

    /// Computes one segment of a tile of a single row into `to`: outcomes of its queries, each as
    /// max, sum and `dim` values.
    pub(super) fn run_segment(
        &self,
        tile: Tile,
        segment: usize,
        scratch: &mut Scratch,
        to: &mut [f32],
    ) {
        let dim = self.kv.geometry().head_dim;
        self.load_queries(tile, scratch);
        self.segment(tile, segment, scratch);
        let part = &scratch.part;
        for (i, to) in to.chunks_exact_mut(dim + 2).enumerate() {
            to[0] = part.max[i];
            to[1] = part.sum[i];
            to[2..].copy_from_slice(&part.out[i * dim..(i + 1) * dim]);
        }
    }

    /// Divides by the sums and writes the rows of a tile.
    ///
    /// # Safety
    /// No other thread works on this tile.
    pub(super) unsafe fn store(&self, tile: Tile, sums: &[f32], outs: &[f32]) {
        let dim = self.kv.geometry().head_dim;
        let group = self.group();
        for row in 0..tile.rows {
            // SAFETY: the caller's promise; tiles have no outputs in common.
            let out = unsafe { self.out.slice(self.place(tile, row)) };
            let sums = &sums[row * group..];
            let outs = outs[row * group * dim..].chunks_exact(dim);
            for ((out, sum), from) in out.chunks_exact_mut(dim).zip(sums).zip(outs) {
                math::scale_to(from, 1.0 / sum, out);
            }
        }
    }

    /// Copies the tile's queries, scaled, and makes room for their outcomes.
    fn load_queries(&self, tile: Tile, scratch: &mut Scratch) {
        let dim = self.kv.geometry().head_dim;
        let queries = self.queries(tile);
        scratch.q.resize(queries * dim, 0.0);
        for (row, to) in scratch.q.chunks_exact_mut(self.group() * dim).enumerate() {
            math::scale_to(&self.q[self.place(tile, row)], self.shape.scale, to);
        }
        scratch.scores.resize(queries * SEGMENT, 0.0);
        scratch.begun.clear();
        scratch.part.resize(queries, dim);
        scratch.whole.resize(queries, dim);
    }

    /// Computes one segment of the loaded queries into `scratch.part`.
    fn segment(&self, tile: Tile, segment: usize, scratch: &mut Scratch) {
        let geometry = self.kv.geometry();
        let s = &self.sequences[tile.sequence];
        let first = segment * SEGMENT;
        let row = s.start + tile.first;
        let end = (row + tile.rows).min(first + SEGMENT);
        let mut keys = [0; SEGMENT];
        let start = self.shape.first_seen(row).max(first);
        let mut position = start;
        while position < end {
            let (page, offset) = (position / geometry.page_tokens, position % geometry.page_tokens);
            let run = (geometry.page_tokens - offset).min(end - position);
            let page = self.pages[s.pages.start + page - s.first_page];
            let mut at = self.kv.keys_at(page, tile.kv_head) + offset * geometry.head_dim;
            for key in &mut keys[position - first..position - first + run] {
                *key = at;
                at += geometry.head_dim;
            }
            position += run;
        }
        // Positions before the first that is seen have no page.
        let known = keys[start - first];
        keys[..start - first].fill(known);
        scratch.seen.clear();
        for row in row..row + tile.rows {
            let inside = |position: usize| position.clamp(first, end) - first;
            let seen = Seen { start: inside(self.shape.first_seen(row)), end: inside(row + 1) };
            scratch.seen.extend(std::iter::repeat_n(seen, self.group()));
        }
        let work = Segment {
            dim: geometry.head_dim,
            q: &scratch.q,
            seen: &scratch.seen,
            pool: self.kv.pool,
            keys: &keys[..end - first],
            to_value: geometry.value_offset.wrapping_sub(geometry.key_offset),
        };
        attend(self.shape.path.resolve(), &work, &mut scratch.scores, &mut scratch.part);
    }
}
