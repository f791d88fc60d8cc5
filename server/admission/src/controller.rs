//! The controller: one small state under a mutex, shared by the front door and the engine.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use types::Time;

use crate::permit::QueuePermit;
use crate::rate::PrefillRate;
use crate::reject::{RejectReason, Rejected};

/// What a client of a failed engine is told: long enough for a supervisor to restart it.
const UNHEALTHY_RETRY: Duration = Duration::from_secs(10);

/// The weight of a new gap between two starts in the running mean.
const GAP_WEIGHT: f64 = 0.2;

/// The bounds. Each can be turned off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most requests that may wait; 0 is no bound.
    pub max_queued_requests: usize,
    /// Most uncached prompt tokens that may wait; `Some(0)` is no bound, `None` follows the
    /// objective: `ttft_objective` times the prefill rate of the moment.
    pub max_queued_tokens: Option<u64>,
    /// Longest time the prefill of all pending tokens may take; zero is no bound.
    pub ttft_objective: Duration,
}

/// What the queue looks like; plain values for gauges, logs and readiness.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QueueSnapshot {
    /// Requests that wait (live permits).
    pub requests: usize,
    /// Prompt tokens to prefill before known cache hits, the rest of started prompts included.
    pub pending_tokens: u64,
    /// Prompt tokens to compute, the rest of started prompts included.
    pub pending_uncached_tokens: u64,
    /// Age of the oldest waiting request; zero when none waits.
    pub oldest_age: Duration,
    /// The bound on requests; 0 is none.
    pub limit_requests: usize,
    /// The bound on uncached tokens that is in force now; 0 is none.
    pub limit_tokens: u64,
    /// Time until the pending tokens are computed, at the present rate.
    pub drain: Duration,
    /// Prefill tokens per busy second.
    pub prefill_rate: f64,
}

#[derive(Debug)]
struct State {
    limits: Limits,
    /// Live permits by age: the first is the oldest.
    waiting: BTreeSet<(Time, u64)>,
    next_seq: u64,
    pending: u64,
    uncached: u64,
    /// The part of `uncached` whose prompts have started; it needs no further start.
    started: u64,
    rate: PrefillRate,
    /// Mean time between two starts while somebody waits; what bounds the queue when running
    /// slots or KV pages, not prefill, are short.
    start_gap: Duration,
    /// Since when the head of the queue has been waiting for its start; `None` when none waits.
    head_since: Option<Time>,
    draining: bool,
    unhealthy: bool,
}

/// Decides who may wait. Shared by `Arc`; every call is short and takes one mutex.
#[derive(Debug)]
pub struct AdmissionController {
    state: Mutex<State>,
}

