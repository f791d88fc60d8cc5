//! Why a transfer did not end well: one closed list for both sides, logs, error bodies, metrics.

use std::fmt;

/// Why a transfer failed. Counted once per request and side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    /// The other side gave the request up, mostly because its client left.
    PeerAbort,
    /// This side gave the request up, mostly because its client left.
    LocalAbort,
    /// The decode worker had no room for the pages within the time limit, or the prefill worker
    /// did not answer an offer.
    BootstrapTimeout,
    /// The prefill worker computes but sends nothing, or the decode worker takes nothing.
    WaitingTimeout,
    /// There is no connection to the peer.
    Connect,
    /// Pages could not be reserved.
    Alloc,
    /// Bytes arrived broken, again after the retries.
    Checksum,
    /// The connection was lost, or the peer fell silent.
    PeerGone,
    /// The peer broke the protocol.
    Protocol,
    /// The decode worker could not bring its own cached prefix back from the host tier.
    RestoreFailed,
    /// A mistake or a failure of this software: a forward pass that failed, for example.
    Internal,
}

impl Failure {
    /// Every reason, in declaration order.
    pub const ALL: [Self; 11] = [
        Self::PeerAbort,
        Self::LocalAbort,
        Self::BootstrapTimeout,
        Self::WaitingTimeout,
        Self::Connect,
        Self::Alloc,
        Self::Checksum,
        Self::PeerGone,
        Self::Protocol,
        Self::RestoreFailed,
        Self::Internal,
    ];

    /// The label value of metrics, logs and error bodies.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::PeerAbort => "peer_abort",
            Self::LocalAbort => "local_abort",
            Self::BootstrapTimeout => "bootstrap_timeout",
            Self::WaitingTimeout => "waiting_timeout",
            Self::Connect => "connect",
            Self::Alloc => "alloc",
            Self::Checksum => "checksum",
            Self::PeerGone => "peer_gone",
            Self::Protocol => "protocol",
            Self::RestoreFailed => "restore_failed",
            Self::Internal => "internal",
        }
    }

    /// Whether somebody gave the request up (result `aborted`), rather than something broke
    /// (result `error`).
    #[must_use]
    pub const fn is_abort(self) -> bool {
        matches!(self, Self::PeerAbort | Self::LocalAbort)
    }

    /// What the side that is told of this failure calls it: an abort changes its point of view,
    /// everything else keeps its name.
    #[must_use]
    pub const fn told(self) -> Self {
        match self {
            Self::PeerAbort => Self::LocalAbort,
            Self::LocalAbort => Self::PeerAbort,
            Self::BootstrapTimeout
            | Self::WaitingTimeout
            | Self::Connect
            | Self::Alloc
            | Self::Checksum
            | Self::PeerGone
            | Self::Protocol
            | Self::RestoreFailed
            | Self::Internal => self,
        }
    }

    /// Its number on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The reason with this number; `None` where there is none.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_and_labels_are_unique_and_come_back() {
        let labels: BTreeSet<&str> = Failure::ALL.iter().map(|failure| failure.label()).collect();
        assert_eq!(labels.len(), Failure::ALL.len());
        for failure in Failure::ALL {
            assert_eq!(Failure::from_code(failure.code()), Some(failure));
            assert_eq!(failure.told().told(), failure);
            assert_eq!(failure.is_abort(), failure.told().is_abort());
        }
        assert_eq!(Failure::from_code(11), None);
    }
}
