//! Queue and scheduler: how long is the wait, who is refused, and what the engine is busy with.

mod scheduler;

use super::common::{self, INSTANCE as BY_INSTANCE};
use crate::build::{bar_chart, gauge, heatmap, line, section, stat, time_series};
use crate::ir::{Color, Dashboard, Line, Section, Stack};
use crate::lint::Lint;
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{Instance, Priority, Queue, RejectReason};
use metric_catalog::promql::{Window, buckets, increase, max, quantile, rate, recorded, sum};
use metric_catalog::{server, slo};

const NOW: Window = Window::Interval;

/// The board.
pub(super) fn board() -> Dashboard {
    common::board(
        common::QUEUE,
        "Queue and scheduler",
        "How long the wait is, in seconds and in tokens, who is refused and why, and what the \
         engine does with its time. A queue is measured in tokens over the prefill rate: 20 \
         requests can be a second or a minute of work.",
        vec![
            now(),
            wait(),
            admission(),
            scheduler::turns(),
            scheduler::batches(),
            scheduler::capacity(),
        ],
    )
}

fn now() -> Section {
    let stats = line(
        5,
        vec![
            gauge("drain-gauge")
                .title("Queue drain")
                .describe(
                    "Seconds that the prefill of everything queued takes: a forecast of the time \
                     to first token of the next request. From the second threshold on it will \
                     miss its objective.",
                )
                .unit(Unit::Seconds)
                .query(max(recorded::QUEUE_DRAIN.get()).total(), "drain")
                .no_value("idle")
                .max(slo::DRAIN_CRITICAL_SECONDS * 2.0)
                .threshold(slo::DRAIN_WARNING_SECONDS, Color::Orange)
                .threshold(slo::DRAIN_CRITICAL_SECONDS, Color::Red)
                .alert("PrefillQueueDrainCritical")
                .into(),
            stat("waiting-now")
                .title("Waiting requests")
                .describe("Requests that are admitted and not yet scheduled.")
                .unit(Unit::Requests)
                .query(sum(recorded::QUEUED_REQUESTS.get()).total(), "waiting")
                .base(Color::Blue)
                .into(),
            stat("pending-now")
                .title("Pending tokens")
                .describe("Prompt tokens that still have to be computed, in all queues.")
                .unit(Unit::Tokens)
                .query(sum(recorded::PENDING_UNCACHED_TOKENS.get()).total(), "pending")
                .base(Color::Blue)
                .into(),
            stat("oldest-now")
                .title("Oldest request")
                .describe("How long the request at the head of the queue has waited.")
                .unit(Unit::Seconds)
                .query(max(server::QUEUE_OLDEST_REQUEST_AGE).total(), "oldest")
                .threshold(slo::DRAIN_CRITICAL_SECONDS, Color::Orange)
                .threshold(slo::OLDEST_REQUEST_SECONDS, Color::Red)
                .alert("OldestQueuedRequestTooOld")
                .into(),
            stat("heartbeat-now")
                .title("Heartbeat age")
                .describe(
                    "Time since the last turn of the scheduler. An idle engine turns too; above \
                     the threshold with work queued it hangs.",
                )
                .unit(Unit::Seconds)
                .query(scheduler::heartbeat_age().total(), "age")
                .threshold(slo::STALL_SECONDS, Color::Red)
                .alert("SchedulerStalled")
                .into(),
        ],
    );
    section("now", "Now", vec![stats])
}

fn wait() -> Section {
    section("wait", "The wait", vec![seconds(), against_limits(), times()])
}

fn seconds() -> Line {
    line(
        9,
        vec![
            time_series("drain-time")
                .title("Queue drain")
                .describe(
                    "Pending tokens over the prefill capacity. Above the lines: shed load, or add \
                     an engine. If capacity fell at the same time, see *Prefill capacity* at the \
                     bottom; a cold cache or a throttled machine looks like load.",
                )
                .unit(Unit::Seconds)
                .query(recorded::QUEUE_DRAIN.get(), BY_INSTANCE)
                .threshold(slo::DRAIN_WARNING_SECONDS, Color::Orange)
                .threshold(slo::DRAIN_CRITICAL_SECONDS, Color::Red)
                .threshold_lines()
                .into(),
            time_series("oldest-age")
                .title("Oldest request")
                .describe(
                    "Age of the oldest request of each queue. It needs no rate, so it stays true \
                     when the engine hangs. Above the line most clients have given up.",
                )
                .unit(Unit::Seconds)
                .query(
                    max(server::QUEUE_OLDEST_REQUEST_AGE).by((Queue::KEY, Instance::KEY)),
                    "{{queue}} {{instance}}",
                )
                .threshold(slo::OLDEST_REQUEST_SECONDS, Color::Red)
                .threshold_lines()
                .into(),
        ],
    )
}

