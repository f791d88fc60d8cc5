//! How cached pages go: one by one when room is needed, or all at once.

use crate::ages::{AgeEvent, CacheTier};
use crate::node::{NO_PAGE, NodeId};
use crate::pool::{Eviction, Pool};
use crate::radix::Tree;
use crate::state::State;

/// Why a page goes from both tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// This pool of the device needs room.
    Device(usize),
    /// This pool of the host does.
    Host(usize),
    /// The cache is emptied, or the page's rows are lost.
    Flush,
}

impl Cause {
    const fn on_device(self, pool: usize) -> Eviction {
        match self {
            Self::Device(short) if short == pool => Eviction::Capacity,
            Self::Device(_) | Self::Host(_) => Eviction::Pressure,
            Self::Flush => Eviction::Flush,
        }
    }

    const fn on_host(self, pool: usize) -> Eviction {
        match self {
            Self::Host(short) if short == pool => Eviction::Capacity,
            Self::Device(_) | Self::Host(_) => Eviction::Pressure,
            Self::Flush => Eviction::Flush,
        }
    }
}

impl State {
    /// Gives up cached pages, longest unused first, until `count` pages of `pool` are free.
    ///
    /// # Panics
    /// When the pool has fewer free and cached ones.
    pub(crate) fn make_free(&mut self, pool: usize, count: usize) {
        while self.pools[pool].free() < count {
            if self.pools[pool].is_full() {
                let oldest = self.tree.lru.oldest();
                self.evict_page(NodeId(oldest.expect("the caller counted the cached pages")), pool);
            } else {
                self.evict_window(pool);
            }
        }
        self.order_leaving();
    }

    /// Gives up the last page of `node` that is on the device, which nobody holds.
    fn evict_page(&mut self, node: NodeId, short: usize) {
        let found = &self.tree.nodes[node];
        let (index, at) = (found.resident - 1, found.at);
        for pool in 0..self.tree.pools {
            if self.pools[pool].is_full() {
                self.note_age(pool, CacheTier::Device, AgeEvent::Evicted, at, 1);
            }
        }
        if self.tier.is_none() {
            self.drop_last_page(node, Cause::Device(short));
            return;
        }
        let anchor = index * self.tree.pools + self.tree.anchor;
        if self.tree.nodes[node].host[anchor] == NO_PAGE && !self.save_page(node, index) {
            self.drop_at(node, index, Cause::Device(short));
            return;
        }
        self.leave_device(node, Cause::Device(short));
        let Self { tree, tier, .. } = self;
        if let Some(tier) = tier.as_mut().filter(|_| tree.nodes[node].host_locks == 0) {
            tier.add_cached(1);
        }
        self.relist(node);
    }

    /// Frees the last page of `node` that is on the device, in the pools without a window.
    fn leave_device(&mut self, node: NodeId, cause: Cause) {
        let Self { tree, pools, .. } = self;
        let found = &mut tree.nodes[node];
        found.resident -= 1;
        let start = found.resident * tree.pools;
        for (index, pool) in pools.iter_mut().enumerate().filter(|(_, pool)| pool.is_full()) {
            let page = std::mem::replace(&mut found.pages[start + index], NO_PAGE);
            pool.cached -= 1;
            pool.evicted.count(cause.on_device(index));
            pool.give_back(page);
        }
        if found.resident == 0 {
            tree.lru.remove(node.0);
        }
    }

    /// Frees what there is of the last page of `node`, which nobody holds on the device, and which
    /// is a leaf. Returns what is then the end of the branch.
    pub(crate) fn drop_last_page(&mut self, node: NodeId, cause: Cause) -> NodeId {
        debug_assert_eq!(self.tree.nodes[node].children, 0, "it is a leaf");
        self.free_page(node, self.tree.nodes[node].len() - 1, cause);
        self.truncate(node)
    }

    /// Frees what there is of a page that nobody holds on the device, on both tiers; behind it
    /// nothing is on the device. Its places keep nothing.
    fn free_page(&mut self, node: NodeId, index: usize, cause: Cause) {
        let found = &self.tree.nodes[node];
        let (on_device, is_listed) = (index < found.resident, found.host_locks == 0);
        for pool in 0..self.tree.pools {
            let place = index * self.tree.pools + pool;
            let page = self.tree.nodes[node].pages[place];
            if page != NO_PAGE && !self.pools[pool].is_full() {
                self.unlist_window(pool, page, cause.on_device(pool));
            }
            self.free_copy(node, index, pool, cause, !on_device && is_listed);
            if page != NO_PAGE && !self.pools[pool].is_full() {
                self.entomb(pool, page);
            }
        }
        if on_device {
            self.leave_device(node, cause);
        }
    }

