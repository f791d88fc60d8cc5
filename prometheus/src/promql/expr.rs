//! Expressions: operators, comparisons, set operations; with the labels and the unit of the result.

use std::fmt;
use std::marker::PhantomData;

use super::ast::{Matching, Node};
use super::select::{COMMON, Instant, Matcher, Scope, Window};
use crate::def::{Has, Label, Unit};

/// A PromQL expression that knows the labels and the unit of its result.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    pub(super) node: Node,
    labels: Vec<&'static str>,
    unit: Unit,
}

/// An expression whose labels the compiler knows.
#[derive(Debug, Clone)]
pub struct Vector<L> {
    expr: Expr,
    labels: PhantomData<L>,
}

impl<L> Vector<L> {
    pub(super) const fn new(expr: Expr) -> Self {
        Self { expr, labels: PhantomData }
    }

    /// As an expression, for operators.
    pub fn into_expr(self) -> Expr {
        self.expr
    }
}

impl<L> std::ops::Deref for Vector<L> {
    type Target = Expr;

    fn deref(&self) -> &Expr {
        &self.expr
    }
}

impl<L> From<Vector<L>> for Expr {
    fn from(vector: Vector<L>) -> Self {
        vector.expr
    }
}

impl<L> Instant for Vector<L> {
    type Labels = L;

    fn vector(self) -> Self {
        self
    }
}

/// Labels known at run time only; grouping by a label that is not there panics.
#[derive(Debug)]
pub struct Known;

/// Place of a label that is looked up at run time.
#[derive(Debug)]
pub struct AtRunTime;

impl<L: Label> Has<L, AtRunTime> for Known {}

impl Instant for Expr {
    type Labels = Known;

    fn vector(self) -> Vector<Known> {
        Vector::new(self)
    }
}

impl<M> From<super::select::Selector<M>> for Expr
where
    super::select::Selector<M>: Instant,
{
    fn from(selector: super::select::Selector<M>) -> Self {
        selector.vector().expr
    }
}

impl<L: crate::def::LabelSet> From<crate::def::Gauge<L>> for Expr {
    fn from(gauge: crate::def::Gauge<L>) -> Self {
        gauge.vector().expr
    }
}

impl From<f64> for Expr {
    fn from(value: f64) -> Self {
        Self::new(Node::Number(value), Vec::new(), Unit::Count)
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(&Scope::NONE))
    }
}

impl Expr {
    pub(super) const fn new(node: Node, labels: Vec<&'static str>, unit: Unit) -> Self {
        Self { node, labels, unit }
    }

    /// Labels of the result, without the metric name.
    pub fn labels(&self) -> &[&'static str] {
        &self.labels
    }

    /// Unit of the result.
    pub const fn unit(&self) -> Unit {
        self.unit
    }

    /// The same values in another unit, where the arithmetic changes it in a way that is not
    /// followed here.
    pub const fn in_unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// The same quantity in its base unit: seconds for milliseconds, bytes for mebibytes.
    pub fn in_base_unit(self) -> Self {
        let (unit, factor) = self.unit.base();
        let same = unit == self.unit;
        if same { self } else { self.times(factor).in_unit(unit) }
    }

    /// One line, with the conditions of a board in each selector.
    pub fn render(&self, scope: &Scope) -> String {
        self.node.flat(scope)
    }

    /// Like `render`, broken over lines where it is long.
    pub fn pretty(&self, scope: &Scope) -> String {
        self.node.pretty(scope)
    }

    /// Names of the series that it selects, raw parts excepted, each once and in order.
    pub fn series(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        self.node.walk(&mut |name| {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        });
        names
    }

    fn binary(self, operator: &'static str, matching: Matching, right: Self) -> Self {
        let labels = match &matching {
            // A plain number on one side leaves the labels of the other.
            Matching::All if self.labels.is_empty() => right.labels.clone(),
            Matching::On(labels) if !matches!(operator, "and" | "or" | "unless") => labels.clone(),
            Matching::OnGroupLeft { include, .. } => [self.labels.as_slice(), include].concat(),
            Matching::All | Matching::On(_) if operator == "or" => {
                let more = right.labels.iter().filter(|label| !self.labels.contains(label));
                self.labels.iter().chain(more).copied().collect()
            }
            Matching::All | Matching::On(_) => self.labels,
        };
        let node = Node::Binary {
            operator,
            matching,
            left: Box::new(self.node),
            right: Box::new(right.node),
        };
        Self { node, labels, unit: self.unit }
    }

