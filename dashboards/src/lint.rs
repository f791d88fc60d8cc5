//! Checks of the dashboards against the catalog, the alerts and each other.
//!
//! Structural lints are always there. Lints of queries need a `PromQL` parser and come with feature
//! `lint`. A lint that does not apply is waived in code, on the panel, with a reason; a waiver that
//! waives nothing is a finding itself.

#[cfg(feature = "lint")]
mod query;
mod sarif;
mod structure;

use crate::output::Board;
use crate::write::canonical_json;
use metric_catalog::target::Target;
pub use sarif::sarif;
use serde::Serialize;
use std::fmt;

/// A check. The codes are those of the reports and stay for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lint {
    /// A waiver that waives nothing.
    L00,
    /// A series that neither the catalog nor a rule knows, or an expression that does not parse.
    L01,
    /// A label that the series does not carry, or a value that it never takes.
    L02,
    /// A function that does not fit the kind: a raw counter, a rate of a gauge, a quantile of no
    /// histogram or without `le`.
    L03,
    /// The unit of a panel is not the unit of its query.
    L04,
    /// A fixed range where `$__rate_interval` belongs.
    L05,
    /// A variable that is not declared, not used, or left out of a query's scope.
    L06,
    /// An id, a name of a query, a uid or a title twice; a malformed uid.
    L07,
    /// A data source that is not the templated one.
    L08,
    /// No title, description or unit; a panel without a query.
    L09,
    /// Panels that overlap, leave a gap or stick out.
    L10,
    /// A legend that names a label which the result does not have.
    L11,
    /// More series than a panel can tell apart, without `topk`.
    L12,
    /// A link to a dashboard, a panel or a runbook section that does not exist.
    L13,
    /// A threshold that is not the alert's.
    L14,
    /// A file too large for the annotations and config maps it may travel in.
    L15,
    /// `PromQL` newer than the oldest Prometheus that we promise.
    L16,
    /// A grouping by a label that was lost before, or sides of an operator that cannot pair.
    L17,
    /// A refresh shorter than the scrape interval.
    L18,
    /// A division that can give NaN where one value is shown.
    L19,
    /// An alert without a panel, or a metric of ruin without an alert.
    L20,
}

impl Lint {
    /// All of them, by code.
    pub const ALL: &[Self] = &[
        Self::L00,
        Self::L01,
        Self::L02,
        Self::L03,
        Self::L04,
        Self::L05,
        Self::L06,
        Self::L07,
        Self::L08,
        Self::L09,
        Self::L10,
        Self::L11,
        Self::L12,
        Self::L13,
        Self::L14,
        Self::L15,
        Self::L16,
        Self::L17,
        Self::L18,
        Self::L19,
        Self::L20,
    ];

    /// Its code, and what it is about in a few words.
    const fn told(self) -> (&'static str, &'static str) {
        match self {
            Self::L00 => ("L00", "waiver without a use or a reason"),
            Self::L01 => ("L01", "unknown series"),
            Self::L02 => ("L02", "unknown label or value"),
            Self::L03 => ("L03", "function that does not fit the kind"),
            Self::L04 => ("L04", "unit that is not the query's"),
            Self::L05 => ("L05", "fixed range"),
            Self::L06 => ("L06", "variable undeclared, unused or left out"),
            Self::L07 => ("L07", "name or id twice, or malformed"),
            Self::L08 => ("L08", "fixed data source"),
            Self::L09 => ("L09", "no title, description, unit or query"),
            Self::L10 => ("L10", "overlap, gap or overflow"),
            Self::L11 => ("L11", "legend with a label that is not there"),
            Self::L12 => ("L12", "too many series"),
            Self::L13 => ("L13", "broken link"),
            Self::L14 => ("L14", "threshold that is not the alert's"),
            Self::L15 => ("L15", "file too large"),
            Self::L16 => ("L16", "PromQL too new"),
            Self::L17 => ("L17", "lost label or join that cannot pair"),
            Self::L18 => ("L18", "refresh shorter than the scrape interval"),
            Self::L19 => ("L19", "division without a guard"),
            Self::L20 => ("L20", "alert without a panel, or ruin without an alert"),
        }
    }

    /// Its code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        self.told().0
    }

    /// What it is about, in a few words.
    #[must_use]
    pub const fn title(self) -> &'static str {
        self.told().1
    }

    /// Whether it only warns: what it finds is shown and counted all the same, but the dashboard
    /// says nothing wrong.
    #[must_use]
    pub const fn warns(self) -> bool {
        match self {
            Self::L00 | Self::L05 | Self::L12 | Self::L15 | Self::L18 => true,
            Self::L01
            | Self::L02
            | Self::L03
            | Self::L04
            | Self::L06
            | Self::L07
            | Self::L08
            | Self::L09
            | Self::L10
            | Self::L11
            | Self::L13
            | Self::L14
            | Self::L16
            | Self::L17
            | Self::L19
            | Self::L20 => false,
        }
    }
}

impl fmt::Display for Lint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// A lint that does not apply, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiver {
    /// The lint.
    pub lint: Lint,
    /// Why it does not apply. Shown in the report.
    pub reason: String,
}

