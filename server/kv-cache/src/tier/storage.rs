//! What goes to a store behind the host tier and what comes from it.

use types::{PageId, TokenId};

use super::{Pending, pool_id};
use crate::namespace::Namespace;
use crate::node::{NO_PAGE, NodeId};
use crate::state::State;
use crate::storage::{HostReservation, NewRun};

/// Runs that are read at once. What comes new beyond them is not offered.
const RUNS_MAX: usize = 256;

/// Whoever locks a path on the host.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) id: u64,
    /// The nodes that end the paths: one, and more where pages of it have gone.
    pub(crate) nodes: Vec<NodeId>,
}

/// A run that was offered.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) held: Held,
    /// By pool.
    pub(crate) pages: Vec<(usize, PageId)>,
}

impl State {
    /// The copies of `order` are there: offers its pages to the store.
    pub(super) fn report(&mut self, order: &Pending) {
        let Some(tier) = self.tier.as_ref().filter(|tier| tier.storage) else { return };
        // Of each node, the first and the last page.
        let mut ranges: Vec<(NodeId, usize, usize)> = Vec::new();
        for (pool, _, copy) in &order.pages {
            let place = tier.pools[usize::from(pool.0)].places[copy.index()];
            let known = ranges.iter_mut().rev().find(|range| range.0 == place.node);
            match known {
                Some((_, first, last)) => {
                    (*first, *last) = ((*first).min(place.depth), (*last).max(place.depth));
                }
                None if place.node.is_some() => ranges.push((place.node, place.depth, place.depth)),
                None => {}
            }
        }
        ranges.sort_unstable_by_key(|range| range.1);
        for (node, first, last) in ranges {
            let mut start = first;
            for depth in first..=last + 1 {
                let index = depth - self.tree.nodes[node].depth;
                if depth > last || !self.on_host(node, index, self.tree.anchor) {
                    self.offer(node, start, depth);
                    start = depth + 1;
                }
            }
        }
    }

    /// Offers the pages of `node` from `first` up to `end`, counted from the root.
    fn offer(&mut self, node: NodeId, first: usize, end: usize) {
        if first >= end || self.is_dead(node) {
            return;
        }
        let mut held: Vec<(usize, PageId)> = Vec::new();
        let mut pages = Vec::with_capacity(end - first);
        for depth in first..end {
            let index = depth - self.tree.nodes[node].depth;
            let there = (0..self.tree.pools).filter(|pool| self.on_host(node, index, *pool));
            let copy = |pool| self.tree.nodes[node].host[index * self.tree.pools + pool];
            let page: Vec<_> = there.map(|pool| (pool, copy(pool))).collect();
            pages.push(page.iter().map(|(pool, copy)| (pool_id(*pool), *copy)).collect());
            held.extend(page);
        }
        // A slow store must not keep the host from working.
        let tier = self.tier.as_ref().expect("it has pages");
        let most = |(index, pool): (usize, &super::HostPool)| {
            let more = held.iter().filter(|(pool, _)| *pool == index).count();
            (pool.in_runs + more) * 2 <= pool.capacity()
        };
        if tier.runs.len() >= RUNS_MAX || !tier.pools.iter().enumerate().all(most) {
            return;
        }
        self.lock_host_path(node);
        let root = self.tree.root_of(node);
        let namespace = self.tree.nodes[root].namespace.clone();
        let tokens = self.prefix(node, end);
        let tier = self.tier.as_mut().expect("it has pages");
        for (pool, copy) in &held {
            tier.pools[*pool].hold(*copy);
            tier.pools[*pool].in_runs += 1;
        }
        let id = tier.id();
        tier.new_runs.push(NewRun { id, namespace, tokens, first, pages });
        tier.runs.push(Run { held: Held { id, nodes: vec![node] }, pages: held });
    }

    /// The tokens of the first `pages` pages up to the end of `node`.
    fn prefix(&self, node: NodeId, pages: usize) -> Vec<TokenId> {
        let mut parts = Vec::new();
        let mut next = node;
        while !self.tree.nodes[next].is_root() {
            parts.push(next);
            next = self.tree.nodes[next].parent;
        }
        let mut tokens = Vec::with_capacity(pages * self.tree.page_tokens);
        for part in parts.iter().rev() {
            tokens.extend_from_slice(&self.tree.nodes[*part].tokens);
        }
        tokens.truncate(pages * self.tree.page_tokens);
        tokens
    }

    pub(crate) fn take_new_runs(&mut self, to: &mut Vec<NewRun>) {
        if let Some(tier) = &mut self.tier {
            to.append(&mut tier.new_runs);
        }
    }

