//! Binary operators: between scalars, a scalar and a vector, and two matched vectors.

use std::collections::HashMap;

use super::QueryError;
use super::ast::{Binary, BinaryOp, Group, Matching};
use super::eval::Evaluator;
use super::value::{Series, Value, merge};
use crate::store::{Labels, NAME};

pub(super) fn eval(evaluator: &Evaluator<'_>, node: &Binary) -> Result<Value, QueryError> {
    let (left, right) = (evaluator.eval(&node.left)?, evaluator.eval(&node.right)?);
    Ok(match (left, right) {
        (Value::Scalar(left), Value::Scalar(right)) => {
            let pairs = left.into_iter().zip(right);
            Value::Scalar(pairs.map(|(l, r)| number(node.op, l, r)).collect())
        }
        (Value::Vector(series), Value::Scalar(scalar)) => {
            Value::Vector(with_scalar(node, series, &scalar, false)?)
        }
        (Value::Scalar(scalar), Value::Vector(series)) => {
            Value::Vector(with_scalar(node, series, &scalar, true)?)
        }
        (Value::Vector(left), Value::Vector(right)) if node.op.is_set() => {
            Value::Vector(set(node, left, right, evaluator.grid.count)?)
        }
        (Value::Vector(left), Value::Vector(right)) => Value::Vector(match node.matching.group {
            Group::OneToOne | Group::Left => pair(evaluator, node, left, right, false)?,
            Group::Right => pair(evaluator, node, right, left, true)?,
        }),
        (Value::String(_), _) | (_, Value::String(_)) => {
            return Err(QueryError::Execution("operators do not take strings".to_owned()));
        }
    })
}

/// The number that an operator gives; comparisons give 1 or 0.
fn number(op: BinaryOp, left: f64, right: f64) -> f64 {
    match op {
        BinaryOp::Add => left + right,
        BinaryOp::Sub => left - right,
        BinaryOp::Mul => left * right,
        BinaryOp::Div => left / right,
        BinaryOp::Mod => left % right,
        BinaryOp::Pow => left.powf(right),
        BinaryOp::Atan2 => left.atan2(right),
        BinaryOp::Eq => f64::from(left == right),
        BinaryOp::Ne => f64::from(left != right),
        BinaryOp::Gt => f64::from(left > right),
        BinaryOp::Lt => f64::from(left < right),
        BinaryOp::Ge => f64::from(left >= right),
        BinaryOp::Le => f64::from(left <= right),
        BinaryOp::And | BinaryOp::Or | BinaryOp::Unless => f64::NAN,
    }
}

/// The value of an element; a comparison without `bool` keeps `shown` or drops the element.
fn element(node: &Binary, left: f64, right: f64, shown: f64) -> Option<f64> {
    let value = number(node.op, left, right);
    if node.op.is_comparison() && !node.return_bool {
        return (value != 0.0).then_some(shown);
    }
    Some(value)
}

fn drops_name(node: &Binary) -> bool {
    !node.op.is_comparison() || node.return_bool
}

fn with_scalar(
    node: &Binary,
    series: Vec<Series>,
    scalar: &[f64],
    scalar_left: bool,
) -> Result<Vec<Series>, QueryError> {
    let one = |mut s: Series| {
        for (value, scalar) in s.values.iter_mut().zip(scalar) {
            *value = value.and_then(|v| {
                let (left, right) = if scalar_left { (*scalar, v) } else { (v, *scalar) };
                element(node, left, right, v)
            });
        }
        if drops_name(node) {
            s.labels = s.labels.without_name();
        }
        s
    };
    merge(series.into_iter().map(one).collect())
}

/// The labels by which elements of the two sides find each other.
fn signature(matching: &Matching, labels: &Labels) -> Labels {
    let listed = |name: &str| matching.labels.iter().any(|label| label == name);
    if matching.on {
        labels.filtered(listed)
    } else {
        labels.filtered(|name| name != NAME && !listed(name))
    }
}

fn by_signature<'a>(matching: &Matching, series: &'a [Series]) -> HashMap<Labels, Vec<&'a Series>> {
    let mut map: HashMap<Labels, Vec<&Series>> = HashMap::new();
    for one in series {
        map.entry(signature(matching, &one.labels)).or_default().push(one);
    }
    map
}

