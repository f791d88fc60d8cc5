//! Metrics of prefill and decode workers: the transfer of KV between them.
//!
//! `peer` is the other worker by the address of its API, taken from the configuration and never
//! from the wire. Histograms and reasons do not carry it.

use crate::buckets;
use crate::def::catalog;
use crate::labels::*;
use crate::roles::PAIR;

catalog! {
    source: Server, roles: PAIR;

    /// KV transfers finished; side is send or recv; result is ok, error or aborted (somebody gave
    /// the request up); one per request and side, not per rank.
    KV_TRANSFERS: Counter<(TransferSide, Peer, TransferResult)> = "sightline_kv_transfers_total";
    /// KV transfers that did not end ok, by cause; stage is bootstrap, alloc or wire; reason is
    /// peer_abort, local_abort, bootstrap_timeout, waiting_timeout, connect, alloc, checksum,
    /// peer_gone, protocol, restore_failed or internal.
    KV_TRANSFER_ERRORS: Counter<(TransferSide, TransferEndStage, TransferFailure)> =
        "sightline_kv_transfer_errors_total", only transfer_error_possible;
    /// KV bytes moved, copies for several ranks included.
    KV_TRANSFER_BYTES: Counter<(TransferSide, Peer, Pool)> =
        "sightline_kv_transfer_bytes_total";
    /// Time at least one transfer with a peer was on the wire; bytes over the mean busy time of the
    /// ranks is the true bandwidth of the link. Where all ranks share one link it is rank 0's.
    KV_TRANSFER_BUSY_SECONDS: TimeCounter<(TransferSide, Peer, TpRank)> =
        "sightline_kv_transfer_busy_seconds_total";
    /// Time per request and stage; stage is bootstrap, alloc (decode only), wire or total; wire
    /// runs from first to last byte over all chunks.
    KV_TRANSFER_DURATION: Histogram<(TransferSide, TransferStage)> =
        "sightline_kv_transfer_duration_seconds", buckets buckets::LINK;
    /// Transfers open now; state is waiting (for the prefill or for room; no byte is due) or wire
    /// (first byte sent, last not yet).
    KV_TRANSFERS_ACTIVE: Gauge<(TransferSide, Peer, TransferState)> =
        "sightline_kv_transfers_active";
    /// Device bytes held by transfers that failed and wait for the peer to let go.
    KV_TRANSFER_HELD_BYTES: Gauge<(Peer,)> = "sightline_kv_transfer_held_bytes";
    /// Messages that broke the protocol of a link; the transfer they were about failed.
    KV_LINK_VIOLATIONS: Counter<()> = "sightline_kv_link_violations_total";
    /// Messages and frames about transfers that were over; dropped. After an abort there are some.
    KV_LINK_STRAY_MESSAGES: Counter<()> = "sightline_kv_link_stray_messages_total";
    /// 1 when the peer answers on the control channel, else 0.
    PD_PEER_UP: Gauge<(Peer, PeerRole)> = "sightline_pd_peer_up";
}
