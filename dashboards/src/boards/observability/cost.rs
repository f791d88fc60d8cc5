//! What it costs: pages, exporters, processes.

use super::lines;
use crate::boards::common::{self, INSTANCE as BY_INSTANCE, OF_TARGETS};
use crate::build::{heatmap, line, section};
use crate::ir::{Color, Section};
use crate::variables::TARGETS;
use metric_catalog::def::{Key, Label, Unit};
use metric_catalog::labels::{Collector, CollectorError, Instance, Job, Node};
use metric_catalog::promql::{
    Window, buckets, increase, max, mean, quantile, rate, raw, sum, time,
};
use metric_catalog::{node, process, server, slo};

const NOW: Window = Window::Interval;
/// What a process is told by.
const PROCESS: (Key<Job>, Key<Instance>) = (Job::KEY, Instance::KEY);
/// Its legend.
const BY_PROCESS: &str = "{{job}} {{instance}}";

/// The metrics pages of serving processes.
pub(super) fn pages() -> Section {
    let high = quantile(0.99, server::METRICS_RENDER_DURATION, NOW).by(Instance::KEY);
    let seconds = format!(
        "sum by (instance) (rate({}_sum{{{OF_TARGETS}}}[$__rate_interval]))",
        server::METRICS_RENDER_DURATION.name()
    );
    let per_series = mean(server::METRICS_RENDER_DURATION, NOW).by(Instance::KEY);
    let panels = vec![
        lines("render-time")
            .title("Metrics page render time")
            .describe(
                "Mean and p99 of the time to make a page: the cost of being watched. Above 10 ms, \
                 a page has too many series, or the process is short of cores.",
            )
            .unit(Unit::Seconds)
            .query(per_series, "mean {{instance}}")
            .query(high, "p99 {{instance}}")
            .into(),
        lines("render-share")
            .title("Share of a core for pages")
            .describe("Time spent making pages by the second. It should stay below one percent.")
            .unit(Unit::Ratio)
            .query(raw(&seconds, &["instance"], Unit::Ratio), BY_INSTANCE)
            .into(),
        lines("series")
            .title("Series")
            .describe(
                "Series on each metrics page. Must not grow with traffic: a step is a label that \
                 takes new values.",
            )
            .unit(Unit::Count)
            .query(max(server::METRICS_SERIES).by(Instance::KEY), BY_INSTANCE)
            .into(),
        lines("curve-cost")
            .title("Cost of the hit-ratio curve")
            .describe(
                "Share of a core that the estimator of the curve takes. Above a few percent, its \
                 pages are too small: let it sample (`--hit-curve-max-pages`).",
            )
            .unit(Unit::Ratio)
            .query(
                sum(rate(server::KV_HIT_CURVE_UPDATE_SECONDS, NOW)).by(Instance::KEY),
                BY_INSTANCE,
            )
            .no_value("no engine")
            .detail(common::HICACHE)
            .into(),
    ];
    section("pages", "Metrics pages", vec![line(8, panels)])
}

/// Exporters of hosts.
pub(super) fn exporters() -> Section {
    let by = (Node::KEY, Collector::KEY);
    let legend = "{{node}} {{collector}}";
    let last = max(node::COLLECTOR_LAST_SUCCESS).by(by).above(0.0);
    let errors = sum(increase(node::COLLECTOR_ERRORS, NOW)).by((Node::KEY, CollectorError::KEY));
    let panels = vec![
        lines("collector-age")
            .title("Age of what exporters know")
            .describe(
                "Time since each collector last worked. Above the line its values leave the page: \
                 the board of node health says why.",
            )
            .unit(Unit::Seconds)
            .query(time().minus(last), legend)
            .threshold(slo::COLLECTOR_STALE_SECONDS, Color::Orange)
            .threshold_lines()
            .no_value("no exporter")
            .detail(common::NODE)
            .into(),
        lines("collector-duration")
            .title("Duration of collections")
            .describe("How long the last run of each collector took. It never delays a scrape.")
            .unit(Unit::Seconds)
            .query(max(node::COLLECTOR_DURATION).by(by), legend)
            .log_scale()
            .no_value("no exporter")
            .into(),
        lines("collector-errors")
            .title("Failed collections")
            .describe("By reason; the board of node health names the collector.")
            .unit(Unit::Count)
            .query(errors.above(0.0), "{{node}} {{error}}")
            .no_value("none")
            .steps()
            .detail(common::NODE)
            .into(),
    ];
    section("exporters", "Exporters", vec![line(8, panels)])
}

/// Processes, exporters among them.
pub(super) fn processes() -> Section {
    let cpu = sum(rate(process::CPU_SECONDS, NOW)).by(PROCESS).in_unit(Unit::Count);
    let open = max(process::OPEN_FDS).by(PROCESS);
    let files = open.clone().share_of(&["job", "instance"], max(process::MAX_FDS).by(PROCESS));
    let delay = quantile(0.99, server::TOKIO_EVENT_LOOP_DELAY, NOW).by(Instance::KEY);
    let first = vec![
        lines("cpu")
            .title("CPU")
            .describe(
                "Cores in use by each process. Flat at the number of threads: the engine is \
                 compute bound.",
            )
            .unit(Unit::Count)
            .query(cpu, BY_PROCESS)
            .into(),
        lines("memory")
            .title("Resident memory")
            .describe(
                "Weights, KV pools and buffers. It should not grow once the engine is ready; one \
                 that does is restarted before the kernel kills it.",
            )
            .unit(Unit::Bytes)
            .query(max(process::RESIDENT_MEMORY).by(PROCESS), BY_PROCESS)
            .into(),
        lines("files")
            .title("Open files, of those allowed")
            .describe(
                "Each connection is one. Near 1 no client can connect any more: raise the limit of \
                 open files of the service.",
            )
            .unit(Unit::Ratio)
            .query(files, BY_PROCESS)
            .max(1.0)
            .into(),
    ];
    let second = vec![
        lines("event-loop-delay")
            .title("Event loop delay, p99")
            .describe(
                "How late a 10 ms timer of the HTTP side wakes up. Above 50 ms the machine is \
                 short of cores for HTTP: give the engine fewer threads.",
            )
            .unit(Unit::Seconds)
            .query(delay, BY_INSTANCE)
            .into(),
        heatmap("event-loop-delays")
            .within(TARGETS)
            .title("Event loop delay, distribution")
            .describe("A band far above the rest is a call that blocks the event loop: report it.")
            .unit(Unit::Seconds)
            .query(buckets(server::TOKIO_EVENT_LOOP_DELAY, NOW).total(), "{{le}}")
            .into(),
    ];
    section("processes", "Processes", vec![line(8, first), line(8, second)])
}
