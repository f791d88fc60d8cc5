//! Bytes in any portions to messages and frames.

use bytes::{Buf, Bytes, BytesMut};
use xxhash_rust::xxh3::xxh3_64;

use super::body::{self, BodyError};
use super::{FRAME, MESSAGE_HEADER_BYTES, number};
use crate::PAYLOAD_BYTES;
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader};
use crate::message::Message;

/// Why the bytes of a connection are not messages and frames. The connection is of no more use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Nothing has this kind.
    #[error("there is no message of kind {0}")]
    Kind(u8),
    /// A message or frame before the handshake, or a handshake after it.
    #[error("kind {kind} has no place {when} the handshake")]
    Handshake {
        /// The kind.
        kind: u8,
        /// `before` or `after`.
        when: &'static str,
    },
    /// The head is broken.
    #[error(
        "the checksum of the head of a {kind} is wrong: bytes were changed, or the peer is no \
         worker of this kind"
    )]
    Head {
        /// `message` or `frame`.
        kind: &'static str,
    },
    /// Reserved bytes are used.
    #[error("reserved bytes of a {kind} are not zero")]
    NotZero {
        /// `message` or `frame`.
        kind: &'static str,
    },
    /// It would be too long.
    #[error("a {kind} says it has {length} bytes, more than {limit}")]
    TooLong {
        /// `message` or `frame`.
        kind: &'static str,
        /// What it says.
        length: usize,
        /// The bound of its kind.
        limit: usize,
    },
    /// Messages were lost, doubled or exchanged.
    #[error("message {found} came where message {expected} was due")]
    Order {
        /// What was due.
        expected: u64,
        /// What came.
        found: u64,
    },
    /// The body is broken.
    #[error("the checksum of message {0} is wrong")]
    Checksum(u64),
    /// The body is whole but not a message.
    #[error("message of kind {kind}: {error}")]
    Body {
        /// The kind.
        kind: u8,
        /// What is wrong.
        error: BodyError,
    },
}

impl DecodeError {
    /// Whether bytes were changed on their way, rather than sent wrongly.
    #[must_use]
    pub const fn is_corruption(&self) -> bool {
        match self {
            Self::Head { .. } | Self::Checksum(_) => true,
            Self::Kind(_)
            | Self::Handshake { .. }
            | Self::NotZero { .. }
            | Self::TooLong { .. }
            | Self::Order { .. }
            | Self::Body { .. } => false,
        }
    }
}

/// One message or frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A control message.
    Message(Message),
    /// A frame. Whether its payload is [intact](FrameHeader::intact) is not checked yet.
    Frame(FrameHeader, Bytes),
}

/// Reads one direction of one connection. At first only the messages of the handshake are taken.
///
/// It holds at most one incomplete message or frame, which has at most 8 MiB and 8 KiB (an offer;
/// 256 KiB before [`open`](Self::open)) or the header and `payload_max` bytes, and what was fed on
/// top of that and not taken yet.
#[derive(Debug)]
pub struct Decoder {
    buffer: BytesMut,
    /// The number of the next message; `None` where any is taken.
    next: Option<u64>,
    open: bool,
    payload_max: usize,
}

impl Decoder {
    /// Of a new connection, before its handshake.
    #[must_use]
    pub fn new() -> Self {
        Self { buffer: BytesMut::new(), next: Some(0), open: false, payload_max: PAYLOAD_BYTES }
    }

    /// One that takes messages in any order and any number of times: for tests of the ends.
    #[must_use]
    pub fn unordered() -> Self {
        Self { next: None, ..Self::new() }
    }

    /// The handshake is over: everything else may come, frames with at most `payload_max` bytes.
    pub const fn open(&mut self, payload_max: usize) {
        self.open = true;
        self.payload_max = payload_max;
    }

    /// Adds bytes that came.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// How many more bytes there must be before [`take`](Self::take) can say anything: a bound
    /// below, at least 1 where it said `None`.
    ///
    /// # Errors
    /// As `take`.
    pub fn missing(&self) -> Result<usize, DecodeError> {
        let wanted = self.wanted()?;
        Ok(wanted.saturating_sub(self.buffer.len()))
    }

    /// Length of what the buffer begins with, as far as it can be known.
    fn wanted(&self) -> Result<usize, DecodeError> {
        let Some(kind) = self.buffer.get(4).copied() else { return Ok(MESSAGE_HEADER_BYTES) };
        if kind == FRAME {
            self.in_place(kind)?;
            let Some(head) = self.buffer.first_chunk() else { return Ok(FRAME_HEADER_BYTES) };
            let header = FrameHeader::decode(head, self.payload_max)?;
            return Ok(FRAME_HEADER_BYTES + header.length as usize);
        }
        let Some(head) = self.buffer.first_chunk::<MESSAGE_HEADER_BYTES>() else {
            return Ok(MESSAGE_HEADER_BYTES);
        };
        if xxh3_64(&head[..24]) != number(&head[24..]) {
            return Err(DecodeError::Head { kind: "message" });
        }
        let limit = body::limit(kind).ok_or(DecodeError::Kind(kind))?;
        self.in_place(kind)?;
        if head[5..8] != [0; 3] {
            return Err(DecodeError::NotZero { kind: "message" });
        }
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if length > limit {
            return Err(DecodeError::TooLong { kind: "message", length, limit });
        }
        let found = number(&head[8..16]);
        if let Some(expected) = self.next.filter(|expected| *expected != found) {
            return Err(DecodeError::Order { expected, found });
        }
        Ok(MESSAGE_HEADER_BYTES + length)
    }

    fn in_place(&self, kind: u8) -> Result<(), DecodeError> {
        match (body::is_handshake(kind), self.open) {
            (true, false) | (false, true) => Ok(()),
            (true, true) => Err(DecodeError::Handshake { kind, when: "after" }),
            (false, false) => Err(DecodeError::Handshake { kind, when: "before" }),
        }
    }

    /// The next message or frame; `None` until more bytes come.
    ///
    /// # Errors
    /// Where the bytes are none. It says the same again however often it is asked.
    pub fn take(&mut self) -> Result<Option<Item>, DecodeError> {
        let wanted = self.wanted()?;
        if self.buffer.len() < wanted {
            return Ok(None);
        }
        if self.buffer[4] == FRAME {
            let head = self.buffer.first_chunk().expect("as many are wanted at least");
            let header = FrameHeader::decode(head, self.payload_max)?;
            let mut frame = self.buffer.split_to(wanted).freeze();
            frame.advance(FRAME_HEADER_BYTES);
            return Ok(Some(Item::Frame(header, frame)));
        }
        let (kind, number_at) = (self.buffer[4], number(&self.buffer[8..16]));
        let body = &self.buffer[MESSAGE_HEADER_BYTES..wanted];
        if xxh3_64(body) != number(&self.buffer[16..24]) {
            return Err(DecodeError::Checksum(number_at));
        }
        let message = body::read(kind, body).map_err(|error| DecodeError::Body { kind, error })?;
        self.buffer.advance(wanted);
        if let Some(next) = &mut self.next {
            *next += 1;
        }
        Ok(Some(Item::Message(message)))
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}
