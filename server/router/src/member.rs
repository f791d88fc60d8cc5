//! One worker in the registry: what it was listed as, what it said, how it does.

use std::sync::Arc;
use std::time::Duration;

use protocol::internal::{LoadReport, LoadState};
use types::Time;
use xxhash_rust::xxh3::xxh3_64;

use crate::breaker::Breaker;
use crate::charge::{Amount, Ledger};
use crate::config::{Config, HealthConfig};
use crate::ramp;
use crate::set::WorkerSet;
use crate::worker::{Source, WorkerKey, WorkerName, WorkerRole, WorkerSpec, WorkerState};

/// So long after the first worker was ready, others that are ready were so before the router began.
const START_UP: Duration = Duration::from_secs(10);

/// A load report and when it was asked for and came.
#[derive(Debug)]
pub(crate) struct Reported {
    pub(crate) load: LoadReport,
    pub(crate) asked: Time,
    pub(crate) came: Time,
}

/// How polls went.
#[derive(Debug)]
pub(crate) struct Health {
    pub(crate) state: WorkerState,
    /// Why it is not ready: a sentence.
    pub(crate) reason: String,
    pub(crate) well_in_row: u32,
    pub(crate) failed_in_row: u32,
    /// When a poll was last answered.
    pub(crate) answered: Option<Time>,
}

impl Health {
    fn new() -> Self {
        Self {
            state: WorkerState::Joining,
            reason: "it has not answered yet".to_owned(),
            well_in_row: 0,
            failed_in_row: 0,
            answered: None,
        }
    }

    /// A poll failed.
    pub(crate) fn failed(&mut self, reason: String, config: &HealthConfig) {
        self.failed_in_row = self.failed_in_row.saturating_add(1);
        self.well_in_row = 0;
        if self.failed_in_row >= config.unhealthy_after.max(1) {
            (self.state, self.reason) = (WorkerState::Unhealthy, reason);
        }
    }

    /// A poll was answered and the worker says that it takes requests.
    fn well(&mut self, config: &HealthConfig) {
        self.failed_in_row = 0;
        self.well_in_row = self.well_in_row.saturating_add(1);
        if self.well_in_row >= config.ready_after.max(1) {
            self.state = WorkerState::Ready;
            self.reason.clear();
        }
    }

    /// It answered, and takes no requests.
    pub(crate) fn not_ready(&mut self, state: WorkerState, reason: String) {
        (self.state, self.reason) = (state, reason);
        (self.well_in_row, self.failed_in_row) = (0, 0);
    }
}

/// It asked for time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cool {
    pub(crate) from: Time,
    pub(crate) until: Time,
    pub(crate) cause: CoolCause,
}

/// Why it asked for time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CoolCause {
    /// 429: it has too much to do.
    Full,
    /// 503: it takes nothing now.
    Closed,
}

/// How much longer it is left alone, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cooling {
    pub(crate) left: Duration,
    pub(crate) cause: CoolCause,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) key: WorkerKey,
    pub(crate) spec: WorkerSpec,
    pub(crate) sources: [bool; Source::ALL.len()],
    pub(crate) name_hash: u64,
    /// What it is, as far as known.
    pub(crate) role: WorkerRole,
    pub(crate) instance: Option<String>,
    pub(crate) models: Vec<Arc<str>>,
    pub(crate) report: Option<Reported>,
    pub(crate) health: Health,
    pub(crate) drain_operator: bool,
    pub(crate) drain_worker: bool,
    pub(crate) breaker: Breaker,
    pub(crate) cool: Option<Cool>,
    /// A poll of it has ended, in whatever way.
    pub(crate) polled: bool,
    /// It has been ready once.
    pub(crate) was_ready: bool,
    /// Since when it is ready, where it came back or joined those that were there.
    pub(crate) back: Option<Time>,
    pub(crate) ledger: Ledger,
    pub(crate) turn: u64,
    /// For a decode worker, the prefill workers it can be paired with.
    pub(crate) pairs: WorkerSet,
}

