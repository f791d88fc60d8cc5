//! The tier in host memory: which cached pages have a copy there, which are there alone, and the
//! copies between the tiers that are wanted or being carried out.
//!
//! Along each path of the tree the pages on the device are the first ones, and so are those with a
//! copy; each page is on one tier at least. A page on the device pins its copy; pages that are on
//! the host alone are given up last first, longest unused first. They come into that order as the
//! device drops them, so it is the order of their last use.
//!
//! An order to copy holds its path, as a table does, from its last page up to the root.

use types::{PageId, Pages, PoolId, TokenId};

use crate::host::{
    CopyEnd, CopyOrder, Direction, DroppedBackups, HostStats, HostTier, WritePolicy,
};
use crate::layout::PoolSpec;
use crate::lru::Lru;
use crate::node::{NO_PAGE, Node, NodeId};
use crate::pool::{Eviction, Pool};
use crate::radix::Tree;
use crate::state::{Match, State};
use crate::table::Lookup;

/// An order that has not ended.
#[derive(Debug)]
struct Pending {
    id: u64,
    direction: Direction,
    /// The node that ends with its last page.
    node: NodeId,
    /// Pages before its first one.
    start: usize,
    /// A copy before it on the same path was not made, so this one is of no use.
    void: bool,
}

/// Host pages and copies.
#[derive(Debug)]
pub(crate) struct Tier {
    pub(crate) policy: WritePolicy,
    /// Tokens that a load must save at least.
    threshold: usize,
    /// Host pages; `cached` counts those that are on the host alone.
    pools: Vec<Pool>,
    dropped: Vec<DroppedBackups>,
    /// Nodes with pages that are on the host alone. Such a node is always behind its parent, where
    /// that has such pages too.
    lru: Lru,
    /// Not taken yet.
    fresh: Vec<CopyOrder>,
    /// By age; the fresh ones too.
    pending: Vec<Pending>,
    next_id: u64,
}

impl Tier {
    /// A tier without pages.
    ///
    /// # Panics
    /// When it has not as many pools as the device, or less pages than the device in one of them.
    pub(crate) fn new(specs: &[PoolSpec], host: &HostTier) -> Self {
        assert_eq!(specs.len(), host.pages.len(), "each pool has host pages");
        let pool = |(spec, pages): (&PoolSpec, &usize)| {
            let capacity = Pages(*pages as u64);
            assert!(capacity >= spec.capacity, "each device page can have its copy");
            Pool::new(PoolSpec { capacity, ..spec.clone() })
        };
        Self {
            policy: host.policy,
            threshold: host.load_back_threshold,
            pools: specs.iter().zip(&host.pages).map(pool).collect(),
            dropped: vec![DroppedBackups::default(); specs.len()],
            lru: Lru::new(),
            fresh: Vec::new(),
            pending: Vec::new(),
            next_id: 0,
        }
    }

    pub(crate) fn take_copies(&mut self, to: &mut Vec<CopyOrder>) {
        to.append(&mut self.fresh);
    }

    pub(crate) fn stats(&self, pool: usize) -> HostStats {
        let (pool, dropped) = (&self.pools[pool], self.dropped[pool]);
        HostStats {
            name: pool.spec.name,
            capacity: pool.spec.capacity,
            used_active: Pages(pool.spec.capacity.0 - pool.available() as u64),
            used_cached: Pages(pool.cached as u64),
            hit_pages: pool.hit_pages,
            evicted_pages: pool.evicted,
            alloc_failures: pool.alloc_failures,
            backups_dropped: dropped,
        }
    }

    /// `upper` was cut off `node`, and holds its first pages.
    pub(crate) fn split(&mut self, tree: &Tree, node: NodeId, upper: NodeId) {
        let high = &tree.nodes[upper];
        if high.backed > high.resident {
            self.lru.insert_newer_than(upper.0, node.0);
        }
    }

