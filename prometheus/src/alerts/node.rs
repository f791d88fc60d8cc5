//! Alerts about hosts: their services, memory, cards, links, and the exporter that tells of them.
//!
//! Causes of this layer mute everything above on their host, so each is something that does not
//! mend itself; the verdict of the exporter is a symptom and catches what no cause names.

use super::{Alert, Layer, Panel, Severity};
use crate::def::{Gauge, Label, LabelSet};
use crate::labels::*;
use crate::node::{self as m, XIDS_CRITICAL};
use crate::promql::{
    Expr, Grouping, Keys, Selection, TARGET, Window, count, increase, max, max_over_time, min, sum,
    time, up,
};
use crate::slo;

/// Scrape job of the node exporters.
pub const NODE_JOB: &str = "sightline-node";

const fn board(panel: &'static str) -> Option<Panel> {
    Some(Panel { board: "sightline-node", panel })
}

pub(super) fn alerts() -> Vec<Alert> {
    [services(), host(), cards(), exporter()].concat()
}

/// A page about something of the host that is the cause of what happens above it.
fn cause(name: &'static str, expr: Expr, hold_seconds: u32) -> Alert {
    Alert {
        name,
        expr,
        hold_seconds,
        severity: Severity::Critical,
        layer: Some(Layer::Node),
        root_cause: true,
        summary: "",
        runbook: "",
        panel: None,
        threshold: None,
    }
}

/// Something to look at that neither mutes nor is muted.
fn note(name: &'static str, expr: Expr, hold_seconds: u32, severity: Severity) -> Alert {
    Alert { severity, layer: None, root_cause: false, ..cause(name, expr, hold_seconds) }
}

/// The largest value of each series that these labels tell apart on a host.
fn largest<L: LabelSet, At>(gauge: Gauge<L>, keys: impl Keys<L, At>) -> Expr {
    max(gauge).per_target_and(keys)
}

fn services() -> Vec<Alert> {
    let failed = max(m::SERVICE_STATE.is(ServiceState::Failed)).per_target_and(Service::KEY);
    let restarts = |window| max(increase(m::SERVICE_RESTARTS, window)).per_target_and(Service::KEY);
    let looping = restarts(Window::M10)
        .at_least(slo::RESTARTS_FAST)
        .or(restarts(Window::H1).at_least(slo::RESTARTS_SLOW));
    let killed = max(increase(m::SERVICE_OOM_KILLS, Window::M10)).per_target_and(Service::KEY);
    vec![
        Alert {
            summary: "{{ $labels.service }} on {{ $labels.node }} is in state failed and will not \
                      restart by itself",
            runbook: "service-failed",
            panel: board("service-state"),
            ..cause("ServiceFailed", failed.equals(1.0), 60)
        },
        Alert {
            summary: "{{ $labels.service }} on {{ $labels.node }} keeps restarting \
                      ({{ $value | humanize }} times)",
            runbook: "crash-loop",
            panel: board("service-restarts"),
            threshold: Some(slo::RESTARTS_FAST),
            ..cause("ServiceCrashLooping", looping, 0)
        },
        Alert {
            summary: "the kernel killed a process of {{ $labels.service }} on {{ $labels.node }} \
                      for lack of memory",
            runbook: "oom",
            panel: board("service-oom-kills"),
            ..cause("ServiceOomKilled", killed.above(0.0), 0)
        },
    ]
}

fn host() -> Vec<Alert> {
    let smallest = |gauge| min(gauge).per_target_and(NumaNode::KEY);
    // The exporter says the reserve of the nodes that are judged. One that says none at all is
    // taken to keep the usual share of each.
    let reserve = || largest(m::NUMA_RESERVE, NumaNode::KEY);
    let usual = largest(m::NUMA_MEMORY_TOTAL, NumaNode::KEY).times(slo::NUMA_RESERVE_RATIO);
    let usual = usual.unless_on(TARGET, reserve());
    let eaten = reserve().or(usual).times(slo::NUMA_HEADROOM_RATIO);
    vec![
        Alert {
            severity: Severity::Critical,
            layer: Some(Layer::Symptom),
            summary: "{{ $labels.node }} is not fit to serve; see \
                      sightline_node_health_check == 0 for the failing checks",
            runbook: "node-unhealthy",
            panel: board("verdict"),
            ..note("NodeUnhealthy", min(m::HEALTHY).per_target().equals(0.0), 300, Severity::None)
        },
        Alert {
            summary: "NUMA node {{ $labels.numa_node }} of {{ $labels.node }} is \
                      {{ $value | humanize1024 }}B past its reserve; a process bound to it is \
                      close to being killed",
            runbook: "numa-memory",
            panel: board("numa-headroom-share"),
            threshold: Some(slo::NUMA_HEADROOM_RATIO),
            ..cause("NumaMemoryLow", smallest(m::NUMA_HEADROOM).below(eaten), 120)
        },
        Alert {
            summary: "RDMA port {{ $labels.device }}/{{ $labels.port }} of {{ $labels.node }} is \
                      down",
            runbook: "rdma",
            panel: board("rdma-ports"),
            ..cause("RdmaLinkDown", link_down(), 60)
        },
    ]
}

/// A port that is down and matters: the configuration says so, or it was up within a day. One that
/// never had a cable does not.
fn link_down() -> Expr {
    let port = (RdmaDevice::KEY, RdmaPort::KEY);
    let on = [TARGET, &["device", "port"]].concat();
    let was_up = max(max_over_time(m::RDMA_PORT_UP, Window::D1)).per_target_and(port);
    let required = largest(m::RDMA_PORT_REQUIRED, port);
    let matters = required.equals(1.0).or(was_up.equals(1.0));
    min(m::RDMA_PORT_UP).per_target_and(port).equals(0.0).and_on(&on, matters)
}

