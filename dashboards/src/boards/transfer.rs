//! Transfers: does the KV of prompts arrive, and which link between two workers is the one that
//! fails or is slow?

mod links;
mod matrix;

use super::common::{self, INSTANCE as BY_INSTANCE};
use crate::build::pools::{bar_chart, stat, time_series};
use crate::build::{line, section};
use crate::ir::{Color, Dashboard, Line, Panel, Section, Stack};
use crate::lint::Lint;
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{
    Instance, Peer, PeerRole, TransferEndStage, TransferFailure, TransferSide,
};
use metric_catalog::promql::{Selection, Window, increase, max, min, rate, recorded, sum};
use metric_catalog::{pair, slo};

const NOW: Window = Window::Interval;

/// The board.
pub(super) fn board() -> Dashboard {
    let mut board = common::board_of_pools(
        common::TRANSFER,
        "Transfer",
        "KV on its way from prefill to decode workers: each link by its two ends, what fails and \
         why, how fast bytes move, what is open and what is held. One bad link among good ones is \
         that link; all links of one worker are that worker.",
        vec![now(), matrix::section(), failures(), links::moved(), links::open()],
    );
    board.split_from = vec![common::PAIRS.to_owned()];
    board
}

fn now() -> Section {
    let down = sum(pair::PD_PEER_UP).total().in_unit(Unit::Count);
    let peers = stat("peers-up-now")
        .title("Links up")
        .describe(
            "Links between workers of a pair that answer on their control connection. Fewer than \
             usual: *State of links* names the one.",
        )
        .unit(Unit::Count)
        .query(down, "up")
        .no_value("no pair")
        .base(Color::Blue);
    let open = stat("transfers-open-now")
        .title("Open transfers")
        .describe("Transfers that wait for their prefill or are on the wire, at decode workers.")
        .unit(Unit::Count)
        .query(sum(pair::KV_TRANSFERS_ACTIVE.is(TransferSide::Recv)).total(), "open")
        .no_value("no pair")
        .base(Color::Blue);
    let moved = stat("moved-now")
        .title("KV moved")
        .describe("Bytes of KV that decode workers receive by the second, all links together.")
        .unit(Unit::BytesPerSecond)
        .query(sum(rate(pair::KV_TRANSFER_BYTES.is(TransferSide::Recv), NOW)).total(), "moved")
        .no_value("no pair")
        .base(Color::Blue);
    let held = stat("held-now")
        .title("Held bytes")
        .describe(
            "Device memory of decode workers that failed transfers may still write to. It goes \
             back as soon as the link says that nobody does; if it stays, look at the link.",
        )
        .unit(Unit::Bytes)
        .query(sum(pair::KV_TRANSFER_HELD_BYTES).total(), "held")
        .no_value("no pair")
        .base(Color::Green)
        .threshold(1.0, Color::Orange)
        .alert("KVTransferStuck");
    let errors = stat("transfer-errors-now")
        .title("Failing transfers")
        .describe(
            "The worst share of failed transfers among workers; aborts do not count. Red: *Every \
             link* below says which one, *Why transfers fail* says why.",
        )
        .unit(Unit::Ratio)
        .query(max(recorded::TRANSFER_ERROR_RATIO.get()).total(), "failed")
        .no_value("no transfers")
        .threshold(slo::TRANSFER_ERROR_RATIO, Color::Red)
        .alert("KVTransferErrors");
    let panels = [errors, peers, open, moved, held].map(Panel::from).to_vec();
    section("now", "Now", vec![line(4, panels)])
}

fn failures() -> Section {
    section("failures", "Failures", vec![how_many(), reasons(), peers()])
}

fn how_many() -> Line {
    let why = sum(rate(pair::KV_TRANSFER_ERRORS, NOW));
    let by = (TransferSide::KEY, TransferEndStage::KEY, TransferFailure::KEY);
    line(
        8,
        vec![
            time_series("transfer-error-ratio")
                .title("Failed transfers")
                .describe(
                    "Share of transfers that failed, by worker, requests that somebody gave up \
                     left out. Above the line: *Failures by reason* says why.",
                )
                .unit(Unit::Ratio)
                .query(recorded::TRANSFER_ERROR_RATIO.get(), BY_INSTANCE)
                .no_value("no transfers")
                .threshold(slo::TRANSFER_ERROR_RATIO, Color::Red)
                .threshold_lines()
                .into(),
            time_series("transfer-failures")
                .title("Failures by reason")
                .describe(
                    "Transfers that did not end well: side, stage, reason. `peer_abort` and \
                     `local_abort` are requests that were given up, no faults; both ends count the \
                     same request.",
                )
                .unit(Unit::CountPerSecond)
                .query(why.by(by).above(0.0), "{{side}} {{stage}} {{reason}}")
                .no_value("none")
                .stacked(Stack::Sum)
                .into(),
        ],
    )
}

fn reasons() -> Line {
    let reasons = sum(increase(pair::KV_TRANSFER_ERRORS, Window::Range));
    let by = (TransferFailure::KEY, TransferEndStage::KEY);
    let broken = sum(rate(pair::KV_LINK_VIOLATIONS, NOW)).by(Instance::KEY);
    let stray = sum(rate(pair::KV_LINK_STRAY_MESSAGES, NOW)).by(Instance::KEY);
    line(
        8,
        vec![
            bar_chart("failure-reasons", "reason")
                .title("Why transfers fail")
                .describe(
                    "Transfers of the shown range that did not end well, by reason and by the \
                     stage they were in. `connect` and `peer_gone`: the other worker or the way to \
                     it; `checksum`: bytes change on the wire; `alloc`: no room at the decode \
                     worker; `waiting_timeout`: the prefill worker computes nothing.",
                )
                .unit(Unit::Count)
                .query(reasons.by(by).above(0.0).in_unit(Unit::Count), "")
                .split_by("stage")
                .stacked(Stack::Sum)
                .no_value("every transfer of this range ended well")
                .allow(Lint::L05, "one value for the whole range that is shown")
                .span(12)
                .into(),
            time_series("link-protocol")
                .title("Messages that break the protocol")
                .describe(
                    "`broken`: a message made no sense, and its transfer failed: two versions that \
                     do not fit, or a fault of ours. `late`: about a transfer that was over; a few \
                     after an abort are normal.",
                )
                .unit(Unit::CountPerSecond)
                .query(broken, "broken {{instance}}")
                .query(stray, "late {{instance}}")
                .no_value("no pair")
                .into(),
        ],
    )
}

fn peers() -> Line {
    let up = min(pair::PD_PEER_UP).by((Instance::KEY, Peer::KEY, PeerRole::KEY));
    line(
        8,
        vec![
            time_series("peers-up")
                .title("Links up")
                .describe(
                    "1 when the peer answers on the control connection. At 0 with a peer that \
                     answers its scrapes, the way between them is cut, or they refuse each other: \
                     the log says which.",
                )
                .unit(Unit::Count)
                .query(up.in_unit(Unit::Count), "{{instance}} {{peer_role}} {{peer}}")
                .no_value("no pair")
                .steps()
                .into(),
            time_series("held-bytes")
                .title("Held bytes by link")
                .describe(
                    "Device memory that failed transfers may still write to, and that is not used \
                     again until then.",
                )
                .unit(Unit::Bytes)
                .query(
                    max(pair::KV_TRANSFER_HELD_BYTES).by((Instance::KEY, Peer::KEY)),
                    "{{instance}} {{peer}}",
                )
                .no_value("no pair")
                .stacked(Stack::Sum)
                .detail(common::KV_POOLS)
                .into(),
        ],
    )
}
