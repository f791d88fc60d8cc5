//! What is found out about the other server: whose metrics it has, and how often it scrapes.

use std::collections::BTreeMap;
use std::time::Duration;

use dashboards::client::Targets;
use hyper::Method;
use metric_catalog::server::BUILD_INFO;
use serde_json::Value;
use tokio::time::Instant;

use super::Upstream;
use crate::clock::now_ms;
use crate::console::boards::{FOREIGN, OWN};
use crate::promql::parse_duration;

/// The interval that most configurations have, in seconds.
const SCRAPE_INTERVAL: f64 = 15.0;

/// What has been found is looked for again after this; a failure sooner.
const KEPT: Duration = Duration::from_secs(60);
const FAILURE_KEPT: Duration = Duration::from_secs(5);

/// It is given so long to answer what a page needs first.
const LOOK: Duration = Duration::from_secs(5);

/// Metrics of this many seconds count.
const SEEN: f64 = 3600.0;

/// One of these names shows that metrics of a target are there.
fn names() -> String {
    format!("{{__name__=~\"{}|(sglang|vllm):.+\"}}", BUILD_INFO.name())
}

/// What was found.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) targets: Vec<&'static str>,
    pub(super) scrape_interval: f64,
    pub(super) problem: Option<String>,
    at: Instant,
}

impl Found {
    /// What is assumed of a server that does not answer.
    fn without(problem: String) -> Self {
        let scrape_interval = SCRAPE_INTERVAL;
        Self { targets: all(), scrape_interval, problem: Some(problem), at: Instant::now() }
    }
}

impl Upstream {
    /// What was found, looked for again when that is a while ago. One looks, the others wait.
    pub(super) async fn found(&self) -> Found {
        let mut found = self.found.lock().await;
        if let Some(known) = &*found {
            let kept = if known.problem.is_some() { FAILURE_KEPT } else { KEPT };
            if known.at.elapsed() < kept {
                return known.clone();
            }
        }
        // A page waits for this: it is told what is wrong before it gives up.
        let new = match tokio::time::timeout(LOOK, self.look()).await {
            Ok(found) => found,
            Err(_) => {
                Found::without(format!("{}: no answer within {} s", self.address(), LOOK.as_secs()))
            }
        };
        *found = Some(new.clone());
        new
    }

    async fn look(&self) -> Found {
        let now = now_ms() as f64 / 1000.0;
        let names = self.prometheus.label_values("__name__", &[&names()], now - SEEN, now).await;
        match names {
            Ok(names) => Found {
                targets: targets_of(&names),
                scrape_interval: self.interval().await.unwrap_or(SCRAPE_INTERVAL),
                problem: None,
                at: Instant::now(),
            },
            Err(error) => Found::without(error.to_string()),
        }
    }

    /// Seconds between two scrapes: of most targets, else as configured for all. Other stores than
    /// Prometheus have neither.
    async fn interval(&self) -> Option<f64> {
        if let Some(seconds) = self.prometheus.targets().await.ok().and_then(|all| interval(&all)) {
            return Some(seconds);
        }
        let path = "/api/v1/status/config";
        let answer = self.prometheus.http().send(Method::GET, path, None).await.ok()?;
        let body: Value = serde_json::from_slice(&answer.body).ok()?;
        configured(body["data"]["yaml"].as_str()?)
    }

    /// Version of the other server, or why it does not tell it.
    pub(in crate::console) async fn version(&self) -> Result<String, String> {
        match tokio::time::timeout(LOOK, self.prometheus.build_info()).await {
            Ok(info) => info.map(|info| info.version).map_err(|error| error.to_string()),
            Err(_) => Err(format!("{}: no answer within {} s", self.address(), LOOK.as_secs())),
        }
    }
}

fn all() -> Vec<&'static str> {
    [OWN].into_iter().chain(FOREIGN).collect()
}

/// Whose metrics these are; all boards are shown where there are none of anybody.
fn targets_of(names: &[String]) -> Vec<&'static str> {
    let has = |target: &&str| {
        names.iter().any(|name| match name.split_once(':') {
            Some((prefix, _)) => prefix == *target,
            None => *target == OWN && name == BUILD_INFO.name(),
        })
    };
    let found: Vec<&str> = all().into_iter().filter(has).collect();
    if found.is_empty() { all() } else { found }
}

/// The interval of most targets in seconds, the longer one of two that are as frequent.
fn interval(targets: &Targets) -> Option<f64> {
    let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
    for ms in targets.active.iter().filter_map(|target| parse_duration(&target.interval)) {
        *counts.entry(ms).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(ms, count)| (*count, *ms));
    most.map(|(ms, _)| ms.max(1) as f64 / 1000.0)
}

/// The interval of the global section, which a Prometheus writes first, in seconds.
fn configured(yaml: &str) -> Option<f64> {
    let text = yaml.lines().find_map(|line| line.trim().strip_prefix("scrape_interval:"))?;
    parse_duration(text.trim()).map(|ms| ms.max(1) as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_known_by_their_metrics() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            targets_of(&names)
        };
        assert_eq!(of(&["sglang:num_running_reqs"]), ["sglang"]);
        assert_eq!(of(&["vllm:x", BUILD_INFO.name()]), ["sightline", "vllm"]);
        assert_eq!(of(&[]), ["sightline", "sglang", "vllm"]);
    }

    #[test]
    fn the_interval_is_that_of_most_targets_or_of_the_configuration() {
        let targets = |intervals: &[&str]| {
            let list: Vec<Value> =
                intervals.iter().map(|i| serde_json::json!({ "scrapeInterval": i })).collect();
            serde_json::from_value(serde_json::json!({ "activeTargets": list })).expect("targets")
        };
        assert_eq!(interval(&targets(&["5s", "30s", "30s", ""])), Some(30.0));
        assert_eq!(interval(&targets(&["5s", "1m"])), Some(60.0));
        assert_eq!(interval(&targets(&[])), None);
        assert_eq!(configured("global:\n  scrape_interval: 7s\nx: 1"), Some(7.0));
        assert_eq!(configured("global: {}"), None);
    }
}
