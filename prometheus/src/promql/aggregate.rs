//! Aggregation by labels that are there.

use super::ast::Node;
use super::expr::{Expr, Vector};
use super::select::{COMMON, Instant, Selection, TARGET, Window};
use crate::def::{Cumulative, Has, Histogram, Key, Label, LabelSet, Metric, Source, Unit};

/// Labels of one process.
pub const INSTANCE: &[&str] = &COMMON;
/// Labels of one model in one cluster, over all its processes.
pub const MODEL: &[&str] = &["cluster", "model_name"];

/// Labels to group by: a key or a tuple of keys, each of a label that `L` has.
pub trait Keys<L, At> {
    /// Their names, in order.
    fn names(self) -> Vec<&'static str>;
}

impl<L> Keys<L, ()> for () {
    fn names(self) -> Vec<&'static str> {
        Vec::new()
    }
}

impl<L: Has<A, P>, A: Label, P> Keys<L, (P,)> for Key<A> {
    fn names(self) -> Vec<&'static str> {
        vec![A::INFO.name]
    }
}

macro_rules! keys {
    ($($label:ident $at:ident),+) => {
        impl<L, $($label: Label, $at),+> Keys<L, ($($at,)+)> for ($(Key<$label>,)+)
        where
            $(L: Has<$label, $at>),+
        {
            fn names(self) -> Vec<&'static str> {
                vec![$($label::INFO.name),+]
            }
        }
    };
}

keys!(A P);
keys!(A P, B Q);
keys!(A P, B Q, C R);
keys!(A P, B Q, C R, D S);
keys!(A P, B Q, C R, D S, E T);
keys!(A P, B Q, C R, D S, E T, F U);
keys!(A P, B Q, C R, D S, E T, F U, G V);

/// Something that still needs to be told what to group by.
#[derive(Debug, Clone)]
pub struct Grouping<L> {
    shape: Shape,
    source: Vector<L>,
}

#[derive(Debug, Clone)]
enum Shape {
    Plain(&'static str),
    /// Quantile over buckets.
    Quantile(f64),
    /// Rate of the sum over rate of the count.
    Mean(Node),
    /// Buckets themselves.
    Buckets,
}

impl<L> Grouping<L> {
    /// Grouped by exactly these labels.
    pub fn by<At>(self, keys: impl Keys<L, At>) -> Expr {
        self.group(keys.names())
    }

    /// One result for each process, and these labels.
    pub fn per_instance_and<At>(self, keys: impl Keys<L, At>) -> Expr {
        self.group([INSTANCE.to_vec(), keys.names()].concat())
    }

    /// One result for each process.
    pub fn per_instance(self) -> Expr {
        self.group(INSTANCE.to_vec())
    }

    /// One result for each scrape target, and these labels: for what node exporters say.
    pub fn per_target_and<At>(self, keys: impl Keys<L, At>) -> Expr {
        self.group([TARGET.to_vec(), keys.names()].concat())
    }

    /// One result for each scrape target.
    pub fn per_target(self) -> Expr {
        self.group(TARGET.to_vec())
    }

    /// One result for each scheduler: a process has several where it serves several data-parallel
    /// ranks, and then tells them apart by a constant label that the catalog does not know yet.
    pub fn per_scheduler(self) -> Expr {
        let by = [INSTANCE, &["dp_rank"]].concat();
        let grouped = self.group(INSTANCE.to_vec());
        grouped.regrouped(by)
    }

    /// One result for each model of a cluster, and these labels.
    pub fn per_model_and<At>(self, keys: impl Keys<L, At>) -> Expr {
        self.group([MODEL.to_vec(), keys.names()].concat())
    }

    /// One result for each model of a cluster.
    pub fn per_model(self) -> Expr {
        self.group(MODEL.to_vec())
    }

    /// One result over all series.
    pub fn total(self) -> Expr {
        self.group(Vec::new())
    }

