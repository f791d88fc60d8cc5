//! Services of a host: their states, probes, restarts, memory, and what work is planned.

use super::NOW;
use crate::build::{line, state_timeline, table, time_series};
use crate::ir::{Color, Line, Section};
use crate::lint::Lint;
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{MempolicyKind, Node, PolicyNodes, Service, ServiceState};
use metric_catalog::promql::{Expr, Selection, Window, increase, max, min, recorded, time};
use metric_catalog::{node, slo};

/// Legend of a series for each service.
const SERVICE: &str = "{{node}} {{service}}";
const NO_SERVICE: &str = "no service is configured";
/// Of services that are known by a URL alone the kernel says nothing.
pub(super) const NO_GROUP: &str = "no service has a unit or a control group";
const BY: (metric_catalog::def::Key<Node>, metric_catalog::def::Key<Service>) =
    (Node::KEY, Service::KEY);

pub(super) fn section() -> Section {
    crate::build::section("services", "Services", vec![states(), starts(), memory()])
}

/// The current state of each service as a number from 1.
fn state_code() -> Expr {
    let code = |state: ServiceState, code: f64| -> Expr {
        Expr::from(node::SERVICE_STATE.is(state)).times(code)
    };
    let all = code(ServiceState::Active, 1.0)
        .or(code(ServiceState::Activating, 2.0))
        .or(code(ServiceState::Deactivating, 3.0))
        .or(code(ServiceState::Inactive, 4.0))
        .or(code(ServiceState::Failed, 5.0))
        .or(code(ServiceState::Unknown, 6.0));
    max(all).by(BY)
}

fn states() -> Line {
    line(
        8,
        vec![
            state_timeline("service-state")
                .of_hosts()
                .title("State of services")
                .describe(
                    "State of each configured service. `failed`: it will not start by itself; read \
                     the end of its journal (`journalctl -u UNIT -n 200`). `activating` for long: \
                     weights load, or it starts again and again (*Restarts*).",
                )
                .unit(Unit::Flag)
                .query(state_code(), SERVICE)
                .map(1, "active", Color::Green)
                .map(2, "activating", Color::Blue)
                .map(3, "deactivating", Color::Yellow)
                .map(4, "inactive", Color::Text)
                .map(5, "failed", Color::Red)
                .map(6, "unknown", Color::Purple)
                .no_value(NO_SERVICE)
                .into(),
            state_timeline("service-probe")
                .of_hosts()
                .title("Health probes")
                .describe(
                    "Whether the health address of a service answered. Failing while the unit is \
                     active: the process lives and does not serve; its status and the time it \
                     took are in `service_probe_status_code` and *Duration of probes*.",
                )
                .unit(Unit::Count)
                .query(min(node::SERVICE_PROBE_SUCCESS).by(BY), SERVICE)
                .map(0, "fails", Color::Red)
                .map(1, "answers", Color::Green)
                .no_value("no probe is configured")
                .into(),
        ],
    )
}

fn starts() -> Line {
    let uptime = time().minus(max(node::SERVICE_START).by(BY).above(0.0));
    line(
        7,
        vec![
            time_series("service-restarts")
                .of_hosts()
                .title("Restarts in ten minutes")
                .describe(
                    "Automatic restarts of a unit. Above the line it is a loop, and so are three \
                     in an hour: stop it and read the first error of a start, not the last. Often \
                     a host cache that does not fit (*Headroom*).",
                )
                .unit(Unit::Count)
                .query(max(increase(node::SERVICE_RESTARTS, Window::M10)).by(BY), SERVICE)
                .threshold(slo::RESTARTS_FAST, Color::Red)
                .threshold_lines()
                .no_value(NO_SERVICE)
                .allow(Lint::L05, "the alert counts in ten minutes, whatever step is shown")
                .into(),
            time_series("service-oom-kills")
                .of_hosts()
                .title("Killed for lack of memory")
                .describe(
                    "Processes of a service that the kernel killed. With memory left on the host: \
                     the service is bound to a NUMA node that is full (*Headroom*), or to a limit \
                     (*Memory of services*).",
                )
                .unit(Unit::Count)
                .query(max(increase(node::SERVICE_OOM_KILLS, NOW)).by(BY), SERVICE)
                .no_value(NO_GROUP)
                .steps()
                .into(),
            time_series("service-uptime")
                .of_hosts()
                .title("Time since the last start")
                .describe("Falls to 0 when a unit starts. A saw is a loop.")
                .unit(Unit::Seconds)
                .query(uptime, SERVICE)
                .no_value(NO_SERVICE)
                .into(),
            time_series("maintenance")
                .of_hosts()
                .title("Planned work left")
                .describe(
                    "Time that a rollout or an operator announced for a role of a host. While it \
                     runs, that role may be down without a page; more than 15 minutes ahead is \
                     ignored.",
                )
                .unit(Unit::Seconds)
                .query(recorded::MAINTENANCE.get(), "{{node}} {{engine_role}}")
                .no_value("nothing is planned")
                .into(),
        ],
    )
}

fn memory() -> Line {
    let policy = max(node::SERVICE_MEMPOLICY_INFO);
    let policy = policy.by((Node::KEY, Service::KEY, MempolicyKind::KEY, PolicyNodes::KEY));
    let columns =
        [("node", "Node"), ("service", "Service"), ("policy", "Policy"), ("nodes", "Nodes")];
    line(
        8,
        vec![
            time_series("service-memory")
                .of_hosts()
                .title("Memory of services")
                .describe(
                    "Memory charged to a service, and its limit (dashed) where it has one. At the \
                     limit the kernel kills.",
                )
                .unit(Unit::Bytes)
                .query(max(node::SERVICE_MEMORY_CURRENT).by(BY), SERVICE)
                .query(min(node::SERVICE_MEMORY_MAX).by(BY), "limit {{node}} {{service}}")
                .dashed("/^limit/")
                .no_value(NO_GROUP)
                .into(),
            time_series("service-probe-duration")
                .of_hosts()
                .title("Duration of probes")
                .describe("How long the health address took. Rises before it fails.")
                .unit(Unit::Seconds)
                .query(max(node::SERVICE_PROBE_DURATION).by(BY), SERVICE)
                .no_value("no probe is configured")
                .into(),
            table("service-policy", &columns)
                .of_hosts()
                .title("Memory policies")
                .describe(
                    "Where the kernel takes memory of a service from. `default` for a service \
                     with a planned NUMA node: it was started without its binding, and its cache \
                     will spread over the nodes.",
                )
                .unit(Unit::Flag)
                .query(policy, "")
                .allow(Lint::L12, "a service has one policy")
                .no_value(NO_GROUP)
                .into(),
        ],
    )
}