    /// Frees the copy of a page in one pool, where it has one. `is_alone`: it counts as one that
    /// the host alone has, of a pool without a window.
    fn free_copy(&mut self, node: NodeId, index: usize, pool: usize, cause: Cause, is_alone: bool) {
        let Self { tree, tier, pools, .. } = self;
        let Some(tier) = tier else { return };
        let found = &mut tree.nodes[node];
        let host = &mut tier.pools[pool];
        let place = index * tree.pools + pool;
        let copy = std::mem::replace(&mut found.host[place], NO_PAGE);
        if pools[pool].is_full() {
            found.backed = found.backed.min(index);
            host.pages.cached -= usize::from(is_alone);
        }
        if copy == NO_PAGE {
            return;
        }
        // With its page on the device a copy is no eviction of the host's.
        if if pools[pool].is_full() { is_alone } else { found.pages[place] == NO_PAGE } {
            host.pages.evicted.count(cause.on_host(pool));
        }
        host.forget(copy);
    }

    /// Takes the last page of `node`, whose places are empty, out of the tree. Returns what is then
    /// the end of the branch.
    fn truncate(&mut self, node: NodeId) -> NodeId {
        let Tree { nodes, page_tokens, pools, .. } = &mut self.tree;
        let found = &mut nodes[node];
        let first = found.hashes[0];
        found.pages.truncate(found.pages.len() - *pools);
        found.host.truncate(found.pages.len());
        found.hashes.pop();
        found.tokens.truncate(found.tokens.len() - *page_tokens);
        self.relist(node);
        let found = &self.tree.nodes[node];
        if found.len() > 0 {
            return node;
        }
        let parent = found.parent;
        self.cut(node);
        let tree = &mut self.tree;
        let orphan = tree.nodes[parent].is_root() && tree.nodes[parent].children == 1;
        tree.remove(node, first);
        if orphan { NodeId::NONE } else { parent }
    }

    /// `node` is about to leave its place in the tree: nobody locks it on the host any more.
    fn cut(&mut self, node: NodeId) {
        let Self { tree, tier, .. } = self;
        if let Some(tier) = tier.as_mut().filter(|_| tree.nodes[node].host_locks > 0) {
            tier.cut(tree, node, tree.nodes[node].parent);
            tree.nodes[node].host_locks = 0;
        }
    }

    /// Drops the page with this index in `node`, which nobody holds on the device, from both tiers.
    /// What comes behind it cannot be found any more; it goes as its host pages are needed.
    pub(crate) fn drop_at(&mut self, node: NodeId, index: usize, cause: Cause) {
        let found = &self.tree.nodes[node];
        if found.children == 0 && index + 1 == found.len() {
            self.drop_last_page(node, cause);
            return;
        }
        if index > 0 {
            self.split(node, index);
        }
        let single = self.tree.nodes[node].len() == 1;
        let node = if single { node } else { self.split(node, 1) };
        self.free_page(node, 0, cause);
        self.cut(node);
        if let Some(tier) = self.tier.as_mut().filter(|tier| tier.lru.contains(node.0)) {
            tier.lru.remove(node.0);
        }
        self.tree.behead(node);
    }

    /// Gives up the page that is on the host alone and was used longest ago.
    ///
    /// # Panics
    /// When there is none.
    pub(crate) fn evict_host_page(&mut self, short: usize) {
        let oldest = self.tier.as_ref().and_then(|tier| tier.lru.oldest());
        let node = NodeId(oldest.expect("cached pages were counted"));
        let at = self.tree.nodes[node].at;
        for pool in 0..self.tree.pools {
            if self.pools[pool].is_full() {
                self.note_age(pool, CacheTier::Host, AgeEvent::Evicted, at, 1);
            }
        }
        self.drop_last_page(node, Cause::Host(short));
    }

    /// Drops what nobody holds of a branch that was flushed, from its end `node` on.
    pub(crate) fn reap(&mut self, node: NodeId) {
        if !self.is_dead(node) {
            return;
        }
        let mut next = node;
        while next.is_some() {
            let found = &self.tree.nodes[next];
            if found.is_root() || found.locks + found.host_locks + found.children > 0 {
                return;
            }
            next = self.drop_last_page(next, Cause::Flush);
        }
    }

    /// Drops everything that nobody holds, and lets nobody find the rest.
    pub(crate) fn flush(&mut self) {
        while let Some(oldest) = self.tier.as_ref().and_then(|tier| tier.lru.oldest()) {
            self.drop_last_page(NodeId(oldest), Cause::Flush);
        }
        while let Some(oldest) = self.tree.lru.oldest() {
            let node = NodeId(oldest);
            if self.tree.nodes[node].host_locks == 0 {
                self.drop_last_page(node, Cause::Flush);
                continue;
            }
            // Its host pages are needed.
            let index = self.tree.nodes[node].resident - 1;
            self.leave_device(node, Cause::Flush);
            for pool in 0..self.tree.pools {
                let page = self.tree.nodes[node].pages[index * self.tree.pools + pool];
                if page != NO_PAGE {
                    self.unlist_window(pool, page, Eviction::Flush);
                    self.entomb(pool, page);
                }
            }
        }
        self.tree.forget_roots();
    }

    pub(crate) fn full_pools(&mut self) -> impl Iterator<Item = &mut Pool> {
        self.pools.iter_mut().filter(|pool| pool.is_full())
    }
}