fn set(
    node: &Binary,
    left: Vec<Series>,
    right: Vec<Series>,
    steps: usize,
) -> Result<Vec<Series>, QueryError> {
    let presence = |series: &[Series]| {
        let mut map: HashMap<Labels, Vec<bool>> = HashMap::new();
        for one in series {
            let mask =
                map.entry(signature(&node.matching, &one.labels)).or_insert(vec![false; steps]);
            for (slot, value) in mask.iter_mut().zip(&one.values) {
                *slot |= value.is_some();
            }
        }
        map
    };
    let keep = |mut series: Vec<Series>, other: &HashMap<Labels, Vec<bool>>, wanted: bool| {
        for one in &mut series {
            let mask = other.get(&signature(&node.matching, &one.labels));
            for (index, value) in one.values.iter_mut().enumerate() {
                if mask.is_some_and(|mask| mask[index]) != wanted {
                    *value = None;
                }
            }
        }
        series
    };
    let out = if node.op == BinaryOp::And {
        keep(left, &presence(&right), true)
    } else if node.op == BinaryOp::Unless {
        keep(left, &presence(&right), false)
    } else {
        let taken = presence(&left);
        let mut out = left;
        out.extend(keep(right, &taken, false));
        out
    };
    merge(out)
}

/// Pairs each element of the many side with the one of the same signature.
///
/// For one-to-one matching, the left side takes the part of the many side.
fn pair(
    evaluator: &Evaluator<'_>,
    node: &Binary,
    many: Vec<Series>,
    one: Vec<Series>,
    swapped: bool,
) -> Result<Vec<Series>, QueryError> {
    let ones = by_signature(&node.matching, &one);
    check_unique(&ones, if swapped { "left" } else { "right" })?;
    if node.matching.group == Group::OneToOne {
        let manys = by_signature(&node.matching, &many);
        for (signature, members) in &manys {
            if ones.contains_key(signature) && overlap(members) {
                return Err(QueryError::Execution(
                    "multiple matches for labels: many-to-one matching must be explicit \
                     (group_left/group_right)"
                        .to_owned(),
                ));
            }
        }
    }
    let mut out = Vec::new();
    for element_many in &many {
        let found = ones.get(&signature(&node.matching, &element_many.labels));
        for element_one in found.into_iter().flatten() {
            evaluator.account.charge(1, evaluator.grid.count)?;
            let pairs = element_many.values.iter().zip(&element_one.values);
            let values = pairs.map(|(many, one)| {
                let (many, one) = ((*many)?, (*one)?);
                let (left, right) = if swapped { (one, many) } else { (many, one) };
                element(node, left, right, left)
            });
            let labels = result_labels(node, &element_many.labels, &element_one.labels);
            out.push(Series { labels, values: values.collect() });
        }
    }
    merge(out)
}

fn overlap(members: &[&Series]) -> bool {
    let steps = members.first().map_or(0, |s| s.values.len());
    members.len() > 1
        && (0..steps).any(|i| members.iter().filter(|s| s.values[i].is_some()).count() > 1)
}

fn check_unique(ones: &HashMap<Labels, Vec<&Series>>, side: &str) -> Result<(), QueryError> {
    match ones.iter().find(|(_, members)| overlap(members)) {
        None => Ok(()),
        Some((signature, members)) => Err(QueryError::Execution(format!(
            "found duplicate series for the match group {signature} on the {side} hand-side of \
             the operation: [{}, {}];many-to-many matching not allowed: matching labels must be \
             unique on one side",
            members[1].labels, members[0].labels
        ))),
    }
}

fn result_labels(node: &Binary, many: &Labels, one: &Labels) -> Labels {
    let mut labels = if drops_name(node) { many.without_name() } else { many.clone() };
    let matching = &node.matching;
    if matching.group == Group::OneToOne {
        let listed = |name: &str| matching.labels.iter().any(|label| label == name);
        labels = labels.filtered(|name| listed(name) == matching.on);
    }
    for name in &matching.include {
        labels = labels.with(name, one.get(name).unwrap_or(""));
    }
    labels
}
