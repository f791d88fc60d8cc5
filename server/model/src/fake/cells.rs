//! What a fake model's pages hold, on both tiers.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use memory_pool::{Block, LinkPart, PageBytes};
use types::{PageId, PoolId, TokenId};

use crate::runner::PageMover;

/// A fed token, stored with its position so that a page used by two requests shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) token: TokenId,
    pub(super) position: usize,
}

/// Bytes of a cell on a link: the token, then the position and one, little endian; zeros where
/// nothing is stored.
pub(super) const CELL_BYTES: usize = 8;

/// The cells of one pool: page after page, in a page layer after layer, in a layer a cell per token
/// of the page.
#[derive(Debug, Default)]
struct Tiers {
    device: Vec<Option<Cell>>,
    /// By host page, as many as have been written.
    host: HashMap<PageId, Vec<Option<Cell>>>,
}

/// The cells of all pools, shared by the runner and whoever moves pages.
#[derive(Debug)]
pub(super) struct Cells {
    page_tokens: usize,
    /// Layers of each pool.
    layers: usize,
    /// One per pool.
    parts: Vec<LinkPart>,
    pools: Mutex<Vec<Tiers>>,
}

impl Cells {
    /// No pages yet; of `parts`, which have `layers` layers each, one is in each pool.
    pub(super) const fn new(page_tokens: usize, layers: usize, parts: Vec<LinkPart>) -> Self {
        Self { page_tokens, layers, parts, pools: Mutex::new(Vec::new()) }
    }

    /// Empty pages, so many in each pool.
    pub(super) fn allocate(&self, pages: &[usize]) {
        let empty = |pages: &usize| vec![None; pages * self.page_cells()];
        let tiers = |pages| Tiers { device: empty(pages), ..Tiers::default() };
        *self.lock() = pages.iter().map(tiers).collect();
    }

    /// The cell in a slot of a page; `None` where a layer of it says something else than another,
    /// or nothing.
    pub(super) fn get(&self, pool: usize, page: PageId, slot: usize) -> Option<Cell> {
        let cells = &self.lock()[pool].device;
        let mut layers = self.layers_of(page, slot).map(|at| cells[at]);
        let first = layers.next()??;
        layers.all(|cell| cell == Some(first)).then_some(first)
    }

    /// Writes one layer of a slot, its pool's `layer`-th.
    pub(super) fn set(&self, pool: usize, page: PageId, layer: usize, slot: usize, cell: Cell) {
        let at = page.index() * self.page_cells() + layer * self.page_tokens + slot;
        self.lock()[pool].device[at] = Some(cell);
    }

    fn page_cells(&self) -> usize {
        self.layers * self.page_tokens
    }

    fn layers_of(&self, page: PageId, slot: usize) -> impl Iterator<Item = usize> + use<> {
        let start = page.index() * self.page_cells() + slot;
        let step = self.page_tokens;
        (0..self.layers).map(move |layer| start + layer * step)
    }

    /// The pool of a block, and the places of its cells.
    fn place(&self, block: &Block) -> (usize, Range<usize>) {
        assert_eq!(block.rank, 0, "there is one rank");
        assert!(!block.layers.is_empty(), "layers {:?} of a page", block.layers);
        let (first, end) = (usize::from(block.layers.start), usize::from(block.layers.end));
        assert!(end <= self.layers, "layers up to {end} of {}", self.layers);
        let start = block.page.index() * self.page_cells();
        let cells = first * self.page_tokens..end * self.page_tokens;
        (usize::from(block.part), start + cells.start..start + cells.end)
    }

    /// Every statement leaves the cells whole.
    fn lock(&self) -> MutexGuard<'_, Vec<Tiers>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PageBytes for Cells {
    fn ranks(&self) -> usize {
        1
    }

    fn parts(&self) -> &[LinkPart] {
        &self.parts
    }

    fn read(&self, block: &Block) -> Bytes {
        let (pool, cells) = self.place(block);
        let mut bytes = Vec::with_capacity(cells.len() * CELL_BYTES);
        for cell in &self.lock()[pool].device[cells] {
            let (token, place) = cell.map_or((0, 0), |cell| {
                let place = u32::try_from(cell.position + 1).expect("a position has 32 bits");
                (cell.token.0, place)
            });
            bytes.extend_from_slice(&token.to_le_bytes());
            bytes.extend_from_slice(&place.to_le_bytes());
        }
        bytes.into()
    }

