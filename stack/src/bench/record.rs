//! What is known about one request when it is over.

use std::time::Duration;

use tokio::time::Instant;

use super::wire::Usage;

/// How an exchange ended, as seen by the one who read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The answer is there to its end.
    Complete,
    /// The client left in mid-answer, as planned.
    Left,
    /// The client had no more patience: no first token in time.
    GaveUp,
    /// Not now: 429 or 503.
    Refused(Refusal),
    /// It failed.
    Failed(Failure),
    /// The bench was stopped.
    Unfinished,
}

/// A refusal that invites to come back.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// The error's code or type; empty where the server gives none.
    pub(crate) reason: String,
    /// Seconds of its Retry-After header.
    pub(crate) retry_after: Option<u64>,
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No connection.
    Connect(String),
    /// The connection broke.
    Broken(String),
    /// The stream ended before it said so.
    Cut,
    /// Any status that is neither success nor a refusal.
    Status { status: u16, reason: String, message: String },
    /// An error inside the stream.
    Stream { reason: String },
    /// The answer is not what the API promises.
    NotUnderstood(String),
    /// Not complete within the limit.
    Timeout,
}

impl Failure {
    /// The kind that errors are counted by.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::Connect(_) => "no connection".to_owned(),
            Self::Broken(_) => "connection broken".to_owned(),
            Self::Cut => "stream cut".to_owned(),
            Self::Status { status, reason, .. } => {
                format!("status {status} {reason}").trim_end().to_owned()
            }
            Self::Stream { reason } => format!("error in stream {reason}").trim_end().to_owned(),
            Self::NotUnderstood(_) => "not understood".to_owned(),
            Self::Timeout => "timeout".to_owned(),
        }
    }

    /// Further words about one of them; empty where the kind says it all.
    pub(crate) fn detail(&self) -> &str {
        match self {
            Self::Connect(detail) | Self::Broken(detail) | Self::NotUnderstood(detail) => detail,
            Self::Status { message, .. } => message,
            Self::Cut | Self::Stream { .. } | Self::Timeout => "",
        }
    }
}

/// What was seen of an answer so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The status, once the head is there.
    pub(crate) status: Option<u16>,
    pub(crate) first: Option<Instant>,
    pub(crate) last: Option<Instant>,
    /// Between events with text, in microseconds.
    pub(crate) gaps: Vec<u32>,
    /// Events with text.
    pub(crate) events: u64,
    pub(crate) usage: Option<Usage>,
    /// Kept where a later turn needs it.
    pub(crate) text: String,
}

impl Seen {
    /// An event with text came.
    pub(crate) fn event(&mut self, now: Instant) {
        self.events += 1;
        match self.last {
            None => self.first = Some(now),
            Some(last) => {
                let gap = now.saturating_duration_since(last).as_micros();
                self.gaps.push(u32::try_from(gap).unwrap_or(u32::MAX));
            }
        }
        self.last = Some(now);
    }
}

/// One request of a run; all times count from the run's start.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record {
    /// When it was to be sent. Latencies count from here.
    pub(crate) planned: Duration,
    /// When it was sent.
    pub(crate) sent: Duration,
    /// First token; `None` where there is none, or the answer was not streamed.
    pub(crate) first: Option<Duration>,
    pub(crate) last: Option<Duration>,
    pub(crate) end: Duration,
    /// Status of the last attempt, once its head came.
    pub(crate) status: Option<u16>,
    pub(crate) events: u64,
    pub(crate) gaps: Vec<u32>,
    pub(crate) usage: Option<Usage>,
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) stream: bool,
    /// How it ended at last.
    pub(crate) ended: Ended,
    /// Refusals of all attempts, the last one too.
    pub(crate) refusals: Vec<Refusal>,
}

impl Record {
    pub(crate) fn ttft(&self) -> Option<Duration> {
        Some(self.first?.saturating_sub(self.planned))
    }

    pub(crate) fn e2e(&self) -> Duration {
        self.end.saturating_sub(self.planned)
    }

    pub(crate) fn lag(&self) -> Duration {
        self.sent.saturating_sub(self.planned)
    }

    /// Tokens of the answer: what the server says, else what was seen.
    pub(crate) fn output_tokens(&self) -> u64 {
        self.usage.map_or(self.events, |usage| usage.completion_tokens)
    }

    /// Mean time per token after the first, of a streamed answer of at least two.
    pub(crate) fn tpot(&self) -> Option<Duration> {
        let after_first = self.output_tokens().checked_sub(1).filter(|tokens| *tokens > 0)?;
        let time = self.last?.saturating_sub(self.first?);
        Some(time.div_f64(after_first as f64))
    }
}
