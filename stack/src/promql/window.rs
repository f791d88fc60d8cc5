//! Functions of a range vector: each looks at the samples of one window per step.

use super::QueryError;
use super::ast::{Call, Function};
use super::eval::Evaluator;
use super::quantile::quantile;
use super::value::{Point, Series, merge};

/// The samples of one step: later than `start`, up to and including `end` (milliseconds).
pub(super) struct Window<'a> {
    samples: &'a [Point],
    start: i64,
    end: i64,
    /// The scalar argument of the function at this step.
    param: f64,
}

/// One function of a window; `None` where it has no value.
type WindowFn = fn(&Window<'_>) -> Option<f64>;

/// The window function that a call names, if it is one.
pub(super) fn function(call: &Call) -> Option<WindowFn> {
    let apply: WindowFn = match call.function {
        Function::Rate => |w| extrapolated(w, true, true),
        Function::Increase => |w| extrapolated(w, true, false),
        Function::Delta => |w| extrapolated(w, false, false),
        Function::Irate => |w| last_two(w, true),
        Function::Idelta => |w| last_two(w, false),
        Function::Deriv => |w| regression(w, w.samples.first()?.0).map(|(slope, _)| slope),
        Function::PredictLinear => |w| {
            let (slope, intercept) = regression(w, w.end)?;
            Some(slope * w.param + intercept)
        },
        Function::Changes => |w| count_pairs(w, |a, b| a != b && !(a.is_nan() && b.is_nan())),
        Function::Resets => |w| count_pairs(w, |a, b| b < a),
        Function::AvgOverTime => |w| Some(w.values().sum::<f64>() / w.samples.len() as f64),
        Function::SumOverTime => |w| Some(w.values().sum()),
        Function::CountOverTime => |w| Some(w.samples.len() as f64),
        Function::MinOverTime => |w| w.values().reduce(least),
        Function::MaxOverTime => |w| w.values().reduce(greatest),
        Function::LastOverTime => |w| w.values().last(),
        Function::PresentOverTime => |_| Some(1.0),
        Function::StdvarOverTime => |w| Some(variance(w)),
        Function::StddevOverTime => |w| Some(variance(w).sqrt()),
        Function::QuantileOverTime => |w| Some(quantile(w.param, w.values().collect())),
        // Answered even where there are no windows: a function of the vector, not of a window.
        Function::AbsentOverTime
        | Function::Abs
        | Function::Absent
        | Function::Ceil
        | Function::Clamp
        | Function::ClampMax
        | Function::ClampMin
        | Function::DayOfMonth
        | Function::DayOfWeek
        | Function::Exp
        | Function::Floor
        | Function::HistogramQuantile
        | Function::Hour
        | Function::LabelJoin
        | Function::LabelReplace
        | Function::Ln
        | Function::Log10
        | Function::Log2
        | Function::Minute
        | Function::Pi
        | Function::Round
        | Function::Scalar
        | Function::Sgn
        | Function::Sort
        | Function::SortDesc
        | Function::Sqrt
        | Function::Time
        | Function::Timestamp
        | Function::Vector => return None,
    };
    Some(apply)
}

/// Applies a window function to every series and step.
pub(super) fn eval(
    evaluator: &Evaluator<'_>,
    call: &Call,
    apply: WindowFn,
) -> Result<Vec<Series>, QueryError> {
    let (matrix, param) = if call.function == Function::QuantileOverTime {
        (&call.args[1], call.args.first())
    } else {
        (&call.args[0], call.args.get(1))
    };
    let params = param.map(|expr| evaluator.scalar(expr)).transpose()?;
    let matrix = evaluator.matrix(matrix)?;
    evaluator.account.charge(matrix.series.len(), matrix.ends.len())?;
    let keeps_name = call.function == Function::LastOverTime;
    let series = matrix.series.into_iter().map(|raw| {
        // Long windows take long: this is where a query spends its time.
        evaluator.account.check()?;
        let (mut low, mut high) = (0, 0);
        let per_step = matrix.ends.iter().enumerate().map(|(index, end)| {
            let start = end - matrix.range_ms;
            // Steps move forward, so both edges of the window only ever advance.
            while raw.samples.get(high).is_some_and(|(t, _)| t <= end) {
                high += 1;
            }
            while low < high && raw.samples[low].0 <= start {
                low += 1;
            }
            let samples = &raw.samples[low..high];
            let param = params.as_ref().map_or(f64::NAN, |values| values[index]);
            let window = Window { samples, start, end: *end, param };
            if samples.is_empty() { None } else { apply(&window) }
        });
        let values = per_step.collect();
        let labels = if keeps_name { raw.labels.clone() } else { raw.labels.without_name() };
        Ok(Series { labels, values })
    });
    merge(series.collect::<Result<_, _>>()?)
}

impl Window<'_> {
    fn values(&self) -> impl Iterator<Item = f64> {
        self.samples.iter().map(|(_, value)| *value)
    }
}

