//! The tree: namespaces, nodes, and who is found behind whom. Knows runs of pages and locks, not
//! what a page is worth or where it goes.

use std::collections::HashMap;

use types::TokenId;

use crate::hash::{HashFn, PageHasher};
use crate::lru::Lru;
use crate::namespace::Namespace;
use crate::node::{Arena, NodeId};

/// The prefix tree. Each namespace has a root; each node is found from its parent by the hash of
/// its first page, and taken only when that page's tokens are equal.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) nodes: Arena,
    /// Nodes without locks that have pages on the device, by last use. A node is always behind its
    /// parent, so below the oldest one nothing is on the device: locks reach up to the root, and
    /// whoever lets go of a node lets go of its ancestors later.
    pub(crate) lru: Lru,
    pub(crate) hasher: PageHasher,
    pub(crate) page_tokens: usize,
    /// Pools, hence page ids per page.
    pub(crate) pools: usize,
    /// The first pool without a window: where its page is, those of all such pools are.
    pub(crate) anchor: usize,
    /// Roots that were flushed while something below them was in use.
    pub(crate) dead_roots: usize,
    roots: HashMap<Namespace, NodeId>,
    /// The first of the children of a node whose first page has a hash.
    edges: HashMap<(NodeId, u64), NodeId>,
}

impl Tree {
    pub(crate) fn new(page_tokens: usize, pools: usize, anchor: usize, hash: HashFn) -> Self {
        Self {
            nodes: Arena::default(),
            lru: Lru::new(),
            hasher: PageHasher::new(hash),
            page_tokens,
            pools,
            anchor,
            dead_roots: 0,
            roots: HashMap::new(),
            edges: HashMap::new(),
        }
    }

    /// The root of a namespace that has pages.
    pub(crate) fn root(&self, namespace: &Namespace) -> Option<NodeId> {
        self.roots.get(namespace).copied()
    }

    /// The root of a namespace, made where there is none.
    pub(crate) fn root_or_new(&mut self, namespace: &Namespace) -> NodeId {
        if let Some(root) = self.root(namespace) {
            return root;
        }
        let root = self.nodes.create();
        self.nodes[root].namespace = namespace.clone();
        self.nodes[root].seed = namespace.seed();
        self.roots.insert(namespace.clone(), root);
        root
    }

    /// The root above `node`.
    pub(crate) fn root_of(&self, mut node: NodeId) -> NodeId {
        while !self.nodes[node].is_root() {
            node = self.nodes[node].parent;
        }
        node
    }

    /// Makes every root unfindable. What is still in use below them goes when it is let go of.
    pub(crate) fn forget_roots(&mut self) {
        self.dead_roots += self.roots.len();
        for (_, root) in self.roots.drain() {
            self.nodes[root].dead = true;
        }
    }

    /// The child of `parent` that begins with the first page of `tokens`, and that page's hash.
    pub(crate) fn child(&mut self, parent: NodeId, tokens: &[TokenId]) -> (Option<NodeId>, u64) {
        let page = &tokens[..self.page_tokens];
        let hash = self.hasher.page(self.nodes[parent].last_hash(), page);
        let mut found = self.edges.get(&(parent, hash)).copied().unwrap_or(NodeId::NONE);
        while found.is_some() && self.nodes[found].tokens[..self.page_tokens] != *page {
            found = self.nodes[found].twin;
        }
        (Some(found).filter(|node| node.is_some()), hash)
    }

    /// A new node without pages below `parent`; its first page will have the hash `hash`.
    pub(crate) fn add_child(&mut self, parent: NodeId, hash: u64) -> NodeId {
        let child = self.nodes.create();
        self.lru.reserve(child.0);
        self.nodes[child].depth = self.nodes[parent].end();
        self.nodes[child].parent = parent;
        self.nodes[parent].children += 1;
        let twin = self.edges.insert((parent, hash), child);
        self.nodes[child].twin = twin.unwrap_or(NodeId::NONE);
        child
    }