    /// Whether `node` has pages that are on the host alone has perhaps changed.
    pub(crate) fn relist(&mut self, found: &Node, node: NodeId) {
        match (found.backed > found.resident, self.lru.contains(node.0)) {
            (true, false) => self.lru.push_newest(node.0),
            (false, true) => self.lru.remove(node.0),
            (true, true) | (false, false) => {}
        }
    }

    /// Nodes with pages that are on the host alone, oldest first.
    #[cfg(test)]
    pub(crate) fn order_of_nodes(&self) -> Vec<u32> {
        self.lru.keys()
    }

    /// Whether copies will be undone when their orders end.
    #[cfg(test)]
    pub(crate) fn undoes(&self) -> bool {
        self.pending.iter().any(|order| order.void)
    }

    fn order(&mut self, direction: Direction, node: NodeId, start: usize, pages: Copied) {
        let id = self.next_id;
        self.next_id += 1;
        self.pending.push(Pending { id, direction, node, start, void: false });
        self.fresh.push(CopyOrder { id, direction, pages, urgent: false });
    }
}

/// Pool, device page, host page.
type Copied = Vec<(PoolId, PageId, PageId)>;

fn pool_id(index: usize) -> PoolId {
    PoolId(u16::try_from(index).expect("checked in PoolSet::new"))
}

impl State {
    /// As [`walk`](Self::walk), over both tiers where what is on the host alone is worth loading
    /// and the device has room for it; over the device alone otherwise.
    pub(crate) fn usable(
        &mut self,
        node: NodeId,
        from: usize,
        first: impl Fn(usize) -> usize,
        tokens: &[TokenId],
        limit: usize,
    ) -> Match {
        let Some(threshold) = self.tier.as_ref().map(|tier| tier.threshold) else {
            return self.walk(node, from, first, tokens, limit, false);
        };
        let found = self.walk(node, from, &first, tokens, limit, true);
        if found.host_pages == 0 {
            return found;
        }
        // Pages of the match that an eviction could take otherwise.
        let mut unheld = 0;
        let mut next = found.node;
        while next != node && self.tree.nodes[next].locks == 0 && !self.tree.nodes[next].is_root() {
            let here = &self.tree.nodes[next];
            let taken = if next == found.node { found.taken } else { here.len() };
            unheld += taken.min(here.resident);
            next = here.parent;
        }
        let room = |pool: &Pool| pool.available() - unheld >= found.host_pages;
        let saves = found.host_pages * self.tree.page_tokens >= threshold;
        if saves && self.pools.iter().filter(|pool| pool.is_full()).all(room) {
            return found;
        }
        self.walk(node, from, first, tokens, limit, false)
    }

    /// Brings the last `pages` pages up to the end of `node`, which is held, to the device.
    pub(crate) fn load(&mut self, node: NodeId, pages: usize, lookup: Lookup) {
        if pages == 0 {
            return;
        }
        let mut ids = Vec::new();
        for pool in 0..self.pools.len() {
            self.make_free(pool, pages);
            self.pools[pool].take(pages, &mut ids);
        }
        let end = self.tree.nodes[node].end();
        let mut copied = Vec::new();
        let mut next = node;
        let mut order = Vec::new();
        while self.tree.nodes[next].end() > end - pages {
            let found = &mut self.tree.nodes[next];
            for index in found.resident..found.len() {
                for pool in 0..self.tree.pools {
                    let place = index * self.tree.pools + pool;
                    let device = ids[pool * pages + found.depth + index + pages - end];
                    found.pages[place] = device;
                    order.push((found.depth + index, copied.len()));
                    copied.push((pool_id(pool), device, found.host[place]));
                }
            }
            let parent = found.parent;
            self.revive(next);
            next = parent;
        }
        // From the first page on, so that whoever waits for the copies can begin there.
        order.sort_unstable();
        let copied = order.iter().map(|(_, index)| copied[*index]).collect();
        self.hold_path(node);
        let tier = self.tier.as_mut().expect("only a tier has pages to load");
        if lookup != Lookup::Again {
            tier.pools.iter_mut().for_each(|pool| pool.hit_pages += pages as u64);
        }
        tier.order(Direction::Load, node, end - pages, copied);
    }

