//! After a request was answered or failed: what its workers are believed to be, and whether it is
//! sent again.

use std::time::Duration;

use types::Time;

use crate::config::Config;
use crate::core::Core;
use crate::door::whole_seconds;
use crate::member::{Cool, CoolCause, Member};
use crate::registry::event;
use crate::request::{Failure, FailureKind, Leg, Request, RetryReason, Route, Verdict};
use crate::route::{Asked, Attempt};
use crate::worker::{CircuitState, Event, EventKind};

/// What a failure says of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    /// It is well.
    Well,
    /// Nothing.
    Nothing,
    /// It failed.
    Failed,
}

impl Core {
    /// The first byte of an answer is here: its workers are well, and the prompt is computed.
    pub fn answered(&mut self, route: &mut Route, now: Time) -> Vec<Event> {
        route.prefill_done();
        let legs = [Some(&mut route.serve), route.prefill.as_mut()];
        legs.into_iter().flatten().filter_map(|leg| self.says(leg, Says::Well, now)).collect()
    }

    /// A request failed, before or after its answer began. Says whether and where it is sent
    /// again. A request that its client gave up is no failure: drop its route.
    pub fn failed(
        &mut self,
        mut route: Route,
        failure: Failure,
        request: &Request<'_>,
        attempt: &mut Attempt,
        now: Time,
    ) -> (Verdict, Vec<Event>) {
        let mut events = Vec::new();
        let says = self.verdict_on(&route, failure, now);
        let blamed = match (&mut route.prefill, failure.by_prefill) {
            (Some(prefill), true) => {
                // What it passes on, it passes on in good order.
                events.extend(self.says(&mut route.serve, Says::Well, now));
                prefill
            }
            (_, _) => &mut route.serve,
        };
        let key = blamed.key;
        events.extend(self.says(blamed, says, now));
        if let FailureKind::Rejected { status, retry_after } = failure.kind {
            attempt.refusals += 1;
            let cause = if status == 429 { CoolCause::Full } else { CoolCause::Closed };
            self.cool(blamed, (retry_after, cause), attempt, now);
        }
        // Its counts go before another worker is chosen.
        self.take_back(route, failure.kind, request, attempt);
        attempt.tried.push(key);
        let reason = retry_reason(failure, request).filter(|reason| {
            let refused_twice = *reason == RetryReason::Rejected && attempt.refusals > 1;
            attempt.tries < self.config.retry.tries && !refused_twice && self.affords(*reason)
        });
        if let Some(reason) = reason {
            let asked = self.ask(request, attempt);
            let head_room = matches!(failure.kind, FailureKind::Rejected { status: 429, .. });
            if let Ok(route) = self.choose(&asked, attempt, head_room, now) {
                if costs(reason) {
                    self.budget.take();
                }
                return (Verdict::Again(Box::new(route), reason), events);
            }
        }
        let retry_after = match failure.kind {
            FailureKind::Rejected { status, .. } => {
                let asked = self.ask(request, attempt);
                let wait = self.come_back(&asked, attempt, now);
                let full = status == 429;
                Some(if full { self.come_behind(&asked, wait, now) } else { wait })
            }
            FailureKind::Connect
            | FailureKind::Broken
            | FailureKind::FirstByteTimeout
            | FailureKind::IdleTimeout
            | FailureKind::Status(_)
            | FailureKind::BadRequest(_) => None,
        };
        (Verdict::Pass { retry_after }, events)
    }

    /// Ends a route that failed. Where no worker has begun with the prompt, none will hold it.
    fn take_back(
        &mut self,
        route: Route,
        kind: FailureKind,
        request: &Request<'_>,
        attempt: &Attempt,
    ) {
        if !matches!(kind, FailureKind::Connect | FailureKind::Rejected { .. }) {
            return;
        }
        let pieces = self.ask(request, attempt).pieces;
        for leg in [Some(route.serve), route.prefill].into_iter().flatten() {
            if self.registry.get_mut(leg.key).is_some() {
                self.prefixes.take_back(leg.key.slot, &pieces, leg.held);
            }
        }
    }

