//! What must hold inside the cache whatever was done: every count from its definition.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use types::PageId;

use crate::node::{NO_PAGE, NodeId};
use crate::state::State;
use crate::{PageTable, PoolSet};

type Checked = Result<(), TestCaseError>;

/// Checks everything; `tables` are all tables of `set` there are.
pub(super) fn consistent(set: &PoolSet, tables: &[&PageTable]) -> Checked {
    let state = set.lock();
    structure(&state)?;
    locks(&state, tables)?;
    recency(&state, &state.tree.lru.keys())?;
    for pool in 0..state.pools.len() {
        pages(&state, pool, tables)?;
        windows(&state, pool, tables)?;
    }
    Ok(())
}

/// Nodes, edges and hashes form one tree per namespace.
pub(crate) fn structure(state: &State) -> Checked {
    let tree = &state.tree;
    let mut children: HashMap<NodeId, u32> = HashMap::new();
    let mut found = 0;
    for (&(parent, hash), &head) in tree.edges() {
        let mut node = head;
        let mut firsts = HashSet::new();
        while node.is_some() {
            let child = &tree.nodes[node];
            prop_assert_eq!(child.parent, parent);
            prop_assert_eq!(child.hashes[0], hash);
            prop_assert!(firsts.insert(&child.tokens[..tree.page_tokens]), "equal children");
            *children.entry(parent).or_default() += 1;
            found += 1;
            node = child.twin;
        }
    }
    let mut nodes = 0;
    let mut hasher = tree.hasher.clone();
    for (id, node) in tree.nodes.live() {
        prop_assert_eq!(node.children, children.get(&id).copied().unwrap_or(0));
        if node.is_root() {
            prop_assert!(node.children > 0, "a root without pages");
            prop_assert!(node.dead || tree.root(&node.namespace) == Some(id));
            continue;
        }
        nodes += 1;
        let parent = &tree.nodes[node.parent];
        prop_assert!(node.len() > 0, "a node without pages");
        prop_assert_eq!(node.depth, parent.end());
        prop_assert_eq!(node.tokens.len(), node.len() * tree.page_tokens);
        prop_assert_eq!(node.pages.len(), node.len() * tree.pools);
        let mut hash = parent.last_hash();
        for (page, own) in node.tokens.chunks(tree.page_tokens).zip(&node.hashes) {
            hash = hasher.page(hash, page);
            prop_assert_eq!(hash, *own);
        }
    }
    prop_assert_eq!(found, nodes, "every node is found from its parent");
    prop_assert!(tree.roots().all(|root| !tree.nodes[root].dead));
    Ok(())
}

/// A node's locks are the tables that end at or below it.
fn locks(state: &State, tables: &[&PageTable]) -> Checked {
    let mut locks: HashMap<NodeId, u32> = HashMap::new();
    for table in tables {
        let mut node = table.parts().1.node;
        while node.is_some() && !state.tree.nodes[node].is_root() {
            *locks.entry(node).or_default() += 1;
            node = state.tree.nodes[node].parent;
        }
    }
    for (id, node) in state.tree.nodes.live().filter(|(_, node)| !node.is_root()) {
        prop_assert_eq!(node.locks, locks.get(&id).copied().unwrap_or(0));
        prop_assert_eq!(state.tree.lru.contains(id.0), node.locks == 0);
    }
    Ok(())
}

/// In the order of last use a node is behind its parent.
pub(crate) fn recency(state: &State, keys: &[u32]) -> Checked {
    let place: HashMap<u32, usize> = keys.iter().copied().zip(0..).collect();
    for key in keys {
        let parent = state.tree.nodes[NodeId(*key)].parent;
        if let Some(above) = place.get(&parent.0) {
            prop_assert!(*above > place[key], "a parent would be dropped before its child");
        }
    }
    Ok(())
}

/// Free, active and cached pages are disjoint and add up.
fn pages(state: &State, pool: usize, tables: &[&PageTable]) -> Checked {
    let mut used: HashSet<PageId> = HashSet::new();
    let mut cached = 0;
    for (_, node) in state.tree.nodes.live() {
        for page in node.pages.iter().skip(pool).step_by(state.tree.pools) {
            if *page != NO_PAGE {
                prop_assert!(used.insert(*page), "page {} is published twice", page);
                cached += usize::from(node.locks == 0);
            } else {
                prop_assert!(!state.pools[pool].is_full(), "a hole in a full pool");
            }
        }
    }
    let mut active: HashSet<PageId> = HashSet::new();
    for table in tables {
        let (lists, shared) = table.parts();
        for (depth, page) in (lists[pool].first..).zip(&lists[pool].pages) {
            active.insert(*page);
            let is_own = depth >= shared.published;
            prop_assert!(!is_own || used.insert(*page), "page {} has two owners", page);
            prop_assert!(used.contains(page), "page {} is held and not published", page);
        }
        for (_, page) in shared.swapped.iter().flatten().filter(|(of, _)| *of == pool) {
            prop_assert!(used.insert(*page), "page {} was swapped and is in use", page);
            active.insert(*page);
        }
    }
    let pool = &state.pools[pool];
    if pool.is_full() {
        prop_assert_eq!(pool.cached, cached);
    }
    let capacity = pool.spec.capacity.0 as usize;
    prop_assert_eq!(pool.free() + pool.cached + active.len(), capacity);
    prop_assert_eq!(pool.free() + used.len(), capacity);
    prop_assert!(used.iter().all(|page| pool.is_out(*page)));
    Ok(())
}

/// Published window pages know their place and their holders.
fn windows(state: &State, pool: usize, tables: &[&PageTable]) -> Checked {
    let Some(windows) = &state.pools[pool].windows else { return Ok(()) };
    let mut holders: HashMap<PageId, u32> = HashMap::new();
    for table in tables {
        let (lists, shared) = table.parts();
        let published = shared.published.saturating_sub(lists[pool].first);
        for page in lists[pool].pages.iter().take(published) {
            *holders.entry(*page).or_default() += 1;
        }
    }
    let mut listed = HashSet::new();
    for (id, node) in state.tree.nodes.live().filter(|(_, node)| !node.is_root()) {
        for (depth, ids) in (node.depth..).zip(node.pages.chunks(state.tree.pools)) {
            let page = ids[pool];
            if page == NO_PAGE {
                continue;
            }
            let meta = windows.meta[page.index()];
            prop_assert_eq!((meta.node, meta.depth), (id, depth));
            prop_assert_eq!(meta.locks, holders.get(&page).copied().unwrap_or(0));
            prop_assert!(meta.locks > 0 || meta.keep, "cached without need");
            if meta.locks == 0 {
                listed.insert(page.0);
            }
        }
    }
    let lru: HashSet<u32> = windows.lru.keys().into_iter().collect();
    prop_assert_eq!(&lru, &listed);
    prop_assert_eq!(state.pools[pool].cached, listed.len());
    Ok(())
}
