//! Quantiles: of a list of values, and of a classic histogram.

use std::collections::HashMap;

use super::value::Series;
use crate::store::{Labels, NAME};

/// The quantile `q` of `values`, linear between ranks; infinite outside 0..1 as in Prometheus.
pub(super) fn quantile(q: f64, mut values: Vec<f64>) -> f64 {
    if values.is_empty() || q.is_nan() {
        return f64::NAN;
    }
    if q < 0.0 {
        return f64::NEG_INFINITY;
    }
    if q > 1.0 {
        return f64::INFINITY;
    }
    // NaN sorts first, as in Prometheus.
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan())));
    let rank = q * (values.len() - 1) as f64;
    let low = rank.floor() as usize;
    let high = (low + 1).min(values.len() - 1);
    let weight = rank - rank.floor();
    values[low] * (1.0 - weight) + values[high] * weight
}

/// `histogram_quantile`: `q` per step over series with an `le` label.
pub(super) fn histogram(q: &[f64], series: Vec<Series>) -> Vec<Series> {
    let mut places: HashMap<Labels, usize> = HashMap::new();
    let mut groups: Vec<(Labels, Vec<(f64, Series)>)> = Vec::new();
    for one in series {
        let Some(bound) = one.labels.get("le").and_then(bound) else {
            continue;
        };
        let labels = one.labels.filtered(|name| name != "le" && name != NAME);
        let place = *places.entry(labels.clone()).or_insert_with(|| {
            groups.push((labels, Vec::new()));
            groups.len() - 1
        });
        groups[place].1.push((bound, one));
    }
    let group = |(labels, mut buckets): (Labels, Vec<(f64, Series)>)| {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let step = |(index, q): (usize, &f64)| {
            let counts = buckets.iter().filter_map(|(le, s)| Some((*le, s.values[index]?)));
            let counts: Vec<(f64, f64)> = counts.collect();
            (!counts.is_empty()).then(|| bucket_quantile(*q, counts))
        };
        Series { labels, values: q.iter().enumerate().map(step).collect() }
    };
    groups.into_iter().map(group).collect()
}

fn bound(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        other => other.parse().ok(),
    }
}

/// Quantile of cumulative buckets sorted by upper bound.
fn bucket_quantile(q: f64, buckets: Vec<(f64, f64)>) -> f64 {
    if q.is_nan() {
        return f64::NAN;
    }
    if q < 0.0 {
        return f64::NEG_INFINITY;
    }
    if q > 1.0 {
        return f64::INFINITY;
    }
    let mut merged: Vec<(f64, f64)> = Vec::with_capacity(buckets.len());
    for (le, count) in buckets {
        match merged.last_mut() {
            Some(last) if last.0 == le => last.1 += count,
            _ => merged.push((le, count)),
        }
    }
    if merged.len() < 2 || merged.last().is_none_or(|(le, _)| *le != f64::INFINITY) {
        return f64::NAN;
    }
    // Rates of buckets that were scraped between two updates may decrease: force them upwards.
    let mut most = f64::NEG_INFINITY;
    for (_, count) in &mut merged {
        most = most.max(*count);
        *count = most;
    }
    let total = merged[merged.len() - 1].1;
    if total == 0.0 || total.is_nan() {
        return f64::NAN;
    }
    let rank = q * total;
    let at = merged[..merged.len() - 1]
        .iter()
        .position(|(_, count)| *count >= rank)
        .unwrap_or(merged.len() - 1);
    if at == merged.len() - 1 {
        return merged[at - 1].0;
    }
    let (end, mut count) = merged[at];
    if at == 0 && end <= 0.0 {
        return end;
    }
    let (mut start, mut rank) = (0.0, rank);
    if at > 0 {
        start = merged[at - 1].0;
        count -= merged[at - 1].1;
        rank -= merged[at - 1].1;
    }
    start + (end - start) * (rank / count)
}
