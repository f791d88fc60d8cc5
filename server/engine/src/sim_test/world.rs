//! One seed: a world of clients around one engine, turned until it has seen enough.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use admission::{AdmissionController, QueuePermit};
use model::FakeRunner;
use types::{Priority, RequestId, Time};

use super::client::{Client, Clients};
use super::dice::Dice;
use super::load::{Conditions, Wish, conditions, growing, wish};
use super::rig::{Faults, FaultyRunner, VirtualTime};
use super::tally::{Coverage, Watcher};
use super::{check, ending, ensure};
use crate::step::{Core, Turn};
use crate::{
    AbortReason, EngineConfig, Handle, Outcome, RequestEnd, Submission, SubmitError, prepare,
};

/// Requests that each seed sees end, at least, before its own end comes.
const REQUESTS: usize = 200;

/// A seed that has not seen a preemption and an abort by then is a bad seed.
const REQUESTS_MAX: usize = 5000;

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
    pub(super) watcher: Watcher,
    pub(super) clients: Clients,
    pub(super) accepted: HashMap<RequestId, Wish>,
    /// Permits whose prompts are still being tokenised, with their charge.
    pub(super) held: Vec<(QueuePermit, Wish, Time)>,
    /// Aborts that will come: (turn, request, reason).
    aborts: Vec<(u64, RequestId, AbortReason)>,
    pub(super) coverage: Coverage,
    pub(super) turns: u64,
    next_id: u64,
}

pub(super) fn run(seed: u64) -> Result<Coverage, String> {
    let mut world = World::new(seed)?;
    while !world.has_seen_enough()? {
        world.clients_act();
        let turn = world.turn()?;
        let failure = world.core.shared.snapshot().failure.clone();
        ensure!(turn != Turn::Ended, "the engine ended by itself: {failure:?}");
    }
    ending::run(&mut world, seed)?;
    check::balances(&world)?;
    let told = world.watcher.0.lock().expect("one thread");
    for end in &told.ends {
        world.coverage.end(end);
    }
    let phases = crate::StepPhase::ALL.map(|phase| (phase, told.phases[phase as usize]));
    for (phase, steps) in phases {
        world.coverage.count(&format!("steps: {phase:?}"), steps);
    }
    world.coverage.count("preemptions", told.preemptions);
    world.coverage.count("tokens generated", told.generated);
    world.coverage.count("tokens recomputed", told.recomputed);
    world.coverage.count("prompt tokens taken from the cache", told.cached);
    world.coverage.count("requests", world.accepted.len() as u64);
    world.coverage.count("seeds", 1);
    drop(told);
    Ok(world.coverage)
}

impl World {
    fn new(seed: u64) -> Result<Self, String> {
        let mut dice = Dice::new(seed);
        let conditions = conditions(&mut dice, seed);
        let time = VirtualTime::default();
        let admission = AdmissionController::new(conditions.limits, 1000.0);
        let faults = Arc::new(Faults::default());
        let inner = FakeRunner::new(conditions.model.clone());
        let runner = FaultyRunner { inner, faults: Arc::clone(&faults) };
        let watcher = Watcher::default();
        let prepared = prepare(conditions.config.clone(), Box::new(runner))
            .map_err(|error| error.to_string())?;
        let (core, handle) = prepared.into_core(
            Arc::clone(&admission),
            Box::new(watcher.clone()),
            Box::new(time.clone()),
        );
        Ok(Self {
            dice,
            conditions,
            time,
            admission,
            core,
            handle: Some(handle),
            faults,
            watcher,
            clients: Clients::default(),
            accepted: HashMap::new(),
            held: Vec::new(),
            aborts: Vec::new(),
            coverage: Coverage::default(),
            turns: 0,
            next_id: 0,
        })
    }

