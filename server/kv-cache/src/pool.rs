//! The pages of one pool: which are free, how many are only cached, and what happened to them.

use types::{Bytes, PageId, Pages, Time};

use crate::layout::PoolSpec;
use crate::lru::Lru;
use crate::node::NodeId;

/// Cached pages that were dropped, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evictions {
    /// This pool had too few free pages.
    pub capacity: u64,
    /// The page of another pool that belongs to the same tokens was dropped, and without it this
    /// one could not be used.
    pub pressure: u64,
    /// The cache was emptied.
    pub flush: u64,
}

impl Evictions {
    pub(crate) const fn count(&mut self, why: Eviction) {
        match why {
            Eviction::Capacity => self.capacity += 1,
            Eviction::Pressure => self.pressure += 1,
            Eviction::Flush => self.flush += 1,
        }
    }
}

/// Why a cached page is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Eviction {
    Capacity,
    Pressure,
    Flush,
}

/// Usage of a pool; plain values. Free, active and cached pages add up to the capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolStats {
    /// The pool's name.
    pub name: &'static str,
    /// Bytes of one page.
    pub page_bytes: Bytes,
    /// Pages there are.
    pub capacity: Pages,
    /// Pages held by page tables or by running copies, those that several share counted once.
    pub used_active: Pages,
    /// Pages that only the prefix cache holds; they are given up when somebody needs room.
    pub used_cached: Pages,
    /// Allocations that found no room, since the pool was made.
    pub alloc_failures: u64,
    /// Pages that prefix hits found on the device, since the pool was made.
    pub hit_pages: u64,
    /// Cached pages dropped, since the pool was made; those that stay in host memory, too.
    pub evicted_pages: Evictions,
    /// Tokens looked up in the prefix cache, since the pools were made; the same in every pool.
    pub query_tokens: u64,
}

/// What is known of a page of a window pool. Full pools need none of it: their pages are locked and
/// evicted by node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowPage {
    /// Where it is published; `NONE` while it is free or belongs to one table.
    pub(crate) node: NodeId,
    /// Pages before it in its sequence; with `node` this is its place.
    pub(crate) depth: usize,
    /// Page tables and running copies that hold it.
    pub(crate) locks: u32,
    /// Of these, copies.
    pub(crate) copies: u32,
    /// Worth caching once nobody holds it.
    pub(crate) keep: bool,
    /// When a page table last let go of it.
    pub(crate) used: u64,
    /// The same by the caller's clock.
    pub(crate) at: Time,
}

impl WindowPage {
    /// Of a page that is free or belongs to one table.
    pub(crate) const NONE: Self = Self {
        node: NodeId::NONE,
        depth: 0,
        locks: 0,
        copies: 0,
        keep: false,
        used: 0,
        at: Time(0),
    };
}

/// The published pages of a window pool.
#[derive(Debug)]
pub(crate) struct Windows {
    /// Whole pages before a page boundary that a match ending there needs.
    pub(crate) pages: usize,
    /// By page id.
    pub(crate) meta: Vec<WindowPage>,
    /// Published pages that nobody holds.
    pub(crate) lru: Lru,
}

/// One pool.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) spec: PoolSpec,
    /// Free pages; the last one freed is the first one reused, while it is still in cache.
    free: Vec<PageId>,
    /// Which pages are out. Costs a bit per page and turns a double free into a panic at its cause.
    out: Vec<bool>,
    /// Published pages that nobody holds.
    pub(crate) cached: usize,
    /// Pages that running copies hold, and no table.
    pub(crate) copying: usize,
    /// `None` for a pool that keeps everything.
    pub(crate) windows: Option<Windows>,
    pub(crate) alloc_failures: u64,
    pub(crate) hit_pages: u64,
    pub(crate) evicted: Evictions,
}

impl Pool {
    /// A pool whose pages are all free.
    ///
    /// # Panics
    /// When a field of `spec` is out of the range that it documents.
    pub(crate) fn new(spec: PoolSpec) -> Self {
        assert!(spec.page_tokens > 0, "a page holds at least one token");
        assert!(spec.window != Some(0), "a window holds the token itself");
        let pages = u32::try_from(spec.capacity.0).expect("a page id has 32 bits");
        assert!(pages > 0 && pages < u32::MAX, "a pool has at least one page");
        let windows = spec.window_pages().map(|window| Windows {
            pages: window,
            meta: vec![WindowPage::NONE; pages as usize],
            lru: Lru::new(),
        });
        Self {
            spec,
            // Reversed, so that the first allocations take the lowest ids.
            free: (0..pages).rev().map(PageId).collect(),
            out: vec![false; pages as usize],
            cached: 0,
            copying: 0,
            windows,
            alloc_failures: 0,
            hit_pages: 0,
            evicted: Evictions::default(),
        }
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.windows.is_none()
    }

    /// Pages that nobody holds and nothing is cached in.
    pub(crate) const fn free(&self) -> usize {
        self.free.len()
    }

    /// Pages that an allocation can have.
    pub(crate) const fn available(&self) -> usize {
        self.free.len() + self.cached
    }

    pub(crate) fn stats(&self, query_tokens: u64) -> PoolStats {
        let used = (self.available() as u64, self.cached as u64);
        PoolStats {
            name: self.spec.name,
            page_bytes: self.spec.page_bytes,
            capacity: self.spec.capacity,
            used_active: Pages(self.spec.capacity.0 - used.0),
            used_cached: Pages(used.1),
            alloc_failures: self.alloc_failures,
            hit_pages: self.hit_pages,
            evicted_pages: self.evicted,
            query_tokens,
        }
    }

    /// Appends `count` free pages to `to`.
    ///
    /// # Panics
    /// When fewer are free.
    pub(crate) fn take(&mut self, count: usize, to: &mut Vec<PageId>) {
        let keep = self.free.len().checked_sub(count).expect("the caller made room");
        for page in self.free.drain(keep..).rev() {
            let out = &mut self.out[page.index()];
            assert!(!*out, "a free page is not held by anyone");
            *out = true;
            to.push(page);
        }
    }

    /// A free page.
    ///
    /// # Panics
    /// When none is.
    pub(crate) fn take_one(&mut self) -> PageId {
        let page = self.free.pop().expect("the caller made room");
        self.out[page.index()] = true;
        page
    }

    /// Takes a page back that nobody refers to any more.
    pub(crate) fn give_back(&mut self, page: PageId) {
        let out = &mut self.out[page.index()];
        assert!(*out, "a page is freed once");
        *out = false;
        self.free.push(page);
    }

    /// So many pages, from id 0 on, or as few more as those in use allow. Returns how many.
    pub(crate) fn resize(&mut self, pages: usize) -> usize {
        let used = self.out.iter().rposition(|out| *out).map_or(0, |last| last + 1);
        let (before, pages) = (self.out.len(), pages.max(used).max(1));
        self.free.retain(|page| page.index() < pages);
        let id = |index: usize| PageId(u32::try_from(index).expect("a page id has 32 bits"));
        self.free.extend((before..pages).map(id));
        self.out.resize(pages, false);
        self.spec.capacity = Pages(pages as u64);
        pages
    }

    /// Whether `page` is in use or cached.
    pub(crate) fn is_out(&self, page: PageId) -> bool {
        self.out[page.index()]
    }
}
