//! Addresses that panels, boards and rules point to, and what connects panels with alerts.
//!
//! Addresses are relative, so that they hold behind any host name.

use metric_catalog::alerts::{Alert, alerts_of as alerts_of_target};
use metric_catalog::target::Target;
use std::sync::LazyLock;

/// The tag that all our boards carry.
pub const TAG: &str = "sightline";

/// The runbook, as Grafana serves it from its public folder.
pub const RUNBOOK: &str = "/public/sightline/runbook.md";

/// Grafana's list of alert rules, those of Prometheus among them.
pub const ALERT_LIST: &str = "/alerting/list";

/// The alerts of all targets, ours first, made once.
static ALERTS: LazyLock<Vec<Alert>> =
    LazyLock::new(|| Target::ALL.iter().flat_map(|target| alerts_of_target(*target)).collect());

/// A dashboard.
#[must_use]
pub fn board(uid: &str) -> String {
    format!("/d/{uid}")
}

/// A dashboard, with the range and the choices of the one that links to it.
#[must_use]
pub fn board_like_this(uid: &str) -> String {
    format!("{}?${{__url_time_range}}&${{__all_variables}}", board(uid))
}

/// A dashboard with the value that a series has of a label, and the range of the one that links.
#[must_use]
pub fn board_of_series(uid: &str, label: &str) -> String {
    format!("{}?${{__url_time_range}}&var-{label}=${{__field.labels.{label}}}", board(uid))
}

/// The list of alert rules with one of them: its state, and since when.
#[must_use]
pub fn alert_list(name: &str) -> String {
    format!("{ALERT_LIST}?search=rule:{name}")
}

/// The section of the runbook for an alert.
#[must_use]
pub fn runbook(anchor: &str) -> String {
    format!("{RUNBOOK}#{anchor}")
}

/// Every alert of every target; one that several targets have is there as often.
#[must_use]
pub fn all_alerts() -> &'static [Alert] {
    &ALERTS
}

/// The alert of that name; ours, where other targets have one of the name.
#[must_use]
pub fn alert(name: &str) -> Option<&'static Alert> {
    ALERTS.iter().find(|alert| alert.name == name)
}

/// Alerts that point to a panel.
pub fn alerts_of(uid: &str, slug: &str) -> impl Iterator<Item = &'static Alert> {
    ALERTS
        .iter()
        .filter(move |alert| alert.panel.is_some_and(|p| p.board == uid && p.panel == slug))
}

/// Whether the runbook has such a section: every alert's is one.
#[must_use]
pub fn is_anchor(anchor: &str) -> bool {
    ALERTS.iter().any(|alert| alert.runbook == anchor)
}
