//! Decode: which prompts another worker computes, and who.

use axum::http::HeaderMap;
use engine::Namespace;
use protocol::ApiError;
use protocol::internal::PREFILL_HEADER;
use transfer::{PeerName, Prompt};
use types::Priority;

use super::error::Failure;
use super::prompt::Tokenized;
use super::record::Arrival;
use super::{Api, Serving};
use crate::cli::Role;
use crate::pd::Link;
use crate::pd::offer::Taken;

/// The W3C trace context.
const TRACEPARENT: &str = "traceparent";
/// Longer ones are none.
const TRACEPARENT_MAX: usize = 256;

/// What the head of a request says about its way.
#[derive(Debug)]
pub(super) struct Route {
    /// The prefill worker that a router has chosen.
    prefill: Option<PeerName>,
    /// The request's name, for the logs of the other worker.
    request: String,
    traceparent: Option<String>,
}

/// Whose prompts these are.
pub(super) struct Asked<'a> {
    pub route: &'a Route,
    pub namespace: &'a Namespace,
    pub tenant: Option<&'a str>,
    pub priority: Priority,
}

/// Which answers have their prompts computed elsewhere.
#[derive(Debug)]
pub(super) struct Remote {
    /// Who computes them.
    pub peer: Option<PeerName>,
    /// For each answer.
    pub choices: Vec<Option<Taken>>,
}

impl Api {
    /// What the head of a request says about its way.
    ///
    /// # Errors
    /// A prefill worker that this server does not know; any request, where this server only
    /// computes prompts for others.
    pub(super) fn route(&self, headers: &HeaderMap, arrival: &Arrival) -> Result<Route, Failure> {
        if self.role == Role::Prefill {
            return Err(self.wrong_role().into());
        }
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let traceparent = text(TRACEPARENT).filter(|text| text.len() <= TRACEPARENT_MAX);
        let prefill = match self.link() {
            Some(Link::Decode(offering, _)) => {
                let given = headers.get(PREFILL_HEADER).map(|name| name.to_str().unwrap_or("?"));
                given.map(|name| offering.named(name)).transpose()?
            }
            Some(Link::Prefill(_)) | None => None,
        };
        Ok(Route {
            prefill,
            request: arrival.id.to_str().unwrap_or_default().to_owned(),
            traceparent: traceparent.map(str::to_owned),
        })
    }

    /// Whom to ask instead of a prefill worker.
    fn wrong_role(&self) -> ApiError {
        let others = match self.decode_peers.as_slice() {
            [] => String::new(),
            names => format!(" (decode workers: {})", names.join(", ")),
        };
        let message = format!(
            "This is a prefill worker: it computes prompts for decode workers and answers no \
             requests. Send them to a decode worker or to the router{others}."
        );
        ApiError { status: 404, code: Some("wrong_role"), ..ApiError::malformed(message) }
    }

    /// Has the prompts computed elsewhere that are worth it, `n` answers each. Dropping the future
    /// gives them up.
    ///
    /// # Errors
    /// The refusal of the prefill worker, or why nobody could be asked.
    pub(super) async fn offer(
        &self,
        serving: &Serving,
        asked: &Asked<'_>,
        prompts: &[Tokenized],
        n: usize,
    ) -> Result<Remote, Failure> {
        let nothing = || Remote {
            peer: None,
            choices: prompts.iter().flat_map(|_| (0..n).map(|_| None)).collect(),
        };
        if self.role != Role::Decode {
            return Ok(nothing());
        }
        let elsewhere: Vec<bool> =
            prompts.iter().map(|prompt| self.is_remote(serving, asked, prompt)).collect();
        let offers: Vec<Prompt> = prompts
            .iter()
            .zip(&elsewhere)
            .filter(|(_, remote)| **remote)
            .flat_map(|(prompt, _)| std::iter::repeat_n(asked.prompt(prompt), n))
            .collect();
        if offers.is_empty() {
            return Ok(nothing());
        }
        let Some(Link::Decode(offering, _)) = self.link() else { return Err(Failure::loading()) };
        let fixed = asked.route.prefill.clone();
        let (peer, taken) = offering.offer(fixed, &offers, || self.next_id()).await?;
        let mut taken = taken.into_iter();
        let of = |remote: &bool| -> Vec<Option<Taken>> {
            (0..n).map(|_| if *remote { taken.next() } else { None }).collect()
        };
        let choices = elsewhere.iter().flat_map(of).collect();
        Ok(Remote { peer: Some(peer), choices })
    }

    /// Whether enough of the prompt is missing here. One that is scored is computed here whole.
    fn is_remote(&self, serving: &Serving, asked: &Asked<'_>, prompt: &Tokenized) -> bool {
        // The last token is computed here in any case.
        let Some(all) = prompt.tokens.len().checked_sub(1).filter(|all| *all > 0) else {
            return false;
        };
        let cached = serving.engine.cached_prefix(asked.namespace, &prompt.tokens);
        let local = self.live.values().local_tokens.unwrap_or(self.page_tokens);
        prompt.scored_echo.is_none() && all.saturating_sub(cached) > local
    }
}

impl Asked<'_> {
    fn prompt(&self, prompt: &Tokenized) -> Prompt {
        let computed = prompt.tokens.len() - 1;
        Prompt {
            request: self.route.request.clone(),
            traceparent: self.route.traceparent.clone(),
            tokens: prompt.tokens[..computed].to_vec(),
            namespace: self.namespace.bytes().to_vec(),
            priority: self.priority,
            tenant: self.tenant.map(str::to_owned),
        }
    }
}
