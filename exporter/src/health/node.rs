//! Checks of the node: memory, pressure, links, and the exporter's own collectors.

use std::time::Duration;

use metric_catalog::slo;
use node_info::{Port, PortState, Resource};

use super::{Findings, History, Input, NODE, Outcome, missing};
use crate::hostcache::join::NodeJoin;

/// Time all tasks waited for memory, of the last minute.
const STALLED_MAX: f64 = 0.01;

/// Share of the reserve that may be in use: beyond it the node is about to run out of memory.
const EATEN_MAX: f64 = -slo::NUMA_HEADROOM_RATIO;

/// How long a killed process, or a link that went down, counts.
const WINDOW: Duration = Duration::from_secs(600);

const GB: f64 = 1e9;

/// There is room on each NUMA node for what its services have yet to take. Nodes without CPUs are
/// not judged: nothing is killed for lack of them alone.
pub(super) fn headroom(input: &Input<'_>, _: &mut History) -> Findings {
    let view = &input.facts.numa;
    let Some(facts) = view.facts.as_deref() else {
        return if view.status.is_supported() {
            Findings::Unknown(missing(&view.status))
        } else {
            Findings::Of(Vec::new())
        };
    };
    let reserves = facts.reserves(input.config.reserve);
    let judged = |node: &&node_info::Node| {
        node.memory.is_none_or(|memory| memory.total > 0) && facts.may_have_cpus(node)
    };
    let one = |node: &node_info::Node| {
        let reserve = reserves.get(&node.id);
        let outcome = match input.joined.nodes.get(&node.id).zip(reserve) {
            Some((joined, reserve)) => room(*joined, *reserve),
            None => Outcome::Unknown(
                facts.problems.first().map_or_else(|| missing(&view.status), ToString::to_string),
            ),
        };
        (node.id.to_string(), outcome)
    };
    Findings::Of(facts.nodes.iter().filter(judged).map(one).collect())
}

fn room(node: NodeJoin, reserve: u64) -> Outcome {
    let (headroom, outstanding) = (node.headroom as f64 / GB, node.outstanding as f64 / GB);
    if node.outstanding > 0 && node.left() < 0 {
        let reason = format!(
            "services have yet to take {outstanding:.1} GB of host cache, there is room for \
             {:.1} GB",
            headroom.max(0.0)
        );
        Outcome::Fail(reason)
    } else if (node.headroom as f64) < -EATEN_MAX * reserve as f64 {
        let reserve = reserve as f64 / GB;
        Outcome::Fail(format!("{:.1} GB of the reserve of {reserve:.1} GB are gone", -headroom))
    } else {
        Outcome::Pass
    }
}

/// Tasks do not wait for memory, and none was killed for lack of it.
pub(super) fn memory_pressure(input: &Input<'_>, history: &mut History) -> Findings {
    let mut outcomes = Vec::new();
    let view = &input.facts.pressure;
    if let Some(facts) = view.facts.as_deref() {
        let memory = facts.entries.iter().find(|entry| entry.resource == Resource::Memory);
        let outcome = match memory.and_then(|entry| entry.stalled) {
            Some(stall) if stall.average[1] > STALLED_MAX => Outcome::Fail(format!(
                "all tasks waited for memory for {:.1} % of the last minute",
                stall.average[1] * 100.0
            )),
            Some(_) => Outcome::Pass,
            None => Outcome::Unknown(missing(&view.status)),
        };
        outcomes.push((NODE.to_owned(), outcome));
    } else if view.status.is_supported() {
        outcomes.push((NODE.to_owned(), Outcome::Unknown(missing(&view.status))));
    }
    for state in input.states {
        let Some(kills) = state.usage.and_then(|usage| usage.oom_kills) else { continue };
        let name = &state.service.name;
        let killed = history.grew("oom_kill", name, kills, WINDOW);
        let reason = || format!("the kernel killed a process of it within {WINDOW:.0?}");
        outcomes.push((name.clone(), if killed { Outcome::Fail(reason()) } else { Outcome::Pass }));
    }
    Findings::Of(outcomes)
}

/// Ports that KV transfer needs.
pub(super) fn required_links(input: &Input<'_>, history: &mut History) -> Findings {
    let wanted = &input.config.rdma_required;
    let view = &input.facts.rdma;
    let ports = view.facts.as_deref().map(|facts| facts.entries.as_slice());
    let one = |wanted: &crate::config::RdmaPort| {
        let scope = format!("{}/{}", wanted.device, wanted.port);
        let port = ports
            .unwrap_or_default()
            .iter()
            .find(|port| port.device == wanted.device && port.port == wanted.port);
        let complete = view.facts.as_ref().is_some_and(|facts| facts.problems.is_empty());
        let outcome = match port {
            Some(port) => link(port, &scope, history),
            None if complete || !view.status.is_supported() => {
                Outcome::Fail("this node has no such port".to_owned())
            }
            None => Outcome::Unknown(missing(&view.status)),
        };
        (scope, outcome)
    };
    Findings::Of(wanted.iter().map(one).collect())
}

/// Ports that nothing was said about. One that was never active since the start is not in use.
pub(super) fn other_links(input: &Input<'_>, history: &mut History) -> Findings {
    let view = &input.facts.rdma;
    let Some(facts) = view.facts.as_deref() else {
        return if view.status.is_supported() {
            Findings::Unknown(missing(&view.status))
        } else {
            Findings::Of(Vec::new())
        };
    };
    let wanted = |port: &&Port| {
        let named = |wanted: &crate::config::RdmaPort| {
            wanted.device == port.device && wanted.port == port.port
        };
        input.config.rdma_required.iter().any(named)
    };
    let mut outcomes = Vec::new();
    for port in facts.entries.iter().filter(|port| !wanted(port)) {
        let scope = format!("{}/{}", port.device, port.port);
        let active = f64::from(port.state == PortState::Active);
        let used = history.highest("active", &scope, active) > 0.0;
        let outcome = if used { link(port, &scope, history) } else { Outcome::Pass };
        outcomes.push((scope, outcome));
    }
    Findings::Of(outcomes)
}

fn link(port: &Port, scope: &str, history: &mut History) -> Outcome {
    let downed = port.errors.link_downed.unwrap_or_default();
    let went_down = history.grew("link_downed", scope, downed, WINDOW);
    if port.state != PortState::Active {
        return Outcome::Fail(format!("the port is {:?}", port.state).to_lowercase());
    }
    let best = history.highest("rate", scope, port.rate);
    if port.rate < best {
        let (now, best) = (port.rate * 8.0 / GB, best * 8.0 / GB);
        return Outcome::Fail(format!("it runs at {now:.0} Gb/s, it has run at {best:.0} Gb/s"));
    }
    if went_down {
        return Outcome::Fail(format!("the link went down within {WINDOW:.0?}"));
    }
    Outcome::Pass
}

/// Each collector has fresh data.
pub(super) fn collectors(input: &Input<'_>, _: &mut History) -> Findings {
    let supported = |status: &&&crate::slot::Status| status.is_supported();
    let statuses = input.facts.statuses();
    let one = |status: &&crate::slot::Status| {
        let outcome = if status.success && status.is_fresh() {
            Outcome::Pass
        } else if status.error.is_none() && status.last_success.is_none() && status.stuck.is_zero()
        {
            Outcome::Unknown(missing(status))
        } else {
            Outcome::Fail(missing(status))
        };
        (status.name.as_str().to_owned(), outcome)
    };
    Findings::Of(statuses.iter().filter(supported).map(one).collect())
}