fn least(a: f64, b: f64) -> f64 {
    if b < a || a.is_nan() { b } else { a }
}

fn greatest(a: f64, b: f64) -> f64 {
    if b > a || a.is_nan() { b } else { a }
}

/// rate, increase and delta: the change between first and last sample, extended to the edges of
/// the window where the samples come near enough to them, but never below zero for a counter.
fn extrapolated(window: &Window<'_>, counter: bool, per_second: bool) -> Option<f64> {
    let (first, last) = (window.samples.first()?, window.samples.last()?);
    if window.samples.len() < 2 {
        return None;
    }
    let mut change = last.1 - first.1;
    if counter {
        let resets = window.samples.windows(2).filter(|pair| pair[1].1 < pair[0].1);
        change += resets.map(|pair| pair[0].1).sum::<f64>();
    }
    let seconds = |ms: i64| ms as f64 / 1000.0;
    let sampled = seconds(last.0 - first.0);
    let between = sampled / (window.samples.len() - 1) as f64;
    let near = between * 1.1;
    let mut to_start = seconds(first.0 - window.start);
    if to_start >= near {
        to_start = between / 2.0;
    }
    if counter && change > 0.0 && first.1 >= 0.0 {
        to_start = to_start.min(sampled * (first.1 / change));
    }
    let mut to_end = seconds(window.end - last.0);
    if to_end >= near {
        to_end = between / 2.0;
    }
    let mut factor = (sampled + to_start + to_end) / sampled;
    if per_second {
        factor /= seconds(window.end - window.start);
    }
    Some(change * factor)
}

/// irate and idelta: the change between the last two samples.
fn last_two(window: &Window<'_>, rate: bool) -> Option<f64> {
    let [.., before, last] = window.samples else {
        return None;
    };
    if !rate {
        return Some(last.1 - before.1);
    }
    let change = if last.1 < before.1 { last.1 } else { last.1 - before.1 };
    let seconds = (last.0 - before.0) as f64 / 1000.0;
    (seconds > 0.0).then_some(change / seconds)
}

fn count_pairs(window: &Window<'_>, counts: impl Fn(f64, f64) -> bool) -> Option<f64> {
    let pairs = window.samples.windows(2);
    Some(pairs.filter(|pair| counts(pair[0].1, pair[1].1)).count() as f64)
}

fn variance(window: &Window<'_>) -> f64 {
    let count = window.samples.len() as f64;
    let mean = window.values().sum::<f64>() / count;
    window.values().map(|v| (v - mean) * (v - mean)).sum::<f64>() / count
}

/// Least squares: slope per second, and the value at `origin_ms`.
fn regression(window: &Window<'_>, origin_ms: i64) -> Option<(f64, f64)> {
    if window.samples.len() < 2 {
        return None;
    }
    let count = window.samples.len() as f64;
    let (mut sum_x, mut sum_y, mut sum_xy, mut sum_xx) = (0.0, 0.0, 0.0, 0.0);
    for (time, value) in window.samples {
        let x = (time - origin_ms) as f64 / 1000.0;
        sum_x += x;
        sum_y += value;
        sum_xy += x * value;
        sum_xx += x * x;
    }
    let slope = (sum_xy - sum_x * sum_y / count) / (sum_xx - sum_x * sum_x / count);
    Some((slope, sum_y / count - slope * sum_x / count))
}