    /// Sum.
    pub fn plus(self, other: impl Into<Self>) -> Self {
        self.binary("+", Matching::All, other.into())
    }

    /// Difference.
    pub fn minus(self, other: impl Into<Self>) -> Self {
        self.binary("-", Matching::All, other.into())
    }

    /// Product with a number; keeps the unit.
    pub fn times(self, factor: f64) -> Self {
        self.binary("*", Matching::All, factor.into())
    }

    /// Keeps the series whose labels `on` have a partner among `others`, which are all 1.
    pub fn joined(self, on: &[&'static str], others: impl Into<Self>) -> Self {
        self.joined_with(on, &[], others)
    }

    /// Product with the one partner of equal labels `on`, of which the labels `include` are taken
    /// over.
    pub fn joined_with(
        self,
        on: &[&'static str],
        include: &[&'static str],
        others: impl Into<Self>,
    ) -> Self {
        let matching = Matching::OnGroupLeft { on: on.to_vec(), include: include.to_vec() };
        self.binary("*", matching, others.into())
    }

    /// Share of the one partner of equal labels `on`; absent where that is not positive.
    pub fn share_of(self, on: &[&'static str], whole: impl Into<Self>) -> Self {
        let whole = whole.into();
        let unit = quotient(self.unit, whole.unit);
        let matching = Matching::OnGroupLeft { on: on.to_vec(), include: Vec::new() };
        self.binary("/", matching, whole.above(0.0)).in_unit(unit)
    }

    /// Only values above.
    pub fn above(self, limit: impl Into<Self>) -> Self {
        self.binary(">", Matching::All, limit.into())
    }

    /// Only values at or above.
    pub fn at_least(self, limit: impl Into<Self>) -> Self {
        self.binary(">=", Matching::All, limit.into())
    }

    /// Only values below.
    pub fn below(self, limit: impl Into<Self>) -> Self {
        self.binary("<", Matching::All, limit.into())
    }

    /// Only values at or below.
    pub fn at_most(self, limit: impl Into<Self>) -> Self {
        self.binary("<=", Matching::All, limit.into())
    }

    /// Only this value.
    pub fn equals(self, value: impl Into<Self>) -> Self {
        self.binary("==", Matching::All, value.into())
    }

    /// Only series with a partner of equal labels.
    pub fn and(self, others: impl Into<Self>) -> Self {
        self.binary("and", Matching::All, others.into())
    }

    /// Only series with a partner of equal labels `on`.
    pub fn and_on(self, on: &[&'static str], others: impl Into<Self>) -> Self {
        self.binary("and", Matching::On(on.to_vec()), others.into())
    }

    /// These series, and those of `others` that have no partner here.
    pub fn or(self, others: impl Into<Self>) -> Self {
        self.binary("or", Matching::All, others.into())
    }

    /// These series, and those of `others` whose labels `on` do not occur here.
    pub fn or_on(self, on: &[&'static str], others: impl Into<Self>) -> Self {
        self.binary("or", Matching::On(on.to_vec()), others.into())
    }

    /// Only series whose labels `on` do not occur among `others`.
    pub fn unless_on(self, on: &[&'static str], others: impl Into<Self>) -> Self {
        self.binary("unless", Matching::On(on.to_vec()), others.into())
    }

    /// The same a while ago. Only a selector, or a range of one, can be moved.
    ///
    /// # Panics
    ///
    /// When this is not one.
    pub fn offset(mut self, by: Window) -> Self {
        let selector = match &mut self.node {
            Node::Call { arguments, .. } => arguments.first_mut(),
            node @ Node::Select { .. } => Some(node),
            Node::Aggregate { .. }
            | Node::Binary { .. }
            | Node::Number(_)
            | Node::Text(_)
            | Node::Raw(_) => None,
        };
        let Some(Node::Select { offset, .. }) = selector else {
            panic!("only a selector can have an offset");
        };
        *offset = Some(by);
        self
    }

    /// The same with one label more, for telling apart what is put together with `or`.
    pub fn labelled(self, label: &'static str, value: &str) -> Self {
        self.label_replace(label, value, "", "")
    }

    /// The same with a label that is made of another one: what `prefix` and its value give, where
    /// it has one.
    pub fn copied(self, from: &'static str, to: &'static str, prefix: &str) -> Self {
        self.label_replace(to, &format!("{prefix}$1"), from, "(.+)")
    }

    fn label_replace(self, label: &'static str, value: &str, source: &str, pattern: &str) -> Self {
        let text = |text: &str| Node::Text(text.to_owned());
        let arguments = vec![self.node, text(label), text(value), text(source), text(pattern)];
        let mut labels = self.labels;
        if !labels.contains(&label) {
            labels.push(label);
        }
        Self { node: Node::Call { function: "label_replace", arguments }, labels, unit: self.unit }
    }

    /// The same aggregation by other labels.
    pub(super) fn regrouped(mut self, labels: Vec<&'static str>) -> Self {
        if let Node::Aggregate { by, .. } = &mut self.node {
            by.clone_from(&labels);
            self.labels = labels;
        }
        self
    }

    pub(super) fn call(self, function: &'static str) -> Self {
        Self { node: Node::Call { function, arguments: vec![self.node] }, ..self }
    }
}

/// Share or quotient, absent where the denominator is not positive.
///
/// The unit is that of the quotient: a ratio of equal units, a rate for something by seconds,
/// seconds for tokens by tokens a second.
pub fn ratio(part: impl Into<Expr>, whole: impl Into<Expr>) -> Expr {
    let (part, whole) = (part.into(), whole.into());
    let unit = quotient(part.unit, whole.unit);
    part.binary("/", Matching::All, whole.above(0.0)).in_unit(unit)
}

/// Quotient whose denominator cannot be 0 by its own making (`clamp_min`, a comparison).
pub fn quotient_of(part: impl Into<Expr>, whole: impl Into<Expr>) -> Expr {
    let (part, whole) = (part.into(), whole.into());
    let unit = quotient(part.unit, whole.unit);
    part.binary("/", Matching::All, whole).in_unit(unit)
}

fn quotient(part: Unit, whole: Unit) -> Unit {
    match (part, whole) {
        (part, whole) if part == whole => Unit::Ratio,
        (part, Unit::Seconds) => part.rate(),
        // A rate by busy seconds a second stays a rate.
        (part, Unit::Ratio) => part,
        (Unit::Ratio, whole) if whole == Unit::Count.rate() => Unit::Seconds,
        (part, whole) if part.rate() == whole => Unit::Seconds,
        _ => Unit::Count,
    }
}

/// The values, or `floor` where they are smaller.
pub fn clamp_min(expr: impl Into<Expr>, floor: f64) -> Expr {
    let expr = expr.into();
    let arguments = vec![expr.node, Node::Number(floor)];
    Expr { node: Node::Call { function: "clamp_min", arguments }, ..expr }
}

/// The `count` largest series.
pub fn topk(count: u32, expr: impl Into<Expr>) -> Expr {
    let expr = expr.into();
    let arguments = vec![Node::Number(f64::from(count)), expr.node];
    Expr { node: Node::Call { function: "topk", arguments }, ..expr }
}

/// Now, in Unix seconds.
pub fn time() -> Expr {
    let node = Node::Call { function: "time", arguments: Vec::new() };
    Expr::new(node, Vec::new(), Unit::Seconds)
}

/// One series without labels and with that value.
pub fn vector(value: f64) -> Expr {
    Expr::from(value).call("vector")
}

/// Text that is written by hand, for what the builders cannot say; `$selector` in it stands for the
/// conditions of a board. It is checked like any other expression.
pub fn raw(text: &str, labels: &[&'static str], unit: Unit) -> Expr {
    Expr::new(Node::Raw(text.to_owned()), labels.to_vec(), unit)
}

/// What only the scraper knows: 1 for a target that answers, 0 for one that does not. `jobs` is a
/// regular expression.
pub fn up(jobs: &str) -> Expr {
    let labels = COMMON[..4].to_vec();
    let node = Node::Select {
        series: "up".to_owned(),
        labels: labels.clone(),
        matchers: vec![Matcher::new("job", "=~", jobs.to_owned())],
        window: None,
        offset: None,
    };
    Expr::new(node, labels, Unit::Flag)
}
