//! Evaluates the generated recording and alerting rules over the store.
//!
//! As Prometheus does: a group's rules in order at its interval, recorded series and `ALERTS` go
//! back into the store and end with a stale mark, alerts wait in `pending` for their `for` time,
//! labels and annotations are templates. What differs: groups start together when the program does
//! (no offset by hash) and are evaluated one after the other in the order of the files; expressions
//! are reported as written. Nothing is notified. The store is memory, so a restart begins with
//! every alert inactive: there is nothing that `for` could be restored from.

mod alert;
#[cfg(test)]
mod differential;
mod file;
mod group;
mod json;
mod schedule;
mod template;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::clock::now_ms;
use crate::complain;
use crate::store::{Labels, Store};
use alert::State;
use group::{Group, Kind};
pub(crate) use json::Filter;
use schedule::Schedule;

/// A rule file that cannot be used.
#[derive(Debug, Error)]
#[error("rule file {file}: {reason}")]
pub(crate) struct RuleError {
    file: String,
    reason: String,
}

/// All rules with their state; a group is locked while it is evaluated.
pub(crate) struct Rules {
    groups: Vec<Mutex<Group>>,
}

impl Rules {
    /// Reads rule files given as (name, YAML text).
    ///
    /// # Errors
    /// At the first thing that `promtool check rules` would refuse, and at every expression and
    /// template that this program does not know.
    pub(crate) fn parse(files: &[(&str, &str)]) -> Result<Self, RuleError> {
        let mut groups = Vec::new();
        for (file, text) in files {
            let fail = |reason: String| RuleError { file: (*file).to_owned(), reason };
            for group in file::parse(text).map_err(fail)? {
                groups.push(Mutex::new(Group::build(group, file).map_err(fail)?));
            }
        }
        Ok(Self { groups })
    }

    /// Evaluates each group at its interval until `stop`.
    pub(crate) async fn run(self: Arc<Self>, store: Arc<Store>, stop: CancellationToken) {
        let intervals = self.groups.iter().map(|group| lock(group).interval_ms);
        let mut schedule = Schedule::new(intervals, now_ms());
        loop {
            let pause = schedule.wait(now_ms());
            if tokio::time::timeout(pause, stop.cancelled()).await.is_ok() {
                return;
            }
            for (index, slot) in schedule.due(now_ms()) {
                let (rules, store) = (Arc::clone(&self), Arc::clone(&store));
                let turn = move || lock(&rules.groups[index]).evaluate(&store, slot);
                match tokio::task::spawn_blocking(turn).await {
                    Ok(errors) => {
                        errors.iter().for_each(|error| complain(&format!("warning: {error}")));
                    }
                    Err(_) => complain("error: the rule evaluation panicked"),
                }
            }
        }
    }

    /// Evaluates everything at one time, whatever the intervals; the answer names errors that were
    /// not there last time.
    pub(crate) fn evaluate(&self, store: &Store, now_ms: i64) -> Vec<String> {
        self.groups.iter().flat_map(|group| lock(group).evaluate(store, now_ms)).collect()
    }

    /// The data of `/api/v1/rules`.
    pub(crate) fn groups_json(&self, filter: &Filter) -> Value {
        let taken = self.groups.iter().filter_map(|group| json::group(&lock(group), filter));
        json!({ "groups": taken.collect::<Vec<_>>() })
    }

    /// The pending and firing alerts, as in `/api/v1/alerts`.
    pub(crate) fn alerts_json(&self) -> Vec<Value> {
        self.alerts(json::active)
    }

    /// The labels of the alerts that fire, `alertname` among them.
    pub(crate) fn firing(&self) -> Vec<Labels> {
        let mut out = Vec::new();
        for group in &self.groups {
            for rule in &lock(group).rules {
                if let Kind::Alert(alerting) = &rule.kind {
                    let firing = alerting.active().filter(|alert| alert.state == State::Firing);
                    out.extend(firing.map(|alert| alert.labels.clone()));
                }
            }
        }
        out
    }

    /// The alerts that ended in the last 15 minutes; Prometheus keeps them, but to itself.
    pub(crate) fn resolved_json(&self) -> Vec<Value> {
        self.alerts(json::resolved)
    }

    fn alerts(&self, select: fn(&alert::Alerting) -> Vec<Value>) -> Vec<Value> {
        let mut out = Vec::new();
        for group in &self.groups {
            for rule in &lock(group).rules {
                if let Kind::Alert(alerting) = &rule.kind {
                    out.extend(select(alerting));
                }
            }
        }
        out
    }
}

fn lock(group: &Mutex<Group>) -> MutexGuard<'_, Group> {
    group.lock().unwrap_or_else(PoisonError::into_inner)
}
