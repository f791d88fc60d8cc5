//! Fills the store from the metrics pages of the children.
//!
//! As Prometheus does: target labels, `up` and the scrape's own series, and an end mark for every
//! series that a target no longer shows. It discovers nothing; the targets are given.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::StatusCode;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::clock::now_ms;
use crate::exposition::{self, Family};
use crate::http;
use crate::store::{NAME, STALE, SeriesRef, Store};

/// How often a target is asked.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// A busy machine answers late; the ticks in between are skipped.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

/// A page larger than this is a failed scrape.
const PAGE_BYTES_MAX: usize = 32 << 20;

/// Families whose type and help are known; of more, only the samples are kept.
const FAMILIES_MAX: usize = 10_000;

/// Where metrics are read, and the labels that every series of the target gets.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// `host:port`.
    pub(crate) address: String,
    pub(crate) job: String,
    pub(crate) cluster: String,
    pub(crate) node: String,
}

impl Target {
    fn labels(&self) -> Vec<(String, String)> {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        vec![
            pair("cluster", &self.cluster),
            pair("instance", &self.address),
            pair("job", &self.job),
            pair("node", &self.node),
        ]
    }
}

/// What one target looked like at its last scrape.
#[derive(Debug, Clone, Default)]
pub(crate) struct Health {
    /// `None` before the first scrape, then the reason of a failure, if it failed.
    pub(crate) last: Option<Result<(), String>>,
    pub(crate) last_ms: i64,
    pub(crate) duration: Duration,
}

/// What the scrapers tell the query API: types and helps, and the state of the targets.
#[derive(Debug, Default)]
pub(crate) struct Knowledge {
    families: Mutex<BTreeMap<String, Family>>,
    targets: Mutex<Vec<(Target, Health)>>,
}

impl Knowledge {
    pub(crate) fn families(&self) -> BTreeMap<String, Family> {
        self.families.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn targets(&self) -> Vec<(Target, Health)> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn update(&self, target: &Target, health: Health) {
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        match targets.iter_mut().find(|(known, _)| known.address == target.address) {
            Some((_, known)) => *known = health,
            None => targets.push((target.clone(), health)),
        }
    }
}

/// A series of the last page, and the round in which it was last seen.
struct Cached {
    series: SeriesRef,
    round: u64,
}

/// Scrapes one target.
pub(crate) struct Scraper {
    target: Target,
    labels: Vec<(String, String)>,
    store: Arc<Store>,
    knowledge: Arc<Knowledge>,
    /// By the text of the series in the page, which saves parsing it again.
    cache: HashMap<String, Cached>,
    round: u64,
}

impl Scraper {
    pub(crate) fn new(target: Target, store: Arc<Store>, knowledge: Arc<Knowledge>) -> Self {
        knowledge.update(&target, Health::default());
        let labels = target.labels();
        Self { target, labels, store, knowledge, cache: HashMap::new(), round: 0 }
    }

    /// Scrapes each second until `stop`; then the target's series are ended.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick() => {}
            }
            self.once(now_ms(), |page| page).await;
        }
        self.end_unseen(now_ms(), u64::MAX);
    }

    /// Scrapes now, which is `time_ms`; `told` is what the page says, where that is not taken as
    /// it is.
    pub(crate) async fn once(&mut self, time_ms: i64, told: impl FnOnce(String) -> String) {
        let begun = Instant::now();
        let page = self.page().await;
        let duration = begun.elapsed();
        let outcome = match page {
            Ok(text) => self.ingest(&told(text), time_ms),
            Err(reason) => Err(reason),
        };
        self.finish(outcome, time_ms, duration);
    }

    async fn page(&self) -> Result<String, String> {
        let address = &self.target.address;
        let request = http::get(address, "/metrics").map_err(|e| e.to_string())?;
        let (status, body) = http::fetch(address, request, PAGE_BYTES_MAX, TIMEOUT)
            .await
            .map_err(|e| e.to_string())?;
        if status != StatusCode::OK {
            return Err(format!("server returned HTTP status {status}"));
        }
        String::from_utf8(body.to_vec()).map_err(|e| e.to_string())
    }

    /// Stores a page: the number of samples, or why the whole page is refused.
    fn ingest(&mut self, text: &str, time_ms: i64) -> Result<usize, String> {
        let page = exposition::parse(text).map_err(|e| e.to_string())?;
        self.round += 1;
        let mut batch = Vec::with_capacity(page.samples.len());
        for sample in &page.samples {
            let known = self.cache.get_mut(sample.series);
            let series = match known {
                Some(cached) => {
                    cached.round = self.round;
                    cached.series
                }
                None => {
                    let own = exposition::series_labels(sample.series)?;
                    let labels = exposition::with_target(own, &self.labels);
                    let Some(series) = self.store.series(&labels) else { continue };
                    let cached = Cached { series, round: self.round };
                    self.cache.insert(sample.series.to_owned(), cached);
                    series
                }
            };
            batch.push((series, time_ms, sample.value));
        }
        if self.store.append(&batch).contains(&false) {
            // Retention removed a series while its target was silent: look them all up again.
            self.cache.clear();
        } else {
            self.end_unseen(time_ms, self.round);
        }
        // Targets of other roles have families of their own.
        let mut known = self.knowledge.families.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, family) in page.families {
            if known.len() < FAMILIES_MAX || known.contains_key(&name) {
                known.insert(name, family);
            }
        }
        drop(known);
        Ok(batch.len())
    }

    /// Writes the scrape's own series; after a failure, ends those of the target.
    fn finish(&mut self, outcome: Result<usize, String>, time_ms: i64, duration: Duration) {
        let up = f64::from(u8::from(outcome.is_ok()));
        let samples = outcome.as_ref().copied().unwrap_or(0);
        if outcome.is_err() {
            self.end_unseen(time_ms, u64::MAX);
        }
        for (name, value) in [
            ("up", up),
            ("scrape_duration_seconds", duration.as_secs_f64()),
            ("scrape_samples_scraped", samples as f64),
        ] {
            let own = vec![(NAME.to_owned(), name.to_owned())];
            let labels = exposition::with_target(own, &self.labels);
            self.store.append_labels(&labels, time_ms, value);
        }
        let last = Some(outcome.map(|_| ()));
        self.knowledge.update(&self.target, Health { last, last_ms: time_ms, duration });
    }

    /// Ends every series not seen in round `round`.
    fn end_unseen(&mut self, time_ms: i64, round: u64) {
        let gone: Vec<(SeriesRef, i64, f64)> = self
            .cache
            .values()
            .filter(|cached| cached.round != round)
            .map(|cached| (cached.series, time_ms, STALE))
            .collect();
        if !gone.is_empty() {
            self.store.append(&gone);
            self.cache.retain(|_, cached| cached.round == round);
        }
    }
}
