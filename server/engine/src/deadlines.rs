//! Whose time in the running batch is up, without looking at all of them.

use std::collections::BTreeSet;
use std::time::Duration;

use admission::Rank;
use types::Time;

use crate::request::Request;

/// The deadlines of running requests, the first one first. Empty where running has no limit.
#[derive(Debug)]
pub(crate) struct Deadlines {
    limit: Option<Duration>,
    order: BTreeSet<(Time, Rank)>,
}

impl Deadlines {
    pub(crate) const fn new(limit: Option<Duration>) -> Self {
        Self { limit, order: BTreeSet::new() }
    }

    /// It starts or goes on running.
    pub(crate) fn insert(&mut self, request: &Request) {
        if let Some(limit) = self.limit {
            self.order.insert((request.deadline(limit), request.rank));
        }
    }

    /// It does not run any more; to be called before it is retracted, which moves its deadline.
    pub(crate) fn remove(&mut self, request: &Request) {
        if let Some(limit) = self.limit {
            self.order.remove(&(request.deadline(limit), request.rank));
        }
    }

    /// Somebody whose deadline has passed.
    pub(crate) fn passed(&self, now: Time) -> Option<Rank> {
        self.order.first().filter(|(deadline, _)| *deadline <= now).map(|(_, rank)| *rank)
    }
}
