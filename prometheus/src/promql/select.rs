//! Selectors: a metric, matchers on the labels it has, a window.

use std::fmt;
use std::marker::PhantomData;

use super::ast::Node;
use super::expr::{Expr, Vector};
use crate::def::{
    Counter, Gauge, Has, Histogram, Info, Key, Label, LabelSet, Metric, Ours, TimeCounter,
};
use crate::labels::{Cluster, Instance, Job, ModelName, Node as NodeName, Role};

/// Labels that every series has beside its own: target labels and constant labels.
pub const COMMON: [&str; 6] = ["cluster", "node", "job", "instance", "engine_role", "model_name"];

/// Labels of one scrape target; the series of a node exporter have no more in common.
pub const TARGET: &[&str] = COMMON.split_at(4).0;

/// Place of a label that every series has; only the compiler names it.
#[derive(Debug)]
pub struct Common;

impl<L: Ours> Has<Cluster, Common> for L {}
impl<L: Ours> Has<NodeName, Common> for L {}
impl<L: Ours> Has<Job, Common> for L {}
impl<L: Ours> Has<Instance, Common> for L {}
impl<L: Ours> Has<Role, Common> for L {}
impl<L: Ours> Has<ModelName, Common> for L {}

/// Length of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// What suits the step of a panel: `$__rate_interval`.
    Interval,
    /// The whole range of a board: `$__range`.
    Range,
    /// Seconds.
    Fixed(u32),
}

impl Window {
    /// One minute.
    pub const M1: Self = Self::Fixed(60);
    /// Two minutes.
    pub const M2: Self = Self::Fixed(120);
    /// Five minutes.
    pub const M5: Self = Self::Fixed(300);
    /// Ten minutes.
    pub const M10: Self = Self::Fixed(600);
    /// A quarter of an hour.
    pub const M15: Self = Self::Fixed(900);
    /// Half an hour.
    pub const M30: Self = Self::Fixed(1800);
    /// One hour.
    pub const H1: Self = Self::Fixed(3600);
    /// Two hours.
    pub const H2: Self = Self::Fixed(7200);
    /// Six hours.
    pub const H6: Self = Self::Fixed(21_600);
    /// One day.
    pub const D1: Self = Self::Fixed(86_400);
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Interval => f.write_str("$__rate_interval"),
            Self::Range => f.write_str("$__range"),
            Self::Fixed(seconds) => f.write_str(&duration(seconds)),
        }
    }
}

