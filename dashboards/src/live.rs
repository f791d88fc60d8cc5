//! Asks a Prometheus every query of every panel: does it work, and does anything come?
//!
//! The bug that no static check finds is the panel that stays empty for ever: every name is right,
//! and yet no series matches. What a query yields is judged like this:
//!
//! - `OK`: at least one number came.
//! - `NAN`: series came, and no number among their values.
//! - `QUIET`: nothing came, and that is right. Every series that the query reads exists, its
//!   comparisons leave all of them out (no errors, nothing that waits), and the panel has a text
//!   for that.
//! - `WAIVED`: a series that it reads does not exist, and `waivers` says why it need not here.
//! - `EMPTY`: nothing came, and the panel is dead: a series that it reads does not exist, or its
//!   parts never fit together, or it has nothing to show and no text for that.
//! - `ERROR`: the server refuses the query, or does not answer.
//!
//! Variables stand at All. A variable without a value is `EMPTY` too: nothing could be chosen.
//! Of annotations only errors count: most of the time there is nothing to mark.

pub mod board;
pub mod cli;
pub mod presence;
pub mod report;
mod time;
pub mod waivers;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::client::{ClientError, Prometheus, Range, Targets, duration};
use crate::provision::SCRAPE_INTERVAL_SECONDS;
use crate::selectors::{relaxed, selectors};
use crate::variables;
use board::{All, Board, Panel, Source, Target, Variable};
use presence::Presences;
use report::{Report, Row};

/// How far back an instant query looks.
const LOOKBACK_SECONDS: f64 = 300.0;

/// After so many questions in a row without an answer, no more are asked.
const UNANSWERED_MAX: u32 = 3;

/// Points of a line, about, where no step is given.
const POINTS: f64 = 250.0;

/// At which time and how finely is looked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// End of the range, in Unix seconds.
    pub at: f64,
    /// Length of the range, in seconds.
    pub range: f64,
    /// Seconds between points; as the range asks for without.
    pub step: Option<f64>,
    /// Seconds between scrapes; what most targets have without.
    pub scrape_interval: Option<f64>,
}

/// What came of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Numbers.
    Ok,
    /// Nothing, rightly.
    Quiet,
    /// Nothing, for a reason that is known.
    Waived,
    /// Values, but no number.
    Nan,
    /// Nothing, wrongly.
    Empty,
    /// The query cannot be answered.
    Error,
}

impl Status {
    /// All of them, best first.
    pub const ALL: &'static [Self] =
        &[Self::Ok, Self::Quiet, Self::Waived, Self::Nan, Self::Empty, Self::Error];

    /// The word in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Quiet => "QUIET",
            Self::Waived => "WAIVED",
            Self::Nan => "NAN",
            Self::Empty => "EMPTY",
            Self::Error => "ERROR",
        }
    }

    /// Whether it is a fault.
    #[must_use]
    pub const fn is_fault(self) -> bool {
        matches!(self, Self::Empty | Self::Error)
    }
}

/// Seconds between the scrapes of most targets; the longer one where two are as frequent.
#[must_use]
pub fn usual_interval(targets: &Targets) -> Option<f64> {
    let mut counts: BTreeMap<u128, usize> = BTreeMap::new();
    for target in &targets.active {
        if let Ok(interval) = duration::parse(&target.interval) {
            *counts.entry(interval.as_millis()).or_default() += 1;
        }
    }
    let (millis, _) = counts.into_iter().max_by_key(|&(millis, count)| (count, millis))?;
    Some(millis as f64 / 1_000.0)
}

/// The window that Grafana puts in place of `$__rate_interval`, in seconds.
#[must_use]
pub fn rate_interval(step: f64, scrape_interval: f64) -> f64 {
    (step + scrape_interval).max(4.0 * scrape_interval)
}

/// Asks every query of the dashboards. `chosen` are values of variables that do not stand at All.
///
/// # Errors
/// The server does not answer the first question, or is none.
pub async fn check(
    prometheus: &Prometheus,
    boards: &[Board],
    settings: Settings,
    chosen: &BTreeMap<String, String>,
) -> Result<Report, ClientError> {
    let version = prometheus.build_info().await?.version;
    let interval = match settings.scrape_interval {
        Some(interval) => interval,
        None => {
            let targets = prometheus.targets().await.ok();
            let usual = targets.as_ref().and_then(usual_interval);
            usual.unwrap_or_else(|| f64::from(SCRAPE_INTERVAL_SECONDS))
        }
    };
    let step = settings.step.unwrap_or_else(|| (settings.range / POINTS).ceil().max(interval));
    let range = Range { start: settings.at - settings.range, end: settings.at, step };
    let mut check = Check {
        prometheus,
        presences: Presences::new(prometheus, settings.at),
        range,
        window: rate_interval(step, interval),
        unanswered: 0,
    };
    let mut rows = Vec::new();
    for board in boards {
        check.board(board, chosen, &mut rows).await;
    }
    Ok(Report {
        prometheus: prometheus.address().to_string(),
        version,
        at: settings.at,
        range_seconds: settings.range,
        step_seconds: step,
        scrape_interval_seconds: interval,
        rate_interval_seconds: check.window,
        dashboards: boards.len(),
        rows,
    })
}

