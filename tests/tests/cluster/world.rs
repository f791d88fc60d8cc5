//! One seed: a router, prefill and decode workers, links and clients, and what befalls them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::Submission;
use router::{Answer, Core, Source, WorkerName, WorkerRole, WorkerSpec};
use transfer::PeerName;
use types::{RequestId, Time};

use super::client::{Client, End};
use super::event::{Agenda, Event, Which};
use super::front::Answered;
use super::rig::{Dice, lock};
use super::telemetry::Watch;
use super::wire::{Weather, Wire};
use super::worker::{Ids, Plan, Port, Worker};

/// Between two questions of the router for a worker's load.
const POLL: Duration = Duration::from_millis(500);
/// An engine with requests that has nothing to do looks again after so long, as its thread does.
const NAP: Duration = Duration::from_secs(1);

/// Transfers of one side.
#[derive(Debug, Default, Clone)]
pub(crate) struct Ended {
    pub(crate) ok: u64,
    pub(crate) failed: BTreeMap<&'static str, u64>,
}

/// What has happened so far.
#[derive(Debug, Default, Clone)]
pub(crate) struct Tally {
    pub(crate) refusals: u64,
    pub(crate) refused_by_router: u64,
    pub(crate) refused_by_prefill: u64,
    pub(crate) retries: u64,
    pub(crate) local: u64,
    pub(crate) transfer_errors: BTreeMap<&'static str, u64>,
    pub(crate) violations: u64,
    pub(crate) broken_frames: u64,
    pub(crate) sent: Ended,
    pub(crate) received: Ended,
    pub(crate) kills: u64,
    pub(crate) cuts: u64,
    /// Offers that prefill workers took, in lives that have ended.
    pub(crate) accepted_before: u64,
    pub(crate) events: u64,
}

/// How a cluster is built.
pub(crate) struct Setting {
    pub(crate) prefills: Vec<Plan>,
    pub(crate) decodes: Vec<Plan>,
    pub(crate) router: router::Config,
    pub(crate) weather: Weather,
    pub(crate) local_tokens: usize,
}

pub(crate) struct World {
    pub(crate) dice: Dice,
    pub(crate) now: Time,
    pub(crate) agenda: Agenda,
    pub(crate) plans: HashMap<Which, Plan>,
    pub(crate) names: HashMap<Which, PeerName>,
    pub(crate) prefills: Vec<Option<Worker>>,
    pub(crate) decodes: Vec<Option<Worker>>,
    pub(crate) lives: HashMap<Which, u64>,
    pub(crate) wires: Vec<Wire>,
    pub(crate) weather: Weather,
    pub(crate) router: Core,
    pub(crate) clients: Vec<Client>,
    /// Clients that have not ended.
    pub(crate) open: usize,
    /// Requests whose offers are not answered.
    pub(crate) held: HashMap<RequestId, Submission>,
    pub(crate) answers: Arc<Mutex<Vec<Answered>>>,
    pub(crate) ids: Ids,
    pub(crate) local_tokens: usize,
    pub(crate) tally: Tally,
    /// When the next look at a worker's time limits is planned.
    pub(crate) ticks: HashMap<Which, Time>,
    /// Who scrapes it, where somebody does.
    pub(crate) watch: Option<Watch>,
    /// Between two questions of the router for a worker's load.
    pub(crate) poll: Duration,
    /// Polls and scrapes go on until then, also while there are no clients.
    pub(crate) lasts: Time,
}

impl World {
    pub(crate) fn new(setting: Setting, seed: u64) -> Result<Self, String> {
        Self::watched(setting, seed, None)
    }

    /// The same, and everything that rules read is scraped.
    pub(crate) fn watched(
        setting: Setting,
        seed: u64,
        watch: Option<Watch>,
    ) -> Result<Self, String> {
        let Setting { prefills, decodes, router, weather, local_tokens } = setting;
        let (p, d) = (prefills.len(), decodes.len());
        let all = (0..p).map(Which::Prefill).chain((0..d).map(Which::Decode));
        let plans: HashMap<_, _> = all.zip(prefills.into_iter().chain(decodes)).collect();
        let names = plans.keys().map(|which| (*which, Self::peer_name(*which))).collect();
        let pairs = (0..p).flat_map(|prefill| (0..d).map(move |decode| (prefill, decode)));
        let mut world = Self {
            dice: Dice::new(seed),
            now: Time::ZERO,
            agenda: Agenda::default(),
            plans,
            names,
            prefills: (0..p).map(|_| None).collect(),
            decodes: (0..d).map(|_| None).collect(),
            lives: HashMap::new(),
            wires: pairs.map(|(prefill, decode)| Wire::new(prefill, decode)).collect(),
            weather,
            router: Core::new(router, seed),
            clients: Vec::new(),
            open: 0,
            held: HashMap::new(),
            answers: Arc::default(),
            ids: Ids::default(),
            local_tokens,
            tally: Tally::default(),
            ticks: HashMap::new(),
            watch,
            poll: POLL,
            lasts: Time::ZERO,
        };
        let workers = world.all();
        for which in &workers {
            world.start(*which)?;
        }
        for wire in 0..world.wires.len() {
            world.connect(wire);
        }
        let specs: Vec<WorkerSpec> = workers.iter().map(|which| world.spec(*which)).collect();
        world.router.relist(Source::Flags, &specs).map_err(|error| error.to_string())?;
        for which in workers {
            world.agenda.plan(Time::ZERO, Event::Poll(which));
        }
        if world.watch.is_some() {
            world.agenda.plan(Time::ZERO, Event::Scrape);
        }
        Ok(world)
    }