    fn affords(&self, reason: RetryReason) -> bool {
        !costs(reason) || self.budget.has()
    }

    /// What a failure says of the worker that is to blame.
    fn verdict_on(&self, route: &Route, failure: Failure, now: Time) -> Says {
        match failure.kind {
            FailureKind::Rejected { .. } => Says::Well,
            FailureKind::BadRequest(_) => Says::Nothing,
            FailureKind::FirstByteTimeout => {
                // Long queues are no fault: a worker that is known to have one, and tells so, is
                // well.
                let busy = self.registry.iter().find(|m| m.key == route.computes().key);
                if busy.is_some_and(|m| is_busy(m, now, &self.config)) {
                    Says::Nothing
                } else {
                    Says::Failed
                }
            }
            FailureKind::Connect
            | FailureKind::Broken
            | FailureKind::IdleTimeout
            | FailureKind::Status(_) => Says::Failed,
        }
    }

    fn says(&mut self, leg: &mut Leg, says: Says, now: Time) -> Option<Event> {
        let probe = leg.probe.take().is_some();
        let member = self.registry.get_mut(leg.key)?;
        let breaker = &self.config.breaker;
        let changed: Option<CircuitState> = match says {
            Says::Well => member.breaker.well(probe, now, breaker),
            Says::Failed => member.breaker.failed(probe, now, breaker),
            Says::Nothing => None,
        };
        if changed == Some(CircuitState::Closed) {
            member.back = Some(now);
        }
        changed.map(|state| event(member, EventKind::Circuit(state)))
    }

    /// The worker asked for time.
    fn cool(
        &mut self,
        leg: &Leg,
        (asked, cause): (Option<Duration>, CoolCause),
        attempt: &mut Attempt,
        now: Time,
    ) {
        let retry = self.config.retry;
        let told = asked.map(|time| whole_seconds(time.as_secs_f64()));
        attempt.retry_after = [attempt.retry_after, told].into_iter().flatten().min();
        if let Some(member) = self.registry.get_mut(leg.key) {
            let until = now + asked.unwrap_or(retry.cool).min(retry.cool_max);
            // A longer time that it asked for before still holds; why, it says best now.
            let until = member.cool.map_or(until, |cool| cool.until.max(until));
            member.cool = Some(Cool { from: now, until, cause });
        }
    }

    /// When to come back: the smallest time that a worker asked for, or that one which was not
    /// asked will need.
    fn come_back(&self, asked: &Asked<'_>, attempt: &Attempt, now: Time) -> Duration {
        let others = self.soonest(asked, now);
        let known = [attempt.retry_after, others].into_iter().flatten().min();
        known.unwrap_or_else(|| whole_seconds(self.config.retry.cool.as_secs_f64()))
    }
}

/// Why a request may be sent again after a failure, where it may.
fn retry_reason(failure: Failure, request: &Request<'_>) -> Option<RetryReason> {
    if failure.answer_begun {
        return None;
    }
    match failure.kind {
        // Nothing of it was executed.
        FailureKind::Connect => Some(RetryReason::Connect),
        FailureKind::Rejected { .. } => Some(RetryReason::Rejected),
        FailureKind::BadRequest(_) => None,
        _ if !request.repeatable => None,
        FailureKind::Broken => Some(RetryReason::Broken),
        FailureKind::FirstByteTimeout | FailureKind::IdleTimeout => Some(RetryReason::Timeout),
        FailureKind::Status(_) => Some(RetryReason::Error),
    }
}

/// Is a retry for that reason load beside the request's own? Where no connection was made, no
/// worker has done anything for it.
const fn costs(reason: RetryReason) -> bool {
    match reason {
        RetryReason::Connect => false,
        RetryReason::Broken | RetryReason::Rejected | RetryReason::Error | RetryReason::Timeout => {
            true
        }
    }
}

/// Does a fresh report say that requests wait there?
fn is_busy(member: &Member, now: Time, config: &Config) -> bool {
    member.fresh(now, &config.health).is_some_and(|fresh| fresh.load.queued.requests > 0)
}
