//! Device memory: every KV page of one rank.
//!
//! It is shared by one [`Compute`], through which a model reads and writes rows, by the copy
//! threads, which move whole pages between it and the host tier, and by a link, which sends pages
//! to another process and writes those that come from there ([`PageBytes`](crate::PageBytes)).
//! **The condition that makes this sound**: while a copy of a page runs, the holder of the
//! `Compute` neither writes that page nor, where the copy writes it, reads a layer of it that has
//! not passed its gate ([`LoadGate`](crate::LoadGate)). The page tables keep to it: such a page is
//! locked until the copy is finished.
//!
//! The same for a link. What it has read it shows to the network later: a layer of a page that it
//! has a [`View`] of is not written until the view is gone. For into a page that is sent nothing
//! more comes but rows of the pass that runs, a layer's before
//! [`LayerProgress`](crate::LayerProgress) announces it; and its table holds it until the link has
//! let go. What a link writes, nobody else touches: the page belongs to one table, which is in no
//! batch and publishes nothing before all rows are there. References are made to layers of one
//! page, by one side at a time where one of them writes; a breach would show torn rows, never
//! memory outside of the pool.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytemuck::Pod;
use kernels::{KvGeometry, PagedKv};
use memmap2::{MmapMut, MmapRaw};
use types::{Bytes, PageId};

use crate::layout::{KvLayout, PartLayout};

/// Why a pool could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The number of bytes does not fit into this machine's address space.
    #[error("{pages} pages of {page} are more than this machine can address")]
    TooLarge {
        /// What was asked for.
        pages: usize,
        /// Bytes of one page.
        page: Bytes,
    },
    /// The system refused.
    #[error("cannot allocate {bytes} of KV pages: {source}")]
    Refused {
        /// What was asked for.
        bytes: Bytes,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// The pages of one rank, part after part. Memory is zero and is taken from the system as it is
/// touched.
#[derive(Debug)]
pub struct DeviceMemory {
    parts: Vec<Part>,
    /// Whether a [`Compute`] exists.
    computing: AtomicBool,
}

#[derive(Debug)]
struct Part {
    layout: PartLayout,
    /// `None` where the part has no bytes, which the system would refuse to map.
    map: Option<MmapRaw>,
}

impl DeviceMemory {
    /// Allocates all parts.
    ///
    /// # Errors
    /// [`PoolError`] where the system has no room for one of them; nothing stays allocated.
    pub fn new(parts: Vec<PartLayout>) -> Result<Arc<Self>, PoolError> {
        let parts = parts.into_iter().map(Part::new).collect::<Result<_, _>>()?;
        Ok(Arc::new(Self { parts, computing: AtomicBool::new(false) }))
    }

    /// The layouts, in the order of part numbers.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &PartLayout> {
        self.parts.iter().map(|part| &part.layout)
    }

    /// Bytes of all parts.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(self.parts().map(|part| part.bytes() as u64).sum())
    }

    /// The handle that reads and writes rows; `None` while another one exists.
    #[must_use]
    pub fn compute(self: &Arc<Self>) -> Option<Compute> {
        let taken = self.computing.swap(true, Ordering::Acquire);
        (!taken).then(|| Compute { memory: Arc::clone(self) })
    }

    /// Where the bytes of the `layer`-th layer of a page start. Valid for `layer_bytes` bytes, and
    /// for those of the layers behind it up to the end of the page.
    ///
    /// # Panics
    /// Where the part, the page or the layer does not exist.
    pub(crate) fn address(&self, part: usize, page: PageId, layer: usize) -> *mut u8 {
        let Part { layout, map } = &self.parts[part];
        let (pages, layers) = (layout.pages, layout.layers.len());
        assert!(page.index() < pages, "page {page} of {pages} in {}", layout.name);
        assert!(layer < layers, "layer {layer} of {layers} in {}", layout.name);
        let Some(map) = map else { return std::ptr::NonNull::<u64>::dangling().as_ptr().cast() };
        let at = page.index() * layout.page_bytes() + layer * layout.layer_bytes;
        // SAFETY: page and layer exist, so the offset lies inside the map.
        unsafe { map.as_mut_ptr().add(at) }
    }

    /// Where consecutive layers of a page start, and how many bytes they have.
    ///
    /// # Panics
    /// Where the part, the page or one of the layers does not exist, or there are none.
    fn span(&self, part: usize, page: PageId, layers: Range<usize>) -> (*mut u8, usize) {
        assert!(!layers.is_empty(), "layers {layers:?} of a page");
        let at = self.address(part, page, layers.start);
        let layout = &self.parts[part].layout;
        let own = layout.layers.len();
        assert!(layers.end <= own, "layers {layers:?} of {own} in {}", layout.name);
        (at, layers.len() * layout.layer_bytes)
    }

    /// Shows consecutive layers of a page of part `part`, without a copy. See the module for what
    /// whoever has it sees to.
    ///
    /// # Panics
    /// Where the part, the page or one of the layers does not exist, or there are none.
    pub(crate) fn view(self: &Arc<Self>, part: usize, page: PageId, layers: Range<usize>) -> View {
        let (at, len) = self.span(part, page, layers);
        View { memory: Arc::clone(self), at, len }
    }

    /// Copies `bytes` into consecutive layers of a page of part `part`. See the module for what
    /// the caller sees to.
    ///
    /// # Panics
    /// As [`view`](Self::view), and where they have another number of bytes.
    pub(crate) fn overwrite(&self, part: usize, page: PageId, layers: Range<usize>, bytes: &[u8]) {
        let (at, len) = self.span(part, page, layers);
        assert_eq!(bytes.len(), len, "as many bytes as the layers have");
        // SAFETY: the target lies inside the map (`span`), which lives as long as `self`; by the
        // module's condition nobody else reads or writes these layers meanwhile, so `bytes`, were
        // it a view of this memory, shows others. No reference to the target is made.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, len) };
    }
}