    /// Grouped by labels that are known at run time only: what an expression lacks is a mistake.
    ///
    /// # Panics
    ///
    /// When a label is not one of the source's.
    pub fn group(self, by: Vec<&'static str>) -> Expr {
        let source: Expr = self.source.into();
        let missing: Vec<_> = by.iter().filter(|name| !source.labels().contains(name)).collect();
        assert!(missing.is_empty(), "{source} has no label {missing:?}");
        let unit = source.unit();
        let sum = |argument: Node, by: Vec<&'static str>| Node::Aggregate {
            operator: "sum",
            by,
            argument: Box::new(argument),
        };
        match self.shape {
            Shape::Plain(operator) => {
                let argument = Box::new(source.node);
                // Flags that are added up count things.
                let counts = operator == "count" || (operator == "sum" && unit == Unit::Flag);
                let unit = match operator {
                    "group" => Unit::Flag,
                    _ if counts => Unit::Count,
                    _ => unit,
                };
                let node = Node::Aggregate { operator, by: by.clone(), argument };
                Expr::new(node, by, unit)
            }
            Shape::Quantile(quantile) => {
                let buckets = sum(source.node, [by.as_slice(), &["le"]].concat());
                let arguments = vec![Node::Number(quantile), buckets];
                let node = Node::Call { function: "histogram_quantile", arguments };
                Expr::new(node, by, unit)
            }
            Shape::Mean(count) => {
                let whole = Expr::new(sum(count, by.clone()), by.clone(), Unit::CountPerSecond);
                let part = Expr::new(sum(source.node, by.clone()), by, unit);
                super::expr::ratio(part, whole).in_unit(unit)
            }
            Shape::Buckets => {
                let by = [by.as_slice(), &["le"]].concat();
                Expr::new(sum(source.node, by.clone()), by, Unit::CountPerSecond)
            }
        }
    }
}

