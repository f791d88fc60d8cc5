//! The header of a frame: some bytes of one part, for several pages.

use crate::room::Room;

/// What a frame carries: for each page of a run of the sequence, consecutive layers of one part on
/// one rank; page after page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrameHeader {
    /// Bytes of the payload: `pages * layers * layer_bytes`.
    pub length: u32,
    /// The transfer.
    pub room: Room,
    /// Number of the frame in its transfer; a frame that is sent again keeps its number.
    pub seq: u32,
    /// The rank that sends and the one that receives; 0 for replicated parts, which are written
    /// to all ranks.
    pub rank: u16,
    /// The part, in the order of the [shape](crate::Shape).
    pub part: u16,
    /// The first layer, among the part's own.
    pub first_layer: u16,
    /// How many layers; at least one.
    pub layers: u16,
    /// The index in the sequence of the first page.
    pub first_page: u32,
    /// How many pages; at least one.
    pub pages: u16,
    /// XXH3-64 of the payload.
    pub checksum: u64,
}

/// Bytes of an encoded frame header.
pub const FRAME_HEADER_BYTES: usize = 64;
