//! Copies from the device to the host: while the pages stay on the device, or as they leave it.

use types::PageId;

use super::{Copied, pool_id};
use crate::host::{Direction, WritePolicy};
use crate::node::{NO_PAGE, NodeId};
use crate::state::State;

/// A page of a pool that shall be copied: pages before it, its node, its pool.
type Wanted = (usize, NodeId, usize);

impl State {
    /// Orders a copy of each page up to the end of `node`, which is held, that has none: the first
    /// ones of them, as far as there is room on the host in every pool that has a part of the page.
    /// Of window pools, those with `from` pages before them or more that are worth caching.
    ///
    /// What finds no room is counted where it has `fresh` pages before it or more.
    pub(crate) fn back_up(&mut self, node: NodeId, from: usize, fresh: usize) {
        let mut wanted = self.without_copy(node, from);
        if wanted.is_empty() || self.is_dead(node) {
            return;
        }
        wanted.sort_unstable();
        let (fit, needs) = self.fitting(&wanted, fresh);
        if fit == 0 {
            return;
        }
        self.make_host_room(&needs);
        let mut copied: Vec<Copied> = Vec::with_capacity(fit);
        for (depth, node, pool) in wanted.drain(..fit) {
            let device = self.give_copy(node, depth, pool);
            copied.push(device);
            if !self.pools[pool].is_full() {
                self.hold_window(pool, device.1, true);
            }
        }
        let mut next = node;
        while !self.tree.nodes[next].is_root() {
            self.lock_for_copy(next);
            next = self.tree.nodes[next].parent;
        }
        let tier = self.tier.as_mut().expect("the caller has one");
        tier.order(Direction::Backup, false, vec![node], copied);
    }

    /// The pages up to the end of `node` that have no copy and should have one.
    fn without_copy(&self, node: NodeId, from: usize) -> Vec<Wanted> {
        let (tree, mut wanted) = (&self.tree, Vec::new());
        let mut next = node;
        while !tree.nodes[next].is_root() {
            let found = &tree.nodes[next];
            for index in found.backed..found.len() {
                if found.host[index * tree.pools + tree.anchor] == NO_PAGE {
                    let full = self.pools.iter().enumerate().filter(|(_, pool)| pool.is_full());
                    wanted.extend(full.map(|(pool, _)| (found.depth + index, next, pool)));
                }
            }
            for index in from.saturating_sub(found.depth)..found.len() {
                for (pool, of) in self.pools.iter().enumerate() {
                    let Some(windows) = &of.windows else { continue };
                    let place = index * tree.pools + pool;
                    let (page, copy) = (found.pages[place], found.host[place]);
                    if page != NO_PAGE && copy == NO_PAGE && windows.meta[page.index()].keep {
                        wanted.push((found.depth + index, next, pool));
                    }
                }
            }
            next = found.parent;
        }
        wanted
    }

    /// How many of `wanted` find room on the host, whole pages from the first one on, and how much
    /// of it in each pool.
    fn fitting(&mut self, wanted: &[Wanted], fresh: usize) -> (usize, Vec<usize>) {
        let tier = self.tier.as_mut().expect("the caller has one");
        let mut needs = vec![0; tier.pools.len()];
        let mut fit = 0;
        for page in wanted.chunk_by(|a, b| a.0 == b.0) {
            if page.iter().any(|(_, _, pool)| needs[*pool] == tier.pools[*pool].room()) {
                break;
            }
            page.iter().for_each(|(_, _, pool)| needs[*pool] += 1);
            fit += page.len();
        }
        let mut short = vec![false; tier.pools.len()];
        for (depth, _, pool) in &wanted[fit..] {
            let host = &mut tier.pools[*pool];
            if *depth >= fresh {
                host.dropped.no_host_room += 1;
                short[*pool] |= needs[*pool] == host.room();
            }
        }
        for (host, _) in tier.pools.iter_mut().zip(short).filter(|(_, short)| *short) {
            host.pages.alloc_failures += 1;
        }
        (fit, needs)
    }

