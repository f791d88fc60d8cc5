//! Runs the supervisor: one thread, the pipes to the worker, and the slots.
//!
//! The thread never touches the driver. It waits for lines of the worker and for the next moment at
//! which something is due, whichever comes first.

mod child;
mod release;

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use nvml_worker::protocol::Open;

use tokio::sync::oneshot;

pub use self::release::NotReleased;

use self::child::{Child, Heard};
use self::release::{Answer, Holder, Waiting};
use super::SlowFacts;
use super::pci::on_bus;
use super::supervisor::{Action, Intervals, Note, Outcome, Patience, Supervisor};
use crate::config::{Config, Timer};
use crate::facts::Slots;
use crate::slot::run::end;
use crate::slot::{CollectorName, Now, Slot, Stop};

/// After how long a call that a card does not support is tried again.
const PROBE_AGAIN: Duration = Duration::from_secs(600);
/// Lines of the worker and commands that wait to be looked at.
const EVENTS_MAX: usize = 256;
/// How often the end of a worker is looked for while one is to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a worker may take to end when this program does.
const LEAVE: Duration = Duration::from_secs(4);
const STACK_BYTES: usize = 512 << 10;

/// What the thread is told.
#[derive(Debug)]
enum Event {
    /// The worker of this number was heard.
    Heard(u64, Heard),
    /// Make the cards free, and say when they are.
    Release(Answer),
    /// Take them back.
    Attach,
}

/// Makes the cards free, and takes them back.
#[derive(Debug, Clone)]
pub struct Handle(Option<SyncSender<Event>>);

impl Handle {
    /// Ends the worker in order and waits until it has ended, so that nothing of this program holds
    /// the cards: they can be reset or split. They are taken back after the time that is returned,
    /// or by [`Handle::attach`].
    ///
    /// # Errors
    /// Why not: at the latest after [`Patience::release`].
    pub async fn release(&self) -> Result<Duration, NotReleased> {
        let (answer, free) = oneshot::channel();
        self.tell(Event::Release(answer)).map_err(|refused| match refused {
            Refused::Off => NotReleased::Impossible(refused.to_string()),
            Refused::Full | Refused::Ending => NotReleased::Held(refused.to_string()),
        })?;
        let ending = |_| Err(NotReleased::Held(Refused::Ending.to_string()));
        free.await.unwrap_or_else(ending)
    }

    /// Takes the cards back at once.
    ///
    /// # Errors
    /// Why not.
    pub fn attach(&self) -> Result<(), Refused> {
        self.tell(Event::Attach)
    }

    fn tell(&self, event: Event) -> Result<(), Refused> {
        let events = self.0.as_ref().ok_or(Refused::Off)?;
        events.try_send(event).map_err(|error| match error {
            TrySendError::Full(_) => Refused::Full,
            TrySendError::Disconnected(_) => Refused::Ending,
        })
    }
}

/// Why nobody was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is nobody.
    #[error("cards are not read: NVML is switched off")]
    Off,
    /// Too much waits already.
    #[error("too many requests wait; ask again")]
    Full,
    /// The program ends, and with it the worker.
    #[error("the exporter is ending")]
    Ending,
}

/// What is started as the worker, and how much is put up with.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The program, started with [`nvml_worker::ARGUMENT`].
    pub program: PathBuf,
    /// How long is waited for it.
    pub patience: Patience,
}

impl Default for Launch {
    /// This program as it is running, also after its file was replaced.
    fn default() -> Self {
        Self { program: PathBuf::from("/proc/self/exe"), patience: Patience::default() }
    }
}

