//! Lives of processes: how they start, stop in good order, and die.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use router::{Core, FailureKind, Source, WorkerName};
use transfer::PeerName;

use super::client::Stage;
use super::event::{Event, To, Which};
use super::rig::WorkerClock;
use super::telemetry::Recorder;
use super::worker::Worker;
use super::world::World;

/// How often a process that stops looks whether it has anything left.
const LOOK: Duration = Duration::from_millis(500);
/// Until a process that has stopped is started again: somebody sees that it is away.
const DOWN: Duration = Duration::from_secs(31);
/// How long it reads its weights.
const LOADING: Duration = Duration::from_secs(80);

impl World {
    pub(crate) fn start(&mut self, which: Which) -> Result<(), String> {
        let recorder = self.recorder(which)?;
        let life = self.lives.entry(which).or_default();
        *life += 1;
        let life = *life;
        let peers = self.peers(which);
        let clock = WorkerClock::default();
        clock.reach(self.now);
        let seed = self.dice.next();
        let plan = &self.plans[&which];
        let worker = Worker::start(which, life, plan, &peers, &self.ids, clock, seed, recorder)
            .map_err(|error| error.to_string())?;
        match which {
            Which::Prefill(index) => self.prefills[index] = Some(worker),
            Which::Decode(index) => self.decodes[index] = Some(worker),
        }
        self.ticks.remove(&which);
        Ok(())
    }

    /// The names of those on the other side.
    fn peers(&self, which: Which) -> Vec<PeerName> {
        let is_other = |other: &Which| {
            matches!(which, Which::Prefill(_)) != matches!(other, Which::Prefill(_))
        };
        let others = self.names.iter().filter(|(other, _)| is_other(other));
        others.map(|(_, name)| name.clone()).collect()
    }

    /// What a process says about itself from its start on, where somebody looks.
    fn recorder(&mut self, which: Which) -> Result<Option<Arc<Recorder>>, String> {
        let mut peers = self.peers(which);
        peers.sort_unstable_by_key(ToString::to_string);
        let Some(watch) = &mut self.watch else { return Ok(None) };
        match watch.loading.remove(&which) {
            Some(recorder) => Ok(Some(recorder)),
            None => Recorder::new(which, &self.plans[&which], &peers, watch).map(Some),
        }
    }

    /// A process is told to stop: nothing new comes in, and it ends when it has nothing left.
    pub(crate) fn stop(&mut self, which: Which) {
        let Some(worker) = self.worker_mut(which) else { return };
        worker.draining = true;
        worker.admission.set_draining(true);
        let life = worker.life;
        self.agenda.plan(self.now, Event::Stopping(which, life));
    }

    pub(crate) fn stopping(&mut self, which: Which, life: u64) {
        let Some(worker) = self.worker(which).filter(|worker| worker.life == life) else { return };
        if worker.is_at_rest() {
            self.end(which);
            self.agenda.plan(self.now + DOWN, Event::Load(which));
        } else {
            self.agenda.plan(self.now + LOOK, Event::Stopping(which, life));
        }
    }

    /// Another router, which knows no more than the list of workers. Of two routers one serves
    /// while the other stops, so its requests come to an end first, and no client meets a closed
    /// door.
    pub(crate) fn reroute(&mut self) -> Result<(), String> {
        if self.clients.iter().any(|client| client.route.is_some()) {
            self.agenda.plan(self.now + LOOK, Event::Reroute);
            return Ok(());
        }
        let specs: Vec<_> = self.all().into_iter().map(|which| self.spec(which)).collect();
        let mut router = Core::new(router::Config::default(), self.dice.next());
        router.relist(Source::Flags, &specs).map_err(|error| error.to_string())?;
        self.router = router;
        // It has asked everybody before it takes requests.
        for which in self.all() {
            let name = WorkerName::new(self.names[&which].to_string());
            if let Some(poll) = self.router.poll_began(&name, self.now) {
                let report = self.worker(which).map(|worker| Box::new(worker.load(&self.names)));
                self.polled(&poll, report);
            }
        }
        self.watch.as_mut().map_or(Ok(()), super::telemetry::Watch::renew_router)
    }

    /// A new process answers scrapes, and takes requests when its weights are there.
    pub(crate) fn load(&mut self, which: Which) -> Result<(), String> {
        if let Some(recorder) = self.recorder(which)?
            && let Some(watch) = &mut self.watch
        {
            watch.loading.insert(which, recorder);
        }
        self.agenda.plan(self.now + LOADING, Event::Start(which));
        Ok(())
    }

    /// A process dies, and is back after a while.
    pub(crate) fn kill(&mut self, which: Which) {
        if self.worker(which).is_none() {
            return;
        }
        self.tally.kills += 1;
        self.end(which);
        let back = self.now + self.dice.micros(100_000, 20_000_000);
        self.agenda.plan(back, Event::Start(which));
    }

    /// A process ends: its clients' connections break, its peers' too.
    fn end(&mut self, which: Which) {
        self.note_ends(which);
        if let Which::Decode(decode) = which {
            self.take_told(decode);
        }
        let died = match which {
            Which::Prefill(index) => self.prefills[index].take(),
            Which::Decode(index) => self.decodes[index].take(),
        };
        let died = died.expect("it was alive");
        self.tally.accepted_before += died.accepted.load(Ordering::Relaxed);
        drop(died);
        for wire in 0..self.wires.len() {
            let (epoch, state) = (self.wires[wire].epoch, &mut self.wires[wire]);
            let other = match which {
                Which::Prefill(own) if state.prefill == own => To::Decode,
                Which::Decode(own) if state.decode == own => To::Prefill,
                Which::Prefill(_) | Which::Decode(_) => continue,
            };
            match which {
                Which::Prefill(_) => state.at_prefill = None,
                Which::Decode(_) => state.at_decode = None,
            }
            state.silent = true;
            let event = if state.is_down() {
                Event::Connect(wire)
            } else {
                Event::Lost { wire, epoch, to: other }
            };
            let at = self.now + self.dice.micros(0, 20_000);
            self.agenda.plan(at, event);
        }
        if let Which::Decode(decode) = which {
            self.break_clients_of(decode);
        }
    }

    fn break_clients_of(&mut self, decode: usize) {
        for client in 0..self.clients.len() {
            let (mine, id) = match self.clients[client].stage {
                Stage::Asked { decode: own, id } | Stage::Served { decode: own, id } => {
                    (own == decode, id)
                }
                Stage::Away | Stage::Over(_) => continue,
            };
            if mine {
                self.held.remove(&id);
                let answer_begun = !self.clients[client].got.is_empty();
                let kind = FailureKind::Broken;
                let failure = router::Failure { kind, by_prefill: false, answer_begun };
                self.fail(client, failure);
            }
        }
    }
}
