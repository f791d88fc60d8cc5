//! What a monitoring system sees of a run: the processes scraped into a store, the generated rules
//! evaluated over it, and who would have been called.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metric_catalog::alerts::routing;
use metric_catalog::labels::{
    AbortInitiator, PromptSource, TransferFailure, TransferResult, TransferSide,
};
use metric_catalog::promql::{Window, recorded};
use metric_catalog::{pair, server as catalog};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::story::Story;
use crate::complain;
use crate::console;
use crate::promql::{Answer, Query};
use crate::rules::Rules;
use crate::scrape::{Scraper, Target};
use crate::store::{Bounds, Labels, Store};
use crate::up::{Failure, exit, node_name};

/// After the last client the processes may need this long to see that all is over.
const SETTLE_MAX: Duration = Duration::from_secs(10);
const SETTLE_EVERY: Duration = Duration::from_millis(100);

/// Alerts by name and the rest of their labels, with their first sight; seconds of the incident's
/// time.
pub(super) type Sightings = BTreeMap<(String, String), f64>;

/// Which alerts fired since when, and which would have paged.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct AlertLog {
    pub(super) fired: Sightings,
    /// Those of them that no cause muted.
    pub(super) pages: Sightings,
}

impl AlertLog {
    /// Takes in what fires at one moment.
    fn note(&mut self, seconds: f64, firing: &[Labels]) {
        let plain = |labels: &Labels| -> routing::Labels {
            labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        // What always fires, to show that alerting works, is no news.
        let is_news = |labels: &routing::Labels| labels.get("severity").is_none_or(|s| s != "none");
        let firing: Vec<routing::Labels> = firing.iter().map(plain).filter(is_news).collect();
        for labels in &firing {
            self.fired.entry(key(labels)).or_insert(seconds);
        }
        for labels in routing::pages(&firing) {
            self.pages.entry(key(labels)).or_insert(seconds);
        }
    }

    /// When an alert of this name fired first.
    pub(super) fn first(&self, name: &str) -> Option<f64> {
        let of_name = self.fired.iter().filter(|((alert, _), _)| alert == name);
        of_name.map(|(_, seconds)| *seconds).reduce(f64::min)
    }

    /// The names of alerts with the time of their first sight, in the order of time.
    pub(super) fn names(&self) -> Vec<(&str, f64)> {
        let mut names: BTreeMap<&str, f64> = BTreeMap::new();
        for ((name, _), seconds) in &self.fired {
            let first = names.entry(name).or_insert(*seconds);
            *first = first.min(*seconds);
        }
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_by(|a, b| a.1.total_cmp(&b.1));
        names
    }
}

/// An alert's name, and its other labels as text.
fn key(labels: &routing::Labels) -> (String, String) {
    let name = labels.get("alertname").cloned().unwrap_or_default();
    let rest = labels.iter().filter(|(label, _)| *label != "alertname");
    let rest: Vec<String> = rest.map(|(label, value)| format!("{label}={value}")).collect();
    (name, rest.join(" "))
}

/// What the processes counted, from the last page of each.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Counted {
    /// Most work that waited for its prefill, in seconds of the incident's time.
    pub(super) drain_max: f64,
    /// Most requests that waited for it.
    pub(super) queued_max: f64,
    /// Prompt tokens that the prefill worker computed, by busy second of the incident's time and in
    /// all.
    pub(super) capacity: f64,
    pub(super) computed: f64,
    /// Requests that their client gave up, as the decode worker saw it.
    pub(super) aborted: f64,
    /// Transfers as the prefill worker saw them end.
    pub(super) transfers: BTreeMap<String, f64>,
    /// Reasons of those that did not end ok, on both sides.
    pub(super) failures: BTreeMap<(String, String), f64>,
    /// What is left when all clients are gone: requests, open transfers, held bytes.
    pub(super) left: f64,
}

impl Counted {
    /// Transfers that ended so on a side.
    pub(super) fn failures(&self, side: TransferSide, reason: TransferFailure) -> f64 {
        let key = (side.as_str().to_owned(), reason.as_str().to_owned());
        self.failures.get(&key).copied().unwrap_or(0.0)
    }

    /// Transfers with an error that is nobody's wish, on both sides.
    pub(super) fn errors(&self) -> f64 {
        let wished = [TransferFailure::PeerAbort.as_str(), TransferFailure::LocalAbort.as_str()];
        let errors = self.failures.iter().filter(|((_, why), _)| !wished.contains(&why.as_str()));
        // Nothing at all adds up to minus zero.
        errors.map(|(_, count)| count).sum::<f64>() + 0.0
    }

