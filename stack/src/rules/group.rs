//! A group of rules: evaluated in order, each writing before the next one reads.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use super::alert::Alerting;
use super::file::{GroupText, KindText, RuleText};
use crate::promql::{Answer, Query};
use crate::store::{Labels, NAME, STALE, Store};

/// Evaluated this often where the file names no interval, as by the generated configuration.
const INTERVAL_MS: i64 = 15_000;

pub(super) struct Group {
    pub(super) name: String,
    pub(super) file: String,
    pub(super) interval_ms: i64,
    query_offset_ms: i64,
    pub(super) limit: usize,
    pub(super) rules: Vec<Rule>,
    pub(super) evaluated_ms: Option<i64>,
    pub(super) took: Duration,
}

/// What a rule does with its result.
pub(super) enum Kind {
    Record { name: String },
    Alert(Alerting),
}

pub(super) struct Rule {
    pub(super) kind: Kind,
    pub(super) text: String,
    query: Query,
    /// As written.
    pub(super) labels: BTreeMap<String, String>,
    /// Series written by the last evaluation that worked, to end those that are gone.
    written: HashSet<Labels>,
    pub(super) error: Option<String>,
    pub(super) evaluated_ms: Option<i64>,
    pub(super) took: Duration,
}

impl Group {
    pub(super) fn build(text: GroupText, file: &str) -> Result<Self, String> {
        let name = text.name;
        let rules: Result<Vec<Rule>, String> = text.rules.into_iter().map(Rule::build).collect();
        Ok(Self {
            rules: rules.map_err(|e| format!("group {name:?}, {e}"))?,
            name,
            file: file.to_owned(),
            interval_ms: text.interval_ms.unwrap_or(INTERVAL_MS),
            query_offset_ms: text.query_offset_ms,
            limit: text.limit,
            evaluated_ms: None,
            took: Duration::ZERO,
        })
    }

    /// Evaluates all rules in order; the answer names errors that were not there last time.
    pub(super) fn evaluate(&mut self, store: &Store, now_ms: i64) -> Vec<String> {
        let begun = tokio::time::Instant::now();
        let mut fresh = Vec::new();
        for rule in &mut self.rules {
            let begun = tokio::time::Instant::now();
            let before = rule.error.take();
            rule.error = rule.evaluate(store, now_ms, self.query_offset_ms, self.limit).err();
            rule.took = begun.elapsed();
            rule.evaluated_ms = Some(now_ms);
            if let Some(error) = rule.error.as_ref().filter(|_| before != rule.error) {
                fresh.push(format!("rule {} of group {}: {error}", rule.name(), self.name));
            }
        }
        self.took = begun.elapsed();
        self.evaluated_ms = Some(now_ms);
        fresh
    }
}

impl Rule {
    fn build(text: RuleText) -> Result<Self, String> {
        let kind = match text.kind {
            KindText::Record { name } => Kind::Record { name },
            KindText::Alert(alert) => Kind::Alert(Alerting::new(alert)),
        };
        let name = kind.name();
        let query = Query::parse(&text.expr)
            .map_err(|e| format!("rule {name:?}: could not parse expression: {e}"))?;
        Ok(Self {
            kind,
            text: text.expr,
            query,
            labels: text.labels,
            written: HashSet::new(),
            error: None,
            evaluated_ms: None,
            took: Duration::ZERO,
        })
    }

    pub(super) fn name(&self) -> &str {
        self.kind.name()
    }

    /// On an error nothing is written and no series is ended, as in Prometheus.
    fn evaluate(
        &mut self,
        store: &Store,
        now_ms: i64,
        offset_ms: i64,
        limit: usize,
    ) -> Result<(), String> {
        let time = now_ms - offset_ms;
        let elements = match self.query.instant(store, time).map_err(|e| e.to_string())? {
            Answer::Vector(elements) => elements,
            Answer::Scalar(value) => vec![(Labels::default(), value)],
            Answer::String(_) | Answer::Matrix(_) => {
                return Err("rule result is not a vector or scalar".to_owned());
            }
        };
        let series = match &mut self.kind {
            Kind::Record { name } => record(name, &self.labels, elements, limit)?,
            Kind::Alert(alert) => alert.update(elements, &self.labels, limit, now_ms)?,
        };
        self.write(store, series, time);
        Ok(())
    }

    /// Writes the series of this turn and ends those that were there last time.
    fn write(&mut self, store: &Store, series: Vec<(Labels, f64)>, time_ms: i64) {
        let mut gone = std::mem::take(&mut self.written);
        for (labels, value) in series {
            store.append_labels(&labels, time_ms, value);
            gone.remove(&labels);
            self.written.insert(labels);
        }
        for labels in gone {
            store.append_labels(&labels, time_ms, STALE);
        }
    }
}

impl Kind {
    fn name(&self) -> &str {
        match self {
            Self::Record { name } => name,
            Self::Alert(alert) => &alert.name,
        }
    }
}

/// The series of a recording rule.
fn record(
    name: &str,
    extra: &BTreeMap<String, String>,
    elements: Vec<(Labels, f64)>,
    limit: usize,
) -> Result<Vec<(Labels, f64)>, String> {
    let named = |(own, value): (Labels, f64)| {
        (extra.iter().fold(own.with(NAME, name), |l, (n, v)| l.with(n, v)), value)
    };
    let series: Vec<(Labels, f64)> = elements.into_iter().map(named).collect();
    let distinct: HashSet<&Labels> = series.iter().map(|(labels, _)| labels).collect();
    if distinct.len() < series.len() {
        return Err(
            "vector contains metrics with the same labelset after applying rule labels".to_owned()
        );
    }
    if limit > 0 && series.len() > limit {
        return Err(format!("exceeded limit of {limit} with {} series", series.len()));
    }
    Ok(series)
}
