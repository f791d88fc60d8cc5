//! Everything behind the lock: the pools, the tree over their pages, what is found in it, and how
//! pages become active and cached.

use types::{Time, TokenId};

use crate::ages::Age;
use crate::hash::HashFn;
use crate::layout::PoolSpec;
use crate::namespace::Namespace;
use crate::node::{NO_PAGE, NodeId};
use crate::pool::Pool;
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
    /// Counts the times that a table let go of something.
    pub(crate) clock: u64,
    /// The caller's clock, once it has told.
    pub(crate) now: Option<Time>,
    /// Not taken yet.
    pub(crate) ages: Vec<Age>,
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
    /// Of its pages, those that are usable only because of what is on the host; the last ones.
    pub(crate) gained: usize,
    /// Of its pages, those that somebody holds.
    pub(crate) held: usize,
}

/// Which pages of a pool concern whoever asks for a prefix.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reach {
    /// The first one it has, of those before the page it asks from.
    pub(crate) has: usize,
    /// In window pools, the first one that it may ever read: it need not be given those before.
    pub(crate) reads: usize,
}

impl Match {
    /// Nothing.
    pub(crate) const NONE: Self =
        Self { node: NodeId::NONE, taken: 0, pages: 0, full_pages: 0, gained: 0, held: 0 };
}

impl State {
    pub(crate) fn new(specs: Vec<PoolSpec>, hash: HashFn) -> Self {
        let page_tokens = specs[0].page_tokens;
        let pools: Vec<_> = specs.into_iter().map(Pool::new).collect();
        let anchor = pools.iter().position(Pool::is_full).unwrap_or(0);
        let tree = Tree::new(page_tokens, pools.len(), anchor, hash);
        Self {
            pools,
            tree,
            query_tokens: 0,
            tier: None,
            clock: 0,
            now: None,
            ages: Vec::new(),
            runs: Vec::new(),
        }
    }

    /// Follows `tokens` from the end of `node`, which holds `from` pages of them, over at most
    /// `limit` pages in all. `reach(pool)` is what concerns whoever asks in a pool. With
    /// `over_host`, over what is on either tier; else over what is on the device.
    pub(crate) fn walk(
        &mut self,
        node: NodeId,
        from: usize,
        reach: impl Fn(usize) -> Reach,
        tokens: &[TokenId],
        limit: usize,
        over_host: bool,
    ) -> Match {
        let Self { tree, pools, runs, tier, .. } = self;
        let host = tier.as_ref().filter(|_| over_host);
        let page_tokens = tree.page_tokens;
        runs.clear();
        runs.extend((0..pools.len()).map(|pool| from - reach(pool).has.min(from)));
        let taken = tree.nodes[node].len();
        let mut best = Match { node, taken, pages: from, full_pages: from, gained: 0, held: from };
        let (mut node, mut end, mut held) = (node, from, from);
        while end < limit {
            let rest = &tokens[end * page_tokens..limit * page_tokens];
            let (Some(child), _) = tree.child(node, rest) else { break };
            let found = &tree.nodes[child];
            let mut common = found.common(rest, page_tokens);
            let on_host = |place: usize, pool: usize| {
                host.is_some_and(|tier| tier.pools[pool].has(found.host[place]))
            };
            for index in found.resident..common {
                if !on_host(index * pools.len() + tree.anchor, tree.anchor) {
                    common = index;
                    break;
                }
            }
            for index in 0..common {
                end += 1;
                let mut whole = true;
                for (pool, run) in runs.iter_mut().enumerate() {
                    let Some(windows) = &pools[pool].windows else { continue };
                    let place = index * pools.len() + pool;
                    let there = found.pages[place] != NO_PAGE || on_host(place, pool);
                    *run = if there { *run + 1 } else { 0 };
                    whole &= *run >= windows.pages.min(end.saturating_sub(reach(pool).reads));
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
        best
    }

    /// The longest usable prefix of `tokens` over at most `limit` pages, for somebody who has none
    /// of them. `reads(pool)` is the first page of a window pool that it may ever read.
    pub(crate) fn find(
        &mut self,
        ns: &Namespace,
        tokens: &[TokenId],
        limit: usize,
        reads: impl Fn(usize) -> usize,
    ) -> Match {
        let Some(root) = self.tree.root(ns) else { return Match::NONE };
        let reach = |pool| Reach { has: 0, reads: reads(pool) };
        self.usable(root, 0, reach, tokens, limit)
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
        let now = self.now.unwrap_or_default();
        let mut next = node;
        while !self.tree.nodes[next].is_root() {
            let (node, found) = (next, &mut self.tree.nodes[next]);
            next = found.parent;
            found.locks -= 1;
            if used {
                (found.used, found.at) = (self.clock, now);
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
        }
        self.reap(node);
    }

    /// Whether `node` is below a root that was flushed.
    pub(crate) fn is_dead(&self, node: NodeId) -> bool {
        self.tree.dead_roots > 0 && self.tree.nodes[self.tree.root_of(node)].dead
    }
}
