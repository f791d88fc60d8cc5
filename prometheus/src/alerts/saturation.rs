//! Alerts about queues and the scheduler: what is coming, before clients see it.

use super::recording::servable;
use super::{Alert, Layer, Panel, Severity};
use crate::def::Label;
use crate::labels::*;
use crate::promql::recorded as r;
use crate::promql::{INSTANCE, Recorded, Selection, Window, max, sum, time};
use crate::server as m;
use crate::slo;

const fn queue(panel: &'static str) -> Option<Panel> {
    Some(Panel { board: "sightline-queue", panel })
}

pub(super) fn alerts() -> Vec<Alert> {
    [drain(), limits(), vec![turned_away(), oldest(), stalled(), collapsed()]].concat()
}

fn drain() -> Vec<Alert> {
    // A long queue behind nobody hurts nobody: two must wait, or one longer than that already.
    let slower_than = |seconds: f64| {
        let waits = r::QUEUED_REQUESTS.get().at_least(slo::DRAIN_MIN_REQUESTS);
        let long = r::QUEUE_OLDEST_AGE.get().above(seconds);
        r::QUEUE_DRAIN.get().above(seconds).and_on(INSTANCE, waits.or(long))
    };
    // Admission fills the queue up to the objective before it refuses, so that under load half of
    // the objective waits for as long as the load lasts, and everybody who is let in is served in
    // time. There the warnings are that the queue is nearly full and that somebody is refused; a
    // drain time on its way up is news where nothing stops it.
    let bounded = r::QUEUE_BOUND.get().at_most(slo::DRAIN_BOUND_SECONDS);
    vec![
        Alert {
            name: "PrefillQueueDrainSlow",
            expr: slower_than(slo::DRAIN_WARNING_SECONDS).unless_on(INSTANCE, bounded),
            hold_seconds: 120,
            severity: Severity::Warning,
            layer: Some(Layer::Symptom),
            root_cause: false,
            summary: "{{ $labels.instance }} needs {{ $value | humanizeDuration }} to prefill \
                      what is already queued",
            runbook: "queue-drain",
            panel: queue("drain-time"),
            threshold: Some(slo::DRAIN_WARNING_SECONDS),
        },
        Alert {
            name: "PrefillQueueDrainCritical",
            expr: slower_than(slo::DRAIN_CRITICAL_SECONDS),
            hold_seconds: 30,
            severity: Severity::Critical,
            layer: Some(Layer::Queue),
            root_cause: true,
            summary: "{{ $labels.instance }} queue holds {{ $value | humanizeDuration }} of \
                      prefill work; TTFT is at least that for new requests",
            runbook: "queue-drain",
            panel: queue("drain-time"),
            threshold: Some(slo::DRAIN_CRITICAL_SECONDS),
        },
    ]
}

fn limits() -> Vec<Alert> {
    let engines = m::ADMISSION_QUEUE_LIMIT_REQUESTS.matching(Role::KEY, "prefill|decode|unified");
    let refused = r::REFUSED.get().times(300.0).at_least(slo::REFUSED_MIN);
    vec![
        Alert {
            name: "QueueNearLimit",
            expr: r::QUEUE_FILL.get().above(slo::QUEUE_FILL_RATIO),
            hold_seconds: 120,
            severity: Severity::Warning,
            layer: Some(Layer::Symptom),
            root_cause: false,
            summary: "{{ $labels.instance }} queue at {{ $value | humanizePercentage }} of its \
                      limit of {{ $labels.limit }}",
            runbook: "queue-limit",
            panel: queue("queue-fill"),
            threshold: Some(slo::QUEUE_FILL_RATIO),
        },
        Alert {
            name: "QueueUnbounded",
            expr: max(engines).per_instance().equals(0.0),
            hold_seconds: 300,
            severity: Severity::Warning,
            layer: None,
            root_cause: false,
            summary: "{{ $labels.instance }} runs without a queue limit",
            runbook: "queue-limit",
            panel: queue("queue-depth"),
            threshold: None,
        },
        Alert {
            name: "RequestsRejected",
            expr: r::REFUSED_RATIO.get().above(slo::REFUSED_RATIO).and_on(INSTANCE, refused),
            hold_seconds: 300,
            severity: Severity::Warning,
            layer: Some(Layer::Symptom),
            root_cause: false,
            summary: "{{ $labels.instance }} refuses {{ $value | humanizePercentage }} of offered \
                      requests for lack of capacity (429)",
            runbook: "rejections",
            panel: queue("refused-ratio"),
            threshold: Some(slo::REFUSED_RATIO),
        },
    ]
}

