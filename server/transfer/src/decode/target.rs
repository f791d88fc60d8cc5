//! The pages of one transfer on the receiving side, and what of them is there.

use std::collections::BTreeMap;

use memory_pool::{Block, PageBytes};
use types::PageId;

use crate::ends::{Bits, Layout, RoomKey, Violation};
use crate::frame::FrameHeader;
use crate::link::LandPages;
use crate::plant::{self, Plant};

/// One part on one rank that sends: where its blocks are in the set of what is there.
#[derive(Debug, Clone, Copy)]
struct Unit {
    /// The number of its first block.
    base: usize,
    /// Which of [`Target::pools`].
    pool: usize,
    layers: usize,
    layer_bytes: usize,
    replicated: bool,
}

/// Pages and what is there of them. A block here is one layer of one page of one part on one rank.
#[derive(Debug)]
pub(super) struct Target {
    /// First index and pages, per pool that has any.
    pools: Vec<LandPages>,
    /// By part; each has its senders' ranks. `None` where its pool has no pages here.
    units: Vec<Option<(Unit, u16)>>,
    /// Ranks of this side, to which replicated parts are written.
    ranks: u16,
    blocks: usize,
    /// Blocks that are there or are being written.
    claimed: Bits,
    /// Blocks that are there.
    arrived: usize,
    /// Numbers of the frames that are there.
    frames: Bits,
    /// How often a frame came broken.
    broken: BTreeMap<u32, u8>,
    /// Bytes of the pages, all parts and ranks.
    bytes: u64,
}

/// What a frame turns out to be.
pub(super) enum Claim {
    /// It is to be written.
    New(Writing),
    /// It is there already, or is being written.
    Known,
}

/// A frame that is being received: from now on its blocks are the receiver's, until it is given
/// back to [`frame_ends`](crate::DecodeEnd::frame_ends), whatever happens.
#[derive(Debug)]
#[must_use = "the pages are held until it is given back"]
pub struct Writing {
    pub(super) key: RoomKey,
    pub(super) header: FrameHeader,
    pages: Vec<PageId>,
    /// Written to ranks `header.rank .. header.rank + ranks`.
    ranks: u16,
}

impl Writing {
    /// Writes a payload that is [intact](FrameHeader::intact) into its pages.
    ///
    /// # Panics
    /// Where it has another length than the header says.
    pub fn write(&self, payload: &[u8], pages: &dyn PageBytes) {
        assert_eq!(payload.len(), self.header.length as usize, "as many bytes as were announced");
        let FrameHeader { rank, part, first_layer, layers, .. } = self.header;
        let bytes = payload.chunks_exact(payload.len() / self.pages.len());
        for (page, bytes) in self.pages.iter().zip(bytes) {
            for rank in rank..rank + self.ranks {
                let layers = first_layer..first_layer + layers;
                pages.write(&Block { rank, part, page: *page, layers }, bytes);
            }
        }
    }

    /// Bytes that are written: copies to further ranks count.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.header.length) * u64::from(self.ranks)
    }
}

impl Target {
    pub(super) fn new(layout: &Layout, pools: Vec<LandPages>) -> Self {
        let mut blocks = 0;
        let mut units = Vec::with_capacity(layout.parts.len());
        for part in layout.parts.iter() {
            let pool = pools.iter().position(|pages| pages.pool == part.pool);
            let Some(pool) = pool else {
                units.push(None);
                continue;
            };
            let (layers, layer_bytes) = (part.layers.len(), part.layer_bytes);
            let senders = layout.senders(part);
            let replicated = part.replicated;
            units.push(Some((
                Unit { base: blocks, pool, layers, layer_bytes, replicated },
                senders,
            )));
            blocks += usize::from(senders) * pools[pool].pages.len() * layers;
        }
        let of_pool = |pages: &LandPages| layout.page_bytes(pages.pool) * pages.pages.len() as u64;
        Self {
            bytes: pools.iter().map(of_pool).sum(),
            pools,
            units,
            ranks: layout.ranks,
            blocks,
            claimed: Bits::default(),
            arrived: 0,
            frames: Bits::default(),
            broken: BTreeMap::new(),
        }
    }

