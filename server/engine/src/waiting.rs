//! The waiting queue: who is next, and who has waited too long.

use std::collections::BTreeSet;

use admission::Rank;
use types::Time;

use crate::queue::ByRank;
use crate::request::Request;

/// Requests that hold a permit and have not started.
#[derive(Default)]
pub(crate) struct Waiting {
    requests: ByRank,
    /// By the time of their permits; kept only where waiting has a limit.
    by_age: Option<BTreeSet<(Time, Rank)>>,
}

impl Waiting {
    /// An empty queue; `timed` where [`waits_since`](Self::waits_since) will be called.
    pub(crate) fn new(timed: bool) -> Self {
        Self { requests: ByRank::default(), by_age: timed.then(BTreeSet::new) }
    }

    pub(crate) fn insert(&mut self, request: Request) {
        if let Some(by_age) = &mut self.by_age {
            by_age.insert((request.enqueued_at(), request.rank));
        }
        self.requests.insert(request);
    }

    pub(crate) fn remove(&mut self, rank: Rank) -> Option<Request> {
        let request = self.requests.remove(rank)?;
        self.forget_age(&request);
        Some(request)
    }

    /// Who starts next.
    pub(crate) fn head(&self) -> Option<&Request> {
        self.requests.best()
    }

    pub(crate) fn get(&self, rank: Rank) -> Option<&Request> {
        self.requests.get(rank)
    }

    pub(crate) fn get_mut(&mut self, rank: Rank) -> Option<&mut Request> {
        self.requests.get_mut(rank)
    }

    /// The one that has waited longest, with the time since when; those that were
    /// [excused](Self::excuse) do not count.
    pub(crate) fn waits_since(&self) -> Option<(Time, Rank)> {
        self.by_age.as_ref()?.first().copied()
    }

    /// It may wait for as long as it takes.
    pub(crate) fn excuse(&mut self, rank: Rank) {
        if let (Some(by_age), Some(request)) = (&mut self.by_age, self.requests.get(rank)) {
            by_age.remove(&(request.enqueued_at(), rank));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Best rank first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter()
    }

    fn forget_age(&mut self, request: &Request) {
        if let Some(by_age) = &mut self.by_age {
            by_age.remove(&(request.enqueued_at(), request.rank));
        }
    }
}
