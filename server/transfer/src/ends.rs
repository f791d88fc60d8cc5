//! What both ends have in common: bounds, outputs, peers and their heartbeats, timers.

mod bits;
mod peer;
mod timers;
mod violation;

pub(crate) use bits::Bits;
pub(crate) use peer::{Beat, Peer, Recent};
pub(crate) use timers::Timers;
pub use violation::Violation;

use std::sync::Arc;
use std::time::Duration;

use memory_pool::{LinkPart, PageBytes};
use types::RequestId;

use crate::failure::Failure;
use crate::link::{News, NotOffered};
use crate::message::{Message, Offer};
use crate::observe::{Side, TransferEnd};
use crate::room::{PeerId, PeerName, Room};

/// Bounds and time limits of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most rooms that are open at a time per peer.
    pub rooms_max: usize,
    /// Most frames per peer that the driver has and has not written yet.
    pub frames_in_flight: usize,
    /// Decode: from an offer to its answer, which is given at once.
    pub answer: Duration,
    /// Prefill: from accepting an offer until the decode worker has pages.
    pub bootstrap: Duration,
    /// Decode: without a byte while the peer computes. Prefill: without a frame being taken, or
    /// until everything that was sent is confirmed.
    pub waiting: Duration,
    /// Between two questions whether the peer is there.
    pub heartbeat: Duration,
    /// A peer that says nothing for as many heartbeats is gone.
    pub silent_beats: u32,
    /// How often a frame that arrived broken is sent again.
    pub retries: u8,
    /// Whether the peer writes into the decode worker's memory itself: then pages of a transfer
    /// that failed are held until it says that it stopped. Otherwise this process writes, and
    /// knows.
    pub remote_writes: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rooms_max: 1024,
            frames_in_flight: 16,
            answer: Duration::from_secs(10),
            bootstrap: Duration::from_secs(300),
            waiting: Duration::from_secs(300),
            heartbeat: Duration::from_secs(2),
            silent_beats: 3,
            retries: 2,
            remote_writes: false,
        }
    }
}

impl Limits {
    /// After how long without a word a peer is gone.
    #[must_use]
    pub const fn silence(&self) -> Duration {
        self.heartbeat.saturating_mul(self.silent_beats)
    }
}

/// A transfer inside this process: rooms of different peers have nothing to do with each other,
/// whatever they are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoomKey {
    /// With whom.
    pub peer: PeerId,
    /// Its name.
    pub room: Room,
}

/// Where a transfer is, on either side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferState {
    /// Offered; the decode worker has no pages for it yet.
    Bootstrapping,
    /// Pages are reserved, no byte has come.
    WaitingForInput,
    /// Some bytes have gone over.
    Transferring,
    /// All of it.
    Success,
    /// It came to nothing.
    Failed(Failure),
}

/// What an end wants done. Outputs are taken and carried out in order, by one thread.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this message.
    Control(PeerId, Message),
    /// Tell the engine.
    News(RequestId, News),
    /// Decode: the answer to an offer, for whoever made it. The estimate of the work before it, or
    /// why not.
    Answered(RoomKey, Result<Duration, NotOffered>),
    /// Prefill: ask whoever decides, then [`accept`](crate::PrefillEnd::accept) or
    /// [`reject`](crate::PrefillEnd::reject).
    Offered(RoomKey, PeerName, Offer),
    /// The peer is gone, all its rooms have failed: close its connections.
    Lost(PeerId, Failure),
    /// For the log: the peer broke the protocol, in a room or not.
    Violated(PeerId, Option<Room>, Violation),
    /// For metrics.
    Count(Count),
}

/// Something that happened, for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Count {
    /// Bytes of a part went over.
    Bytes {
        /// Which end this is.
        side: Side,
        /// With whom.
        peer: PeerName,
        /// The part's name.
        part: &'static str,
        /// How many; on the receiving side copies to further ranks count too.
        bytes: u64,
    },
    /// A transfer ended.
    End(TransferEnd),
    /// At least one frame was on the wire for so long.
    Busy {
        /// Which end this is.
        side: Side,
        /// With whom.
        peer: PeerName,
        /// Since this was last told.
        busy: Duration,
    },
}

/// The parts of all pools on this side.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) parts: Arc<[LinkPart]>,
    pub(crate) ranks: u16,
}

impl Layout {
    pub(crate) fn of(pages: &dyn PageBytes) -> Self {
        let ranks = u16::try_from(pages.ranks()).expect("ranks are few");
        Self { parts: pages.parts().into(), ranks }
    }

    /// Ranks of a part whose bytes go over the wire: where all hold the same, one.
    pub(crate) fn senders(&self, part: &LinkPart) -> u16 {
        if part.replicated { 1 } else { self.ranks }
    }

    /// Bytes of a page of a pool, all parts and ranks.
    pub(crate) fn page_bytes(&self, pool: types::PoolId) -> u64 {
        let parts = self.parts.iter().filter(|part| part.pool == pool);
        parts.map(|part| part.page_bytes() as u64).sum::<u64>() * u64::from(self.ranks)
    }
}
