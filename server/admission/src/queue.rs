//! Who waits: the places that permits hold, in the order of service.

use std::collections::{BTreeMap, BTreeSet};

use types::Time;

use crate::rank::Rank;
use crate::reject::Rejected;

/// A place in the queue: what its permit counts for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) enqueued_at: Time,
    /// Tokens charged.
    pub(crate) pending: u64,
    /// Of which are not known to be cached.
    pub(crate) uncached: u64,
    /// Uncached tokens that it will be charged with at least, as long as it is not.
    pub(crate) expected: u64,
    /// The first number of its family.
    first: u64,
    /// The last number of its family.
    last: u64,
    /// One of its family has started, so it must run too.
    pub(crate) kept: bool,
}

/// What a newcomer lacks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lack {
    pub(crate) places: usize,
    pub(crate) tokens: u64,
}

impl Lack {
    pub(crate) const fn is_nothing(self) -> bool {
        self.places == 0 && self.tokens == 0
    }
}

/// The places of live permits, and the refusals of those that lost theirs and do not know yet.
#[derive(Debug, Default)]
pub(crate) struct Places {
    by_rank: BTreeMap<Rank, Place>,
    by_age: BTreeSet<(Time, u64)>,
    evicted: BTreeMap<Rank, Rejected>,
}

impl Places {
    /// A family of `count` places that begins with `first`; its numbers follow one another.
    pub(crate) fn insert(&mut self, first: Rank, count: u64, enqueued_at: Time) {
        let last = first.seq() + count - 1;
        for seq in first.seq()..=last {
            let rank = first.with_seq(seq);
            let (pending, uncached, kept) = (0, 0, false);
            let (expected, first) = (0, first.seq());
            let place = Place { enqueued_at, pending, uncached, expected, first, last, kept };
            self.by_rank.insert(rank, place);
            self.by_age.insert((enqueued_at, seq));
        }
    }

    pub(crate) fn get_mut(&mut self, rank: Rank) -> Option<&mut Place> {
        self.by_rank.get_mut(&rank)
    }

    pub(crate) fn remove(&mut self, rank: Rank) -> Option<Place> {
        let place = self.by_rank.remove(&rank)?;
        self.by_age.remove(&(place.enqueued_at, rank.seq()));
        Some(place)
    }

    /// The rest of a family stays: one of it has started.
    pub(crate) fn keep_family(&mut self, rank: Rank, of: &Place) {
        for seq in of.first..=of.last {
            if let Some(place) = self.by_rank.get_mut(&rank.with_seq(seq)) {
                place.kept = true;
            }
        }
    }

    /// Tokens that are expected of those that came before `rank` and are served before it.
    pub(crate) fn expected_before(&self, rank: Rank) -> u64 {
        let before = self.by_rank.range(..rank).filter(|(other, _)| other.seq() < rank.seq());
        before.map(|(_, place)| place.expected).sum()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_rank.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_rank.is_empty()
    }

    pub(crate) fn oldest(&self) -> Option<Time> {
        self.by_age.first().map(|(enqueued_at, _)| *enqueued_at)
    }

    /// Whose places a newcomer of `rank` may take to get what it lacks: the worst, as long as they
    /// are strictly worse, and whole families. `None` where all of them together are not enough.
    pub(crate) fn victims(&self, rank: Rank, mut lack: Lack) -> Option<Vec<Rank>> {
        let mut victims = Vec::new();
        let mut worst = self.by_rank.iter().rev().peekable();
        while !lack.is_nothing() {
            let (place_rank, place) = worst.next()?;
            if !rank.is_better_than(*place_rank) {
                return None;
            }
            let mut family = vec![*place_rank];
            let mut tokens = place.uncached;
            while let Some((next, of)) = worst.next_if(|(_, next)| next.first == place.first) {
                family.push(*next);
                tokens += of.uncached;
            }
            // Places alone are no use to one that lacks tokens only.
            if place.kept || (lack.places == 0 && tokens == 0) {
                continue;
            }
            lack.places = lack.places.saturating_sub(family.len());
            lack.tokens = lack.tokens.saturating_sub(tokens);
            victims.extend(family);
        }
        Some(victims)
    }

    /// Takes a place away; its permit is told `why` when it asks.
    pub(crate) fn evict(&mut self, rank: Rank, why: Rejected) -> Option<Place> {
        let place = self.remove(rank)?;
        self.evicted.insert(rank, why);
        Some(place)
    }

    /// Why the place of a live permit is gone.
    pub(crate) fn evicted(&self, rank: Rank) -> Option<Rejected> {
        self.evicted.get(&rank).copied()
    }

    /// Live permits that lost their places.
    pub(crate) fn all_evicted(&self) -> impl Iterator<Item = Rank> + '_ {
        self.evicted.keys().copied()
    }

    /// The permit of an evicted place is gone too.
    pub(crate) fn forget(&mut self, rank: Rank) {
        self.evicted.remove(&rank);
    }
}