    /// # Panics
    /// When no such run is held.
    pub(crate) fn release_run(&mut self, id: u64) {
        let runs = self.tier.as_mut().map(|tier| &mut tier.runs);
        let place = runs.as_ref().and_then(|runs| runs.iter().position(|run| run.held.id == id));
        let (Some(runs), Some(place)) = (runs, place) else { panic!("no run {id} is held") };
        let run = runs.swap_remove(place);
        self.let_go_of_copies(&run.pages);
        let tier = self.tier.as_mut().expect("it had the run");
        for (pool, _) in &run.pages {
            tier.pools[*pool].in_runs -= 1;
        }
        self.unlock_host_paths(&run.held.nodes);
    }

    fn let_go_of_copies(&mut self, pages: &[(usize, PageId)]) {
        for (pool, copy) in pages {
            let tier = self.tier.as_mut().expect("it had the pages");
            if tier.pools[*pool].release(*copy) {
                self.settle_window(*pool, *copy);
            }
        }
    }

    /// Follows `tokens` in the pools without a window over both tiers, at most `limit` pages: the
    /// node in which that ends, how many of its pages belong to it, and how many there are.
    fn full_end(
        &mut self,
        namespace: &Namespace,
        tokens: &[TokenId],
        limit: usize,
    ) -> (NodeId, usize, usize) {
        let Some(mut node) = self.tree.root(namespace) else { return (NodeId::NONE, 0, 0) };
        let (mut taken, mut pages) = (0, 0);
        while pages < limit {
            let page_tokens = self.tree.page_tokens;
            let rest = &tokens[pages * page_tokens..limit * page_tokens];
            let (Some(child), _) = self.tree.child(node, rest) else { break };
            let found = &self.tree.nodes[child];
            let (len, common) = (found.len(), found.common(rest, page_tokens));
            let here = |index: &usize| {
                *index < found.resident || self.on_host(child, *index, self.tree.anchor)
            };
            let common = (0..common).take_while(here).count();
            if common == 0 {
                break;
            }
            (node, taken, pages) = (child, common, pages + common);
            if common < len {
                break;
            }
        }
        (node, taken, pages)
    }

    pub(crate) fn reserve_host(
        &mut self,
        namespace: &Namespace,
        tokens: &[TokenId],
        limit: usize,
    ) -> Option<HostReservation> {
        self.tier.as_ref().filter(|tier| tier.storage)?;
        let limit = limit.min(tokens.len() / self.tree.page_tokens);
        let (node, _, have) = self.full_end(namespace, tokens, limit);
        if have == limit && self.first_gap(node, have, limit) == limit {
            return None;
        }
        // What it continues stays.
        let nodes = if have == 0 { Vec::new() } else { vec![node] };
        nodes.iter().for_each(|node| self.lock_host_path(*node));
        let all = self.reservable(have, limit);
        let mut room = all > have || have == limit;
        let limit = all;
        let first = self.first_gap(node, have, limit);
        let starts = self.pools.iter().map(|pool| match &pool.windows {
            Some(windows) => first.max(limit.saturating_sub(windows.pages)),
            None => have,
        });
        let starts: Vec<_> = starts.collect();
        let needs: Vec<_> = starts.iter().map(|start| limit - start.min(&limit)).collect();
        let tier = self.tier.as_mut().expect("checked above");
        for (host, need) in tier.pools.iter_mut().zip(&needs) {
            if host.room() < *need {
                host.pages.alloc_failures += 1;
                room = false;
            }
        }
        if !room {
            self.unlock_host_paths(&nodes);
            return None;
        }
        self.make_host_room(&needs);
        let tier = self.tier.as_mut().expect("checked above");
        let page = |depth: usize| {
            let pools = starts.iter().enumerate().filter(|(_, start)| depth >= **start);
            pools.map(|(pool, _)| (pool_id(pool), tier.pools[pool].take_unplaced())).collect()
        };
        let pages = (first..limit).map(page).collect();
        let id = tier.id();
        tier.reservations.push(Held { id, nodes });
        let tokens = tokens[..limit * self.tree.page_tokens].to_vec();
        Some(HostReservation { id, first, pages, have, namespace: namespace.clone(), tokens })
    }

    /// Of the first `have` pages, which end in `node`, the first one whose part in a pool with a
    /// window a match at page `limit` needs and that is on no tier; `have` where there is none.
    fn first_gap(&self, node: NodeId, have: usize, limit: usize) -> usize {
        let mut first = have;
        for (pool, windows) in self.pools.iter().enumerate() {
            let Some(windows) = &windows.windows else { continue };
            let mut node = node;
            for depth in (limit.saturating_sub(windows.pages)..have).rev() {
                while self.tree.nodes[node].depth > depth {
                    node = self.tree.nodes[node].parent;
                }
                let found = &self.tree.nodes[node];
                let index = depth - found.depth;
                let on_device = found.pages[index * self.tree.pools + pool] != NO_PAGE;
                if !on_device && !self.on_host(node, index, pool) {
                    first = first.min(depth);
                }
            }
        }
        first
    }

