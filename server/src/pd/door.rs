//! Prefill: the front door for prompts that decode workers offer. The same admission as for
//! requests decides, at once; what it accepts goes to the engine without a client.

use std::sync::{Arc, Weak};

use admission::Rejected;
use engine::{Namespace, Outcome, RequestEnd, Sink, Submission, SubmitError, TokenEvent, Verdict};
use model::SamplingParams;
use transfer::{Accepted, Offer, Offers, PeerName, Sending};

use super::{INVALID, TOO_LONG, to_wire};
use crate::http::Api;
use crate::http::error::{Failure, not_taken};

/// Decides on offers for the server behind it.
pub struct Door {
    api: Weak<Api>,
}

impl Door {
    /// The door of `api`.
    #[must_use]
    pub fn new(api: &Arc<Api>) -> Self {
        Self { api: Arc::downgrade(api) }
    }
}

impl Offers for Door {
    fn offer(
        &self,
        peer: &PeerName,
        offer: Offer,
        sending: Box<dyn Sending>,
    ) -> Result<Accepted, transfer::Rejected> {
        let api = self.api.upgrade().ok_or_else(|| to_wire(&closed()))?;
        let (tokens, class) = (offer.tokens.len(), offer.priority.class());
        let request = offer.request.clone();
        match take(&api, offer, sending) {
            Ok(accepted) => {
                api.requests.admitted(tokens, class);
                tracing::debug!(request_id = request, %peer, tokens, "A prompt was accepted.");
                Ok(accepted)
            }
            Err(Refusal::Admission(refusal)) => {
                api.requests.rejected(&refusal, 1, class);
                tracing::debug!(request_id = request, %peer, %refusal, "A prompt was refused.");
                Err(to_wire(&refusal))
            }
            Err(Refusal::TooLong { limit }) => {
                api.requests.invalid(1, class);
                Err(impossible(TOO_LONG, tokens, limit))
            }
            Err(Refusal::Invalid) => {
                api.requests.invalid(1, class);
                tracing::warn!(request_id = request, %peer, "A prompt makes no sense here.");
                Err(impossible(INVALID, tokens, 0))
            }
        }
    }
}

fn impossible(reason: u8, tokens: usize, limit: usize) -> transfer::Rejected {
    let (value, limit) = (tokens as u64, limit as u64);
    transfer::Rejected { reason, retry_after: super::offer::RETRY_AFTER, value, limit }
}

enum Refusal {
    Admission(Rejected),
    TooLong {
        limit: usize,
    },
    /// No engine takes it: the decode worker has another model after all.
    Invalid,
}

impl From<Rejected> for Refusal {
    fn from(refusal: Rejected) -> Self {
        Self::Admission(refusal)
    }
}

/// The server is not there yet, or no longer.
const fn closed() -> Rejected {
    let reason = admission::RejectReason::Draining;
    Rejected { reason, retry_after: super::offer::RETRY_AFTER, value: 0, limit: 0 }
}

fn take(api: &Api, offer: Offer, sending: Box<dyn Sending>) -> Result<Accepted, Refusal> {
    let serving = api.serving().ok_or_else(closed)?;
    if offer.tokens.len() > api.max_context {
        return Err(Refusal::TooLong { limit: api.max_context });
    }
    let now = api.clock.now();
    let permit = serving.admission.try_admit(offer.priority, now)?;
    let namespace = Namespace::from_bytes(&offer.namespace);
    let cached = serving.engine.cached_prefix(&namespace, &offer.tokens);
    let drain = serving.admission.snapshot(now).drain;
    let permit = permit.charge_cached(offer.tokens.len() as u64, cached as u64, now)?;
    let id = api.next_id();
    let submission = Submission {
        id,
        permit,
        follower: serving.engine.follow(&namespace, &offer.tokens),
        prompt: offer.tokens,
        tenant: offer.tenant.as_deref().map(Arc::from),
        namespace,
        prompt_logprobs: false,
        sampling: SamplingParams::default(),
        constraint: None,
        max_tokens: 0,
        stop_tokens: Vec::new(),
        remote: None,
        send: Some(sending),
        sink: Box::new(Nobody { request: offer.request }),
        streaming: false,
        arrived: now,
        tokenized: now,
    };
    match serving.engine.submit(submission) {
        Ok(()) => Ok(Accepted { request: id, drain }),
        Err(refused) => Err(match &refused.error {
            SubmitError::TooLong { limit, .. } => Refusal::TooLong { limit: *limit },
            error @ (SubmitError::Busy { .. }
            | SubmitError::Draining
            | SubmitError::Unhealthy
            | SubmitError::Invalid(_)
            | SubmitError::Duplicate) => match not_taken(error) {
                Failure::Refused(refusal) => Refusal::Admission(refusal),
                Failure::Api(_) | Failure::Pair(_) => Refusal::Invalid,
            },
        }),
    }
}

/// The sink of a prompt that is computed for another worker: there is nobody to tell.
struct Nobody {
    request: String,
}

impl Sink for Nobody {
    fn token(&mut self, _: &TokenEvent<'_>) -> Verdict {
        Verdict::Continue
    }

    fn finish(self: Box<Self>, end: &RequestEnd) {
        let (request_id, id) = (self.request, end.id.0);
        match &end.outcome {
            Outcome::Stop | Outcome::Length => {
                tracing::debug!(request_id, id, tokens = end.prompt_tokens, "A prompt was sent.");
            }
            Outcome::Aborted(abort) => {
                tracing::debug!(request_id, id, ?abort, "A prompt was given up.");
            }
            Outcome::Rejected(refusal) => {
                tracing::info!(request_id, id, %refusal, "An accepted prompt lost its place.");
            }
            Outcome::Error(error) => {
                tracing::warn!(request_id, id, %error, "A prompt was not sent.");
            }
        }
    }
}