    fn has_seen_enough(&self) -> Result<bool, String> {
        let told = self.watcher.0.lock().expect("one thread");
        let aborted = told.ends.iter().any(|end| matches!(end.outcome, Outcome::Aborted(_)));
        let enough = told.ends.len() >= REQUESTS && told.preemptions > 0 && aborted;
        ensure!(
            enough || self.accepted.len() < REQUESTS_MAX,
            "no preemption or abort in {REQUESTS_MAX} requests"
        );
        Ok(enough)
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
        for _ in 0..self.held.len() {
            if self.dice.chance(600) {
                let pick = self.dice.size(0..=self.held.len() - 1);
                let held = self.held.swap_remove(pick);
                self.submit(held);
            }
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

    /// Somebody comes to the front door.
    pub(super) fn arrive(&mut self) {
        let wish = wish(&mut self.dice, &self.conditions);
        self.come(wish);
    }

    fn come(&mut self, wish: Wish) {
        let arrived = self.time.read();
        let tokens = wish.prompt.len() as u64;
        let admitted = self.admission.try_admit(Priority::NORMAL, arrived).and_then(|permit| {
            self.time.pass(Duration::from_micros(50));
            permit.charge(tokens, self.time.read())
        });
        match admitted {
            Ok(permit) if self.dice.chance(950) => self.held.push((permit, wish, arrived)),
            Ok(_) => self.coverage.count("left before submission", 1),
            Err(refusal) => {
                self.coverage.count(&format!("refused: {}", refusal.reason.as_str()), 1);
            }
        }
    }

    /// A tokenised prompt is handed to the engine.
    pub(super) fn submit(&mut self, (permit, mut wish, arrived): (QueuePermit, Wish, Time)) {
        let Some(handle) = &self.handle else { return };
        if self.dice.chance(10) {
            wish.max_tokens = handle.max_request_tokens();
        }
        let id = RequestId(self.next_id);
        let submission = self.submission(id, permit, &wish, arrived);
        match handle.submit(submission) {
            Ok(()) => {
                self.next_id += 1;
                self.accepted.insert(id, wish);
                if self.dice.chance(self.conditions.aborts) {
                    let reasons = [AbortReason::ClientGone, AbortReason::SlowClient];
                    let turn = self.turns + self.dice.within(0..=60);
                    self.aborts.push((turn, id, self.dice.pick(&reasons)));
                }
            }
            Err(refused) => {
                let what = match refused.error {
                    SubmitError::Busy { .. } => "refused: busy",
                    SubmitError::TooLong { .. } => "refused: too long",
                    SubmitError::Invalid(_)
                    | SubmitError::Duplicate
                    | SubmitError::Draining
                    | SubmitError::Unhealthy => "refused: otherwise",
                };
                self.coverage.count(what, 1);
            }
        }
    }

    fn submission(
        &self,
        id: RequestId,
        permit: QueuePermit,
        wish: &Wish,
        arrived: Time,
    ) -> Submission {
        let client = Client { id, clients: Arc::clone(&self.clients), quirk: wish.quirk };
        Submission {
            id,
            permit,
            prompt: wish.prompt.clone(),
            tenant: None,
            namespace: wish.namespace(),
            prompt_logprobs: false,
            sampling: wish.sampling.clone(),
            constraint: None,
            max_tokens: wish.max_tokens,
            stop_tokens: wish.stop_tokens.clone(),
            sink: Box::new(client),
            streaming: id.0.is_multiple_of(2),
            arrived,
            tokenized: self.time.read(),
        }
    }

    /// One turn of the engine, with every check; idle time passes as on the engine's thread.
    pub(super) fn turn(&mut self) -> Result<Turn, String> {
        let before = check::Progress::of_best(&self.core);
        let turn = self.core.turn();
        self.turns += 1;
        check::invariants(self)?;
        match turn {
            Turn::Worked => before.check(&self.core)?,
            Turn::Idle => {
                ensure!(self.core.scheduler.is_empty(), "idle with requests in the engine");
                self.time.pass(Duration::from_micros(self.dice.within(1..=20_000)));
            }
            Turn::Ended => {}
        }
        Ok(turn)
    }

    /// Tries to submit with a permit of another controller, for this one gives none any more.
    pub(super) fn submit_after_the_end(&mut self) -> Option<SubmitError> {
        let elsewhere = AdmissionController::new(self.conditions.limits, 1.0);
        let now = self.time.read();
        let permit = elsewhere.try_admit(Priority::NORMAL, now).ok()?;
        let wish = wish(&mut self.dice, &self.conditions);
        let submission = self.submission(RequestId(self.next_id), permit, &wish, now);
        let refused = self.handle.as_ref()?.submit(submission);
        refused.err().map(|refused| refused.error)
    }

    /// Requests that a drain's deadline has cut off so far.
    pub(super) fn cut_off(&self) -> usize {
        let told = self.watcher.0.lock().expect("one thread");
        let cut_off = |end: &&RequestEnd| {
            matches!(&end.outcome, Outcome::Aborted(abort)
                if abort.reason == AbortReason::DrainDeadline)
        };
        told.ends.iter().filter(cut_off).count()
    }

    pub(super) const fn config(&self) -> &EngineConfig {
        &self.conditions.config
    }
}