    /// How far pages behind the first `first` ones find room. With a window all do or none: a
    /// shorter prefix would need other pages of the window.
    fn reservable(&self, first: usize, limit: usize) -> usize {
        let tier = self.tier.as_ref().expect("the caller has one");
        let room = tier
            .pools
            .iter()
            .filter(|pool| !pool.is_window)
            .map(super::HostPool::room)
            .min()
            .unwrap_or(0);
        let has_window = self.pools.iter().any(|pool| !pool.is_full());
        if first + room >= limit {
            limit
        } else if has_window {
            first
        } else {
            first + room
        }
    }

    pub(crate) fn commit_host(&mut self, reservation: HostReservation, pages: usize) -> usize {
        let HostReservation { id, first, pages: ids, have: before, namespace, tokens } =
            reservation;
        let reserved = self.tier.as_mut().map(|tier| &mut tier.reservations);
        let place = reserved.as_ref().and_then(|all| all.iter().position(|held| held.id == id));
        let (Some(reserved), Some(place)) = (reserved, place) else {
            panic!("no reservation {id} of this set");
        };
        let held = reserved.swap_remove(place);
        let pages = pages.min(ids.len());
        let end = first + pages;
        let tokens = &tokens[..end * self.tree.page_tokens];
        let (node, taken, have) = self.full_end(&namespace, tokens, end);
        let mut entered = 0;
        // Those that were there before have no other pages here.
        if pages > 0 && have >= before.min(end) {
            for (depth, page) in (first..have).zip(&ids) {
                self.enter_windows(node, depth, page);
            }
            if have < end {
                self.enter(&namespace, tokens, (node, taken, have), &ids[have - first..pages]);
                entered = end - have;
            }
        }
        let all: Vec<_> =
            ids.iter().flatten().map(|(pool, id)| (usize::from(pool.0), *id)).collect();
        self.let_go_of_copies(&all);
        self.unlock_host_paths(&held.nodes);
        entered
    }

    /// The page with `depth` pages before it, up to the end of `node`, is there; gives it what it
    /// lacks in window pools.
    fn enter_windows(&mut self, node: NodeId, depth: usize, page: &[(types::PoolId, PageId)]) {
        let mut node = node;
        while self.tree.nodes[node].depth > depth {
            node = self.tree.nodes[node].parent;
        }
        for (pool, copy) in page {
            let pool = usize::from(pool.0);
            let found = &mut self.tree.nodes[node];
            let place = (depth - found.depth) * self.tree.pools + pool;
            if self.pools[pool].is_full() || found.host[place] != NO_PAGE {
                continue;
            }
            found.host[place] = *copy;
            let place = &mut self.tier.as_mut().expect("it has pages").pools[pool].places;
            let place = &mut place[copy.index()];
            (place.node, place.depth) = (node, depth);
            (place.used, place.at) = (self.clock, self.now.unwrap_or_default());
        }
    }

    /// Adds pages that the host alone has behind those that were found.
    fn enter(
        &mut self,
        namespace: &Namespace,
        tokens: &[TokenId],
        (parent, taken, have): (NodeId, usize, usize),
        ids: &[Vec<(types::PoolId, PageId)>],
    ) {
        let page_tokens = self.tree.page_tokens;
        let parent = if !parent.is_some() {
            self.tree.root_or_new(namespace)
        } else if taken < self.tree.nodes[parent].len() {
            self.split(parent, taken)
        } else {
            parent
        };
        let rest = &tokens[have * page_tokens..];
        let (_, first) = self.tree.child(parent, rest);
        let node = self.tree.add_child(parent, first);
        let (used, at) = match &self.tree.nodes[parent] {
            root if root.is_root() => (self.clock, self.now.unwrap_or_default()),
            parent => (parent.used, parent.at),
        };
        let mut hash = self.tree.nodes[parent].last_hash();
        for (page, (depth, copies)) in rest.chunks_exact(page_tokens).zip((have..).zip(ids)) {
            hash = self.tree.hasher.page(hash, page);
            let (pools, found) = (self.tree.pools, &mut self.tree.nodes[node]);
            let start = found.host.len();
            found.hashes.push(hash);
            found.tokens.extend_from_slice(page);
            found.pages.resize(start + pools, NO_PAGE);
            found.host.resize(start + pools, NO_PAGE);
            for (pool, copy) in copies {
                found.host[start + usize::from(pool.0)] = *copy;
                let tier = self.tier.as_mut().expect("it has pages");
                let place = &mut tier.pools[usize::from(pool.0)].places[copy.index()];
                (place.node, place.depth, place.used, place.at) = (node, depth, used, at);
            }
        }
        let found = &mut self.tree.nodes[node];
        (found.used, found.at, found.backed) = (used, at, found.len());
        let pages = found.len();
        self.tier.as_mut().expect("it has pages").add_cached(pages);
        // Into the order of use: those above it are behind it.
        self.lock_host_path(node);
        self.unlock_host_paths(&[node]);
    }
}
