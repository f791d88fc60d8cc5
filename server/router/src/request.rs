//! A request as the router sees it, where it goes, how that ends, and what is done then.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::breaker::Probe;
use crate::charge::{Amount, Charge};
use crate::policy::{Branch, PolicyKind};
use crate::worker::{WorkerKey, WorkerName, WorkerRole};

/// What routing needs to know of a request.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The model it names.
    pub model: &'a str,
    /// Bytes of which a common beginning means a common beginning of the prompt: the text of the
    /// messages or of the prompt, or its JSON as it came.
    pub prompt: &'a [u8],
    /// What separates caches: salts, tenants. Different values share no prefix.
    pub namespace: &'a str,
    /// True where asking twice does nothing that asking once does not. Otherwise it is sent again
    /// only where it is sure that nothing of it was executed.
    pub repeatable: bool,
}

/// One worker's part of a route. Dropping it takes the request out of the worker's counts.
#[derive(Debug)]
pub struct Leg {
    /// The worker.
    pub name: WorkerName,
    /// Where its API is.
    pub base: Arc<str>,
    /// Its role.
    pub role: WorkerRole,
    pub(crate) key: WorkerKey,
    pub(crate) charge: Charge,
    /// Pieces of the prompt that it was believed to hold before.
    pub(crate) held: u8,
    /// Where its breaker is half open: the right to ask it.
    pub(crate) probe: Option<Probe>,
}

/// Where a request goes. Dropping it ends the request for all counts, and takes back the permit of
/// a half-open breaker.
#[derive(Debug)]
pub struct Route {
    /// The worker the request is sent to: unified, plain or decode.
    pub serve: Leg,
    /// The prefill worker that is named in the header, where `serve` is a decode worker.
    pub prefill: Option<Leg>,
    /// The policy that chose.
    pub policy: PolicyKind,
    /// Why it chose so.
    pub branch: Branch,
    /// Share of the prompt's bytes that the worker which computes it is believed to hold, 0 to 1.
    pub prefix_match: f64,
    /// Prompt tokens, estimated from bytes.
    pub prompt_tokens: u64,
}

impl Leg {
    /// What counts of the request at this worker.
    #[must_use]
    pub const fn counts(&self) -> Amount {
        self.charge.amount()
    }
}

impl Route {
    /// The prompt is computed: its tokens wait nowhere any more, and the prefill worker of a pair
    /// has done its part. [`Core::answered`](crate::Core::answered) does it at the first byte.
    pub fn prefill_done(&mut self) {
        self.serve.charge.prefill_done();
        if let Some(leg) = &mut self.prefill {
            leg.charge.end();
        }
    }

    /// The worker that computes the prompt.
    #[must_use]
    pub fn computes(&self) -> &Leg {
        self.prefill.as_ref().unwrap_or(&self.serve)
    }
}

/// How a worker failed a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// No connection: nothing was sent.
    Connect,
    /// The connection broke, or what came was no HTTP.
    Broken,
    /// It took too long to begin its answer.
    FirstByteTimeout,
    /// It began its answer and then was silent for too long.
    IdleTimeout,
    /// 429, or 503: it is well and has too much to do. With its `Retry-After`.
    Rejected {
        /// 429 or 503.
        status: u16,
        /// What it asked for.
        retry_after: Option<Duration>,
    },
    /// Another status of 500 and above.
    Status(u16),
    /// Another status of 400 to 499: the request is at fault.
    BadRequest(u16),
}

/// A failure, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong.
    pub kind: FailureKind,
    /// The worker that was asked says that its prefill worker is the cause
    /// (`protocol::internal::CAUSE_HEADER`).
    pub by_prefill: bool,
    /// Something of an answer was sent to the client before.
    pub answer_begun: bool,
}

/// Why a request was sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RetryReason {
    /// No connection.
    Connect,
    /// The connection broke before the answer began.
    Broken,
    /// It was refused.
    Rejected,
    /// It failed with a status of 500 and above.
    Error,
    /// The answer took too long to begin.
    Timeout,
}

impl RetryReason {
    /// Every reason, in declaration order.
    pub const ALL: [Self; 5] =
        [Self::Connect, Self::Broken, Self::Rejected, Self::Error, Self::Timeout];

    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Broken => "broken",
            Self::Rejected => "rejected",
            Self::Error => "error",
            Self::Timeout => "timeout",
        }
    }
}

