//! Fair shares: among equal priorities the tenant that has been served least goes first.
//!
//! Requests age within their level of priority: the level whose oldest request has the best rank
//! is served next, and within it the tenant with the least served tokens; of equals the one whose
//! oldest request came first. So a level cannot starve, and within a level a tenant cannot delay
//! another by having many requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use admission::Rank;
use types::Priority;

use crate::request::Request;
use crate::tenants::{Slot, Tenants};

/// The waiting requests of one tenant in a level.
#[derive(Debug, Default)]
struct Line {
    ranks: BTreeSet<Rank>,
    /// How the order of the level has it, where it has it.
    listed: Option<(u64, Rank)>,
}

/// The waiting requests of one priority.
#[derive(Debug, Default)]
struct Level {
    ranks: BTreeSet<Rank>,
    lines: HashMap<Slot, Line>,
    order: BTreeSet<(u64, Rank, Slot)>,
}

/// Who waits, by level and tenant. Everything is logarithmic in the number of requests; the order
/// of a level is put right where it is looked at, each entry once for charges that came since.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// At most one for each of the 201 priorities.
    levels: BTreeMap<Priority, Level>,
}

impl Shares {
    pub(crate) fn insert(&mut self, request: &Request, slot: Slot, tenants: &Tenants) {
        let level = self.levels.entry(request.priority).or_default();
        level.ranks.insert(request.rank);
        level.lines.entry(slot).or_default().ranks.insert(request.rank);
        level.list(slot, tenants);
    }

    pub(crate) fn remove(&mut self, request: &Request, slot: Slot, tenants: &Tenants) {
        let Some(level) = self.levels.get_mut(&request.priority) else { return };
        level.ranks.remove(&request.rank);
        if let Some(line) = level.lines.get_mut(&slot) {
            line.ranks.remove(&request.rank);
        }
        level.list(slot, tenants);
        if level.ranks.is_empty() {
            self.levels.remove(&request.priority);
        }
    }

    /// Whose turn it is.
    pub(crate) fn next(&mut self, tenants: &Tenants) -> Option<Rank> {
        let levels = self.levels.values_mut();
        levels.min_by_key(|level| level.ranks.first().copied())?.next(tenants)
    }
}

impl Level {
    fn next(&mut self, tenants: &Tenants) -> Option<Rank> {
        loop {
            let &(listed, rank, slot) = self.order.first()?;
            if listed == tenants.served(slot) {
                return Some(rank);
            }
            self.list(slot, tenants);
        }
    }

    /// Puts a tenant at its place in the order, or takes it out where nothing of it waits.
    fn list(&mut self, slot: Slot, tenants: &Tenants) {
        let Some(line) = self.lines.get_mut(&slot) else { return };
        if let Some((served, rank)) = line.listed.take() {
            self.order.remove(&(served, rank, slot));
        }
        match line.ranks.first() {
            Some(rank) => {
                let now = (tenants.served(slot), *rank);
                line.listed = Some(now);
                self.order.insert((now.0, now.1, slot));
            }
            None => {
                self.lines.remove(&slot);
            }
        }
    }
}
