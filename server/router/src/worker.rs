//! Workers as configuration, discovery and metrics name them.

use std::fmt;
use std::sync::Arc;

use protocol::internal::LoadRole;

/// `HOST:PORT` of a worker's API, from configuration or discovery, never from what a client
/// sends. Equal names are the same place, not the same process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerName(Arc<str>);

impl WorkerName {
    /// The text as it is; whoever reads it from configuration checks that it is an address.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// `HOST:PORT`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WorkerRole {
    /// Prefill and decode; tells its load.
    Unified,
    /// Computes prompts for decode workers.
    Prefill,
    /// Answers; prefill workers compute its prompts.
    Decode,
    /// An OpenAI server that does not tell its load; otherwise as `Unified`.
    Plain,
}

impl WorkerRole {
    /// Every role, in declaration order.
    pub const ALL: [Self; 4] = [Self::Unified, Self::Prefill, Self::Decode, Self::Plain];

    /// The name in logs and error bodies.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unified => "unified",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Plain => "plain",
        }
    }

    /// The role of the configuration that this one fills: a plain worker is declared as unified.
    #[must_use]
    pub const fn declared(self) -> Self {
        match self {
            Self::Unified | Self::Plain => Self::Unified,
            Self::Prefill => Self::Prefill,
            Self::Decode => Self::Decode,
        }
    }

    /// True where it answers a request without a second worker.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        match self {
            Self::Unified | Self::Plain => true,
            Self::Prefill | Self::Decode => false,
        }
    }
}

impl From<LoadRole> for WorkerRole {
    fn from(role: LoadRole) -> Self {
        match role {
            LoadRole::Unified => Self::Unified,
            LoadRole::Prefill => Self::Prefill,
            LoadRole::Decode => Self::Decode,
        }
    }
}

/// Who lists workers. A worker stays as long as one of them lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// Flags.
    Flags,
    /// A watched file.
    File,
    /// Names that are resolved again and again.
    Dns,
    /// An operator, while the router runs.
    Admin,
}

impl Source {
    /// Every source, in declaration order.
    pub const ALL: [Self; 4] = [Self::Flags, Self::File, Self::Dns, Self::Admin];

    /// The name in logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Flags => "flags",
            Self::File => "file",
            Self::Dns => "dns",
            Self::Admin => "admin",
        }
    }

    /// True where a list is what ought to be there, false where it is what is there.
    #[must_use]
    pub const fn declares(self) -> bool {
        match self {
            Self::Flags | Self::File | Self::Admin => true,
            Self::Dns => false,
        }
    }
}

/// A worker as a source lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSpec {
    /// Its name.
    pub name: WorkerName,
    /// Where its API is, without a slash at the end: `http://HOST:PORT`.
    pub base: Arc<str>,
    /// What it was listed as: unified, prefill or decode. A unified worker that tells no load
    /// becomes a plain one.
    pub role: WorkerRole,
    /// The model it was listed for; `None` where only the worker itself says it.
    pub model: Option<Arc<str>>,
}

/// Whether a worker may be asked, apart from its circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkerState {
    /// It has not answered yet that it is ready, or has started anew.
    Joining,
    /// It takes requests.
    Ready,
    /// It finishes what it has. Wins over every other state but `Unhealthy`.
    Draining,
    /// It does not answer, says that it failed, or is not what it was listed as.
    Unhealthy,
}

impl WorkerState {
    /// The name in logs and error bodies.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Unhealthy => "unhealthy",
        }
    }
}

/// The state of a worker's circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CircuitState {
    /// Requests go there.
    Closed,
    /// None goes there, for a while.
    Open,
    /// One at a time goes there, to see whether it is well again.
    HalfOpen,
}

/// Who asked a worker to drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DrainBy {
    /// An operator, at the router: holds until it is taken back, also over restarts.
    Operator,
    /// The worker itself, which is about to stop: ends with its process.
    Worker,
}

/// One incarnation of a worker: what is said about another one is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerKey {
    pub(crate) slot: u16,
    pub(crate) generation: u32,
}

/// What happened to a worker, to be logged once by whoever called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The worker.
    pub name: WorkerName,
    /// Its role.
    pub role: WorkerRole,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// A source lists it for the first time.
    Joined,
    /// No source lists it any more. Its open requests go on.
    Left,
    /// It answered with another instance: its breaker and its prefixes are forgotten.
    Restarted,
    /// Its state changed. The reason is a sentence.
    State(WorkerState, String),
    /// Its breaker changed.
    Circuit(CircuitState),
}
