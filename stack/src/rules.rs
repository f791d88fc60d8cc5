//! Evaluates the generated recording and alerting rules over the store.
//!
//! As Prometheus does: recorded series and `ALERTS` go back into the store, alerts wait in
//! `pending` for their `for` time, and labels and annotations are templates. Nothing is notified.

mod file;
mod template;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::clock::now_ms;
use crate::complain;
use crate::promapi::{rfc3339, sample_value};
use crate::promql::{Answer, Query};
use crate::store::{Labels, NAME, STALE, Store};
use file::RuleText;

/// Rules are evaluated this often, whatever their files say: the store scrapes each second.
const INTERVAL: Duration = Duration::from_secs(5);

/// A rule file that cannot be used.
#[derive(Debug, Error)]
#[error("rule file {file}: {reason}")]
pub(crate) struct RuleError {
    file: String,
    reason: String,
}

/// What a rule does with its result.
enum Kind {
    Record { name: String },
    Alert(Alerting),
}

struct Alerting {
    name: String,
    hold_ms: i64,
    keep_ms: i64,
    annotations: BTreeMap<String, String>,
    active: BTreeMap<Labels, Active>,
}

/// An element of an alert that is pending or firing.
#[derive(Debug, Clone)]
struct Active {
    labels: Labels,
    annotations: BTreeMap<String, String>,
    value: f64,
    since_ms: i64,
    firing: bool,
    /// When the condition was last true.
    seen_ms: i64,
}

struct Rule {
    kind: Kind,
    text: String,
    query: Query,
    labels: BTreeMap<String, String>,
    /// Series written last time, to end those that are gone.
    written: HashSet<Labels>,
    error: Option<String>,
    evaluated_ms: i64,
    took: Duration,
}

struct Group {
    name: String,
    file: String,
    rules: Vec<Rule>,
}

/// All rules with their state.
pub(crate) struct Rules {
    groups: Mutex<Vec<Group>>,
}

impl Rules {
    /// Reads rule files given as (name, YAML text).
    pub(crate) fn parse(files: &[(&str, &str)]) -> Result<Self, RuleError> {
        let mut groups = Vec::new();
        for (file, text) in files {
            let fail = |reason: String| RuleError { file: (*file).to_owned(), reason };
            for group in file::parse(text).map_err(fail)? {
                let name = group.name;
                let built: Result<Vec<Rule>, String> =
                    group.rules.into_iter().map(Rule::build).collect();
                let rules = built.map_err(|e| fail(format!("group {name}: {e}")))?;
                groups.push(Group { name, file: (*file).to_owned(), rules });
            }
        }
        Ok(Self { groups: Mutex::new(groups) })
    }

