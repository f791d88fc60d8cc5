//! The tier in host memory: which cached pages have a copy there, which are there alone, and the
//! copies between the tiers that are wanted or being carried out.
//!
//! In the pools without a window, the pages of a path that are on the device are its first ones,
//! and those behind them are on the host. A page of a window pool may be on either tier, on both or
//! on none, wherever its other pages are. Each tier and pool has an order of last use of its own;
//! what the device gives up stays on the host where it has a copy there. A page on the device pins
//! its copy, so the host gives up what it has alone.
//!
//! A host page belongs to its page of the tree from the time at which its copy is ordered, and is
//! busy until the copy ends; nobody finds a busy one. An order holds its pages: on the device, as a
//! table does, its path and its pages of window pools; on the host, each page by itself, so that a
//! page may go while its copy runs, and its host page is free when the copy ends.
//!
//! Whoever reads host pages of the tree (a run for the store), extends them (a reservation), or
//! waits for pages that have left the device and are not on the host yet (a copy in write-back)
//! locks their path on the host, and nothing on it is given up there.

mod backup;
mod finish;
mod load;
mod pool;
mod resize;
mod storage;

use types::{PageId, PoolId};

pub(crate) use self::pool::{HostPool, pool_id};
use self::storage::{Held, Run};
use crate::host::{CopyOrder, Direction, HostStats, HostTier, WritePolicy};
use crate::layout::PoolSpec;
use crate::lru::Lru;
use crate::node::{NO_PAGE, NodeId};
use crate::radix::Tree;
use crate::state::State;
use crate::storage::NewRun;

/// Pool, device page, host page.
pub(crate) type Copied = (PoolId, PageId, PageId);

/// An order that has not ended.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) id: u64,
    pub(crate) direction: Direction,
    /// Its pages have left the device; the order locks paths on the host.
    pub(crate) is_urgent: bool,
    /// The nodes that end the paths it locks.
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) pages: Vec<Copied>,
}

/// Host pages and copies.
#[derive(Debug)]
pub(crate) struct Tier {
    pub(crate) policy: WritePolicy,
    /// Tokens that a load must save at least.
    threshold: usize,
    pub(crate) pools: Vec<HostPool>,
    /// Nodes without locks on the host that have pages on the host alone, by last use. Such a node
    /// is always behind its parent, where that is in it.
    pub(crate) lru: Lru,
    /// Not taken yet.
    fresh: Vec<CopyOrder>,
    /// By age; the fresh ones too.
    pub(crate) pending: Vec<Pending>,
    /// Pages that have left the device in the call that runs, and their nodes.
    leaving: (Vec<Copied>, Vec<NodeId>),
    next_id: u64,
    /// Whether a store wants to know what is new.
    storage: bool,
    /// Not taken yet.
    new_runs: Vec<NewRun>,
    /// Those that were not released, taken or not.
    pub(crate) runs: Vec<Run>,
    pub(crate) reservations: Vec<Held>,
}

impl Tier {
    /// A tier without pages.
    ///
    /// # Panics
    /// When it has not as many pools as the device, or less pages than the device in one of them.
    pub(crate) fn new(specs: &[PoolSpec], host: &HostTier) -> Self {
        assert_eq!(specs.len(), host.pages.len(), "each pool has host pages");
        let pools = specs.iter().zip(&host.pages);
        Self {
            policy: host.policy,
            threshold: host.load_back_threshold,
            pools: pools.map(|(spec, pages)| HostPool::new(spec, *pages)).collect(),
            lru: Lru::new(),
            fresh: Vec::new(),
            pending: Vec::new(),
            leaving: (Vec::new(), Vec::new()),
            next_id: 0,
            storage: host.storage,
            new_runs: Vec::new(),
            runs: Vec::new(),
            reservations: Vec::new(),
        }
    }

    pub(crate) fn take_copies(&mut self, to: &mut Vec<CopyOrder>) {
        to.append(&mut self.fresh);
    }

    pub(crate) fn stats(&self, pool: usize) -> HostStats {
        self.pools[pool].stats()
    }

    /// `upper` was cut off `node`, and holds its first pages.
    pub(crate) fn split(&mut self, tree: &Tree, node: NodeId, upper: NodeId) {
        let high = &tree.nodes[upper];
        for ids in high.host.chunks(tree.pools) {
            for (pool, page) in self.pools.iter_mut().zip(ids).filter(|(_, id)| **id != NO_PAGE) {
                pool.places[page.index()].node = upper;
            }
        }
        if high.host_locks == 0 && high.resident < high.len() {
            self.lru.insert_newer_than(upper.0, node.0);
        }
    }