/// Texts that stand for variables.
type Values = BTreeMap<String, String>;

struct Check<'a> {
    prometheus: &'a Prometheus,
    presences: Presences<'a>,
    range: Range,
    /// `$__rate_interval`, in seconds.
    window: f64,
    /// Questions in a row that nobody answered.
    unanswered: u32,
}

/// What is found out about one query.
struct Finding {
    status: Status,
    series: usize,
    reason: String,
}

impl Finding {
    fn of(status: Status, reason: impl Into<String>) -> Self {
        Self { status, series: 0, reason: reason.into() }
    }
}

impl Check<'_> {
    async fn board(&mut self, board: &Board, chosen: &Values, rows: &mut Vec<Row>) {
        let row = |panel: &str, target: &str, expr: &str, found: Finding| Row {
            dashboard: board.uid.clone(),
            panel: panel.to_owned(),
            target: target.to_owned(),
            status: found.status,
            series: found.series,
            reason: found.reason,
            expr: expr.to_owned(),
        };
        let mut values = Values::new();
        for variable in &board.variables {
            let (text, query, found) = self.variable(variable, &values, chosen).await;
            values.insert(variable.name.clone(), text);
            if let Some(found) = found {
                rows.push(row("", &format!("${}", variable.name), &query, found));
            }
        }
        for panel in &board.panels {
            for target in &panel.targets {
                let expr = self.interpolated(&target.expr, &values);
                let found = self.target(panel, target, &expr).await;
                rows.push(row(&panel.name, &target.ref_id, &expr, found));
            }
        }
        for (name, expr) in &board.annotations {
            let expr = self.interpolated(expr, &values);
            let found = match self.ask(&expr, false).await {
                Ok(counted) => Finding { status: Status::Ok, ..counted },
                Err(found) => found,
            };
            rows.push(row("", &format!("annotation {name}"), &expr, found));
        }
    }

    /// The text that stands for a variable, what was asked, and what came of it.
    async fn variable(
        &mut self,
        variable: &Variable,
        values: &Values,
        chosen: &Values,
    ) -> (String, String, Option<Finding>) {
        if let Some(text) = chosen.get(&variable.name) {
            return (escaped(text), String::new(), None);
        }
        let (selector, label, all) = match &variable.value {
            Source::Fixed(text) => return (text.clone(), String::new(), None),
            Source::Values { selector, label, all } => (selector, label, all),
        };
        let selector = self.interpolated(selector, values);
        let query = format!("label_values({selector}, {label})");
        let matchers: Vec<&str> =
            Some(&*selector).filter(|text| !text.is_empty()).into_iter().collect();
        let found = if self.unanswered < UNANSWERED_MAX {
            let Range { start, end, .. } = self.range;
            self.prometheus.label_values(label, &matchers, start, end).await
        } else {
            return (String::new(), query, Some(not_asked()));
        };
        let found = match found {
            Ok(found) => found,
            Err(error) => return (String::new(), query, Some(self.failed(&error))),
        };
        self.unanswered = 0;
        let text = match all {
            Some(All::Text(text)) => text.clone(),
            Some(All::Alternatives) => {
                let parts: Vec<String> = found.iter().map(|value| escaped(value)).collect();
                format!("({})", parts.join("|"))
            }
            None => found.first().cloned().unwrap_or_default(),
        };
        let finding = if found.is_empty() {
            let why = match self.missing(&selector, self.range.end - self.range.start).await {
                Ok(missing) if !missing.is_empty() => missing.join("; "),
                Ok(_) | Err(_) => format!("no series has the label {label}"),
            };
            Finding::of(Status::Empty, why)
        } else {
            Finding { status: Status::Ok, series: found.len(), reason: String::new() }
        };
        (text, query, Some(finding))
    }

    fn interpolated(&self, text: &str, values: &Values) -> String {
        let length = self.range.end - self.range.start;
        variables::interpolate(text, &mut |name| match name {
            "__rate_interval" => duration::write(self.window),
            "__interval" => duration::write(self.range.step),
            "__interval_ms" => format!("{}", self.range.step * 1_000.0),
            "__range" => duration::write(length),
            "__range_s" => format!("{length:.0}"),
            "__range_ms" => format!("{:.0}", length * 1_000.0),
            "__from" => format!("{:.0}", self.range.start * 1_000.0),
            "__to" => format!("{:.0}", self.range.end * 1_000.0),
            _ => values.get(name).cloned().unwrap_or_default(),
        })
    }

    async fn target(&mut self, panel: &Panel, target: &Target, expr: &str) -> Finding {
        match self.ask(expr, target.instant).await {
            Ok(found) if found.series > 0 => found,
            Ok(_) => match self.explain(panel, target.instant, expr).await {
                Ok(found) => found,
                Err(error) => self.failed(&error),
            },
            Err(found) => found,
        }
    }

    /// Asks, and counts what comes: `Ok` or `Nan` with the number of series.
    async fn ask(&mut self, expr: &str, instant: bool) -> Result<Finding, Finding> {
        if self.unanswered >= UNANSWERED_MAX {
            return Err(not_asked());
        }
        let values: Result<Vec<bool>, ClientError> = if instant {
            let samples = self.prometheus.query(expr, Some(self.range.end)).await;
            samples.map(|all| all.iter().map(|sample| !sample.value.is_nan()).collect())
        } else {
            let number = |series: &crate::client::Series| {
                series.histograms > 0 || series.points.iter().any(|(_, value)| !value.is_nan())
            };
            let series = self.prometheus.query_range(expr, self.range).await;
            series.map(|all| all.iter().map(number).collect())
        };
        let values = values.map_err(|error| self.failed(&error))?;
        self.unanswered = 0;
        let none = !values.is_empty() && !values.contains(&true);
        let (status, reason) =
            if none { (Status::Nan, "every value is NaN") } else { (Status::Ok, "") };
        Ok(Finding { status, series: values.len(), reason: reason.to_owned() })
    }

    fn failed(&mut self, error: &ClientError) -> Finding {
        if !error.answered() {
            self.unanswered += 1;
        }
        Finding::of(Status::Error, error.to_string())
    }

    /// Why nothing came.
    async fn explain(
        &mut self,
        panel: &Panel,
        instant: bool,
        expr: &str,
    ) -> Result<Finding, ClientError> {
        let range = self.range.end - self.range.start;
        let window = if instant { LOOKBACK_SECONDS } else { range };
        let mut waived = Vec::new();
        let mut missing = Vec::new();
        for selector in selectors(expr) {
            let presence = self.presences.of(&selector, window).await?;
            let Some(what) = presence.missing(&selector) else { continue };
            match waivers::reason(&selector.name) {
                Some(reason) => waived.push(format!("{what}: {reason}")),
                None => missing.push(what),
            }
        }
        if !missing.is_empty() {
            return Ok(Finding::of(Status::Empty, missing.join("; ")));
        }
        if !waived.is_empty() {
            return Ok(Finding::of(Status::Waived, waived.join("; ")));
        }
        if let Some(relaxed) = relaxed(expr)
            && matches!(self.ask(&relaxed, instant).await, Ok(found) if found.series == 0)
        {
            let why = "every series that it reads is there, and nothing comes even without its \
                       comparisons: labels do not match, or there is one scrape only";
            return Ok(Finding::of(Status::Empty, why));
        }
        Ok(match &panel.no_value {
            Some(text) => Finding::of(Status::Quiet, format!("shows {text:?}")),
            None => {
                let why = "there is nothing to show, and the panel has no text for that";
                Finding::of(Status::Empty, why)
            }
        })
    }

    /// What is missing of what a selector asks for.
    async fn missing(&mut self, text: &str, window: f64) -> Result<Vec<String>, ClientError> {
        let mut missing = Vec::new();
        for selector in selectors(text) {
            let presence = self.presences.of(&selector, window).await?;
            missing.extend(presence.missing(&selector));
        }
        Ok(missing)
    }
}

fn not_asked() -> Finding {
    Finding::of(Status::Error, "not asked: the server stopped answering")
}

/// A value as a part of a regular expression inside of quotes.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '\\' => text.push_str(r"\\\\"),
            '"' => text.push_str("\\\""),
            _ => {
                if ".+*?()|[]{}^$".contains(c) {
                    text.push_str(r"\\");
                }
                text.push(c);
            }
        }
    }
    text
}