    /// Evaluates all rules in order, every few seconds, until `stop`.
    pub(crate) async fn run(self: Arc<Self>, store: Arc<Store>, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let (rules, store) = (Arc::clone(&self), Arc::clone(&store));
            let turn = tokio::task::spawn_blocking(move || rules.evaluate(&store, now_ms()));
            if turn.await.is_err() {
                complain("error: the rule evaluation panicked");
            }
        }
    }

    fn evaluate(&self, store: &Store, now_ms: i64) {
        for group in self.lock().iter_mut() {
            for rule in &mut group.rules {
                let begun = tokio::time::Instant::now();
                rule.evaluate(store, now_ms);
                rule.took = begun.elapsed();
                rule.evaluated_ms = now_ms;
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Group>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The data of `/api/v1/rules`.
    pub(crate) fn groups_json(&self, alerts: bool, records: bool) -> Value {
        let wanted = |rule: &&Rule| match rule.kind {
            Kind::Record { .. } => records,
            Kind::Alert(_) => alerts,
        };
        let group = |group: &Group| {
            let rules: Vec<Value> = group.rules.iter().filter(wanted).map(Rule::json).collect();
            let newest = group.rules.iter().map(|r| r.evaluated_ms).max().unwrap_or(0);
            json!({
                "name": group.name,
                "file": group.file,
                "rules": rules,
                "interval": INTERVAL.as_secs(),
                "limit": 0,
                "evaluationTime": group.rules.iter().map(|r| r.took.as_secs_f64()).sum::<f64>(),
                "lastEvaluation": rfc3339(newest),
            })
        };
        let groups: Vec<Value> = self.lock().iter().map(group).collect();
        json!({ "groups": groups })
    }

    /// The pending and firing alerts, as in `/api/v1/alerts`.
    pub(crate) fn alerts_json(&self) -> Vec<Value> {
        let groups = self.lock();
        let rules = groups.iter().flat_map(|group| &group.rules);
        let active = rules.filter_map(|rule| match &rule.kind {
            Kind::Alert(alert) => Some(alert.active.values()),
            Kind::Record { .. } => None,
        });
        active.flatten().map(Active::json).collect()
    }
}

impl Active {
    fn json(&self) -> Value {
        json!({
            "labels": labels_json(&self.labels),
            "annotations": self.annotations,
            "state": if self.firing { "firing" } else { "pending" },
            "activeAt": rfc3339(self.since_ms),
            "value": sample_value(self.value),
        })
    }
}

fn labels_json(labels: &Labels) -> Value {
    labels.iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
}

impl Rule {
    fn build(text: RuleText) -> Result<Self, String> {
        let query = Query::parse(&text.expr).map_err(|e| format!("{}: {e}", text.expr))?;
        let kind = match (text.record, text.alert) {
            (Some(name), None) => Kind::Record { name },
            (None, Some(name)) => Kind::Alert(Alerting {
                name,
                hold_ms: text.hold_ms,
                keep_ms: text.keep_ms,
                annotations: text.annotations,
                active: BTreeMap::new(),
            }),
            _ => return Err("a rule needs either record or alert".to_owned()),
        };
        Ok(Self {
            kind,
            text: text.expr,
            query,
            labels: text.labels,
            written: HashSet::new(),
            error: None,
            evaluated_ms: 0,
            took: Duration::ZERO,
        })
    }

    fn evaluate(&mut self, store: &Store, now_ms: i64) {
        let elements = match self.query.instant(store, now_ms) {
            Ok(Answer::Vector(elements)) => elements,
            Ok(Answer::Scalar(value)) => vec![(Labels::default(), value)],
            Ok(Answer::String(_) | Answer::Matrix(_)) => Vec::new(),
            Err(error) => {
                self.error = Some(error.to_string());
                return;
            }
        };
        self.error = None;
        let out = match &mut self.kind {
            Kind::Record { name } => {
                let named = |(labels, value): (Labels, f64)| {
                    let extra = self.labels.iter();
                    let labels = extra.fold(labels.with(NAME, name), |l, (n, v)| l.with(n, v));
                    (labels, value)
                };
                elements.into_iter().map(named).collect()
            }
            Kind::Alert(alert) => alert.update(elements, &self.labels, now_ms),
        };
        self.write(store, out, now_ms);
    }

    /// Writes the series of this turn and ends those that were there last time.
    fn write(&mut self, store: &Store, series: Vec<(Labels, f64)>, now_ms: i64) {
        let mut gone = std::mem::take(&mut self.written);
        for (labels, value) in series {
            store.append_labels(&labels, now_ms, value);
            gone.remove(&labels);
            self.written.insert(labels);
        }
        for labels in gone {
            store.append_labels(&labels, now_ms, STALE);
        }
    }

    fn json(&self) -> Value {
        let mut out = json!({
            "query": self.text,
            "labels": self.labels,
            "health": if self.error.is_some() { "err" } else { "ok" },
            "evaluationTime": self.took.as_secs_f64(),
            "lastEvaluation": rfc3339(self.evaluated_ms),
        });
        if let Some(error) = &self.error {
            out["lastError"] = Value::from(error.as_str());
        }
        match &self.kind {
            Kind::Record { name } => {
                out["type"] = Value::from("recording");
                out["name"] = Value::from(name.as_str());
            }
            Kind::Alert(alert) => alert.describe(&mut out),
        }
        out
    }
}

impl Alerting {
    /// Moves every element along and returns the series to write.
    fn update(
        &mut self,
        elements: Vec<(Labels, f64)>,
        extra: &BTreeMap<String, String>,
        now_ms: i64,
    ) -> Vec<(Labels, f64)> {
        for (own, value) in elements {
            let expand = |text: &String| template::expand(text, &own, value);
            let named = own.without_name().with("alertname", &self.name);
            let labels = extra.iter().fold(named, |l, (n, v)| l.with(n, &expand(v)));
            let annotations =
                self.annotations.iter().map(|(n, v)| (n.clone(), expand(v))).collect();
            let fresh = Active {
                labels: labels.clone(),
                annotations: BTreeMap::new(),
                value,
                since_ms: now_ms,
                firing: false,
                seen_ms: now_ms,
            };
            let active = self.active.entry(labels).or_insert(fresh);
            active.annotations = annotations;
            active.value = value;
            active.seen_ms = now_ms;
        }
        let keep_ms = self.keep_ms;
        self.active
            .retain(|_, a| a.seen_ms == now_ms || (a.firing && now_ms - a.seen_ms < keep_ms));
        let mut out = Vec::new();
        for active in self.active.values_mut() {
            active.firing |= now_ms - active.since_ms >= self.hold_ms;
            let state = if active.firing { "firing" } else { "pending" };
            out.push((active.labels.with(NAME, "ALERTS").with("alertstate", state), 1.0));
            let since = active.since_ms as f64 / 1000.0;
            out.push((active.labels.with(NAME, "ALERTS_FOR_STATE"), since));
        }
        out
    }

    fn describe(&self, out: &mut Value) {
        let state = match self.active.values().map(|a| a.firing).max() {
            None => "inactive",
            Some(false) => "pending",
            Some(true) => "firing",
        };
        let alerts: Vec<Value> = self.active.values().map(Active::json).collect();
        out["type"] = Value::from("alerting");
        out["name"] = Value::from(self.name.as_str());
        out["state"] = Value::from(state);
        out["duration"] = Value::from(self.hold_ms as f64 / 1000.0);
        out["keepFiringFor"] = Value::from(self.keep_ms as f64 / 1000.0);
        out["annotations"] = json!(self.annotations);
        out["alerts"] = Value::from(alerts);
    }
}
