//! Functions of instant vectors and scalars.

use super::ast::{Call, Expr, Function, Selector};
use super::budget::label_value;
use super::eval::Evaluator;
use super::quantile;
use super::value::{Series, Value, merge};
use super::{QueryError, is_label_name};
use crate::store::{Labels, Matcher, NAME, anchored};

/// Applies `f` to every value and drops the metric name.
pub(super) fn map(series: Vec<Series>, f: impl Fn(f64) -> f64) -> Result<Vec<Series>, QueryError> {
    map_steps(series, |_, value| f(value))
}

fn map_steps(
    mut series: Vec<Series>,
    f: impl Fn(usize, f64) -> f64,
) -> Result<Vec<Series>, QueryError> {
    for one in &mut series {
        one.labels = one.labels.without_name();
        for (index, value) in one.values.iter_mut().enumerate() {
            *value = value.map(|v| f(index, v));
        }
    }
    merge(series)
}

pub(super) fn eval(evaluator: &Evaluator<'_>, call: &Call) -> Result<Value, QueryError> {
    let vector = |index: usize| evaluator.vector(&call.args[index]);
    let scalar = |index: usize| evaluator.scalar(&call.args[index]);
    let simple = |f: fn(f64) -> f64| map(vector(0)?, f);
    let steps = evaluator.grid.count;
    let out = match call.function {
        Function::Abs => simple(f64::abs)?,
        Function::Ceil => simple(f64::ceil)?,
        Function::Floor => simple(f64::floor)?,
        Function::Exp => simple(f64::exp)?,
        Function::Ln => simple(f64::ln)?,
        Function::Log2 => simple(f64::log2)?,
        Function::Log10 => simple(f64::log10)?,
        Function::Sqrt => simple(f64::sqrt)?,
        Function::Sgn => simple(sign)?,
        Function::Round | Function::Clamp | Function::ClampMin | Function::ClampMax => {
            bounded(evaluator, call)?
        }
        Function::HistogramQuantile => merge(quantile::histogram(&scalar(0)?, vector(1)?))?,
        Function::LabelReplace => label_replace(call, vector(0)?)?,
        Function::LabelJoin => label_join(call, vector(0)?)?,
        Function::Sort => sorted(vector(0)?, false),
        Function::SortDesc => sorted(vector(0)?, true),
        Function::Timestamp => map(evaluator.timestamps(call)?, |v| v)?,
        Function::Vector => {
            let values = scalar(0)?.into_iter().map(Some).collect();
            vec![Series { labels: Labels::default(), values }]
        }
        Function::Absent => absent(&call.args[0], &vector(0)?, steps),
        Function::AbsentOverTime => absent_over_time(evaluator, &call.args[0])?,
        Function::Minute => calendar(evaluator, call, |s| s.rem_euclid(3600).div_euclid(60))?,
        Function::Hour => calendar(evaluator, call, |s| s.rem_euclid(86_400).div_euclid(3600))?,
        Function::DayOfWeek => {
            calendar(evaluator, call, |s| (s.div_euclid(86_400) + 4).rem_euclid(7))?
        }
        Function::DayOfMonth => calendar(evaluator, call, day_of_month)?,
        Function::Time | Function::Pi | Function::Scalar => return scalars(evaluator, call),
        Function::AvgOverTime
        | Function::Changes
        | Function::CountOverTime
        | Function::Delta
        | Function::Deriv
        | Function::Idelta
        | Function::Increase
        | Function::Irate
        | Function::LastOverTime
        | Function::MaxOverTime
        | Function::MinOverTime
        | Function::PredictLinear
        | Function::PresentOverTime
        | Function::QuantileOverTime
        | Function::Rate
        | Function::Resets
        | Function::StddevOverTime
        | Function::StdvarOverTime
        | Function::SumOverTime => {
            return Err(QueryError::Execution("expected a function of a vector".to_owned()));
        }
    };
    Ok(Value::Vector(out))
}

/// Minus one, zero or one; NaN stays.
fn sign(value: f64) -> f64 {
    if value > 0.0 {
        1.0
    } else if value < 0.0 {
        -1.0
    } else {
        value
    }
}

/// Rounding and clamping: functions of a value and of scalars of the same step.
fn bounded(evaluator: &Evaluator<'_>, call: &Call) -> Result<Vec<Series>, QueryError> {
    let series = evaluator.vector(&call.args[0])?;
    let scalars: Vec<Vec<f64>> =
        call.args[1..].iter().map(|arg| evaluator.scalar(arg)).collect::<Result<_, _>>()?;
    let at = |index: usize, step: usize| scalars.get(index).map_or(1.0, |values| values[step]);
    if call.function == Function::Round {
        return map_steps(series, |step, v| {
            let inverse = 1.0 / at(0, step);
            (v * inverse + 0.5).floor() / inverse
        });
    }
    if call.function == Function::ClampMin {
        return map_steps(series, |step, v| v.max(at(0, step)));
    }
    if call.function == Function::ClampMax {
        return map_steps(series, |step, v| v.min(at(0, step)));
    }
    let mut series = map_steps(series, |step, v| at(0, step).max(at(1, step).min(v)))?;
    for one in &mut series {
        for (step, value) in one.values.iter_mut().enumerate() {
            *value = value.filter(|_| at(0, step) <= at(1, step));
        }
    }
    Ok(series)
}

