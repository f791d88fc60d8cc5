//! The types a metric is declared with, and the `catalog!` macro that declares it.
//!
//! A metric is a `const` whose type says what it is and which labels it carries, so that a query of
//! the wrong kind or by a label it lacks does not compile. This module does not record anything
//! (that is `install`) and does not know any metric (those are in `server` and `process`).

use std::borrow::Cow;
use std::marker::PhantomData;

use crate::labels::Role;

/// What a metric counts, as Prometheus types it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Only grows; its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Classic histogram with fixed bucket edges.
    Histogram,
}

impl Kind {
    /// The word of the exposition format.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Unit of a metric or of an expression over metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A plain number of things.
    Count,
    /// Requests.
    Requests,
    /// Tokens.
    Tokens,
    /// Slots (pages or states) of a pool.
    Slots,
    /// Bytes.
    Bytes,
    /// Seconds of duration.
    Seconds,
    /// A moment: Unix seconds.
    Timestamp,
    /// Share, 0 to 1.
    Ratio,
    /// 0 or 1: constants that carry labels, and one-hot states.
    Flag,
    /// Things a second.
    CountPerSecond,
    /// Requests a second.
    RequestsPerSecond,
    /// Tokens a second.
    TokensPerSecond,
    /// Slots a second.
    SlotsPerSecond,
    /// Bytes a second.
    BytesPerSecond,
}

impl Unit {
    /// Unit of a per-second rate of this quantity; a rate of seconds is a share of elapsed time.
    pub const fn rate(self) -> Self {
        match self {
            Self::Requests => Self::RequestsPerSecond,
            Self::Tokens => Self::TokensPerSecond,
            Self::Slots => Self::SlotsPerSecond,
            Self::Bytes => Self::BytesPerSecond,
            Self::Seconds => Self::Ratio,
            Self::Count
            | Self::Timestamp
            | Self::Ratio
            | Self::Flag
            | Self::CountPerSecond
            | Self::RequestsPerSecond
            | Self::TokensPerSecond
            | Self::SlotsPerSecond
            | Self::BytesPerSecond => Self::CountPerSecond,
        }
    }

    /// Unit of a metric, read from the last word of its name that is a unit; `Count` without one.
    pub const fn of_name(name: &str) -> Self {
        let bytes = name.as_bytes();
        if contains(bytes, b"_timestamp_seconds") || contains(bytes, b"_start_time_seconds") {
            return Self::Timestamp;
        }
        let mut end = bytes.len();
        while end > 0 {
            let mut start = end;
            while start > 0 && bytes[start - 1] != b'_' {
                start -= 1;
            }
            let (_, tail) = bytes.split_at(start);
            let (word, _) = tail.split_at(end - start);
            match word {
                b"seconds" => return Self::Seconds,
                b"bytes" => return Self::Bytes,
                b"tokens" => return Self::Tokens,
                b"requests" => return Self::Requests,
                b"slots" => return Self::Slots,
                b"ratio" => return Self::Ratio,
                b"info" | b"state" => return Self::Flag,
                _ => end = start.saturating_sub(1),
            }
        }
        Self::Count
    }
}

const fn contains(text: &[u8], part: &[u8]) -> bool {
    let mut at = 0;
    while at + part.len() <= text.len() {
        let mut same = 0;
        while same < part.len() && text[at + same] == part[same] {
            same += 1;
        }
        if same == part.len() {
            return true;
        }
        at += 1;
    }
    false
}

/// Who exposes a metric, hence which scrape jobs carry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// The serving process.
    Server,
    /// Any process: the standard `process_*` families, named as everybody names them.
    Process,
}

impl Source {
    /// Prefix that every name of this source has.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Server => "sightline_",
            Self::Process => "process_",
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
    /// Roles whose process exposes it.
    pub roles: &'static [Role],
    #[doc(hidden)]
    pub combinations: fn() -> Vec<Vec<Cow<'static, str>>>,
}

impl Info {
    /// Label values of every series that exists from the start, in the order of `labels`.
    ///
    /// Empty for a metric with an open label: its series appear when their values are known.
    pub fn combinations(&self) -> Vec<Vec<Cow<'static, str>>> {
        (self.combinations)()
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
}

/// Says that a label set has label `L`; `At` is the place and is always inferred.
#[diagnostic::on_unimplemented(
    message = "the metric has no label `{L}`",
    label = "labels of the metric: `{Self}`"
)]
pub trait Has<L, At> {}

/// Place of a label in its set; only the compiler names it.
#[derive(Debug)]
pub struct At<const N: usize>;

impl LabelSet for () {
    const LABELS: &'static [LabelInfo] = &[];

    fn values(&self) -> Vec<Cow<'static, str>> {
        Vec::new()
    }

    fn all() -> Vec<Self> {
        vec![()]
    }
}

macro_rules! label_set {
    ($($label:ident $place:tt),+) => {
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

/// Combinations of the closed values that can occur, as text.
#[doc(hidden)]
pub fn combinations_of<L: LabelSet>(possible: fn(&L) -> bool) -> Vec<Vec<Cow<'static, str>>> {
    L::all().into_iter().filter(possible).map(|set| set.values()).collect()
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
/// The doc comment is the help text. `buckets` is for histograms; `only` names a predicate over the
/// label set that is true for the combinations that can occur, where not all can.
macro_rules! catalog {
    (
        source: $source:ident, roles: $roles:expr;
        $(
            $(#[doc = $help:literal])+
            $name:ident : $kind:ident < $labels:ty > = $text:literal
                $(, buckets $buckets:expr)? $(, only $possible:expr)? ;
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
                    roles: $roles,
                    combinations: || {
                        $crate::def::combinations_of::<$labels>(catalog!(@only $($possible)?))
                    },
                });
        )+

        /// The declarations of this module, in order.
        pub const ALL: &[&$crate::def::Info] = &[$($name.info),+];
    };
    (@buckets) => { &[] };
    (@buckets $buckets:expr) => { $buckets };
    (@only) => { |_| true };
    (@only $possible:expr) => { $possible };
}

pub(crate) use catalog;

#[cfg(test)]
mod tests;
