//! What expressions evaluate to, for every step of a range at once.

use std::collections::HashMap;

use super::QueryError;
use crate::store::{Labels, SeriesSamples};

/// A sample of an answer: Unix milliseconds and value.
pub(crate) type Point = (i64, f64);

/// A series of an answer.
#[derive(Debug, Clone)]
pub(crate) struct RangeSeries {
    pub(crate) labels: Labels,
    pub(crate) points: Vec<Point>,
}

/// A series with one optional value per step.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub(super) labels: Labels,
    pub(super) values: Vec<Option<f64>>,
}

impl Series {
    pub(super) fn is_empty(&self) -> bool {
        self.values.iter().all(Option::is_none)
    }
}

/// A value per step.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Scalar(Vec<f64>),
    String(String),
    Vector(Vec<Series>),
}

/// Raw samples with the window that each step looks at.
pub(super) struct Matrix {
    pub(super) series: Vec<SeriesSamples>,
    pub(super) range_ms: i64,
    /// The end of the window of each step.
    pub(super) ends: Vec<i64>,
}

impl Matrix {
    /// The samples of the single step of an instant query.
    pub(super) fn into_raw(self, fallback_end: i64) -> Vec<RangeSeries> {
        let end = self.ends.first().copied().unwrap_or(fallback_end);
        let start = end - self.range_ms;
        self.series
            .into_iter()
            .map(|s| {
                let inside = s.samples.into_iter().filter(|(t, _)| *t > start && *t <= end);
                RangeSeries { labels: s.labels, points: inside.collect() }
            })
            .filter(|s| !s.points.is_empty())
            .collect()
    }
}

/// Merges series that have got equal labels, which is an error when two have a value at one step.
pub(super) fn merge(series: Vec<Series>) -> Result<Vec<Series>, QueryError> {
    let mut places: HashMap<Labels, usize> = HashMap::with_capacity(series.len());
    let mut out: Vec<Series> = Vec::with_capacity(series.len());
    for next in series {
        if next.is_empty() {
            continue;
        }
        let Some(place) = places.get(&next.labels) else {
            places.insert(next.labels.clone(), out.len());
            out.push(next);
            continue;
        };
        for (slot, value) in out[*place].values.iter_mut().zip(next.values) {
            match (slot.is_some(), value) {
                (true, Some(_)) => {
                    return Err(QueryError::Execution(
                        "vector cannot contain metrics with the same labelset".to_owned(),
                    ));
                }
                (false, Some(value)) => *slot = Some(value),
                (_, None) => {}
            }
        }
    }
    Ok(out)
}
