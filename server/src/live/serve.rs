//! What can change while a server runs.

use admission::Limits;
use tracing::Level;

use super::{Changing, LiveKey, UNSAID};
use crate::cli::{Command, Settings, Span};

/// A setting that can change, by its flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Requests that may wait.
    MaxQueuedRequests,
    /// Tokens that may wait.
    MaxQueuedTokens,
    /// Objective for the first token, which bounds the queue.
    TtftObjective,
    /// How long a request may wait to start.
    QueueTimeout,
    /// What is logged.
    LogLevel,
    /// How long a stop may take.
    DrainDeadline,
    /// Prompts that a decode worker computes itself.
    PdLocalTokens,
}

impl LiveKey for Key {
    const ALL: &'static [Self] = &[
        Self::MaxQueuedRequests,
        Self::MaxQueuedTokens,
        Self::TtftObjective,
        Self::QueueTimeout,
        Self::LogLevel,
        Self::DrainDeadline,
        Self::PdLocalTokens,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::MaxQueuedRequests => "max-queued-requests",
            Self::MaxQueuedTokens => "max-queued-tokens",
            Self::TtftObjective => "ttft-objective",
            Self::QueueTimeout => "queue-timeout",
            Self::LogLevel => "log-level",
            Self::DrainDeadline => "drain-deadline",
            Self::PdLocalTokens => "pd-local-tokens",
        }
    }
}

/// The values in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Values {
    /// Bounds of the queue.
    pub limits: Limits,
    /// Longest time that a request may wait to start; zero is no limit.
    pub queue_timeout: Span,
    /// Least severe level that is logged.
    pub log_level: Level,
    /// How long running requests may go on after SIGTERM.
    pub drain_deadline: Span,
    /// Decode: a prompt of which so few tokens are not cached is computed here; `None`: a page.
    pub local_tokens: Option<usize>,
}

impl Values {
    /// Those of these settings.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let load = &settings.load;
        Self {
            limits: Limits {
                max_queued_requests: load.max_queued_requests,
                max_queued_tokens: load.max_queued_tokens,
                ttft_objective: load.ttft_objective.0,
            },
            queue_timeout: settings.order.queue_timeout,
            log_level: settings.observe.log_level,
            drain_deadline: settings.drain_deadline,
            local_tokens: settings.roles.pd_local_tokens,
        }
    }
}

impl Changing for Values {
    type Key = Key;

    const LEAST: &'static [&'static str] = &["sightline-server", "serve", "--model", "fake"];

    fn of(command: &Command) -> Result<Self, String> {
        match command {
            Command::Serve(settings) => Ok(Self::new(settings)),
            Command::Plan(_) | Command::Router(_) | Command::Metrics | Command::Health(_) => {
                Err("it is no flag of serve".to_owned())
            }
        }
    }

    /// Each of these values works with all values of the others.
    fn check(_: &Command) -> Result<(), String> {
        Ok(())
    }

    fn text(&self, key: Key) -> String {
        let or_default = |value: Option<String>| value.unwrap_or_else(|| UNSAID.to_owned());
        match key {
            Key::MaxQueuedRequests => self.limits.max_queued_requests.to_string(),
            Key::MaxQueuedTokens => {
                or_default(self.limits.max_queued_tokens.map(|t| t.to_string()))
            }
            Key::TtftObjective => Span(self.limits.ttft_objective).to_string(),
            Key::QueueTimeout => self.queue_timeout.to_string(),
            Key::LogLevel => self.log_level.as_str().to_ascii_lowercase(),
            Key::DrainDeadline => self.drain_deadline.to_string(),
            Key::PdLocalTokens => or_default(self.local_tokens.map(|tokens| tokens.to_string())),
        }
    }

    fn take(&mut self, key: Key, other: &Self) {
        match key {
            Key::MaxQueuedRequests => {
                self.limits.max_queued_requests = other.limits.max_queued_requests;
            }
            Key::MaxQueuedTokens => self.limits.max_queued_tokens = other.limits.max_queued_tokens,
            Key::TtftObjective => self.limits.ttft_objective = other.limits.ttft_objective,
            Key::QueueTimeout => self.queue_timeout = other.queue_timeout,
            Key::LogLevel => self.log_level = other.log_level,
            Key::DrainDeadline => self.drain_deadline = other.drain_deadline,
            Key::PdLocalTokens => self.local_tokens = other.local_tokens,
        }
    }
}
