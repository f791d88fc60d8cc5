//! Host memory: the bytes of the second tier, in slabs.
//!
//! A slab is one map that holds whole pages of one part of one rank, bound to the rank's NUMA node
//! and touched before it is used, so that memory that is not there shows at start-up and not in
//! the middle of a copy. The condition of `device.rs` holds here too: whoever reads or writes a
//! page has it for itself, by the page tables.

mod error;
mod grow;
mod slab;
mod system;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use types::{Bytes, PageId, PoolId};

pub use self::error::{HostError, HostNote, SlabStep};
use self::slab::Shape;
pub(crate) use self::slab::Slabs;
pub(crate) use self::system::stay_on;
use self::system::{Machine, System};
use crate::layout::PartLayout;

/// Pages of a slab whose node is asked for.
const SAMPLES: usize = 64;

/// How pages lie in a slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostLayout {
    /// Layer after layer, the pages of each side by side.
    LayerFirst,
    /// Page after page, as in device memory; a page is saved by one copy.
    #[default]
    PageFirst,
    /// The bytes of [`PageFirst`](Self::PageFirst), saved layer by layer of a page: for devices
    /// whose copy engines want blocks of that size. On this back-end only the pieces differ.
    PageFirstDirect,
}

/// Reserved pages larger than the system's usual ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HugePages {
    /// None; the system may still use large pages by itself.
    #[default]
    Off,
    /// Of 2 MiB.
    TwoMiB,
    /// Of 1 GiB.
    OneGiB,
}

impl HugePages {
    const fn bytes(self) -> Option<usize> {
        match self {
            Self::Off => None,
            Self::TwoMiB => Some(2 << 20),
            Self::OneGiB => Some(1 << 30),
        }
    }
}

/// How host memory is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostOptions {
    /// Number of ranks; each has its own copy of every part.
    pub ranks: usize,
    /// The NUMA node of each rank's memory; `None`: wherever the system puts it.
    pub nodes: Vec<Option<u32>>,
    /// How pages lie in a slab.
    pub layout: HostLayout,
    /// Most bytes of a slab, if a page is no larger.
    pub slab_bytes: Bytes,
    /// Reserved large pages; where the system has none, usual ones are taken and a
    /// [`HostNote`] says so.
    pub huge_pages: HugePages,
    /// Whether the memory is kept out of the swap.
    pub lock: bool,
}

impl Default for HostOptions {
    /// One rank on no particular node, page first, slabs of 1 GiB of usual pages.
    fn default() -> Self {
        Self {
            ranks: 1,
            nodes: vec![None],
            layout: HostLayout::default(),
            slab_bytes: Bytes(1 << 30),
            huge_pages: HugePages::Off,
            lock: false,
        }
    }
}

/// How far the allocation has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The part whose memory was taken last.
    pub part: &'static str,
    /// Its rank.
    pub rank: usize,
    /// Bytes taken from the system so far.
    pub done: Bytes,
    /// Bytes in all.
    pub total: Bytes,
}

/// What one part takes on one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostBytes {
    /// The part.
    pub part: &'static str,
    /// The rank.
    pub rank: usize,
    /// Pages of the host tier.
    pub pages: usize,
    /// Bytes of these pages.
    pub bytes: Bytes,
    /// Bytes mapped, which are more by less than one large page per slab.
    pub mapped: Bytes,
    /// Number of slabs.
    pub slabs: usize,
}

/// The pages of the host tier, for all ranks.
pub struct HostMemory {
    options: HostOptions,
    parts: Vec<HostPart>,
    system: Arc<dyn System>,
    notes: Mutex<Vec<HostNote>>,
}

/// One part, on all ranks.
pub(crate) struct HostPart {
    /// `pages` is what was asked for at first.
    pub(crate) layout: PartLayout,
    pub(crate) pool: PoolId,
    /// One per rank.
    ranks: Vec<RwLock<Slabs>>,
}

