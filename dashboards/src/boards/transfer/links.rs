//! What moves on each link, and what is open.

use super::NOW;
use crate::build::pools::time_series;
use crate::build::{line, section};
use crate::ir::{Line, Section, Stack};
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{
    Instance, Peer, Pool, TransferResult, TransferSide, TransferStage, TransferState,
};
use metric_catalog::pair;
use metric_catalog::promql::{Selection, avg, quantile, rate, ratio, sum};

pub(super) fn moved() -> Section {
    section("transfers", "What moves", vec![by_link(), how_fast()])
}

fn by_link() -> Line {
    let link = (Instance::KEY, Peer::KEY, TransferSide::KEY);
    let ended = (Instance::KEY, Peer::KEY, TransferResult::KEY);
    let received = pair::KV_TRANSFERS.is(TransferSide::Recv);
    let legend = "{{side}} {{instance}} {{peer}}";
    line(
        9,
        vec![
            time_series("transfers-by-peer")
                .title("Transfers by link and result")
                .describe(
                    "Transfers that ended, from the decode worker's side: worker, prefill worker, \
                     result. One link with errors among good ones is that link.",
                )
                .unit(Unit::CountPerSecond)
                .query(
                    sum(rate(received, NOW)).by(ended).above(0.0),
                    "{{instance}} {{peer}} {{result}}",
                )
                .no_value("no transfers")
                .stacked(Stack::Sum)
                .into(),
            time_series("transfer-bytes")
                .title("KV moved by link")
                .describe("Bytes of KV sent and received, by the second.")
                .unit(Unit::BytesPerSecond)
                .query(sum(rate(pair::KV_TRANSFER_BYTES, NOW)).by(link).above(0.0), legend)
                .no_value("no transfers")
                .into(),
            time_series("transfer-bytes-by-pool")
                .title("KV moved by pool")
                .describe(
                    "Bytes received for each KV pool. A window pool that moves as much as the full \
                     one sends pages that no request reads.",
                )
                .unit(Unit::BytesPerSecond)
                .query(
                    sum(rate(pair::KV_TRANSFER_BYTES.is(TransferSide::Recv), NOW)).by(Pool::KEY),
                    "{{pool}}",
                )
                .no_value("no transfers")
                .stacked(Stack::Sum)
                .into(),
        ],
    )
}

fn how_fast() -> Line {
    let link = (Instance::KEY, Peer::KEY, TransferSide::KEY);
    let legend = "{{side}} {{instance}} {{peer}}";
    // Ranks move their parts at the same time, so the link is busy for as long as one of them.
    let busy = || avg(rate(pair::KV_TRANSFER_BUSY_SECONDS, NOW)).by(link);
    let bandwidth = ratio(sum(rate(pair::KV_TRANSFER_BYTES, NOW)).by(link), busy());
    line(
        9,
        vec![
            time_series("transfer-bandwidth")
                .title("Bandwidth of a link while it moves")
                .describe(
                    "Bytes over the time that at least one transfer was on the wire: what the \
                     link gives, whatever is asked of it. It follows the prefill where pages go \
                     out as they are computed.",
                )
                .unit(Unit::BytesPerSecond)
                .query(bandwidth, legend)
                .no_value("no transfers")
                .into(),
            time_series("transfer-busy")
                .title("Links busy")
                .describe(
                    "Share of time with at least one transfer on the wire, mean of the ranks. \
                     Near 1 the link is full: more prefill workers behind it bring nothing.",
                )
                .unit(Unit::Ratio)
                .query(busy(), legend)
                .max(1.0)
                .no_value("no pair")
                .into(),
        ],
    )
}

pub(super) fn open() -> Section {
    let by = (Instance::KEY, Peer::KEY, TransferState::KEY);
    let time = |share| {
        quantile(share, pair::KV_TRANSFER_DURATION.is(TransferSide::Recv), NOW)
            .by(TransferStage::KEY)
    };
    let panels = vec![
        time_series("transfers-open")
            .title("Open transfers by link")
            .describe(
                "`waiting`: no byte is due, the prompt waits or is computed. `wire`: bytes should \
                 move; if none do for minutes, the connection is half open.",
            )
            .unit(Unit::Count)
            .query(
                sum(pair::KV_TRANSFERS_ACTIVE).by(by).above(0.0),
                "{{state}} {{instance}} {{peer}}",
            )
            .no_value("none")
            .into(),
        time_series("transfer-time")
            .title("Time of a transfer by stage")
            .describe(
                "At decode workers. `bootstrap`: until the offer is answered; `alloc`: waiting for \
                 room; `wire`: first to last byte; `total`: from the offer on, the prompt's wait \
                 and its computing included.",
            )
            .unit(Unit::Seconds)
            .query(time(0.5), "{{stage}} p50")
            .query(time(0.95), "{{stage}} p95")
            .no_value("no transfers")
            .into(),
    ];
    section("open", "What is open", vec![line(9, panels)])
}