/// Refusing is right while a burst lasts, and the burn of the budget leaves it out. Where most are
/// refused for long there is an outage, whatever those few see who are let in: nothing else pages
/// for it. A planned overload of that length, a load test say, pages as well: there is no telling
/// them apart from here.
fn turned_away() -> Alert {
    // Both windows must agree: the long one that it is serious, the short one that it goes on.
    let most = |series: Recorded| series.get().above(slo::TURNED_AWAY_RATIO);
    let in_five_minutes = servable(Window::M5).times(300.0);
    Alert {
        name: "MostRequestsRefused",
        expr: most(r::TURNED_AWAY_M30)
            .and(most(r::TURNED_AWAY_M5))
            .and(in_five_minutes.at_least(slo::TURNED_AWAY_MIN_REQUESTS)),
        hold_seconds: 900,
        severity: Severity::Critical,
        layer: Some(Layer::Symptom),
        root_cause: false,
        summary: "{{ $value | humanizePercentage }} of requests for {{ $labels.model_name }} have \
                  been refused for lack of capacity for half an hour",
        runbook: "rejections",
        panel: queue("refused-ratio"),
        threshold: Some(slo::TURNED_AWAY_RATIO),
    }
}

fn oldest() -> Alert {
    let age = max(m::QUEUE_OLDEST_REQUEST_AGE).per_instance_and(Queue::KEY);
    Alert {
        name: "OldestQueuedRequestTooOld",
        expr: age.above(slo::OLDEST_REQUEST_SECONDS),
        hold_seconds: 30,
        severity: Severity::Critical,
        layer: Some(Layer::Symptom),
        root_cause: false,
        summary: "oldest request in {{ $labels.queue }} on {{ $labels.instance }} has waited \
                  {{ $value | humanizeDuration }}",
        runbook: "oldest-request",
        panel: queue("oldest-age"),
        threshold: Some(slo::OLDEST_REQUEST_SECONDS),
    }
}

fn stalled() -> Alert {
    // One scheduler for each data-parallel rank: one may hang while the others turn.
    let rank: Vec<_> = INSTANCE.iter().copied().chain(["dp_rank"]).collect();
    let turned = max(m::SCHEDULER_LAST_ITERATION).per_scheduler();
    let queued = sum(m::QUEUE_REQUESTS).per_scheduler().above(0.0);
    let running = sum(m::RUNNING_REQUESTS).per_scheduler().above(0.0);
    Alert {
        name: "SchedulerStalled",
        expr: time().minus(turned).above(slo::STALL_SECONDS).and_on(&rank, queued.or(running)),
        hold_seconds: 15,
        severity: Severity::Critical,
        layer: Some(Layer::Process),
        root_cause: true,
        summary: "scheduler loop on {{ $labels.instance }} has not turned for \
                  {{ $value | humanizeDuration }} with work queued or running",
        runbook: "scheduler-stalled",
        panel: queue("heartbeat-age"),
        threshold: Some(slo::STALL_SECONDS),
    }
}

fn collapsed() -> Alert {
    let usual = r::PREFILL_CAPACITY.avg_over(Window::H2).offset(Window::M10);
    let pending = || r::PENDING_UNCACHED_TOKENS.get();
    let limit = max(m::ADMISSION_QUEUE_LIMIT_TOKENS).per_instance().above(0.0);
    let full = pending().above(limit.times(slo::CAPACITY_COLLAPSED_MIN_FILL));
    let waits = pending().above(slo::CAPACITY_COLLAPSED_MIN_TOKENS).or(full);
    Alert {
        name: "PrefillThroughputCollapsed",
        expr: r::PREFILL_CAPACITY
            .get()
            .below(usual.times(slo::CAPACITY_COLLAPSED_RATIO))
            .and_on(INSTANCE, waits),
        hold_seconds: 300,
        severity: Severity::Warning,
        layer: None,
        root_cause: false,
        summary: "prefill on {{ $labels.instance }} computes {{ $value | humanize }} tokens per \
                  busy second, less than half of the last two hours, while work is queued",
        runbook: "prefill-throughput",
        panel: queue("prefill-capacity"),
        threshold: None,
    }
}
