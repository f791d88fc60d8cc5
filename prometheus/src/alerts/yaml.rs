//! The text of a rule file.
//!
//! Only the small part of YAML that rule files need: every scalar that could be read as something
//! else is quoted, expressions are literal blocks.

use std::fmt::Write;

use super::{Alert, Group, Recording};
use crate::promql::{Expr, Scope, duration};

/// Whether annotations are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Annotations {
    Keep,
    Drop,
}

const HEADER: &str = "\
# Made from prometheus/src/alerts.rs; do not edit. `SIGHTLINE_UPDATE=1 cargo test -p metric-catalog`
# writes it again.
groups:
";

pub(super) fn write(groups: &[Group], annotations: Annotations) -> String {
    let mut out = HEADER.to_owned();
    for group in groups {
        line(&mut out, 2, format_args!("- name: {}", group.name));
        if let Some(seconds) = group.interval_seconds {
            line(&mut out, 4, format_args!("interval: {}", duration(seconds)));
        }
        line(&mut out, 4, format_args!("rules:"));
        for recording in &group.recordings {
            write_recording(&mut out, recording);
        }
        for alert in &group.alerts {
            write_alert(&mut out, alert, annotations);
        }
    }
    out
}

fn line(out: &mut String, indent: usize, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{:indent$}{text}", "").expect("writing to a String cannot fail");
}

fn write_recording(out: &mut String, recording: &Recording) {
    line(out, 6, format_args!("- record: {}", recording.series.name));
    write_expr(out, &recording.expr);
}

fn write_expr(out: &mut String, expr: &Expr) {
    line(out, 8, format_args!("expr: |-"));
    for text in expr.pretty(&Scope::NONE).lines() {
        line(out, 10, format_args!("{text}"));
    }
}

fn write_alert(out: &mut String, alert: &Alert, annotations: Annotations) {
    line(out, 6, format_args!("- alert: {}", alert.name));
    write_expr(out, &alert.expr);
    if alert.hold_seconds > 0 {
        line(out, 8, format_args!("for: {}", duration(alert.hold_seconds)));
    }
    if alert.keep_seconds() > 0 {
        line(out, 8, format_args!("keep_firing_for: {}", duration(alert.keep_seconds())));
    }
    line(out, 8, format_args!("labels:"));
    line(out, 10, format_args!("severity: {:?}", alert.severity.as_str()));
    if alert.root_cause {
        line(out, 10, format_args!("root_cause: \"true\""));
    }
    if let Some(layer) = alert.layer {
        line(out, 10, format_args!("layer: {}", layer.as_str()));
    }
    if annotations == Annotations::Keep {
        line(out, 8, format_args!("annotations:"));
        line(out, 10, format_args!("summary: {:?}", alert.summary));
        line(out, 10, format_args!("runbook: {}", alert.runbook));
        if let Some(panel) = alert.panel {
            line(out, 10, format_args!("dashboard: {}", panel.board));
            line(out, 10, format_args!("panel: {}", panel.panel));
        }
    }
}
