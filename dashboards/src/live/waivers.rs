//! Series that a healthy system may lack, and why: a panel that reads them may be empty there.
//!
//! By name and not by panel, because whether a series exists depends on what is deployed, not on
//! who looks. Everything else is expected to exist as soon as a process is scraped, since processes
//! export every series of theirs at 0 before the first request.

use metric_catalog::engines::vllm;
use metric_catalog::node;
use metric_catalog::promql::recorded;

/// A family of the exporter, whose first words others share, and why hosts lack all of these.
const PARTS: &[(&str, &str, &str)] = &[
    (
        node::GPU_UP.name(),
        "up",
        "this host has no cards of NVIDIA, or the exporter may not see them",
    ),
    (node::RDMA_PORT_UP.name(), "port_up", "this host has no RDMA ports"),
    (
        node::HOSTCACHE_TARGET.name(),
        "target_bytes",
        "the exporter is told of no service with a host cache",
    ),
    (
        node::HICACHE_RATIO_MAX.name(),
        "ratio_max",
        "the exporter is told of no service with a host cache",
    ),
    (
        node::SERVICE_STATE.name(),
        "state",
        "the exporter is told of no service, or of none that a service manager runs",
    ),
];

/// Series of rules, and when they are made.
const MADE: &[(&str, &str)] = &[
    (recorded::PREFILL_CAPACITY.name, CAPACITY),
    (recorded::QUEUE_DRAIN.name, CAPACITY),
    (recorded::QUEUE_BOUND.name, CAPACITY),
    (recorded::MAINTENANCE.name, "no restart is planned for now: `sightline rollout` writes it"),
];

/// Why nothing tells how fast prompts are computed.
const CAPACITY: &str = "prefill was busy for less than a twentieth of five minutes, \
     so that nothing says how fast it is: put load on it";

/// Why a healthy system may lack the series; none where it may not.
#[must_use]
pub fn reason(name: &str) -> Option<&'static str> {
    if matches!(name, "ALERTS" | "ALERTS_FOR_STATE") {
        return Some("no alert is pending or fires");
    }
    if is_old_name(name) {
        return Some("the name in old versions; the new one is read as well");
    }
    let of_host = PARTS.iter().find_map(|(family, last, why)| {
        let start = family.strip_suffix(last)?;
        name.starts_with(start).then_some(*why)
    });
    of_host.or_else(|| MADE.iter().find(|(made, _)| *made == name).map(|(_, why)| *why))
}

/// Whether queries read the series only beside another name of the same thing.
pub(crate) fn is_old_name(name: &str) -> bool {
    let family = name.strip_suffix("_bucket").unwrap_or(name);
    [vllm::TIME_PER_OUTPUT_TOKEN.name(), vllm::GPU_CACHE_USAGE_PERC.name()].contains(&family)
}