fn scalars(evaluator: &Evaluator<'_>, call: &Call) -> Result<Value, QueryError> {
    let steps = evaluator.grid.count;
    Ok(Value::Scalar(if call.function == Function::Time {
        evaluator.grid.times().map(|ms| ms as f64 / 1000.0).collect()
    } else if call.function == Function::Pi {
        vec![std::f64::consts::PI; steps]
    } else {
        let series = evaluator.vector(&call.args[0])?;
        let only = |index: usize| {
            let mut present = series.iter().filter_map(|s| s.values[index]);
            let first = present.next();
            first.filter(|_| present.next().is_none()).unwrap_or(f64::NAN)
        };
        (0..steps).map(only).collect()
    }))
}

/// Instant queries show the order; in ranges it has no meaning, as in Prometheus.
fn sorted(mut series: Vec<Series>, descending: bool) -> Vec<Series> {
    let value = |s: &Series| s.values.first().copied().flatten().unwrap_or(f64::NAN);
    series.sort_by(|a, b| {
        let (a, b) = (value(a), value(b));
        match (a.is_nan(), b.is_nan()) {
            (true, true) => std::cmp::Ordering::Equal,
            (true, false) => std::cmp::Ordering::Greater,
            (false, true) => std::cmp::Ordering::Less,
            (false, false) if descending => b.total_cmp(&a),
            (false, false) => a.total_cmp(&b),
        }
    });
    series
}

fn text(call: &Call, index: usize) -> Result<&str, QueryError> {
    match call.args.get(index) {
        Some(Expr::String(text)) => Ok(text),
        _ => {
            Err(QueryError::Execution(format!("{} expects a string literal", call.function.name())))
        }
    }
}

fn valid_label(name: &str) -> Result<&str, QueryError> {
    if is_label_name(name) {
        return Ok(name);
    }
    Err(QueryError::Execution(format!("invalid label name {name:?}")))
}

fn label_replace(call: &Call, mut series: Vec<Series>) -> Result<Vec<Series>, QueryError> {
    let (target, template, source) = (text(call, 1)?, text(call, 2)?, text(call, 3)?);
    let target = valid_label(target)?;
    let regex = anchored(text(call, 4)?).map_err(QueryError::Execution)?;
    for one in &mut series {
        let value = one.labels.get(source).unwrap_or("").to_owned();
        if let Some(captures) = regex.captures(&value) {
            let mut replaced = String::new();
            captures.expand(template, &mut replaced);
            one.labels = one.labels.with(target, label_value(&replaced)?);
        }
    }
    merge(series)
}

fn label_join(call: &Call, mut series: Vec<Series>) -> Result<Vec<Series>, QueryError> {
    let (target, separator) = (valid_label(text(call, 1)?)?, text(call, 2)?);
    let sources: Vec<&str> =
        (3..call.args.len()).map(|index| text(call, index)).collect::<Result<_, _>>()?;
    for one in &mut series {
        let values: Vec<&str> =
            sources.iter().map(|name| one.labels.get(name).unwrap_or("")).collect();
        one.labels = one.labels.with(target, label_value(&values.join(separator))?);
    }
    merge(series)
}

/// The labels that an absent series would surely have: those of plain equality matchers.
fn absent_labels(selector: Option<&Selector>) -> Labels {
    let matchers = selector.map_or(&[][..], |s| &s.matchers);
    let once = |matcher: &&Matcher| {
        matchers.iter().filter(|other| other.label == matcher.label).count() == 1
    };
    let pairs = matchers
        .iter()
        .filter(once)
        .filter(|matcher| matcher.label != NAME)
        .filter_map(|matcher| Some((matcher.label.clone(), matcher.exact()?.to_owned())));
    Labels::new(pairs)
}

fn absent(arg: &Expr, series: &[Series], steps: usize) -> Vec<Series> {
    let selector = if let Expr::Selector(selector) = arg { Some(selector) } else { None };
    let step = |i: usize| series.iter().all(|s| s.values[i].is_none()).then_some(1.0);
    vec![Series { labels: absent_labels(selector), values: (0..steps).map(step).collect() }]
}

fn absent_over_time(evaluator: &Evaluator<'_>, arg: &Expr) -> Result<Vec<Series>, QueryError> {
    let selector = if let Expr::Range { selector, .. } = arg { Some(selector) } else { None };
    let matrix = evaluator.matrix(arg)?;
    let step = |end: &i64| {
        let start = end - matrix.range_ms;
        let inside = |s: &crate::store::SeriesSamples| {
            let next = s.samples.partition_point(|(t, _)| *t <= start);
            s.samples.get(next).is_some_and(|(t, _)| t <= end)
        };
        (!matrix.series.iter().any(inside)).then_some(1.0)
    };
    let values = matrix.ends.iter().map(step).collect();
    Ok(vec![Series { labels: absent_labels(selector), values }])
}

/// Functions of a time: of the values of a vector, or of the evaluation time.
fn calendar(
    evaluator: &Evaluator<'_>,
    call: &Call,
    f: fn(i64) -> i64,
) -> Result<Vec<Series>, QueryError> {
    let series = match call.args.first() {
        Some(arg) => evaluator.vector(arg)?,
        None => {
            let values = evaluator.grid.times().map(|ms| Some(ms as f64 / 1000.0)).collect();
            vec![Series { labels: Labels::default(), values }]
        }
    };
    map(series, |seconds| f(seconds as i64) as f64)
}

/// Day of the month of a Unix time, by the civil calendar (days counted from a March year).
fn day_of_month(seconds: i64) -> i64 {
    let days = seconds.div_euclid(86_400) + 719_468;
    let day_of_era = days.rem_euclid(146_097);
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    day_of_year - (153 * month + 2) / 5 + 1
}
