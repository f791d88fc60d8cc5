//! Messages and frames as bytes. All numbers are little-endian.
//!
//! ```text
//!   a message                          a frame
//!   0   4  length of the body          0   4  length of the payload
//!   4   1  kind                        4   1  kind (0xF0)
//!   5   3  zero                        5   1  zero
//!   8   8  number on the connection    6   2  rank
//!  16   8  XXH3-64 of the body         8  16  room
//!  24   8  XXH3-64 of the 24 before   24   4  number in the room
//!  32      the body                   28   2  part
//!                                     30   2  first layer
//!                                     32   2  layers
//!                                     34   2  pages
//!                                     36   4  first page
//!                                     40   8  zero
//!                                     48   8  XXH3-64 of the payload
//!                                     56   8  XXH3-64 of the 56 before
//!                                     64      the payload
//! ```
//!
//! The head has a checksum of its own, so that a broken length is noticed before anybody waits for
//! as many bytes. A broken head or message ends the connection: what follows cannot be found. A
//! broken payload costs one frame, which is sent again.

mod body;
mod decoder;

pub use body::BodyError;
pub(crate) use body::{NAMESPACE_MAX, REASON_MAX, TEXT_MAX};
pub use decoder::{DecodeError, Decoder, Item};

use bytes::Bytes;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::frame::{FRAME_HEADER_BYTES, FrameHeader};
use crate::message::Message;
use crate::room::Room;

/// Bytes before the body of a message.
pub const MESSAGE_HEADER_BYTES: usize = 32;
/// The kind of a frame.
const FRAME: u8 = 0xF0;

/// Writes the messages of one direction of one connection, numbered from 0.
#[derive(Debug, Default)]
pub struct Encoder {
    next: u64,
}

impl Encoder {
    /// Of a new connection.
    #[must_use]
    pub const fn new() -> Self {
        Self { next: 0 }
    }

    /// The bytes of the next message.
    ///
    /// # Panics
    /// Where a text or a list is longer than its documentation allows; what comes from others is
    /// checked where it comes in.
    pub fn message(&mut self, message: &Message) -> Bytes {
        let mut bytes = vec![0; MESSAGE_HEADER_BYTES];
        body::write(message, &mut bytes);
        let length = bytes.len() - MESSAGE_HEADER_BYTES;
        let kind = body::kind(message);
        assert!(length <= body::limit(kind).unwrap_or(0), "{}: {length} bytes", message.name());
        let length = u32::try_from(length).expect("below the limit of its kind");
        let checksum = xxh3_64(&bytes[MESSAGE_HEADER_BYTES..]);
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes[4] = kind;
        bytes[8..16].copy_from_slice(&self.next.to_le_bytes());
        bytes[16..24].copy_from_slice(&checksum.to_le_bytes());
        let head = xxh3_64(&bytes[..24]);
        bytes[24..32].copy_from_slice(&head.to_le_bytes());
        self.next += 1;
        bytes.into()
    }
}

/// The checksum of a payload in pieces.
#[must_use]
pub fn payload_checksum<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut hash = Xxh3::new();
    for piece in pieces {
        hash.update(piece);
    }
    hash.digest()
}

impl FrameHeader {
    /// The bytes before the payload.
    #[must_use]
    pub fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4] = FRAME;
        bytes[6..8].copy_from_slice(&self.rank.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.room.0.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.seq.to_le_bytes());
        bytes[28..30].copy_from_slice(&self.part.to_le_bytes());
        bytes[30..32].copy_from_slice(&self.first_layer.to_le_bytes());
        bytes[32..34].copy_from_slice(&self.layers.to_le_bytes());
        bytes[34..36].copy_from_slice(&self.pages.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.first_page.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.checksum.to_le_bytes());
        let head = xxh3_64(&bytes[..56]);
        bytes[56..].copy_from_slice(&head.to_le_bytes());
        bytes
    }

    /// The header in these bytes, of a frame with at most `payload_max` bytes.
    ///
    /// # Errors
    /// Where they are not one, or the payload would be longer.
    pub fn decode(
        bytes: &[u8; FRAME_HEADER_BYTES],
        payload_max: usize,
    ) -> Result<Self, DecodeError> {
        if xxh3_64(&bytes[..56]) != number(&bytes[56..]) {
            return Err(DecodeError::Head { kind: "frame" });
        }
        if bytes[4] != FRAME {
            return Err(DecodeError::Kind(bytes[4]));
        }
        if bytes[5] != 0 || bytes[40..48] != [0; 8] {
            return Err(DecodeError::NotZero { kind: "frame" });
        }
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let (low, high) = (number(&bytes[8..16]), number(&bytes[16..24]));
        let header = Self {
            length: u32_at(0),
            room: Room(u128::from(low) | u128::from(high) << 64),
            seq: u32_at(24),
            rank: u16_at(6),
            part: u16_at(28),
            first_layer: u16_at(30),
            layers: u16_at(32),
            first_page: u32_at(36),
            pages: u16_at(34),
            checksum: number(&bytes[48..56]),
        };
        let length = header.length as usize;
        if length > payload_max {
            return Err(DecodeError::TooLong { kind: "frame", length, limit: payload_max });
        }
        Ok(header)
    }

    /// Whether these bytes are the payload that was sent.
    #[must_use]
    pub fn intact(&self, payload: &[u8]) -> bool {
        payload.len() == self.length as usize && xxh3_64(payload) == self.checksum
    }
}

/// The number in 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests;