    /// Transfers that somebody gave up, on both sides.
    pub(super) fn given_up(&self) -> f64 {
        self.failures.values().sum::<f64>() - self.errors()
    }
}

/// Watches one run.
pub(super) struct Watch {
    story: Story,
    store: Arc<Store>,
    rules: Arc<Rules>,
    log: Arc<Mutex<AlertLog>>,
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl Watch {
    /// Scrapes and evaluates from now on.
    pub(super) fn start(story: Story, targets: &[(&str, String)]) -> Result<Self, Failure> {
        let rules = Rules::parse(&console::rule_files())
            .map_err(|error| Failure::new(exit::INTERNAL, error.to_string()))?;
        let mut watch = Self {
            story,
            store: Arc::new(Store::new(Bounds::default())),
            rules: Arc::new(rules),
            log: Arc::default(),
            tasks: JoinSet::new(),
            stop: CancellationToken::new(),
        };
        for (job, address) in targets {
            let target = Target {
                address: address.clone(),
                job: (*job).to_owned(),
                cluster: "incident".to_owned(),
                node: node_name(),
            };
            let scraper = Scraper::new(target, Arc::clone(&watch.store), Arc::default());
            watch.tasks.spawn(scrape(scraper, story, watch.stop.clone()));
        }
        watch.tasks.spawn(evaluate(
            Arc::clone(&watch.rules),
            Arc::clone(&watch.store),
            Arc::clone(&watch.log),
            story,
            watch.stop.clone(),
        ));
        Ok(watch)
    }

    /// The incident's time since the start, in seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.story.seconds(self.story.now_ms())
    }

    /// What fired so far.
    pub(super) fn alerts(&self) -> AlertLog {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the processes have seen the end of everything, reads them a last time, and
    /// tells what they counted and what fired.
    pub(super) async fn end(mut self) -> (Counted, AlertLog) {
        let begun = Instant::now();
        while self.left() > 0.0 && begun.elapsed() < SETTLE_MAX {
            tokio::time::sleep(SETTLE_EVERY).await;
        }
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        (self.counted(), self.alerts())
    }

    fn counted(&self) -> Counted {
        let max = |series: recorded::Recorded| {
            let values = self.ask(&series.max_over(Window::H1).to_string());
            values.into_iter().map(|(_, value)| value).fold(0.0, f64::max)
        };
        let capacity = self.ask(&recorded::PREFILL_CAPACITY.last_over(Window::H1).to_string());
        let prompts = self.ask(catalog::PROMPT_TOKENS.name());
        let sent = TransferSide::Send.as_str();
        let mut counted = Counted {
            drain_max: max(recorded::QUEUE_DRAIN),
            queued_max: max(recorded::QUEUED_REQUESTS),
            capacity: capacity.into_iter().map(|(_, value)| value).fold(0.0, f64::max),
            computed: sum(
                &prompts,
                &[("engine_role", "prefill"), ("source", PromptSource::Computed.as_str())],
            ),
            aborted: sum(
                &self.ask(catalog::REQUESTS_ABORTED.name()),
                &[("engine_role", "decode"), ("initiator", AbortInitiator::Client.as_str())],
            ),
            left: self.left(),
            ..Counted::default()
        };
        let transfers = self.ask(pair::KV_TRANSFERS.name());
        for result in [TransferResult::Ok, TransferResult::Error, TransferResult::Aborted] {
            let result = result.as_str();
            let count = sum(&transfers, &[("side", sent), ("result", result)]);
            counted.transfers.insert(result.to_owned(), count);
        }
        for (labels, value) in self.ask(pair::KV_TRANSFER_ERRORS.name()) {
            let text = |name: &str| labels.get(name).unwrap_or("").to_owned();
            *counted.failures.entry((text("side"), text("reason"))).or_default() += value;
        }
        counted
    }

    /// Requests, transfers and bytes that somebody still has.
    fn left(&self) -> f64 {
        let names = [
            catalog::QUEUE_REQUESTS.name(),
            catalog::RUNNING_REQUESTS.name(),
            pair::KV_TRANSFERS_ACTIVE.name(),
            pair::KV_TRANSFER_HELD_BYTES.name(),
        ];
        names.iter().map(|name| sum(&self.ask(name), &[])).sum()
    }

    /// The answer of a query now.
    fn ask(&self, query: &str) -> Vec<(Labels, f64)> {
        let query = Query::parse(query).expect("made from the catalog");
        match query.instant(&self.store, self.story.now_ms()) {
            Ok(Answer::Vector(found)) => found,
            Ok(Answer::Scalar(_) | Answer::String(_) | Answer::Matrix(_)) | Err(_) => Vec::new(),
        }
    }
}

/// The sum of the series that have all these labels.
fn sum(series: &[(Labels, f64)], wanted: &[(&str, &str)]) -> f64 {
    let has = |labels: &Labels| wanted.iter().all(|(n, v)| labels.get(n) == Some(v));
    let of_them = series.iter().filter(|(labels, _)| has(labels)).map(|(_, value)| value);
    // Nothing at all adds up to minus zero.
    of_them.sum::<f64>() + 0.0
}

/// Scrapes one process until `stop`, and then a last time.
async fn scrape(mut scraper: Scraper, story: Story, stop: CancellationToken) {
    let mut ticks = interval(story.scrape_every());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        let last = tokio::select! {
            () = stop.cancelled() => true,
            _ = ticks.tick() => false,
        };
        scraper.once(story.now_ms(), |page| story.tell(page)).await;
        if last {
            return;
        }
    }
}