/// What to do after a failure.
#[derive(Debug)]
pub enum Verdict {
    /// Send it there.
    Again(Box<Route>, RetryReason),
    /// Pass the failure on to the client.
    Pass {
        /// For 429 and 503: the smallest time after which one of the workers may take it, in whole
        /// seconds, at least 1.
        retry_after: Option<Duration>,
    },
}

/// Why a request goes nowhere. `Display` is one sentence for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No worker serves the model: 404.
    #[error("The model `{model}` is not served here; {}.", served(.known))]
    UnknownModel {
        /// What was asked for.
        model: String,
        /// What is served.
        known: Vec<Arc<str>>,
    },
    /// Workers for the model are known and none can be asked: 503.
    #[error("No worker can take the request now: {missing}.")]
    NoWorker {
        /// What is missing, by role, with the states of those that are there.
        missing: Missing,
        /// When it is worth trying again: whole seconds, at least 1.
        retry_after: Duration,
    },
    /// Every worker would refuse it, or asked for time: 429, and 503 where they take nothing.
    #[error("{}", overload(.reason, .value, .limit, .retry_after))]
    Overloaded {
        /// Which bound.
        reason: OverloadReason,
        /// When the first of them may take it: whole seconds, at least 1.
        retry_after: Duration,
        /// What was measured against `limit`: requests, tokens or milliseconds.
        value: u64,
        /// The bound that `value` passes; 0 where the reason is not a bound.
        limit: u64,
    },
}

/// Which bound every worker is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OverloadReason {
    /// Waiting requests.
    QueueRequestsFull,
    /// Waiting tokens.
    QueueTokensFull,
    /// The time that the prefill of what waits takes.
    DrainTime,
    /// All asked for time by `Retry-After`, because they have too much to do.
    Cooling,
    /// All have just said that they take nothing now: they stop, or something is broken.
    Closed,
}

impl OverloadReason {
    /// Every reason, in declaration order.
    pub const ALL: [Self; 5] = [
        Self::QueueRequestsFull,
        Self::QueueTokensFull,
        Self::DrainTime,
        Self::Cooling,
        Self::Closed,
    ];

    /// The name in error bodies and logs; the first three are those of a worker's admission.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueueRequestsFull => "queue_requests_full",
            Self::QueueTokensFull => "queue_tokens_full",
            Self::DrainTime => "drain_time",
            Self::Cooling => "cooling",
            Self::Closed => "closed",
        }
    }
}

/// The roles that lack a worker which can be asked, with the states of those that cannot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Missing {
    /// For each role: `prefill`, and `10.0.0.7:8001 is draining, 10.0.0.8:8001 is unhealthy`.
    pub roles: Vec<(WorkerRole, String)>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (role, states)) in self.roles.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(f, "{separator}no {} worker is ready", role.as_str())?;
            if !states.is_empty() {
                write!(f, " ({states})")?;
            }
        }
        if self.roles.is_empty() {
            f.write_str("no worker is known")?;
        }
        Ok(())
    }
}

fn served(known: &[Arc<str>]) -> String {
    if known.is_empty() {
        "no worker has said yet what it serves".to_owned()
    } else {
        format!("served are {}", known.join(", "))
    }
}

fn overload(reason: &OverloadReason, value: &u64, limit: &u64, retry: &Duration) -> String {
    let retry = retry.as_secs();
    let why = match reason {
        OverloadReason::QueueRequestsFull => {
            format!("Every queue is full: {value} requests wait at the best worker and {limit} may")
        }
        OverloadReason::QueueTokensFull => format!(
            "Every queue is full: about {value} prompt tokens would wait at the best worker with \
             this request and {limit} may"
        ),
        OverloadReason::DrainTime => format!(
            "Every queue is too long: at the best worker the prefill would take about {:.1} s with \
             this request and the objective is {:.1} s",
            *value as f64 / 1000.0,
            *limit as f64 / 1000.0
        ),
        OverloadReason::Cooling => "Every worker has refused requests just now".to_owned(),
        OverloadReason::Closed => "Every worker has just said that it takes none now".to_owned(),
    };
    format!("{why}. Retry in {retry} s.")
}
