//! The core: the registry, what is remembered of prompts, budgets and the policy, as one thing
//! under one lock.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use admission::Returns;
use types::Time;

use crate::budget::RetryBudget;
use crate::charge::Amount;
use crate::config::Config;
use crate::hold::Waiting;
use crate::policy::Candidate;
use crate::prefix::PrefixTree;
use crate::ratio::TokenRatio;
use crate::registry::{Answer, Declared, NoSuchWorker, Poll, Registry, TooManyWorkers};
use crate::request::Missing;
use crate::worker::{
    CircuitState, DrainBy, Event, Source, WorkerName, WorkerRole, WorkerSpec, WorkerState,
};

/// The core of a router. Its methods compute and return at once; one that takes `now` must be
/// given times that do not go back.
#[derive(Debug)]
pub struct Core {
    pub(crate) config: Config,
    pub(crate) registry: Registry,
    pub(crate) prefixes: PrefixTree,
    pub(crate) budget: RetryBudget,
    /// By model; only of models that somebody serves.
    ratios: HashMap<Arc<str>, TokenRatio>,
    /// When those that were sent away come back.
    pub(crate) returns: Returns,
    /// When a model could last be answered; only of models that somebody serves.
    pub(crate) answerable: HashMap<Arc<str>, Time>,
    /// Requests that wait for somebody to come back.
    pub(crate) waiting: Waiting,
    pub(crate) random: u64,
    pub(crate) turns: u64,
    /// Reused from one choice to the next: candidates, and their slots.
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) slots: Vec<u16>,
}

/// A worker as metrics and the admin API show it.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerView {
    /// Its name.
    pub name: WorkerName,
    /// Where its API is.
    pub base: Arc<str>,
    /// Its role.
    pub role: WorkerRole,
    /// Who lists it.
    pub sources: Vec<Source>,
    /// Its state.
    pub state: WorkerState,
    /// Why it is not ready: a sentence; empty where it is.
    pub reason: String,
    /// True where a request may go there now: ready, and the breaker not open.
    pub up: bool,
    /// The state of its breaker.
    pub circuit: CircuitState,
    /// What it serves.
    pub models: Vec<Arc<str>>,
    /// What this router has open there.
    pub own: Amount,
    /// Uncached prompt tokens that are believed to wait there, from others too.
    pub pending_tokens: u64,
    /// Seconds until those are prefilled.
    pub backlog_seconds: f64,
    /// Age of its last load report.
    pub report_age: Option<Duration>,
    /// How much longer it is left alone because it asked for time.
    pub cooling: Option<Duration>,
    /// The share of requests that it takes part in: below 1 after it has come back.
    pub share: f64,
}

