//! KV pages on their way from prefill workers to decode workers.
//!
//! The decode worker leads: it offers a prompt, reserves pages, receives them layer by layer while
//! the prefill worker computes, and says when it has everything. All of that is in state machines
//! that are given time, messages and random bytes, and hand out messages, frames and news.
//!
//! What it never does: open a socket (but for the feature `tcp`), read a clock, log, decide on
//! admission, or know what is in a page.
#![forbid(unsafe_code)]

mod codec;
mod decode;
mod ends;
mod failure;
mod frame;
mod handshake;
mod link;
pub mod loopback;
mod message;
mod observe;
mod plant;
mod port;
mod prefill;
mod room;
mod shape;
#[cfg(test)]
mod sim_test;
mod snapshot;
#[cfg(feature = "tcp")]
pub mod tcp;

pub use codec::{
    BodyError, DecodeError, Decoder, Encoder, Item, MESSAGE_HEADER_BYTES, payload_checksum,
};
pub use decode::{DecodeEnd, Writing};
pub use ends::{Count, Limits, Output, RoomKey, TransferState, Violation};
pub use failure::Failure;
pub use frame::{FRAME_HEADER_BYTES, FrameHeader};
pub use handshake::{
    Dial, DialStep, Greet, GreetStep, HandshakeError, Hello, Proof, Ready, Refused, Terms, Welcome,
};
pub use link::{
    Accepted, Answered, Backend, Chunk, LandPages, Landing, News, NewsSink, NotOffered, Offered,
    Offers, Prompt, Sending,
};
pub use message::{Answer, CachedTokens, Message, Offer, Rejected, RemoteTimes};
pub use observe::{LinkSnapshot, PeerSnapshot, Side, Stage, TransferEnd, TransferObserver};
pub use port::{Act, DecodePort, PrefillPort, Surroundings};
pub use prefill::{FrameBytes, FrameJob, PrefillEnd};
pub use room::{PeerId, PeerName, Random, Room};
pub use shape::{Mismatch, PartShape, Shape};

/// The version of everything on the wire. Ends with different ones refuse each other.
pub const PROTOCOL: u16 = 2;

/// Most bytes of a frame's payload, but for layouts in which one layer of one page is larger: then
/// that is the bound. As much as stays in the cache of a core from the socket to the checksum and
/// to the page; four times as much was a fifth slower.
pub const PAYLOAD_BYTES: usize = 1 << 18;
/// Most bytes of one layer of one page of one part that can be transferred at all.
pub const LAYER_BYTES_MAX: usize = 16 << 20;
/// Most pages of a frame.
pub const FRAME_PAGES_MAX: usize = 256;
/// Most parts of a layout.
pub const PARTS_MAX: usize = 256;
/// Most tokens of an offer.
pub const OFFER_TOKENS_MAX: usize = 1 << 21;