    /// All pages of `node`, which is held, are on the device again, or are about to be.
    pub(crate) fn revive(&mut self, node: NodeId) {
        let found = &mut self.tree.nodes[node];
        let pages = found.len() - found.resident;
        found.resident += pages;
        if let Some(tier) = &mut self.tier {
            tier.pools.iter_mut().for_each(|pool| pool.cached -= pages);
            tier.relist(found, node);
        }
    }

    fn hold_path(&mut self, node: NodeId) {
        let mut next = node;
        while !self.tree.nodes[next].is_root() {
            self.lock_for_copy(next);
            next = self.tree.nodes[next].parent;
        }
    }

    /// Orders a copy of each page up to the end of `node`, which is held, that has none; of none of
    /// them where the host has not the room.
    pub(crate) fn back_up(&mut self, node: NodeId) {
        let end = self.tree.nodes[node].end();
        let mut start = end;
        let mut next = node;
        while !self.tree.nodes[next].is_root() {
            let found = &self.tree.nodes[next];
            if found.backed == found.len() {
                break;
            }
            start = found.depth + found.backed;
            next = found.parent;
        }
        let pages = end - start;
        if pages == 0 || !self.make_host_room(pages) {
            return;
        }
        let tier = self.tier.as_mut().expect("the caller has one");
        let mut ids = Vec::new();
        tier.pools.iter_mut().for_each(|pool| pool.take(pages, &mut ids));
        let mut copied = vec![(PoolId(0), NO_PAGE, NO_PAGE); pages * self.tree.pools];
        let mut next = node;
        while self.tree.nodes[next].end() > start {
            let found = &mut self.tree.nodes[next];
            for index in found.backed..found.len() {
                for pool in 0..self.tree.pools {
                    let place = index * self.tree.pools + pool;
                    let nth = found.depth + index - start;
                    let host = ids[pool * pages + nth];
                    found.host[place] = host;
                    copied[nth * self.tree.pools + pool] =
                        (pool_id(pool), found.pages[place], host);
                }
            }
            found.backed = found.len();
            next = found.parent;
        }
        tier.order(Direction::Backup, node, start, copied);
        self.hold_path(node);
    }

    /// Gives up pages that are on the host alone until `pages` are free in every pool; counts where
    /// that is not possible, and gives up nothing then.
    fn make_host_room(&mut self, pages: usize) -> bool {
        let tier = self.tier.as_mut().expect("the caller has one");
        let mut room = true;
        for (pool, dropped) in tier.pools.iter_mut().zip(&mut tier.dropped) {
            if pool.available() < pages {
                pool.alloc_failures += 1;
                dropped.no_host_room += pages as u64;
                room = false;
            }
        }
        if !room {
            return false;
        }
        while self.tier.iter().flat_map(|tier| &tier.pools).any(|pool| pool.free() < pages) {
            let oldest = self.tier.as_ref().and_then(|tier| tier.lru.oldest());
            let oldest = oldest.expect("cached pages were counted");
            self.drop_host_only(NodeId(oldest), Eviction::Capacity);
        }
        true
    }

    /// Gives up the last page of `node`, which is on the host alone.
    fn drop_host_only(&mut self, node: NodeId, why: Eviction) {
        debug_assert_eq!(self.tree.nodes[node].children, 0, "the oldest is a leaf");
        let tier = self.tier.as_mut().expect("it has pages");
        for pool in &mut tier.pools {
            pool.cached -= 1;
        }
        self.free_host_page(node, Some(why));
        self.truncate(node);
    }