impl Core {
    /// A core that knows no worker. Choices made at random follow from `seed`.
    #[must_use]
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            registry: Registry::default(),
            prefixes: PrefixTree::new(config.prefixes),
            budget: RetryBudget::new(&config.retry),
            ratios: HashMap::new(),
            returns: Returns::default(),
            answerable: HashMap::new(),
            waiting: Waiting::default(),
            random: seed,
            turns: 0,
            candidates: Vec::new(),
            slots: Vec::new(),
            config,
        }
    }

    /// The settings in force.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Other settings, from now on. Nothing that is open is touched.
    pub fn configure(&mut self, config: Config) {
        self.prefixes.configure(config.prefixes);
        self.config = config;
    }

    /// Takes the whole list of a source: who is not in it any more and in no other source's leaves,
    /// whose open requests go on. A look-up that failed is no list.
    ///
    /// # Errors
    /// More workers than a router can know; nothing is changed then.
    pub fn relist(
        &mut self,
        source: Source,
        specs: &[WorkerSpec],
    ) -> Result<Vec<Event>, TooManyWorkers> {
        let (events, emptied) = self.registry.relist(source, specs)?;
        emptied.iter().for_each(|slot| self.prefixes.forget(slot));
        let models = self.registry.models();
        self.ratios.retain(|model, _| models.binary_search(model).is_ok());
        self.answerable.retain(|model, _| models.binary_search(model).is_ok());
        Ok(events)
    }

    /// How many workers ought to be there that only discovery lists.
    pub fn expect(&mut self, expected: Vec<Declared>) {
        self.registry.expect(expected);
    }

    /// A worker gets no new requests until [`undrain`](Self::undrain), or until its process is
    /// another one where it asked itself. Doing it twice is doing it once.
    ///
    /// # Errors
    /// An unknown worker.
    pub fn drain(
        &mut self,
        name: &WorkerName,
        by: DrainBy,
        now: Time,
    ) -> Result<Vec<Event>, NoSuchWorker> {
        self.registry.drain(name, by, true, now, &self.config.health)
    }

    /// Takes a [`drain`](Self::drain) back. A worker that says itself that it drains goes on
    /// draining.
    ///
    /// # Errors
    /// An unknown worker.
    pub fn undrain(
        &mut self,
        name: &WorkerName,
        by: DrainBy,
        now: Time,
    ) -> Result<Vec<Event>, NoSuchWorker> {
        self.registry.drain(name, by, false, now, &self.config.health)
    }

    /// A poll of a worker goes out now; `None` where it is not known. Polls of one worker follow
    /// one another: the answer of one that another has followed covers none of the own counts.
    pub fn poll_began(&self, name: &WorkerName, now: Time) -> Option<Poll> {
        self.registry.poll_began(name, now)
    }

    /// How a poll ended; an error is a sentence. Ignored where the worker left meanwhile.
    pub fn poll_ended(
        &mut self,
        poll: &Poll,
        answer: Result<Answer, String>,
        now: Time,
    ) -> Vec<Event> {
        let answered = answer.is_ok();
        let (events, restarted) = self.registry.poll_ended(poll, answer, now, &self.config.health);
        if let Some(slot) = restarted {
            self.prefixes.forget(slot);
        }
        if answered {
            self.note_answerable(poll, now);
        }
        events
    }

    /// An answer says that a prompt of so many bytes had so many tokens.
    pub fn usage(&mut self, model: &str, prompt_bytes: usize, prompt_tokens: u64) {
        if let Some(ratio) = self.ratios.get_mut(model) {
            ratio.observe(prompt_bytes, prompt_tokens);
        } else if let Some(model) = self.registry.models().iter().find(|own| ***own == *model) {
            let mut ratio = TokenRatio::default();
            ratio.observe(prompt_bytes, prompt_tokens);
            self.ratios.insert(Arc::clone(model), ratio);
        }
    }

    /// Tokens of a prompt of the model, estimated from its bytes; at least 1.
    #[must_use]
    pub fn tokens(&self, model: &str, prompt_bytes: usize) -> u64 {
        self.ratios.get(model).copied().unwrap_or_default().tokens(prompt_bytes)
    }

    /// By how much prompts of the model are taken for shorter than estimated, as a factor.
    pub(crate) fn margin(&self, model: &str) -> f64 {
        let ratio = self.ratios.get(model).copied().unwrap_or_default();
        ratio.margin(self.config.door_margin)
    }

    /// Every model that a worker serves or is listed for, in order: `/v1/models`.
    #[must_use]
    pub fn models(&self) -> Vec<Arc<str>> {
        self.registry.models()
    }

    /// How many workers ought to be there, by role and model.
    #[must_use]
    pub fn declared(&self) -> Vec<Declared> {
        self.registry.declared()
    }

    /// Bytes that what is remembered of prompts takes.
    #[must_use]
    pub fn prefix_bytes(&self) -> usize {
        self.prefixes.bytes()
    }

    /// The workers, by name.
    #[must_use]
    pub fn workers(&self, now: Time) -> Vec<WorkerView> {
        let mut views: Vec<WorkerView> = self
            .registry
            .iter()
            .map(|member| {
                let state = member.state(now, &self.config.health);
                let circuit = member.breaker.state(now);
                let load = member.load(now, &self.config);
                WorkerView {
                    name: member.name().clone(),
                    base: Arc::clone(&member.spec.base),
                    role: member.role,
                    sources: member.listed_by().collect(),
                    state,
                    reason: member.reason(state, now),
                    up: state == WorkerState::Ready && circuit != CircuitState::Open,
                    circuit,
                    models: member.models.clone(),
                    own: load.own,
                    pending_tokens: load.pending,
                    backlog_seconds: load.backlog(),
                    report_age: member.report.as_ref().map(|report| now.since(report.came)),
                    cooling: self.cooling(member, 0, now).map(|cooling| cooling.left),
                    share: member.share(now, &self.config),
                }
            })
            .collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        views
    }

    /// Has every worker been polled to the end at least once? True where there is none.
    #[must_use]
    pub fn all_polled(&self) -> bool {
        self.registry.iter().all(|member| member.polled)
    }

    /// Can any request be answered: is a whole worker ready, or a pair that fits?
    ///
    /// # Errors
    /// The roles that lack a ready worker.
    pub fn readiness(&self, now: Time) -> Result<(), Missing> {
        let ready = |member: &&crate::member::Member| {
            member.state(now, &self.config.health) == WorkerState::Ready
        };
        let pair = |decode: &crate::member::Member| {
            decode.pairs.iter().any(|slot| ready(&self.registry.at(slot)))
        };
        let answers = self.registry.iter().filter(ready).any(|m| m.role.is_whole() || pair(m));
        if answers { Ok(()) } else { Err(self.missing(None, now)) }
    }
}

/// A number that nobody expects.
pub(crate) fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut x = *state;
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