/// Something to change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// Code of the lint.
    pub code: &'static str,
    /// Uid of the dashboard; empty where it concerns the whole set.
    pub dashboard: String,
    /// Slug of the panel; empty where it concerns the whole dashboard.
    pub panel: String,
    /// What is wrong.
    pub message: String,
}

/// A finding that a waiver covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waived {
    /// What was found.
    #[serde(flatten)]
    pub finding: Finding,
    /// Why it is right all the same.
    pub reason: String,
}

/// The result of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Sorted, without duplicates.
    pub findings: Vec<Finding>,
    /// Covered by waivers.
    pub waived: Vec<Waived>,
    /// Dashboards looked at.
    pub dashboards: usize,
    /// Queries looked at.
    pub queries: usize,
    /// Whether the lints of queries ran (feature `lint`).
    pub queries_parsed: bool,
}

impl Report {
    /// One line for each finding and a summary.
    #[must_use]
    pub fn to_text(&self) -> String {
        let place = |finding: &Finding| match (&*finding.dashboard, &*finding.panel) {
            ("", _) => String::from("all"),
            (board, "") => board.to_owned(),
            (board, panel) => format!("{board}/{panel}"),
        };
        let mut lines = Vec::new();
        for finding in &self.findings {
            lines.push(format!("{} {}: {}", finding.code, place(finding), finding.message));
        }
        for Waived { finding, reason } in &self.waived {
            let (code, message) = (finding.code, &finding.message);
            lines.push(format!("{code} {}: waived ({reason}): {message}", place(finding)));
        }
        let note = if self.queries_parsed { "" } else { "; built without the lints of queries" };
        lines.push(format!(
            "{} dashboards, {} queries: {} found, {} waived{note}",
            self.dashboards,
            self.queries,
            self.findings.len(),
            self.waived.len(),
        ));
        lines.join("\n")
    }

    /// The report as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        canonical_json(self)
    }
}

/// Where lints put what they find.
#[derive(Debug, Default)]
struct Sink(Vec<(Lint, Finding)>);

impl Sink {
    fn push(&mut self, lint: Lint, dashboard: &str, panel: &str, message: impl Into<String>) {
        let (dashboard, panel) = (dashboard.to_owned(), panel.to_owned());
        let finding = Finding { code: lint.code(), dashboard, panel, message: message.into() };
        self.0.push((lint, finding));
    }
}

/// Runs every lint over all dashboards and tells what was found on those of some targets: links
/// may lead to the dashboards of another.
#[must_use]
pub fn run_for(boards: &[Board], targets: &[Target]) -> Report {
    let mut report = run(boards);
    let of = |uid: &str| {
        let board = boards.iter().find(|board| board.ir.uid == uid);
        board.is_none_or(|board| targets.contains(&board.target))
    };
    report.findings.retain(|finding| of(&finding.dashboard));
    report.waived.retain(|waived| of(&waived.finding.dashboard));
    let chosen = || boards.iter().filter(|board| targets.contains(&board.target));
    report.dashboards = chosen().count();
    report.queries = queries(chosen());
    report
}

fn queries<'a>(boards: impl Iterator<Item = &'a Board>) -> usize {
    boards.flat_map(|board| board.ir.panels()).map(|(_, panel)| panel.queries.len()).sum()
}

/// Runs every lint over all dashboards together.
#[must_use]
pub fn run(boards: &[Board]) -> Report {
    let mut sink = Sink::default();
    structure::run(boards, &mut sink);
    #[cfg(feature = "lint")]
    query::run(boards, &mut sink);
    let mut report = Report {
        dashboards: boards.len(),
        queries: queries(boards.iter()),
        queries_parsed: cfg!(feature = "lint"),
        ..Report::default()
    };
    sink.0.sort_by(|a, b| a.1.cmp(&b.1));
    sink.0.dedup();
    apply_waivers(boards, sink, &mut report);
    report.findings.sort();
    report
}

fn apply_waivers(boards: &[Board], sink: Sink, report: &mut Report) {
    for (lint, finding) in sink.0 {
        let waiver = waivers(boards).find(|(board, panel, waiver)| {
            waiver.lint == lint && *board == finding.dashboard && *panel == finding.panel
        });
        match waiver {
            Some((_, _, waiver)) => {
                report.waived.push(Waived { finding, reason: waiver.reason.clone() });
            }
            None => report.findings.push(finding),
        }
    }
    for (board, panel, waiver) in waivers(boards) {
        let code = waiver.lint.code();
        let used = report.waived.iter().any(|waived| {
            let finding = &waived.finding;
            finding.code == code && finding.dashboard == board && finding.panel == panel
        });
        let message = if waiver.reason.trim().is_empty() {
            format!("the waiver of {code} has no reason")
        } else if used || !cfg!(feature = "lint") {
            continue;
        } else {
            format!("the waiver of {code} waives nothing")
        };
        let (dashboard, panel) = (board.to_owned(), panel.to_owned());
        report.findings.push(Finding { code: Lint::L00.code(), dashboard, panel, message });
    }
}

fn waivers(boards: &[Board]) -> impl Iterator<Item = (&str, &str, &Waiver)> {
    boards.iter().flat_map(|board| {
        board.ir.panels().flat_map(move |(_, panel)| {
            panel.waivers.iter().map(move |waiver| (&*board.ir.uid, &*panel.slug, waiver))
        })
    })
}

#[cfg(test)]
mod tests;