impl Member {
    pub(crate) fn new(key: WorkerKey, spec: WorkerSpec, ledger: Ledger) -> Self {
        Self {
            key,
            sources: Default::default(),
            name_hash: xxh3_64(spec.name.as_str().as_bytes()),
            role: spec.role,
            instance: None,
            models: spec.model.iter().cloned().collect(),
            report: None,
            health: Health::new(),
            drain_operator: false,
            drain_worker: false,
            breaker: Breaker::default(),
            cool: None,
            polled: false,
            was_ready: false,
            back: None,
            ledger,
            turn: 0,
            pairs: WorkerSet::default(),
            spec,
        }
    }

    pub(crate) fn name(&self) -> &WorkerName {
        &self.spec.name
    }

    pub(crate) fn serves(&self, model: &str) -> bool {
        self.models.iter().any(|own| **own == *model)
    }

    /// Who lists it.
    pub(crate) fn listed_by(&self) -> impl Iterator<Item = Source> {
        let sources = Source::ALL.into_iter().zip(self.sources);
        sources.filter_map(|(source, listed)| listed.then_some(source))
    }

    /// Something was heard of it, which was in the state `before`: it may have come back. Who is
    /// ready for the first time when the router has just begun (`first`) was there all along.
    pub(crate) fn came_back(
        &mut self,
        before: WorkerState,
        first: &mut Option<Time>,
        now: Time,
        config: &HealthConfig,
    ) {
        if before == WorkerState::Ready || self.state(now, config) != WorkerState::Ready {
            return;
        }
        let begun = now.since(*first.get_or_insert(now));
        let known = std::mem::replace(&mut self.was_ready, true);
        self.back = (known || begun > START_UP).then_some(now);
    }

    /// The share of requests that it takes part in.
    pub(crate) fn share(&self, now: Time, config: &Config) -> f64 {
        ramp::share(self.back, now, config.slow_start)
    }

    /// Whether it drains, whoever asked for it.
    pub(crate) fn draining(&self) -> bool {
        let says = |reported: &Reported| reported.load.state == LoadState::Draining;
        self.drain_operator || self.drain_worker || self.report.as_ref().is_some_and(says)
    }

    pub(crate) fn state(&self, now: Time, config: &HealthConfig) -> WorkerState {
        let silent = |at: Time| now.since(at) > config.silent_after;
        let polled = self.health.state;
        if polled == WorkerState::Unhealthy || self.health.answered.is_some_and(silent) {
            WorkerState::Unhealthy
        } else if self.draining() {
            WorkerState::Draining
        } else {
            polled
        }
    }

    /// Why it is not ready: a sentence; empty where it is.
    pub(crate) fn reason(&self, state: WorkerState, now: Time) -> String {
        let silent = self.health.answered.map(|at| now.since(at));
        match state {
            WorkerState::Ready => String::new(),
            WorkerState::Draining => "it finishes what it has".to_owned(),
            WorkerState::Unhealthy if self.health.state != WorkerState::Unhealthy => {
                let silent = silent.unwrap_or_default().as_secs();
                format!("nothing was heard of it for {silent} s")
            }
            WorkerState::Joining | WorkerState::Unhealthy => self.health.reason.clone(),
        }
    }

    /// Another process answers under its name: what was known of the one before is forgotten.
    pub(crate) fn restarted(&mut self, generation: u32) {
        self.key.generation = generation;
        self.breaker = Breaker::default();
        self.cool = None;
        self.report = None;
        self.drain_worker = false;
        self.pairs = WorkerSet::default();
        let answered = self.health.answered;
        self.health = Health { answered, ..Health::new() };
        self.health.reason = "it has started anew".to_owned();
    }

