//! The families of services.

use std::time::{Duration, SystemTime};

use metric_catalog::labels::{self, MempolicyKind, NumaNode, PolicyNodes, ServiceState};
use metric_catalog::node as catalog;
use metric_catalog::page::Page;
use node_info::{Limit, Mempolicy, Mode};

use super::State;
use crate::facts::Facts;

/// Puts what is known of services on the page.
pub fn service(states: &[State<'_>], facts: &Facts, page: &mut Page) {
    for state in states {
        let name = || labels::Service::new(state.service.name.clone());
        for value in ServiceState::ALL {
            page.flag(catalog::SERVICE_STATE, (name(), *value), *value == state.state);
        }
        if let Some(restarts) = state.restarts {
            page.counter(catalog::SERVICE_RESTARTS, (name(),), restarts);
        }
        if let Some(started) = state.started {
            page.gauge(catalog::SERVICE_START, (name(),), seconds(started));
        }
        if let Some(probe) = state.probe {
            page.flag(catalog::SERVICE_PROBE_SUCCESS, (name(),), probe.is_success());
            page.gauge(catalog::SERVICE_PROBE_DURATION, (name(),), probe.took.as_secs_f64());
            let status = probe.status.unwrap_or(0);
            page.gauge(catalog::SERVICE_PROBE_STATUS, (name(),), f64::from(status));
        }
        memory(state, facts, page);
    }
}

fn memory(state: &State<'_>, facts: &Facts, page: &mut Page) {
    let name = || labels::Service::new(state.service.name.clone());
    // A counter is shown as it was last.
    let last = facts.cgroup.last_good.as_deref();
    if let Some(kills) = last.and_then(|groups| groups.0.get(&state.service.name)?.oom_kills) {
        page.counter(catalog::SERVICE_OOM_KILLS, (name(),), kills);
    }
    let Some(usage) = state.usage else { return };
    if let Some(group) = &usage.group {
        if let Some(current) = group.current {
            page.gauge(catalog::SERVICE_MEMORY_CURRENT, (name(),), current as f64);
        }
        if let Some(Limit::Bytes(most)) = group.max {
            page.gauge(catalog::SERVICE_MEMORY_MAX, (name(),), most as f64);
        }
        for node in group.nodes.iter().flatten() {
            let id = NumaNode::new(node.node.to_string());
            page.gauge(catalog::SERVICE_NUMA_RESIDENT, (name(), id), node.resident() as f64);
        }
    }
    if let Some(locked) = usage.locked {
        page.gauge(catalog::SERVICE_LOCKED, (name(),), locked as f64);
    }
    if let Some(policy) = &usage.policy {
        let labels = (name(), kind(policy.mode), nodes(policy));
        page.gauge(catalog::SERVICE_MEMPOLICY_INFO, labels, 1.0);
    }
}

const fn kind(mode: Mode) -> MempolicyKind {
    match mode {
        Mode::Default => MempolicyKind::Default,
        Mode::Local => MempolicyKind::Local,
        Mode::Bind => MempolicyKind::Bind,
        Mode::Interleave => MempolicyKind::Interleave,
        Mode::WeightedInterleave => MempolicyKind::WeightedInterleave,
        Mode::Prefer => MempolicyKind::Preferred,
        Mode::PreferMany => MempolicyKind::PreferredMany,
    }
}

/// The nodes as the kernel lists them.
fn nodes(policy: &Mempolicy) -> PolicyNodes {
    let Some(nodes) = &policy.nodes else { return PolicyNodes::new("many") };
    let mut text = String::new();
    let mut rest = nodes.as_slice();
    while let [first, ..] = rest {
        let run = rest.iter().zip(*first..).take_while(|(node, next)| **node == *next).count();
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&first.to_string());
        if run > 1 {
            text.push_str(&format!("-{}", rest[run - 1]));
        }
        rest = &rest[run..];
    }
    PolicyNodes::new(if text.is_empty() { "none".to_owned() } else { text })
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use metric_catalog::def::Label;

    use super::*;

    #[test]
    fn nodes_are_written_as_the_kernel_does() {
        let text = |nodes: Option<&[u32]>| {
            let policy = Mempolicy { mode: Mode::Bind, nodes: nodes.map(<[u32]>::to_vec) };
            super::nodes(&policy).value().into_owned()
        };
        assert_eq!(text(Some(&[0])), "0");
        assert_eq!(text(Some(&[0, 1, 2, 5, 7, 8])), "0-2,5,7-8");
        assert_eq!(text(Some(&[])), "none");
        assert_eq!(text(None), "many");
    }
}