impl std::fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostMemory").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl HostMemory {
    /// Allocates the mirrored ones of `parts` (`pages` are those of the host tier), each with the
    /// index pool whose page ids it shares, on every rank. Every byte is taken from the system
    /// before this returns; `progress` hears of it.
    ///
    /// # Errors
    /// [`HostError`] names the part, the rank, the slab and the reason. Nothing stays allocated.
    pub fn allocate(
        parts: &[(PartLayout, PoolId)],
        options: HostOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, HostError> {
        Self::allocate_by(Arc::new(Machine), parts, options, progress)
    }

    fn allocate_by(
        system: Arc<dyn System>,
        parts: &[(PartLayout, PoolId)],
        options: HostOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, HostError> {
        let HostOptions { ranks, ref nodes, .. } = options;
        if nodes.len() != ranks || ranks == 0 {
            return Err(HostError::Ranks { ranks, nodes: nodes.len() });
        }
        let mirrored = parts.iter().filter(|(part, _)| part.host && part.page_bytes() > 0);
        let part = |(layout, pool): &(PartLayout, PoolId)| HostPart {
            layout: layout.clone(),
            pool: *pool,
            ranks: (0..ranks).map(|_| RwLock::default()).collect(),
        };
        let parts = mirrored.map(part).collect();
        let notes = Mutex::default();
        let memory = Self { options, parts, system, notes };
        let wanted = memory.parts.iter().map(|part| part.layout.pages).collect::<Vec<_>>();
        memory.grow(&wanted, progress)?;
        Ok(memory)
    }

    /// Makes the parts of `pool` hold `pages` pages: adds slabs, or frees those at the end that
    /// hold no page below `pages`. Pages that stay keep their bytes. Copies of them may run; of
    /// pages that go, none may.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); the pool then keeps the size it had.
    pub fn resize(
        &self,
        pool: PoolId,
        pages: usize,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), HostError> {
        let keep = |part: &HostPart| if part.pool == pool { pages } else { 0 };
        let wanted: Vec<usize> = self.parts.iter().map(keep).collect();
        self.grow(&wanted, progress)?;
        for part in self.parts.iter().filter(|part| part.pool == pool) {
            for slabs in &part.ranks {
                let mut slabs = slabs.write().unwrap_or_else(PoisonError::into_inner);
                slabs.keep(pages);
            }
        }
        Ok(())
    }

    /// What each part takes on each rank.
    #[must_use]
    pub fn bytes(&self) -> Vec<HostBytes> {
        let part = |part: &HostPart| {
            let rank = |rank: usize| {
                let slabs = part.slabs(rank);
                HostBytes {
                    part: part.layout.name,
                    rank,
                    pages: slabs.pages(),
                    bytes: Bytes(slabs.pages() as u64 * part.layout.page_bytes() as u64),
                    mapped: Bytes(slabs.mapped() as u64),
                    slabs: slabs.len(),
                }
            };
            (0..self.options.ranks).map(rank).collect::<Vec<_>>()
        };
        self.parts.iter().flat_map(part).collect()
    }

    /// On which NUMA nodes the memory lies, ascending: a sample of every slab, scaled up to its
    /// bytes. Empty where the system does not say.
    #[must_use]
    pub fn placement(&self) -> Vec<(u32, Bytes)> {
        let mut nodes: Vec<(u32, Bytes)> = Vec::new();
        for part in &self.parts {
            for rank in 0..self.options.ranks {
                for (node, bytes) in part.slabs(rank).placement(SAMPLES) {
                    match nodes.iter_mut().find(|(known, _)| *known == node) {
                        Some((_, sum)) => sum.0 += bytes.0,
                        None => nodes.push((node, bytes)),
                    }
                }
            }
        }
        nodes.sort_unstable();
        nodes
    }

    /// What is not as it was asked for, though it works: each thing once.
    #[must_use]
    pub fn notes(&self) -> Vec<HostNote> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How it was made.
    #[must_use]
    pub const fn options(&self) -> &HostOptions {
        &self.options
    }

    /// The parts and their index pools, in the order of part numbers: the mirrored ones that were
    /// asked for.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = (&PartLayout, PoolId)> {
        self.parts.iter().map(|part| (&part.layout, part.pool))
    }

    /// Copies the page `page` of part number `part` of `rank`, layer after layer, to `to`.
    ///
    /// # Panics
    /// Where the rank, the part or the page does not exist, or `to` has not the length of a page.
    pub fn read_page(&self, rank: usize, part: usize, page: PageId, to: &mut [u8]) {
        self.each_layer(rank, part, page, to.len(), |layer, at, len| {
            // SAFETY: `at` is valid for the layer's bytes, which are initialised; nobody writes
            // them meanwhile, by the module's condition, and a map never overlaps a slice.
            unsafe { std::ptr::copy_nonoverlapping(at, to[layer * len..][..len].as_mut_ptr(), len) }
        });
    }

    /// Overwrites the page `page` of part number `part` of `rank` with `from`, layer after layer.
    ///
    /// # Panics
    /// As [`read_page`](Self::read_page).
    pub fn write_page(&self, rank: usize, part: usize, page: PageId, from: &[u8]) {
        self.each_layer(rank, part, page, from.len(), |layer, at, len| {
            // SAFETY: as in `read_page`, and nobody reads them meanwhile.
            unsafe { std::ptr::copy_nonoverlapping(from[layer * len..][..len].as_ptr(), at, len) }
        });
    }

    fn each_layer(
        &self,
        rank: usize,
        part: usize,
        page: PageId,
        bytes: usize,
        mut each: impl FnMut(usize, *mut u8, usize),
    ) {
        let part = &self.parts[part];
        let (layers, len) = (part.layout.layers.len(), part.layout.layer_bytes);
        assert_eq!(bytes, part.layout.page_bytes(), "bytes of a page of {}", part.layout.name);
        let slabs = part.slabs(rank);
        for layer in 0..layers {
            each(layer, slabs.address(page, layer), len);
        }
    }

    pub(crate) fn host_parts(&self) -> &[HostPart] {
        &self.parts
    }

    fn shape(&self, part: &HostPart) -> Shape {
        let PartLayout { ref layers, layer_bytes, .. } = part.layout;
        Shape { layers: layers.len(), layer_bytes, layout: self.options.layout }
    }

    /// Keeps a note, once.
    fn note(&self, note: HostNote) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
}

impl HostPart {
    /// The slabs of a rank; they stay while the guard lives.
    pub(crate) fn slabs(&self, rank: usize) -> RwLockReadGuard<'_, Slabs> {
        self.ranks[rank].read().unwrap_or_else(PoisonError::into_inner)
    }
}