    /// Counts `pages` more pages that are on the host alone, in the pools without a window.
    pub(crate) fn add_cached(&mut self, pages: usize) {
        self.full_pools().for_each(|pool| pool.pages.cached += pages);
    }

    /// Counts `pages` fewer of them.
    pub(crate) fn sub_cached(&mut self, pages: usize) {
        self.full_pools().for_each(|pool| pool.pages.cached -= pages);
    }

    pub(crate) fn full_pools(&mut self) -> impl Iterator<Item = &mut HostPool> {
        self.pools.iter_mut().filter(|pool| !pool.is_window)
    }

    const fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn order(
        &mut self,
        direction: Direction,
        is_urgent: bool,
        nodes: Vec<NodeId>,
        pages: Vec<Copied>,
    ) {
        let id = self.id();
        self.fresh.push(CopyOrder { id, direction, pages: pages.clone(), urgent: is_urgent });
        self.pending.push(Pending { id, direction, is_urgent, nodes, pages });
    }

    /// `node` is taken out from below `parent`, and the tree is cut there. Whoever locks a path
    /// through it on the host goes on to lock what is above, and what is below.
    pub(crate) fn cut(&mut self, tree: &Tree, node: NodeId, parent: NodeId) {
        let above = Some(parent).filter(|parent| !tree.nodes[*parent].is_root());
        let is_below = |end: NodeId| {
            let mut next = end;
            while next != node && !tree.nodes[next].is_root() {
                next = tree.nodes[next].parent;
            }
            next == node
        };
        let urgent = self.pending.iter_mut().filter(|order| order.is_urgent);
        let orders = urgent.map(|order| &mut order.nodes);
        let runs = self.runs.iter_mut().map(|run| &mut run.held.nodes);
        let reserved = self.reservations.iter_mut().map(|held| &mut held.nodes);
        for ends in orders.chain(runs).chain(reserved).chain([&mut self.leaving.1]) {
            let through = ends.iter().filter(|end| is_below(**end)).count();
            ends.retain(|end| *end != node);
            ends.extend(above.into_iter().cycle().take(through));
        }
    }
}

impl State {
    /// Whether the host has the page with this index in `node`, in a pool, with its bytes.
    pub(crate) fn on_host(&self, node: NodeId, index: usize, pool: usize) -> bool {
        let page = self.tree.nodes[node].host.get(index * self.tree.pools + pool);
        let tier = self.tier.as_ref();
        page.zip(tier).is_some_and(|(page, tier)| tier.pools[pool].has(*page))
    }

    /// Brings the list of nodes with pages on the host alone up to date for `node`.
    pub(crate) fn relist(&mut self, node: NodeId) {
        let Self { tree, tier, .. } = self;
        let Some(tier) = tier else { return };
        let found = &tree.nodes[node];
        let wanted = found.host_locks == 0 && found.resident < found.len();
        match (wanted, tier.lru.contains(node.0)) {
            (true, false) => {
                let older = |other| tree.nodes[NodeId(other)].used <= found.used;
                tier.lru.insert_after(node.0, older);
            }
            (false, true) => tier.lru.remove(node.0),
            (true, true) | (false, false) => {}
        }
    }

    /// Nothing from `node` up to the root is given up on the host.
    pub(crate) fn lock_host_path(&mut self, node: NodeId) {
        let mut next = node;
        while !self.tree.nodes[next].is_root() {
            let found = &mut self.tree.nodes[next];
            found.host_locks += 1;
            if found.host_locks == 1 {
                let alone = found.len() - found.resident;
                let tier = self.tier.as_mut().expect("it is locked on the host");
                tier.sub_cached(alone);
                self.relist(next);
            }
            next = self.tree.nodes[next].parent;
        }
    }

    /// Takes back one [`lock_host_path`](Self::lock_host_path) for each of `nodes`.
    pub(crate) fn unlock_host_paths(&mut self, nodes: &[NodeId]) {
        for node in nodes {
            let mut next = *node;
            while !self.tree.nodes[next].is_root() {
                let found = &mut self.tree.nodes[next];
                found.host_locks -= 1;
                if found.host_locks == 0 {
                    let alone = found.len() - found.resident;
                    self.tier.as_mut().expect("it was locked on the host").add_cached(alone);
                    self.relist(next);
                }
                next = self.tree.nodes[next].parent;
            }
            self.reap(*node);
        }
    }

    /// All pages of `node`, which is held, are on the device again, or are about to be.
    pub(crate) fn revive(&mut self, node: NodeId) {
        let found = &mut self.tree.nodes[node];
        let pages = found.len() - found.resident;
        found.resident += pages;
        if let Some(tier) = self.tier.as_mut().filter(|_| pages > 0) {
            if found.host_locks == 0 {
                tier.sub_cached(pages);
            }
            self.relist(node);
        }
    }
}
