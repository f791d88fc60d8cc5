//! The exporters themselves: is what they say fresh, and what does it cost.

use super::NOW;
use crate::build::{Blank, line, section as titled, state_timeline, table, time_series};
use crate::ir::{Color, Line, Section};
use metric_catalog::alerts::NODE_JOB;
use metric_catalog::def::{Key, Label, Unit};
use metric_catalog::labels::{Collector, CollectorError, GitSha, Job, Node, Rustc, Version};
use metric_catalog::promql::{Selection, increase, max, min, rate, sum, time, up};
use metric_catalog::{node, process, slo};

/// Legend of a series for each collector.
const COLLECTOR: &str = "{{node}} {{collector}}";
const BY: (Key<Node>, Key<Collector>) = (Node::KEY, Collector::KEY);

fn lines(slug: &str) -> Blank {
    time_series(slug).of_hosts().no_value("no exporter")
}

pub(super) fn section() -> Section {
    titled("exporters", "Freshness of what is shown", vec![freshness(), failures(), processes()])
}

fn freshness() -> Line {
    let last = max(node::COLLECTOR_LAST_SUCCESS).by(BY).above(0.0);
    line(
        8,
        vec![
            lines("exporters-up")
                .title("Exporters that answer")
                .describe(
                    "1 where a scrape of the exporter worked. At 0 nothing about the host is \
                     known, and no alert about it can fire.",
                )
                .unit(Unit::Count)
                .query(min(up(NODE_JOB)).by(Node::KEY).in_unit(Unit::Count), "{{node}}")
                .steps()
                .into(),
            lines("collector-age")
                .title("Age of data")
                .describe(
                    "Time since a collector last worked. Above the line, and above three of its \
                     intervals, its values are gone from the page: *Failed collections* says why, \
                     *Stuck for* whether a call hangs.",
                )
                .unit(Unit::Seconds)
                .query(time().minus(last), COLLECTOR)
                .threshold(slo::COLLECTOR_STALE_SECONDS, Color::Orange)
                .threshold_lines()
                .into(),
            state_timeline("collector-success")
                .of_hosts()
                .title("Last collection")
                .describe("Whether the last run of each collector worked.")
                .unit(Unit::Count)
                .query(min(node::COLLECTOR_SUCCESS).by(BY), COLLECTOR)
                .map(0, "failed", Color::Orange)
                .map(1, "worked", Color::Green)
                .no_value("no exporter")
                .into(),
        ],
    )
}

fn failures() -> Line {
    let error = (Node::KEY, Collector::KEY, CollectorError::KEY);
    line(
        7,
        vec![
            lines("collector-errors")
                .title("Failed collections")
                .describe(
                    "By reason. `permission`: the exporter's user may not read it. `timeout`: the \
                     source hangs. `gone`: a card or file went away. `crashed`: the process that \
                     talks to the driver died and is started again.",
                )
                .unit(Unit::Count)
                .query(
                    max(increase(node::COLLECTOR_ERRORS, NOW)).by(error).above(0.0),
                    "{{node}} {{collector}} {{error}}",
                )
                .no_value("none")
                .steps()
                .into(),
            lines("collector-stuck")
                .title("Stuck for")
                .describe(
                    "How long the running collection has not come back. A call into a driver that \
                     hangs is not waited for, and not made a second time.",
                )
                .unit(Unit::Seconds)
                .query(max(node::COLLECTOR_STUCK).by(BY), COLLECTOR)
                .into(),
            lines("collector-duration")
                .title("Duration of collections")
                .describe("How long the last run took. It never delays a scrape.")
                .unit(Unit::Seconds)
                .query(max(node::COLLECTOR_DURATION).by(BY), COLLECTOR)
                .log_scale()
                .into(),
        ],
    )
}

fn processes() -> Line {
    let of_exporters = || Job::new(NODE_JOB);
    let build = max(node::BUILD_INFO).by((Node::KEY, Version::KEY, GitSha::KEY, Rustc::KEY));
    let columns =
        [("node", "Node"), ("version", "Version"), ("git_sha", "Commit"), ("rustc", "Compiler")];
    line(
        7,
        vec![
            lines("exporter-cpu")
                .title("CPU of exporters")
                .describe("Cores in use. It should stay below half a percent of one.")
                .unit(Unit::Count)
                .query(
                    sum(rate(process::CPU_SECONDS.is(of_exporters()), NOW))
                        .by(Node::KEY)
                        .in_unit(Unit::Count),
                    "{{node}}",
                )
                .into(),
            lines("exporter-memory")
                .title("Memory of exporters")
                .describe("Resident memory. It should not grow.")
                .unit(Unit::Bytes)
                .query(max(process::RESIDENT_MEMORY.is(of_exporters())).by(Node::KEY), "{{node}}")
                .into(),
            state_timeline("exporter-sandbox")
                .of_hosts()
                .title("Sandbox")
                .describe(
                    "Whether the kernel confines the exporter to what it reads. `off`: the kernel \
                     is too old for it, or it was switched off.",
                )
                .unit(Unit::Count)
                .query(min(node::SANDBOXED).by(Node::KEY), "{{node}}")
                .map(0, "off", Color::Yellow)
                .map(1, "on", Color::Green)
                .no_value("no exporter")
                .into(),
            table("exporter-builds", &columns)
                .of_hosts()
                .title("Builds")
                .describe("What each exporter was built from.")
                .unit(Unit::Flag)
                .query(build, "")
                .no_value("no exporter")
                .into(),
        ],
    )
}
