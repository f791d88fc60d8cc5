//! The host pages of one pool: where each belongs, and what needs it.

use types::{PageId, Pages, PoolId, Time};

use crate::host::{DroppedBackups, HostStats};
use crate::layout::PoolSpec;
use crate::lru::Lru;
use crate::node::{NO_PAGE, NodeId};
use crate::pool::Pool;

/// What is known of a host page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Where it belongs; `NONE` while it is free, reserved, or held though its page has gone.
    pub(crate) node: NodeId,
    /// Pages before it in its sequence; with `node` this is its place.
    pub(crate) depth: usize,
    /// Its copy from the device has not ended: its bytes are anything.
    pub(crate) is_busy: bool,
    /// Copies and readers that need its bytes.
    pub(crate) held: u32,
    /// Of a page of a window pool: when a page table last let go of it.
    pub(crate) used: u64,
    /// The same by the caller's clock.
    pub(crate) at: Time,
}

impl Place {
    const NONE: Self =
        Self { node: NodeId::NONE, depth: 0, is_busy: false, held: 0, used: 0, at: Time(0) };
}

/// See the module.
#[derive(Debug)]
pub(crate) struct HostPool {
    /// Free pages and counts; `cached` counts those that are given up when room is needed.
    pub(crate) pages: Pool,
    pub(crate) places: Vec<Place>,
    pub(crate) is_window: bool,
    /// Of a window pool: pages that are on the host alone and that nobody holds, by last use.
    pub(crate) lru: Lru,
    pub(crate) dropped: DroppedBackups,
    /// Pages that runs for the store hold, each run counted.
    pub(crate) in_runs: usize,
}

impl HostPool {
    pub(crate) fn new(spec: &PoolSpec, pages: usize) -> Self {
        let capacity = Pages(pages as u64);
        assert!(capacity >= spec.capacity, "each device page can have its copy");
        Self {
            pages: Pool::new(PoolSpec { capacity, window: None, ..spec.clone() }),
            places: vec![Place::NONE; pages],
            is_window: spec.window.is_some(),
            lru: Lru::new(),
            dropped: DroppedBackups::default(),
            in_runs: 0,
        }
    }

    pub(crate) const fn capacity(&self) -> usize {
        self.pages.spec.capacity.0 as usize
    }

    /// Whether the place of a page on the host holds one whose bytes are there.
    pub(crate) fn has(&self, page: PageId) -> bool {
        page != NO_PAGE && !self.places[page.index()].is_busy
    }

    /// A free page, for a page with so many before it in `node`; it is held, and busy.
    pub(crate) fn take(&mut self, node: NodeId, depth: usize) -> PageId {
        let page = self.take_unplaced();
        let place = &mut self.places[page.index()];
        (place.node, place.depth, place.is_busy) = (node, depth, true);
        page
    }

    /// A free page that belongs nowhere yet, held.
    pub(crate) fn take_unplaced(&mut self) -> PageId {
        let page = self.pages.take_one();
        self.places[page.index()] = Place { held: 1, ..Place::NONE };
        page
    }

    /// A page of a window pool is not given up.
    pub(crate) fn delist(&mut self, page: PageId) {
        if self.lru.contains(page.0) {
            self.lru.remove(page.0);
            self.pages.cached -= 1;
        }
    }

    /// Its page has gone from the tree, or has lost its copy.
    pub(crate) fn forget(&mut self, page: PageId) {
        self.delist(page);
        let place = &mut self.places[page.index()];
        place.node = NodeId::NONE;
        if place.held == 0 {
            self.pages.give_back(page);
        }
    }

    /// Somebody needs its bytes.
    pub(crate) fn hold(&mut self, page: PageId) {
        self.places[page.index()].held += 1;
        self.delist(page);
    }

    /// Somebody does not need them any more. `false` when it was forgotten and is free now.
    pub(crate) fn release(&mut self, page: PageId) -> bool {
        let place = &mut self.places[page.index()];
        place.held -= 1;
        if place.node.is_some() {
            return true;
        }
        if place.held == 0 {
            self.pages.give_back(page);
        }
        false
    }

    /// Puts a page of a window pool that the device has not, and that nobody holds, where it can be
    /// given up.
    pub(crate) fn enlist(&mut self, page: PageId) {
        let Self { lru, places, pages, .. } = self;
        let place = places[page.index()];
        if place.is_busy || place.held > 0 || lru.contains(page.0) {
            return;
        }
        lru.insert_after(page.0, |other| places[other as usize].used <= place.used);
        pages.cached += 1;
    }

    pub(crate) const fn room(&self) -> usize {
        self.pages.available()
    }

    pub(crate) fn stats(&self) -> HostStats {
        let pool = &self.pages;
        HostStats {
            name: pool.spec.name,
            capacity: pool.spec.capacity,
            used_active: Pages(pool.spec.capacity.0 - pool.available() as u64),
            used_cached: Pages(pool.cached as u64),
            hit_pages: pool.hit_pages,
            evicted_pages: pool.evicted,
            alloc_failures: pool.alloc_failures,
            backups_dropped: self.dropped,
        }
    }

    /// As [`Pool::resize`].
    pub(crate) fn resize(&mut self, pages: usize) -> usize {
        let pages = self.pages.resize(pages);
        self.places.resize(pages, Place::NONE);
        pages
    }
}

pub(crate) fn pool_id(index: usize) -> PoolId {
    PoolId(u16::try_from(index).expect("checked in PoolSet::new"))
}
