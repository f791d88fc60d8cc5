//! Node health: is each host fit to serve, what fails, and how much host cache it can still take.

mod cards;
mod exporter;
mod links;
mod memory;
mod services;

use super::common;
use crate::build::{Blank, line, section, stat, state_timeline, table};
use crate::ir::{Color, Dashboard, Panel, Section};
use crate::lint::Lint;
use metric_catalog::def::{Gauge, Label, Unit};
use metric_catalog::labels::{CheckScope, CheckSeverity, HealthCheck, Node};
use metric_catalog::node;
use metric_catalog::promql::{Expr, Selection, Window, count, min, vector};

const NOW: Window = Window::Interval;

/// The board.
pub(super) fn board() -> Dashboard {
    common::board_of_hosts(
        common::NODE,
        "Node health",
        "Hosts, as the exporter on each sees them: the verdict and the checks behind it, services, \
         cards, memory by NUMA node and the host cache on it, links, and how fresh all of that is. \
         Without the exporter it is empty. A value that is not fresh is not shown.",
        vec![
            now(),
            verdict(),
            services::section(),
            cards::section(),
            memory::section(),
            memory::pressure(),
            links::section(),
            exporter::section(),
            cards::more(),
            memory::more(),
        ],
    )
}

/// How many series of a check are 0, also where none is.
fn at_zero(check: impl Into<Expr>) -> Expr {
    let check: Expr = check.into();
    count(check.equals(0.0)).total().or_on(&[], vector(0.0)).in_unit(Unit::Count)
}

fn now() -> Section {
    let number = |slug: &str| stat(slug).of_hosts();
    let unfit = number("unfit-now")
        .title("Nodes not fit")
        .describe("Hosts whose verdict is bad. *Failing checks* says why.")
        .unit(Unit::Count)
        .query(at_zero(min(node::HEALTHY).by(Node::KEY)), "not fit")
        .threshold(1.0, Color::Red)
        .alert("NodeUnhealthy");
    let of = |severity| node::HEALTH_CHECK.is(severity);
    let critical = number("failing-now")
        .title("Failing, critical")
        .describe("Checks that make a host unfit. Any of them: look at *Failing checks*.")
        .unit(Unit::Count)
        .query(at_zero(of(CheckSeverity::Critical)), "failing")
        .threshold(1.0, Color::Red)
        .alert("NodeUnhealthy");
    let warning = number("warnings-now")
        .title("Failing, warning")
        .describe("Checks that fail while the host still serves: look when there is time.")
        .unit(Unit::Count)
        .query(at_zero(of(CheckSeverity::Warning)), "failing")
        .threshold(1.0, Color::Orange)
        .detail(common::OBSERVABILITY);
    let unknown = number("unknown-now")
        .title("Unknown")
        .describe(
            "Checks without fresh data. A critical one that stays unknown makes the host unfit: \
             not knowing is no pass. *Age of data* says which collector is silent.",
        )
        .unit(Unit::Count)
        .query(at_zero(node::HEALTH_CHECK_KNOWN), "unknown")
        .threshold(1.0, Color::Orange)
        .detail(common::OBSERVABILITY);
    let firing = number("node-alerts-now")
        .title("Firing alerts")
        .describe("Alerts about the chosen hosts. Their annotations lead to the panel and runbook.")
        .unit(Unit::Count)
        .query(common::firing_alerts_of_hosts(), "firing")
        .threshold(1.0, Color::Red)
        .detail(common::OBSERVABILITY);
    let panels = [unfit, critical, warning, unknown, firing];
    section("now", "Now", vec![line(4, panels.map(Panel::from).to_vec())])
}

fn verdict() -> Section {
    let columns =
        [("node", "Node"), ("check", "Check"), ("scope", "What"), ("severity", "Severity")];
    let list = |slug: &str, check: Gauge<(HealthCheck, CheckScope, CheckSeverity)>| -> Blank {
        let by = (Node::KEY, HealthCheck::KEY, CheckScope::KEY, CheckSeverity::KEY);
        table(slug, &columns).of_hosts().query(min(check).by(by).equals(0.0), "")
    };
    let lines = vec![
        line(
            6,
            vec![
                state_timeline("verdict")
                    .of_hosts()
                    .title("Verdict")
                    .describe(
                        "Fit while no critical check fails or stays unknown. Not fit: a router \
                         that follows the exporter's `/health` sends nothing here; mend what \
                         *Failing checks* names. A gap is an exporter that does not answer.",
                    )
                    .unit(Unit::Count)
                    .query(min(node::HEALTHY).by(Node::KEY), "{{node}}")
                    .map(0, "not fit", Color::Red)
                    .map(1, "fit", Color::Green)
                    .no_value("no exporter")
                    .into(),
            ],
        ),
        line(
            8,
            vec![
                list("failing-checks", node::HEALTH_CHECK)
                    .title("Failing checks")
                    .describe(
                        "Every check that fails now, and what it is about: a GPU, a NUMA node, a \
                         service, a port, a collector, or the node.",
                    )
                    .unit(Unit::Count)
                    .allow(Lint::L12, "only checks that fail are lines")
                    .no_value("every check passes")
                    .into(),
                list("unknown-checks", node::HEALTH_CHECK_KNOWN)
                    .title("Checks without data")
                    .describe("Checks that nobody can answer now, for lack of fresh data.")
                    .unit(Unit::Count)
                    .allow(Lint::L12, "only checks without data are lines")
                    .no_value("every check is known")
                    .into(),
            ],
        ),
    ];
    section("verdict-of-nodes", "Verdict", lines)
}
