//! Causal attention over paged keys and values, grouped query heads included.
//!
//! A row's sums run over the positions from 0 in one fixed order that depends on nothing else, so
//! cutting a prompt into chunks or batching it with other sequences does not change a bit: the
//! positions are cut into segments of 256, each segment is a softmax of its own, and segments are
//! merged from the first to the last, whoever computed them. A sliding window cuts positions off
//! the front of a row; the segments stay where they are.
//! Keys and values must be in their pages before the call; this module does not write them.

mod plan;
pub(crate) mod segment;
mod tile;

use std::marker::PhantomData;
use std::ops::Range;

use crate::buffer::SharedOut;
use crate::{KernelPath, ThreadPool};

/// Heads of an attention layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// Query heads; a multiple of `kv_heads` of the pages.
    pub heads: usize,
    /// Scores are multiplied by this, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// How many positions a row attends to, its own included; `None`: all up to its own. At
    /// least 1.
    pub window: Option<usize>,
    /// The kernels to use.
    pub path: KernelPath,
}

/// Where one layer's keys and values lie inside a page. Units are f32 values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvGeometry {
    /// Key/value heads.
    pub kv_heads: usize,
    /// Values of one head of one position.
    pub head_dim: usize,
    /// Positions of a page.
    pub page_tokens: usize,
    /// Distance from one page to the next.
    pub page_stride: usize,
    /// Start of the layer's keys in a page: `kv_heads x page_tokens x head_dim`.
    pub key_offset: usize,
    /// Start of the layer's values in a page, the same shape.
    pub value_offset: usize,
}

/// One layer's keys and values of a whole pool of pages.
#[derive(Debug, Clone, Copy)]
pub struct PagedKv<'a> {
    pool: PoolRows<'a>,
    geometry: KvGeometry,
}

/// The values of a pool. Pages that a call does not read may be written meanwhile by others, so
/// there is never a reference to more than a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolRows<'a> {
    start: *const f32,
    len: usize,
    life: PhantomData<&'a [f32]>,
}

// SAFETY: it only reads, and what it reads nobody writes meanwhile (`PagedKv::from_raw`).
unsafe impl Send for PoolRows<'_> {}
// SAFETY: as above.
unsafe impl Sync for PoolRows<'_> {}

impl<'a> PoolRows<'a> {
    /// Number of values.
    pub(crate) const fn len(self) -> usize {
        self.len
    }

    pub(crate) const fn as_ptr(self) -> *const f32 {
        self.start
    }

    /// The `dim` values from `at` on.
    pub(crate) fn row(self, at: usize, dim: usize) -> &'a [f32] {
        assert!(at <= self.len && dim <= self.len - at, "a row outside the pool");
        // SAFETY: it lies inside the pool, as just checked, and is not written while a call reads
        // it: the promise of `PagedKv::from_raw`.
        unsafe { std::slice::from_raw_parts(self.start.add(at), dim) }
    }
}

impl<'a> PagedKv<'a> {
    /// Views `pool` (whole pages, one after another).
    ///
    /// # Panics
    /// When the geometry does not fit its page or the pool is not whole pages.
    #[must_use]
    pub fn new(pool: &'a [f32], geometry: KvGeometry) -> Self {
        // SAFETY: a shared borrow that outlives the result: nobody writes any of it.
        unsafe { Self::from_raw(pool.as_ptr(), pool.len(), geometry) }
    }

    /// Views the `len` values from `start` on (whole pages, one after another), some of which
    /// others may write while they are not read.
    ///
    /// # Safety
    /// The values exist, are initialised and aligned for as long as the result lives, and the rows
    /// that a call reads are not written during that call: those of the pages and positions that
    /// its sequences see.
    ///
    /// # Panics
    /// As [`PagedKv::new`].
    #[must_use]
    pub unsafe fn from_raw(start: *const f32, len: usize, geometry: KvGeometry) -> Self {
        let g = geometry;
        assert!(g.kv_heads > 0 && g.head_dim > 0 && g.page_tokens > 0, "empty key/value geometry");
        let plane = g.kv_heads * g.page_tokens * g.head_dim;
        assert!(g.key_offset + plane <= g.page_stride, "keys reach beyond their page");
        assert!(g.value_offset + plane <= g.page_stride, "values reach beyond their page");
        assert!(len.is_multiple_of(g.page_stride), "the pool must be whole pages");
        Self { pool: PoolRows { start, len, life: PhantomData }, geometry }
    }