    /// Gives up pages that the host has alone until so many are free in each pool.
    pub(crate) fn make_host_room(&mut self, needs: &[usize]) {
        for (pool, need) in needs.iter().enumerate() {
            while self.tier.as_ref().is_some_and(|tier| tier.pools[pool].pages.free() < *need) {
                if self.pools[pool].is_full() {
                    self.evict_host_page(pool);
                } else {
                    self.evict_host_window(pool);
                }
            }
        }
    }

    /// Gives the page with so many before it in `node` a host page, which is free, in one pool.
    fn give_copy(&mut self, node: NodeId, depth: usize, pool: usize) -> Copied {
        let tier = self.tier.as_mut().expect("the caller has one");
        let copy = tier.pools[pool].take(node, depth);
        let found = &mut self.tree.nodes[node];
        let index = depth - found.depth;
        let place = index * self.tree.pools + pool;
        debug_assert_eq!(found.host[place], NO_PAGE);
        found.host[place] = copy;
        if pool == self.tree.anchor && found.backed == index {
            found.backed += 1;
        }
        (pool_id(pool), found.pages[place], copy)
    }

    /// The last page of `node` that is on the device, which has no copy, leaves it. `false` where
    /// it gets none, because the policy gives none then or the host has no room.
    pub(crate) fn save_page(&mut self, node: NodeId, index: usize) -> bool {
        if !self.saves() {
            return false;
        }
        let needs: Vec<_> = self.pools.iter().map(|pool| usize::from(pool.is_full())).collect();
        if !self.has_host_room(&needs) {
            return false;
        }
        self.make_host_room(&needs);
        let depth = self.tree.nodes[node].depth + index;
        let is_known = self.tier.as_ref().is_some_and(|tier| tier.leaving.1.last() == Some(&node));
        if !is_known {
            self.lock_host_path(node);
        }
        for (pool, _) in needs.iter().enumerate().filter(|(_, need)| **need > 0) {
            let copied = self.give_copy(node, depth, pool);
            self.tier.as_mut().expect("it has room").leaving.0.push(copied);
        }
        if !is_known {
            self.tier.as_mut().expect("it has room").leaving.1.push(node);
        }
        true
    }

    /// A page of window pool `pool`, which nobody holds, leaves the device.
    pub(crate) fn save_window(&mut self, pool: usize, page: PageId) {
        let windows = self.pools[pool].windows.as_ref().expect("a window pool");
        let meta = windows.meta[page.index()];
        let found = &self.tree.nodes[meta.node];
        let place = (meta.depth - found.depth) * self.tree.pools + pool;
        if !self.saves() || found.host[place] != NO_PAGE {
            return;
        }
        let mut needs = vec![0; self.pools.len()];
        needs[pool] = 1;
        if self.has_host_room(&needs) {
            self.make_host_room(&needs);
            let copied = self.give_copy(meta.node, meta.depth, pool);
            self.tier.as_mut().expect("it has room").leaving.0.push(copied);
        }
    }

    /// Whether pages are copied as they leave the device.
    fn saves(&self) -> bool {
        self.tier.as_ref().is_some_and(|tier| match tier.policy {
            WritePolicy::WriteBack => true,
            WritePolicy::WriteThrough | WritePolicy::WriteThroughSelective => false,
        })
    }

    /// Whether so many host pages could be had in each pool; counts where not.
    pub(crate) fn has_host_room(&mut self, needs: &[usize]) -> bool {
        let Some(tier) = &mut self.tier else { return false };
        let mut room = true;
        for (host, need) in tier.pools.iter_mut().zip(needs) {
            if host.room() < *need {
                host.pages.alloc_failures += 1;
                host.dropped.no_host_room += *need as u64;
                room = false;
            }
        }
        room
    }

    /// Orders the copies of what has left the device since the last call.
    pub(crate) fn order_leaving(&mut self) {
        if let Some(tier) = self.tier.as_mut().filter(|tier| !tier.leaving.0.is_empty()) {
            let (pages, nodes) = std::mem::take(&mut tier.leaving);
            tier.order(Direction::Backup, true, nodes, pages);
        }
    }
}
