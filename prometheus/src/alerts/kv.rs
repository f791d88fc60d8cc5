//! Alerts about KV pools.

use super::{Alert, Layer, Panel, Severity};
use crate::def::Label;
use crate::labels::{HostcacheSource, Local, Pool, Service, TargetSource, Tier};
use crate::promql::recorded as r;
use crate::promql::{Expr, INSTANCE, Selection, TARGET, Window, group, max, min, rate, ratio, sum};
use crate::server as m;
use crate::{node, slo};

const fn pools(panel: &'static str) -> Option<Panel> {
    Some(Panel { board: "sightline-kv-pools", panel })
}

const fn hicache(panel: &'static str) -> Option<Panel> {
    Some(Panel { board: "sightline-hicache", panel })
}

pub(super) fn alerts() -> Vec<Alert> {
    [device(), host()].concat()
}

fn device() -> Vec<Alert> {
    // Cached pages are free for the taking, so only pinned ones count.
    let active = r::POOL_ACTIVE.is(Tier::Device).above(slo::POOL_ACTIVE_RATIO);
    let retractions = sum(rate(m::PREEMPTIONS, Window::M5)).per_instance();
    vec![
        Alert {
            name: "DevicePoolExhausted",
            expr: active,
            hold_seconds: 300,
            severity: Severity::Warning,
            layer: Some(Layer::Symptom),
            root_cause: false,
            summary: "device pool {{ $labels.pool }} on {{ $labels.instance }} is \
                      {{ $value | humanizePercentage }} pinned by live requests",
            runbook: "device-pool",
            panel: pools("pool-active"),
            threshold: Some(slo::POOL_ACTIVE_RATIO),
        },
        Alert {
            name: "RetractionStorm",
            expr: retractions.above(slo::RETRACTIONS_PER_SECOND),
            hold_seconds: 300,
            severity: Severity::Warning,
            layer: Some(Layer::Symptom),
            root_cause: false,
            summary: "{{ $labels.instance }} retracts {{ $value | humanize }} requests per second",
            runbook: "device-pool",
            panel: pools("preemptions"),
            threshold: Some(slo::RETRACTIONS_PER_SECOND),
        },
    ]
}

/// A host pool that is full and gives up far more pages than it serves.
fn thrashing() -> Expr {
    let evicted = rate(m::KV_POOL_EVICTED_SLOTS.is(Tier::Host), Window::M10);
    let evicted = sum(evicted).per_instance_and(Pool::KEY);
    let hits = sum(rate(m::KV_POOL_HIT_SLOTS.is(Tier::Host), Window::M10));
    let churn = evicted.above(hits.per_instance_and(Pool::KEY).times(slo::HOST_EVICTIONS_PER_HIT));
    let on = [INSTANCE, &["pool"]].concat();
    r::POOL_USED.is(Tier::Host).above(slo::HOST_POOL_FULL_RATIO).and_on(&on, churn)
}

/// Bytes of the host tier where they are much less than what was wanted, or, where nobody said
/// what is wanted, than what the flags ask for. The exporter of the host may know what is wanted
/// where the process does not.
fn undersized() -> Expr {
    let held = sum(m::KV_POOL_CAPACITY_BYTES.is(Tier::Host)).per_instance();
    let target = max(m::HICACHE_TARGET_BYTES).per_instance().above(0.0);
    let wanted = target.or(max(m::HICACHE_REQUESTED_BYTES).per_instance().above(0.0));
    let service = Service::KEY;
    let held_by_service = sum(node::HOSTCACHE_ALLOCATED).per_target_and(service);
    let target = node::HOSTCACHE_TARGET.none_of(&[TargetSource::Metrics]);
    let target = max(target).per_target_and(service).above(0.0);
    held.below(wanted.times(slo::HOST_UNDERSIZED_RATIO))
        .or(held_by_service.below(target.times(slo::HOST_UNDERSIZED_RATIO)))
}

/// Share of a host tier on other nodes than meant; of services that do not say, as their host's
/// exporter finds it.
fn off_node() -> Expr {
    let elsewhere = sum(m::HOST_POOL_NUMA_BYTES.is(Local::False)).per_instance();
    let share = ratio(elsewhere, sum(m::HOST_POOL_NUMA_BYTES).per_instance());
    let service = Service::KEY;
    let found = Expr::from(1.0).minus(min(node::HOSTCACHE_LOCAL).per_target_and(service));
    let silent = node::HOSTCACHE_ALLOCATED.none_of(&[HostcacheSource::Metrics]);
    let silent = group(silent).per_target_and(service);
    let on = [TARGET, &["service"]].concat();
    share
        .above(slo::HOST_OFF_NODE_RATIO)
        .or(found.above(slo::HOST_OFF_NODE_RATIO).and_on(&on, silent))
}

fn host() -> Vec<Alert> {
    vec![
        Alert {
            name: "HostPoolThrashing",
            expr: thrashing(),
            hold_seconds: 600,
            severity: Severity::Info,
            layer: None,
            root_cause: false,
            summary: "host pool {{ $labels.pool }} on {{ $labels.instance }} is full and evicts \
                      far more than it serves",
            runbook: "host-pool",
            panel: hicache("host-pool-fill"),
            threshold: Some(slo::HOST_POOL_FULL_RATIO),
        },
        Alert {
            name: "HostCacheUndersized",
            expr: undersized(),
            hold_seconds: 300,
            severity: Severity::Warning,
            layer: None,
            root_cause: false,
            summary: "host cache on {{ $labels.instance }} {{ $labels.service }} is \
                      {{ $value | humanize1024 }}B, less than half of what was wanted",
            runbook: "host-cache-size",
            panel: hicache("host-bytes"),
            threshold: None,
        },
        Alert {
            name: "HostCacheOffNode",
            expr: off_node(),
            hold_seconds: 600,
            severity: Severity::Warning,
            layer: None,
            root_cause: false,
            summary: "{{ $value | humanizePercentage }} of the host cache of \
                      {{ $labels.instance }} {{ $labels.service }} sits on the wrong NUMA node",
            runbook: "numa",
            panel: hicache("numa-off-node"),
            threshold: Some(slo::HOST_OFF_NODE_RATIO),
        },
    ]
}
