//! What can change while a router runs.

use std::time::Duration;

use router::serve::Settings;
use router::{HoldConfig, PolicyKind};
use tracing::Level;

use super::{Changing, LiveKey};
use crate::cli::{ByteSize, Command, RouterArgs, Span};
use crate::config::Findings;
use crate::config::router::{numbers, report_fresh};

macro_rules! settings {
    ($($(#[$doc:meta])+ $key:ident = $flag:literal, $field:ident: $kind:ty;)+) => {
        /// A setting that can change, by its flag.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum RouterKey {
            $($(#[$doc])+ $key),+
        }

        impl LiveKey for RouterKey {
            const ALL: &'static [Self] = &[$(Self::$key),+];

            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$key => $flag),+
                }
            }
        }

        /// The values in force.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct RouterValues {
            $($(#[$doc])+ pub $field: $kind),+
        }

        impl RouterValues {
            /// Takes over one value.
            fn take_one(&mut self, key: RouterKey, other: &Self) {
                match key {
                    $(RouterKey::$key => self.$field = other.$field),+
                }
            }

            /// One value in the words of the command line.
            fn say(&self, key: RouterKey) -> String {
                match key {
                    $(RouterKey::$key => self.$field.to_string()),+
                }
            }
        }
    };
}

settings! {
    /// How workers are chosen.
    Policy = "policy", policy: PolicyKind;
    /// How often a request that was not answered is sent to another worker.
    Retries = "retries", retries: u32;
    /// Share of requests that may be sent again, over the long run.
    RetryShare = "retry-share", retry_share: f64;
    /// How long requests wait where the only worker, or pair, of a model is away.
    HoldTime = "hold-time", hold_time: Span;
    /// Requests that may.
    HoldRequests = "hold-requests", hold_requests: usize;
    /// Prompt tokens that may.
    HoldTokens = "hold-tokens", hold_tokens: u64;
    /// How long a worker that came back gets fewer requests than it could take.
    SlowStart = "slow-start", slow_start: Span;
    /// Time between two polls of a worker.
    PollInterval = "poll-interval", poll_interval: Span;
    /// How long a worker may take to answer one.
    PollTimeout = "poll-timeout", poll_timeout: Span;
    /// How long a worker may take to accept a connection.
    ConnectTimeout = "connect-timeout", connect_timeout: Span;
    /// How long a worker may take to begin a stream.
    FirstByteTimeout = "first-byte-timeout", first_byte_timeout: Span;
    /// How long a stream may pause.
    IdleTimeout = "idle-timeout", idle_timeout: Span;
    /// How long an answer that is no stream may take.
    AnswerTimeout = "answer-timeout", answer_timeout: Span;
    /// Largest request body.
    MaxBodyBytes = "max-body-bytes", max_body_bytes: ByteSize;
    /// How long a client may take to send it.
    BodyTimeout = "body-timeout", body_timeout: Span;
    /// How long open answers may go on after SIGTERM.
    DrainDeadline = "drain-deadline", drain_deadline: Span;
    /// Least severe level that is logged.
    LogLevel = "log-level", log_level: LogLevel;
}

/// A level in the words of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLevel(pub Level);

impl std::fmt::Display for LogLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.as_str().to_ascii_lowercase())
    }
}

impl RouterValues {
    /// Those of these flags.
    #[must_use]
    pub fn new(args: &RouterArgs) -> Self {
        Self {
            policy: args.policy,
            retries: args.retries,
            retry_share: args.retry_share,
            hold_time: args.hold_time,
            hold_requests: args.hold_requests,
            hold_tokens: args.hold_tokens,
            slow_start: args.slow_start,
            poll_interval: args.poll_interval,
            poll_timeout: args.poll_timeout,
            connect_timeout: args.connect_timeout,
            first_byte_timeout: args.first_byte_timeout,
            idle_timeout: args.idle_timeout,
            answer_timeout: args.answer_timeout,
            max_body_bytes: args.max_body_bytes,
            body_timeout: args.body_timeout,
            drain_deadline: args.drain_deadline,
            log_level: LogLevel(args.observe.log_level),
        }
    }

    /// Puts them into the settings of a router.
    pub fn put(&self, settings: &mut Settings) {
        let core = &mut settings.core;
        core.policy = self.policy;
        core.health.report_fresh = report_fresh(self.poll_interval.0);
        core.retry.tries = self.retries.saturating_add(1);
        core.retry.budget_share = self.retry_share;
        core.hold = HoldConfig {
            time: self.hold_time.0,
            requests: self.hold_requests,
            tokens: self.hold_tokens,
        };
        core.slow_start = self.slow_start.0;
        settings.poll_every = self.poll_interval.0;
        settings.poll_timeout = self.poll_timeout.0;
        settings.stream.connect = self.connect_timeout.0;
        settings.stream.first_byte = self.first_byte_timeout.0;
        settings.stream.idle = self.idle_timeout.0;
        settings.whole = self.answer_timeout.0;
        settings.body_bytes = usize::try_from(self.max_body_bytes.0).unwrap_or(usize::MAX);
        settings.body_time = self.body_timeout.0;
    }

    /// How long open answers may go on after SIGTERM.
    #[must_use]
    pub const fn drain_deadline(&self) -> Duration {
        self.drain_deadline.0
    }
}

impl Changing for RouterValues {
    type Key = RouterKey;

    const LEAST: &'static [&'static str] = &["sightline-server", "router"];

    fn of(command: &Command) -> Result<Self, String> {
        match command {
            Command::Router(args) => Ok(Self::new(args)),
            Command::Serve(_) | Command::Plan(_) | Command::Metrics | Command::Health(_) => {
                Err("it is no flag of router".to_owned())
            }
        }
    }

    fn check(command: &Command) -> Result<(), String> {
        match command {
            Command::Router(args) => {
                let mut findings = Findings::default();
                numbers(args, &mut findings);
                findings.iter().next().map_or(Ok(()), |finding| Err(finding.to_string()))
            }
            Command::Serve(_) | Command::Plan(_) | Command::Metrics | Command::Health(_) => Ok(()),
        }
    }

    fn text(&self, key: RouterKey) -> String {
        self.say(key)
    }

    fn take(&mut self, key: RouterKey, other: &Self) {
        self.take_one(key, other);
    }
}
