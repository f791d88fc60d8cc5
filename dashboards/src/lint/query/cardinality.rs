//! L12: how many series a panel would draw, estimated from the catalog.
//!
//! Closed labels have their values, or those that the query leaves of them. Of the open labels of a
//! result the one with the largest bound counts: the others describe the same things (a card has
//! one uuid and one name). The labels of targets stand for a fleet of an assumed size, in one
//! cluster: that variable is there to be chosen.

use super::shape::Shape;
use super::{children, selector};
use crate::ir::{Kind, Panel};
use crate::usage::metric_of;
use metric_catalog::def::{Info, Source, Values};
use promql_parser::label::MatchOp;
use promql_parser::parser::{Expr, VectorSelector};
use std::collections::BTreeSet;

/// Series of a panel above which every refresh moves megabytes: a series has some 360 points of 20
/// bytes, so that 512 are 3.7 MB each ten seconds. Eyes give up long before.
pub(super) const SERIES_MAX: u64 = 512;

/// Processes that are looked at together: four pairs of prefill and decode.
const INSTANCES: u64 = 8;

/// Hosts of those.
const NODES: u64 = 2;

/// Labels whose values are other processes of the fleet.
const OF_PROCESSES: &[&str] = &["peer", "worker"];

/// Roles, hence jobs.
const ROLES: u64 = 4;

/// Models.
const MODELS: u64 = 2;

/// Labels that a relabelling, a recording rule or another engine makes have few values.
const MADE: u64 = 4;

/// What a finding says.
pub(super) fn message(series: u64) -> String {
    format!(
        "about {series} series with {INSTANCES} processes on {NODES} hosts, more than \
         {SERIES_MAX}; group, choose, or take topk"
    )
}

/// Series that a query gives to a panel.
pub(super) fn of(expr: &Expr, shape: &Shape, panel: &Panel) -> u64 {
    // A heat map draws cells, one line for each bucket; a text asks nothing.
    let many = match panel.kind {
        Kind::Heatmap | Kind::Text(_) => false,
        Kind::Stat(_)
        | Kind::Gauge
        | Kind::BarGauge
        | Kind::TimeSeries(_)
        | Kind::Table(_)
        | Kind::BarChart(_)
        | Kind::StateTimeline => true,
    };
    match shape {
        Shape::Vector(Some(labels)) if many => series(expr, labels),
        Shape::Vector(_) | Shape::Scalar => 1,
    }
}

fn series(expr: &Expr, labels: &BTreeSet<String>) -> u64 {
    if let Some(most) = at_most(expr) {
        return most;
    }
    let mut selectors = Vec::new();
    collect(expr, &mut selectors);
    let has = |label: &str| labels.contains(label);
    let of_hosts = selectors.iter().filter_map(|selector| info(selector)).all(is_of_hosts);
    let targets = if has("instance") {
        if of_hosts { NODES } else { INSTANCES }
    } else {
        let hosts = if has("node") { NODES } else { 1 };
        let roles = ["job", "engine_role", "engine_type"].iter().any(|label| has(label));
        let models = if has("model_name") { MODELS } else { 1 };
        hosts * if roles { ROLES } else { 1 } * models
    };
    let of_targets =
        ["cluster", "node", "job", "instance", "engine_role", "engine_type", "model_name"];
    let (mut closed, mut open) = (targets, 1);
    for label in labels.iter().filter(|label| !of_targets.contains(&label.as_str())) {
        match values(label, &selectors) {
            Count::Closed(values) => closed = closed.saturating_mul(values),
            Count::Open(bound) => open = open.max(bound),
        }
    }
    closed.saturating_mul(open)
}

const fn is_of_hosts(info: &Info) -> bool {
    matches!(info.source, Source::Node)
}

fn info(selector: &VectorSelector) -> Option<&'static Info> {
    metric_of(selector.name.as_deref()?)
}

