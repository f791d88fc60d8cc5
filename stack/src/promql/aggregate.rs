//! Aggregations over the series of a vector.

use std::collections::HashMap;

use super::QueryError;
use super::ast::{Aggregate, AggregateOp, Expr};
use super::eval::Evaluator;
use super::quantile::quantile;
use super::value::{Series, Value};
use crate::store::{Labels, NAME};

pub(super) fn eval(evaluator: &Evaluator<'_>, node: &Aggregate) -> Result<Value, QueryError> {
    let series = evaluator.vector(&node.expr)?;
    let groups = group(node, series);
    let steps = evaluator.grid.count;
    let scalar = |param: &Option<Expr>| match param {
        Some(expr) => evaluator.scalar(expr),
        None => Ok(vec![f64::NAN; steps]),
    };
    let out = match node.op {
        AggregateOp::TopK | AggregateOp::BottomK => {
            let k = scalar(&node.param)?;
            let top = node.op == AggregateOp::TopK;
            groups.into_iter().flat_map(|(_, members)| extremes(members, &k, top)).collect()
        }
        AggregateOp::CountValues => count_values(evaluator, node, groups)?,
        AggregateOp::Quantile => {
            let q = scalar(&node.param)?;
            fold(groups, steps, |index, values| quantile(q[index], values))
        }
        AggregateOp::Sum => fold(groups, steps, |_, values| values.into_iter().sum()),
        AggregateOp::Avg => fold(groups, steps, |_, values| {
            let count = values.len() as f64;
            values.into_iter().sum::<f64>() / count
        }),
        AggregateOp::Min => fold(groups, steps, |_, values| pick(values, |new, old| new < old)),
        AggregateOp::Max => fold(groups, steps, |_, values| pick(values, |new, old| new > old)),
        AggregateOp::Count => fold(groups, steps, |_, values| values.len() as f64),
        AggregateOp::Group => fold(groups, steps, |_, _| 1.0),
        AggregateOp::Stddev => fold(groups, steps, |_, values| variance(&values).sqrt()),
        AggregateOp::Stdvar => fold(groups, steps, |_, values| variance(&values)),
    };
    Ok(Value::Vector(out))
}

type Groups = Vec<(Labels, Vec<Series>)>;

/// Sorts series into groups, in the order in which the groups first appear.
fn group(node: &Aggregate, series: Vec<Series>) -> Groups {
    let listed = |name: &str| node.labels.iter().any(|label| label == name);
    let mut places: HashMap<Labels, usize> = HashMap::new();
    let mut groups: Groups = Vec::new();
    for one in series {
        let labels = if node.without {
            one.labels.filtered(|name| name != NAME && !listed(name))
        } else {
            one.labels.filtered(listed)
        };
        let place = *places.entry(labels.clone()).or_insert_with(|| {
            groups.push((labels, Vec::new()));
            groups.len() - 1
        });
        groups[place].1.push(one);
    }
    groups
}

/// One output series per group; a step without any value has none.
fn fold(groups: Groups, steps: usize, apply: impl Fn(usize, Vec<f64>) -> f64) -> Vec<Series> {
    let one = |(labels, members): (Labels, Vec<Series>)| {
        let step = |index: usize| {
            let values: Vec<f64> = members.iter().filter_map(|s| s.values[index]).collect();
            (!values.is_empty()).then(|| apply(index, values))
        };
        Series { labels, values: (0..steps).map(step).collect() }
    };
    groups.into_iter().map(one).collect()
}

fn pick(values: Vec<f64>, better: impl Fn(f64, f64) -> bool) -> f64 {
    let choose = |old: f64, new: f64| if better(new, old) || old.is_nan() { new } else { old };
    values.into_iter().reduce(choose).unwrap_or(f64::NAN)
}

fn variance(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / count
}

/// topk and bottomk: per step the k best series keep their value; best first in the output.
fn extremes(members: Vec<Series>, k: &[f64], top: bool) -> Vec<Series> {
    let worth = |value: f64| match (value.is_nan(), top) {
        (true, _) => f64::NEG_INFINITY,
        (false, true) => value,
        (false, false) => -value,
    };
    let mut kept: Vec<Series> = members
        .iter()
        .map(|s| Series { labels: s.labels.clone(), values: vec![None; s.values.len()] })
        .collect();
    for (index, k) in k.iter().enumerate() {
        let present = members.iter().enumerate();
        let mut ranked: Vec<(usize, f64)> =
            present.filter_map(|(place, s)| Some((place, s.values[index]?))).collect();
        ranked.sort_by(|a, b| worth(b.1).total_cmp(&worth(a.1)));
        let k = if *k >= 1.0 { *k as usize } else { 0 };
        for (place, value) in ranked.into_iter().take(k) {
            kept[place].values[index] = Some(value);
        }
    }
    kept.retain(|s| !s.is_empty());
    if k.len() == 1 {
        let value = |s: &Series| s.values.first().copied().flatten().map_or(f64::NAN, worth);
        kept.sort_by(|a, b| value(b).total_cmp(&value(a)));
    }
    kept
}

fn count_values(
    evaluator: &Evaluator<'_>,
    node: &Aggregate,
    groups: Groups,
) -> Result<Vec<Series>, QueryError> {
    let Some(Value::String(label)) = node.param.as_ref().map(|p| evaluator.eval(p)).transpose()?
    else {
        return Err(QueryError::Execution("count_values needs a label name".to_owned()));
    };
    let steps = evaluator.grid.count;
    let mut out = Vec::new();
    for (labels, members) in groups {
        let mut counts: HashMap<String, Vec<Option<f64>>> = HashMap::new();
        for one in &members {
            for (index, value) in one.values.iter().enumerate() {
                let Some(value) = value else { continue };
                let text = value.to_string();
                if !counts.contains_key(&text) {
                    evaluator.account.charge(1, steps)?;
                }
                let slots = counts.entry(text).or_insert_with(|| vec![None; steps]);
                slots[index] = Some(slots[index].unwrap_or(0.0) + 1.0);
            }
        }
        let mut counted: Vec<_> = counts.into_iter().collect();
        counted.sort_by(|a, b| a.0.cmp(&b.0));
        let series = counted
            .into_iter()
            .map(|(value, values)| Series { labels: labels.with(&label, &value), values });
        out.extend(series);
    }
    Ok(out)
}
