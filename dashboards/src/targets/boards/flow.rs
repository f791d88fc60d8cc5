//! Prefill and decode apart: where requests are on their way, and how KV travels.

use crate::build::{line, section};
use crate::ir::{Color, Dashboard, Section, Stack};
use crate::targets::answers::Composed;
use crate::targets::panels::{composed_over_time, over_time, words};
use crate::targets::subject;
use metric_catalog::engines::Engine;
use metric_catalog::engines::signal::Signal;
use metric_catalog::slo;

/// The board of requests on their way.
pub(super) fn pd_flow(engine: Engine) -> Dashboard {
    subject::board(
        engine,
        "pd-flow",
        "Prefill to decode",
        "Left to right: queue, prefill, transfer, decode. Where requests stand, and where the time \
         to first token goes. Empty where prefill and decode are one process.",
        vec![stations(engine), time(engine), processes(engine)],
    )
}

fn stations(engine: Engine) -> Section {
    let queue = over_time(
        engine,
        Signal::QueuedRequests,
        words("queued", "1. Queue", "Requests that wait for their prefill."),
        |draft| draft,
    );
    let pair = over_time(
        engine,
        Signal::PdQueueRequests,
        words(
            "pair-queues",
            "2. Between prefill and decode",
            "Requests between the two. Piling up on the prefill side, decode has no room or cannot \
             be reached; on the decode side, prefill is late.",
        ),
        |draft| draft.stacked(Stack::Sum),
    );
    let running = over_time(
        engine,
        Signal::RunningRequests,
        words("running", "3. Running", "Requests in running batches, by process."),
        |draft| draft,
    );
    section("stations", "Where requests stand", vec![line(9, vec![queue, pair, running])])
}

fn time(engine: Engine) -> Section {
    let parts = over_time(
        engine,
        Signal::TtftBreakdown,
        words(
            "ttft-parts",
            "Where time goes",
            "Mean time of a request in each part. The largest part is what to work on.",
        ),
        |draft| draft.no_value("no traffic"),
    );
    let transfer = over_time(
        engine,
        Signal::KvTransferSeconds,
        words(
            "transfer-time",
            "Transfer time",
            "How long KV is on its way. Seconds mean a link below its speed or a peer that waits \
             for room: see the board of transfers.",
        ),
        |draft| draft.no_value("no transfers"),
    );
    section("time", "Where the time goes", vec![line(9, vec![parts, transfer])])
}

fn processes(engine: Engine) -> Section {
    let replicas = composed_over_time(
        engine,
        Composed::Replicas,
        words(
            "replicas",
            "Processes by role",
            "Processes that expose their page. A role with none serves nobody, whatever the others \
             do.",
        ),
        ("", ""),
        |draft| draft.steps(),
    );
    let aborts = over_time(
        engine,
        Signal::AbortsRate,
        words(
            "client-aborts",
            "Given up",
            "Requests that clients gave up, by process. A burst on one role with failed transfers \
             is the start of a cascade: look at the queue of the other role.",
        ),
        |draft| {
            draft
                .threshold(slo::CLIENT_ABORTS_PER_SECOND, Color::Red)
                .threshold_lines()
                .no_value("none given up")
        },
    );
    section("processes", "Processes", vec![line(8, vec![replicas, aborts])])
}

/// The board of transfers.
pub(super) fn transfer(engine: Engine) -> Dashboard {
    subject::board(
        engine,
        "transfer",
        "KV transfer",
        "KV from prefill to decode: does it arrive, how fast, and what fails.",
        vec![failures(engine), speed(engine)],
    )
}

fn failures(engine: Engine) -> Section {
    let ratio = composed_over_time(
        engine,
        Composed::TransferErrorRatio,
        words(
            "transfer-error-ratio",
            "Failed transfers",
            "Share of transfers that failed, by process. One process alone: its link or its peer; \
             all: the network, or versions that do not fit.",
        ),
        ("", ""),
        |draft| {
            draft
                .threshold(slo::TRANSFER_ERROR_RATIO, Color::Red)
                .threshold_lines()
                .no_value("no transfers")
        },
    );
    let rate = over_time(
        engine,
        Signal::KvTransferFailuresRate,
        words("transfer-failures", "Failures by kind", "Failed transfers, by what failed."),
        |draft| draft.no_value("none failed"),
    );
    let held = over_time(
        engine,
        Signal::KvHeldByFailedTransfers,
        words(
            "transfer-held",
            "Held by failed transfers",
            "Requests whose KV cannot be let go since a peer may still touch it. Growing, the pool \
             shrinks for all others: restart the peer.",
        ),
        |draft| draft.no_value("none held"),
    );
    section("failures", "What fails", vec![line(8, vec![ratio, rate, held])])
}

fn speed(engine: Engine) -> Section {
    let seconds = over_time(
        engine,
        Signal::KvTransferSeconds,
        words("transfer-seconds", "Duration", "How long KV is on its way."),
        |draft| draft.no_value("no transfers"),
    );
    let bytes = over_time(
        engine,
        Signal::KvTransferBytesRate,
        words("transfer-bytes", "Volume", "KV moved, by process."),
        |draft| draft.no_value("no transfers"),
    );
    let bandwidth = over_time(
        engine,
        Signal::KvTransferBandwidth,
        words(
            "transfer-bandwidth",
            "Speed",
            "How fast KV moves. Far below the link with large transfers: a wrong path (TCP instead \
             of RDMA), or many small pieces.",
        ),
        |draft| draft.no_value("no transfers"),
    );
    section("speed", "How fast", vec![line(8, vec![seconds, bytes, bandwidth])])
}