    pub(crate) fn all(&self) -> Vec<Which> {
        let prefills = (0..self.prefills.len()).map(Which::Prefill);
        prefills.chain((0..self.decodes.len()).map(Which::Decode)).collect()
    }

    pub(crate) fn spec(&self, which: Which) -> WorkerSpec {
        let name = self.names[&which].to_string();
        let role = match which {
            Which::Prefill(_) => WorkerRole::Prefill,
            Which::Decode(_) => WorkerRole::Decode,
        };
        let base = format!("http://{name}").into();
        WorkerSpec { name: WorkerName::new(name), base, role, model: None }
    }

    pub(crate) fn worker(&self, which: Which) -> Option<&Worker> {
        match which {
            Which::Prefill(index) => self.prefills[index].as_ref(),
            Which::Decode(index) => self.decodes[index].as_ref(),
        }
    }

    pub(crate) fn worker_mut(&mut self, which: Which) -> Option<&mut Worker> {
        match which {
            Which::Prefill(index) => self.prefills[index].as_mut(),
            Which::Decode(index) => self.decodes[index].as_mut(),
        }
    }

    pub(crate) fn decode_named(&self, name: &str) -> usize {
        let named = |index: &usize| self.names[&Which::Decode(*index)].as_str() == name;
        (0..self.decodes.len()).find(named).expect("the router knows no others")
    }

    /// A client that comes at `at`.
    pub(crate) fn add(&mut self, client: Client, at: Time) -> usize {
        let index = self.clients.len();
        self.clients.push(client);
        self.open += 1;
        self.agenda.plan(at, Event::Arrive(index));
        index
    }

    /// The next event, with all that follows at once; `false` when there is none.
    pub(crate) fn step(&mut self) -> Result<bool, String> {
        let Some((at, event)) = self.agenda.next() else { return Ok(false) };
        self.now = self.now.max(at);
        self.tally.events += 1;
        match event {
            Event::Arrive(client) => self.arrive(client),
            Event::GiveUp(client, refusals) => self.give_up(client, refusals),
            Event::Turn(which, life) => self.turn(which, life)?,
            Event::Pump(which, life) => {
                if self.worker(which).is_some_and(|worker| worker.life == life) {
                    self.attend(which);
                }
            }
            Event::Tick(which, life) => self.tick(which, life),
            Event::Message { wire, epoch, to, message } => self.deliver(wire, epoch, to, message),
            Event::Frame { wire, epoch, header, payload } => {
                self.take_frame(wire, epoch, &header, &payload);
            }
            Event::Poll(which) => self.poll(which),
            Event::Polled(poll, report) => self.polled(&poll, report),
            Event::Kill(which) => self.kill(which),
            Event::Start(which) => {
                if self.worker(which).is_none() {
                    self.start(which)?;
                }
            }
            Event::Stop(which) => self.stop(which),
            Event::Stopping(which, life) => self.stopping(which, life),
            Event::Load(which) => self.load(which)?,
            Event::Reroute => self.reroute()?,
            Event::Scrape => self.scrape()?,
            Event::Cut { wire, silent } => {
                self.tally.cuts += 1;
                self.cut(wire, silent);
            }
            Event::Lost { wire, epoch, to } => self.lose(wire, epoch, to),
            Event::Connect(wire) => self.connect(wire),
        }
        self.settle()?;
        Ok(true)
    }

    /// Everything that ends and engines want done, until they want nothing.
    fn settle(&mut self) -> Result<(), String> {
        loop {
            let mut quiet = true;
            for which in self.all() {
                quiet &= !self.look_after(which)?;
            }
            let answers = !lock(&self.answers).is_empty();
            self.take_answers();
            if quiet && !answers {
                return Ok(());
            }
        }
    }

