//! The guards that are the accounting: a place in the queue, and the rest of a prompt.

use std::sync::Arc;
use std::time::Duration;

use types::{Priority, Time};

use crate::controller::{AdmissionController, Outlook};
use crate::rank::Rank;
use crate::reject::Rejected;

/// A place in the waiting queue. The queue depth is the number of these that are alive and were
/// not evicted; dropping one (scheduled, aborted, refused, panicked) gives back its place and its
/// tokens.
///
/// A strictly better newcomer may take the place away at any time before [`start`](Self::start):
/// place and tokens are free from that moment on, and `charge` and `start` return the refusal.
#[derive(Debug)]
pub struct QueuePermit {
    controller: Arc<AdmissionController>,
    rank: Rank,
    priority: Priority,
    enqueued_at: Time,
    tokens: u64,
    cached: u64,
}

impl QueuePermit {
    pub(crate) const fn new(
        controller: Arc<AdmissionController>,
        rank: Rank,
        priority: Priority,
        enqueued_at: Time,
    ) -> Self {
        Self { controller, rank, priority, enqueued_at, tokens: 0, cached: 0 }
    }

    /// What can be asked, and told, of its prompt before it is charged, from anywhere.
    #[must_use]
    pub fn outlook(&self) -> Outlook {
        Outlook::new(Arc::clone(&self.controller), self.rank, self.priority)
    }

    /// Charges the whole prompt of `tokens` against the token and drain bounds, which count the
    /// tokens ahead plus these; worse requests that wait make room where that is enough. A prompt
    /// is never refused for tokens when nothing is pending.
    ///
    /// # Errors
    /// The refusal, or the eviction; the place in the queue is given back.
    ///
    /// # Panics
    /// When the permit was charged before.
    pub fn charge(self, tokens: u64, now: Time) -> Result<Self, Rejected> {
        self.charge_cached(tokens, 0, now)
    }

    /// As [`charge`](Self::charge) for a prompt of which `cached` tokens are known to be cached:
    /// only the others count against the bounds.
    ///
    /// # Errors
    /// As for [`charge`](Self::charge).
    ///
    /// # Panics
    /// As for [`charge`](Self::charge).
    pub fn charge_cached(mut self, tokens: u64, cached: u64, now: Time) -> Result<Self, Rejected> {
        assert_eq!(self.tokens, 0, "a permit is charged once");
        self.controller.charge(self.rank, self.priority, tokens, cached, now)?;
        (self.tokens, self.cached) = (tokens, cached.min(tokens));
        Ok(self)
    }

    /// Takes back up to `tokens` of the charge, because their KV is known to be cached.
    pub fn refund_cached(&mut self, tokens: u64) {
        let refund = tokens.min(self.tokens - self.cached);
        self.cached += refund;
        self.controller.refund(self.rank, refund);
    }

    /// The first chunk is scheduled: the request leaves the queue, its uncached tokens stay
    /// pending until they are computed. From here on it cannot be evicted, nor can the rest of
    /// its family.
    ///
    /// # Errors
    /// It was evicted before.
    pub fn start(self, now: Time) -> Result<PrefillDebt, Evicted> {
        match self.controller.start(self.rank, now) {
            Ok(rest) => Ok(PrefillDebt { controller: Arc::clone(&self.controller), rest }),
            Err(refusal) => Err(Evicted { permit: self, refusal }),
        }
    }

    /// It has waited longer than `limit`: gives up its place and says how it is refused. `None`
    /// where one of its family has started, so that it has to wait on.
    pub fn expire(&mut self, limit: Duration, now: Time) -> Option<Rejected> {
        self.controller.expire(self.rank, limit, now)
    }

    /// How it is refused, where its place was taken away.
    #[must_use]
    pub fn evicted(&self) -> Option<Rejected> {
        self.controller.eviction(self.rank)
    }

    /// Its place in the order of service.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// The priority it was given for.
    #[must_use]
    pub const fn priority(&self) -> Priority {
        self.priority
    }

    /// When `try_admit` gave this place.
    #[must_use]
    pub const fn enqueued_at(&self) -> Time {
        self.enqueued_at
    }

    /// The tokens charged, cached ones included.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Of the tokens charged, those known to be cached.
    #[must_use]
    pub const fn cached(&self) -> u64 {
        self.cached
    }
}

impl Drop for QueuePermit {
    fn drop(&mut self) {
        self.controller.leave(self.rank);
    }
}

/// A request that lost its place before it could start.
#[derive(Debug)]
pub struct Evicted {
    /// Its permit, which holds nothing any more.
    pub permit: QueuePermit,
    /// How it is refused.
    pub refusal: Rejected,
}

/// The part of a scheduled prompt that is not computed yet. It keeps counting as pending tokens;
/// dropping it takes the rest out (preempted, aborted).
#[derive(Debug)]
pub struct PrefillDebt {
    controller: Arc<AdmissionController>,
    rest: u64,
}

impl PrefillDebt {
    /// `tokens` of the prompt were computed; more than the rest is the rest.
    pub fn computed(&mut self, tokens: u64) {
        let paid = tokens.min(self.rest);
        self.rest -= paid;
        self.controller.pay_debt(paid);
    }

    /// So many tokens are left to compute, because more or fewer were cached than was known.
    pub fn correct(&mut self, rest: u64) {
        self.controller.correct_debt(self.rest, rest);
        self.rest = rest;
    }

    /// Tokens still to be computed.
    #[must_use]
    pub const fn rest(&self) -> u64 {
        self.rest
    }
}

impl Drop for PrefillDebt {
    fn drop(&mut self) {
        self.controller.pay_debt(self.rest);
    }
}