    /// Bytes of the pages.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether every block is there.
    pub(super) const fn is_whole(&self) -> bool {
        self.arrived == self.blocks
    }

    /// Frames that are there.
    pub(super) const fn frames(&self) -> u64 {
        self.frames.len() as u64
    }

    /// Most frames that there can be: each has at least one block.
    pub(super) const fn frames_max(&self) -> u64 {
        self.blocks as u64
    }

    /// Takes the blocks of a frame.
    pub(super) fn claim(&mut self, key: RoomKey, header: &FrameHeader) -> Result<Claim, Violation> {
        let (unit, first) = self.locate(header)?;
        let blocks: Vec<usize> = Self::blocks(&unit, self.pages(&unit), first, header).collect();
        let known = blocks.iter().filter(|block| self.claimed.has(**block)).count();
        if known == blocks.len() && !plant::is(Plant::WriteTwice) {
            return Ok(Claim::Known);
        }
        let twice = known == blocks.len();
        if !twice && (known > 0 || self.frames.has(header.seq as usize)) {
            return Err(Violation::Overlap(header.seq));
        }
        for block in blocks {
            self.claimed.insert(block);
        }
        let pages = self.pools[unit.pool].pages[first..first + usize::from(header.pages)].to_vec();
        let ranks = if unit.replicated { self.ranks } else { 1 };
        Ok(Claim::New(Writing { key, header: *header, pages, ranks }))
    }

    fn pages(&self, unit: &Unit) -> usize {
        self.pools[unit.pool].pages.len()
    }

    /// The numbers of a frame's blocks; `first` is its first page among the pool's here.
    fn blocks(
        unit: &Unit,
        pages: usize,
        first: usize,
        header: &FrameHeader,
    ) -> impl Iterator<Item = usize> + use<> {
        let (base, layers) = (unit.base, unit.layers);
        let rank = usize::from(header.rank);
        let (from, count) = (usize::from(header.first_layer), usize::from(header.layers));
        (first..first + usize::from(header.pages)).flat_map(move |page| {
            let start = base + (rank * pages + page) * layers + from;
            start..start + count
        })
    }

    /// Checks every number of a header; says where its part is and its first page.
    fn locate(&self, header: &FrameHeader) -> Result<(Unit, usize), Violation> {
        let check = Violation::range;
        check("part", header.part.into(), 0, self.units.len() as u64)?;
        let Some((unit, senders)) = self.units[usize::from(header.part)] else {
            return Err(Violation::Unequal {
                what: "number of pages of a part without pages here",
                value: header.pages.into(),
                expected: 0,
            });
        };
        check("rank", header.rank.into(), 0, senders.into())?;
        let layers = unit.layers as u64;
        let (first_layer, count) = (u64::from(header.first_layer), u64::from(header.layers));
        check("first layer", first_layer, 0, layers)?;
        check("number of layers", count, 1, layers - first_layer + 1)?;
        let pool = &self.pools[unit.pool];
        let (start, end) = (pool.first_index as u64, (pool.first_index + pool.pages.len()) as u64);
        let first = u64::from(header.first_page);
        check("first page", first, start, end)?;
        check("number of pages", header.pages.into(), 1, end - first + 1)?;
        let expected = u64::from(header.pages) * count * unit.layer_bytes as u64;
        if u64::from(header.length) != expected {
            let value = header.length.into();
            return Err(Violation::Unequal { what: "length of a frame", value, expected });
        }
        check("frame", header.seq.into(), 0, self.frames_max())?;
        Ok((unit, header.first_page as usize - pool.first_index))
    }

    /// A frame is written.
    pub(super) fn written(&mut self, header: &FrameHeader) {
        self.arrived += usize::from(header.pages) * usize::from(header.layers);
        self.frames.insert(header.seq as usize);
    }

    /// A frame came broken: its blocks are free again. Says how often it did.
    pub(super) fn broke(&mut self, header: &FrameHeader) -> u8 {
        let (unit, first) = self.locate(header).expect("it was located when it was claimed");
        for block in Self::blocks(&unit, self.pages(&unit), first, header) {
            self.claimed.remove(block);
        }
        let times = self.broken.entry(header.seq).or_default();
        *times = times.saturating_add(1);
        *times
    }
}
