//! One transfer as the prefill worker sees it.

use std::collections::{BTreeMap, VecDeque};

use types::{RequestId, Time};

use super::plan::Plan;
use crate::ends::{Limits, TransferState};
use crate::failure::Failure;
use crate::message::{CachedTokens, RemoteTimes};
use crate::observe::{Side, Stage, TransferEnd};
use crate::room::PeerName;

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Whether it is taken is being decided. `Some`: by now it has failed.
    Offered(Option<Failure>),
    /// It is taken; the decode worker has no pages yet.
    Accepted,
    /// The decode worker has pages.
    Wanted,
    /// Everything was read and sent; the decode worker has not confirmed it.
    Sent,
    /// Over, and perhaps frames of it are still being written.
    Over(Result<(), Failure>),
}

impl Phase {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Offered(_) => "offered",
            Self::Accepted => "accepted",
            Self::Wanted => "wanted",
            Self::Sent => "sent",
            Self::Over(_) => "over",
        }
    }
}

#[derive(Debug)]
pub(super) struct SendRoom {
    pub(super) peer: PeerName,
    pub(super) request: Option<RequestId>,
    /// Tokens to compute.
    pub(super) tokens: u64,
    /// Of them, those the decode worker has.
    pub(super) skip: Option<u64>,
    pub(super) phase: Phase,
    pub(super) offered: Time,
    pub(super) wanted: Option<Time>,
    pub(super) started: Option<Time>,
    /// When the last forward pass was seen to be over.
    pub(super) computed: Option<Time>,
    /// When the first frame was taken.
    pub(super) first: Option<Time>,
    /// When the last frame was taken or written, or everything was.
    pub(super) last: Option<Time>,
    /// When the last frame was written for the first time.
    pub(super) sent: Option<Time>,
    pub(super) plan: Plan,
    /// Frames to read again.
    pub(super) again: VecDeque<u32>,
    /// How often frames have come broken, as far as this side knows.
    pub(super) asked: BTreeMap<u32, u8>,
    /// Frames that the driver has.
    pub(super) in_flight: usize,
    pub(super) cached: CachedTokens,
    /// The engine gave it up when everything was sent: what it says if the decode worker does not
    /// confirm.
    pub(super) let_go: Option<Failure>,
    /// The engine was told that nobody reads the pages any more.
    pub(super) settled: bool,
    /// It is over, and nobody reads its pages any more.
    pub(super) closed: bool,
    /// The engine has it in its hands.
    pub(super) owned: bool,
    /// It counts among the open rooms of its peer.
    pub(super) open: bool,
}

impl SendRoom {
    pub(super) fn new(now: Time, peer: PeerName, tokens: u64) -> Self {
        Self {
            peer,
            request: None,
            tokens,
            skip: None,
            phase: Phase::Offered(None),
            offered: now,
            wanted: None,
            started: None,
            computed: None,
            first: None,
            last: None,
            sent: None,
            plan: Plan::default(),
            again: VecDeque::new(),
            asked: BTreeMap::new(),
            in_flight: 0,
            cached: CachedTokens::default(),
            let_go: None,
            settled: false,
            closed: false,
            owned: true,
            open: true,
        }
    }

    pub(super) const fn state(&self) -> TransferState {
        match (self.phase, self.first) {
            (Phase::Offered(_) | Phase::Accepted, _) => TransferState::Bootstrapping,
            (Phase::Wanted | Phase::Sent, None) => TransferState::WaitingForInput,
            (Phase::Wanted | Phase::Sent, Some(_)) => TransferState::Transferring,
            (Phase::Over(Ok(())), _) => TransferState::Success,
            (Phase::Over(Err(failure)), _) => TransferState::Failed(failure),
        }
    }

    /// When it fails if nothing happens, and why.
    pub(super) fn due(&self, limits: &Limits) -> Option<(Time, Failure)> {
        match self.phase {
            Phase::Accepted => Some((self.offered + limits.bootstrap, Failure::BootstrapTimeout)),
            // While it computes, the engine's limits are what counts.
            Phase::Wanted if self.in_flight == 0 => None,
            Phase::Wanted | Phase::Sent => {
                Some((self.last? + limits.waiting, Failure::WaitingTimeout))
            }
            Phase::Offered(_) | Phase::Over(_) => None,
        }
    }

    pub(super) fn times(&self) -> RemoteTimes {
        let between = |from: Option<Time>, to: Option<Time>| {
            to.zip(from).map(|(to, from)| to.since(from)).unwrap_or_default()
        };
        RemoteTimes {
            queued: between(self.wanted, self.started),
            prefill: between(self.started, self.computed),
            cached: self.cached,
        }
    }

    /// The report about its end.
    pub(super) fn end(&self, now: Time, result: Result<(), Failure>) -> TransferEnd {
        TransferEnd {
            side: Side::Send,
            peer: self.peer.clone(),
            result,
            stage: if self.wanted.is_some() { Stage::Wire } else { Stage::Bootstrap },
            bootstrap: self.wanted.map(|at| at.since(self.offered)),
            alloc: None,
            wire: self.sent.zip(self.first).map(|(at, from)| at.since(from)),
            total: now.since(self.offered),
        }
    }
}
