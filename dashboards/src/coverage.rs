//! Which metrics nothing reads, and which are read and not declared.
//!
//! A metric that no panel and no rule reads costs memory in every process and every Prometheus, so
//! it is either worth a panel or stands in `ad_hoc` with the reason why somebody reads it by hand.

mod ad_hoc;

use crate::output::Board;
use crate::usage::{Series, series_in};
use crate::write::canonical_json;
use metric_catalog::alerts::groups_of;
use metric_catalog::def::Info;
use metric_catalog::target::Target;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// A metric that nothing reads, and why that is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ByHand {
    /// Metric.
    pub name: &'static str,
    /// When somebody reads it.
    pub reason: &'static str,
}

/// A series that something reads and nothing declares.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Undeclared {
    /// Series.
    pub name: String,
    /// Panel or rule that reads it.
    pub place: String,
}

/// What is read of the metrics of some targets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// Metrics that are declared.
    pub declared: usize,
    /// Those that a panel or a rule reads.
    pub read: usize,
    /// Those that nothing reads and nobody said why.
    pub unread: Vec<&'static str>,
    /// Those that are read by hand.
    pub by_hand: Vec<ByHand>,
    /// Those that are said to be read by hand although a panel or a rule reads them.
    pub read_after_all: Vec<&'static str>,
    /// Series that are read and not declared.
    pub undeclared: Vec<Undeclared>,
}

impl Coverage {
    /// Whether every metric is read, or is known to be read by hand, and every series is declared.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.unread.is_empty() && self.undeclared.is_empty()
    }

    /// One line for each metric to look at, and a summary.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let mut line = |line: String| {
            let _infallible = writeln!(text, "{line}");
        };
        for name in &self.unread {
            line(format!("unread      {name}: no panel and no rule reads it"));
        }
        for Undeclared { name, place } in &self.undeclared {
            line(format!("undeclared  {name}: {place} reads it"));
        }
        for name in &self.read_after_all {
            line(format!("note        {name}: said to be read by hand, and is on a panel or rule"));
        }
        for ByHand { name, reason } in &self.by_hand {
            line(format!("by hand     {name}: {reason}"));
        }
        let _infallible = write!(
            text,
            "{} metrics: {} on panels or rules, {} by hand, {} unread; {} series undeclared",
            self.declared,
            self.read,
            self.by_hand.len(),
            self.unread.len(),
            self.undeclared.len(),
        );
        text
    }

    /// The report as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        canonical_json(self)
    }
}

/// Metrics that a target declares.
fn declared(target: Target) -> Vec<&'static Info> {
    match target {
        Target::Sightline => metric_catalog::all().collect(),
        Target::Engine(engine) => engine.families().collect(),
    }
}

/// What the boards and all rules read of the metrics of these targets.
#[must_use]
pub fn of(boards: &[Board], targets: &[Target]) -> Coverage {
    with(boards, targets, ad_hoc::METRICS)
}

fn with(boards: &[Board], targets: &[Target], by_hand: &[ByHand]) -> Coverage {
    let reads = reads(boards);
    let mut report = Coverage::default();
    for info in targets.iter().flat_map(|&target| declared(target)) {
        report.declared += 1;
        let reason = by_hand.iter().find(|entry| entry.name == info.name);
        match (reads.contains_key(info.name), reason) {
            (true, None) => report.read += 1,
            (true, Some(_)) => {
                report.read += 1;
                report.read_after_all.push(info.name);
            }
            (false, Some(entry)) => report.by_hand.push(*entry),
            (false, None) => report.unread.push(info.name),
        }
    }
    let mut undeclared = BTreeSet::new();
    for (place, expr) in expressions(boards, targets) {
        for name in crate::usage::unknown_in(&expr) {
            undeclared.insert(Undeclared { name, place: place.clone() });
        }
    }
    report.undeclared = undeclared.into_iter().collect();
    report
}

/// Declared metrics that something reads, each with one place that does.
fn reads(boards: &[Board]) -> BTreeMap<&'static str, String> {
    let mut reads = BTreeMap::new();
    for (place, expr) in expressions(boards, Target::ALL) {
        for series in series_in(&expr) {
            if let Series::Metric(info) = series {
                reads.entry(info.name).or_insert_with(|| place.clone());
            }
        }
    }
    reads
}

/// Every expression of the boards and rules of these targets, with its place.
fn expressions(boards: &[Board], targets: &[Target]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for board in boards.iter().filter(|board| targets.contains(&board.target)) {
        let uid = &board.ir.uid;
        for (_, panel) in board.ir.panels() {
            let place = format!("panel {uid}/{}", panel.slug);
            found.extend(panel.queries.iter().map(|query| (place.clone(), query.expr.clone())));
        }
        for annotation in &board.ir.annotations {
            found.push((format!("annotation {uid}/{}", annotation.name), annotation.expr.clone()));
        }
    }
    for group in targets.iter().flat_map(|&target| groups_of(target)) {
        let records = group.recordings.iter();
        found.extend(records.map(|r| (format!("rule {}", r.series.name), r.expr.to_string())));
        let alerts = group.alerts.iter();
        found.extend(alerts.map(|a| (format!("alert {}", a.name), a.expr.to_string())));
    }
    found
}

#[cfg(test)]
mod tests;
