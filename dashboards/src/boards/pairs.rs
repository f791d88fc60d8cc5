//! Pairs: prefill and decode workers, the transfers between them, and the router before them.

mod router;

use super::common::{self, INSTANCE as BY_INSTANCE};
use crate::build::{line, section, stat, time_series};
use crate::ir::{Color, Dashboard, Line, Section, Stack};
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{
    AbortInitiator, AbortStage, Instance, Peer, PeerRole, Queue, TransferEndStage, TransferFailure,
    TransferResult, TransferSide, TransferStage, TransferState,
};
use metric_catalog::promql::{Selection, Window, max, min, quantile, rate, ratio, recorded, sum};
use metric_catalog::{pair, server, slo};

const NOW: Window = Window::Interval;

/// The board.
pub(super) fn board() -> Dashboard {
    common::board(
        common::PAIRS,
        "Pairs",
        "Prefill workers compute prompts, decode workers answer from their KV, a router chooses. \
         Where does a request wait, does its KV arrive, and which link or which worker is the one \
         that fails? Without pairs most of it is empty.",
        vec![now(), queues(), transfers(), failures(), router::section()],
    )
}

fn now() -> Section {
    let peers = stat("peers-up-now")
        .title("Links up")
        .describe("Links between workers of a pair that answer on their control connection.")
        .unit(Unit::Count)
        .query(sum(pair::PD_PEER_UP).total().in_unit(Unit::Count), "up")
        .no_value("no pair")
        .base(Color::Blue);
    let open = stat("transfers-open-now")
        .title("Open transfers")
        .describe("Transfers that wait for their prefill or are on the wire, at decode workers.")
        .unit(Unit::Count)
        .query(sum(pair::KV_TRANSFERS_ACTIVE.is(TransferSide::Recv)).total(), "open")
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
        .threshold(1.0, Color::Orange);
    let errors = stat("transfer-errors-now")
        .title("Failing transfers")
        .describe("The worst share of failed transfers among workers; aborts do not count.")
        .unit(Unit::Ratio)
        .query(max(recorded::TRANSFER_ERROR_RATIO.get()).total(), "failed")
        .no_value("no transfers")
        .threshold(slo::TRANSFER_ERROR_RATIO, Color::Red);
    section(
        "now",
        "Now",
        vec![line(4, vec![peers.into(), open.into(), held.into(), errors.into()])],
    )
}

fn queues() -> Section {
    section("queues", "Where requests wait", vec![both_sides(), replicas()])
}

fn both_sides() -> Line {
    let by = (Queue::KEY, Instance::KEY);
    line(
        9,
        vec![
            time_series("pair-queues")
                .title("Requests by queue")
                .describe(
                    "Prefill: `bootstrap` waits for room at the decode worker, `waiting` for the \
                     device, `inflight_send` for the last bytes to arrive. Decode: `prealloc` \
                     waits for room, `transfer` for the prompt to be computed and to arrive.",
                )
                .unit(Unit::Requests)
                .query(max(server::QUEUE_REQUESTS).by(by).above(0.0), "{{queue}} {{instance}}")
                .no_value("nothing waits")
                .stacked(Stack::Sum)
                .into(),
            time_series("pair-drain")
                .title("Queue drain")
                .describe(
                    "Seconds that the prefill of everything queued at a worker takes. A decode \
                     worker's own is near 0: it computes only what is too short to be sent.",
                )
                .unit(Unit::Seconds)
                .query(recorded::QUEUE_DRAIN.get(), BY_INSTANCE)
                .no_value("idle")
                .threshold(slo::DRAIN_WARNING_SECONDS, Color::Orange)
                .threshold(slo::DRAIN_CRITICAL_SECONDS, Color::Red)
                .threshold_lines()
                .into(),
        ],
    )
}