/// Seconds in the largest units that leave no rest, as Prometheus writes durations.
pub fn duration(seconds: u32) -> String {
    let mut rest = seconds;
    let mut text = String::new();
    for (unit, size) in [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)] {
        if rest >= size {
            text.push_str(&format!("{}{unit}", rest / size));
            rest %= size;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// One condition on a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matcher {
    label: &'static str,
    operator: &'static str,
    value: String,
}

impl Matcher {
    pub(super) const fn new(label: &'static str, operator: &'static str, value: String) -> Self {
        Self { label, operator, value }
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{:?}", self.label, self.operator, self.value)
    }
}

/// Conditions of a board that go into each selector whose series has the label.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scope(Vec<(&'static str, String)>);

impl Scope {
    /// No condition, as rules have it.
    pub const NONE: Self = Self(Vec::new());

    /// `label=~"$label"` for each of the labels.
    pub fn variables(labels: &[&'static str]) -> Self {
        Self(labels.iter().map(|label| (*label, format!("{label}=~\"${label}\""))).collect())
    }

    pub(super) fn matchers_for(&self, labels: &[&str]) -> Vec<String> {
        self.0
            .iter()
            .filter(|(label, _)| labels.contains(label))
            .map(|(_, text)| text.clone())
            .collect()
    }

    pub(super) fn all(&self) -> String {
        self.0.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(",")
    }
}

/// A metric with conditions on its labels.
#[derive(Debug, Clone)]
pub struct Selector<M> {
    info: &'static Info,
    matchers: Vec<Matcher>,
    metric: PhantomData<M>,
}

/// A metric, or a metric with conditions.
pub trait Selection: Sized {
    /// The metric.
    type Metric: Metric;

    /// With conditions, none at first.
    fn select(self) -> Selector<Self::Metric>;

    /// Only series with this value.
    fn is<L: Label, At>(self, value: L) -> Selector<Self::Metric>
    where
        <Self::Metric as Metric>::Labels: Has<L, At>,
    {
        self.select().with(L::INFO.name, "=", value.value().into_owned())
    }

    /// Only series without this value.
    fn without<L: Label, At>(self, value: L) -> Selector<Self::Metric>
    where
        <Self::Metric as Metric>::Labels: Has<L, At>,
    {
        self.select().with(L::INFO.name, "!=", value.value().into_owned())
    }

    /// Only series with one of these values.
    fn any_of<L: Label, At>(self, values: &[L]) -> Selector<Self::Metric>
    where
        <Self::Metric as Metric>::Labels: Has<L, At>,
    {
        self.select().with(L::INFO.name, "=~", alternatives(values))
    }

    /// Only series with none of these values.
    fn none_of<L: Label, At>(self, values: &[L]) -> Selector<Self::Metric>
    where
        <Self::Metric as Metric>::Labels: Has<L, At>,
    {
        self.select().with(L::INFO.name, "!~", alternatives(values))
    }

    /// Only series whose value matches a regular expression; each alternative that is a plain word
    /// must be a value of the label or stand in `LATER`.
    fn matching<L: Label, At>(self, _label: Key<L>, pattern: &str) -> Selector<Self::Metric>
    where
        <Self::Metric as Metric>::Labels: Has<L, At>,
    {
        self.select().with(L::INFO.name, "=~", pattern.to_owned())
    }
}

fn alternatives<L: Label>(values: &[L]) -> String {
    values.iter().map(|value| value.value().into_owned()).collect::<Vec<_>>().join("|")
}

impl<M: Metric> Selector<M> {
    fn with(mut self, label: &'static str, operator: &'static str, value: String) -> Self {
        self.matchers.push(Matcher::new(label, operator, value));
        self
    }

    /// Only this bucket.
    pub(super) fn with_le(self, edge: String) -> Self {
        self.with("le", "=", edge)
    }

    /// The declaration.
    pub const fn info(&self) -> &'static Info {
        self.info
    }

    /// The selector as text of a series with that suffix.
    pub(super) fn node(&self, suffix: &str, window: Option<Window>) -> Node {
        Node::Select {
            series: format!("{}{suffix}", self.info.name),
            labels: self.labels(),
            matchers: self.matchers.clone(),
            window,
            offset: None,
        }
    }

    /// Labels of the series: common ones, then its own.
    pub(super) fn labels(&self) -> Vec<&'static str> {
        let own = self.info.labels.iter().map(|label| label.name);
        self.info.common_labels().iter().copied().chain(own).collect()
    }
}

impl<M: Metric> Selection for Selector<M> {
    type Metric = M;

    fn select(self) -> Self {
        self
    }
}

macro_rules! selection {
    ($($kind:ident),+) => {$(
        impl<L: LabelSet> Selection for $kind<L> {
            type Metric = Self;

            fn select(self) -> Selector<Self> {
                Selector { info: self.info, matchers: Vec::new(), metric: PhantomData }
            }
        }
    )+};
}

selection!(Counter, TimeCounter, Gauge, Histogram);

/// Something with one value at a time for each series: a gauge, a rate, an expression.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no value of its own to add up or compare",
    note = "take the `rate` of a counter, the `quantile` of a histogram"
)]
pub trait Instant {
    /// Labels that it can be grouped by.
    type Labels;

    /// As an expression.
    fn vector(self) -> Vector<Self::Labels>;
}

impl<L: LabelSet> Instant for Gauge<L> {
    type Labels = L;

    fn vector(self) -> Vector<L> {
        self.select().vector()
    }
}

impl<L: LabelSet> Instant for Selector<Gauge<L>> {
    type Labels = L;

    fn vector(self) -> Vector<L> {
        Vector::new(Expr::new(self.node("", None), self.labels(), self.info.unit))
    }
}