/// How long a card may be away before that pages: longer than it is let go of on request
/// (`--nvml.release-time`, a minute by default) and found again.
pub const GPU_MISSING_HOLD_SECONDS: u32 = 90;

/// For how long a card that told why it goes is not missed: `GpuXidCritical` pages for ten minutes,
/// and when it ends this must have been held for long enough to take its place.
const GPU_TOLD: Window = Window::Fixed(600 - GPU_MISSING_HOLD_SECONDS - 30);

/// Growth of the counts of those errors that need a hand; two sources tell of one event.
fn xids(window: Window) -> Grouping<(Gpu, Uuid, Xid, XidSource)> {
    let codes = XIDS_CRITICAL.map(|code| Xid::new(code.to_string()));
    max(increase(m::GPU_XID_ERRORS.any_of(&codes), window))
}

/// More cards are gone than have told why: one fault makes one page, and another card that goes
/// silently meanwhile makes its own.
fn missing() -> Expr {
    let card = [TARGET, &["uuid"]].concat();
    let answers = max(m::GPU_UP).per_target_and(Uuid::KEY).equals(1.0);
    let told = xids(GPU_TOLD).per_target_and(Uuid::KEY).above(0.0).unless_on(&card, answers);
    let expected = max(m::GPUS.is(GpuCount::Expected)).per_target();
    let gone = expected.minus(min(m::GPUS.is(GpuCount::Responding)).per_target());
    let told = count(told).per_target().times(-1.0);
    sum(gone.labelled("of", "gone").or(told.labelled("of", "told"))).per_target().above(0.0)
}

fn cards() -> Vec<Alert> {
    let card = (Gpu::KEY, Uuid::KEY);
    let xids = xids(Window::M10).per_target_and((Gpu::KEY, Uuid::KEY, Xid::KEY));
    let uncorrected = increase(m::GPU_ECC_ERRORS.is(EccKind::Uncorrected), Window::M10);
    let slowed = m::GPU_THROTTLE_ACTIVE.any_of(&ThrottleReason::OF_HARDWARE);
    let slowed = max(slowed).per_target_and((Gpu::KEY, Uuid::KEY, ThrottleReason::KEY));
    vec![
        Alert {
            summary: "{{ $value }} GPUs of {{ $labels.node }} do not answer, and have not said why",
            runbook: "gpu-missing",
            panel: board("gpus-counted"),
            ..cause("GpuMissing", missing(), GPU_MISSING_HOLD_SECONDS)
        },
        Alert {
            summary: "GPU {{ $labels.gpu }} on {{ $labels.node }} raised Xid {{ $labels.xid }}",
            runbook: "gpu-xid",
            panel: board("gpu-xids"),
            ..cause("GpuXidCritical", xids.above(0.0), 0)
        },
        Alert {
            summary: "GPU {{ $labels.gpu }} on {{ $labels.node }} has new uncorrected ECC errors",
            runbook: "gpu-ecc",
            panel: board("gpu-ecc"),
            ..cause("GpuEccUncorrected", max(uncorrected).per_target_and(card).above(0.0), 0)
        },
        Alert {
            summary: "GPU {{ $labels.gpu }} on {{ $labels.node }} is slowed down by \
                      {{ $labels.reason }}",
            runbook: "gpu-throttle",
            panel: board("gpu-throttle"),
            ..note("GpuThrottled", slowed.equals(1.0), 300, Severity::Warning)
        },
    ]
}

fn exporter() -> Vec<Alert> {
    let on = [TARGET, &["collector"]].concat();
    let last = || largest(m::COLLECTOR_LAST_SUCCESS, Collector::KEY);
    let supported = |value| largest(m::COLLECTOR_SUPPORTED, Collector::KEY).equals(value);
    let interval = largest(m::COLLECTOR_INTERVAL, Collector::KEY);
    let age = |last: Expr| time().minus(last);
    // One that never worked is told of below, and one that this host cannot have is no failure.
    let stale = age(last().above(0.0))
        .above(slo::COLLECTOR_STALE_SECONDS)
        .unless_on(&on, age(last()).at_most(interval.times(slo::COLLECTOR_STALE_INTERVALS)))
        .unless_on(&on, supported(0.0));
    let never = last().equals(0.0).and_on(&on, supported(1.0));
    let target = (Cluster::KEY, Node::KEY, Job::KEY, Instance::KEY);
    vec![
        Alert {
            summary: "{{ $labels.collector }} collector on {{ $labels.node }} has had no fresh \
                      data for {{ $value | humanizeDuration }}",
            runbook: "exporter-stale",
            panel: board("collector-age"),
            threshold: Some(slo::COLLECTOR_STALE_SECONDS),
            ..note("ExporterStale", stale, 30, Severity::Warning)
        },
        Alert {
            summary: "{{ $labels.collector }} collector on {{ $labels.node }} is supported here \
                      and has never delivered; see collector_errors_total",
            runbook: "exporter-stale",
            panel: board("collector-errors"),
            ..note("CollectorNeverWorked", never, 900, Severity::Info)
        },
        Alert {
            summary: "the node exporter on {{ $labels.node }} does not answer scrapes; node alerts \
                      are blind there",
            runbook: "exporter-down",
            panel: board("exporters-up"),
            ..note("ExporterDown", min(up(NODE_JOB)).by(target).equals(0.0), 300, Severity::Warning)
        },
    ]
}
