//! Everything that can wake the engine's thread.

use transfer::News;
use types::{RequestId, Time};

use crate::submission::Submission;

/// The closed list of what comes in from outside. Nothing else changes the engine's mind.
#[derive(Debug)]
pub(crate) enum Event {
    /// A new request.
    Submit(Box<Submission>),
    /// Give a request up, wherever it is.
    Abort(RequestId, AbortReason),
    /// What a link tells of a request.
    News(RequestId, News),
    /// Finish what is there, abort what is left at the deadline, then end.
    Drain(Time),
    /// Abort everything and end.
    Shutdown,
}

/// Why a request was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AbortReason {
    /// The client closed the connection.
    ClientGone,
    /// The client reads slower than its bounded channel allows.
    SlowClient,
    /// It ran longer than `EngineConfig::request_timeout` allows.
    RunningTimeout,
    /// The drain's deadline passed.
    DrainDeadline,
    /// The process stops without draining.
    Shutdown,
    /// Prefill: the decode worker gave it up.
    PeerAbort,
}

/// Who gave it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Initiator {
    /// The client.
    Client,
    /// This server.
    Server,
    /// The other worker of the pair.
    Peer,
}

impl AbortReason {
    /// Every reason, in declaration order.
    pub const ALL: [Self; 6] = [
        Self::ClientGone,
        Self::SlowClient,
        Self::RunningTimeout,
        Self::DrainDeadline,
        Self::Shutdown,
        Self::PeerAbort,
    ];

    /// Who is behind this reason.
    #[must_use]
    pub const fn initiator(self) -> Initiator {
        match self {
            Self::ClientGone => Initiator::Client,
            Self::SlowClient | Self::RunningTimeout | Self::DrainDeadline | Self::Shutdown => {
                Initiator::Server
            }
            Self::PeerAbort => Initiator::Peer,
        }
    }
}
