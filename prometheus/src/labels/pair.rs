//! What happens between the two workers of a pair.

use super::*;

closed! {
    /// Which end of a transfer this process is.
    TransferSide: "side" {
        /// It computed the KV.
        Send = "send" of PREFILL,
        /// It takes the KV.
        Recv = "recv" of DECODE,
    }
    /// What became of a transfer.
    TransferResult: "result" {
        /// All of it arrived.
        Ok = "ok",
        /// It failed.
        Error = "error",
        /// Somebody gave the request up.
        Aborted = "aborted",
    }
    /// Part of a transfer whose time is taken.
    TransferStage: "stage" {
        /// Decode: until the offer is answered. Prefill: from then until the decode worker has
        /// pages.
        Bootstrap = "bootstrap",
        /// Waiting for room at the decode worker.
        Alloc = "alloc" of DECODE,
        /// From the first byte to the last, over all chunks.
        Wire = "wire",
        /// From the offer to the end.
        Total = "total",
    }
    /// Where a transfer was when it ended otherwise than well.
    TransferEndStage: "stage" {
        /// Decode: the offer was not answered. Prefill: the decode worker had no pages.
        Bootstrap = "bootstrap",
        /// The decode worker waited for room.
        Alloc = "alloc" of DECODE,
        /// Its pages were reserved.
        Wire = "wire",
    }
    /// Why a transfer did not end well.
    TransferFailure: "reason" {
        /// The other end gave the request up.
        PeerAbort = "peer_abort",
        /// This end gave the request up.
        LocalAbort = "local_abort",
        /// The decode worker never named its pages.
        BootstrapTimeout = "bootstrap_timeout",
        /// The prefill worker computed and sent nothing.
        WaitingTimeout = "waiting_timeout",
        /// The other end could not be reached.
        Connect = "connect",
        /// No room for the pages.
        Alloc = "alloc",
        /// Bytes arrived changed, and again.
        Checksum = "checksum",
        /// The other end went away.
        PeerGone = "peer_gone",
        /// The other end said what makes no sense.
        Protocol = "protocol",
        /// What arrived could not be taken into use.
        RestoreFailed = "restore_failed",
        /// A mistake of ours.
        Internal = "internal",
    }
    /// State of an open transfer.
    TransferState: "state" {
        /// No byte is due: it waits for the prefill or for room.
        Waiting = "waiting",
        /// The first byte was sent, the last was not.
        Wire = "wire",
    }
    /// Role of the other end.
    PeerRole: "peer_role" {
        /// It computes prompts.
        Prefill = "prefill" of DECODE,
        /// It answers clients.
        Decode = "decode" of PREFILL,
    }
}

impl TransferFailure {
    /// The result that it counts as.
    pub const fn result(self) -> TransferResult {
        match self {
            Self::PeerAbort | Self::LocalAbort => TransferResult::Aborted,
            Self::BootstrapTimeout
            | Self::WaitingTimeout
            | Self::Connect
            | Self::Alloc
            | Self::Checksum
            | Self::PeerGone
            | Self::Protocol
            | Self::RestoreFailed
            | Self::Internal => TransferResult::Error,
        }
    }
}