    /// Frees the copy of the last page of `node`, where it has one; `why` counts it as evicted.
    pub(crate) fn free_host_page(&mut self, node: NodeId, why: Option<Eviction>) {
        let Some(tier) = &mut self.tier else { return };
        let found = &mut self.tree.nodes[node];
        if found.backed < found.len() {
            return;
        }
        found.backed -= 1;
        let place = found.host.len() - self.tree.pools;
        for (pool, page) in tier.pools.iter_mut().zip(&found.host[place..]) {
            pool.give_back(*page);
            if let Some(why) = why {
                pool.evicted.count(why);
            }
        }
    }

    /// Takes the last page of `node` that is on the device from there, where it has a copy. `false`
    /// where it has none; then it is the last page of the branch.
    pub(crate) fn demote_last_page(&mut self, node: NodeId, short: usize) -> bool {
        let Some(tier) = &mut self.tier else { return false };
        let found = &mut self.tree.nodes[node];
        if found.resident > found.backed {
            return false;
        }
        found.resident -= 1;
        let start = found.resident * self.tree.pools;
        for (index, pool) in self.pools.iter_mut().enumerate() {
            let page = std::mem::replace(&mut found.pages[start + index], NO_PAGE);
            pool.cached -= 1;
            let why = if index == short { Eviction::Capacity } else { Eviction::Pressure };
            pool.evicted.count(why);
            pool.give_back(page);
        }
        tier.pools.iter_mut().for_each(|pool| pool.cached += 1);
        tier.relist(found, node);
        if found.resident == 0 {
            self.tree.lru.remove(node.0);
        }
        true
    }

    /// Drops what is on the host alone.
    pub(crate) fn flush_host(&mut self) {
        while let Some(oldest) = self.tier.as_ref().and_then(|tier| tier.lru.oldest()) {
            self.drop_host_only(NodeId(oldest), Eviction::Flush);
        }
    }

    /// The order `id` has ended.
    ///
    /// # Panics
    /// When there is none.
    pub(crate) fn finish_copy(&mut self, id: u64, result: CopyEnd) {
        let pending = self.tier.as_mut().map(|tier| &mut tier.pending);
        let place = pending.as_ref().and_then(|all| all.iter().position(|order| order.id == id));
        let (Some(pending), Some(place)) = (pending, place) else {
            panic!("no order {id} is being carried out");
        };
        let order = pending.remove(place);
        match (order.direction, result) {
            (Direction::Backup, CopyEnd::Done) if !order.void => {}
            (Direction::Backup, CopyEnd::Done | CopyEnd::Dropped | CopyEnd::Failed) => {
                self.undo_backup(&order, result);
            }
            (Direction::Load, CopyEnd::Done) => {}
            // Somebody may have computed with the rows already, and published what came out.
            (Direction::Load, CopyEnd::Dropped | CopyEnd::Failed) => self.flush(),
        }
        self.let_go(order.node, false);
    }

    /// Frees the host pages of a backup that was not made, which is still held. Backups of pages
    /// behind it have begun later and are undone when they end.
    fn undo_backup(&mut self, order: &Pending, result: CopyEnd) {
        let mut path = Vec::new();
        let mut next = order.node;
        while self.tree.nodes[next].end() > order.start {
            path.push(next);
            next = self.tree.nodes[next].parent;
        }
        let Self { tree, tier, .. } = self;
        let tier = tier.as_mut().expect("it had the order");
        for later in &mut tier.pending {
            let mut next = later.node;
            while later.direction == Direction::Backup && !tree.nodes[next].is_root() {
                later.void |= path.contains(&next);
                next = tree.nodes[next].parent;
            }
        }
        for node in path {
            let found = &mut tree.nodes[node];
            let keep = order.start.saturating_sub(found.depth);
            let (len, pools) = (found.len(), tree.pools);
            for index in keep..len {
                for pool in 0..pools {
                    let page = std::mem::replace(&mut found.host[index * pools + pool], NO_PAGE);
                    tier.pools[pool].give_back(page);
                    if result == CopyEnd::Dropped {
                        tier.dropped[pool].queue += 1;
                    }
                }
            }
            found.backed = keep;
        }
    }
}