    /// Cuts `node` behind its first `pages` pages; returns the new node, which holds those and is
    /// the parent of what is left. Whoever refers to `node` still finds its end where it was.
    pub(crate) fn split(&mut self, node: NodeId, pages: usize) -> NodeId {
        debug_assert!(0 < pages && pages < self.nodes[node].len());
        let upper = self.nodes.create();
        self.lru.reserve(upper.0);
        let (parent, first) = (self.nodes[node].parent, self.nodes[node].hashes[0]);
        self.relink(parent, first, node, upper);
        let low = &mut self.nodes[node];
        let tokens = take_front(&mut low.tokens, pages * self.page_tokens);
        let hashes = take_front(&mut low.hashes, pages);
        let ids = take_front(&mut low.pages, pages * self.pools);
        let host = (pages * self.pools).min(low.host.len());
        let host = take_front(&mut low.host, host);
        let (resident, backed) = (low.resident.min(pages), low.backed.min(pages));
        low.resident -= resident;
        low.backed -= backed;
        let (used, at, host_locks) = (low.used, low.at, low.host_locks);
        let (depth, locks, twin, rest) = (low.depth, low.locks, low.twin, low.hashes[0]);
        let copies = low.copies;
        low.depth += pages;
        low.parent = upper;
        low.twin = NodeId::NONE;
        let high = &mut self.nodes[upper];
        (high.parent, high.twin, high.depth, high.locks) = (parent, twin, depth, locks);
        high.copies = copies;
        (high.used, high.at, high.host_locks) = (used, at, host_locks);
        (high.tokens, high.hashes, high.pages, high.children) = (tokens, hashes, ids, 1);
        (high.host, high.resident, high.backed) = (host, resident, backed);
        self.edges.insert((upper, rest), node);
        if self.lru.contains(node.0) {
            self.lru.insert_newer_than(upper.0, node.0);
            if self.nodes[node].resident == 0 {
                self.lru.remove(node.0);
            }
        }
        upper
    }

    /// Takes a node out that has no locks and no children and is in no list; `first` is the hash
    /// that its first page had. A root that has lost its last child goes with it.
    pub(crate) fn remove(&mut self, node: NodeId, first: u64) {
        let (parent, twin) = (self.nodes[node].parent, self.nodes[node].twin);
        self.relink(parent, first, node, twin);
        self.nodes.destroy(node);
        self.lose_child(parent);
    }

    /// Cuts the tree at `node`, which has one page, is in no list and has nothing on any tier: what
    /// is below it stays, and nobody finds it any more.
    pub(crate) fn behead(&mut self, node: NodeId) {
        let found = &mut self.nodes[node];
        debug_assert!(found.len() == 1 && found.locks == 0 && found.host_locks == 0);
        let (parent, twin, hash) = (found.parent, found.twin, found.hashes[0]);
        self.relink(parent, hash, node, twin);
        let found = &mut self.nodes[node];
        (found.depth, found.seed, found.dead) = (found.end(), hash, true);
        (found.parent, found.twin) = (NodeId::NONE, NodeId::NONE);
        (found.resident, found.backed) = (0, 0);
        found.tokens.clear();
        found.hashes.clear();
        found.pages.clear();
        found.host.clear();
        if found.children == 0 {
            self.nodes.destroy(node);
        } else {
            self.dead_roots += 1;
        }
        self.lose_child(parent);
    }

    /// A child of `parent` has gone; a root that has lost its last child goes with it.
    fn lose_child(&mut self, parent: NodeId) {
        self.nodes[parent].children -= 1;
        if self.nodes[parent].is_root() && self.nodes[parent].children == 0 {
            let root = &mut self.nodes[parent];
            if root.dead {
                self.dead_roots -= 1;
            } else {
                self.roots.remove(&root.namespace);
            }
            self.nodes.destroy(parent);
        }
    }

    /// Puts `new` in the place of `old` among the children of `parent` with the hash `first`.
    /// `new` may be none, or the twin of `old`.
    fn relink(&mut self, parent: NodeId, first: u64, old: NodeId, new: NodeId) {
        let key = (parent, first);
        let head = self.edges[&key];
        if head == old {
            if new.is_some() {
                self.edges.insert(key, new);
            } else {
                self.edges.remove(&key);
            }
            return;
        }
        let mut before = head;
        while self.nodes[before].twin != old {
            before = self.nodes[before].twin;
        }
        self.nodes[before].twin = new;
    }

    /// Namespaces that have pages anybody can find.
    #[cfg(test)]
    pub(crate) fn roots(&self) -> impl Iterator<Item = NodeId> {
        self.roots.values().copied()
    }

    /// Edges by parent and hash, twins not followed.
    #[cfg(test)]
    pub(crate) const fn edges(&self) -> &HashMap<(NodeId, u64), NodeId> {
        &self.edges
    }
}

/// Cuts a list behind its first `count` entries and returns those. Only the others move.
fn take_front<T>(list: &mut Vec<T>, count: usize) -> Vec<T> {
    let rest = list.split_off(count);
    std::mem::replace(list, rest)
}
