//! Requests in the order of service: the waiting queue, the retracted queue, the running set.

use std::collections::BTreeMap;

use admission::Rank;

use crate::request::Request;

/// Requests by rank, best first. Any of them is found, added or removed in logarithmic time, so an
/// abort never walks the queue. It has no bound of its own: a waiting request holds a permit, and
/// running and retracted ones are bounded by `max_running`.
#[derive(Default)]
pub(crate) struct ByRank {
    requests: BTreeMap<Rank, Request>,
}

impl ByRank {
    pub(crate) fn insert(&mut self, request: Request) {
        let before = self.requests.insert(request.rank, request);
        assert!(before.is_none(), "a rank names one request");
    }

    pub(crate) fn remove(&mut self, rank: Rank) -> Option<Request> {
        self.requests.remove(&rank)
    }

    pub(crate) fn get(&self, rank: Rank) -> Option<&Request> {
        self.requests.get(&rank)
    }

    pub(crate) fn get_mut(&mut self, rank: Rank) -> Option<&mut Request> {
        self.requests.get_mut(&rank)
    }

    pub(crate) fn best(&self) -> Option<&Request> {
        self.requests.first_key_value().map(|(_, request)| request)
    }

    pub(crate) fn worst_rank(&self) -> Option<Rank> {
        self.requests.last_key_value().map(|(rank, _)| *rank)
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Best first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Request> {
        #[cfg(test)]
        crate::testing::walks(self.requests.len());
        self.requests.values()
    }

    /// From `rank` on, the worst first; only as many are walked over as are asked for.
    pub(crate) fn worst_from(&self, rank: Rank) -> impl Iterator<Item = &Request> {
        self.requests.range(rank..).rev().map(|(_, request)| request)
    }

    /// Ranks, best first.
    pub(crate) fn ranks(&self) -> impl Iterator<Item = Rank> + '_ {
        #[cfg(test)]
        crate::testing::walks(self.requests.len());
        self.requests.keys().copied()
    }
}
