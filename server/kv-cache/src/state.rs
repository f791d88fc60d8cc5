//! Everything behind the lock: the pools, the tree over their pages, and how pages move between
//! free, active and cached.

use types::{PageId, TokenId};

use crate::hash::HashFn;
use crate::layout::PoolSpec;
use crate::namespace::Namespace;
use crate::node::{NO_PAGE, NodeId};
use crate::pool::{Eviction, Pool, WindowPage};
use crate::radix::Tree;
use crate::tier::Tier;

/// Pools and tree.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) pools: Vec<Pool>,
    pub(crate) tree: Tree,
    pub(crate) query_tokens: u64,
    /// The tier behind the device.
    pub(crate) tier: Option<Tier>,
    /// Counts the times that a table let go of its pages.
    clock: u64,
    /// Scratch of [`walk`](Self::walk): per pool, pages before the walk's end that are all there.
    runs: Vec<usize>,
}

/// The longest usable prefix found by a walk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Match {
    /// The node in which it ends.
    pub(crate) node: NodeId,
    /// Pages of that node that belong to it.
    pub(crate) taken: usize,
    /// Its pages.
    pub(crate) pages: usize,
    /// Pages that the pools without a window have; more than `pages` where a window has a hole.
    pub(crate) full_pages: usize,
    /// Of its pages, those that are only in host memory; the last ones.
    pub(crate) host_pages: usize,
    /// Of its pages, those that somebody holds.
    pub(crate) held: usize,
}

impl State {
    pub(crate) fn new(specs: Vec<PoolSpec>, hash: HashFn) -> Self {
        let page_tokens = specs[0].page_tokens;
        let pools: Vec<_> = specs.into_iter().map(Pool::new).collect();
        let tree = Tree::new(page_tokens, pools.len(), hash);
        Self { pools, tree, query_tokens: 0, tier: None, clock: 0, runs: Vec::new() }
    }

    /// Follows `tokens` from the end of `node`, which holds `from` pages of them, over at most
    /// `limit` pages in all. `first(pool)` is the first page that whoever asks has in a pool.
    /// Without `over_host` the walk ends at the first page that is not on the device.
    pub(crate) fn walk(
        &mut self,
        node: NodeId,
        from: usize,
        first: impl Fn(usize) -> usize,
        tokens: &[TokenId],
        limit: usize,
        over_host: bool,
    ) -> Match {
        let Self { tree, pools, runs, .. } = self;
        let page_tokens = tree.page_tokens;
        runs.clear();
        runs.extend((0..pools.len()).map(|pool| from - first(pool).min(from)));
        let taken = tree.nodes[node].len();
        let mut best =
            Match { node, taken, pages: from, full_pages: from, host_pages: 0, held: from };
        let (mut node, mut end, mut held, mut resident) = (node, from, from, from);
        while end < limit {
            let rest = &tokens[end * page_tokens..limit * page_tokens];
            let (Some(child), _) = tree.child(node, rest) else { break };
            let found = &tree.nodes[child];
            let mut common = found.common(rest, page_tokens);
            if !over_host {
                common = common.min(found.resident);
            }
            resident += common.min(found.resident);
            for index in 0..common {
                end += 1;
                let ids = &found.pages[index * pools.len()..];
                let mut whole = true;
                for ((pool, run), id) in pools.iter().zip(&mut *runs).zip(ids) {
                    if pool.is_full() {
                        continue;
                    }
                    *run = if *id == NO_PAGE { 0 } else { *run + 1 };
                    let needed = pool.windows.as_ref().map_or(0, |windows| windows.pages);
                    whole &= *run >= needed.min(end);
                }
                if whole {
                    (best.node, best.taken, best.pages) = (child, index + 1, end);
                }
            }
            if found.locks > 0 {
                held = end;
            }
            if common < found.len() {
                break;
            }
            node = child;
        }
        best.full_pages = end;
        best.held = held.min(best.pages);
        best.host_pages = best.pages - resident.min(best.pages);
        best
    }

    /// The longest usable prefix of `tokens` over at most `limit` pages.
    pub(crate) fn find(&mut self, ns: &Namespace, tokens: &[TokenId], limit: usize) -> Match {
        match self.tree.root(ns) {
            Some(root) => self.usable(root, 0, |_| 0, tokens, limit),
            None => Match {
                node: NodeId::NONE,
                taken: 0,
                pages: 0,
                full_pages: 0,
                host_pages: 0,
                held: 0,
            },
        }
    }

    /// Cuts `node` behind its first `pages` pages; returns the new node above.
    pub(crate) fn split(&mut self, node: NodeId, pages: usize) -> NodeId {
        let Self { tree, pools, .. } = self;
        let upper = tree.split(node, pages);
        if let Some(tier) = &mut self.tier {
            tier.split(tree, node, upper);
        }
        for ids in tree.nodes[upper].pages.chunks(pools.len()) {
            for (pool, page) in pools.iter_mut().zip(ids).filter(|(_, page)| **page != NO_PAGE) {
                if let Some(windows) = &mut pool.windows {
                    windows.meta[page.index()].node = upper;
                }
            }
        }
        upper
    }

