//! A queue whose depth, tokens and oldest request are known at any time.

use std::collections::{BTreeMap, BTreeSet};

use admission::Rank;
use types::Time;

use crate::queue::ByRank;
use crate::request::Request;
use crate::stats::QueueSnapshot;

/// What a request counts for in its queue, as of when it came.
#[derive(Debug, Clone, Copy)]
struct Mark {
    since: Time,
    pending: u64,
    uncached: u64,
}

/// Requests by rank, with sums. Everything is logarithmic in their number.
#[derive(Default)]
pub(crate) struct Line {
    requests: ByRank,
    marks: BTreeMap<Rank, Mark>,
    ages: BTreeSet<(Time, Rank)>,
    pending: u64,
    uncached: u64,
}

impl Line {
    /// `pending` of its tokens were not computed anywhere when it came, and `uncached` of these
    /// this worker will have to compute.
    pub(crate) fn insert(&mut self, request: Request, pending: u64, uncached: u64) {
        let (rank, since) = (request.rank, request.queued_since());
        self.requests.insert(request);
        self.marks.insert(rank, Mark { since, pending, uncached });
        self.ages.insert((since, rank));
        self.pending += pending;
        self.uncached += uncached;
    }

    pub(crate) fn remove(&mut self, rank: Rank) -> Option<Request> {
        let request = self.requests.remove(rank)?;
        let mark = self.marks.remove(&rank).expect("every request has one");
        self.ages.remove(&(mark.since, rank));
        self.pending -= mark.pending;
        self.uncached -= mark.uncached;
        Some(request)
    }

    pub(crate) fn get(&self, rank: Rank) -> Option<&Request> {
        self.requests.get(rank)
    }

    pub(crate) fn get_mut(&mut self, rank: Rank) -> Option<&mut Request> {
        self.requests.get_mut(rank)
    }

    pub(crate) fn best(&self) -> Option<Rank> {
        self.requests.best().map(|request| request.rank)
    }

    pub(crate) fn worst(&self) -> Option<Rank> {
        self.requests.worst_rank()
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Best first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter()
    }

    /// Ranks, best first; only as many are walked over as are asked for.
    pub(crate) fn ranks(&self) -> impl Iterator<Item = Rank> + '_ {
        self.marks.keys().copied()
    }

    pub(crate) fn snapshot(&self) -> QueueSnapshot {
        QueueSnapshot {
            requests: self.requests.len(),
            pending_tokens: self.pending,
            uncached_tokens: self.uncached,
            oldest: self.ages.first().map(|(since, _)| *since),
        }
    }
}