/// Starts the thread. It ends with `stop`, and the worker with it.
///
/// # Errors
/// The system gives no thread.
pub fn start(config: &Config, slots: &Slots, stop: &Stop, launch: Launch) -> io::Result<Handle> {
    if config.nvml.off {
        slots.gpu.unsupported("NVML is switched off");
        slots.gpu_slow.unsupported("NVML is switched off");
        return Ok(Handle(None));
    }
    let (tell, events) = sync_channel(EVENTS_MAX);
    let open = Open {
        libraries: config.nvml.libraries.clone(),
        probe_again_millis: PROBE_AGAIN.as_millis() as u64,
    };
    let intervals = Intervals {
        fast: config.interval(CollectorName::Gpu),
        slow: config.interval(CollectorName::GpuSlow),
        fixed: config.intervals.of(Timer::GpuStatic),
    };
    let now = Now::read();
    let link = Link {
        supervisor: Supervisor::new(open, intervals, launch.patience, now),
        waiting: Waiting::new(launch.patience.release, config.nvml.release),
        intervals,
        slots: slots.clone(),
        expect: config.expect_gpus,
        program: launch.program,
        tell: tell.clone(),
        child: None,
        abandoned: Vec::new(),
        number: 0,
        publish_at: now,
        publish_slow_at: now,
    };
    let thread = thread::Builder::new().name("gpu".to_owned()).stack_size(STACK_BYTES);
    let stop = stop.clone();
    thread.spawn(move || link.run(&events, &stop))?;
    Ok(Handle(Some(tell)))
}

struct Link {
    supervisor: Supervisor,
    waiting: Waiting,
    intervals: Intervals,
    slots: Slots,
    expect: Option<u32>,
    program: PathBuf,
    tell: SyncSender<Event>,
    child: Option<Child>,
    abandoned: Vec<Child>,
    /// Number of the last worker: what an earlier one said does not count any more.
    number: u64,
    publish_at: Now,
    publish_slow_at: Now,
}

