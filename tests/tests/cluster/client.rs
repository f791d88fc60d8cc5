//! Clients: what they want, where their requests are, and how they ended.

use std::time::Duration;

use admission::RejectReason;
use router::{Attempt, Route};
use types::{Priority, RequestId, Time, TokenId};

/// Where a request is.
#[derive(Debug)]
pub(crate) enum Stage {
    /// It has not come, or waits for as long as it was told to.
    Away,
    /// A decode worker has asked a prefill worker, under this name.
    Asked { decode: usize, id: RequestId },
    /// A decode worker's engine has it.
    Served { decode: usize, id: RequestId },
    /// It has ended.
    Over(End),
}

/// How a request ended for its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// With its whole answer.
    Answered,
    /// Refused, with when to come back; it did not.
    Refused,
    /// Nobody could be asked.
    NoWorker,
    /// An error status before the answer began.
    Failed,
    /// An error after it began.
    Cut,
    /// The client left.
    Left,
}

/// A client and its one request.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) prompt: Vec<TokenId>,
    /// The prompt as the router sees it.
    pub(crate) text: Vec<u8>,
    pub(crate) max_tokens: usize,
    pub(crate) priority: Priority,
    /// How long it waits for its first token.
    pub(crate) patience: Duration,
    /// Times that it still comes back after a refusal.
    pub(crate) returns: u32,
    pub(crate) stage: Stage,
    pub(crate) route: Option<Route>,
    pub(crate) attempt: Attempt,
    pub(crate) got: Vec<TokenId>,
    pub(crate) came: Time,
    pub(crate) first_token: Option<Time>,
    pub(crate) last_token: Time,
    /// Why a worker refused it last.
    pub(crate) reason: RejectReason,
    /// Refusals it got, with how long each took.
    pub(crate) refusals: Vec<(Time, Duration)>,
}

impl Client {
    pub(crate) fn new(prompt: Vec<TokenId>, max_tokens: usize) -> Self {
        Self {
            text: prompt.iter().flat_map(|token| token.0.to_le_bytes()).collect(),
            prompt,
            max_tokens,
            priority: Priority::NORMAL,
            patience: Duration::from_secs(60),
            returns: 0,
            stage: Stage::Away,
            route: None,
            attempt: Attempt::new(),
            got: Vec::new(),
            came: Time::ZERO,
            first_token: None,
            last_token: Time::ZERO,
            reason: RejectReason::DrainTime,
            refusals: Vec::new(),
        }
    }

    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over(_))
    }

    pub(crate) const fn end(&self) -> Option<&End> {
        match &self.stage {
            Stage::Over(end) => Some(end),
            Stage::Away | Stage::Asked { .. } | Stage::Served { .. } => None,
        }
    }
}