fn against_limits() -> Line {
    let per_queue = (Queue::KEY, Instance::KEY);
    line(
        8,
        vec![
            time_series("pending-tokens")
                .title("Pending tokens")
                .describe(
                    "Prompt tokens that still have to be computed, against the limit. At the \
                     limit requests are refused with 429.",
                )
                .unit(Unit::Tokens)
                .query(
                    max(server::QUEUE_PENDING_UNCACHED_TOKENS).by(per_queue),
                    "{{queue}} {{instance}}",
                )
                .query(
                    max(server::ADMISSION_QUEUE_LIMIT_TOKENS).by(Instance::KEY).above(0.0),
                    "limit {{instance}}",
                )
                .dashed("/^limit/")
                .into(),
            time_series("queue-depth")
                .title("Queue depth")
                .describe(
                    "Requests in each queue against the limit. `retracted` are preempted ones; \
                     they count against no limit.",
                )
                .unit(Unit::Requests)
                .query(max(server::QUEUE_REQUESTS).by(per_queue), "{{queue}} {{instance}}")
                .query(
                    max(server::ADMISSION_QUEUE_LIMIT_REQUESTS).by(Instance::KEY),
                    "limit {{instance}}",
                )
                .dashed("/^limit/")
                .alert("QueueUnbounded")
                .into(),
            time_series("queue-fill")
                .title("Fill of the limits")
                .describe(
                    "How full the queue is against each limit. Above the line the next burst is \
                     refused: add capacity, or raise the limit that is near if the drain time \
                     allows it.",
                )
                .unit(Unit::Ratio)
                .query(recorded::QUEUE_FILL.get(), "{{limit}} {{instance}}")
                .max(1.0)
                .threshold(slo::QUEUE_FILL_RATIO, Color::Orange)
                .threshold_lines()
                .into(),
        ],
    )
}

fn times() -> Line {
    let time = |share| quantile(share, server::REQUEST_QUEUE_TIME, NOW).by(Queue::KEY);
    line(
        8,
        vec![
            time_series("queue-time")
                .title("Queue time")
                .describe(
                    "How long requests waited that left the queue, however they left it. Compare \
                     with the drain time, which forecasts it.",
                )
                .unit(Unit::Seconds)
                .query(time(0.5), "p50 {{queue}}")
                .query(time(0.95), "p95 {{queue}}")
                .into(),
            heatmap("queue-time-heatmap")
                .title("Queue time, distribution")
                .describe("Requests by time in the queue. A second band high up is a burst.")
                .unit(Unit::Seconds)
                .query(buckets(server::REQUEST_QUEUE_TIME, NOW).total(), "{{le}}")
                .into(),
        ],
    )
}

fn admission() -> Section {
    section("admission", "Admission", vec![who_is_let_in(), what_refusals_cost()])
}

fn who_is_let_in() -> Line {
    line(
        8,
        vec![
            time_series("admissions")
                .title("Admitted and refused")
                .describe(
                    "Requests let in, and requests refused, by the second. Refusals while the \
                     queue is short: look at the limits.",
                )
                .unit(Unit::RequestsPerSecond)
                .query(sum(rate(server::REQUESTS_ADMITTED, NOW)).total(), "admitted")
                .query(sum(rate(server::REQUESTS_REJECTED, NOW)).total(), "refused")
                .color("refused", Color::Orange)
                .into(),
            time_series("refusals-by-reason")
                .title("Refusals by reason")
                .describe(
                    "Which limit refuses. `drain_time`: the wait would miss the objective. \
                     `queue_tokens_full` and `queue_requests_full`: a configured bound. \
                     `priority_evicted` and `queue_timeout` had a place and lost it. `invalid` is \
                     the client's fault, `draining` a shutdown.",
                )
                .unit(Unit::RequestsPerSecond)
                .query(
                    sum(rate(server::REQUESTS_REJECTED, NOW)).by(RejectReason::KEY),
                    "{{reason}}",
                )
                .stacked(Stack::Sum)
                .into(),
            time_series("admissions-by-priority")
                .title("By priority")
                .describe(
                    "Requests let in and refused, by importance. When the queue is full, an \
                     important request takes the place of a less important one, which is then \
                     counted as refused with reason `priority_evicted`.",
                )
                .unit(Unit::RequestsPerSecond)
                .query(
                    sum(rate(server::REQUESTS_ADMITTED, NOW)).by(Priority::KEY),
                    "admitted {{priority}}",
                )
                .query(
                    sum(rate(server::REQUESTS_REJECTED, NOW)).by(Priority::KEY),
                    "refused {{priority}}",
                )
                .into(),
        ],
    )
}

fn what_refusals_cost() -> Line {
    let told = |share| quantile(share, server::ADMISSION_RETRY_AFTER, NOW).total();
    let refused = sum(increase(server::REQUESTS_REJECTED, Window::Range));
    line(
        8,
        vec![
            bar_chart("refusals-in-range", "reason")
                .title("Refused in this range, by reason and priority")
                .describe(
                    "Which limit refuses whom. Important requests among them while others are let \
                     in: eviction by priority does not keep up, or limits are far too small.",
                )
                .unit(Unit::Requests)
                .query(refused.by((RejectReason::KEY, Priority::KEY)).above(0.0), "")
                .split_by("priority")
                .stacked(Stack::Sum)
                .allow(Lint::L05, "one value for the whole range that is shown")
                .no_value("nobody was refused in this range")
                .alert("RequestsRejected")
                .into(),
            time_series("refused-ratio")
                .title("Refusal ratio")
                .describe(
                    "Share of offered requests refused for lack of capacity, by process. Above \
                     the lower line add capacity; where a model's requests stay above the upper \
                     one for half an hour, that is an outage. *Refusals by reason* says which \
                     limit is hit.",
                )
                .unit(Unit::Ratio)
                .query(recorded::REFUSED_RATIO.get(), BY_INSTANCE)
                .no_value("no traffic")
                .threshold(slo::REFUSED_RATIO, Color::Orange)
                .threshold(slo::TURNED_AWAY_RATIO, Color::Red)
                .threshold_lines()
                .into(),
            time_series("retry-after")
                .title("Retry-After told")
                .describe(
                    "Delay that refused clients were told, from the drain estimate. Clients that \
                     come back earlier do so against advice.",
                )
                .unit(Unit::Seconds)
                .query(told(0.5), "p50")
                .query(told(0.95), "p95")
                .no_value("none refused")
                .into(),
        ],
    )
}
