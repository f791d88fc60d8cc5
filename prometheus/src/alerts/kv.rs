//! Alerts about KV pools.

use super::{Alert, Layer, Panel, Severity};
use crate::labels::Tier;
use crate::promql::recorded as r;
use crate::promql::{Window, rate, sum};
use crate::server as m;
use crate::slo;

const fn pools(panel: &'static str) -> Option<Panel> {
    Some(Panel { board: "sightline-kv-pools", panel })
}

pub(super) fn alerts() -> Vec<Alert> {
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
