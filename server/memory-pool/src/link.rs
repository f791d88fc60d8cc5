//! The bytes of device pages as a link to another process needs them: read and written by block.
//!
//! Which page belongs to whom, and when its rows are there, is decided elsewhere.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use types::{PageId, PoolId};

use crate::device::DeviceMemory;

/// Consecutive layers of one part of one page on one rank.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Block {
    /// The rank.
    pub rank: u16,
    /// The part's index in [`PageBytes::parts`].
    pub part: u16,
    /// The page, an id of the part's pool.
    pub page: PageId,
    /// Indices into the part's own [layers](LinkPart::layers).
    pub layers: Range<u16>,
}

/// A part as both ends of a link must have it; the same on every rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkPart {
    /// Its name, unique within a model.
    pub name: &'static str,
    /// The pool whose page ids it shares.
    pub pool: PoolId,
    /// The model's layers whose rows it holds, ascending.
    pub layers: Vec<usize>,
    /// Bytes of one page in one layer, on one rank; the same for every page, however few of its
    /// tokens are computed.
    pub layer_bytes: usize,
    /// Every rank holds the same bytes: one rank's serve all.
    pub replicated: bool,
}

impl LinkPart {
    /// Bytes of one page, all layers, on one rank.
    #[must_use]
    pub const fn page_bytes(&self) -> usize {
        self.layer_bytes.saturating_mul(self.layers.len())
    }

    /// How many of its layers are among the model's first `layers` ones: what a pass that has
    /// [come so far](crate::LayerProgress::layers) has written.
    #[must_use]
    pub fn layers_within(&self, layers: usize) -> usize {
        self.layers.partition_point(|layer| *layer < layers)
    }
}

/// The device pages of all ranks, for a link that sends and receives them.
///
/// Shared by the threads of a link, while the engine goes on computing in other pages. Nothing is
/// locked: **the caller sees to it** that a block which is being read does not change, and that a
/// block which is being written is used by nobody else. A breach would show torn rows, never memory
/// outside of the pool.
pub trait PageBytes: Send + Sync {
    /// How many ranks there are; at least one.
    fn ranks(&self) -> usize;

    /// The parts, the same on every rank; [`Block::part`] counts in this order.
    fn parts(&self) -> &[LinkPart];

    /// The bytes of a block: `layers.len() * layer_bytes`, layer after layer. Copies nothing where
    /// there is real memory: the result shows the page itself and keeps the whole memory alive.
    /// The caller keeps these layers of the page from being written until the last clone of it is
    /// gone.
    ///
    /// # Panics
    /// Where the rank, the part, the page or one of the layers does not exist, or there are none.
    fn read(&self, block: &Block) -> Bytes;

    /// Writes `bytes` into a block, layer after layer. The caller owns the page: until this returns
    /// nobody else reads or writes these layers of it.
    ///
    /// # Panics
    /// As [`read`](Self::read), and where `bytes` has another length than the block.
    fn write(&self, block: &Block, bytes: &[u8]);
}

/// [`PageBytes`] over the memories of the ranks.
#[derive(Debug)]
pub struct RankPages {
    memories: Vec<Arc<DeviceMemory>>,
    parts: Vec<LinkPart>,
}

impl RankPages {
    /// The pages of `memories`, one per rank, whose parts are `parts`.
    ///
    /// # Panics
    /// Without a memory, and where the parts of one are not laid out as `parts` says.
    #[must_use]
    pub fn new(memories: Vec<Arc<DeviceMemory>>, parts: Vec<LinkPart>) -> Self {
        assert!(!memories.is_empty(), "there is at least one rank");
        for memory in &memories {
            assert_eq!(memory.parts().len(), parts.len(), "as many parts as on the device");
            for (own, part) in memory.parts().zip(&parts) {
                let same = own.name == part.name
                    && own.layers == part.layers
                    && own.layer_bytes == part.layer_bytes;
                assert!(same, "the device has {own:?}, not {part:?}");
            }
        }
        Self { memories, parts }
    }

    /// The memory of the block's rank, its part, its first layer and the number of its layers.
    fn place(&self, block: &Block) -> (&Arc<DeviceMemory>, usize, Range<usize>) {
        let (rank, ranks) = (usize::from(block.rank), self.memories.len());
        assert!(rank < ranks, "rank {rank} of {ranks}");
        let layers = usize::from(block.layers.start)..usize::from(block.layers.end);
        (&self.memories[rank], usize::from(block.part), layers)
    }
}

impl PageBytes for RankPages {
    fn ranks(&self) -> usize {
        self.memories.len()
    }

    fn parts(&self) -> &[LinkPart] {
        &self.parts
    }

    fn read(&self, block: &Block) -> Bytes {
        let (memory, part, layers) = self.place(block);
        Bytes::from_owner(memory.view(part, block.page, layers))
    }

