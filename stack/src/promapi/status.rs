//! What the console says of itself and of what it scrapes.

use std::time::Duration;

use serde_json::{Value, json};

use super::read::POINTS_MAX;
use super::{Answer, Api, CONCURRENT_QUERIES, Params, TIMEOUT, format};
use crate::promql::{Budget, LOOKBACK_MS, SAMPLES_MAX, STEPS_MAX};
use crate::scrape::{self, Target};

/// Entries of the lists in `status/tsdb`, as in Prometheus.
const TOP: usize = 10;

/// A length of time as Prometheus prints it, in its largest whole unit.
fn span(length: Duration) -> String {
    let seconds = length.as_secs();
    match [("h", 3600), ("m", 60)].into_iter().find(|(_, unit)| seconds.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", seconds / unit),
        None => format!("{seconds}s"),
    }
}

fn retention(api: &Api) -> Duration {
    Duration::from_millis(api.store.bounds().retention_ms.unsigned_abs())
}

pub(super) fn targets(api: &Api, params: &Params, _budget: &Budget) -> Answer {
    let one = |target: &Target, health: &scrape::Health| {
        let (state, error) = match &health.last {
            None => ("unknown", String::new()),
            Some(Ok(())) => ("up", String::new()),
            Some(Err(reason)) => ("down", reason.clone()),
        };
        json!({
            "discoveredLabels": {
                "__address__": target.address,
                "__metrics_path__": "/metrics",
                "__scheme__": "http",
                "job": target.job,
            },
            "labels": {
                "cluster": target.cluster,
                "instance": target.address,
                "job": target.job,
                "node": target.node,
            },
            "scrapePool": target.job,
            "scrapeUrl": format!("http://{}/metrics", target.address),
            "globalUrl": format!("http://{}/metrics", target.address),
            "lastError": error,
            "lastScrape": format::rfc3339(health.last_ms),
            "lastScrapeDuration": health.duration.as_secs_f64(),
            "health": state,
            "scrapeInterval": span(scrape::INTERVAL),
            "scrapeTimeout": span(scrape::TIMEOUT),
        })
    };
    let known = api.knowledge.targets();
    let pool = params.get("scrapePool");
    let wanted = known.iter().filter(|(target, _)| pool.is_none_or(|pool| pool == target.job));
    let dropped_only = params.get("state").is_some_and(|s| s.eq_ignore_ascii_case("dropped"));
    let active: Vec<Value> = if dropped_only {
        Vec::new()
    } else {
        wanted.map(|(target, health)| one(target, health)).collect()
    };
    Ok(json!({ "activeTargets": active, "droppedTargets": [] }).to_string().into())
}

/// Alerts are shown, not sent.
pub(super) fn alertmanagers(_api: &Api, _params: &Params, _budget: &Budget) -> Answer {
    let none = json!({ "activeAlertmanagers": [], "droppedAlertmanagers": [] });
    Ok(none.to_string().into())
}

pub(super) fn build_info(_api: &Api, _params: &Params, _budget: &Budget) -> Answer {
    // Clients choose features by this version: it names the language level, not this program.
    Ok(json!({
        "version": "3.0.0",
        "revision": concat!("sightline-", env!("CARGO_PKG_VERSION")),
        "branch": "", "buildUser": "", "buildDate": "", "goVersion": "",
    })
    .to_string()
    .into())
}

pub(super) fn runtime_info(api: &Api, _params: &Params, _budget: &Budget) -> Answer {
    let (totals, bounds) = (api.store.totals(), api.store.bounds());
    Ok(json!({
        "startTime": format::rfc3339(api.started_ms),
        "reloadConfigSuccess": true,
        "storageRetention": format!("{} or {}MiB", span(retention(api)), bounds.bytes_max >> 20),
        "timeSeriesCount": totals.series,
        "timeSeriesMax": bounds.series_max,
        "storeBytes": totals.bytes,
        "storeBytesMax": bounds.bytes_max,
        "refusedSamples": totals.refused,
    })
    .to_string()
    .into())
}

/// The bounds of queries and of the store, under Prometheus' names where it has them.
pub(super) fn flags(api: &Api, _params: &Params, _budget: &Budget) -> Answer {
    let bounds = api.store.bounds();
    Ok(json!({
        "query.lookback-delta": span(Duration::from_millis(LOOKBACK_MS.unsigned_abs())),
        "query.max-concurrency": CONCURRENT_QUERIES.to_string(),
        "query.max-points": POINTS_MAX.to_string(),
        "query.max-samples": SAMPLES_MAX.to_string(),
        "query.max-steps": STEPS_MAX.to_string(),
        "query.timeout": span(TIMEOUT),
        "storage.tsdb.max-series": bounds.series_max.to_string(),
        "storage.tsdb.retention.size": format!("{}MiB", bounds.bytes_max >> 20),
        "storage.tsdb.retention.time": span(retention(api)),
    })
    .to_string()
    .into())
}

/// The configuration that a Prometheus would have to do the same.
pub(super) fn config(_api: &Api, _params: &Params, _budget: &Budget) -> Answer {
    let yaml = format!(
        "global:\n  scrape_interval: {}\n  scrape_timeout: {}\n",
        span(scrape::INTERVAL),
        span(scrape::TIMEOUT)
    );
    Ok(json!({ "yaml": yaml }).to_string().into())
}

pub(super) fn tsdb(api: &Api, params: &Params, _budget: &Budget) -> Answer {
    let top = match params.limit()? {
        usize::MAX => TOP,
        limit => limit,
    };
    let summary = api.store.summary(top);
    let list = |items: &[(String, usize)]| -> Vec<Value> {
        items.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
    };
    Ok(json!({
        "headStats": {
            "numSeries": summary.series,
            "numLabelPairs": summary.label_pairs,
            "chunkCount": summary.chunks,
            "minTime": summary.oldest_ms,
            "maxTime": summary.newest_ms,
        },
        "seriesCountByMetricName": list(&summary.by_metric),
        "labelValueCountByLabelName": list(&summary.by_label),
    })
    .to_string()
    .into())
}