/// Whether every selector lets one value of a label through, or lacks the label.
pub(super) fn is_fixed(expr: &Expr, label: &str) -> bool {
    let mut selectors = Vec::new();
    collect(expr, &mut selectors);
    let equal = |selector: &&VectorSelector| {
        selector.matchers.matchers.iter().any(|matcher| {
            let one = matches!(matcher.op, MatchOp::Equal) && !matcher.value.contains('$');
            matcher.name == label && one
        })
    };
    let has = |selector: &&&VectorSelector| {
        let labels = selector.name.as_deref().and_then(super::shape::labels_of);
        labels.is_none_or(|labels| labels.contains(label))
    };
    let with: Vec<_> = selectors.iter().filter(has).collect();
    !with.is_empty() && with.into_iter().all(equal)
}

/// What `topk` lets through, whatever it is applied to.
fn at_most(expr: &Expr) -> Option<u64> {
    match expr {
        Expr::Paren(paren) => at_most(&paren.expr),
        Expr::Aggregate(aggregate) => {
            let chooses = matches!(aggregate.op.to_string().as_str(), "topk" | "bottomk");
            let Some(Expr::NumberLiteral(number)) = aggregate.param.as_deref() else { return None };
            if !chooses || aggregate.modifier.is_some() || !(0.0..1e6).contains(&number.val) {
                return None;
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
            Some(number.val as u64)
        }
        Expr::Unary(_)
        | Expr::Binary(_)
        | Expr::Subquery(_)
        | Expr::NumberLiteral(_)
        | Expr::StringLiteral(_)
        | Expr::VectorSelector(_)
        | Expr::MatrixSelector(_)
        | Expr::Call(_)
        | Expr::Extension(_) => None,
    }
}

fn collect<'a>(expr: &'a Expr, found: &mut Vec<&'a VectorSelector>) {
    found.extend(selector(expr));
    children(expr).into_iter().for_each(|child| collect(child, found));
}

/// How many values a label has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Count {
    /// So many, in any combination with others.
    Closed(u64),
    /// At most so many, each of a thing that other open labels describe as well.
    Open(u64),
}

/// Values of a label in the result: the most that any selector with that label lets through.
fn values(label: &str, selectors: &[&VectorSelector]) -> Count {
    let size = |count: &Count| match *count {
        Count::Closed(values) | Count::Open(values) => values,
    };
    let counts = selectors.iter().filter_map(|selector| values_of(label, selector));
    counts.max_by_key(size).unwrap_or(Count::Closed(MADE))
}

fn values_of(label: &str, selector: &VectorSelector) -> Option<Count> {
    let info = info(selector)?;
    let matchers = || selector.matchers.matchers.iter().filter(|matcher| matcher.name == label);
    let count = |values: usize| u64::try_from(values).unwrap_or(u64::MAX);
    if label == "le" {
        return Some(Count::Closed(count(info.buckets.len() + 1)));
    }
    Some(match info.label(label)?.values {
        Values::Closed(values) => {
            let kept = |value: &&&str| matchers().all(|m| lets_through(&m.op, &m.value, value));
            Count::Closed(count(values.iter().filter(kept).count()))
        }
        Values::Open { .. } if OF_PROCESSES.contains(&label) => Count::Closed(INSTANCES),
        Values::Open { bound, .. } => {
            let one = |m: &promql_parser::label::Matcher| {
                !m.value.contains('$') && matches!(m.op, MatchOp::Equal)
            };
            Count::Open(if matchers().any(one) { 1 } else { count(bound) })
        }
    })
}

/// Whether a matcher lets a value through; a variable may be All.
fn lets_through(op: &MatchOp, pattern: &str, value: &str) -> bool {
    if pattern.contains('$') {
        return true;
    }
    match op {
        MatchOp::Equal => value == pattern,
        MatchOp::NotEqual => value != pattern,
        MatchOp::Re(regex) => regex.is_match(value),
        MatchOp::NotRe(regex) => !regex.is_match(value),
    }
}
