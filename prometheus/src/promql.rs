//! Queries made from declarations: a name, a label or a kind that does not fit does not compile.
//!
//! An expression knows the labels and the unit of its result, so that a legend or an axis can be
//! checked against it. Boards render it with a `Scope`, rules without. This is no PromQL engine:
//! nothing is evaluated, and what the types cannot see is left to `lint`.

mod aggregate;
mod ast;
mod expr;
#[cfg(feature = "lint")]
pub mod lint;
pub mod recorded;
mod select;

pub use aggregate::{
    Buckets, Grouping, INSTANCE, Keys, MODEL, amount, avg, bucket_rate, buckets, changes, count,
    group, increase, last_over_time, max, max_over_time, mean, min, observations,
    observations_within, quantile, quantile_of, rate, sum,
};
pub use expr::{
    AtRunTime, Expr, Known, Vector, clamp_min, quotient_of, ratio, raw, time, topk, up, vector,
};
pub use recorded::{Recorded, observed};
pub use select::{
    COMMON, Common, Instant, Matcher, Scope, Selection, Selector, TARGET, Window, duration,
};

/// Label values that rules name although nothing records them yet. The rules are the same text for
/// all deployments.
pub const LATER: &[(&str, &[&str])] = &[("state", &["sleeping"])];

/// Labels that rules keep although no series has them yet.
pub const LATER_LABELS: &[&str] = &["dp_rank"];

#[cfg(test)]
mod tests;
