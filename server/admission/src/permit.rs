//! The guards that are the accounting: a place in the queue, and the rest of a prompt.

use std::sync::Arc;

use types::Time;

use crate::controller::AdmissionController;
use crate::reject::Rejected;

/// A place in the waiting queue. The queue depth is the number of these that are alive; dropping
/// one (scheduled, aborted, refused, panicked) gives back its place and its tokens.
#[derive(Debug)]
pub struct QueuePermit {
    controller: Arc<AdmissionController>,
    seq: u64,
    enqueued_at: Time,
    tokens: u64,
    cached: u64,
}

impl QueuePermit {
    pub(crate) const fn new(
        controller: Arc<AdmissionController>,
        seq: u64,
        enqueued_at: Time,
    ) -> Self {
        Self { controller, seq, enqueued_at, tokens: 0, cached: 0 }
    }

    /// Charges the whole prompt of `tokens` against the token and drain bounds, which count the
    /// tokens ahead plus these. A prompt is never refused for tokens when nothing is pending.
    ///
    /// # Errors
    /// The refusal; the place in the queue is given back.
    ///
    /// # Panics
    /// When the permit was charged before.
    pub fn charge(mut self, tokens: u64, now: Time) -> Result<Self, Rejected> {
        assert_eq!(self.tokens, 0, "a permit is charged once");
        self.controller.charge(tokens, now)?;
        self.tokens = tokens;
        Ok(self)
    }

    /// Takes back up to `tokens` of the charge, because their KV is known to be cached.
    pub fn refund_cached(&mut self, tokens: u64) {
        let refund = tokens.min(self.tokens - self.cached);
        self.cached += refund;
        self.controller.release_tokens(0, refund);
    }

    /// The first chunk is scheduled: the request leaves the queue, its uncached tokens stay
    /// pending until they are computed.
    #[must_use]
    pub fn start(mut self, now: Time) -> PrefillDebt {
        let rest = self.tokens - self.cached;
        self.controller.note_start(now);
        // The cached part leaves with the permit, the rest passes to the debt in one step, so
        // that no reader ever sees the tokens twice or not at all.
        self.controller.become_debt(rest);
        self.tokens = self.cached;
        PrefillDebt { controller: Arc::clone(&self.controller), rest }
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
}

impl Drop for QueuePermit {
    fn drop(&mut self) {
        self.controller.leave(self.enqueued_at, self.seq, self.tokens, self.tokens - self.cached);
    }
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
