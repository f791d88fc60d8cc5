//! The nodes of the tree: runs of whole pages, in an arena.

use std::ops::{Index, IndexMut};

use types::{PageId, Time, TokenId};

use crate::namespace::Namespace;

/// The place of a page that is not there: on that tier there is none of it.
pub(crate) const NO_PAGE: PageId = PageId(u32::MAX);

/// A node of the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeId(pub(crate) u32);

impl NodeId {
    /// No node.
    pub(crate) const NONE: Self = Self(u32::MAX);

    pub(crate) fn is_some(self) -> bool {
        self != Self::NONE
    }
}

/// A run of whole pages after those of its parent. A root has no pages and stands for a
/// namespace.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) parent: NodeId,
    /// The next child of the same parent whose first page has the same hash.
    pub(crate) twin: NodeId,
    /// Children it has.
    pub(crate) children: u32,
    /// Page tables and running copies that end at or below this node. All its pages are on the
    /// device while there are any.
    pub(crate) locks: u32,
    /// Of these, copies.
    pub(crate) copies: u32,
    /// Whoever needs host pages at or below this node beside what is on the device: pages that are
    /// copied as they leave the device, runs that a store reads, and reservations behind it.
    pub(crate) host_locks: u32,
    /// When a page table last let go of it; never later than its parent.
    pub(crate) used: u64,
    /// The same by the caller's clock.
    pub(crate) at: Time,
    /// Pages before its own.
    pub(crate) depth: usize,
    /// `page_tokens` per page.
    pub(crate) tokens: Vec<TokenId>,
    /// One per page, chained.
    pub(crate) hashes: Vec<u64>,
    /// One per page and pool, the pools of a page side by side.
    pub(crate) pages: Vec<PageId>,
    /// Their copies in host memory, finished or not, where there are any; like `pages`. Empty
    /// without a host tier.
    pub(crate) host: Vec<PageId>,
    /// Of its pages, the first ones that are on the device in the pools without a window. Behind a
    /// page that is not on the device there is none that is.
    pub(crate) resident: usize,
    /// Its pages before this one have a copy, finished or not, in the pools without a window.
    pub(crate) backed: usize,
    /// Of a root: what its first pages' hashes start from.
    pub(crate) seed: u64,
    /// Of a root: whom its pages belong to.
    pub(crate) namespace: Namespace,
    /// Of a root: flushed while pages of it were in use; nobody finds it any more.
    pub(crate) dead: bool,
}

impl Node {
    const fn new() -> Self {
        Self {
            parent: NodeId::NONE,
            twin: NodeId::NONE,
            children: 0,
            locks: 0,
            copies: 0,
            host_locks: 0,
            used: 0,
            at: Time(0),
            depth: 0,
            tokens: Vec::new(),
            hashes: Vec::new(),
            pages: Vec::new(),
            host: Vec::new(),
            resident: 0,
            backed: 0,
            seed: 0,
            namespace: Namespace::SHARED,
            dead: false,
        }
    }

    /// Pages of the run.
    pub(crate) const fn len(&self) -> usize {
        self.hashes.len()
    }

    /// The pages before the first one behind the run.
    pub(crate) const fn end(&self) -> usize {
        self.depth + self.len()
    }

    pub(crate) fn is_root(&self) -> bool {
        self.parent == NodeId::NONE
    }

    /// What the hash of the page behind the run starts from.
    pub(crate) fn last_hash(&self) -> u64 {
        self.hashes.last().copied().unwrap_or(self.seed)
    }

    /// How many of the run's first pages hold exactly the first whole pages of `tokens`.
    pub(crate) fn common(&self, tokens: &[TokenId], page_tokens: usize) -> usize {
        let whole = self.len().min(tokens.len() / page_tokens);
        if self.tokens[..whole * page_tokens] == tokens[..whole * page_tokens] {
            return whole;
        }
        let pairs = self.tokens.iter().zip(tokens);
        pairs.take_while(|(mine, other)| mine == other).count() / page_tokens
    }
}

/// All nodes; the places of removed ones are used again.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    nodes: Vec<Node>,
    unused: Vec<NodeId>,
}

impl Arena {
    /// A node without pages, relatives or locks.
    pub(crate) fn create(&mut self) -> NodeId {
        self.unused.pop().unwrap_or_else(|| {
            let id = u32::try_from(self.nodes.len()).expect("fewer nodes than pages");
            self.nodes.push(Node::new());
            NodeId(id)
        })
    }

    /// Takes a node back that nobody refers to.
    pub(crate) fn destroy(&mut self, id: NodeId) {
        let node = &mut self[id];
        debug_assert!(node.children == 0 && node.locks == 0 && node.host_locks == 0);
        *node = Node::new();
        self.unused.push(id);
    }

    /// Every node in use.
    #[cfg(test)]
    pub(crate) fn live(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        let unused: std::collections::HashSet<_> = self.unused.iter().copied().collect();
        let ids = (0..self.nodes.len()).map(|index| NodeId(index as u32));
        ids.filter(move |id| !unused.contains(id)).map(|id| (id, &self[id]))
    }
}

impl Index<NodeId> for Arena {
    type Output = Node;

    fn index(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }
}

impl IndexMut<NodeId> for Arena {
    fn index_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize]
    }
}
