//! The lower half of the queue board: what the scheduler does with its time.

use crate::boards::common::{self, INSTANCE as BY_INSTANCE};
use crate::build::{line, section, time_series};
use crate::ir::{Color, Section, Stack};
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{Instance, Phase, PreemptReason, PreemptedKind, Queue, Stage, Turn};
use metric_catalog::promql::{
    Expr, Grouping, Known, Window, max, mean, quantile, rate, recorded, sum, time,
};
use metric_catalog::{server, slo};

const NOW: Window = Window::Interval;

/// Time since the last turn of the scheduler; absent before the first one.
pub(super) fn heartbeat_age() -> Grouping<Known> {
    let last = max(server::SCHEDULER_LAST_ITERATION).by(Instance::KEY);
    let age: Expr = last.above(0.0).times(-1.0).plus(time());
    max(age.in_unit(Unit::Seconds))
}

/// Turns of the loop and where their time goes.
pub(super) fn turns() -> Section {
    let stages = sum(rate(server::SCHEDULER_STAGE_SECONDS, NOW)).by((Instance::KEY, Stage::KEY));
    let lines = vec![line(
        8,
        vec![
            time_series("scheduler-stages")
                .title("Scheduler time by stage")
                .describe(
                    "Share of elapsed time in each stage; they add up to 1 for each process. \
                     Mostly `forward` under load is right; much `schedule`, `commit` or `observe` \
                     is overhead, much `wait` is an engine without work.",
                )
                .unit(Unit::Ratio)
                .query(stages, "{{stage}} {{instance}}")
                .stacked(Stack::Sum)
                .into(),
            time_series("scheduler-turns")
                .title("Scheduler turns by phase")
                .describe(
                    "Turns of the loop. `mixed` is prefill beside decode: it keeps streams \
                     flowing while a prompt is computed.",
                )
                .unit(Unit::CountPerSecond)
                .query(sum(rate(server::SCHEDULER_ITERATIONS, NOW)).by(Turn::KEY), "{{phase}}")
                .stacked(Stack::Sum)
                .into(),
            time_series("turn-duration")
                .title("Turn duration, p50 and p99")
                .describe(
                    "Wall time of one turn that ran a batch. A decode turn is the gap between \
                     tokens; a long mixed turn is a prefill chunk that is too large.",
                )
                .unit(Unit::Seconds)
                .query(turn(0.5), "p50 {{phase}}")
                .query(turn(0.99), "p99 {{phase}}")
                .into(),
            time_series("heartbeat-age")
                .title("Heartbeat age")
                .describe(
                    "Time since the last turn. Above the line with work queued or running the \
                     engine hangs: take a stack dump, then restart it.",
                )
                .unit(Unit::Seconds)
                .query(heartbeat_age().by(Instance::KEY), BY_INSTANCE)
                .threshold(slo::STALL_SECONDS, Color::Red)
                .threshold_lines()
                .into(),
        ],
    )];
    section("scheduler", "Scheduler", lines)
}

fn turn(share: f64) -> Expr {
    quantile(share, server::SCHEDULER_ITERATION_DURATION, NOW).by(Phase::KEY)
}

/// Batches and preemptions.
pub(super) fn batches() -> Section {
    let lines = vec![line(
        8,
        vec![
            time_series("batch-requests")
                .title("Batch size, mean")
                .describe(
                    "Requests in an executed batch. Decode throughput grows with it, and so does \
                     the gap between tokens.",
                )
                .unit(Unit::Requests)
                .query(mean(server::BATCH_REQUESTS, NOW).by(Phase::KEY), "{{phase}}")
                .into(),
            time_series("batch-tokens")
                .title("Batch tokens, mean and p95")
                .describe(
                    "New tokens in an executed batch, up to the token budget of a step. Prefill \
                     far below the budget while a queue waits: prompts are short or memory is out.",
                )
                .unit(Unit::Tokens)
                .query(mean(server::BATCH_TOKENS, NOW).by(Phase::KEY), "mean {{phase}}")
                .query(quantile(0.95, server::BATCH_TOKENS, NOW).by(Phase::KEY), "p95 {{phase}}")
                .into(),
            time_series("preemptions")
                .title("Preemptions")
                .describe(
                    "Running requests that lost their pages and wait again. Above the line the \
                     running limit is too large for the KV pools: lower it.",
                )
                .unit(Unit::CountPerSecond)
                .query(
                    sum(rate(server::PREEMPTIONS, NOW)).by((Instance::KEY, PreemptReason::KEY)),
                    "{{reason}} {{instance}}",
                )
                .threshold(slo::RETRACTIONS_PER_SECOND, Color::Orange)
                .threshold_lines()
                .alert("RetractionStorm")
                .detail(common::KV_POOLS)
                .into(),
            time_series("preempted-tokens-rate")
                .title("Work thrown away")
                .describe("Tokens whose work preemption threw away, by kind.")
                .unit(Unit::TokensPerSecond)
                .query(sum(rate(server::PREEMPTED_TOKENS, NOW)).by(PreemptedKind::KEY), "{{kind}}")
                .stacked(Stack::Sum)
                .into(),
        ],
    )];
    section("batches", "Batch", lines)
}

/// What the device can do, and how busy it is.
pub(super) fn capacity() -> Section {
    let busy = max(rate(server::FORWARD_BUSY_SECONDS, NOW)).by((Instance::KEY, Phase::KEY));
    let pending = max(server::QUEUE_PENDING_TOKENS).by((Queue::KEY, Instance::KEY));
    let lines = vec![line(
        8,
        vec![
            time_series("prefill-capacity")
                .title("Prefill capacity")
                .describe(
                    "Prompt tokens computed by *busy* second: what the device can do, not what \
                     was asked of it. Half of its usual value with a queue behind it: the machine \
                     is throttled or shared. No line while the device is idle.",
                )
                .unit(Unit::TokensPerSecond)
                .query(recorded::PREFILL_CAPACITY.get(), "capacity {{instance}}")
                .query(recorded::PROMPT_TOKENS_COMPUTED.get(), "computed {{instance}}")
                .detail(common::INSTANCES)
                .into(),
            time_series("device-busy")
                .title("Device busy")
                .describe(
                    "Share of time in forward passes, by phase, of the busiest rank. Near 1 the \
                     engine is at its capacity; far below 1 with a queue, something else holds it \
                     up.",
                )
                .unit(Unit::Ratio)
                .query(busy, "{{phase}} {{instance}}")
                .stacked(Stack::Sum)
                .detail(common::NODE)
                .into(),
            time_series("pending-before-cache")
                .title("Pending tokens before cache hits")
                .describe(
                    "Prompt tokens of queued requests, known prefix hits included. Far above \
                     *Pending tokens*: the cache does most of the work.",
                )
                .unit(Unit::Tokens)
                .query(pending, "{{queue}} {{instance}}")
                .into(),
        ],
    )];
    section("capacity", "Capacity", lines)
}
