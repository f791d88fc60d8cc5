//! What must hold inside a cache with two tiers whatever was done: every count from its definition.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use types::PageId;

use super::world::Checked;
use crate::Direction;
use crate::model_test::check::{recency, structure};
use crate::node::{NO_PAGE, NodeId};
use crate::state::State;
use crate::tier::{HostPool, Tier};
use crate::{PageTable, PoolSet};

/// Checks everything; `tables` are all tables of `set` there are.
pub(super) fn consistent(set: &PoolSet, tables: &[&PageTable]) -> Checked {
    let state = set.lock();
    structure(&state)?;
    locks(&state, tables)?;
    recency(&state, &state.tree.lru.keys())?;
    recency(&state, &tier(&state).lru.keys())?;
    for pool in 0..state.pools.len() {
        device(&state, pool, tables)?;
        host(&state, pool)?;
    }
    Ok(())
}

fn tier(state: &State) -> &Tier {
    state.tier.as_ref().expect("there is a tier")
}

fn path(state: &State, node: NodeId) -> Vec<NodeId> {
    let inner = |node: &NodeId| node.is_some() && !state.tree.nodes[*node].is_root();
    let up = |node: &NodeId| Some(state.tree.nodes[*node].parent).filter(inner);
    std::iter::successors(Some(node).filter(inner), up).collect()
}

/// A node's locks are whoever ends at or below it; what is locked is on the device.
fn locks(state: &State, tables: &[&PageTable]) -> Checked {
    let tier = tier(state);
    let mut locks: HashMap<NodeId, u32> = HashMap::new();
    let mut copies = locks.clone();
    let mut host_locks = locks.clone();
    for table in tables {
        path(state, table.parts().1.node)
            .into_iter()
            .for_each(|node| *locks.entry(node).or_default() += 1);
    }
    for order in &tier.pending {
        for node in order.nodes.iter().flat_map(|node| path(state, *node)) {
            if order.is_urgent {
                *host_locks.entry(node).or_default() += 1;
            } else {
                *locks.entry(node).or_default() += 1;
                *copies.entry(node).or_default() += 1;
            }
        }
    }
    let held = tier.runs.iter().map(|run| &run.held).chain(&tier.reservations);
    let ends = held.flat_map(|held| &held.nodes);
    for node in ends.flat_map(|node| path(state, *node)) {
        *host_locks.entry(node).or_default() += 1;
    }
    let of = |counts: &HashMap<_, _>, id| counts.get(&id).copied().unwrap_or(0);
    for (id, node) in state.tree.nodes.live().filter(|(_, node)| !node.is_root()) {
        prop_assert_eq!(node.locks, of(&locks, id));
        prop_assert_eq!(node.copies, of(&copies, id));
        prop_assert_eq!(node.host_locks, of(&host_locks, id));
        prop_assert!(node.locks == 0 || node.resident == node.len(), "held and not on the device");
        prop_assert_eq!(state.tree.lru.contains(id.0), node.locks == 0 && node.resident > 0);
        let alone = node.resident < node.len();
        prop_assert_eq!(tier.lru.contains(id.0), node.host_locks == 0 && alone);
        let parent = &state.tree.nodes[node.parent];
        let whole = parent.is_root() || parent.resident == parent.len();
        prop_assert!(node.resident == 0 || whole, "the device has the first pages of a path");
        prop_assert!(parent.is_root() || node.used <= parent.used || parent.locks > 0);
    }
    Ok(())
}

/// Free, active and cached pages of the device are disjoint and add up.
fn device(state: &State, index: usize, tables: &[&PageTable]) -> Checked {
    let pool = &state.pools[index];
    let mut used: HashSet<PageId> = HashSet::new();
    let mut cached = HashSet::new();
    let mut holders: HashMap<PageId, (u32, u32)> = HashMap::new();
    let mut held = |page: PageId, is_copy: bool| {
        let (all, copies) = holders.entry(page).or_default();
        *all += 1;
        *copies += u32::from(is_copy);
    };
    let mut own = HashSet::new();
    for table in tables {
        let (lists, shared) = table.parts();
        for (depth, page) in (lists[index].first..).zip(&lists[index].pages) {
            if depth < shared.published {
                held(*page, false);
            } else {
                prop_assert!(own.insert(*page), "page {} has two owners", page);
            }
        }
        for (_, page) in shared.swapped.iter().flatten().filter(|(of, _)| *of == index) {
            prop_assert!(own.insert(*page), "page {} was swapped and is in use", page);
        }
    }
    for order in tier(state).pending.iter().filter(|order| !order.is_urgent) {
        let pages = order.pages.iter().filter(|(pool, _, _)| usize::from(pool.0) == index);
        if pool.is_full() {
            let nodes = order.nodes.iter().flat_map(|node| path(state, *node));
            let pages = nodes.flat_map(|node| {
                state.tree.nodes[node].pages.iter().skip(index).step_by(state.tree.pools)
            });
            pages.for_each(|page| held(*page, true));
        } else {
            pages.for_each(|(_, page, _)| held(*page, true));
        }
    }
    for (id, node) in state.tree.nodes.live().filter(|(_, node)| !node.is_root()) {
        for (at, ids) in node.pages.chunks(state.tree.pools).enumerate() {
            let page = ids[index];
            if pool.is_full() {
                prop_assert_eq!(page != NO_PAGE, at < node.resident);
            }
            if page == NO_PAGE {
                continue;
            }
            prop_assert!(used.insert(page), "page {} is published twice", page);
            let (locks, copies) = holders.get(&page).copied().unwrap_or_default();
            if let Some(windows) = &pool.windows {
                let meta = windows.meta[page.index()];
                prop_assert_eq!((meta.node, meta.depth), (id, node.depth + at));
                prop_assert_eq!((meta.locks, meta.copies), (locks, copies));
                prop_assert!(meta.locks > 0 || meta.keep, "cached without need");
                prop_assert_eq!(windows.lru.contains(page.0), locks == 0);
            }
            if locks == 0 {
                cached.insert(page);
            }
        }
    }
    prop_assert!(holders.keys().all(|page| used.contains(page)), "held and not published");
    let copying = holders.values().filter(|(all, copies)| all == copies).count();
    prop_assert_eq!(pool.copying, copying);
    prop_assert_eq!(pool.cached, cached.len());
    prop_assert!(own.is_disjoint(&used));
    prop_assert_eq!(pool.free() + used.len() + own.len(), pool.spec.capacity.0 as usize);
    prop_assert!(used.iter().chain(&own).all(|page| pool.is_out(*page)));
    Ok(())
}

