//! Workers as the router sees them: routable or not, and with how much to do.

use super::{NO_ROUTER, NOW, SEEN};
use crate::boards::common::{self, FAULTS};
use crate::build::{line, section, state_timeline, table, time_series};
use crate::ir::{Color, Panel, Section, Stack};
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{CircuitState, Instance, Worker, WorkerRole};
use metric_catalog::promql::{Expr, Selection, max, rate, ratio, sum};
use metric_catalog::router;

pub(super) fn who() -> Section {
    section("workers", "Workers", vec![line(8, vec![every_worker()]), line(8, states())])
}

fn every_worker() -> Panel {
    let columns = [("worker", "Worker"), ("instance", "Router")];
    let answers = sum(rate(router::ROUTER_UPSTREAM_RESPONSES, NOW));
    let faults = ratio(
        sum(rate(router::ROUTER_UPSTREAM_RESPONSES.any_of(FAULTS), NOW)).by(SEEN),
        answers.clone().by(SEEN),
    );
    table("worker-table", &columns)
        .title("Every worker")
        .describe(
            "A line for each worker of each router; `other` stands for those beyond 32. *Up* no: \
             it does not answer, drains, or its circuit is open. *Faults* on one line alone: that \
             worker. *Report* that grows: the router chooses in the dark. *Waiting* much longer on \
             one line: choices follow its cache more than its load.",
        )
        .unit(Unit::Count)
        .query(max(router::ROUTER_WORKER_UP.without(Worker::new("other"))).by(SEEN), "Up")
        .query(answers.by(SEEN), "Answers")
        .query(faults, "Faults")
        .query(max(router::ROUTER_WORKER_ACTIVE_REQUESTS).by(SEEN), "Open")
        .query(max(router::ROUTER_WORKER_PENDING_TOKENS).by(SEEN), "Waiting")
        .query(max(router::ROUTER_LOAD_REPORT_AGE).by(SEEN), "Report")
        .words("Up", &[(0, "no", Color::Red), (1, "yes", Color::Green)])
        .judge("Faults", Color::Text, &[(metric_catalog::slo::ERROR_RATIO, Color::Red)])
        .sorted_by("Faults", true)
        .no_value(NO_ROUTER)
        .detail(common::INSTANCES)
        .into()
}

/// The current state of each circuit as a number from 1.
fn circuit_code() -> Expr {
    let code = |state: CircuitState, code: f64| -> Expr {
        Expr::from(router::ROUTER_CIRCUIT_STATE.is(state)).equals(1.0).times(code)
    };
    let all = code(CircuitState::Closed, 1.0)
        .or(code(CircuitState::HalfOpen, 2.0))
        .or(code(CircuitState::Open, 3.0));
    max(all).by(SEEN)
}

fn states() -> Vec<Panel> {
    let open = max(router::ROUTER_CIRCUIT_STATE.none_of(&[CircuitState::Closed]));
    let up = max(router::ROUTER_WORKER_UP).by((Worker::KEY, WorkerRole::KEY, Instance::KEY));
    let asked = sum(router::ROUTER_WORKER_UP).by(WorkerRole::KEY).in_unit(Unit::Count);
    let declared = max(router::ROUTER_WORKERS_DECLARED).by(WorkerRole::KEY).above(0.0);
    vec![
        time_series("workers-up")
            .title("Workers that can be asked")
            .describe(
                "1 when the router sends requests there. At 0 it does not answer, drains, or \
                 failed too often (*circuit*, dashed).",
            )
            .unit(Unit::Count)
            .query(up.in_unit(Unit::Count), "{{worker_role}} {{worker}} at {{instance}}")
            .query(
                open.by((Worker::KEY, CircuitState::KEY)).in_unit(Unit::Count).above(0.0),
                "circuit {{state}} {{worker}}",
            )
            .dashed("/^circuit/")
            .no_value(NO_ROUTER)
            .steps()
            .into(),
        time_series("workers-declared")
            .title("Asked and declared, by role")
            .describe(
                "Workers of each role that can be asked, and how many the configuration declares \
                 for the largest model (dashed; none where only discovery decides). Below it a \
                 worker is missing.",
            )
            .unit(Unit::Count)
            .query(asked, "{{worker_role}}")
            .query(declared.in_unit(Unit::Count), "declared {{worker_role}}")
            .dashed("/^declared/")
            .no_value(NO_ROUTER)
            .steps()
            .alert("RoleMissing")
            .detail(common::PD_FLOW)
            .into(),
        state_timeline("circuits")
            .title("Circuits")
            .describe(
                "`open`: the worker failed so often that no request goes there; after a while a \
                 few are tried (`trying`). One that opens again and again is ill and says so in \
                 its log.",
            )
            .unit(Unit::Count)
            .query(circuit_code().in_unit(Unit::Count), "{{worker}} at {{instance}}")
            .map(1, "closed", Color::Green)
            .map(2, "trying", Color::Yellow)
            .map(3, "open", Color::Red)
            .no_value(NO_ROUTER)
            .into(),
    ]
}

pub(super) fn load() -> Section {
    let panels = vec![
        time_series("worker-load")
            .title("Tokens that the router believes wait")
            .describe(
                "Uncached prompt tokens queued at each worker, as the router sees it. Lines that \
                 part: the policy prefers caches to balance.",
            )
            .unit(Unit::Tokens)
            .query(max(router::ROUTER_WORKER_PENDING_TOKENS).by(SEEN), "{{worker}} {{instance}}")
            .no_value(NO_ROUTER)
            .detail(common::QUEUE)
            .into(),
        time_series("worker-active")
            .title("Open requests by worker")
            .describe("Requests that the router has open at each worker.")
            .unit(Unit::Requests)
            .query(max(router::ROUTER_WORKER_ACTIVE_REQUESTS).by(SEEN), "{{worker}} {{instance}}")
            .no_value(NO_ROUTER)
            .stacked(Stack::Sum)
            .into(),
        time_series("load-report-age")
            .title("Age of load reports")
            .describe(
                "How old what the router knows of a worker is. Old reports are choices made in the \
                 dark: the worker is slow to answer, or gone.",
            )
            .unit(Unit::Seconds)
            .query(max(router::ROUTER_LOAD_REPORT_AGE).by(SEEN), "{{worker}} {{instance}}")
            .no_value(NO_ROUTER)
            .into(),
    ];
    section("load", "Load as the router sees it", vec![line(8, panels)])
}
