//! What is full, and whether hosts and data can be relied on.

use super::NOW;
use crate::boards::common::{self, INSTANCE as BY_INSTANCE};
use crate::build::{line, section as titled, state_timeline, time_series};
use crate::ir::{Color, Panel, Section, Stack};
use crate::lint::Lint;
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{Instance, Node, Phase, Tier};
use metric_catalog::promql::{max, min, quantile, rate, ratio, raw, recorded, sum};
use metric_catalog::{node, server, slo};

/// The four things that fill up.
pub(super) fn section() -> Section {
    let batch = ratio(
        max(server::RUNNING_REQUESTS).by(Instance::KEY),
        max(server::RUNNING_REQUESTS_LIMIT).by(Instance::KEY),
    );
    let mut panels: Vec<Panel> = vec![
        time_series("saturation-drain")
            .title("Queue drain")
            .describe(
                "Seconds of prefill that wait. Above the upper line the next request misses its \
                 objective: shed load or add an engine.",
            )
            .unit(Unit::Seconds)
            .query(recorded::QUEUE_DRAIN.get(), BY_INSTANCE)
            .no_value("idle")
            .threshold(slo::DRAIN_WARNING_SECONDS, Color::Orange)
            .threshold(slo::DRAIN_CRITICAL_SECONDS, Color::Red)
            .threshold_lines()
            .alert("PrefillQueueDrainCritical")
            .detail(common::QUEUE)
            .into(),
        time_series("saturation-queue")
            .title("Fill of the queues")
            .describe("Each queue against its limits. Above the line the next burst is refused.")
            .unit(Unit::Ratio)
            .query(recorded::QUEUE_FILL.get(), "{{limit}} {{instance}}")
            .max(1.0)
            .threshold(slo::QUEUE_FILL_RATIO, Color::Orange)
            .threshold_lines()
            .no_value("no limit")
            .alert("QueueNearLimit")
            .detail(common::QUEUE)
            .into(),
        time_series("saturation-batch")
            .title("Fill of the batches")
            .describe(
                "Running requests over the largest batch. At 1 with a queue, engines are at their \
                 capacity; below 1 with a queue, memory or the device holds them up.",
            )
            .unit(Unit::Ratio)
            .query(batch, BY_INSTANCE)
            .max(1.0)
            .detail(common::QUEUE)
            .into(),
    ];
    panels.extend(devices());
    titled("saturation", "What is full", vec![line(8, panels), line(7, front_door())])
}

/// Pools and passes of the device.
fn devices() -> [Panel; 2] {
    let pools = max(recorded::POOL_ACTIVE.is(Tier::Device)).by(Instance::KEY);
    let busy = sum(rate(server::FORWARD_BUSY_SECONDS, NOW)).by((Phase::KEY, Instance::KEY));
    [
        time_series("saturation-pools")
            .title("Fullest KV pool")
            .describe(
                "Share of its fullest device pool that live requests of a process pin. Above the \
                 line the next long request preempts another one.",
            )
            .unit(Unit::Ratio)
            .query(pools, BY_INSTANCE)
            .max(1.0)
            .threshold(slo::POOL_ACTIVE_RATIO, Color::Orange)
            .threshold_lines()
            .alert("DevicePoolExhausted")
            .detail(common::KV_POOLS)
            .into(),
        time_series("saturation-device")
            .title("Devices busy")
            .describe(
                "Share of time in forward passes, by phase. Near 1 the device is the limit; far \
                 below 1 with a queue, something else is.",
            )
            .unit(Unit::Ratio)
            .query(busy, "{{phase}} {{instance}}")
            .stacked(Stack::Sum)
            .detail(common::QUEUE)
            .into(),
    ]
}

fn front_door() -> Vec<Panel> {
    let requests = ratio(
        sum(server::HTTP_REQUESTS_IN_FLIGHT).by(Instance::KEY),
        max(server::RUNNING_REQUESTS_LIMIT).by(Instance::KEY),
    );
    let delay = quantile(0.99, server::TOKIO_EVENT_LOOP_DELAY, NOW).by(Instance::KEY);
    vec![
        time_series("in-flight")
            .title("HTTP requests in flight, by running limit")
            .describe(
                "Open HTTP requests over the largest running batch. Above 1, some of them wait in \
                 the queue.",
            )
            .unit(Unit::Ratio)
            .query(requests, BY_INSTANCE)
            .into(),
        time_series("event-loop-delay")
            .title("Event loop delay, p99")
            .describe(
                "How late a 10 ms timer of the HTTP side wakes up. Above 50 ms the machine is \
                 short of cores for HTTP, and every answer is late: give the engine fewer threads.",
            )
            .unit(Unit::Seconds)
            .query(delay, BY_INSTANCE)
            .detail(common::OBSERVABILITY)
            .into(),
    ]
}

/// Hosts, and the age of what is shown.
pub(super) fn nodes() -> Section {
    let age = format!("max by (instance) (time() - timestamp(up{{{}}}))", common::OF_TARGETS);
    let panels = vec![
        state_timeline("node-verdict")
            .within(&["cluster"])
            .title("Verdict on hosts")
            .describe(
                "Fit while no critical check of the exporter fails or stays unknown. Not fit: the \
                 board of node health names the check; a router that follows the exporter sends \
                 nothing there.",
            )
            .unit(Unit::Count)
            .query(min(node::HEALTHY).by(Node::KEY), "{{node}}")
            .allow(Lint::L06, common::OTHER_JOB)
            .map(0, "not fit", Color::Red)
            .map(1, "fit", Color::Green)
            .no_value("no exporter")
            .alert("NodeUnhealthy")
            .detail(common::NODE)
            .into(),
        time_series("data-age")
            .title("Age of the data")
            .describe(
                "Time since the last scrape of each process. A saw as high as the scrape interval \
                 is right; above the line nobody scrapes it, and all other panels show the past.",
            )
            .unit(Unit::Seconds)
            .query(raw(&age, &["instance"], Unit::Seconds), BY_INSTANCE)
            .threshold(slo::COLLECTOR_STALE_SECONDS, Color::Red)
            .threshold_lines()
            .no_value("no data")
            .alert("TargetDown")
            .detail(common::OBSERVABILITY)
            .into(),
    ];
    titled("nodes", "Hosts, and is the data fresh", vec![line(7, panels)])
}
