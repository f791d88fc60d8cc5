//! What a fake model's pages hold, on both tiers.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use types::{PageId, PoolId, TokenId};

use crate::runner::PageMover;

/// A fed token, stored with its position so that a page used by two requests shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) token: TokenId,
    pub(super) position: usize,
}

/// The cells of one pool.
#[derive(Debug, Default)]
struct Tiers {
    device: Vec<Option<Cell>>,
    /// By host page, as many as have been written.
    host: HashMap<PageId, Vec<Option<Cell>>>,
}

/// The cells of all pools, shared by the runner and whoever moves pages; one thread in practice.
#[derive(Debug)]
pub(super) struct Cells {
    page_tokens: usize,
    pools: Mutex<Vec<Tiers>>,
}

impl Cells {
    /// No pools yet.
    pub(super) const fn new(page_tokens: usize) -> Self {
        Self { page_tokens, pools: Mutex::new(Vec::new()) }
    }

    /// Empty pages, so many in each pool.
    pub(super) fn allocate(&self, pages: &[usize]) {
        let empty = |pages: &usize| vec![None; pages * self.page_tokens];
        let tiers = |pages| Tiers { device: empty(pages), ..Tiers::default() };
        *self.lock() = pages.iter().map(tiers).collect();
    }

    pub(super) fn get(&self, pool: usize, slot: usize) -> Option<Cell> {
        self.lock()[pool].device[slot]
    }

    pub(super) fn set(&self, pool: usize, slot: usize, cell: Cell) {
        self.lock()[pool].device[slot] = Some(cell);
    }

    /// Every statement leaves the cells whole.
    fn lock(&self) -> MutexGuard<'_, Vec<Tiers>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PageMover for Cells {
    fn back_up(&self, pool: PoolId, device: PageId, host: PageId) {
        let Tiers { device: cells, host: pages } = &mut self.lock()[usize::from(pool.0)];
        let page = pages.entry(host).or_default();
        page.clear();
        page.extend_from_slice(&cells[device.index() * self.page_tokens..][..self.page_tokens]);
    }

    fn load(&self, pool: PoolId, device: PageId, host: PageId) {
        let Tiers { device: cells, host: pages } = &mut self.lock()[usize::from(pool.0)];
        let cells = &mut cells[device.index() * self.page_tokens..][..self.page_tokens];
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

    #[test]
    fn pages_come_back_from_the_host_as_they_left() {
        let cells = Cells::new(2);
        cells.allocate(&[2, 3]);
        let cell = |token, position| Cell { token: TokenId(token), position };
        cells.set(1, 4, cell(7, 8));
        cells.set(1, 5, cell(6, 9));
        let pool = PoolId(1);
        cells.back_up(pool, PageId(2), PageId(40));
        cells.set(1, 4, cell(1, 1));
        cells.load(pool, PageId(0), PageId(40));
        assert_eq!([cells.get(1, 0), cells.get(1, 1)], [Some(cell(7, 8)), Some(cell(6, 9))]);
        assert_eq!((cells.get(1, 4), cells.get(0, 0)), (Some(cell(1, 1)), None));
        cells.load(pool, PageId(0), PageId(41));
        assert_eq!(cells.get(1, 0), None, "never written");
    }
}