impl Link {
    fn run(mut self, events: &Receiver<Event>, stop: &Stop) {
        while !stop.is_stopped() {
            let now = Now::read();
            self.look_for_ends(now);
            self.settle(now);
            let actions = self.supervisor.tick(now);
            self.carry_out(actions, now);
            self.publish(now);
            let wait = self.wait(now);
            match events.recv_timeout(wait) {
                Ok(event) => self.handle(event, Now::read()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            // Whatever else has come meanwhile, so that a burst costs one page.
            for event in events.try_iter().take(EVENTS_MAX) {
                self.handle(event, Now::read());
            }
            self.say();
        }
        self.leave(events);
    }

    /// The worker ends with its input. It is waited for a little, so that it leaves the library in
    /// order, and killed if it does not; this process may end before that, and the worker then sees
    /// to itself.
    fn leave(mut self, events: &Receiver<Event>) {
        let Some(mut child) = self.child.take() else { return };
        child.close();
        let until = Now::read() + LEAVE;
        while child.ended().is_none() {
            if Now::read().mono >= until.mono {
                return child.kill();
            }
            // What it still says must be taken, or it could not end.
            drop(events.recv_timeout(LOOK_EVERY));
        }
    }

    fn wait(&self, now: Now) -> Duration {
        let due = self.supervisor.next(now).min(self.publish_at.since(now));
        let ending = self.child.as_ref().is_some_and(Child::is_closed);
        let looks = ending || !self.abandoned.is_empty() || !self.waiting.is_empty();
        let due = if looks { due.min(LOOK_EVERY) } else { due };
        due.max(Duration::from_millis(1))
    }

    fn handle(&mut self, event: Event, now: Now) {
        let actions = match event {
            Event::Heard(number, heard) if number == self.number => match heard {
                Heard::Report(report) => self.supervisor.report(*report, now),
                Heard::Garbage(why) => self.supervisor.garbage(&why, now),
                Heard::End => Vec::new(),
            },
            Event::Heard(..) => Vec::new(),
            Event::Release(answer) => {
                self.waiting.add(answer, now);
                self.supervisor.release(now + self.waiting.time(), now)
            }
            Event::Attach => {
                self.waiting.taken_back();
                self.supervisor.attach(now);
                Vec::new()
            }
        };
        self.carry_out(actions, now);
    }

    fn carry_out(&mut self, actions: Vec<Action>, now: Now) {
        for action in actions {
            match action {
                Action::Start => self.start(now),
                Action::Say(request) => self.with_child(|child| child.say(&request)),
                Action::CloseInput => self.with_child(Child::close),
                Action::Kill => self.with_child(Child::kill),
                Action::Abandon => {
                    self.abandoned.extend(self.child.take());
                    self.number += 1;
                }
            }
        }
    }

    fn with_child(&mut self, act: impl FnOnce(&mut Child)) {
        if let Some(child) = &mut self.child {
            act(child);
        }
    }

    fn start(&mut self, now: Now) {
        self.number += 1;
        let (tell, number) = (self.tell.clone(), self.number);
        let hear = move |heard| tell.send(Event::Heard(number, heard)).is_ok();
        match Child::start(&self.program, hear) {
            Ok(mut child) => {
                if let Action::Say(request) = self.supervisor.started(now) {
                    child.say(&request);
                }
                self.child = Some(child);
            }
            Err(error) => self.supervisor.start_failed(&error.to_string(), now),
        }
    }

    fn look_for_ends(&mut self, now: Now) {
        if let Some(how) = self.child.as_mut().and_then(Child::ended) {
            self.child = None;
            self.number += 1;
            self.supervisor.exited(&how, now);
        }
        let before = self.abandoned.len();
        self.abandoned.retain_mut(|child| child.ended().is_none());
        for _ in self.abandoned.len()..before {
            self.supervisor.abandoned_ended();
        }
    }

    /// Tells those who wait for the cards. The time for which they are left alone starts when they
    /// are free.
    fn settle(&mut self, now: Now) {
        if self.waiting.is_empty() {
            return;
        }
        let holder = match (&self.child, self.abandoned.first()) {
            (Some(child), _) => Holder::Worker(child.id()),
            (None, Some(stuck)) => Holder::Stuck(stuck.id()),
            (None, None) => Holder::Nobody,
        };
        if holder == Holder::Nobody {
            let actions = self.supervisor.release(now + self.waiting.time(), now);
            self.carry_out(actions, now);
        }
        self.waiting.settle(&holder, now);
    }

    /// Fills the slots, once every interval.
    fn publish(&mut self, now: Now) {
        if self.publish_at.mono > now.mono {
            return;
        }
        self.publish_at = now + self.intervals.fast;
        let (fast, slow) = self.supervisor.outcome(self.expected(now), now);
        let facts = self.supervisor.facts();
        let cards = facts.cards.iter().filter(|card| facts.slow(card, now).is_some()).count();
        self.slots.gpu.amend(facts.clone());
        fill(&self.slots.gpu, fast, facts, now);
        if self.publish_slow_at.mono <= now.mono {
            let interval = self.intervals.slow;
            // Until the first answer it is looked at more often, so that it is not missed.
            let wait = if slow.result.is_none() { self.intervals.fast } else { interval };
            self.publish_slow_at = now + wait;
            fill(&self.slots.gpu_slow, slow, SlowFacts { cards }, now);
        }
    }

    /// Cards that the node should have.
    fn expected(&self, now: Now) -> Option<u32> {
        self.expect.or_else(|| on_bus(&self.slots.pci.view(now)))
    }

    fn say(&mut self) {
        for note in self.supervisor.notes() {
            log(note);
        }
    }
}

fn fill<T>(slot: &Slot<T>, outcome: Outcome, facts: T, now: Now) {
    slot.hung_since(outcome.hung_since);
    let Some(result) = outcome.result else { return };
    let started = now.mono.checked_sub(outcome.took).zip(now.wall.checked_sub(outcome.took));
    slot.begin(started.map_or(now, |(mono, wall)| Now { mono, wall }));
    for error in outcome.partly {
        slot.incomplete(error);
    }
    end(slot, result.map(|()| facts));
}

fn log(note: Note) {
    match note {
        Note::Opened => tracing::info!("The cards are read."),
        Note::Failed(fault) => {
            tracing::info!(kind = ?fault.kind, detail = fault.detail, "NVML cannot be used.");
        }
        Note::Died(why) => tracing::warn!(why, "The worker that reads the cards died."),
        Note::Useless(why) => tracing::warn!(why, "The worker that reads the cards is ended."),
        Note::Abandoned => tracing::error!(
            "The worker that reads the cards cannot be killed: it is stuck in the driver. It is \
             left alone; the host may need a restart."
        ),
        Note::CardFails(card, fault) => {
            tracing::warn!(card, kind = ?fault.kind, detail = fault.detail, "A card fails.");
        }
        Note::CardWorks(card) => tracing::info!(card, "A card works again."),
        Note::Xid(card, code) => tracing::warn!(card, xid = code, "The driver reports an error."),
    }
}
