//! What can be taken from both tiers, and the copies from the host to the device.

use types::PageId;

use super::{Copied, pool_id};
use crate::ages::{AgeEvent, CacheTier};
use crate::host::Direction;
use crate::node::{NO_PAGE, NodeId};
use crate::pool::WindowPage;
use crate::state::{Match, Reach, State};
use crate::table::Lookup;

/// What a prefix costs in one pool of the device.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Need {
    /// Pages that are on the host alone.
    pub(crate) load: usize,
    /// Pages that are there and that an eviction could take otherwise.
    pub(crate) unheld: usize,
}

impl State {
    /// As [`walk`](Self::walk), over both tiers where that saves enough and the device has room for
    /// what is on the host alone; over the device alone otherwise.
    pub(crate) fn usable(
        &mut self,
        node: NodeId,
        from: usize,
        reach: impl Fn(usize) -> Reach,
        tokens: &[types::TokenId],
        limit: usize,
    ) -> Match {
        let Some(threshold) = self.tier.as_ref().map(|tier| tier.threshold) else {
            return self.walk(node, from, reach, tokens, limit, false);
        };
        let found = self.walk(node, from, &reach, tokens, limit, true);
        if found.pages == from {
            return found;
        }
        let start = |pool: usize| from.max(reach(pool).has).max(reach(pool).reads);
        let (mut loads, mut room) = (false, true);
        for pool in 0..self.pools.len() {
            let need = self.need(&found, node, pool, start(pool));
            loads |= need.load > 0;
            room &= self.pools[pool].available() >= need.load + need.unheld;
        }
        if !loads {
            return found;
        }
        let device = self.walk(node, from, reach, tokens, limit, false);
        let gained = found.pages - device.pages;
        if room && gained * self.tree.page_tokens >= threshold {
            return Match { gained, ..found };
        }
        // Where the others' pages end says what they have in common with this one, wherever it is.
        Match { full_pages: found.full_pages, ..device }
    }

    /// What taking `found` behind the end of `node` costs in a pool. `start` is the first page that
    /// whoever asks lacks there, of those it needs.
    pub(crate) fn need(&self, found: &Match, node: NodeId, pool: usize, start: usize) -> Need {
        let mut need = Need::default();
        let window = self.pools[pool].windows.as_ref();
        let start = window.map_or(0, |own| start.max(found.pages.saturating_sub(own.pages)));
        let (mut next, mut end) = (found.node, found.pages);
        while next != node && end > start && !self.tree.nodes[next].is_root() {
            let here = &self.tree.nodes[next];
            let taken = end - here.depth;
            if let Some(windows) = window {
                let from = start.saturating_sub(here.depth);
                let ids = here.pages.iter().skip(pool).step_by(self.tree.pools);
                for page in ids.take(taken).skip(from) {
                    let is_there = *page != NO_PAGE;
                    need.load += usize::from(!is_there);
                    need.unheld += usize::from(is_there && windows.meta[page.index()].locks == 0);
                }
            } else {
                let resident = taken.min(here.resident);
                need.load += taken - resident;
                need.unheld += if here.locks == 0 { resident } else { 0 };
            }
            (next, end) = (here.parent, here.depth);
        }
        need
    }

    /// Brings what is on the host alone of the pages up to the end of `node`, which is held, to the
    /// device; in window pools, the pages from `start(pool)` on. Those that are there must be held.
    /// Returns how many pages that were in each pool.
    pub(crate) fn load(
        &mut self,
        node: NodeId,
        start: impl Fn(usize) -> usize,
        lookup: Lookup,
    ) -> Vec<usize> {
        let wanted = self.on_host_alone(node, start);
        let mut counts = vec![0; self.pools.len()];
        if wanted.is_empty() {
            return counts;
        }
        for (depth, node, pool) in &wanted {
            self.revive(*node);
            self.hold_copy(*node, *depth, *pool, lookup);
            counts[*pool] += 1;
        }
        let mut ids = Vec::with_capacity(counts.len());
        for (pool, count) in counts.iter().enumerate() {
            let mut pages = Vec::with_capacity(*count);
            self.make_free(pool, *count);
            self.pools[pool].take(*count, &mut pages);
            ids.push(pages.into_iter());
        }
        let mut copied: Vec<Copied> = Vec::with_capacity(wanted.len());
        for (depth, node, pool) in wanted {
            let page = ids[pool].next().expect("counted before");
            copied.push(self.place_loaded(node, depth, pool, page));
        }
        let mut next = node;
        while !self.tree.nodes[next].is_root() {
            self.lock_for_copy(next);
            next = self.tree.nodes[next].parent;
        }
        let tier = self.tier.as_mut().expect("only a tier has pages to load");
        if lookup != Lookup::Again {
            for (pool, count) in tier.pools.iter_mut().zip(&counts) {
                pool.pages.hit_pages += *count as u64;
            }
        }
        tier.order(Direction::Load, false, vec![node], copied);
        counts
    }

    /// The pages that [`load`](Self::load) brings: pages before each, node, pool. From the first
    /// one on, so that whoever waits for the copies can begin there.
    fn on_host_alone(
        &self,
        node: NodeId,
        start: impl Fn(usize) -> usize,
    ) -> Vec<(usize, NodeId, usize)> {
        let (tree, mut wanted) = (&self.tree, Vec::new());
        for (index, pool) in self.pools.iter().enumerate() {
            let start = if pool.is_full() { 0 } else { start(index) };
            let mut next = node;
            while !tree.nodes[next].is_root() && tree.nodes[next].end() > start {
                let found = &tree.nodes[next];
                if pool.is_full() && found.resident == found.len() {
                    break;
                }
                for at in start.saturating_sub(found.depth)..found.len() {
                    if found.pages[at * tree.pools + index] == NO_PAGE {
                        wanted.push((found.depth + at, next, index));
                    }
                }
                next = found.parent;
            }
        }
        wanted.sort_unstable();
        wanted
    }

    /// The host page of a page that is loaded stays.
    fn hold_copy(&mut self, node: NodeId, depth: usize, pool: usize, lookup: Lookup) {
        let found = &self.tree.nodes[node];
        let copy = found.host[(depth - found.depth) * self.tree.pools + pool];
        let is_full = self.pools[pool].is_full();
        let tier = self.tier.as_mut().expect("only a tier has pages to load");
        let host = &mut tier.pools[pool];
        let at = if is_full { found.at } else { host.places[copy.index()].at };
        host.hold(copy);
        if lookup != Lookup::Again {
            self.note_age(pool, CacheTier::Host, AgeEvent::Reused, at, 1);
        }
    }

    /// `page` of the device is that of a page that is loaded; held by a table, and by the copy.
    fn place_loaded(&mut self, node: NodeId, depth: usize, pool: usize, page: PageId) -> Copied {
        let found = &mut self.tree.nodes[node];
        let place = (depth - found.depth) * self.tree.pools + pool;
        found.pages[place] = page;
        let copy = found.host[place];
        if let Some(windows) = &mut self.pools[pool].windows {
            let meta = WindowPage { node, depth, locks: 1, keep: true, ..WindowPage::NONE };
            windows.meta[page.index()] = meta;
            self.hold_window(pool, page, true);
        }
        (pool_id(pool), page, copy)
    }
}
