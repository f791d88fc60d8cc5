//! Requests that wait at the router because nobody can be asked for a moment: the only worker of
//! a model, or one half of its only pair, restarts.
//!
//! What is bridged is a short absence, not an outage: the time runs from when the model could last
//! be answered, for all requests alike, so that nobody waits for a worker that has been away for
//! longer. Their number and their tokens are bounded over all models together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use types::Time;

use crate::core::Core;
use crate::member::Member;
use crate::registry::Poll;
use crate::request::Request;
use crate::worker::{CircuitState, WorkerRole, WorkerState};

/// What waits, of all models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// Requests.
    pub requests: usize,
    /// Prompt tokens of them, estimated.
    pub tokens: u64,
}

/// The counts of what waits; each place holds a share of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waiting(Arc<Mutex<Held>>);

impl Waiting {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one request that waits. Dropping it gives the place back.
#[derive(Debug)]
pub struct Place {
    waiting: Waiting,
    tokens: u64,
    until: Time,
}

impl Place {
    /// The moment at which it has waited long enough.
    #[must_use]
    pub const fn until(&self) -> Time {
        self.until
    }

    /// Tokens of its prompt, estimated.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.tokens
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = self.waiting.held();
        // Exact by construction: only what was added is taken.
        debug_assert!(held.requests > 0 && held.tokens >= self.tokens);
        held.requests = held.requests.saturating_sub(1);
        held.tokens = held.tokens.saturating_sub(self.tokens);
    }
}

/// Whether a request may wait for a worker to come back.
#[derive(Debug)]
pub enum Hold {
    /// It may, for so long.
    Wait(Place),
    /// Too much waits already.
    Full,
    /// It would wait for nothing: none of its workers was there just now, or nothing is held.
    Pointless,
}

impl Core {
    /// May a request wait that nobody can be asked for? Asks of nobody and counts nothing but the
    /// place.
    pub fn hold(&mut self, request: &Request<'_>, now: Time) -> Hold {
        let config = self.config.hold;
        let Some(seen) = self.answerable.get(request.model) else { return Hold::Pointless };
        let until = *seen + config.time;
        if now >= until {
            return Hold::Pointless;
        }
        let tokens = self.tokens(request.model, request.prompt.len());
        let mut held = self.waiting.held();
        let total = held.tokens.saturating_add(tokens);
        if held.requests >= config.requests || total > config.tokens {
            return Hold::Full;
        }
        *held = Held { requests: held.requests + 1, tokens: total };
        drop(held);
        Hold::Wait(Place { waiting: self.waiting.clone(), tokens, until })
    }

    /// What waits now.
    #[must_use]
    pub fn held(&self) -> Held {
        *self.waiting.held()
    }

    /// Notes which models of the worker that was polled can be answered now.
    pub(crate) fn note_answerable(&mut self, poll: &Poll, now: Time) {
        let models = self.registry.polled(poll).map(|member| member.models.clone());
        let models = models.unwrap_or_default();
        for model in models {
            if self.can_answer(&model, now) {
                self.answerable.insert(model, now);
            }
        }
    }

    /// Is there a worker, or a pair that fits, which would be asked for the model?
    fn can_answer(&self, model: &str, now: Time) -> bool {
        let well = |member: &Member| {
            member.serves(model)
                && member.state(now, &self.config.health) == WorkerState::Ready
                && member.breaker.state(now) == CircuitState::Closed
        };
        self.registry.iter().filter(|member| well(member)).any(|member| match member.role {
            WorkerRole::Unified | WorkerRole::Plain => true,
            WorkerRole::Decode => member.pairs.iter().any(|slot| well(self.registry.at(slot))),
            WorkerRole::Prefill => false,
        })
    }
}