macro_rules! aggregation {
    ($($(#[$doc:meta])+ $name:ident;)+) => {$(
        $(#[$doc])+
        pub fn $name<I: Instant>(instant: I) -> Grouping<I::Labels> {
            Grouping { shape: Shape::Plain(stringify!($name)), source: instant.vector() }
        }
    )+};
}

aggregation! {
    /// Sum.
    sum;
    /// Largest.
    max;
    /// Smallest.
    min;
    /// Mean.
    avg;
    /// 1 for each group.
    group;
    /// Number of series.
    count;
}

fn over<S: Selection>(
    function: &'static str,
    selection: S,
    suffix: &str,
    window: Window,
) -> Vector<<S::Metric as Metric>::Labels> {
    let selector = selection.select();
    let unit = selector.info().unit;
    let range = Expr::new(selector.node(suffix, Some(window)), selector.labels(), unit);
    Vector::new(range.call(function))
}

/// Growth of a counter, by the second.
pub fn rate<S: Selection>(counter: S, window: Window) -> Vector<<S::Metric as Metric>::Labels>
where
    S::Metric: Cumulative,
{
    let rate: Expr = over("rate", counter, "", window).into();
    let unit = rate.unit().rate();
    Vector::new(rate.in_unit(unit))
}

/// Growth of a counter over the window.
pub fn increase<S: Selection>(counter: S, window: Window) -> Vector<<S::Metric as Metric>::Labels>
where
    S::Metric: Cumulative,
{
    over("increase", counter, "", window)
}

/// The newest value within the window, for what may be gone by now.
pub fn last_over_time<S: Selection>(
    selection: S,
    window: Window,
) -> Vector<<S::Metric as Metric>::Labels> {
    over("last_over_time", selection, "", window)
}

/// The largest value of a gauge within the window.
pub fn max_over_time<L: LabelSet, S>(gauge: S, window: Window) -> Vector<L>
where
    S: Selection<Metric = crate::def::Gauge<L>>,
{
    over("max_over_time", gauge, "", window)
}

/// How often a gauge changed within the window.
pub fn changes<L: LabelSet, S>(gauge: S, window: Window) -> Vector<L>
where
    S: Selection<Metric = crate::def::Gauge<L>>,
{
    let changes: Expr = over("changes", gauge, "", window).into();
    Vector::new(changes.in_unit(Unit::Count))
}

/// A histogram whose buckets can be grouped.
pub trait Buckets: Metric {}

impl<L: LabelSet> Buckets for Histogram<L> {}

fn buckets_of<S: Selection>(selection: S, window: Window) -> Vector<<S::Metric as Metric>::Labels> {
    let selector = selection.select();
    let labels = [selector.labels().as_slice(), &["le"]].concat();
    let unit = selector.info().unit;
    let range = Expr::new(selector.node("_bucket", Some(window)), labels, unit);
    Vector::new(range.call("rate"))
}

/// Quantile of a histogram; buckets are always added up by `le` before.
pub fn quantile<S: Selection>(
    quantile: f64,
    histogram: S,
    window: Window,
) -> Grouping<<S::Metric as Metric>::Labels>
where
    S::Metric: Buckets,
{
    Grouping { shape: Shape::Quantile(quantile), source: buckets_of(histogram, window) }
}

/// Quantile over buckets that were put together by an expression with the label `le`.
pub fn quantile_of(quantile: f64, buckets: Expr) -> Grouping<super::expr::Known> {
    Grouping { shape: Shape::Quantile(quantile), source: buckets.vector() }
}

/// Rate of observations by bucket, for heat maps; the result has the label `le`.
pub fn buckets<S: Selection>(
    histogram: S,
    window: Window,
) -> Grouping<<S::Metric as Metric>::Labels>
where
    S::Metric: Buckets,
{
    Grouping { shape: Shape::Buckets, source: buckets_of(histogram, window) }
}

/// Rate of observations by bucket, not yet grouped; the result has the label `le`.
pub fn bucket_rate<S: Selection>(histogram: S, window: Window) -> Expr
where
    S::Metric: Buckets,
{
    buckets_of(histogram, window).into()
}

/// Observations of at most `edge`, by the second; infinity for all of them.
///
/// # Panics
///
/// When it is not an edge of the buckets: nothing is known in between.
pub fn observations_within<S: Selection>(
    histogram: S,
    edge: f64,
    window: Window,
) -> Vector<<S::Metric as Metric>::Labels>
where
    S::Metric: Buckets,
{
    let selector = histogram.select();
    let info = selector.info();
    let known = edge.is_infinite() || info.buckets.contains(&edge);
    assert!(known, "{} has no bucket edge {edge}", info.name);
    let le = match info.source {
        _ if edge.is_infinite() => "+Inf".to_owned(),
        // Programs in Python write whole edges with a fraction.
        Source::Engine(_) => format!("{edge:?}"),
        Source::Server | Source::Process | Source::Node => edge.to_string(),
    };
    let node = selector.with_le(le).node("_bucket", Some(window));
    let own = info.labels.iter().map(|label| label.name);
    let labels = info.common_labels().iter().copied().chain(own).collect();
    Vector::new(Expr::new(node, labels, Unit::CountPerSecond).call("rate"))
}

/// Mean of what a histogram saw.
pub fn mean<S: Selection>(histogram: S, window: Window) -> Grouping<<S::Metric as Metric>::Labels>
where
    S::Metric: Buckets,
{
    let selector = histogram.select();
    let range = |suffix| {
        Expr::new(selector.node(suffix, Some(window)), selector.labels(), selector.info().unit)
            .call("rate")
    };
    let source = Vector::new(range("_sum"));
    Grouping { shape: Shape::Mean(range("_count").node), source }
}

/// Observations of a histogram, by the second.
pub fn observations<S: Selection>(
    histogram: S,
    window: Window,
) -> Vector<<S::Metric as Metric>::Labels>
where
    S::Metric: Buckets,
{
    let rate: Expr = over("rate", histogram, "_count", window).into();
    Vector::new(rate.in_unit(Unit::CountPerSecond))
}

/// What a histogram saw, added up, by the second: bytes moved, seconds spent.
pub fn amount<S: Selection>(histogram: S, window: Window) -> Vector<<S::Metric as Metric>::Labels>
where
    S::Metric: Buckets,
{
    let rate: Expr = over("rate", histogram, "_sum", window).into();
    let unit = rate.unit().rate();
    Vector::new(rate.in_unit(unit))
}
