//! The life of an alert: pending, firing, resolved. Pure: takes the time, keeps its state.
//!
//! Step by step what Prometheus does. What may surprise: `keep_firing_for` counts from the first
//! evaluation without the element; a rule over its limit forgets all of its alerts; a label whose
//! template comes out empty is absent from the alert but stands as written in the ALERTS series.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::file::AlertText;
use super::template::Template;
use crate::store::{Labels, NAME};

/// Resolved alerts are remembered this long.
pub(super) const RESOLVED_RETENTION_MS: i64 = 15 * 60 * 1000;

/// The state of one element of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    /// It has fired and no longer does.
    Resolved,
    Pending,
    Firing,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Resolved => "inactive",
            Self::Pending => "pending",
            Self::Firing => "firing",
        }
    }
}

/// An element of an alert, from its first sight until 15 minutes after its end.
#[derive(Debug, Clone)]
pub(super) struct Alert {
    pub(super) labels: Labels,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) value: f64,
    pub(super) active_ms: i64,
    pub(super) state: State,
    /// First evaluation without the element since it was last there, while kept firing.
    pub(super) kept_since_ms: Option<i64>,
    pub(super) resolved_ms: Option<i64>,
}

/// An alerting rule with its alerts.
pub(super) struct Alerting {
    pub(super) name: String,
    pub(super) hold_ms: i64,
    pub(super) keep_ms: i64,
    labels: Vec<(String, Template)>,
    annotations: Vec<(String, Template)>,
    pub(super) texts: BTreeMap<String, String>,
    alerts: BTreeMap<Labels, Alert>,
}

impl Alerting {
    pub(super) fn new(text: AlertText) -> Self {
        Self {
            name: text.name,
            hold_ms: text.hold_ms,
            keep_ms: text.keep_ms,
            labels: text.labels,
            annotations: text.annotations,
            texts: text.texts,
            alerts: BTreeMap::new(),
        }
    }

    /// The pending and firing alerts, in the order of their labels.
    pub(super) fn active(&self) -> impl Iterator<Item = &Alert> {
        self.alerts.values().filter(|alert| alert.state > State::Resolved)
    }

    /// The alerts that ended in the last 15 minutes.
    pub(super) fn resolved(&self) -> impl Iterator<Item = &Alert> {
        self.alerts.values().filter(|alert| alert.state == State::Resolved)
    }

    /// The highest state of any alert.
    pub(super) fn state(&self) -> State {
        self.alerts.values().map(|alert| alert.state).max().unwrap_or(State::Resolved)
    }

    /// Moves every alert along and returns the series to write; `written` are the rule's labels as
    /// written, `limit` (0 for none) bounds the pending and firing alerts.
    ///
    /// # Errors
    /// When two elements become one by their labels, or the limit is passed.
    pub(super) fn update(
        &mut self,
        elements: Vec<(Labels, f64)>,
        written: &BTreeMap<String, String>,
        limit: usize,
        now_ms: i64,
    ) -> Result<Vec<(Labels, f64)>, String> {
        let seen = self.meet(elements, now_ms)?;
        let (keep_ms, hold_ms) = (self.keep_ms, self.hold_ms);
        self.alerts.retain(|labels, alert| {
            if seen.contains(labels) {
                alert.kept_since_ms = None;
                return true;
            }
            alert.miss(keep_ms, now_ms)
        });
        let mut active = 0;
        let mut out = Vec::new();
        for alert in self.alerts.values_mut().filter(|alert| alert.state > State::Resolved) {
            active += 1;
            if alert.state == State::Pending && now_ms - alert.active_ms >= hold_ms {
                alert.state = State::Firing;
            }
            out.extend(alert.series(&self.name, written));
        }
        if limit > 0 && active > limit {
            self.alerts.clear();
            return Err(format!("exceeded limit of {limit} with {active} alerts"));
        }
        Ok(out)
    }

    /// Takes in the elements of this evaluation and returns their label sets.
    fn meet(
        &mut self,
        elements: Vec<(Labels, f64)>,
        now_ms: i64,
    ) -> Result<BTreeSet<Labels>, String> {
        let mut fresh = BTreeMap::new();
        for (own, value) in elements {
            let expanded = self.labels.iter().map(|(n, t)| (n, t.expand(&own, value)));
            let labels = expanded.fold(own.without_name(), |l, (n, v)| l.with(n, &v));
            let labels = labels.with("alertname", &self.name);
            let texts = self.annotations.iter();
            let alert = Alert {
                labels: labels.clone(),
                annotations: texts.map(|(n, t)| (n.clone(), t.expand(&own, value))).collect(),
                value,
                active_ms: now_ms,
                state: State::Pending,
                kept_since_ms: None,
                resolved_ms: None,
            };
            if fresh.insert(labels, alert).is_some() {
                return Err("vector contains metrics with the same labelset after applying alert \
                            labels"
                    .to_owned());
            }
        }
        let seen = fresh.keys().cloned().collect();
        for (labels, alert) in fresh {
            match self.alerts.entry(labels) {
                Entry::Occupied(mut known) if known.get().state > State::Resolved => {
                    let known = known.get_mut();
                    known.value = alert.value;
                    known.annotations = alert.annotations;
                }
                // One that was resolved begins anew.
                Entry::Occupied(mut known) => drop(known.insert(alert)),
                Entry::Vacant(place) => drop(place.insert(alert)),
            }
        }
        Ok(seen)
    }
}

impl Alert {
    /// The element is absent; whether the alert is to be remembered.
    fn miss(&mut self, keep_ms: i64, now_ms: i64) -> bool {
        match self.state {
            State::Pending => return false,
            State::Resolved => {
                return self.resolved_ms.is_none_or(|at| now_ms - at <= RESOLVED_RETENTION_MS);
            }
            State::Firing => {}
        }
        if keep_ms > 0 && now_ms - *self.kept_since_ms.get_or_insert(now_ms) < keep_ms {
            return true;
        }
        self.state = State::Resolved;
        self.resolved_ms = Some(now_ms);
        true
    }

    /// The series of a pending or firing alert.
    fn series(&self, name: &str, written: &BTreeMap<String, String>) -> [(Labels, f64); 2] {
        let raw = Labels::new(written.iter().map(|(n, v)| (n.clone(), v.clone())));
        let base = self.labels.iter().fold(raw, |l, (n, v)| l.with(n, v));
        let base = base.with("alertname", name);
        let state = base.with(NAME, "ALERTS").with("alertstate", self.state.name());
        // Whole seconds, as Prometheus restores from them.
        let since = self.active_ms.div_euclid(1000) as f64;
        [(state, 1.0), (base.with(NAME, "ALERTS_FOR_STATE"), since)]
    }
}
