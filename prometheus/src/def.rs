//! The types a metric is declared with, and the `catalog!` macro that declares it.
//!
//! A metric is a `const` whose type says what it is and which labels it carries, so that a query of
//! the wrong kind or by a label it lacks does not compile. This module does not record anything
//! (that is `install`) and does not know any metric (those are in `server` and `process`).

use std::borrow::Cow;
use std::marker::PhantomData;

use crate::engines::Page;
use crate::labels::Role;
use crate::roles::Per;

mod unit;

pub use unit::{Kind, Unit};

/// Who exposes a metric, hence which scrape jobs carry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// The serving process.
    Server,
    /// Any process: the standard `process_*` families, named as everybody names them.
    Process,
    /// The exporter of a host, whose series have neither role nor model.
    Node,
    /// A part of a page of another engine: none of our processes exposes it, and it is not among
    /// the metrics of the catalog (`all`).
    Engine(Page),
}

impl Source {
    /// Prefix that every name of this source has.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Server | Self::Node => "sightline_",
            Self::Process => "process_",
            Self::Engine(page) => page.prefix(),
        }
    }
}

/// Values a label can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// All of them are known at compile time and exist at 0 from the start.
    Closed(&'static [&'static str]),
    /// Known at run time only; at most `bound` different ones in one process.
    Open {
        /// Upper bound of the number of values.
        bound: usize,
        /// Where the bound comes from.
        why: &'static str,
        /// Whether values leave again; their series are then removed.
        leaves: bool,
    },
}

/// One label of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelInfo {
    /// Label name.
    pub name: &'static str,
    /// Values it takes.
    pub values: Values,
}

/// Everything known of a metric, untyped, for those who walk the whole catalog.
#[derive(Debug, Clone, Copy)]
pub struct Info {
    /// Full name, prefix included.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// Kind.
    pub kind: Kind,
    /// Labels of its own, in order; the constant labels are not among them.
    pub labels: &'static [LabelInfo],
    /// Bucket edges without `+Inf`; empty unless it is a histogram.
    pub buckets: &'static [f64],
    /// Unit, from the name.
    pub unit: Unit,
    /// Who exposes it.
    pub source: Source,
    /// Roles whose process exposes it; none for a node exporter.
    pub roles: &'static [Role],
    /// What a router exports a series of; engines serve one model.
    pub per: Per,
    #[doc(hidden)]
    pub combinations: fn(Role) -> Vec<Vec<Cow<'static, str>>>,
}

impl Info {
    /// Label values of every series that a role has from the start, in the order of `labels`; on a
    /// router of each model, or of itself.
    ///
    /// Empty for a metric that the role does not export, and for one with an open label: its series
    /// appear when their values are known.
    pub fn combinations(&self, role: Role) -> Vec<Vec<Cow<'static, str>>> {
        if self.is_of(role) { (self.combinations)(role) } else { Vec::new() }
    }

    /// Whether a role exports it.
    pub fn is_of(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// What a router exports the series with these values of.
    pub fn per(&self, values: &[Cow<'static, str>]) -> Per {
        let mut routes = self.labels.iter().zip(values).filter(|(label, _)| label.name == "route");
        match self.per {
            Per::Model if routes.any(|(_, route)| !of_a_model(route)) => Per::Process,
            per @ (Per::Model | Per::Process) => per,
        }
    }

    /// Labels that its series have beside its own: those of all series, but no model where only a
    /// router exports it and not by model; of a node exporter those of the target alone.
    pub fn common_labels(&self) -> &'static [&'static str] {
        let modelless = self.per == Per::Process && self.roles == crate::roles::ROUTER;
        let all = &crate::promql::COMMON;
        match self.source {
            Source::Node => crate::promql::TARGET,
            Source::Server | Source::Process if modelless => &all[..all.len() - 1],
            Source::Server | Source::Process => all,
            Source::Engine(page) => page.common(),
        }
    }

    /// Whether its series are removed when a value leaves.
    pub fn leaves(&self) -> bool {
        self.labels.iter().any(|label| matches!(label.values, Values::Open { leaves: true, .. }))
    }

    /// The label of that name, if the metric has it.
    pub fn label(&self, name: &str) -> Option<&'static LabelInfo> {
        self.labels.iter().find(|label| label.name == name)
    }

    /// Whether every label is closed.
    pub fn is_closed(&self) -> bool {
        self.labels.iter().all(|label| matches!(label.values, Values::Closed(_)))
    }
}