/// Evaluates the rules until `stop`.
async fn evaluate(
    rules: Arc<Rules>,
    store: Arc<Store>,
    log: Arc<Mutex<AlertLog>>,
    story: Story,
    stop: CancellationToken,
) {
    let mut ticks = interval(story.rules_every());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let (rules, store) = (Arc::clone(&rules), Arc::clone(&store));
        let now_ms = story.now_ms();
        let turn = move || (rules.evaluate(&store, now_ms), rules.firing());
        match tokio::task::spawn_blocking(turn).await {
            Ok((errors, firing)) => {
                errors.iter().for_each(|error| complain(&format!("warning: {error}")));
                let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                log.note(story.seconds(now_ms), &firing);
            }
            Err(_) => complain("error: the rule evaluation panicked"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(name: &str, layer: &str, severity: &str, cause: bool) -> Labels {
        let pairs = [("alertname", name), ("layer", layer), ("severity", severity)];
        let cause = cause.then_some(("root_cause", "true"));
        let place = [("cluster", "c"), ("model_name", "m")];
        let all = pairs.into_iter().chain(place).chain(cause);
        Labels::new(all.map(|(label, value)| (label.to_owned(), value.to_owned())))
    }

    #[test]
    fn a_symptom_pages_only_while_no_cause_fires() {
        let cause = alert("Cause", "queue", "critical", true);
        let symptom = alert("Symptom", "symptom", "critical", false);
        let ticket = alert("Ticket", "symptom", "warning", false);
        let mut log = AlertLog::default();
        log.note(15.0, &[alert("Watchdog", "", "none", false)]);
        log.note(30.0, &[cause.clone(), ticket.clone()]);
        log.note(45.0, &[cause, symptom.clone(), ticket]);
        let paged: Vec<&str> = log.pages.keys().map(|(name, _)| name.as_str()).collect();
        assert_eq!(paged, ["Cause"]);
        assert_eq!(log.names(), [("Cause", 30.0), ("Ticket", 30.0), ("Symptom", 45.0)]);
        assert_eq!((log.first("Symptom"), log.first("None")), (Some(45.0), None));
        // It outlives its cause: somebody is called a second time.
        log.note(60.0, &[symptom]);
        assert_eq!(log.pages.len(), 2);
        assert_eq!(log.fired.len(), 3, "each is there once");
    }

    #[test]
    fn reasons_are_told_apart() {
        let counts = [("send", "peer_abort", 3.0), ("recv", "local_abort", 2.0)];
        let more = [("recv", "peer_gone", 1.0), ("send", "checksum", 0.0)];
        let key = |(side, why, n): (&str, &str, f64)| ((side.to_owned(), why.to_owned()), n);
        let failures = counts.into_iter().chain(more).map(key).collect();
        let counted = Counted { failures, ..Counted::default() };
        assert_eq!(counted.failures(TransferSide::Send, TransferFailure::PeerAbort), 3.0);
        assert_eq!(counted.failures(TransferSide::Recv, TransferFailure::PeerAbort), 0.0);
        assert_eq!((counted.errors(), counted.given_up()), (1.0, 5.0));
    }
}