    /// Number of pages in the pool.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pool.len() / self.geometry.page_stride
    }

    /// The geometry.
    #[must_use]
    pub fn geometry(&self) -> KvGeometry {
        self.geometry
    }

    /// Where the keys of one head of a page start: `page_tokens x head_dim`.
    pub(crate) fn keys_at(&self, page: u32, head: usize) -> usize {
        let g = &self.geometry;
        page as usize * g.page_stride + g.key_offset + head * g.page_tokens * g.head_dim
    }
}

impl AttentionShape {
    /// The first position that the row of `position` attends to.
    fn first_seen(&self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }
}

/// The query rows of one sequence in a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttentionSequence {
    /// Index of its first row in the batch.
    pub first_row: usize,
    /// Number of rows.
    pub rows: usize,
    /// Position of the first row; row `i` attends to positions up to `start + i`.
    pub start: usize,
    /// Which page of the sequence `pages` begins with: positions before
    /// `first_page * page_tokens` have none, and no row sees them.
    pub first_page: usize,
    /// Where in the list of pages those of this sequence lie: of all positions that its rows see,
    /// in order; more may follow.
    pub pages: Range<usize>,
}

/// `out = softmax(q k^T * scale) v`, causal, for every row of every sequence.
///
/// `q` and `out` hold rows of `heads x head_dim` values. Query head `h` reads key/value head
/// `h / (heads / kv_heads)`. Rows that belong to no sequence are left as they are. `pages` is the
/// list that sequences refer to. Keys and values outside a row's window are never read. Allocates
/// nothing once the calling thread and the pool's have seen their largest call.
///
/// # Panics
/// When the shapes disagree, the sequences' rows overlap or are not in ascending order, or a page
/// is missing or outside the pool.
pub fn paged_attention(
    shape: AttentionShape,
    q: &[f32],
    kv: PagedKv<'_>,
    pages: &[u32],
    sequences: &[AttentionSequence],
    out: &mut [f32],
    pool: &ThreadPool,
) {
    check(shape, q, kv, out);
    check_sequences(shape, kv, pages, sequences, q.len());
    let call = tile::Call { shape, q, kv, pages, sequences, out: SharedOut::new(out) };
    plan::run(&call, pool);
}

fn check(shape: AttentionShape, q: &[f32], kv: PagedKv<'_>, out: &[f32]) {
    let g = kv.geometry;
    let row_len = shape.heads * g.head_dim;
    assert!(shape.heads > 0, "attention needs heads");
    assert!(shape.heads.is_multiple_of(g.kv_heads), "query heads must share kv heads evenly");
    assert!(q.len().is_multiple_of(row_len), "queries must be whole rows of {row_len}");
    assert_eq!(q.len(), out.len(), "output must have the shape of the queries");
    assert!(shape.window != Some(0), "a row sees at least itself");
}

fn check_sequences(
    shape: AttentionShape,
    kv: PagedKv<'_>,
    pages: &[u32],
    sequences: &[AttentionSequence],
    values: usize,
) {
    let g = kv.geometry;
    let rows = values / (shape.heads * g.head_dim);
    let mut next = 0;
    for s in sequences {
        assert!(s.first_row >= next, "rows of sequences must ascend without overlap");
        next = s.first_row + s.rows;
        assert!(next <= rows, "a sequence has more rows than there are queries");
        if s.rows == 0 {
            continue;
        }
        let needed =
            shape.first_seen(s.start) / g.page_tokens..(s.start + s.rows).div_ceil(g.page_tokens);
        let given = s.first_page..s.first_page + s.pages.len();
        let covered = given.start <= needed.start && needed.end <= given.end;
        assert!(covered, "pages {needed:?} needed, {given:?} given");
        let needed = needed.start - s.first_page..needed.end - s.first_page;
        let known = pages[s.pages.clone()][needed].iter().all(|p| (*p as usize) < kv.pages());
        assert!(known, "a page lies outside the pool of {}", kv.pages());
    }
}

/// The name of the attention kernel that runs on `path` for heads of `head_dim` values, for logs
/// and metrics. The vector kernel takes multiples of 8; the portable one takes all others.
#[must_use]
pub fn attention_kernel(path: KernelPath, head_dim: usize) -> &'static str {
    match segment::chosen(path.resolve(), head_dim) {
        KernelPath::Avx2 => "avx2-attention-256",
        KernelPath::Detect | KernelPath::Reference => "reference-attention-256",
    }
}

#[cfg(test)]
mod tests;
