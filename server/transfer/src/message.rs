//! What the two ends say to each other.

use std::time::Duration;

use types::{Priority, TokenId};

use crate::failure::Failure;
use crate::handshake::{Hello, Proof, Ready, Refused, Welcome};
use crate::room::Room;

/// A prompt that a decode worker wants computed.
#[derive(Clone, PartialEq, Eq)]
pub struct Offer {
    /// The transfer.
    pub room: Room,
    /// The request's `x-request-id`, for logs; at most 256 bytes.
    pub request: String,
    /// The W3C trace context, where there is one; at most 256 bytes.
    pub traceparent: Option<String>,
    /// What to compute: the prompt without its last token. At least one, at most
    /// [`OFFER_TOKENS_MAX`](crate::OFFER_TOKENS_MAX).
    pub tokens: Vec<TokenId>,
    /// Whose cached pages it may share; the bytes of the decode worker's namespace, at most 4 KiB.
    pub namespace: Vec<u8>,
    /// How much it matters.
    pub priority: Priority,
    /// Whose it is, for fair shares; at most 256 bytes.
    pub tenant: Option<String>,
}

/// The namespace may hold a client's secret, the tokens are the client's text: neither is shown.
impl std::fmt::Debug for Offer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offer")
            .field("room", &self.room)
            .field("request", &self.request)
            .field("tokens", &self.tokens.len())
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

/// Why a prefill worker did not take an offer, for the client's 429.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejected {
    /// The index of the reason in `admission::RejectReason::ALL`. The ends themselves use
    /// [`ROOMS_FULL`](Self::ROOMS_FULL) only.
    pub reason: u8,
    /// When to come again.
    pub retry_after: Duration,
    /// What the bound was compared with.
    pub value: u64,
    /// The bound.
    pub limit: u64,
}

impl Rejected {
    /// The code of "as many requests wait as are allowed": also said by a side whose bound on open
    /// rooms per peer is reached.
    pub const ROOMS_FULL: u8 = 0;
}

/// What a prefill worker says to an offer, at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It will be computed.
    Accepted {
        /// How long the work before it takes, by the prefill worker's estimate.
        drain: Duration,
    },
    /// It will not, and nothing of it is left.
    Rejected(Rejected),
}

/// Tokens of a prompt by where their KV came from; the rest was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CachedTokens {
    /// From the prefill worker's device pages.
    pub device: u64,
    /// From its host tier.
    pub host: u64,
    /// From its store.
    pub storage: u64,
}

/// What the prefill worker did with a prompt, as the decode worker learns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemoteTimes {
    /// From when the pages were known to the first chunk.
    pub queued: Duration,
    /// From the first chunk to the end of the last one's forward pass.
    pub prefill: Duration,
    /// What it did not have to compute.
    pub cached: CachedTokens,
}

/// A control message. The arrows say who sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Decode -> prefill, first on every connection.
    Hello(Hello),
    /// Prefill -> decode: the answer, with its proof.
    Welcome(Welcome),
    /// Decode -> prefill: its proof, and what it has.
    Proof(Proof),
    /// Prefill -> decode: the two fit.
    Ready(Ready),
    /// Either way instead of the next step: they do not.
    Refused(Refused),
    /// Decode -> prefill: please compute.
    Offer(Offer),
    /// Prefill -> decode: whether it will.
    Answer {
        /// The transfer.
        room: Room,
        /// Yes or no.
        answer: Answer,
    },
    /// Decode -> prefill: pages are reserved for everything after the first `skip_tokens` tokens.
    Land {
        /// The transfer.
        room: Room,
        /// Tokens that the decode worker has in its own cache: whole pages.
        skip_tokens: u64,
    },
    /// Prefill -> decode: its first chunk runs.
    Started {
        /// The transfer.
        room: Room,
    },
    /// Prefill -> decode: everything is computed and was sent.
    Sent {
        /// The transfer.
        room: Room,
        /// How many frames there are: their numbers are `0..frames`.
        frames: u32,
        /// What it took.
        times: RemoteTimes,
    },
    /// Decode -> prefill: a frame came broken, send it again.
    Again {
        /// The transfer.
        room: Room,
        /// Its number.
        frame: u32,
        /// How often it has come broken, from 1: so that a question that comes twice is known.
        broken: u8,
    },
    /// Decode -> prefill: every page is there and whole.
    Received {
        /// The transfer.
        room: Room,
    },
    /// Decode -> prefill: it is over; answered by `Ended`.
    Abort {
        /// The transfer.
        room: Room,
        /// Why.
        failure: Failure,
    },
    /// Prefill -> decode: it is over, and not one more byte will be written to the decode
    /// worker's pages.
    Ended {
        /// The transfer.
        room: Room,
        /// Why.
        failure: Failure,
    },
    /// Either way: are you there?
    Ping {
        /// Comes back in the answer.
        number: u64,
    },
    /// Either way: yes.
    Pong {
        /// That of the question.
        number: u64,
    },
}

impl Message {
    /// The transfer it is about, where it is about one.
    #[must_use]
    pub fn room(&self) -> Option<Room> {
        match self {
            Self::Offer(offer) => Some(offer.room),
            Self::Answer { room, .. }
            | Self::Land { room, .. }
            | Self::Started { room }
            | Self::Sent { room, .. }
            | Self::Again { room, .. }
            | Self::Received { room }
            | Self::Abort { room, .. }
            | Self::Ended { room, .. } => Some(*room),
            Self::Hello(_)
            | Self::Welcome(_)
            | Self::Proof(_)
            | Self::Ready(_)
            | Self::Refused(_)
            | Self::Ping { .. }
            | Self::Pong { .. } => None,
        }
    }

    /// Its name in logs and errors.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => "hello",
            Self::Welcome(_) => "welcome",
            Self::Proof(_) => "proof",
            Self::Ready(_) => "ready",
            Self::Refused(_) => "refused",
            Self::Offer(_) => "offer",
            Self::Answer { .. } => "answer",
            Self::Land { .. } => "land",
            Self::Started { .. } => "started",
            Self::Sent { .. } => "sent",
            Self::Again { .. } => "again",
            Self::Received { .. } => "received",
            Self::Abort { .. } => "abort",
            Self::Ended { .. } => "ended",
            Self::Ping { .. } => "ping",
            Self::Pong { .. } => "pong",
        }
    }
}