    /// Polls one worker's end; whether there was anything to do.
    fn look_after(&mut self, which: Which) -> Result<bool, String> {
        let mut busy = false;
        loop {
            let Some(worker) = self.worker(which) else { return Ok(busy) };
            worker.clock.reach(self.now);
            let act = match &worker.port {
                Port::Prefill(port) => port.poll(),
                Port::Decode(port) => port.poll(),
            };
            let woken = worker.take_woken();
            let (ahead, life) = (worker.clock.read(), worker.life);
            busy |= woken || act.is_some();
            if woken {
                self.wake(which);
                // What a step computes leaves when it has ended.
                if ahead > self.now {
                    self.agenda.plan(ahead, Event::Pump(which, life));
                }
            }
            let Some(act) = act else { break };
            self.act(which, act)?;
        }
        if let Which::Prefill(index) = which
            && self.worker(which).is_some_and(|worker| worker.clock.read() <= self.now)
        {
            self.send_frames(index);
        }
        if let Which::Decode(index) = which {
            self.take_told(index);
        }
        self.note_ends(which);
        Ok(busy)
    }

    /// Plans the next look at a worker's time limits.
    pub(crate) fn attend(&mut self, which: Which) {
        let Some(worker) = self.worker(which) else { return };
        let deadline = match &worker.port {
            Port::Prefill(port) => port.with(|end, _| end.deadline()),
            Port::Decode(port) => port.with(|end, _| end.deadline()),
        };
        let (at, life) = (deadline.map(|at| at.max(self.now)), worker.life);
        if let Some(at) = at
            && self.ticks.get(&which).is_none_or(|planned| at < *planned)
        {
            self.ticks.insert(which, at);
            self.agenda.plan(at, Event::Tick(which, life));
        }
    }

    fn tick(&mut self, which: Which, life: u64) {
        let Some(worker) = self.worker(which).filter(|worker| worker.life == life) else { return };
        worker.clock.reach(self.now);
        match &worker.port {
            Port::Prefill(port) => port.with(|end, now| end.tick(now)),
            Port::Decode(port) => port.with(|end, now| end.tick(now)),
        }
        if self.ticks.get(&which).is_some_and(|planned| *planned <= self.now) {
            self.ticks.remove(&which);
        }
        self.attend(which);
    }

    /// The engine of `which` has something to do.
    pub(crate) fn wake(&mut self, which: Which) {
        let now = self.now;
        let Some(worker) = self.worker_mut(which).filter(|worker| !worker.turns) else { return };
        worker.turns = true;
        let (at, life) = (worker.clock.read().max(now), worker.life);
        self.agenda.plan(at, Event::Turn(which, life));
    }

    fn turn(&mut self, which: Which, life: u64) -> Result<(), String> {
        let now = self.now;
        let Some(worker) = self.worker_mut(which).filter(|worker| worker.life == life) else {
            return Ok(());
        };
        // A nap that something has ended before: the engine is in the middle of a step.
        if worker.clock.read() > now {
            return Ok(());
        }
        worker.clock.reach(now);
        worker.turns = false;
        let turn = worker.stepper.turn();
        let snapshot = worker.handle.snapshot();
        let (after, idle, live) = (worker.clock.read(), worker.stepper.is_idle(), worker.live());
        if turn == engine::Turn::Ended {
            return Err(format!("the engine of {which:?} ended: {:?}", snapshot.failure));
        }
        self.agenda.plan(after, Event::Pump(which, life));
        if !idle || live > 0 {
            let at = if idle { after + NAP } else { after };
            let worker = self.worker_mut(which).expect("it has just turned");
            // A nap ends early when something comes.
            worker.turns = !idle;
            self.agenda.plan(at, Event::Turn(which, life));
        }
        Ok(())
    }

    fn poll(&mut self, which: Which) {
        let name = WorkerName::new(self.names[&which].to_string());
        if let Some(poll) = self.router.poll_began(&name, self.now) {
            let report = self.worker(which).map(|worker| {
                worker.clock.reach(self.now);
                Box::new(worker.load(&self.names))
            });
            let at = self.now + self.dice.micros(100, 2000);
            self.agenda.plan(at, Event::Polled(Box::new(poll), report));
        }
        if self.goes_on() {
            let jitter = self.dice.micros(0, 50_000);
            self.agenda.plan(self.now + self.poll + jitter, Event::Poll(which));
        }
    }

    /// There are clients, or some are to come.
    pub(crate) fn goes_on(&self) -> bool {
        self.open > 0 || self.now < self.lasts
    }

    pub(crate) fn polled(
        &mut self,
        poll: &router::Poll,
        report: Option<Box<protocol::internal::LoadReport>>,
    ) {
        let answer = report.map(Answer::Load).ok_or_else(|| "connection refused".to_owned());
        self.router.poll_ended(poll, answer, self.now);
    }

    /// How many clients ended so.
    pub(crate) fn ended_with(&self, end: &End) -> usize {
        self.clients.iter().filter(|client| client.end() == Some(end)).count()
    }
}
