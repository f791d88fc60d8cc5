//! The bounds in force, and when those come back that they send away.

use std::time::Duration;

use types::Time;

use super::State;
use crate::reject::{RejectReason, Rejected};

impl State {
    /// The refusal of a prompt of so many tokens, where that is known, with a time to come back
    /// behind others that were refused.
    pub(super) fn tell_when(
        &mut self,
        refusal: Rejected,
        tokens: Option<u64>,
        now: Time,
    ) -> Rejected {
        let for_tokens = match refusal.reason {
            RejectReason::QueueTokensFull | RejectReason::DrainTime => true,
            RejectReason::QueueRequestsFull
            | RejectReason::Draining
            | RejectReason::Unhealthy
            | RejectReason::PriorityEvicted
            | RejectReason::QueueTimeout => false,
        };
        if !for_tokens {
            return refusal;
        }
        let work = self.rate.time_for(tokens.unwrap_or(self.mean_prompt as u64));
        Rejected { retry_after: self.returns.tell(refusal.retry_after, work, now), ..refusal }
    }

    /// The bound on uncached tokens that is in force, configured or derived; 0 is none.
    pub(super) fn limit_tokens(&self) -> u64 {
        match self.limits.max_queued_tokens {
            Some(tokens) => tokens,
            None if self.limits.ttft_objective.is_zero() => 0,
            None => self.rate.tokens_in(self.drain_limit()),
        }
    }

    /// Longest time that the prefill of all pending tokens may take so that the objective holds:
    /// what two steps take is left of it, but never less than half of it. Zero is no bound.
    pub(super) fn drain_limit(&self) -> Duration {
        let objective = self.limits.ttft_objective;
        let steps = self.rate.time_for(self.step_tokens.saturating_mul(2));
        objective.saturating_sub(steps).max(objective / 2)
    }
}
