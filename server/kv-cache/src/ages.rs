//! How long ago cached pages had been used when they were given up or used again.

use std::time::Duration;

use types::{PageId, PoolId, Time};

use crate::node::NodeId;
use crate::state::State;
use crate::tier::pool_id;

/// What ended the time that an entry lay unused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AgeEvent {
    /// It was given up for room.
    Evicted,
    /// A request took it.
    Reused,
}

/// Where pages are cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CacheTier {
    /// In device memory.
    Device,
    /// In host memory.
    Host,
}

/// Pages that had lain unused equally long, on one tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Age {
    /// Their pool.
    pub pool: PoolId,
    /// Where they were.
    pub tier: CacheTier,
    /// What happened to them.
    pub event: AgeEvent,
    /// How long ago a request had let go of them.
    pub age: Duration,
    /// How many they are; at least 1.
    pub pages: u64,
}

/// Entries kept until they are taken; what comes then joins the last one of its kind.
const AGES_MAX: usize = 1024;

impl State {
    /// A table takes the pages of `node` that are on the device, where nobody holds them.
    pub(crate) fn note_use(&mut self, node: NodeId) {
        let found = &self.tree.nodes[node];
        let (at, pages) = (found.at, found.resident);
        if found.locks == 0 && self.now.is_some() {
            for pool in 0..self.pools.len() {
                if self.pools[pool].is_full() {
                    self.note_age(pool, CacheTier::Device, AgeEvent::Reused, at, pages);
                }
            }
        }
    }

    /// A table takes a page of window pool `pool` on the device.
    pub(crate) fn note_window_use(&mut self, pool: usize, page: PageId) {
        let windows = self.pools[pool].windows.as_ref().expect("a window pool");
        let meta = windows.meta[page.index()];
        if meta.locks == 0 {
            self.note_age(pool, CacheTier::Device, AgeEvent::Reused, meta.at, 1);
        }
    }

    /// `pages` pages of a pool, let go of at `at`, were used again or given up. Nothing without a
    /// clock.
    pub(crate) fn note_age(
        &mut self,
        pool: usize,
        tier: CacheTier,
        event: AgeEvent,
        at: Time,
        pages: usize,
    ) {
        let Some(now) = self.now.filter(|_| pages > 0) else { return };
        let (age, pool, pages) = (now.since(at), pool_id(pool), pages as u64);
        let same = |other: &&mut Age| (other.pool, other.tier, other.event) == (pool, tier, event);
        let is_full = self.ages.len() >= AGES_MAX;
        // Pages of a node go one after the other, those of several pools in turn.
        let from = if is_full { 0 } else { self.ages.len().saturating_sub(8) };
        let last = self.ages[from..].iter_mut().rev().find(same);
        match last {
            Some(last) if last.age == age || is_full => last.pages += pages,
            // The kinds are few, so a full list gets but few entries more.
            Some(_) | None => self.ages.push(Age { pool, tier, event, age, pages }),
        }
    }
}
