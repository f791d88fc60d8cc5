//! Pages of window pools: held and let go of one by one, and given up in an order of their own.

use types::PageId;

use crate::ages::{AgeEvent, CacheTier};
use crate::node::{NO_PAGE, NodeId};
use crate::pool::{Eviction, WindowPage};
use crate::state::State;

impl State {
    /// One more table, or copy, holds the published page of window pool `pool`.
    pub(crate) fn hold_window(&mut self, pool: usize, page: PageId, is_copy: bool) {
        let pool = &mut self.pools[pool];
        let windows = pool.windows.as_mut().expect("a window pool");
        let meta = &mut windows.meta[page.index()];
        let only_copies = meta.locks > 0 && meta.locks == meta.copies;
        meta.locks += 1;
        meta.copies += u32::from(is_copy);
        if meta.locks == 1 {
            windows.lru.remove(page.0);
            pool.cached -= 1;
        }
        match (only_copies, meta.locks == meta.copies) {
            (false, true) => pool.copying += 1,
            (true, false) => pool.copying -= 1,
            (true, true) | (false, false) => {}
        }
    }

    /// A table lets go of a published page of window pool `pool`; `keep` says that the page is
    /// worth caching.
    pub(crate) fn release_window(&mut self, pool: usize, page: PageId, keep: bool) {
        self.clock += 1;
        let windows = self.pools[pool].windows.as_mut().expect("a window pool");
        let meta = &mut windows.meta[page.index()];
        (meta.used, meta.at) = (self.clock, self.now.unwrap_or_default());
        meta.keep |= keep;
        self.unhold_window(pool, page, false);
    }

    /// A table, or a copy, does not hold the page any more. Its place in the order is that of its
    /// last use.
    pub(crate) fn unhold_window(&mut self, pool: usize, page: PageId, is_copy: bool) {
        let found = &mut self.pools[pool];
        let windows = found.windows.as_mut().expect("a window pool");
        let meta = &mut windows.meta[page.index()];
        let only_copies = meta.locks == meta.copies;
        meta.locks -= 1;
        meta.copies -= u32::from(is_copy);
        match (only_copies, meta.locks > 0 && meta.locks == meta.copies) {
            (false, true) => found.copying += 1,
            (true, false) => found.copying -= 1,
            (true, true) | (false, false) => {}
        }
        if meta.locks > 0 {
            return;
        }
        if meta.keep {
            let (used, crate::pool::Windows { meta, lru, .. }) = (meta.used, windows);
            lru.insert_after(page.0, |other| meta[other as usize].used <= used);
            found.cached += 1;
        } else {
            self.entomb(pool, page);
        }
    }

    /// Takes a page that nobody holds and no list has from the device, and frees it there. A copy
    /// in host memory is alone from now on.
    pub(crate) fn entomb(&mut self, pool: usize, page: PageId) {
        let windows = self.pools[pool].windows.as_mut().expect("a window pool");
        let meta = std::mem::replace(&mut windows.meta[page.index()], WindowPage::NONE);
        let found = &mut self.tree.nodes[meta.node];
        let place = (meta.depth - found.depth) * self.tree.pools + pool;
        debug_assert_eq!(found.pages[place], page);
        found.pages[place] = NO_PAGE;
        self.pools[pool].give_back(page);
        let copy = found.host.get(place).copied().filter(|copy| *copy != NO_PAGE);
        if let Some((tier, copy)) = self.tier.as_mut().zip(copy) {
            let host = &mut tier.pools[pool];
            let place = &mut host.places[copy.index()];
            (place.used, place.at) = (meta.used, meta.at);
            host.enlist(copy);
        }
    }

    /// Gives up the page of window pool `pool` on the device that was used longest ago.
    ///
    /// # Panics
    /// When it has none that nobody holds.
    pub(crate) fn evict_window(&mut self, pool: usize) {
        let windows = self.pools[pool].windows.as_ref().expect("a window pool");
        let page = PageId(windows.lru.oldest().expect("the caller counted the cached pages"));
        let at = windows.meta[page.index()].at;
        self.note_age(pool, CacheTier::Device, AgeEvent::Evicted, at, 1);
        self.save_window(pool, page);
        self.unlist_window(pool, page, Eviction::Capacity);
        self.entomb(pool, page);
    }

    pub(crate) fn unlist_window(&mut self, pool: usize, page: PageId, why: Eviction) {
        let pool = &mut self.pools[pool];
        pool.windows.as_mut().expect("a window pool").lru.remove(page.0);
        pool.cached -= 1;
        pool.evicted.count(why);
    }

    /// Gives up the page of window pool `pool` that is on the host alone and was used longest ago.
    ///
    /// # Panics
    /// When it has none.
    pub(crate) fn evict_host_window(&mut self, pool: usize) {
        let tier = self.tier.as_mut().expect("it has pages");
        let page = PageId(tier.pools[pool].lru.oldest().expect("cached pages were counted"));
        let at = tier.pools[pool].places[page.index()].at;
        self.note_age(pool, CacheTier::Host, AgeEvent::Evicted, at, 1);
        self.drop_host_window(pool, page);
    }

    /// Gives up a page of a window pool that is on the host alone.
    pub(crate) fn drop_host_window(&mut self, pool: usize, page: PageId) {
        let tier = self.tier.as_mut().expect("it has pages");
        let host = &mut tier.pools[pool];
        let place = host.places[page.index()];
        host.pages.evicted.count(Eviction::Capacity);
        host.forget(page);
        self.clear_host(place.node, place.depth, pool);
    }

    /// The page with so many before it in `node` has no copy in `pool` any more.
    pub(crate) fn clear_host(&mut self, node: NodeId, depth: usize, pool: usize) {
        let is_window = !self.pools[pool].is_full();
        let found = &mut self.tree.nodes[node];
        let index = depth - found.depth;
        found.host[index * self.tree.pools + pool] = NO_PAGE;
        if !is_window {
            found.backed = found.backed.min(index);
        }
    }
}
