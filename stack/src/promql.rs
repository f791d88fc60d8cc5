//! PromQL over the embedded store: parser and evaluator.
//!
//! Semantics are those of Prometheus 3: left-open windows and look-back, staleness marks, metric
//! names dropped where Prometheus drops them. Native histograms, exemplars and the experimental
//! functions are not here. An expression is evaluated for all steps of a range at once, so labels
//! are matched, grouped and joined once per query and not once per step.

mod aggregate;
mod ast;
mod binary;
mod budget;
mod check;
#[cfg(test)]
mod differential;
mod eval;
mod functions;
mod lexer;
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "a token that no rule expects is the same error, whatever it is"
)]
mod parser;
mod quantile;
#[cfg(test)]
mod tests;
mod value;
mod window;

use thiserror::Error;

pub(crate) use budget::{Budget, SAMPLES_MAX};
pub(crate) use value::{Point, RangeSeries};

use crate::store::{Labels, Matcher, Store};
use ast::{Expr, Type};
use budget::Account;
use eval::{Evaluator, Grid};
use value::Value;

/// How far back an instant selector looks for a sample.
pub(crate) const LOOKBACK_MS: i64 = 5 * 60 * 1000;

/// Steps of one range query, as in Prometheus.
pub(crate) const STEPS_MAX: i64 = 11_000;

/// A query longer than this many bytes is refused.
const QUERY_BYTES_MAX: usize = 64 * 1024;

/// Text that is not a valid expression.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub(crate) struct ParseError {
    /// Byte offset in the query.
    at: usize,
    message: String,
}

impl ParseError {
    fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }

    /// The message with line and column, in the form of Prometheus.
    fn located(&self, text: &str) -> String {
        let before = text.get(..self.at).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        format!("{line}:{column}: parse error: {}", self.message)
    }
}

/// Why a query has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum QueryError {
    /// The query itself is wrong.
    #[error("{0}")]
    Bad(String),
    /// The query met data that it cannot combine, or a bound.
    #[error("{0}")]
    Execution(String),
    /// It was told to end before it had an answer.
    #[error("query timed out in expression evaluation")]
    Stopped,
}

/// The answer of an instant query.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Scalar(f64),
    String(String),
    Vector(Vec<(Labels, f64)>),
    /// A range selector at the top: the raw samples.
    Matrix(Vec<RangeSeries>),
}

/// A parsed expression, ready to be evaluated many times.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    expr: Expr,
}

impl Query {
    /// Parses and checks `text`.
    pub(crate) fn parse(text: &str) -> Result<Self, QueryError> {
        if text.len() > QUERY_BYTES_MAX {
            return Err(QueryError::Bad(format!("query is longer than {QUERY_BYTES_MAX} bytes")));
        }
        let expr = parser::parse(text).map_err(|e| QueryError::Bad(e.located(text)))?;
        Ok(Self { expr })
    }

    /// The value at one time (Unix milliseconds), within the default budget.
    pub(crate) fn instant(&self, store: &Store, time_ms: i64) -> Result<Answer, QueryError> {
        self.instant_within(store, time_ms, &Budget::default())
    }

    /// The value at one time (Unix milliseconds).
    pub(crate) fn instant_within(
        &self,
        store: &Store,
        time_ms: i64,
        budget: &Budget,
    ) -> Result<Answer, QueryError> {
        let account = Account::new(budget);
        let evaluator = Evaluator::new(store, Grid { start: time_ms, step: 1, count: 1 }, &account);
        if self.expr.kind() == Type::Matrix {
            let matrix = evaluator.matrix(&self.expr)?;
            return Ok(Answer::Matrix(matrix.into_raw(time_ms)));
        }
        Ok(match evaluator.eval(&self.expr)? {
            Value::Scalar(values) => Answer::Scalar(values.first().copied().unwrap_or(f64::NAN)),
            Value::String(text) => Answer::String(text),
            Value::Vector(series) => Answer::Vector(
                series
                    .into_iter()
                    .filter_map(|s| Some((s.labels, s.values.first().copied().flatten()?)))
                    .collect(),
            ),
        })
    }

    /// The values from `start_ms` to `end_ms`, both included, every `step_ms`, sorted by labels.
    ///
    /// The caller has checked that `step_ms` is positive and the number of steps bounded.
    pub(crate) fn range(
        &self,
        store: &Store,
        start_ms: i64,
        end_ms: i64,
        step_ms: i64,
        budget: &Budget,
    ) -> Result<Vec<RangeSeries>, QueryError> {
        let count = usize::try_from((end_ms - start_ms) / step_ms + 1).unwrap_or(0);
        let grid = Grid { start: start_ms, step: step_ms, count };
        match self.expr.kind() {
            Type::Scalar | Type::Vector => {}
            kind @ (Type::String | Type::Matrix) => {
                return Err(QueryError::Bad(format!(
                    "invalid expression type {:?} for range query, must be Scalar or instant \
                     Vector",
                    kind.name()
                )));
            }
        }
        let points = |values: Vec<Option<f64>>| -> Vec<Point> {
            let timed = values.into_iter().enumerate();
            timed.filter_map(|(i, v)| Some((grid.time(i), v?))).collect()
        };
        let account = Account::new(budget);
        let value = Evaluator::new(store, grid, &account).eval(&self.expr)?;
        let mut out: Vec<RangeSeries> = match value {
            Value::Scalar(values) => {
                let points = points(values.into_iter().map(Some).collect());
                vec![RangeSeries { labels: Labels::default(), points }]
            }
            Value::String(_) => Vec::new(),
            Value::Vector(series) => series
                .into_iter()
                .map(|s| RangeSeries { labels: s.labels, points: points(s.values) })
                .filter(|s| !s.points.is_empty())
                .collect(),
        };
        out.sort_by(|a, b| a.labels.cmp(&b.labels));
        Ok(out)
    }
}

/// Parses a bare series selector, as in `match[]`.
pub(crate) fn parse_selector(text: &str) -> Result<Vec<Matcher>, QueryError> {
    if let Expr::Selector(selector) = Query::parse(text)?.expr
        && selector.offset_ms == 0
        && selector.at.is_none()
    {
        return Ok(selector.matchers);
    }
    Err(QueryError::Bad("expected a series selector".to_owned()))
}

/// Whether a text can be the name of a label.
pub(crate) fn is_label_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let head = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    head && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Reads a duration such as `5m`; milliseconds.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (ms, length) = lexer::duration(text)?;
    (length == text.len()).then_some(ms)
}