    /// One more table ends at or below `node`.
    pub(crate) fn lock(&mut self, node: NodeId) {
        let found = &mut self.tree.nodes[node];
        found.locks += 1;
        let pages = found.resident;
        if found.locks == 1 {
            if pages > 0 {
                self.tree.lru.remove(node.0);
            }
            self.full_pools().for_each(|pool| pool.cached -= pages);
        } else if found.locks == found.copies + 1 {
            self.full_pools().for_each(|pool| pool.copying -= pages);
        }
    }

    /// One more copy ends at or below `node`.
    pub(crate) fn lock_for_copy(&mut self, node: NodeId) {
        self.lock(node);
        let found = &mut self.tree.nodes[node];
        found.copies += 1;
        // Where only copies held it before, the lock above has just taken it out.
        if found.locks == found.copies {
            let pages = found.resident;
            self.full_pools().for_each(|pool| pool.copying += pages);
        }
    }

    /// A table that ends at `node` lets go of everything up to the root.
    pub(crate) fn unlock_path(&mut self, node: NodeId) {
        self.clock += 1;
        self.let_go(node, true);
    }

    /// A table or a copy that ends at `node` lets go of everything up to the root; `used` says that
    /// this is the last use of its pages.
    pub(crate) fn let_go(&mut self, node: NodeId, used: bool) {
        let dead = self.tree.dead_roots > 0 && {
            let root = self.tree.root_of(node);
            self.tree.nodes[root].dead
        };
        let mut next = node;
        while !self.tree.nodes[next].is_root() {
            let (node, found) = (next, &mut self.tree.nodes[next]);
            next = found.parent;
            found.locks -= 1;
            if used {
                found.used = self.clock;
            } else {
                found.copies -= 1;
            }
            let pages = found.len();
            let (locks, copies) = (found.locks, found.copies);
            if used && copies > 0 && locks == copies {
                self.full_pools().for_each(|pool| pool.copying += pages);
            } else if !used && locks == 0 {
                self.full_pools().for_each(|pool| pool.copying -= pages);
            }
            if locks > 0 {
                continue;
            }
            if used {
                self.tree.lru.push_newest(node.0);
            } else {
                let Tree { nodes, lru, .. } = &mut self.tree;
                let last = nodes[node].used;
                lru.insert_after(node.0, |other| nodes[NodeId(other)].used <= last);
            }
            self.full_pools().for_each(|pool| pool.cached += pages);
            if dead && self.drop_node(node) {
                return;
            }
        }
    }

    /// One more table holds the published page of window pool `pool`.
    pub(crate) fn hold_window(&mut self, pool: usize, page: PageId) {
        let pool = &mut self.pools[pool];
        let windows = pool.windows.as_mut().expect("a window pool");
        let meta = &mut windows.meta[page.index()];
        meta.locks += 1;
        if meta.locks == 1 {
            windows.lru.remove(page.0);
            pool.cached -= 1;
        }
    }

    /// A table lets go of a published page of window pool `pool`; `keep` says that the page is
    /// worth caching.
    pub(crate) fn release_window(&mut self, pool: usize, page: PageId, keep: bool) {
        let found = &mut self.pools[pool];
        let windows = found.windows.as_mut().expect("a window pool");
        let meta = &mut windows.meta[page.index()];
        meta.keep |= keep;
        meta.locks -= 1;
        if meta.locks > 0 {
            return;
        }
        if meta.keep {
            windows.lru.push_newest(page.0);
            found.cached += 1;
        } else {
            self.entomb(pool, page);
        }
    }

    /// Takes a page that nobody holds and no list has out of the tree, and frees it.
    fn entomb(&mut self, pool: usize, page: PageId) -> NodeId {
        let windows = self.pools[pool].windows.as_mut().expect("a window pool");
        let meta = &mut windows.meta[page.index()];
        let (node, depth) = (meta.node, meta.depth);
        *meta = WindowPage { node: NodeId::NONE, depth: 0, locks: 0, keep: false };
        let found = &mut self.tree.nodes[node];
        let place = &mut found.pages[(depth - found.depth) * self.tree.pools + pool];
        debug_assert_eq!(*place, page);
        *place = NO_PAGE;
        self.pools[pool].give_back(page);
        node
    }