/// Layers of a page, shown as they lie. Keeps the memory alive.
#[derive(Debug)]
pub(crate) struct View {
    /// Only held: what `at` points into.
    #[expect(dead_code, reason = "keeps the map alive")]
    memory: Arc<DeviceMemory>,
    at: *const u8,
    len: usize,
}

// SAFETY: it is a shared reference to bytes of the memory it holds, which may be shared and dropped
// on any thread; the pointer has no other meaning.
unsafe impl Send for View {}
// SAFETY: as above; through a shared view bytes are only read.
unsafe impl Sync for View {}

impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `at` is valid for `len` bytes inside a map that `memory` keeps, initialised from
        // the start; nobody writes them while the view lives, by the module's condition.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
}

impl Part {
    fn new(layout: PartLayout) -> Result<Self, PoolError> {
        let bytes = layout.page_bytes().checked_mul(layout.pages);
        let Some(bytes) = bytes.filter(|bytes| isize::try_from(*bytes).is_ok()) else {
            let page = Bytes(layout.page_bytes() as u64);
            return Err(PoolError::TooLarge { pages: layout.pages, page });
        };
        let map = if bytes == 0 {
            None
        } else {
            let refused = |source| PoolError::Refused { bytes: Bytes(bytes as u64), source };
            Some(MmapMut::map_anon(bytes).map_err(refused)?.into())
        };
        Ok(Self { layout, map })
    }

    /// The start and the number of f32 values of the whole part.
    fn values(&self) -> (*const f32, usize) {
        match &self.map {
            Some(map) => (map.as_ptr().cast(), map.len() / size_of::<f32>()),
            None => (std::ptr::NonNull::<f32>::dangling().as_ptr(), 0),
        }
    }
}

/// The one handle through which rows of a [`DeviceMemory`] are read and written. See the module
/// for what its holder keeps to.
#[derive(Debug)]
pub struct Compute {
    memory: Arc<DeviceMemory>,
}

impl Compute {
    /// The memory, to share with copy threads.
    #[must_use]
    pub const fn memory(&self) -> &Arc<DeviceMemory> {
        &self.memory
    }

    /// The `layer`-th layer of a page of part `part`, as values of a plain type.
    ///
    /// # Panics
    /// Where the part, the page or the layer does not exist, or `layer_bytes` is no whole number
    /// of aligned values.
    #[must_use]
    pub fn block<T: Pod>(&self, part: usize, page: PageId, layer: usize) -> &[T] {
        let len = self.memory.parts[part].layout.layer_bytes;
        let at = self.memory.address(part, page, layer);
        // SAFETY: the block lies inside the map, whose bytes are initialised; nobody writes it
        // while the result lives: not this handle, which is borrowed, and no copy, by the module's
        // condition.
        let bytes = unsafe { std::slice::from_raw_parts(at, len) };
        bytemuck::cast_slice(bytes)
    }

    /// As [`block`](Self::block), to write.
    ///
    /// # Panics
    /// As [`block`](Self::block).
    pub fn block_mut<T: Pod>(&mut self, part: usize, page: PageId, layer: usize) -> &mut [T] {
        let len = self.memory.parts[part].layout.layer_bytes;
        let at = self.memory.address(part, page, layer);
        // SAFETY: as in `block`; the handle is unique and borrowed exclusively, so this is the only
        // reference into the memory.
        let bytes = unsafe { std::slice::from_raw_parts_mut(at, len) };
        bytemuck::cast_slice_mut(bytes)
    }

