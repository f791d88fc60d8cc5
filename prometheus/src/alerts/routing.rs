//! Who is told of an alert: routes and inhibition, as data, as Alertmanager's configuration, and as
//! a function for tests and replays.
//!
//! A firing cause mutes alerts of higher layers about the same thing, so that one fault makes one
//! page. A muted cause still mutes. Receivers have no addresses here: those are the operator's.

use std::collections::BTreeMap;
use std::fmt::Write;

#[cfg(test)]
mod tests;

/// Labels of one firing alert, `alertname` included.
pub type Labels = BTreeMap<String, String>;

/// A condition on one label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// It has this value.
    Is(&'static str, &'static str),
    /// It has one of these values.
    AnyOf(&'static str, &'static [&'static str]),
    /// It is there and not empty.
    Present(&'static str),
}

impl Condition {
    fn holds(&self, labels: &Labels) -> bool {
        let value = |label: &str| labels.get(label).map_or("", String::as_str);
        match *self {
            Self::Is(label, wanted) => value(label) == wanted,
            Self::AnyOf(label, wanted) => wanted.contains(&value(label)),
            Self::Present(label) => !value(label).is_empty(),
        }
    }

    fn matcher(&self) -> String {
        match *self {
            Self::Is(label, value) => format!("{label}=\"{value}\""),
            Self::AnyOf(label, values) => format!("{label}=~\"{}\"", values.join("|")),
            Self::Present(label) => format!("{label}=~\".+\""),
        }
    }
}

/// An alert that matches `source` mutes those that match `target` and agree in `equal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inhibition {
    /// Conditions on the cause.
    pub source: &'static [Condition],
    /// Conditions on what it mutes.
    pub target: &'static [Condition],
    /// Labels that are the same on both, or on neither.
    pub equal: &'static [&'static str],
}

use Condition::{AnyOf, Is, Present};

const CAUSE: Condition = Is("root_cause", "true");
const MODEL: &[&str] = &["cluster", "model_name"];
const HOST: &[&str] = &["cluster", "node"];

/// A cause of a lower layer mutes what follows from it, on its host or of its model.
pub const INHIBITIONS: &[Inhibition] = &[
    Inhibition {
        source: &[CAUSE, Is("layer", "node"), Present("node")],
        target: &[AnyOf("layer", &["process", "role", "queue", "symptom"])],
        equal: HOST,
    },
    Inhibition {
        source: &[CAUSE, Is("layer", "process"), Present("model_name")],
        target: &[AnyOf("layer", &["role", "queue", "symptom"])],
        equal: MODEL,
    },
    Inhibition {
        source: &[CAUSE, Is("layer", "role"), Present("model_name")],
        target: &[AnyOf("layer", &["queue", "symptom"])],
        equal: MODEL,
    },
    Inhibition {
        source: &[CAUSE, Is("layer", "queue"), Present("model_name")],
        target: &[Is("layer", "symptom")],
        equal: MODEL,
    },
    Inhibition {
        source: &[CAUSE, Is("layer", "process"), Present("node")],
        target: &[Is("alertname", "NodeUnhealthy")],
        equal: HOST,
    },
];

/// What one notification is about.
const GROUPED_BY: &[&str] = &["alertname", "cluster", "model_name", "node"];

/// Where alerts of a kind go.
#[derive(Debug)]
struct Route {
    of: Condition,
    receiver: &'static str,
    /// Waits of its own, one line each.
    timing: &'static [&'static str],
}

/// The routes, first match first; all others go to `tickets`.
///
/// The watchdog has a receiver of its own, which is told every minute: it is what nobody may be
/// told of seldom, because only its absence is news.
const ROUTES: &[Route] = &[
    Route {
        of: Is("alertname", "Watchdog"),
        receiver: "deadman",
        timing: &["group_wait: 0s", "group_interval: 1m", "repeat_interval: 1m"],
    },
    Route { of: Is("severity", "critical"), receiver: "pager", timing: &[] },
    Route { of: AnyOf("severity", &["info", "none"]), receiver: "log", timing: &[] },
];

