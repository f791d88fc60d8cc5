//! Alerts about what clients see.

use super::{Alert, Layer, Panel, Severity};
use crate::promql::recorded as r;
use crate::promql::{MODEL, Window, max, observations_within, observed, sum};
use crate::server as m;
use crate::slo;

const fn overview(panel: &'static str) -> Option<Panel> {
    Some(Panel { board: "sightline-overview", panel })
}

pub(super) fn alerts() -> Vec<Alert> {
    [burn(), vec![itl(), errors(), vanished()]].concat()
}

fn burn() -> Vec<Alert> {
    // Both windows must agree: the long one that it is serious, the short one that it goes on.
    let fast = r::SLO_BAD_H1
        .get()
        .above(slo::SLO_BAD_FAST_RATIO)
        .and(r::SLO_BAD_M5.get().above(slo::SLO_BAD_FAST_RATIO))
        .and(r::SLO_BAD_COUNT_H1.get().at_least(slo::SLO_BAD_FAST_MIN));
    let slow = r::SLO_BAD_H6
        .get()
        .above(slo::SLO_BAD_SLOW_RATIO)
        .and(r::SLO_BAD_M30.get().above(slo::SLO_BAD_SLOW_RATIO))
        .and(r::SLO_BAD_COUNT_H6.get().at_least(slo::SLO_BAD_SLOW_MIN));
    vec![
        Alert {
            name: "SloBudgetBurnFast",
            expr: fast,
            hold_seconds: 120,
            severity: Severity::Critical,
            layer: Some(Layer::Symptom),
            root_cause: false,
            summary: "{{ $labels.slo }} objective of {{ $labels.model_name }} burns its 30 day \
                      budget in about two days",
            runbook: "slo-burn",
            panel: overview("slo-bad"),
            threshold: Some(slo::SLO_BAD_FAST_RATIO),
        },
        Alert {
            name: "SloBudgetBurnSlow",
            expr: slow,
            hold_seconds: 900,
            severity: Severity::Warning,
            layer: Some(Layer::Symptom),
            root_cause: false,
            summary: "{{ $labels.slo }} objective of {{ $labels.model_name }} burns budget six \
                      times too fast",
            runbook: "slo-burn",
            panel: overview("slo-bad"),
            threshold: Some(slo::SLO_BAD_SLOW_RATIO),
        },
    ]
}

fn itl() -> Alert {
    let all = observations_within(m::INTER_TOKEN_LATENCY, f64::INFINITY, Window::M5);
    let tokens = sum(observed(all)).per_model();
    Alert {
        name: "InterTokenLatencyHigh",
        expr: r::ITL_P99
            .get()
            .above(slo::ITL_P99_SECONDS)
            .and_on(MODEL, tokens.above(slo::ITL_MIN_TOKENS_PER_SECOND)),
        hold_seconds: 300,
        severity: Severity::Warning,
        layer: Some(Layer::Symptom),
        root_cause: false,
        summary: "p99 inter-token latency of {{ $labels.model_name }} is \
                  {{ $value | humanizeDuration }}",
        runbook: "itl",
        panel: overview("itl"),
        threshold: Some(slo::ITL_P99_SECONDS),
    }
}

fn errors() -> Alert {
    let share = r::ERROR_RATIO.get().above(slo::ERROR_RATIO);
    let enough = r::ERROR_COUNT.get().at_least(slo::ERROR_MIN);
    let kinds = ["cluster", "model_name", "kind"];
    Alert {
        name: "ErrorRateHigh",
        expr: max(share.and_on(&kinds, enough)).per_model(),
        hold_seconds: 180,
        severity: Severity::Critical,
        layer: Some(Layer::Symptom),
        root_cause: false,
        summary: "{{ $value | humanizePercentage }} of requests for {{ $labels.model_name }} end \
                  in 5xx or find no worker",
        runbook: "error-rate",
        panel: overview("error-ratio"),
        threshold: Some(slo::ERROR_RATIO),
    }
}

fn vanished() -> Alert {
    let steady = r::OFFERED.avg_over(Window::H1).offset(Window::M10);
    Alert {
        name: "TrafficVanished",
        expr: r::OFFERED.get().equals(0.0).and(steady.above(slo::STEADY_REQUESTS_PER_SECOND)),
        hold_seconds: 300,
        severity: Severity::Warning,
        layer: Some(Layer::Symptom),
        root_cause: false,
        summary: "no request for {{ $labels.model_name }} has arrived for ten minutes after an \
                  hour of steady traffic",
        runbook: "traffic-vanished",
        panel: overview("offered"),
        threshold: None,
    }
}
