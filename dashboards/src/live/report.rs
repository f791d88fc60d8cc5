//! The report of a live check: for people, or as JSON.

use std::fmt::Write as _;

use serde::{Serialize, Serializer};

use super::Status;
use crate::write::canonical_json;

/// What came of all queries.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Address of the server.
    pub prometheus: String,
    /// Its version.
    pub version: String,
    /// End of the range, in Unix seconds.
    pub at: f64,
    /// Length of the range.
    pub range_seconds: f64,
    /// Between points.
    pub step_seconds: f64,
    /// Between scrapes.
    pub scrape_interval_seconds: f64,
    /// `$__rate_interval`.
    pub rate_interval_seconds: f64,
    /// Dashboards looked at.
    pub dashboards: usize,
    /// One for each query.
    pub rows: Vec<Row>,
}

/// What came of one query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Uid.
    pub dashboard: String,
    /// Panel; empty for variables and annotations.
    pub panel: String,
    /// Letter of the query, `$` and name of a variable, or the name of an annotation.
    pub target: String,
    /// Verdict.
    pub status: Status,
    /// Series that came; values of a variable.
    pub series: usize,
    /// Why; empty where all is well.
    pub reason: String,
    /// What was asked.
    pub expr: String,
}

#[derive(Serialize)]
struct Json<'a> {
    prometheus: &'a str,
    version: &'a str,
    at: f64,
    range_seconds: f64,
    step_seconds: f64,
    scrape_interval_seconds: f64,
    rate_interval_seconds: f64,
    dashboards: usize,
    #[serde(serialize_with = "counts")]
    counts: &'a Report,
    targets: &'a [Row],
}

fn counts<S: Serializer>(report: &&Report, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(Status::ALL.iter().map(|&status| (status, report.count(status))))
}

impl Report {
    /// Queries with this verdict.
    #[must_use]
    pub fn count(&self, status: Status) -> usize {
        self.rows.iter().filter(|row| row.status == status).count()
    }

    /// Whether a query is empty that should not be, or fails.
    #[must_use]
    pub fn has_faults(&self) -> bool {
        self.rows.iter().any(|row| row.status.is_fault())
    }

    /// One line for each query that is not simply well, and a summary.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for row in self.rows.iter().filter(|row| row.status != Status::Ok) {
            let place = [&row.dashboard, &row.panel].map(String::as_str);
            let place = place.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
            let (status, place) = (row.status.as_str(), place.join("/"));
            let _infallible = writeln!(text, "{status:<6} {place} {}: {}", row.target, row.reason);
            if row.status.is_fault() {
                let expr = row.expr.split_whitespace().collect::<Vec<_>>().join(" ");
                let _infallible = writeln!(text, "       {expr}");
            }
        }
        let counts: Vec<String> = Status::ALL
            .iter()
            .map(|&status| format!("{} {}", self.count(status), status.as_str()))
            .collect();
        let _infallible = write!(
            text,
            "{} dashboards, {} queries to {} (Prometheus {}): {}\n\
             range {} s, step {} s, scrape interval {} s, $__rate_interval {} s",
            self.dashboards,
            self.rows.len(),
            self.prometheus,
            if self.version.is_empty() { "of unknown version" } else { &self.version },
            counts.join(", "),
            self.range_seconds,
            self.step_seconds,
            self.scrape_interval_seconds,
            self.rate_interval_seconds,
        );
        text
    }

    /// All of it as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        canonical_json(&Json {
            prometheus: &self.prometheus,
            version: &self.version,
            at: self.at,
            range_seconds: self.range_seconds,
            step_seconds: self.step_seconds,
            scrape_interval_seconds: self.scrape_interval_seconds,
            rate_interval_seconds: self.rate_interval_seconds,
            dashboards: self.dashboards,
            counts: self,
            targets: &self.rows,
        })
    }
}
