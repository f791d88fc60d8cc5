//! Walks the tree: selectors read the store, everything else is handed to its module.

use super::ast::{At, Call, Expr, Function, Selector, Subquery};
use super::budget::Account;
use super::value::{Matrix, Series, Value, merge};
use super::{QueryError, STEPS_MAX, aggregate, binary, functions, window};
use crate::store::{Matcher, SeriesSamples, Store, is_stale};

/// Step of a subquery that names none.
const SUBQUERY_STEP_MS: i64 = 15_000;

/// The times at which an expression is evaluated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    pub(super) start: i64,
    pub(super) step: i64,
    pub(super) count: usize,
}

impl Grid {
    pub(super) fn time(&self, index: usize) -> i64 {
        self.start + self.step * index as i64
    }

    fn end(&self) -> i64 {
        self.time(self.count.saturating_sub(1))
    }

    pub(super) fn times(&self) -> impl Iterator<Item = i64> {
        (0..self.count).map(|index| self.time(index))
    }
}

/// Evaluates expressions on one grid.
pub(super) struct Evaluator<'a> {
    store: &'a Store,
    pub(super) grid: Grid,
    pub(super) account: &'a Account<'a>,
    /// Start and end of the outermost query, for `@ start()` and `@ end()`.
    bounds: (i64, i64),
}

impl<'a> Evaluator<'a> {
    pub(super) fn new(store: &'a Store, grid: Grid, account: &'a Account<'a>) -> Self {
        Self { store, grid, account, bounds: (grid.start, grid.end()) }
    }

    /// The samples of a selector from `from` to `to`, both included, as far as the budget reaches.
    fn select(
        &self,
        matchers: &[Matcher],
        from: i64,
        to: i64,
    ) -> Result<Vec<SeriesSamples>, QueryError> {
        self.account.check()?;
        let found = self.store.select_at_most(matchers, from, to, self.account.left());
        let found = found.ok_or_else(|| self.account.too_many())?;
        self.account.charge(found.iter().map(|s| s.samples.len()).sum(), 1)?;
        Ok(found)
    }

    pub(super) fn eval(&self, expr: &Expr) -> Result<Value, QueryError> {
        match expr {
            Expr::Number(value) => Ok(Value::Scalar(vec![*value; self.grid.count])),
            Expr::String(text) => Ok(Value::String(text.clone())),
            Expr::Selector(selector) => {
                let series = self.selector(selector, |sample| sample.1)?;
                Ok(Value::Vector(series))
            }
            Expr::Range { .. } | Expr::Subquery(_) => {
                Err(QueryError::Execution("a range vector cannot stand here".to_owned()))
            }
            Expr::Negate(inner) => self.negate(inner),
            Expr::Binary(node) => binary::eval(self, node),
            Expr::Aggregate(node) => aggregate::eval(self, node),
            Expr::Call(call) => self.call(call),
        }
    }

    /// Evaluates an expression that the parser has checked to be a vector.
    pub(super) fn vector(&self, expr: &Expr) -> Result<Vec<Series>, QueryError> {
        match self.eval(expr)? {
            Value::Vector(series) => Ok(series),
            Value::Scalar(_) | Value::String(_) => Err(mismatch("instant vector")),
        }
    }

    /// Evaluates an expression that the parser has checked to be a scalar.
    pub(super) fn scalar(&self, expr: &Expr) -> Result<Vec<f64>, QueryError> {
        match self.eval(expr)? {
            Value::Scalar(values) => Ok(values),
            Value::Vector(_) | Value::String(_) => Err(mismatch("scalar")),
        }
    }

    fn negate(&self, inner: &Expr) -> Result<Value, QueryError> {
        Ok(match self.eval(inner)? {
            Value::Scalar(values) => Value::Scalar(values.into_iter().map(|v| -v).collect()),
            Value::Vector(series) => Value::Vector(functions::map(series, |v| -v)?),
            text @ Value::String(_) => text,
        })
    }

    fn call(&self, call: &Call) -> Result<Value, QueryError> {
        match window::function(call) {
            Some(function) => window::eval(self, call, function).map(Value::Vector),
            None => functions::eval(self, call),
        }
    }

    /// The times that a selector looks at, one per step.
    fn shifted(&self, at: Option<At>, offset_ms: i64) -> Vec<i64> {
        let fixed = match at {
            None => return self.grid.times().map(|t| t - offset_ms).collect(),
            Some(At::Time(time)) => time,
            Some(At::Start) => self.bounds.0,
            Some(At::End) => self.bounds.1,
        };
        vec![fixed - offset_ms; self.grid.count]
    }