impl AdmissionController {
    /// `initial_rate` is in prefill tokens per busy second, as measured at warm-up.
    #[must_use]
    pub fn new(limits: Limits, initial_rate: f64) -> Arc<Self> {
        let state = State {
            limits,
            waiting: BTreeSet::new(),
            next_seq: 0,
            pending: 0,
            uncached: 0,
            started: 0,
            rate: PrefillRate::new(initial_rate),
            start_gap: Duration::ZERO,
            head_since: None,
            draining: false,
            unhealthy: false,
        };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// Takes a place in the queue, before any work is done for the request. Refuses by state, by
    /// count, and where the tokens ahead alone pass a bound.
    ///
    /// # Errors
    /// The refusal with its reason and `Retry-After`.
    pub fn try_admit(self: &Arc<Self>, now: Time) -> Result<QueuePermit, Rejected> {
        let mut state = self.lock();
        state.check_state()?;
        state.check_requests(now)?;
        state.check_tokens(1, now)?;
        let seq = state.next_seq;
        state.next_seq += 1;
        state.waiting.insert((now, seq));
        state.head_since.get_or_insert(now);
        Ok(QueuePermit::new(Arc::clone(self), seq, now))
    }

    /// Reports `tokens` prefilled in `busy`, the time the engine spent on them.
    pub fn observe_prefill(&self, tokens: u64, busy: Duration) {
        self.lock().rate.observe(tokens, busy);
    }

    /// Prefill tokens per busy second; at least 1.
    #[must_use]
    pub fn prefill_rate(&self) -> f64 {
        self.lock().rate.tokens_per_second()
    }

    /// While draining every new request is refused; permits already given stay valid.
    pub fn set_draining(&self, draining: bool) {
        self.lock().draining = draining;
    }

    /// While unhealthy every new request is refused.
    pub fn set_unhealthy(&self, unhealthy: bool) {
        self.lock().unhealthy = unhealthy;
    }

    /// The queue at `now`.
    #[must_use]
    pub fn snapshot(&self, now: Time) -> QueueSnapshot {
        let state = self.lock();
        let oldest = state.waiting.first().map_or(now, |(enqueued_at, _)| *enqueued_at);
        QueueSnapshot {
            requests: state.waiting.len(),
            pending_tokens: state.pending,
            pending_uncached_tokens: state.uncached,
            oldest_age: now.since(oldest),
            limit_requests: state.limits.max_queued_requests,
            limit_tokens: state.limit_tokens(),
            drain: state.rate.time_for(state.uncached),
            prefill_rate: state.rate.tokens_per_second(),
        }
    }

    /// Checks and books a prompt in one step.
    pub(crate) fn charge(&self, tokens: u64, now: Time) -> Result<(), Rejected> {
        let mut state = self.lock();
        state.check_tokens(tokens, now)?;
        state.pending += tokens;
        state.uncached += tokens;
        Ok(())
    }

    pub(crate) fn release_tokens(&self, pending: u64, uncached: u64) {
        let mut state = self.lock();
        state.pending -= pending;
        state.uncached -= uncached;
    }

    pub(crate) fn leave(&self, enqueued_at: Time, seq: u64, pending: u64, uncached: u64) {
        let mut state = self.lock();
        let was_there = state.waiting.remove(&(enqueued_at, seq));
        debug_assert!(was_there, "a permit leaves once");
        state.pending -= pending;
        state.uncached -= uncached;
        if state.waiting.is_empty() {
            state.head_since = None;
        }
    }

    pub(crate) fn note_start(&self, now: Time) {
        let mut state = self.lock();
        if let Some(since) = state.head_since.replace(now) {
            let gap = now.since(since).as_secs_f64();
            let mean = state.start_gap.as_secs_f64();
            state.start_gap = Duration::from_secs_f64(mean + GAP_WEIGHT * (gap - mean));
        }
    }

    pub(crate) fn become_debt(&self, tokens: u64) {
        self.lock().started += tokens;
    }

    pub(crate) fn pay_debt(&self, tokens: u64) {
        let mut state = self.lock();
        state.pending -= tokens;
        state.uncached -= tokens;
        state.started -= tokens;
    }

    /// No method leaves the state half changed, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The bound on uncached tokens that is in force, configured or derived; 0 is none.
    fn limit_tokens(&self) -> u64 {
        match self.limits.max_queued_tokens {
            Some(tokens) => tokens,
            None if self.limits.ttft_objective.is_zero() => 0,
            None => self.rate.tokens_in(self.limits.ttft_objective),
        }
    }

    fn check_state(&self) -> Result<(), Rejected> {
        let (reason, retry_after) = if self.unhealthy {
            (RejectReason::Unhealthy, UNHEALTHY_RETRY)
        } else if self.draining {
            (RejectReason::Draining, whole_seconds(self.rate.time_for(self.uncached)))
        } else {
            return Ok(());
        };
        Err(Rejected { reason, retry_after, value: 0, limit: 0 })
    }

    fn check_requests(&self, now: Time) -> Result<(), Rejected> {
        let (requests, limit) = (self.waiting.len(), self.limits.max_queued_requests);
        if limit == 0 || requests < limit {
            return Ok(());
        }
        // A place is free when the next request starts: after the prompts that have started.
        let next_start = self.rate.time_for(self.started).max(self.next_start(now));
        Err(Rejected {
            reason: RejectReason::QueueRequestsFull,
            retry_after: whole_seconds(next_start),
            value: requests as u64,
            limit: limit as u64,
        })
    }

    /// Would `own` more tokens pass a bound? A prompt meets an empty queue unhindered, else one
    /// that is longer than the bound could never run.
    fn check_tokens(&self, own: u64, now: Time) -> Result<(), Rejected> {
        let ahead = self.uncached;
        if ahead == 0 {
            return Ok(());
        }
        let total = ahead.saturating_add(own);
        if let Some(limit) = self.limits.max_queued_tokens
            && limit != 0
            && total > limit
        {
            return Err(Rejected {
                reason: RejectReason::QueueTokensFull,
                retry_after: self.retry_after_tokens(own, limit, now),
                value: total,
                limit,
            });
        }
        let objective = self.limits.ttft_objective;
        let drain = self.rate.time_for(total);
        if !objective.is_zero() && drain > objective {
            let limit = self.rate.tokens_in(objective);
            return Err(Rejected {
                reason: RejectReason::DrainTime,
                retry_after: self.retry_after_tokens(own, limit, now),
                value: millis(drain),
                limit: millis(objective),
            });
        }
        Ok(())
    }

    /// Time until so much is computed that `own` tokens fit under `limit`, or until nothing is
    /// pending where they never fit.
    fn retry_after_tokens(&self, own: u64, limit: u64, now: Time) -> Duration {
        let excess = self.uncached.saturating_add(own).saturating_sub(limit).min(self.uncached);
        let computed = self.rate.time_for(excess);
        // Beyond the started prompts, tokens only go when a waiting request starts.
        let started = if excess > self.started { self.next_start(now) } else { Duration::ZERO };
        whole_seconds(computed.max(started))
    }

    /// When the head of the queue is expected to start, from the mean gap between starts.
    fn next_start(&self, now: Time) -> Duration {
        self.head_since
            .map_or(Duration::ZERO, |since| self.start_gap.saturating_sub(now.since(since)))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Rounds up to whole seconds, at least one.
fn whole_seconds(time: Duration) -> Duration {
    let up = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
    Duration::from_secs(up.max(1))
}

#[cfg(test)]
mod tests;
