//! Would a worker refuse a prompt? Asked before it is sent, so that what would be refused
//! everywhere is refused here, and what would be refused somewhere goes elsewhere.
//!
//! Only a fresh report is believed, and prompts are taken for shorter than they are estimated:
//! where it is not sure, the worker decides.

use std::time::Duration;

use types::Time;

use crate::config::Config;
use crate::member::Member;
use crate::request::{OverloadReason, Refusal};

/// How a worker would refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) reason: OverloadReason,
    /// Whole seconds, at least 1.
    pub(crate) retry_after: Duration,
    pub(crate) value: u64,
    pub(crate) limit: u64,
}

impl Refused {
    /// The refusal for the client.
    pub(crate) const fn overloaded(self) -> Refusal {
        let Self { reason, retry_after, value, limit } = self;
        Refusal::Overloaded { reason, retry_after, value, limit }
    }
}

/// What a prompt needs of a worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    /// Uncached tokens.
    pub(crate) tokens: u64,
    /// What the tokens above, and those of prompts that no report knows of yet, are multiplied
    /// with, 0 to 1.
    pub(crate) margin: f64,
}

/// How `member` would refuse a prompt, by its last report; `None` where it would not, or where
/// nobody knows.
pub(crate) fn refused(member: &Member, need: Need, now: Time, config: &Config) -> Option<Refused> {
    let fresh = &member.fresh(now, &config.health)?.load;
    let load = member.load(now, config);
    let rate = load.prefill_rate;
    let (queued, limits) = (fresh.queued, fresh.limits);
    if member.ledger.ended() >= queued.requests.max(1) {
        // As many have ended since as waited then: there may be room, nobody knows how much.
        return None;
    }
    if limits.requests > 0
        && queued.requests >= limits.requests
        // Free running slots count beside the bound.
        && fresh.running_limit > 0
        && fresh.running >= fresh.running_limit
    {
        // What the work takes says little: they may wait for running slots or for KV pages.
        let place = fresh.place_ms.unwrap_or_else(|| {
            let excess = queued.requests - limits.requests + 1;
            fresh.drain_ms.saturating_mul(excess) / queued.requests
        });
        return Some(Refused {
            reason: OverloadReason::QueueRequestsFull,
            retry_after: whole_seconds(place as f64 / 1000.0),
            value: queued.requests,
            limit: limits.requests,
        });
    }
    let shrunk = |tokens: u64| (tokens as f64 * need.margin.clamp(0.0, 1.0)) as u64;
    let ahead = queued.uncached_tokens.saturating_add(shrunk(load.unreported.pending));
    if ahead == 0 || fresh.prefill_rate <= 0.0 {
        // An empty queue, to which nothing was sent since, takes any prompt, and a worker that
        // computes none has no such bound.
        return None;
    }
    let total = ahead.saturating_add(shrunk(need.tokens));
    if limits.tokens > 0 && total > limits.tokens {
        return Some(Refused {
            reason: OverloadReason::QueueTokensFull,
            retry_after: whole_seconds((total - limits.tokens) as f64 / rate),
            value: total,
            limit: limits.tokens,
        });
    }
    let drain_ms = (total as f64 / rate * 1000.0) as u64;
    (limits.drain_ms > 0 && drain_ms > limits.drain_ms).then(|| Refused {
        reason: OverloadReason::DrainTime,
        retry_after: whole_seconds((drain_ms - limits.drain_ms) as f64 / 1000.0),
        value: drain_ms,
        limit: limits.drain_ms,
    })
}

/// Rounds up to whole seconds, at least one.
pub(crate) fn whole_seconds(seconds: f64) -> Duration {
    // A float to integer cast saturates, and makes nothing of what is no number.
    Duration::from_secs((seconds.ceil() as u64).max(1))
}
