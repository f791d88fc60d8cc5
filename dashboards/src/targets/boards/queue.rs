//! Queue: what waits, for how long, and what the process does meanwhile.

use crate::build::{line, section};
use crate::ir::{Color, Dashboard, Line, Section, Stack};
use crate::targets::answers::Composed;
use crate::targets::panels::{Fold, composed_over_time, now, over_time, words};
use crate::targets::subject;
use metric_catalog::engines::Engine;
use metric_catalog::engines::signal::Signal;
use metric_catalog::slo;

/// The board.
pub(super) fn board(engine: Engine) -> Dashboard {
    subject::board(
        engine,
        "queue",
        "Queue",
        "What waits for its prefill and what that means in seconds; then what the scheduler does, \
         and what it takes back.",
        vec![at_a_glance(engine), waiting(engine), refused(engine), scheduler(engine)],
    )
}

fn at_a_glance(engine: Engine) -> Section {
    let drain = now(
        engine,
        Signal::QueueDrainSeconds,
        Fold::Max,
        words(
            "drain-now",
            "Drain time, worst",
            "Time to prefill all that waits: a forecast of the next time to first token.",
        ),
        |draft| {
            draft
                .threshold(slo::DRAIN_WARNING_SECONDS, Color::Orange)
                .threshold(slo::DRAIN_CRITICAL_SECONDS, Color::Red)
                .no_value("nothing known")
        },
    );
    let pending = now(
        engine,
        Signal::PendingPrefillTokens,
        Fold::Sum,
        words(
            "pending-now",
            "Pending tokens",
            "Prompt tokens that wait and are in no cache; what a queue really holds.",
        ),
        |draft| draft.base(Color::Blue),
    );
    let queued = now(
        engine,
        Signal::QueuedRequests,
        Fold::Sum,
        words("queued-now", "Queued", "Requests that wait to be scheduled."),
        |draft| draft.base(Color::Blue),
    );
    section("now", "Now", vec![line(6, vec![drain, pending, queued])])
}

fn waiting(engine: Engine) -> Section {
    let depth = over_time(
        engine,
        Signal::QueuedRequests,
        words(
            "queue-depth",
            "Queue depth",
            "Waiting requests by process. One queue that grows alone: its process is slow, or is \
             sent more than the others.",
        ),
        |draft| draft,
    );
    let drain = over_time(
        engine,
        Signal::QueueDrainSeconds,
        words(
            "drain-time",
            "Drain time",
            "Time to prefill all that waits, at the rate of the process. Above the lower line add \
             capacity or refuse; above the upper one every new request misses the objective.",
        ),
        |draft| {
            draft
                .threshold(slo::DRAIN_WARNING_SECONDS, Color::Orange)
                .threshold(slo::DRAIN_CRITICAL_SECONDS, Color::Red)
                .threshold_lines()
        },
    );
    section(
        "waiting",
        "What waits",
        vec![line(8, vec![depth, drain]), in_tokens_and_time(engine), held_up(engine)],
    )
}

fn in_tokens_and_time(engine: Engine) -> Line {
    let tokens = over_time(
        engine,
        Signal::PendingPrefillTokens,
        words(
            "pending-tokens",
            "Pending tokens",
            "Prompt tokens that wait and are in no cache. Alert on these, not on requests.",
        ),
        |draft| draft,
    );
    let time = over_time(
        engine,
        Signal::QueueTimeSeconds,
        words(
            "queue-time",
            "Time in the queue",
            "Of requests that have left it. It comes late: what still waits is not in it.",
        ),
        |draft| {
            draft
                .threshold(slo::QUEUE_TIME_WARNING_SECONDS, Color::Orange)
                .threshold(slo::QUEUE_TIME_CRITICAL_SECONDS, Color::Red)
                .threshold_lines()
                .no_value("nothing left the queue")
        },
    );
    line(8, vec![tokens, time])
}

fn held_up(engine: Engine) -> Line {
    let oldest = over_time(
        engine,
        Signal::OldestQueuedAgeSeconds,
        words(
            "oldest-age",
            "Oldest request",
            "Age of the oldest waiting request: the one number that sees a queue in which nothing \
             moves.",
        ),
        |draft| draft,
    );
    let reasons = composed_over_time(
        engine,
        Composed::WaitingFor,
        words("waiting-for", "What they wait for", "Waiting requests by what holds them up."),
        ("", ""),
        |draft| draft.stacked(Stack::Sum),
    );
    line(7, vec![oldest, reasons])
}

fn refused(engine: Engine) -> Section {
    let ratio = composed_over_time(
        engine,
        Composed::RefusedRatio,
        words(
            "refused-ratio",
            "Refusal ratio",
            "Share of requests refused for lack of room, by process. Above the lower line add \
             capacity; above the upper one for long, that is an outage.",
        ),
        ("", ""),
        |draft| {
            draft
                .threshold(slo::REFUSED_RATIO, Color::Orange)
                .threshold(slo::TURNED_AWAY_RATIO, Color::Red)
                .threshold_lines()
                .no_value("none refused")
        },
    );
    let preemptions = over_time(
        engine,
        Signal::PreemptionsRate,
        words(
            "preempted",
            "Taken back",
            "Running requests that lost their place for lack of room in the device pool; their \
             work is done again. See the board of KV pools.",
        ),
        |draft| draft.no_value("none taken back"),
    );
    section("refused", "What is refused or taken back", vec![line(8, vec![ratio, preemptions])])
}

fn scheduler(engine: Engine) -> Section {
    let capacity = composed_over_time(
        engine,
        Composed::PrefillCapacity,
        words(
            "prefill-capacity",
            "Prefill capacity",
            "Prompt tokens computed, by second of prefill where that is known and by second of \
             elapsed time. The first is what the process can do: half of what it was means heat, \
             a neighbour, or a cache that is gone.",
        ),
        (
            "vLLM does not say how long its prefills take.",
            "A counter of seconds in prefill steps. Until then: prompt tokens computed while a \
             queue waits.",
        ),
        |draft| draft,
    );
    let stages = over_time(
        engine,
        Signal::SchedulerLoopSeconds,
        words(
            "scheduler-stages",
            "Scheduler time",
            "What the scheduler spends its time on, as shares. Much outside of batches with a \
             queue: the host is the bottleneck, not the device.",
        ),
        |draft| draft.stacked(Stack::Sum),
    );
    let busy = over_time(
        engine,
        Signal::GpuForwardBusyRatio,
        words(
            "device-busy",
            "Device busy",
            "Share of time in forward passes. Low with a queue: the device waits for the host.",
        ),
        |draft| draft.max(1.0),
    );
    let batch = over_time(
        engine,
        Signal::BatchSize,
        words("batch-size", "Batch size", "Mean tokens of a step."),
        |draft| draft,
    );
    let speculation = over_time(
        engine,
        Signal::SpecAcceptanceRatio,
        words(
            "spec-acceptance",
            "Draft tokens accepted",
            "Below a third, drafts cost more than they save.",
        ),
        |draft| draft.max(1.0).no_value("no drafts"),
    );
    section(
        "scheduler",
        "What the process does",
        vec![line(8, vec![capacity, stages]), line(7, vec![busy, batch, speculation])],
    )
}
