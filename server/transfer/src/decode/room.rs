//! One transfer as the decode worker sees it.

use types::{RequestId, Time};

use super::target::Target;
use crate::ends::{Limits, TransferState};
use crate::failure::Failure;
use crate::message::RemoteTimes;
use crate::observe::{Side, Stage, TransferEnd};
use crate::plant::{self, Plant};
use crate::room::PeerName;

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The peer has not answered.
    Offered,
    /// The peer computes it, or will; there are no pages here.
    Accepted,
    /// The pages are reserved and the peer knows.
    Landed,
    /// Everything is there; the engine has not let go of its end yet.
    Done,
    /// It is over. Pages may still be written to.
    Failed(Failure),
}

impl Phase {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Offered => "offered",
            Self::Accepted => "accepted",
            Self::Landed => "landed",
            Self::Done | Self::Failed(_) => "over",
        }
    }
}

#[derive(Debug)]
pub(super) struct RecvRoom {
    pub(super) peer: PeerName,
    pub(super) request: RequestId,
    pub(super) phase: Phase,
    pub(super) offered: Time,
    pub(super) answered: Option<Time>,
    pub(super) landed: Option<Time>,
    pub(super) started: Option<Time>,
    /// When the first frame began.
    pub(super) first: Option<Time>,
    /// When the last frame so far was written.
    pub(super) last: Option<Time>,
    pub(super) target: Option<Target>,
    /// How many frames there are, and what it took.
    pub(super) sent: Option<(u32, RemoteTimes)>,
    /// Frames that are being received.
    pub(super) writers: usize,
    /// The peer does not write any more.
    pub(super) stopped: bool,
    /// The engine has it in its hands.
    pub(super) owned: bool,
    /// It counts among the open rooms of its peer.
    pub(super) open: bool,
    /// Nobody touches the pages any more, and the engine was told.
    pub(super) settled: bool,
}

impl RecvRoom {
    pub(super) const fn new(now: Time, peer: PeerName, request: RequestId) -> Self {
        Self {
            peer,
            request,
            phase: Phase::Offered,
            offered: now,
            answered: None,
            landed: None,
            started: None,
            first: None,
            last: None,
            target: None,
            sent: None,
            writers: 0,
            stopped: false,
            owned: false,
            open: true,
            settled: false,
        }
    }

    pub(super) const fn state(&self) -> TransferState {
        match (self.phase, self.first) {
            (Phase::Offered | Phase::Accepted, _) => TransferState::Bootstrapping,
            (Phase::Landed, None) => TransferState::WaitingForInput,
            (Phase::Landed, Some(_)) => TransferState::Transferring,
            (Phase::Done, _) => TransferState::Success,
            (Phase::Failed(failure), _) => TransferState::Failed(failure),
        }
    }

    /// When it fails if nothing happens, and why.
    pub(super) fn due(&self, limits: &Limits) -> Option<(Time, Failure)> {
        match self.phase {
            Phase::Offered => Some((self.offered + limits.answer, Failure::BootstrapTimeout)),
            // The peer has a time limit for this, and tells.
            Phase::Accepted | Phase::Done | Phase::Failed(_) => None,
            Phase::Landed => {
                // Before that the peer's queue takes its time, which is admission's to judge.
                let since = self.started?.max(self.last.unwrap_or_default());
                Some((since + limits.waiting, Failure::WaitingTimeout))
            }
        }
    }

    /// Whether somebody may still write to the pages.
    pub(super) fn is_written(&self, limits: &Limits) -> bool {
        if plant::is(Plant::SettleEarly) {
            return false;
        }
        let remote = limits.remote_writes && self.landed.is_some() && !self.stopped;
        self.writers > 0 || remote
    }

    /// The report about its end.
    pub(super) fn end(&self, now: Time, result: Result<(), Failure>) -> TransferEnd {
        let stage = match (self.answered, self.landed) {
            (None, _) => Stage::Bootstrap,
            (Some(_), None) => Stage::Alloc,
            (Some(_), Some(_)) => Stage::Wire,
        };
        let whole = result.is_ok();
        TransferEnd {
            side: Side::Recv,
            peer: self.peer.clone(),
            result,
            stage,
            bootstrap: self.answered.map(|at| at.since(self.offered)),
            alloc: self.landed.zip(self.answered).map(|(at, from)| at.since(from)),
            wire: self.last.zip(self.first).filter(|_| whole).map(|(at, from)| at.since(from)),
            total: now.since(self.offered),
        }
    }
}