    /// Takes a report in. `first` is false where it is the first one of a new process, which is
    /// believed at its next one.
    pub(crate) fn reported(&mut self, reported: Reported, counts: bool, config: &HealthConfig) {
        let load = &reported.load;
        self.health.answered = Some(reported.came);
        if let Some(reason) = self.misfit(load) {
            self.health.not_ready(WorkerState::Unhealthy, reason);
        } else {
            self.role = load.role.into();
            self.models.clear();
            self.models.push(load.model.as_str().into());
            match load.state {
                LoadState::Starting => {
                    self.health.not_ready(WorkerState::Joining, "it is starting".to_owned());
                }
                LoadState::Failed => {
                    let reason = "it says that its engine has failed".to_owned();
                    self.health.not_ready(WorkerState::Unhealthy, reason);
                }
                // One that drains has been ready; that it drains is read from the report.
                LoadState::Ready | LoadState::Draining if counts => self.health.well(config),
                LoadState::Ready | LoadState::Draining => {}
            }
        }
        self.report = Some(reported);
    }

    /// How the worker that tells its load is not what it was listed as.
    fn misfit(&self, load: &LoadReport) -> Option<String> {
        let (listed, says) = (self.spec.role.declared(), WorkerRole::from(load.role));
        if listed != says {
            let (listed, says) = (listed.as_str(), says.as_str());
            return Some(format!("it is listed as {listed} and says that it is {says}"));
        }
        let model = self.spec.model.as_deref()?;
        (model != load.model)
            .then(|| format!("it is listed for {model} and says that it serves {}", load.model))
    }

    /// It is well and tells no load.
    pub(crate) fn plain(&mut self, models: Vec<Arc<str>>, now: Time, config: &HealthConfig) {
        self.health.answered = Some(now);
        self.report = None;
        if self.spec.role.declared() != WorkerRole::Unified {
            let role = self.spec.role.as_str();
            let reason = format!("it does not tell its load, which a {role} worker must");
            self.health.not_ready(WorkerState::Unhealthy, reason);
            return;
        }
        self.role = WorkerRole::Plain;
        let listed = self.spec.model.iter().cloned();
        self.models = listed.chain(models).collect();
        self.models.sort_unstable();
        self.models.dedup();
        self.health.well(config);
    }

    /// Its last report, where that is young enough to be believed.
    pub(crate) fn fresh(&self, now: Time, config: &HealthConfig) -> Option<&Reported> {
        self.report.as_ref().filter(|reported| now.since(reported.came) <= config.report_fresh)
    }

    /// What is known of its load.
    pub(crate) fn load(&self, now: Time, config: &Config) -> Load {
        let (own, unreported) = self.ledger.amounts();
        let told = self.report.as_ref().map(|reported| reported.load.prefill_rate);
        let told = told.filter(|rate| rate.is_finite() && *rate > 0.0);
        let prefill_rate = told.unwrap_or(config.assumed_prefill_rate).max(1.0);
        let pending = match self.fresh(now, &config.health) {
            Some(fresh) => fresh.load.queued.uncached_tokens.saturating_add(unreported.pending),
            None => own.pending,
        };
        Load { own, unreported, prefill_rate, pending }
    }

    /// How much longer it is left alone because it asked for time, unless a later report shows that
    /// it has room: `room` says whether one does.
    pub(crate) fn cooling(
        &self,
        now: Time,
        config: &HealthConfig,
        room: impl FnOnce(&Self) -> bool,
    ) -> Option<Cooling> {
        let cool = self.cool.filter(|cool| now < cool.until)?;
        let later = self.fresh(now, config).is_some_and(|fresh| fresh.asked > cool.from);
        let left = cool.until.since(now);
        (!(later && room(self))).then_some(Cooling { left, cause: cool.cause })
    }
}

/// What is known of a worker's load at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// What this router has open there.
    pub(crate) own: Amount,
    /// Of that, what the last report cannot know of.
    pub(crate) unreported: Amount,
    /// Prompt tokens per second, at least 1.
    pub(crate) prefill_rate: f64,
    /// Uncached tokens that wait, by the report and what was routed since, or by own counts alone
    /// where there is no fresh one.
    pub(crate) pending: u64,
}

impl Load {
    /// Seconds until what waits is prefilled.
    pub(crate) fn backlog(&self) -> f64 {
        self.pending as f64 / self.prefill_rate
    }
}