    /// Drops cached pages, longest unused first, until `count` pages of `pool` are free.
    ///
    /// # Panics
    /// When the pool has fewer free and cached ones.
    pub(crate) fn make_free(&mut self, pool: usize, count: usize) {
        while self.pools[pool].free() < count {
            let oldest = match &self.pools[pool].windows {
                None => self.tree.lru.oldest(),
                Some(windows) => windows.lru.oldest(),
            };
            let oldest = oldest.expect("the caller counted the cached pages");
            if self.pools[pool].is_full() {
                let node = NodeId(oldest);
                if !self.demote_last_page(node, pool) {
                    debug_assert_eq!(self.tree.nodes[node].children, 0, "the oldest is a leaf");
                    let next = self.drop_last_page(node, Some(pool), Eviction::Capacity);
                    self.prune(next);
                }
            } else {
                self.unlist_window(pool, PageId(oldest), Eviction::Capacity);
                let node = self.entomb(pool, PageId(oldest));
                self.prune(node);
            }
        }
    }

    fn unlist_window(&mut self, pool: usize, page: PageId, why: Eviction) {
        let pool = &mut self.pools[pool];
        pool.windows.as_mut().expect("a window pool").lru.remove(page.0);
        pool.cached -= 1;
        pool.evicted.count(why);
    }

    /// Drops the last page of a leaf that nobody holds, in every pool; `why` counts for `pool`, or
    /// for all when none is named. Returns what is then the end of the branch.
    fn drop_last_page(&mut self, node: NodeId, pool: Option<usize>, why: Eviction) -> NodeId {
        debug_assert_eq!(self.tree.nodes[node].resident, self.tree.nodes[node].len());
        let end = self.tree.nodes[node].end();
        let start = self.tree.nodes[node].pages.len() - self.tree.pools;
        for index in 0..self.tree.pools {
            let same = pool.is_none_or(|pool| pool == index);
            let why = if same { why } else { Eviction::Pressure };
            let page = self.tree.nodes[node].pages[start + index];
            if self.pools[index].is_full() {
                let pool = &mut self.pools[index];
                pool.cached -= 1;
                pool.evicted.count(why);
                pool.give_back(page);
            } else if page != NO_PAGE {
                self.unlist_window(index, page, why);
                self.entomb(index, page);
            }
        }
        // With its page on the device a copy is no eviction of the host's.
        self.free_host_page(node, None);
        self.tree.nodes[node].resident -= 1;
        debug_assert_eq!(self.tree.nodes[node].end(), end);
        self.truncate(node)
    }

    /// Takes the last page of `node` out of the tree; its ids have been given back. Returns what is
    /// then the end of the branch.
    pub(crate) fn truncate(&mut self, node: NodeId) -> NodeId {
        let Self { tree, tier, .. } = self;
        let page_tokens = tree.page_tokens;
        let found = &mut tree.nodes[node];
        let first = found.hashes[0];
        found.pages.truncate(found.pages.len() - tree.pools);
        found.host.truncate(found.pages.len());
        found.hashes.pop();
        found.tokens.truncate(found.tokens.len() - page_tokens);
        if let Some(tier) = tier {
            tier.relist(found, node);
        }
        if found.resident == 0 && tree.lru.contains(node.0) {
            tree.lru.remove(node.0);
        }
        let found = &tree.nodes[node];
        if found.len() > 0 {
            return node;
        }
        let parent = found.parent;
        let orphan = tree.nodes[parent].is_root() && tree.nodes[parent].children == 1;
        tree.remove(node, first);
        if orphan { NodeId::NONE } else { parent }
    }

    /// Drops pages from the end of a branch while nobody holds them and a window pool has lost its
    /// part: no match can end there, so they would only fill the pools that still have theirs.
    fn prune(&mut self, mut node: NodeId) {
        while node.is_some() {
            let found = &self.tree.nodes[node];
            if found.is_root() || found.locks > 0 || found.children > 0 {
                return;
            }
            let last = &found.pages[found.pages.len() - self.tree.pools..];
            let hole = last.iter().zip(&self.pools).position(|(page, pool)| {
                // A window of one token needs no page of the past.
                *page == NO_PAGE && pool.windows.as_ref().is_some_and(|windows| windows.pages > 0)
            });
            let Some(hole) = hole else { return };
            // The hole itself was counted when it was made.
            node = self.drop_last_page(node, Some(hole), Eviction::Pressure);
        }
    }

    /// Drops a node that nobody holds and that is a leaf; `true` when the root went with it.
    fn drop_node(&mut self, node: NodeId) -> bool {
        let mut next = node;
        while next == node {
            next = self.drop_last_page(node, None, Eviction::Flush);
        }
        !next.is_some()
    }

    /// Drops everything that nobody holds, and lets nobody find the rest.
    pub(crate) fn flush(&mut self) {
        self.flush_host();
        while let Some(oldest) = self.tree.lru.oldest() {
            self.drop_node(NodeId(oldest));
        }
        self.tree.forget_roots();
    }

    fn full_pools(&mut self) -> impl Iterator<Item = &mut Pool> {
        self.pools.iter_mut().filter(|pool| pool.is_full())
    }
}
