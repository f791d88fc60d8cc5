//! What a link tells about itself: plain values, for whoever keeps metrics.

use std::time::Duration;

use crate::failure::Failure;
use crate::room::PeerName;

/// Which end of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The prefill worker.
    Send,
    /// The decode worker.
    Recv,
}

impl Side {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Send, Self::Recv];

    /// The label value.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Recv => "recv",
        }
    }
}

/// A part of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Decode: from the offer to the answer. Prefill: from accepting it until the decode worker has
    /// pages.
    Bootstrap,
    /// Decode: from the answer until pages are reserved. Prefill has none.
    Alloc,
    /// Durations: from the first to the last byte. Failures: at any time after the pages were
    /// reserved.
    Wire,
    /// From the offer to the end. No failure has it.
    Total,
}

impl Stage {
    /// Every stage, in declaration order.
    pub const ALL: [Self; 4] = [Self::Bootstrap, Self::Alloc, Self::Wire, Self::Total];

    /// The label value.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Bootstrap => "bootstrap",
            Self::Alloc => "alloc",
            Self::Wire => "wire",
            Self::Total => "total",
        }
    }
}

/// The end of a transfer on one side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferEnd {
    /// Which end.
    pub side: Side,
    /// With whom.
    pub peer: PeerName,
    /// How it ended.
    pub result: Result<(), Failure>,
    /// How far it had come: `Bootstrap`, `Alloc` or `Wire`.
    pub stage: Stage,
    /// How long it took; those parts that it reached the end of.
    pub bootstrap: Option<Duration>,
    /// See [`Stage::Alloc`].
    pub alloc: Option<Duration>,
    /// See [`Stage::Wire`].
    pub wire: Option<Duration>,
    /// See [`Stage::Total`].
    pub total: Duration,
}

/// Takes what happens on a link. Called on its threads; must not block.
pub trait TransferObserver: Send + Sync {
    /// Bytes of a part (by its name) went over; on the receiving side copies to further ranks
    /// count too.
    fn on_bytes(&self, side: Side, peer: &PeerName, part: &'static str, bytes: u64);

    /// A transfer ended: exactly once per offer and side. Rejected offers are no transfers, and
    /// the prefill worker has none either of offers that never reached it.
    fn on_end(&self, end: &TransferEnd);

    /// At least one frame to or from this peer was on the wire for so long, since this was last
    /// told: bytes over busy time is the speed of the link.
    fn on_busy(&self, side: Side, peer: &PeerName, busy: Duration);
}

/// Nobody looks.
impl TransferObserver for () {
    fn on_bytes(&self, _: Side, _: &PeerName, _: &'static str, _: u64) {}
    fn on_end(&self, _: &TransferEnd) {}
    fn on_busy(&self, _: Side, _: &PeerName, _: Duration) {}
}

/// One peer, now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerSnapshot {
    /// Its name. Several peers may be called `other`; a snapshot has one entry for them all.
    pub peer: PeerName,
    /// Whether it answers. `other`: whether any does.
    pub up: bool,
    /// Why it cannot be used, where it answers but does not fit, or where it cannot be reached.
    pub trouble: Option<String>,
    /// Transfers without a byte yet, or waiting for room.
    pub waiting: u64,
    /// Transfers whose first byte went over and the last one not.
    pub wire: u64,
    /// Device bytes of transfers that are over and may still be written to.
    pub held_bytes: u64,
}

/// A link, now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkSnapshot {
    /// Which end this is.
    pub side: Side,
    /// Peers out of the configuration, connected or not, and `other` where one is connected.
    pub peers: Vec<PeerSnapshot>,
    /// Messages and frames of transfers that are not (or no longer) open, since the start. A few
    /// are normal: what was under way when a transfer ended.
    pub strays: u64,
    /// Messages and frames that broke the protocol, since the start.
    pub violations: u64,
}
