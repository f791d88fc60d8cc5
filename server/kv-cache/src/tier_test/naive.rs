//! What is cached, without a tree: every page by its whole prefix. Every question is answered by
//! looking at everything.

use std::collections::{BTreeMap, HashMap, HashSet};

use proptest::prelude::*;
use types::{PageId, PoolId, TokenId};

use super::world::{Checked, PAGE};
use crate::node::NO_PAGE;
use crate::{Namespace, PoolSet};

/// Where a page is, in one pool.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    device: Option<PageId>,
    host: Option<PageId>,
    is_held: bool,
}

impl Part {
    fn is_there(self, over_host: bool) -> bool {
        self.device.is_some() || (over_host && self.host.is_some())
    }
}

/// What somebody wants of a prefix.
pub(super) struct Ask {
    /// Tokens of it at most.
    pub(super) at_most: usize,
    /// In window pools, nothing before this page.
    pub(super) kept: usize,
}

impl Ask {
    /// All that is usable.
    pub(super) const ALL: Self = Self { at_most: usize::MAX, kept: 0 };
}

/// Every page that can be found, by salt and tokens up to its end.
pub(super) struct Flat {
    pages: BTreeMap<(u8, Vec<u32>), Vec<Part>>,
    /// Of each pool, the pages that its window needs; `None` for all before.
    windows: Vec<Option<usize>>,
}

impl Flat {
    pub(super) fn of(set: &PoolSet) -> Self {
        let state = set.lock();
        let (tree, tier) = (&state.tree, state.tier.as_ref().expect("there is a tier"));
        let windows =
            state.pools.iter().map(|pool| pool.windows.as_ref().map(|w| w.pages)).collect();
        let mut pages = BTreeMap::new();
        for (id, node) in tree.nodes.live().filter(|(_, node)| !node.is_root()) {
            let mut path = vec![id];
            let mut next = node.parent;
            while !tree.nodes[next].is_root() {
                path.push(next);
                next = tree.nodes[next].parent;
            }
            if tree.nodes[next].dead {
                continue;
            }
            let salt = u8::from(tree.nodes[next].namespace != Namespace::SHARED);
            let all: Vec<u32> = path
                .iter()
                .rev()
                .flat_map(|part| &tree.nodes[*part].tokens)
                .map(|TokenId(token)| *token)
                .collect();
            for index in 0..node.len() {
                let part = |pool: usize| {
                    let place = index * tree.pools + pool;
                    let (device, host) = (node.pages[place], node.host[place]);
                    let held = match &state.pools[pool].windows {
                        Some(windows) => {
                            device != NO_PAGE && windows.meta[device.index()].locks > 0
                        }
                        None => node.locks > 0,
                    };
                    Part {
                        device: Some(device).filter(|page| *page != NO_PAGE),
                        host: Some(host).filter(|page| tier.pools[pool].has(*page)),
                        is_held: held,
                    }
                };
                let end = (node.depth + index + 1) * PAGE;
                let parts = (0..tree.pools).map(part).collect();
                pages.insert((salt, all[..end].to_vec()), parts);
            }
        }
        Self { pages, windows }
    }

    fn part(&self, salt: u8, tokens: &[u32], page: usize, pool: usize) -> Part {
        let key = (salt, tokens[..(page + 1) * PAGE].to_vec());
        self.pages.get(&key).map_or(Part::default(), |parts| parts[pool])
    }

    /// The longest usable prefix over the device, or over both tiers, for `ask`.
    fn longest(&self, salt: u8, tokens: &[u32], ask: &Ask, over_host: bool) -> usize {
        let limit = tokens.len().saturating_sub(1).min(ask.at_most) / PAGE;
        let there = |page, pool| self.part(salt, tokens, page, pool).is_there(over_host);
        let fits = |end: &usize| {
            (0..self.windows.len()).all(|pool| {
                let first = self.first(*end, pool, ask);
                (first..*end).all(|page| there(page, pool))
            })
        };
        (1..=limit).rev().find(fits).unwrap_or(0)
    }

    /// The first page that whoever goes on behind `end` pages takes in a pool.
    fn first(&self, end: usize, pool: usize, ask: &Ask) -> usize {
        let window = self.windows[pool].map(|window| end.saturating_sub(window));
        window.map_or(0, |first| first.max(ask.kept))
    }

    /// Pages of a prefix that a pool would have to load, and those that are there and nobody holds.
    fn cost(&self, (salt, tokens): (u8, &[u32]), end: usize, pool: usize, ask: &Ask) -> [usize; 2] {
        let first = self.first(end, pool, ask);
        let parts = (first..end).map(|page| self.part(salt, tokens, page, pool));
        let (loads, there): (Vec<_>, Vec<_>) = parts.partition(|part| part.device.is_none());
        [loads.len(), there.iter().filter(|part| !part.is_held).count()]
    }

    /// Whether so many pages of a prefix, and what comes behind them up to `pages` pages, find
    /// room; if not, in which pool.
    pub(super) fn room_for(
        &self,
        set: &PoolSet,
        of: (u8, &[u32]),
        (found, pages): (usize, usize),
        ask: &Ask,
    ) -> Result<(), usize> {
        let fits = |pool: &usize| {
            let first = if self.windows[*pool].is_some() { ask.kept } else { 0 };
            let [loads, unheld] = self.cost(of, found, *pool, ask);
            let more = pages.saturating_sub(found.max(first));
            set.available(PoolId(*pool as u16)) >= loads + unheld + more
        };
        (0..self.windows.len()).find(|pool| !fits(pool)).map_or(Ok(()), Err)
    }

    /// Pages that would hit, and of these the ones that the device alone would not give.
    pub(super) fn find(
        &self,
        set: &PoolSet,
        salt: u8,
        tokens: &[u32],
        threshold: usize,
        ask: &Ask,
    ) -> (usize, usize) {
        let device = self.longest(salt, tokens, ask, false);
        let both = self.longest(salt, tokens, ask, true);
        let room = self.room_for(set, (salt, tokens), (both, 0), ask).is_ok();
        let worth = (both - device) * PAGE >= threshold;
        if both > device && worth && room { (both, both - device) } else { (device, 0) }
    }

    /// What can be found on the host holds its rows, in no two places.
    pub(super) fn check_rows(
        &self,
        host: &HashMap<(u16, PageId), (u8, Vec<u32>)>,
        id: impl Fn(usize) -> PoolId,
    ) -> Checked {
        let mut seen = HashSet::new();
        for (rows, parts) in &self.pages {
            for (pool, copy) in
                parts.iter().enumerate().filter_map(|(p, part)| Some((p, part.host?)))
            {
                prop_assert!(seen.insert((pool, copy)), "a host page in two places");
                prop_assert_eq!(host.get(&(id(pool).0, copy)), Some(rows));
            }
        }
        Ok(())
    }
}