/// Host pages are free, of a page of the tree, or held; they know their place and their holders.
fn host(state: &State, index: usize) -> Checked {
    let tier = tier(state);
    let pool = &tier.pools[index];
    let mut held: HashMap<PageId, u32> = HashMap::new();
    let mut busy = HashSet::new();
    for order in &tier.pending {
        for (_, _, copy) in order.pages.iter().filter(|(pool, _, _)| usize::from(pool.0) == index) {
            *held.entry(*copy).or_default() += 1;
            if order.direction == Direction::Backup {
                prop_assert!(busy.insert(*copy), "two copies to one page");
            }
        }
    }
    let mut in_runs = 0;
    for (_, copy) in tier.runs.iter().flat_map(|run| &run.pages).filter(|(pool, _)| *pool == index)
    {
        *held.entry(*copy).or_default() += 1;
        in_runs += 1;
    }
    prop_assert_eq!(pool.in_runs, in_runs);
    let mut used = HashSet::new();
    let mut cached = 0;
    for (id, node) in state.tree.nodes.live().filter(|(_, node)| !node.is_root()) {
        let mut backed = true;
        for (at, copies) in node.host.chunks(state.tree.pools).enumerate() {
            let copy = copies[index];
            backed &= copy != NO_PAGE;
            prop_assert!(index != state.tree.anchor || backed || at >= node.backed);
            let anchored = copies[state.tree.anchor] != NO_PAGE;
            if !pool.is_window {
                prop_assert!(at < node.resident || copy != NO_PAGE || node.host_locks > 0);
                cached += usize::from(at >= node.resident && node.host_locks == 0);
                prop_assert_eq!(copy != NO_PAGE, anchored, "a copy in one pool alone");
            }
            if copy == NO_PAGE {
                continue;
            }
            prop_assert!(used.insert(copy), "host page {} is of two pages", copy);
            let place = pool.places[copy.index()];
            prop_assert_eq!((place.node, place.depth), (id, node.depth + at));
            if pool.is_window {
                let alone = node.pages[at * state.tree.pools + index] == NO_PAGE;
                let free = alone && !place.is_busy && place.held == 0;
                prop_assert_eq!(pool.lru.contains(copy.0), free);
                cached += usize::from(free);
            }
        }
    }
    let out = places(state, pool, &used, &held, &busy)?;
    prop_assert_eq!(pool.pages.cached, cached);
    prop_assert_eq!(pool.pages.free() + out.len(), pool.capacity());
    let stats = pool.stats();
    prop_assert_eq!(stats.used_active.0 + stats.used_cached.0, out.len() as u64);
    Ok(())
}

/// Every host page that is not free; each knows whether it is busy, and who holds it.
fn places(
    state: &State,
    pool: &HostPool,
    used: &HashSet<PageId>,
    held: &HashMap<PageId, u32>,
    busy: &HashSet<PageId>,
) -> Result<HashSet<PageId>, TestCaseError> {
    let mut out = used.clone();
    out.extend(held.keys());
    for (at, place) in pool.places.iter().enumerate() {
        let page = PageId(at as u32);
        prop_assert_eq!(place.is_busy && pool.pages.is_out(page), busy.contains(&page));
        let reserved = pool.pages.is_out(page) && !out.contains(&page);
        prop_assert!(!reserved || (!place.node.is_some() && place.held == 1), "nobody's page");
        if reserved {
            prop_assert!(!tier(state).reservations.is_empty());
            out.insert(page);
        } else if pool.pages.is_out(page) {
            let found = used.contains(&page).then(|| &state.tree.nodes[place.node]);
            let locked = found.is_none_or(|node| node.locks + node.host_locks > 0);
            prop_assert!(pool.is_window || place.held == 0 || locked, "held and given up");
            prop_assert_eq!(place.held, held.get(&page).copied().unwrap_or(0));
            prop_assert!(place.node.is_some() == used.contains(&page));
        }
    }
    Ok(out)
}