    /// Stores the K and V rows of one token: `kv_heads * head_dim` numbers each, head after head.
    ///
    /// # Panics
    /// Where `page`, `layer` or `slot` is out of range, a row has another length, or `rows` is not
    /// the layout of the part.
    pub fn write_rows(
        &mut self,
        (part, page, layer): (usize, PageId, usize),
        rows: KvLayout,
        slot: usize,
        (k, v): (&[f32], &[f32]),
    ) {
        let KvLayout { kv_heads, head_dim, page_tokens } = rows;
        assert!(slot < page_tokens, "slot {slot} of {page_tokens}");
        assert_eq!(k.len(), kv_heads * head_dim, "a K row of all heads");
        assert_eq!(v.len(), k.len(), "a V row of all heads");
        let block = self.block_mut::<f32>(part, page, layer);
        assert_eq!(block.len(), 2 * rows.plane_len(), "rows of another layout");
        for (plane, heads) in block.chunks_exact_mut(rows.plane_len()).zip([k, v]) {
            for (head, row) in heads.chunks_exact(head_dim).enumerate() {
                let at = rows.row(head, slot);
                plane[at..at + head_dim].copy_from_slice(row);
            }
        }
    }

    /// The keys and values of the `layer`-th layer of all pages of `part`, for attention kernels.
    ///
    /// # Panics
    /// Where the part or the layer does not exist, or `rows` is not the layout of the part.
    #[must_use]
    pub fn keys_and_values(&self, part: usize, layer: usize, rows: KvLayout) -> PagedKv<'_> {
        let Part { layout, .. } = &self.memory.parts[part];
        assert!(layer < layout.layers.len(), "layer {layer} in {}", layout.name);
        assert_eq!(layout.layer_bytes, rows.layer_bytes(), "rows of another layout");
        let key_offset = layer * 2 * rows.plane_len();
        let geometry = KvGeometry {
            kv_heads: rows.kv_heads,
            head_dim: rows.head_dim,
            page_tokens: rows.page_tokens,
            page_stride: layout.page_bytes() / size_of::<f32>(),
            key_offset,
            value_offset: key_offset + rows.plane_len(),
        };
        let (values, len) = self.memory.parts[part].values();
        // SAFETY: a map starts at a system page, so it is aligned for f32; it lives as long as the
        // memory, which this handle holds and the result borrows. Rows that kernels read are those
        // of the batch, which nobody writes meanwhile: as in `block`.
        unsafe { PagedKv::from_raw(values, len, geometry) }
    }
}

impl Drop for Compute {
    fn drop(&mut self) {
        self.memory.computing.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: KvLayout = KvLayout { kv_heads: 3, head_dim: 4, page_tokens: 5 };

    fn part(pages: usize) -> PartLayout {
        let layer_bytes = ROWS.layer_bytes();
        PartLayout { name: "kv", layers: vec![0, 3], layer_bytes, pages, host: true }
    }

    #[test]
    fn rows_are_found_where_the_layout_says() {
        let memory = DeviceMemory::new(vec![part(1), part(3)]).unwrap();
        assert_eq!(memory.bytes(), Bytes(4 * 2 * 2 * 3 * 5 * 4 * 4));
        let mut compute = memory.compute().unwrap();
        let k: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let v: Vec<f32> = (100..112).map(|i| i as f32).collect();
        compute.write_rows((1, PageId(2), 1), ROWS, 4, (&k, &v));
        let block: &[f32] = compute.block(1, PageId(2), 1);
        let at = ROWS.row(2, 4);
        assert_eq!(block[at..at + 4], k[8..]);
        let at = ROWS.plane_len() + ROWS.row(0, 4);
        assert_eq!(block[at..at + 4], v[..4]);
        assert_eq!(block.iter().filter(|x| **x != 0.0).count(), 23);
        for (part, page, layer) in [(1, 2, 0), (1, 1, 1), (0, 0, 1)] {
            let other: &[f32] = compute.block(part, PageId(page), layer);
            assert!(other.iter().all(|x| *x == 0.0));
        }
        assert_eq!(compute.keys_and_values(1, 1, ROWS).pages(), 3);
    }

    #[test]
    fn there_is_one_handle_at_a_time() {
        let memory = DeviceMemory::new(vec![part(1)]).unwrap();
        let first = memory.compute().unwrap();
        assert!(memory.compute().is_none());
        drop(first);
        assert!(memory.compute().is_some());
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert!(matches!(
            DeviceMemory::new(vec![part(usize::MAX)]),
            Err(PoolError::TooLarge { pages: usize::MAX, .. })
        ));
        let error = DeviceMemory::new(vec![part(1), part(1 << 50)]).unwrap_err().to_string();
        assert!(error.contains("cannot allocate"), "{error}");
        let empty = DeviceMemory::new(vec![part(0), PartLayout { layer_bytes: 0, ..part(2) }]);
        let empty = empty.unwrap();
        assert_eq!(empty.bytes(), Bytes(0));
        let compute = empty.compute().unwrap();
        assert_eq!(compute.block::<f32>(1, PageId(1), 1).len(), 0);
        assert_eq!(compute.keys_and_values(0, 0, ROWS).pages(), 0);
    }
}
