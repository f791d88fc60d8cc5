//! One seed: a world of clients around one engine, turned until it has seen enough.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use admission::{AdmissionController, Rank};
use kv_cache::PoolSpec;
use types::{RequestId, Time};

use super::client::Clients;
use super::copier::{Copies, Shared, VirtualCopier};
use super::door::{Door, Held};
use super::link::{self, Links};
use super::load::{Conditions, Wish, conditions, growing, pace, tier};
use super::rig::{Faults, FaultyRunner, VirtualTime};
use super::tally::{Coverage, Watcher};
use super::{check, ending, ensure, order};
use crate::dice::Dice;
use crate::step::{Core, Turn};
use crate::witness::Witness;
use crate::{AbortReason, EngineConfig, Handle, Outcome, prepare};

/// Requests that each seed sees end, at least, before its own end comes.
const REQUESTS: usize = 200;

/// A seed that has not seen a preemption and an abort by then will not see them.
const REQUESTS_MAX: usize = 1500;

/// While so many are live nobody new comes, so that a seed serves rather than collects.
const LIVE_MAX: usize = 80;

pub(super) struct World {
    pub(super) dice: Dice,
    pub(super) conditions: Conditions,
    pub(super) time: VirtualTime,
    pub(super) admission: Arc<AdmissionController>,
    pub(super) core: Core,
    pub(super) handle: Option<Handle>,
    pub(super) faults: Arc<Faults>,
    /// Where there is a host tier.
    pub(super) copies: Option<Shared>,
    pub(super) links: link::Shared,
    pub(super) specs: Vec<PoolSpec>,
    /// Since when the best running request has stood still for pages that are being copied.
    pub(super) held_since: Option<(Rank, Time)>,
    pub(super) watcher: Watcher,
    pub(super) clients: Clients,
    pub(super) accepted: HashMap<RequestId, Wish>,
    /// The ranks of all that were submitted.
    pub(super) ranks: HashMap<RequestId, Rank>,
    pub(super) held: Vec<Held>,
    pub(super) door: Door,
    /// Aborts that will come: (turn, request, reason).
    pub(super) aborts: Vec<(u64, RequestId, AbortReason)>,
    pub(super) coverage: Coverage,
    pub(super) turns: u64,
    pub(super) next_id: u64,
}

pub(super) fn run(seed: u64) -> Result<Coverage, String> {
    let mut world = World::new(seed)?;
    while !world.has_seen_enough() {
        world.clients_act();
        let turn = world.turn()?;
        let failure = world.core.shared.snapshot().failure.clone();
        ensure!(turn != Turn::Ended, "the engine ended by itself: {failure:?}");
    }
    ending::run(&mut world, seed)?;
    check::balances(&world)?;
    world.cover();
    Ok(world.coverage)
}

impl World {
    fn new(seed: u64) -> Result<Self, String> {
        let mut dice = Dice::new(seed);
        let mut conditions = conditions(&mut dice, seed);
        let time = VirtualTime::default();
        let admission = AdmissionController::new(conditions.limits, 1000.0);
        let faults = Arc::new(Faults::default());
        let inner = Witness::new(conditions.model.clone());
        let tier = tier(&mut dice, &conditions.config);
        let pace = pace(&mut dice);
        let copies = tier.is_some().then(|| {
            let fault = Arc::clone(&faults.copy);
            Copies::new(&inner, pace, seed, time.clone(), fault)
        });
        let links = Links::new(&inner, conditions.model.page_tokens, seed);
        let runner = FaultyRunner { inner, faults: Arc::clone(&faults) };
        let watcher = Watcher::default();
        let mut prepared = prepare(conditions.config.clone(), Box::new(runner), None)
            .map_err(|error| error.to_string())?;
        // The same with a tier, but for who copies.
        conditions.config.host = tier;
        conditions.config.check(prepared.spec()).map_err(|error| error.to_string())?;
        prepared.config = conditions.config.clone();
        prepared.copier = copies.clone().map(|copies| Box::new(VirtualCopier(copies)) as Box<_>);
        let (core, handle) = prepared.into_core(
            Arc::clone(&admission),
            Box::new(watcher.clone()),
            Box::new(time.clone()),
        );
        let specs = core.scheduler.pools.specs().to_vec();
        Ok(Self {
            dice,
            conditions,
            time,
            admission,
            core,
            handle: Some(handle),
            faults,
            copies,
            links,
            specs,
            held_since: None,
            watcher,
            clients: Clients::default(),
            accepted: HashMap::new(),
            ranks: HashMap::new(),
            held: Vec::new(),
            door: Door::default(),
            aborts: Vec::new(),
            coverage: Coverage::default(),
            turns: 0,
            next_id: 0,
        })
    }

