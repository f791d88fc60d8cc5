//! What is on its way between two workers.

use bytes::Bytes;
use types::Time;

use crate::codec::{Decoder, Encoder};
use crate::decode::Writing;
use crate::frame::FRAME_HEADER_BYTES;
use crate::observe::Side;
use crate::prefill::{FrameBytes, FrameJob};
use crate::room::PeerId;

/// Messages in one direction.
pub(super) struct Lane {
    pub(super) encoder: Encoder,
    pub(super) decoder: Decoder,
    /// When the last message in order arrives.
    pub(super) last_due: Time,
}

impl Lane {
    pub(super) fn new() -> Self {
        // Doubled and exchanged messages must get through: the ends have to bear them.
        Self { encoder: Encoder::new(), decoder: Decoder::unordered(), last_due: Time::ZERO }
    }
}

/// A connection that is up.
pub(super) struct Link {
    /// Tells it from the ones before it.
    pub(super) generation: u64,
    /// What the decode worker's end calls the prefill worker, and the other way round.
    pub(super) decode_peer: PeerId,
    pub(super) prefill_peer: PeerId,
    pub(super) to_prefill: Lane,
    pub(super) to_decode: Lane,
    /// When the next frame can be written.
    pub(super) free_at: Time,
    /// Nothing moves before.
    pub(super) stalled_until: Time,
}

/// Two workers that are connected, or will be again.
pub(super) struct Pair {
    pub(super) decode: usize,
    pub(super) prefill: usize,
    pub(super) link: Option<Link>,
}

/// A frame, from being taken to being written into its pages.
pub(super) struct Flight {
    pub(super) pair: usize,
    pub(super) generation: u64,
    /// Until it is written to the network.
    pub(super) job: Option<(FrameJob, FrameBytes)>,
    /// Whether the network takes it.
    pub(super) taken: bool,
    pub(super) head: [u8; FRAME_HEADER_BYTES],
    /// As it arrives.
    pub(super) payload: Vec<u8>,
    /// From its header on, where anybody wants it.
    pub(super) writing: Option<Writing>,
}

/// Something that is due.
pub(super) enum Event {
    /// A message arrives.
    Message { pair: usize, generation: u64, to: Side, bytes: Bytes },
    /// A frame is written to the network.
    Written(u64),
    /// A frame's header arrives.
    Head(u64),
    /// A frame's last byte arrives.
    Tail(u64),
    /// A worker notices that a peer is gone.
    Lost { node: usize, peer: PeerId, failure: crate::Failure },
    /// A connection is made again.
    Connect(usize),
}