/// Whether requests of a route ask for a model.
fn of_a_model(route: &str) -> bool {
    use crate::labels::Route;
    [Route::Completions, Route::ChatCompletions].iter().any(|known| known.as_str() == route)
}

/// A label: a closed enum or an open value with a bound. See `labels`.
pub trait Label: Clone + 'static {
    /// Name and values.
    const INFO: LabelInfo;
    /// The label as a value, for `by(...)` and matchers.
    const KEY: Key<Self> = Key(PhantomData);

    /// This value as text.
    fn value(&self) -> Cow<'static, str>;

    /// All values of a closed label; empty for an open one.
    fn all() -> &'static [Self];

    /// Whether a role records it.
    fn occurs(&self, _role: Role) -> bool {
        true
    }
}

/// Stands for a label (not for one of its values) in an argument list.
#[derive(Debug)]
pub struct Key<L>(PhantomData<fn() -> L>);

impl<L> Clone for Key<L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for Key<L> {}

/// The labels of one metric: a tuple of label types, `()` for none.
pub trait LabelSet: Clone + 'static {
    /// Names and values, in order.
    const LABELS: &'static [LabelInfo];

    /// The values of one series as text, in order.
    fn values(&self) -> Vec<Cow<'static, str>>;

    /// Every combination of closed values; empty when a label is open.
    fn all() -> Vec<Self>;

    /// Whether a role records each of the values.
    fn occurs(&self, role: Role) -> bool;
}

/// A label set of one of our own metrics, whose series have our common labels.
pub trait Ours: LabelSet {}

/// Says that a label set has label `L`; `At` is the place and is always inferred.
#[diagnostic::on_unimplemented(
    message = "the metric has no label `{L}`",
    label = "labels of the metric: `{Self}`"
)]
pub trait Has<L, At> {}

/// Place of a label in its set; only the compiler names it.
#[derive(Debug)]
pub struct At<const N: usize>;

impl Ours for () {}

impl LabelSet for () {
    const LABELS: &'static [LabelInfo] = &[];

    fn values(&self) -> Vec<Cow<'static, str>> {
        Vec::new()
    }

    fn all() -> Vec<Self> {
        vec![()]
    }

    fn occurs(&self, _role: Role) -> bool {
        true
    }
}

macro_rules! label_set {
    ($($label:ident $place:tt),+) => {
        impl<$($label: Label),+> Ours for ($($label,)+) {}

        impl<$($label: Label),+> LabelSet for ($($label,)+) {
            const LABELS: &'static [LabelInfo] = &[$($label::INFO),+];

            fn values(&self) -> Vec<Cow<'static, str>> {
                vec![$(self.$place.value()),+]
            }

            fn all() -> Vec<Self> {
                let mut sets = Vec::new();
                label_set!(@each sets [] $($label $place),+);
                sets
            }

            fn occurs(&self, role: Role) -> bool {
                $(self.$place.occurs(role))&&+
            }
        }
        label_set!(@has [$($label),+] $($label $place),+);
    };
    (@each $sets:ident [$($done:ident)*] $label:ident $place:tt $(, $rest:ident $at:tt)*) => {
        #[expect(non_snake_case, reason = "the loop variable is named after its label type")]
        for $label in $label::all() {
            label_set!(@each $sets [$($done)* $label] $($rest $at),*);
        }
    };
    (@each $sets:ident [$($done:ident)*]) => {
        $sets.push(($($done.clone(),)*))
    };
    (@has [$($all:ident),+] $($label:ident $place:tt),+) => {
        label_set!(@one [$($all),+] [$($label $place),+]);
    };
    (@one $all:tt [$label:ident $place:tt $(, $rest:ident $at:tt)*]) => {
        label_set!(@impl $all $label $place);
        label_set!(@one $all [$($rest $at),*]);
    };
    (@one $all:tt []) => {};
    (@impl [$($all:ident),+] $label:ident $place:tt) => {
        impl<$($all: Label),+> Has<$label, At<$place>> for ($($all,)+) {}
    };
}

label_set!(A 0);
label_set!(A 0, B 1);
label_set!(A 0, B 1, C 2);
label_set!(A 0, B 1, C 2, D 3);
label_set!(A 0, B 1, C 2, D 3, E 4);
label_set!(A 0, B 1, C 2, D 3, E 4, F 5);
label_set!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
label_set!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