    /// Under some conditions pages never run out, and time limits end requests before anything
    /// else can: such a world ends too, and is counted.
    fn has_seen_enough(&mut self) -> bool {
        let told = self.watcher.0.lock().expect("one thread");
        let aborted = told.ends.iter().any(|end| matches!(end.outcome, Outcome::Aborted(_)));
        let enough = told.ends.len() >= REQUESTS && told.preemptions > 0 && aborted;
        let tired = !enough && self.accepted.len() >= REQUESTS_MAX;
        self.coverage.count("seeds without a preemption", u64::from(tired));
        enough || tired
    }

    /// Arrivals, submissions, departures and faults between two turns.
    pub(super) fn clients_act(&mut self) {
        let live = self.core.scheduler.live();
        if live < LIVE_MAX && self.dice.chance(self.conditions.arrivals) {
            for _ in 0..self.dice.within(1..=self.conditions.burst) {
                self.arrive();
            }
        }
        if live < LIVE_MAX && self.accepted.len() >= REQUESTS && self.dice.chance(300) {
            // Seen enough of everyday load: now for pressure.
            for _ in 0..self.config().max_running {
                let wish = growing(&mut self.dice, &self.conditions);
                self.come(wish);
            }
        }
        while !self.held.is_empty() && self.dice.chance(600) {
            let mut together = Vec::new();
            for _ in 0..self.dice.size(1..=self.held.len().min(3)) {
                let pick = self.dice.size(0..=self.held.len() - 1);
                together.push(self.held.swap_remove(pick));
            }
            self.submit(together);
        }
        let due = self.turns;
        for (turn, id, reason) in std::mem::take(&mut self.aborts) {
            if turn > due {
                self.aborts.push((turn, id, reason));
            } else if let Some(handle) = &self.handle {
                handle.abort(id, reason);
            }
        }
        if self.dice.chance(self.conditions.spoils) {
            self.faults.not_a_number.store(true, Ordering::Relaxed);
        }
    }

    /// One turn of the engine, with every check; idle time passes as on the engine's thread.
    pub(super) fn turn(&mut self) -> Result<Turn, String> {
        self.links_act();
        let before = check::Progress::of_best(self);
        self.watcher.0.lock().expect("one thread").let_in.clear();
        let turn = self.core.turn();
        let started = std::mem::take(&mut self.watcher.0.lock().expect("one thread").started);
        order::starts(self, &started)?;
        self.turns += 1;
        check::invariants(self)?;
        check::covers(self);
        match turn {
            Turn::Worked => before.check(self)?,
            Turn::Idle if self.core.scheduler.is_empty() => {
                self.time.pass(Duration::from_micros(self.dice.within(1..=20_000)));
            }
            Turn::Idle => self.rest()?,
            Turn::Ended => {}
        }
        Ok(turn)
    }

    fn links_act(&mut self) {
        let told = self.links.lock().expect("one thread").act();
        for (id, news) in told {
            self.core.mailbox.news(id, news);
        }
    }

    /// Requests are there and nothing ran: they wait for a copy, and its end would wake the engine.
    fn rest(&mut self) -> Result<(), String> {
        if !self.core.is_idle() {
            return Ok(());
        }
        let mut copies = self.copies.iter().map(|copies| copies.lock().expect("one thread"));
        if let Some(mut copies) = copies.find(|copies| copies.pending() > 0) {
            copies.step_to_an_end();
            self.coverage.count("turns that waited for a copy", 1);
            return Ok(());
        }
        let pending = self.links.lock().expect("one thread").pending();
        ensure!(pending, "idle with requests in the engine, and nothing to wait for");
        // It would sleep now: another turn would find nothing to do either.
        let ended = self.watcher.0.lock().expect("one thread").ends.len();
        let turn = self.core.turn();
        self.turns += 1;
        let same = self.watcher.0.lock().expect("one thread").ends.len() == ended;
        ensure!(turn == Turn::Idle || !same, "it would sleep with work to do: {turn:?}");
        self.coverage.count("turns that waited for a link", 1);
        self.time.pass(Duration::from_micros(self.dice.within(1..=2000)));
        Ok(())
    }

    pub(super) const fn config(&self) -> &EngineConfig {
        &self.conditions.config
    }
}