fn replicas() -> Line {
    let name = "{{engine_role}} {{model_name}}";
    let given_up = sum(rate(server::REQUESTS_ABORTED.is(AbortInitiator::Client), NOW));
    line(
        8,
        vec![
            time_series("replicas")
                .title("Replicas by role")
                .describe(
                    "Processes of each role that serve, and how many the router declares, else \
                     how many there were in the last hour (dashed). Below it: start the one that \
                     is gone, or bring it back into discovery.",
                )
                .unit(Unit::Count)
                .query(recorded::LIVE_REPLICAS.get(), name)
                .query(recorded::EXPECTED_REPLICAS.get(), &format!("expected {name}"))
                .dashed("/^expected/")
                .steps()
                .into(),
            time_series("client-aborts")
                .title("Clients that give up, by stage")
                .describe(
                    "Above the line, with transfers that end in `peer_abort`, clients lose \
                     patience faster than prompts are computed: look at *Queue drain*, not at the \
                     link.",
                )
                .unit(Unit::RequestsPerSecond)
                .query(
                    given_up.by((AbortStage::KEY, Instance::KEY)).above(0.0),
                    "{{stage}} {{instance}}",
                )
                .no_value("nobody gave up")
                .threshold(slo::CLIENT_ABORTS_PER_SECOND, Color::Red)
                .threshold_lines()
                .into(),
        ],
    )
}

fn transfers() -> Section {
    section("transfers", "Transfers", vec![matrix(), links()])
}

/// From each worker to each of its peers.
fn matrix() -> Line {
    let link = (Instance::KEY, Peer::KEY, TransferSide::KEY);
    let ended = (Instance::KEY, Peer::KEY, TransferResult::KEY);
    let received = pair::KV_TRANSFERS.is(TransferSide::Recv);
    let legend = "{{side}} {{instance}} {{peer}}";
    let bandwidth = ratio(
        sum(rate(pair::KV_TRANSFER_BYTES, NOW)).by(link),
        sum(rate(pair::KV_TRANSFER_BUSY_SECONDS, NOW)).by(link),
    );
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
        ],
    )
}

fn links() -> Line {
    let by = (Instance::KEY, Peer::KEY, TransferState::KEY);
    let time = |share| {
        quantile(share, pair::KV_TRANSFER_DURATION.is(TransferSide::Recv), NOW)
            .by(TransferStage::KEY)
    };
    line(
        9,
        vec![
            time_series("transfers-open")
                .title("Open transfers by link")
                .describe(
                    "`waiting`: no byte is due, the prompt waits or is computed. `wire`: bytes \
                     should move; if none do for minutes, the connection is half open.",
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
                    "At decode workers. `bootstrap`: until the offer is answered; `alloc`: \
                     waiting for room; `wire`: first to last byte; `total`: from the offer on, \
                     the prompt's wait and its computing included.",
                )
                .unit(Unit::Seconds)
                .query(time(0.5), "{{stage}} p50")
                .query(time(0.95), "{{stage}} p95")
                .no_value("no transfers")
                .into(),
        ],
    )
}

fn failures() -> Section {
    let up = min(pair::PD_PEER_UP).by((Instance::KEY, Peer::KEY, PeerRole::KEY));
    let why = sum(rate(pair::KV_TRANSFER_ERRORS, NOW));
    let by = (TransferSide::KEY, TransferEndStage::KEY, TransferFailure::KEY);
    let lines = vec![
        line(
            8,
            vec![
                time_series("transfer-error-ratio")
                    .title("Failed transfers")
                    .describe(
                        "Share of transfers that failed, by worker, requests that somebody gave \
                         up left out. Above the line: *Failures by reason* says why.",
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
                         `local_abort` are requests that were given up, no faults; both ends \
                         count the same request.",
                    )
                    .unit(Unit::CountPerSecond)
                    .query(why.by(by).above(0.0), "{{side}} {{stage}} {{reason}}")
                    .no_value("none")
                    .stacked(Stack::Sum)
                    .into(),
            ],
        ),
        line(
            8,
            vec![
                time_series("peers-up")
                    .title("Links up")
                    .describe(
                        "1 when the peer answers on the control connection. At 0 with a peer that \
                         answers its scrapes, the way between them is cut, or they refuse each \
                         other: the log says which.",
                    )
                    .unit(Unit::Count)
                    .query(up.in_unit(Unit::Count), "{{instance}} {{peer_role}} {{peer}}")
                    .no_value("no pair")
                    .steps()
                    .into(),
                time_series("held-bytes")
                    .title("Held bytes by link")
                    .describe(
                        "Device memory that failed transfers may still write to, and that is not \
                         used again until then.",
                    )
                    .unit(Unit::Bytes)
                    .query(
                        max(pair::KV_TRANSFER_HELD_BYTES).by((Instance::KEY, Peer::KEY)),
                        "{{instance}} {{peer}}",
                    )
                    .no_value("no pair")
                    .stacked(Stack::Sum)
                    .into(),
            ],
        ),
    ];
    section("failures", "Failures", lines)
}