    fn write(&self, block: &Block, bytes: &[u8]) {
        let (pool, cells) = self.place(block);
        let (words, rest) = bytes.as_chunks::<4>();
        let fits = rest.is_empty() && words.len() * 4 == cells.len() * CELL_BYTES;
        assert!(fits, "{} bytes for {} cells", bytes.len(), cells.len());
        let (pairs, _) = words.as_chunks::<2>();
        for (cell, [token, place]) in self.lock()[pool].device[cells].iter_mut().zip(pairs) {
            let token = TokenId(u32::from_le_bytes(*token));
            let position = (u32::from_le_bytes(*place) as usize).checked_sub(1);
            *cell = position.map(|position| Cell { token, position });
        }
    }
}

impl PageMover for Cells {
    fn back_up(&self, pool: PoolId, device: PageId, host: PageId) {
        let Tiers { device: cells, host: pages } = &mut self.lock()[usize::from(pool.0)];
        let page = pages.entry(host).or_default();
        page.clear();
        page.extend_from_slice(&cells[device.index() * self.page_cells()..][..self.page_cells()]);
    }

    fn load(&self, pool: PoolId, device: PageId, host: PageId) {
        let Tiers { device: cells, host: pages } = &mut self.lock()[usize::from(pool.0)];
        let cells = &mut cells[device.index() * self.page_cells()..][..self.page_cells()];
        match pages.get(&host) {
            Some(page) => cells.copy_from_slice(page),
            // Nothing was ever written there: whoever reads it finds that out.
            None => cells.fill(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYERS: usize = 2;

    fn cell(token: u32, position: usize) -> Cell {
        Cell { token: TokenId(token), position }
    }

    fn set(cells: &Cells, page: u32, slot: usize, cell: Cell) {
        (0..LAYERS).for_each(|layer| cells.set(1, PageId(page), layer, slot, cell));
    }

    #[test]
    fn pages_come_back_from_the_host_as_they_left() {
        let cells = Cells::new(2, LAYERS, Vec::new());
        cells.allocate(&[2, 3]);
        set(&cells, 2, 0, cell(7, 8));
        set(&cells, 2, 1, cell(6, 9));
        let pool = PoolId(1);
        cells.back_up(pool, PageId(2), PageId(40));
        set(&cells, 2, 0, cell(1, 1));
        cells.load(pool, PageId(0), PageId(40));
        let get = |page, slot| cells.get(1, PageId(page), slot);
        assert_eq!([get(0, 0), get(0, 1)], [Some(cell(7, 8)), Some(cell(6, 9))]);
        assert_eq!((get(2, 0), cells.get(0, PageId(0), 0)), (Some(cell(1, 1)), None));
        cells.load(pool, PageId(0), PageId(41));
        assert_eq!(get(0, 0), None, "never written");
    }

    #[test]
    fn a_page_arrives_layer_by_layer_and_is_whole_with_the_last_one() {
        let cells = Cells::new(3, LAYERS, Vec::new());
        cells.allocate(&[1, 4]);
        set(&cells, 1, 0, cell(7, 300));
        set(&cells, 1, 2, cell(0, 0));
        let block = |page, layers| Block { rank: 0, part: 1, page: PageId(page), layers };
        let whole = cells.read(&block(1, 0..2));
        assert_eq!(whole.len(), LAYERS * 3 * CELL_BYTES);
        let (first, second) = whole.split_at(3 * CELL_BYTES);
        cells.write(&block(3, 1..2), second);
        assert_eq!(cells.get(1, PageId(3), 0), None, "a layer is missing");
        cells.write(&block(3, 0..1), first);
        let got = [0, 1, 2].map(|slot| cells.get(1, PageId(3), slot));
        assert_eq!(got, [Some(cell(7, 300)), None, Some(cell(0, 0))]);
        assert_eq!(cells.read(&block(3, 0..2)), whole);
    }
}