    /// The newest sample of each series at each step, made a value by `pick`.
    pub(super) fn selector(
        &self,
        selector: &Selector,
        pick: impl Fn((i64, f64)) -> f64,
    ) -> Result<Vec<Series>, QueryError> {
        let times = self.shifted(selector.at, selector.offset_ms);
        let (Some(first), Some(last)) = (times.first(), times.last()) else {
            return Ok(Vec::new());
        };
        let lookback = self.account.budget.lookback_ms;
        let found = self.select(&selector.matchers, first - lookback + 1, *last)?;
        self.account.charge(found.len(), times.len())?;
        let series = found.into_iter().map(|raw| {
            let mut next = 0;
            let newest = |time: &i64| {
                while raw.samples.get(next).is_some_and(|(t, _)| t <= time) {
                    next += 1;
                }
                let sample = *raw.samples.get(next.checked_sub(1)?)?;
                (sample.0 > time - lookback && !is_stale(sample.1)).then(|| pick(sample))
            };
            Series { values: times.iter().map(newest).collect(), labels: raw.labels }
        });
        Ok(series.filter(|s| !s.is_empty()).collect())
    }

    /// The samples of a range selector or a subquery, end marks left out.
    pub(super) fn matrix(&self, expr: &Expr) -> Result<Matrix, QueryError> {
        match expr {
            Expr::Range { selector, range_ms } => {
                let ends = self.shifted(selector.at, selector.offset_ms);
                let (Some(first), Some(last)) = (ends.first(), ends.last()) else {
                    return Ok(Matrix { series: Vec::new(), range_ms: *range_ms, ends });
                };
                let from = first - range_ms + 1;
                let mut series = self.select(&selector.matchers, from, *last)?;
                for one in &mut series {
                    one.samples.retain(|(_, value)| !is_stale(*value));
                }
                series.retain(|one| !one.samples.is_empty());
                Ok(Matrix { series, range_ms: *range_ms, ends })
            }
            Expr::Subquery(subquery) => self.subquery(subquery),
            Expr::Number(_)
            | Expr::String(_)
            | Expr::Selector(_)
            | Expr::Negate(_)
            | Expr::Binary(_)
            | Expr::Aggregate(_)
            | Expr::Call(_) => Err(mismatch("range vector")),
        }
    }

    fn subquery(&self, node: &Subquery) -> Result<Matrix, QueryError> {
        let ends = self.shifted(node.at, node.offset_ms);
        let step = node.step_ms.unwrap_or(SUBQUERY_STEP_MS);
        let (Some(first), Some(last)) = (ends.first().copied(), ends.last().copied()) else {
            return Ok(Matrix { series: Vec::new(), range_ms: node.range_ms, ends });
        };
        // Inner steps are multiples of the step, whatever the outer times are.
        let start = (first - node.range_ms).div_euclid(step) * step + step;
        let count = (last - start).div_euclid(step) + 1;
        if count > STEPS_MAX * 10 {
            return Err(QueryError::Execution(format!(
                "a subquery of {count} steps, more than {}; a longer step or a shorter range \
                 would work",
                STEPS_MAX * 10
            )));
        }
        let count = usize::try_from(count).unwrap_or(0);
        let grid = Grid { start, step, count };
        let inner =
            Evaluator { store: self.store, grid, account: self.account, bounds: self.bounds };
        let series = match inner.eval(&node.expr)? {
            Value::Vector(series) => series,
            Value::Scalar(values) => {
                let values = values.into_iter().map(Some).collect();
                vec![Series { labels: Default::default(), values }]
            }
            Value::String(_) => return Err(mismatch("instant vector")),
        };
        let samples = |values: Vec<Option<f64>>| {
            let timed = values.into_iter().enumerate();
            timed.filter_map(|(i, v)| Some((grid.time(i), v?))).collect()
        };
        let series = merge(series)?
            .into_iter()
            .map(|s| SeriesSamples { labels: s.labels, samples: samples(s.values) })
            .collect();
        Ok(Matrix { series, range_ms: node.range_ms, ends })
    }

    /// `timestamp(selector)` answers the time of the sample, not of the step.
    pub(super) fn timestamps(&self, call: &Call) -> Result<Vec<Series>, QueryError> {
        debug_assert_eq!(call.function, Function::Timestamp);
        if let Some(Expr::Selector(selector)) = call.args.first() {
            return self.selector(selector, |(time, _)| time as f64 / 1000.0);
        }
        let mut series = self.vector(&call.args[0])?;
        for one in &mut series {
            for (index, value) in one.values.iter_mut().enumerate() {
                *value = value.map(|_| self.grid.time(index) as f64 / 1000.0);
            }
        }
        Ok(series)
    }
}

fn mismatch(wanted: &str) -> QueryError {
    QueryError::Execution(format!("expected type {wanted}"))
}
