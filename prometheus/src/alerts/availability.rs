//! Alerts about processes that are gone, and the one that proves that alerts arrive.

use super::{Alert, Layer, Panel, SERVING_JOBS, Severity};
use crate::def::Label;
use crate::labels::*;
use crate::promql::{Expr, Window, last_over_time, max, min, up, vector};
use crate::server as m;

pub(super) fn alerts() -> Vec<Alert> {
    vec![target_down(), watchdog()]
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
    Alert {
        name: "TargetDown",
        expr: served.joined_with(&target, &["node"], down()).or_on(&target, down()),
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