/// Combinations of the closed values that can occur at a role, as text.
#[doc(hidden)]
pub fn combinations_of<L: LabelSet>(
    role: Role,
    possible: fn(Role, &L) -> bool,
) -> Vec<Vec<Cow<'static, str>>> {
    let occurs = |set: &L| set.occurs(role) && possible(role, set);
    L::all().into_iter().filter(occurs).map(|set| set.values()).collect()
}

/// A declared metric of any kind.
pub trait Metric: Copy {
    /// Its label set.
    type Labels: LabelSet;

    /// Its declaration.
    fn info(&self) -> &'static Info;
}

/// A metric that only grows, so that `rate` and `increase` make sense.
#[diagnostic::on_unimplemented(
    message = "`rate` and `increase` need a counter, `{Self}` is none",
    note = "a gauge is read as it is; a histogram goes through `quantile`, `mean` or `observations`"
)]
pub trait Cumulative: Metric {}

macro_rules! metric_type {
    ($(#[$doc:meta])* $name:ident, $kind:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<L> {
            #[doc(hidden)]
            pub info: &'static Info,
            labels: PhantomData<fn() -> L>,
        }

        impl<L> $name<L> {
            #[doc(hidden)]
            pub const KIND: Kind = Kind::$kind;

            #[doc(hidden)]
            pub const fn declare(info: &'static Info) -> Self {
                Self { info, labels: PhantomData }
            }

            /// Full name.
            pub const fn name(&self) -> &'static str {
                self.info.name
            }
        }

        impl<L> Clone for $name<L> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<L> Copy for $name<L> {}

        impl<L: LabelSet> Metric for $name<L> {
            type Labels = L;

            fn info(&self) -> &'static Info {
                self.info
            }
        }
    };
}

metric_type!(
    /// Counter of whole things.
    Counter,
    Counter
);
metric_type!(
    /// Counter of time in seconds, to the nanosecond.
    TimeCounter,
    Counter
);
metric_type!(
    /// Gauge.
    Gauge,
    Gauge
);
metric_type!(
    /// Histogram with fixed buckets.
    Histogram,
    Histogram
);

impl<L: LabelSet> Cumulative for Counter<L> {}
impl<L: LabelSet> Cumulative for TimeCounter<L> {}

/// Declares metrics: one `const` each, and `ALL` with the declarations of all of them.
///
/// The doc comment is the help text. `buckets` is for histograms; `only` names a predicate over a
/// role and the label set that is true for the combinations that can occur, where not all can; `by`
/// names the set of `roles` that export it, where those of the module do not; `per` says
/// what a router exports a series of, where that is not each model.
macro_rules! catalog {
    (
        source: $source:ident, roles: $roles:expr;
        $(
            $(#[doc = $help:literal])+
            $name:ident : $kind:ident < $labels:ty > = $text:literal
                $(, buckets $buckets:expr)? $(, only $possible:expr)?
                $(, by $by:ident)? $(, per $per:ident)? ;
        )+
    ) => {
        $(
            $(#[doc = $help])+
            pub const $name: $crate::def::$kind<$labels> =
                $crate::def::$kind::declare(&$crate::def::Info {
                    name: $text,
                    help: concat!($($help),+).trim_ascii(),
                    kind: $crate::def::$kind::<$labels>::KIND,
                    labels: <$labels as $crate::def::LabelSet>::LABELS,
                    buckets: catalog!(@buckets $($buckets)?),
                    unit: $crate::def::Unit::of_name($text),
                    source: $crate::def::Source::$source,
                    roles: catalog!(@by $roles $(, $by)?),
                    per: catalog!(@per $($per)?),
                    combinations: |role| {
                        $crate::def::combinations_of::<$labels>(role, catalog!(@only $($possible)?))
                    },
                });
        )+

        /// The declarations of this module, in order.
        pub const ALL: &[&$crate::def::Info] = &[$($name.info),+];
    };
    (@buckets) => { &[] };
    (@buckets $buckets:expr) => { $buckets };
    (@only) => { |_, _| true };
    (@only $possible:expr) => { $possible };
    (@by $roles:expr) => { $roles };
    (@by $roles:expr, $by:ident) => { $crate::roles::$by };
    (@per) => { $crate::roles::Per::Model };
    (@per $per:ident) => { $crate::roles::Per::$per };
}

pub(crate) use catalog;

#[cfg(test)]
mod tests;
