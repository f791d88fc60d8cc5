//! A frame on its way to the driver.

use bytes::Bytes;
use memory_pool::{Block, PageBytes};

use crate::codec::payload_checksum;
use crate::ends::RoomKey;
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader};

/// A frame that is to be written. Its pages stay as they are until it is given back to
/// [`frame_ends`](crate::PrefillEnd::frame_ends), which must happen whatever becomes of it.
#[derive(Debug)]
#[must_use = "the pages are held until it is given back"]
pub struct FrameJob {
    pub(super) key: RoomKey,
    /// Without its checksum.
    pub(super) header: FrameHeader,
    pub(super) blocks: Vec<Block>,
}

/// The bytes of a frame: nothing of the payload is copied. Drop it before the job is given back.
#[derive(Debug)]
pub struct FrameBytes {
    /// The encoded header.
    pub head: [u8; FRAME_HEADER_BYTES],
    /// The payload, one piece per page.
    pub payload: Vec<Bytes>,
}

impl FrameJob {
    /// Which transfer it belongs to.
    #[must_use]
    pub const fn key(&self) -> RoomKey {
        self.key
    }

    /// Bytes of the payload.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.header.length as usize
    }

    /// Reads it, and computes the checksum. Takes time: not under a lock.
    #[must_use]
    pub fn load(&self, pages: &dyn PageBytes) -> FrameBytes {
        let payload: Vec<Bytes> = self.blocks.iter().map(|block| pages.read(block)).collect();
        let checksum = payload_checksum(payload.iter().map(AsRef::as_ref));
        let head = FrameHeader { checksum, ..self.header }.encode();
        FrameBytes { head, payload }
    }
}
