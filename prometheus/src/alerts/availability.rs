//! Alerts about processes that are gone, and the one that proves that alerts arrive.

use super::{Alert, Layer, Panel, SERVING_JOBS, Severity};
use crate::def::Label;
use crate::labels::*;
use crate::promql::recorded as r;
use crate::promql::{Expr, Window, last_over_time, max, min, up, vector};
use crate::server as m;

/// Labels by which planned work is known to be about a role.
const PLANNED: &[&str] = &["cluster", "engine_role"];

pub(super) fn alerts() -> Vec<Alert> {
    vec![target_down(), role_missing(), replicas_dropped(), watchdog()]
}

fn target_down() -> Alert {
    let target = ["cluster", "job", "instance"];
    let down = || -> Expr {
        let by = (Cluster::KEY, Node::KEY, Job::KEY, Instance::KEY);
        min(up(SERVING_JOBS)).by(by).equals(0.0)
    };
    // What it served is known from its last scrapes, so that only that model's symptoms are muted.
    let served = max(last_over_time(m::SERVED_MODEL_INFO, Window::D1)).by((
        Cluster::KEY,
        Job::KEY,
        Instance::KEY,
        Role::KEY,
        ModelName::KEY,
    ));
    let planned = r::MAINTENANCE.get().copied("engine_role", "job", "sightline-");
    Alert {
        name: "TargetDown",
        expr: served
            .joined_with(&target, &["node"], down())
            .or_on(&target, down())
            .unless_on(&["cluster", "node", "job"], planned),
        hold_seconds: 180,
        severity: Severity::Critical,
        layer: Some(Layer::Process),
        root_cause: true,
        summary: "{{ $labels.job }} {{ $labels.instance }} does not answer scrapes",
        runbook: "target-down",
        panel: Some(Panel { board: "sightline-overview", panel: "targets-up" }),
        threshold: None,
    }
}

fn role_missing() -> Alert {
    // Comparing with what was there: a series that is gone has no labels to fire with.
    let expected = r::EXPECTED_REPLICAS.get().above(0.0);
    let was_there = expected.or(r::LIVE_REPLICAS.max_over(Window::H6).above(0.0));
    Alert {
        name: "RoleMissing",
        expr: was_there
            .unless_on(r::ROLE, r::LIVE_REPLICAS.get().above(0.0))
            .unless_on(PLANNED, r::MAINTENANCE),
        hold_seconds: 240,
        severity: Severity::Critical,
        layer: Some(Layer::Role),
        root_cause: true,
        summary: "no {{ $labels.engine_role }} instance of {{ $labels.model_name }} is ready; \
                  {{ $value }} expected",
        runbook: "role-missing",
        panel: Some(Panel { board: "sightline-pd-flow", panel: "replicas" }),
        threshold: None,
    }
}

fn replicas_dropped() -> Alert {
    Alert {
        name: "LiveReplicasDropped",
        expr: r::LIVE_REPLICAS
            .get()
            .below(r::EXPECTED_REPLICAS)
            .and_on(r::ROLE, r::LIVE_REPLICAS.get().above(0.0))
            .unless_on(PLANNED, r::MAINTENANCE),
        hold_seconds: 300,
        severity: Severity::Warning,
        layer: Some(Layer::Symptom),
        root_cause: false,
        summary: "only {{ $value }} {{ $labels.engine_role }} instances of \
                  {{ $labels.model_name }} are ready, fewer than declared or than an hour ago",
        runbook: "role-missing",
        panel: Some(Panel { board: "sightline-pd-flow", panel: "replicas" }),
        threshold: None,
    }
}

fn watchdog() -> Alert {
    Alert {
        name: "Watchdog",
        expr: vector(1.0),
        hold_seconds: 0,
        severity: Severity::None,
        layer: None,
        root_cause: false,
        summary: "always firing; its absence means the alert path is broken",
        runbook: "watchdog",
        panel: None,
        threshold: None,
    }
}