/// Receivers, each with an example of what to put there.
const RECEIVERS: &[(&str, &[&str])] = &[
    ("pager", &["pagerduty_configs:", "  - routing_key: YOUR_KEY"]),
    (
        "tickets",
        &[
            "email_configs:",
            "  - {to: team@example.com, from: alerts@example.com, smarthost: 'mail.example:587'}",
        ],
    ),
    ("log", &["webhook_configs:", "  - {url: 'http://127.0.0.1:9095/log', send_resolved: true}"]),
    (
        "deadman",
        &["webhook_configs:", "  - {url: 'https://example.com/heartbeat', send_resolved: false}"],
    ),
];

/// Of the alerts that fire, those that wake somebody up: critical ones that no cause mutes.
pub fn pages(firing: &[Labels]) -> Vec<&Labels> {
    let critical = |alert: &&Labels| Is("severity", "critical").holds(alert);
    firing.iter().filter(critical).filter(|alert| !is_muted(alert, firing)).collect()
}

/// Whether a firing cause mutes this alert.
pub fn is_muted(alert: &Labels, firing: &[Labels]) -> bool {
    let all = |conditions: &[Condition], labels: &Labels| {
        conditions.iter().all(|condition| condition.holds(labels))
    };
    INHIBITIONS.iter().filter(|rule| all(rule.target, alert)).any(|rule| {
        let same = |cause: &Labels| {
            let value = |labels: &Labels, name: &str| labels.get(name).cloned().unwrap_or_default();
            rule.equal.iter().all(|name| value(cause, name) == value(alert, name))
        };
        firing.iter().any(|cause| all(rule.source, cause) && same(cause))
    })
}

const HEADER: &str = "\
# Made from prometheus/src/alerts/routing.rs; do not edit. `SIGHTLINE_UPDATE=1 cargo test
# -p metric-catalog` writes it again. To use it, copy it and give the receivers their addresses:
# pager wakes somebody up, tickets are read on working days, log is for the record, deadman is a
# service that raises the alarm when it has not heard from Watchdog for some minutes.
";

/// Alertmanager's configuration, `prometheus/alertmanager.yml`; byte for byte the same for the same
/// catalog.
pub fn alertmanager() -> String {
    let mut out = HEADER.to_owned();
    let mut line = |text: std::fmt::Arguments<'_>| {
        writeln!(out, "{text}").expect("writing to a String cannot fail");
    };
    line(format_args!("route:\n  receiver: tickets"));
    line(format_args!("  group_by: [{}]", GROUPED_BY.join(", ")));
    line(format_args!("  group_wait: 30s\n  group_interval: 5m\n  repeat_interval: 4h\n  routes:"));
    for Route { of, receiver, timing } in ROUTES {
        let timing: String = timing.iter().map(|wait| format!(", {wait}")).collect();
        let matcher = of.matcher();
        line(format_args!("    - {{matchers: ['{matcher}'], receiver: {receiver}{timing}}}"));
    }
    line(format_args!("inhibit_rules:"));
    for rule in INHIBITIONS {
        let matchers = |conditions: &[Condition]| {
            let quoted = conditions.iter().map(|condition| format!("'{}'", condition.matcher()));
            quoted.collect::<Vec<_>>().join(", ")
        };
        line(format_args!("  - source_matchers: [{}]", matchers(rule.source)));
        line(format_args!("    target_matchers: [{}]", matchers(rule.target)));
        line(format_args!("    equal: [{}]", rule.equal.join(", ")));
    }
    line(format_args!("receivers:"));
    for (name, example) in RECEIVERS {
        line(format_args!("  - name: {name}"));
        for text in *example {
            line(format_args!("    # {text}"));
        }
    }
    out
}
