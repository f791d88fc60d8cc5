//! Rules and alerts in the shapes of Prometheus' API.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::alert::{Alert, Alerting};
use super::group::{Group, Kind, Rule};
use super::template::exponent;
use crate::promapi::rfc3339;
use crate::store::{Labels, Matcher};

/// Which rules `/api/v1/rules` is asked for; the default is all of them.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub(crate) no_alerting: bool,
    pub(crate) no_recording: bool,
    /// Names of rules, groups and files; an empty list takes all.
    pub(crate) rules: Vec<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) files: Vec<String>,
    /// Sets of matchers of which one must accept the rule's labels as written.
    pub(crate) matchers: Vec<Vec<Matcher>>,
    /// Rules without their alerts.
    pub(crate) no_alerts: bool,
}

impl Filter {
    fn takes(list: &[String], name: &str) -> bool {
        list.is_empty() || list.iter().any(|listed| listed == name)
    }

    fn takes_rule(&self, rule: &Rule) -> bool {
        let kind = match rule.kind {
            Kind::Record { .. } => !self.no_recording,
            Kind::Alert(_) => !self.no_alerting,
        };
        kind && Self::takes(&self.rules, rule.name()) && self.matches(&rule.labels)
    }

    fn matches(&self, written: &BTreeMap<String, String>) -> bool {
        let labels = Labels::new(written.iter().map(|(n, v)| (n.clone(), v.clone())));
        let all = |set: &Vec<Matcher>| set.iter().all(|matcher| matcher.accepts(&labels));
        self.matchers.is_empty() || self.matchers.iter().any(all)
    }
}

/// A group with the rules that the filter takes; `None` when there are none.
pub(super) fn group(group: &Group, filter: &Filter) -> Option<Value> {
    if !Filter::takes(&filter.groups, &group.name) || !Filter::takes(&filter.files, &group.file) {
        return None;
    }
    let taken = group.rules.iter().filter(|rule| filter.takes_rule(rule));
    let rules: Vec<Value> = taken.map(|one| rule(one, filter.no_alerts)).collect();
    (!rules.is_empty()).then(|| {
        json!({
            "name": group.name,
            "file": group.file,
            "rules": rules,
            "interval": seconds(group.interval_ms),
            "limit": group.limit,
            "evaluationTime": group.took.as_secs_f64(),
            "lastEvaluation": time(group.evaluated_ms),
        })
    })
}

fn rule(rule: &Rule, no_alerts: bool) -> Value {
    let mut out = Map::new();
    if let Kind::Alert(alerting) = &rule.kind {
        out.insert("state".to_owned(), alerting.state().name().into());
    }
    out.insert("name".to_owned(), rule.name().into());
    out.insert("query".to_owned(), rule.text.as_str().into());
    match &rule.kind {
        Kind::Alert(alerting) => {
            out.insert("duration".to_owned(), seconds(alerting.hold_ms));
            out.insert("keepFiringFor".to_owned(), seconds(alerting.keep_ms));
            out.insert("labels".to_owned(), json!(rule.labels));
            out.insert("annotations".to_owned(), json!(alerting.texts));
            let active = || Value::from(active(alerting));
            let alerts = if no_alerts { Value::Null } else { active() };
            out.insert("alerts".to_owned(), alerts);
        }
        Kind::Record { .. } if rule.labels.is_empty() => {}
        Kind::Record { .. } => drop(out.insert("labels".to_owned(), json!(rule.labels))),
    }
    let health = match (&rule.error, rule.evaluated_ms) {
        (Some(_), _) => "err",
        (None, Some(_)) => "ok",
        (None, None) => "unknown",
    };
    out.insert("health".to_owned(), health.into());
    if let Some(error) = &rule.error {
        out.insert("lastError".to_owned(), error.as_str().into());
    }
    out.insert("evaluationTime".to_owned(), duration(rule.took));
    out.insert("lastEvaluation".to_owned(), time(rule.evaluated_ms).into());
    let kind = match rule.kind {
        Kind::Alert(_) => "alerting",
        Kind::Record { .. } => "recording",
    };
    out.insert("type".to_owned(), kind.into());
    Value::Object(out)
}

/// The pending and firing alerts of a rule.
pub(super) fn active(alerting: &Alerting) -> Vec<Value> {
    alerting.active().map(alert).collect()
}

/// The alerts that ended in the last 15 minutes, with the time of their end.
pub(super) fn resolved(alerting: &Alerting) -> Vec<Value> {
    let one = |ended: &Alert| {
        let mut out = alert(ended);
        out["resolvedAt"] = time(ended.resolved_ms).into();
        out
    };
    alerting.resolved().map(one).collect()
}

fn alert(alert: &Alert) -> Value {
    let labels: Map<String, Value> =
        alert.labels.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let mut out = json!({
        "labels": labels,
        "annotations": alert.annotations,
        "state": alert.state.name(),
        "activeAt": rfc3339(alert.active_ms),
        "value": exponent(alert.value),
    });
    if let Some(since) = alert.kept_since_ms {
        out["keepFiringSince"] = rfc3339(since).into();
    }
    out
}

/// Prometheus' text for a time that has not come yet.
fn time(ms: Option<i64>) -> String {
    ms.map_or_else(|| "0001-01-01T00:00:00Z".to_owned(), rfc3339)
}

/// Seconds, as a whole number where they are one.
fn seconds(ms: i64) -> Value {
    if ms % 1000 == 0 { Value::from(ms / 1000) } else { Value::from(ms as f64 / 1000.0) }
}

fn duration(took: Duration) -> Value {
    Value::from(took.as_secs_f64())
}