    fn write(&self, block: &Block, bytes: &[u8]) {
        let (memory, part, layers) = self.place(block);
        memory.overwrite(part, block.page, layers, bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::layout::PartLayout;

    const LAYER: usize = 24;

    fn parts() -> Vec<LinkPart> {
        let part = |name, pool, layers: &[usize], layer_bytes, replicated| LinkPart {
            name,
            pool: PoolId(pool),
            layers: layers.to_vec(),
            layer_bytes,
            replicated,
        };
        vec![part("kv", 0, &[0, 2, 5], LAYER, false), part("swa", 1, &[1, 3], 8, true)]
    }

    fn memories(ranks: usize) -> Vec<Arc<DeviceMemory>> {
        let layout = |part: LinkPart| PartLayout {
            name: part.name,
            layers: part.layers,
            layer_bytes: part.layer_bytes,
            pages: 4,
            host: true,
        };
        let memory = |_| DeviceMemory::new(parts().into_iter().map(layout).collect()).unwrap();
        (0..ranks).map(memory).collect()
    }

    fn block(rank: u16, part: u16, page: u32, layers: Range<u16>) -> Block {
        Block { rank, part, page: PageId(page), layers }
    }

    #[test]
    fn blocks_are_where_rows_are_computed() {
        let memories = memories(2);
        let pages = RankPages::new(memories.clone(), parts());
        assert_eq!((pages.ranks(), pages.parts()), (2, &parts()[..]));
        let bytes: Vec<u8> = (0..2 * LAYER as u8).collect();
        pages.write(&block(1, 0, 3, 1..3), &bytes);
        let compute = memories[1].compute().unwrap();
        for layer in [1, 2] {
            let own = &bytes[(layer - 1) * LAYER..layer * LAYER];
            assert_eq!(compute.block::<u8>(0, PageId(3), layer), own);
        }
        assert!(compute.block::<u8>(0, PageId(3), 0).iter().all(|byte| *byte == 0));
        assert_eq!(pages.read(&block(1, 0, 3, 1..3)), bytes);
        assert_eq!(pages.read(&block(1, 0, 3, 2..3)), bytes[LAYER..]);
        // The other rank, the other part and the page before are as they were.
        for other in [block(0, 0, 3, 0..3), block(1, 0, 2, 0..3), block(1, 1, 3, 0..2)] {
            assert!(pages.read(&other).iter().all(|byte| *byte == 0), "{other:?}");
        }
    }

    #[test]
    fn what_was_read_is_the_page_itself_and_keeps_the_memory() {
        let memories = memories(1);
        let weak = Arc::downgrade(&memories[0]);
        let pages = RankPages::new(memories, parts());
        let read = pages.read(&block(0, 1, 2, 0..2));
        let half = read.slice(8..);
        // Another layer of the same page may be written meanwhile.
        let first = pages.read(&block(0, 0, 1, 0..1));
        pages.write(&block(0, 0, 1, 1..3), &[7; 2 * LAYER]);
        assert!(first.iter().all(|byte| *byte == 0));
        drop((read, first));
        drop(pages);
        assert!(weak.upgrade().is_some(), "a view is out");
        assert_eq!(half, [0; 8].as_slice());
        drop(half);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn blocks_that_do_not_exist_are_mistakes() {
        let pages = RankPages::new(memories(1), parts());
        let fails = |act: &dyn Fn()| catch_unwind(AssertUnwindSafe(act)).is_err();
        let good = block(0, 0, 3, 0..3);
        assert!(!fails(&|| drop(pages.read(&good))));
        for bad in [
            block(1, 0, 0, 0..1),
            block(0, 2, 0, 0..1),
            block(0, 0, 4, 0..1),
            block(0, 0, 0, 1..4),
            block(0, 0, 0, 1..1),
            block(0, 1, 3, 1..3),
        ] {
            assert!(fails(&|| drop(pages.read(&bad))), "{bad:?} was read");
            assert!(fails(&|| pages.write(&bad, &[0; LAYER])), "{bad:?} was written");
        }
        assert!(fails(&|| pages.write(&good, &[0; LAYER])), "too short");
        let other = vec![LinkPart { layer_bytes: 8, ..parts()[0].clone() }, parts()[1].clone()];
        assert!(fails(&|| drop(RankPages::new(memories(1), other.clone()))));
    }

    #[test]
    fn layers_of_a_part_are_counted_by_those_of_the_model() {
        let kv = &parts()[0];
        let within: Vec<_> = (0..=7).map(|layers| kv.layers_within(layers)).collect();
        assert_eq!(within, [0, 1, 1, 2, 2, 2, 3, 3]);
        assert_eq!(kv.page_bytes(), 3 * LAYER);
    }
}
