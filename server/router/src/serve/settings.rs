//! What a router is told when it starts.

use std::path::PathBuf;
use std::time::Duration;

use super::discovery::dns::Group;
use super::upstream::Patience;
use crate::config::Config;
use crate::worker::WorkerSpec;

/// Settings of a running router, checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Of the core.
    pub core: Config,
    /// Workers that flags list.
    pub workers: Vec<WorkerSpec>,
    /// A file that lists workers.
    pub file: Option<PathBuf>,
    /// Names whose addresses are workers.
    pub groups: Vec<Group>,
    /// Between two polls of a worker.
    pub poll_every: Duration,
    /// How long a worker may take to answer one.
    pub poll_timeout: Duration,
    /// Between two looks at names; files are looked at every second.
    pub resolve_every: Duration,
    /// Sent to workers that keep their load from others.
    pub worker_token: Option<String>,
    /// Limits of an answer that is a stream. `first_byte` is until its first event.
    pub stream: Patience,
    /// How long an answer that is no stream may take, whole.
    pub whole: Duration,
    /// Largest body of a request.
    pub body_bytes: usize,
    /// How long a client may take to send it.
    pub body_time: Duration,
    /// What answers are judged against.
    pub objectives: Objectives,
}

/// What finished requests are judged against; zero means that nothing is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Objectives {
    /// From accept to the first part of an answer.
    pub ttft: Duration,
    /// Mean gap between tokens.
    pub itl: Duration,
    /// From accept to the end.
    pub e2e: Duration,
}

impl Settings {
    /// The limits of one exchange.
    #[must_use]
    pub const fn patience(&self, stream: bool) -> Patience {
        let first_byte = if stream { self.stream.first_byte } else { self.whole };
        Patience { first_byte, ..self.stream }
    }
}
