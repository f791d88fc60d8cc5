//! The controller: one small state under a mutex, shared by the front door and the engine.

mod bounds;
mod early;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use types::{Priority, Time};

pub use early::{Outlook, Uncounted};

use crate::permit::QueuePermit;
use crate::queue::{Lack, Places};
use crate::rank::Rank;
use crate::rate::PrefillRate;
use crate::reject::{RejectReason, Rejected};
use crate::returns::Returns;
use crate::starts::Starts;

/// What a client of a failed engine is told: long enough for a supervisor to restart it.
const UNHEALTHY_RETRY: Duration = Duration::from_secs(10);

/// Prompts over which their length is averaged.
const MEAN_OVER: f64 = 16.0;

/// The bounds. Each can be turned off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most requests that may wait, beside those for which a running slot is open; 0 is no bound.
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
    /// Requests that wait (live permits that were not evicted).
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
    /// Time until one more request would find a place, where none is free; zero where one is.
    pub next_place: Duration,
}

#[derive(Debug)]
struct State {
    limits: Limits,
    places: Places,
    next_seq: u64,
    pending: u64,
    uncached: u64,
    /// The part of `uncached` whose prompts have started; it needs no further start.
    started: u64,
    /// Running slots that take waiting requests at the engine's next step.
    open_slots: usize,
    rate: PrefillRate,
    /// Most tokens that a step of the engine computes.
    step_tokens: u64,
    /// Tokens of a prompt, on average over the last ones.
    mean_prompt: f64,
    returns: Returns,
    starts: Starts,
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
            places: Places::default(),
            next_seq: 0,
            pending: 0,
            uncached: 0,
            started: 0,
            open_slots: 0,
            rate: PrefillRate::new(initial_rate),
            step_tokens: 0,
            mean_prompt: 0.0,
            returns: Returns::default(),
            starts: Starts::default(),
            draining: false,
            unhealthy: false,
        };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// Would `count` requests of `priority` be refused by what is known before they are read?
    /// Takes no place and evicts nobody.
    ///
    /// # Errors
    /// The refusal with its reason and `Retry-After`.
    pub fn check(&self, priority: Priority, count: usize, now: Time) -> Result<(), Rejected> {
        let mut state = self.lock();
        state.check_state()?;
        let room = state.check_room(Rank::new(now, priority, u64::MAX), count, now);
        room.map_err(|refusal| state.tell_when(refusal, None, now))
    }

    /// Takes a place in the queue, before any work is done for the request: a family of one.
    ///
    /// # Errors
    /// The refusal with its reason and `Retry-After`.
    pub fn try_admit(
        self: &Arc<Self>,
        priority: Priority,
        now: Time,
    ) -> Result<QueuePermit, Rejected> {
        let mut permits = self.try_admit_family(priority, 1, now)?;
        Ok(permits.pop().expect("as many permits as were asked for"))
    }

    /// Takes places for a family of `count` requests, all of them or none. They are evicted
    /// together, and not once one of them has started. Refuses by state, by count, and where the
    /// tokens ahead alone pass a bound. Where only the count is short, strictly worse requests
    /// that wait lose their places: the worst first, none where all of them are not enough.
    ///
    /// # Errors
    /// The refusal with its reason and `Retry-After`.
    pub fn try_admit_family(
        self: &Arc<Self>,
        priority: Priority,
        count: usize,
        now: Time,
    ) -> Result<Vec<QueuePermit>, Rejected> {
        let mut state = self.lock();
        state.check_state()?;
        let first = Rank::new(now, priority, state.next_seq);
        let room = state.check_room(first, count, now);
        room.map_err(|refusal| state.tell_when(refusal, None, now))?;
        let lack = Lack { places: state.places_lacked(count), tokens: 0 };
        state.make_room(first, lack, now).expect("checked above");
        state.next_seq += count as u64;
        state.places.insert(first, count as u64, now);
        state.starts.waits(now);
        drop(state);
        let permit = |index| {
            let rank = first.with_seq(first.seq() + index as u64);
            QueuePermit::new(Arc::clone(self), rank, priority, now)
        };
        Ok((0..count).map(permit).collect())
    }

    /// Live permits whose places were taken by better requests, added to `ranks`. Their holders
    /// find the refusal in them.
    pub fn evicted(&self, ranks: &mut Vec<Rank>) {
        ranks.extend(self.lock().places.all_evicted());
    }

    /// The engine would start `slots` more requests in its next step, and none waits in it. So
    /// many may wait beyond the bound, since they do not wait for each other; each start takes
    /// one.
    pub fn set_open_slots(&self, slots: usize) {
        self.lock().open_slots = slots;
    }

    /// A step of the engine computes up to `tokens` tokens together: a prompt may have to wait for
    /// the step that runs when it comes, and has its first token when the step ends that computes
    /// its last ones. So much time of the objective is not given to queued tokens; 0, as at first,
    /// is none.
    pub fn set_step_tokens(&self, tokens: u64) {
        self.lock().step_tokens = tokens;
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

    /// The bounds in force.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.lock().limits
    }

    /// Other bounds for what comes from now on. Nobody who waits loses the place: where the new
    /// bounds are passed already, newcomers are refused until they are not.
    pub fn set_limits(&self, limits: Limits) {
        self.lock().limits = limits;
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
        QueueSnapshot {
            requests: state.places.len(),
            pending_tokens: state.pending,
            pending_uncached_tokens: state.uncached,
            oldest_age: now.since(state.places.oldest().unwrap_or(now)),
            limit_requests: state.limits.max_queued_requests,
            limit_tokens: state.limit_tokens(),
            drain: state.rate.time_for(state.uncached),
            prefill_rate: state.rate.tokens_per_second(),
            next_place: match state.places_lacked(1) {
                0 => Duration::ZERO,
                places => state.time_for_places(places, now),
            },
        }
    }

    /// Checks and books a prompt in one step.
    pub(crate) fn charge(
        &self,
        rank: Rank,
        priority: Priority,
        tokens: u64,
        cached: u64,
        now: Time,
    ) -> Result<(), Rejected> {
        let uncached = tokens.saturating_sub(cached);
        let mut state = self.lock();
        if let Some(refusal) = state.places.evicted(rank) {
            return Err(refusal);
        }
        // As one that comes now: having arrived a little earlier is no reason to evict an equal.
        let newcomer = Rank::new(now, priority, u64::MAX);
        state.mean_prompt += (uncached as f64 - state.mean_prompt) / MEAN_OVER;
        if let Some((refusal, excess)) = state.tokens_lacked(state.uncached, uncached, now) {
            let lack = Lack { places: 0, tokens: excess };
            let room = state.make_room(newcomer, lack, now);
            room.ok_or_else(|| state.tell_when(refusal, Some(uncached), now))?;
        }
        let place = state.places.get_mut(rank).expect("a live permit has a place");
        (place.pending, place.uncached, place.expected) = (tokens, uncached, 0);
        state.pending += tokens;
        state.uncached += uncached;
        Ok(())
    }

    pub(crate) fn refund(&self, rank: Rank, uncached: u64) {
        let mut state = self.lock();
        // An evicted one has nothing left to give back.
        if let Some(place) = state.places.get_mut(rank) {
            place.uncached -= uncached;
            state.uncached -= uncached;
        }
    }

    /// From the queue into the running batch; returns the tokens that become debt. The cached
    /// part leaves with the permit, the rest passes over in one step, so that no reader ever sees
    /// the tokens twice or not at all.
    pub(crate) fn start(&self, rank: Rank, now: Time) -> Result<u64, Rejected> {
        let mut state = self.lock();
        if let Some(refusal) = state.places.evicted(rank) {
            return Err(refusal);
        }
        let place = state.places.remove(rank).expect("a live permit has a place");
        state.places.keep_family(rank, &place);
        state.pending -= place.pending - place.uncached;
        state.started += place.uncached;
        state.open_slots = state.open_slots.saturating_sub(1);
        state.starts.started(now);
        state.note_if_empty();
        Ok(place.uncached)
    }

    pub(crate) fn expire(&self, rank: Rank, limit: Duration, now: Time) -> Option<Rejected> {
        let mut state = self.lock();
        if let Some(refusal) = state.places.evicted(rank) {
            return Some(refusal);
        }
        let place = *state.places.get_mut(rank).expect("a live permit has a place");
        if place.kept {
            return None;
        }
        let refusal = Rejected {
            reason: RejectReason::QueueTimeout,
            retry_after: state.retry_after_places(1, now),
            value: millis(now.since(place.enqueued_at)),
            limit: millis(limit),
        };
        state.evict(rank, refusal);
        Some(refusal)
    }

    pub(crate) fn eviction(&self, rank: Rank) -> Option<Rejected> {
        self.lock().places.evicted(rank)
    }

    pub(crate) fn leave(&self, rank: Rank) {
        let mut state = self.lock();
        state.places.forget(rank);
        if let Some(place) = state.places.remove(rank) {
            state.pending -= place.pending;
            state.uncached -= place.uncached;
            state.note_if_empty();
        }
    }

    pub(crate) fn pay_debt(&self, tokens: u64) {
        let mut state = self.lock();
        state.pending -= tokens;
        state.uncached -= tokens;
        state.started -= tokens;
    }

    /// A debt of `before` tokens turns out to be one of `after`.
    pub(crate) fn correct_debt(&self, before: u64, after: u64) {
        let mut state = self.lock();
        state.pending = state.pending - before + after;
        state.uncached = state.uncached - before + after;
        state.started = state.started - before + after;
    }

    /// No method leaves the state half changed, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn note_if_empty(&mut self) {
        if self.places.is_empty() {
            self.starts.nobody_waits();
        }
    }

    fn evict(&mut self, rank: Rank, why: Rejected) {
        let place = self.places.evict(rank, why).expect("a victim has a place");
        self.pending -= place.pending;
        self.uncached -= place.uncached;
        self.note_if_empty();
    }

    /// Evicts who must go so that a request of `rank` gets what it lacks; `None` where that
    /// cannot be had, and then nobody goes.
    fn make_room(&mut self, rank: Rank, lack: Lack, now: Time) -> Option<()> {
        let victims = self.places.victims(rank, lack)?;
        let why = Rejected {
            reason: RejectReason::PriorityEvicted,
            retry_after: self.retry_after_places(1, now),
            value: self.places.len() as u64,
            limit: self.limits.max_queued_requests as u64,
        };
        for victim in victims {
            self.evict(victim, why);
        }
        Some(())
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

    /// Is there a place for each of `count` requests, and room for a token of them, or can worse
    /// requests make it?
    fn check_room(&self, rank: Rank, count: usize, now: Time) -> Result<(), Rejected> {
        let places = self.places_lacked(count);
        if self.places.victims(rank, Lack { places, tokens: 0 }).is_none() {
            return Err(Rejected {
                reason: RejectReason::QueueRequestsFull,
                retry_after: self.retry_after_places(places, now),
                value: self.places.len() as u64,
                limit: self.limits.max_queued_requests as u64,
            });
        }
        match self.tokens_lacked(self.uncached, 1, now) {
            Some((refusal, tokens))
                if self.places.victims(rank, Lack { places, tokens }).is_none() =>
            {
                Err(refusal)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// How many places are missing for `count` more requests.
    fn places_lacked(&self, count: usize) -> usize {
        match self.limits.max_queued_requests {
            0 => 0,
            limit => (self.places.len() + count).saturating_sub(limit + self.open_slots),
        }
    }

    /// How the bounds would refuse `own` more tokens behind those `ahead`, and how many tokens must
    /// go so that they do not. A prompt meets an empty queue unhindered, else one that is longer
    /// than the bound could never run.
    fn tokens_lacked(&self, ahead: u64, own: u64, now: Time) -> Option<(Rejected, u64)> {
        if ahead == 0 {
            return None;
        }
        let total = ahead.saturating_add(own);
        let excess = |limit: u64| total.saturating_sub(limit).min(ahead);
        let objective = self.drain_limit();
        let by_time = (!objective.is_zero()).then(|| self.rate.tokens_in(objective));
        let drain = self.rate.time_for(total);
        let late = by_time.filter(|_| drain > objective);
        if let Some(limit) = self.limits.max_queued_tokens
            && limit != 0
            && total > limit
        {
            let refusal = Rejected {
                reason: RejectReason::QueueTokensFull,
                retry_after: self.retry_after_tokens(excess(limit), now),
                value: total,
                limit,
            };
            return Some((refusal, excess(late.map_or(limit, |late| late.min(limit)))));
        }
        let limit = late?;
        let refusal = Rejected {
            reason: RejectReason::DrainTime,
            retry_after: self.retry_after_tokens(excess(limit), now),
            value: millis(drain),
            limit: millis(objective),
        };
        Some((refusal, excess(limit)))
    }

    /// [`time_for_places`](Self::time_for_places) as a client is told it.
    fn retry_after_places(&self, places: usize, now: Time) -> Duration {
        whole_seconds(self.time_for_places(places, now))
    }

    /// Time until `places` waiting requests have started: after the prompts that have.
    fn time_for_places(&self, places: usize, now: Time) -> Duration {
        let starts = self.starts.time_of(places.max(1) as u64, now);
        self.rate.time_for(self.started).max(starts)
    }

    /// Time until `excess` tokens are computed.
    fn retry_after_tokens(&self, excess: u64, now: Time) -> Duration {
        let computed = self.rate.time_for(excess);
        // Beyond the started prompts, tokens only go when a waiting request starts.
        let waits = excess > self.started;
        let started = if waits { self.starts.time_of(1, now) } else { Duration::ZERO };
        whole_seconds(computed.max(started))
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
mod eviction_tests;
#[cfg(test)]
mod tests;
