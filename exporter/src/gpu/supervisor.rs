//! What is done about cards and about the process that reads them, as a state machine: it is told
//! what happened and what time it is, and says what to do.
//!
//! A card that has not answered is not asked again and waited for by nobody. A worker is ended when
//! it cannot be of use (its initialisation or all of its cards hang, or the driver went away) or on
//! request. It is asked first, killed later, and left alone when not even that helps: then it is
//! stuck in the kernel, and the next one is started only after a long pause, because it would get
//! stuck as well. This module starts nothing, reads no clock and no pipe.

mod cards;
mod process;

use std::time::Duration;

use nvml_worker::protocol::{Fault, FaultKind, Group, Open, Report, Request};

pub use cards::Intervals;
pub use process::Patience;

use self::cards::Cards;
use self::process::Process;
use super::facts::{GpuFacts, Library};
use crate::slot::{CollectError, ErrorKind, Now};

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Start a worker.
    Start,
    /// Say this to the worker.
    Say(Request),
    /// Close the worker's input, which asks it to end.
    CloseInput,
    /// Kill the worker.
    Kill,
    /// Leave the worker alone: it does not even die.
    Abandon,
}

/// What is worth a line in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// The library was opened.
    Opened,
    /// The library cannot be had, or not any more.
    Failed(Fault),
    /// The worker ended by itself.
    Died(String),
    /// The worker is of no use and is ended.
    Useless(String),
    /// The worker cannot even be killed.
    Abandoned,
    /// A card fails in a new way.
    CardFails(String, Fault),
    /// A card works again.
    CardWorks(String),
    /// The driver told of an error of a card.
    Xid(String, u64),
}

/// How collecting went, for the slots.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The collection as a whole; `None` while it has brought nothing yet, good or bad.
    pub result: Option<Result<(), CollectError>>,
    /// What failed of it, while the rest worked.
    pub partly: Vec<CollectError>,
    /// The longest time that a card took.
    pub took: Duration,
    /// Since when the card hangs that hangs longest.
    pub hung_since: Option<Now>,
}

/// Decides.
#[derive(Debug)]
pub struct Supervisor {
    open: Open,
    cards: Cards,
    process: Process,
    notes: Vec<Note>,
}

impl Supervisor {
    /// Nothing is started yet; the first [`Supervisor::tick`] does.
    #[must_use]
    pub fn new(open: Open, intervals: Intervals, patience: Patience, now: Now) -> Self {
        let process = Process::new(patience, now);
        Self { open, cards: Cards::new(intervals), process, notes: Vec::new() }
    }

    /// What is to be done at `now`.
    pub fn tick(&mut self, now: Now) -> Vec<Action> {
        let stuck = self.cards.all_stuck_since();
        let (mut actions, useless) = self.process.tick(now, stuck);
        self.notes.extend(useless);
        if self.process.is_open() {
            let polls = self.cards.due(now).into_iter();
            actions.extend(polls.map(|(card, group)| Action::Say(Request::Poll { card, group })));
        }
        actions
    }

    /// A worker was started.
    pub fn started(&mut self, now: Now) -> Action {
        self.process.started(now);
        Action::Say(Request::Open(self.open.clone()))
    }

    /// No worker could be started.
    pub fn start_failed(&mut self, error: &str, now: Now) {
        let why = format!("the worker could not be started: {error}");
        self.ended(why, now);
    }

    /// The worker said something.
    pub fn report(&mut self, report: Report, now: Now) -> Vec<Action> {
        match report {
            Report::Hello(hello) => {
                self.cards.opened(hello.cards, now);
                self.process.opened(hello);
                self.notes.push(Note::Opened);
            }
            Report::Failed(fault) => return self.failed(fault, now),
            Report::Sample { card, micros, values } => {
                let took = Duration::from_micros(micros);
                self.notes.extend(self.cards.sample(card, took, values, now));
            }
            Report::Error { card, group, micros, fault } => {
                let took = Duration::from_micros(micros);
                self.notes.extend(self.cards.error(card, group, took, fault, now));
            }
            Report::Xid { card, code } => self.notes.extend(self.cards.xid(card, code, now)),
            Report::Listening { card, fault } => self.cards.listening(card, fault),
            Report::Bye { .. } => {}
        }
        Vec::new()
    }

    fn failed(&mut self, fault: Fault, now: Now) -> Vec<Action> {
        if self.process.failed(&fault) {
            self.notes.push(Note::Failed(fault.clone()));
        }
        self.cards.detached(&fault);
        self.process.end(now).into_iter().collect()
    }

    /// The worker said something that makes no sense.
    pub fn garbage(&mut self, why: &str, now: Now) -> Vec<Action> {
        let why = format!("the worker talks nonsense: {why}");
        self.notes.push(Note::Useless(why.clone()));
        self.cards.detached(&fault_of(&why));
        self.process.nonsense(why, now).into_iter().collect()
    }

    /// The worker has ended.
    pub fn exited(&mut self, how: &str, now: Now) {
        self.ended(format!("the worker ended: {how}"), now);
    }

    fn ended(&mut self, why: String, now: Now) {
        let unexpected = self.process.ended(&why, now);
        if unexpected {
            self.notes.push(Note::Died(why.clone()));
        }
        self.cards.detached(&fault_of(&why));
    }

    /// One that was left alone has ended after all.
    pub fn abandoned_ended(&mut self) {
        self.process.abandoned_ended();
    }

    /// Makes the cards free until `until`.
    pub fn release(&mut self, until: Now, now: Now) -> Vec<Action> {
        self.process.release(until, now).into_iter().collect()
    }

    /// Takes the cards back at once.
    pub fn attach(&mut self, now: Now) {
        self.process.attach(now);
    }

    /// Whether a worker runs that could hold the cards.
    #[must_use]
    pub const fn has_worker(&self) -> bool {
        self.process.is_running()
    }

    /// When the next [`Supervisor::tick`] is due at the latest.
    #[must_use]
    pub fn next(&self, now: Now) -> Duration {
        self.cards.next(now)
    }

    /// What is worth a line in the log since this was asked last.
    pub fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// Everything that is known.
    #[must_use]
    pub fn facts(&self) -> GpuFacts {
        GpuFacts {
            library: self.process.library(),
            hello: self.process.hello(),
            cards: self.cards.all(),
            interval: self.cards.intervals().fast,
            slow_interval: self.cards.intervals().slow,
        }
    }

    /// How collecting goes. `cards_on_bus` is how many the node should have, where that is known.
    #[must_use]
    pub fn outcome(&self, cards_on_bus: Option<u32>, now: Now) -> (Outcome, Outcome) {
        let facts = self.facts();
        let library = library_error(&facts, cards_on_bus, now);
        let outcome = |group| {
            let mut outcome = self.cards.outcome(group, &facts, now);
            if let Some(error) = library.clone() {
                outcome.result = Some(Err(error));
                outcome.partly.clear();
            }
            outcome
        };
        (outcome(Group::Fast), outcome(Group::Slow))
    }
}

fn fault_of(why: &str) -> Fault {
    Fault { kind: FaultKind::Uninitialized, detail: why.to_owned() }
}

/// What is wrong with the library as a whole.
fn library_error(facts: &GpuFacts, cards_on_bus: Option<u32>, now: Now) -> Option<CollectError> {
    let none_expected = cards_on_bus == Some(0);
    let (kind, why) = match &facts.library {
        Library::Off => return Some(CollectError::unsupported("switched off")),
        Library::Open if facts.cards.is_empty() && facts.driver_cards() == 0 => {
            let why = "the driver has no card";
            if none_expected {
                return Some(CollectError::unsupported(why));
            }
            (ErrorKind::Missing, why.to_owned())
        }
        Library::Open => return None,
        Library::Opening(since) if now.since(*since) <= facts.interval => return None,
        Library::Opening(since) => {
            let stuck = now.since(*since).as_secs_f64();
            (ErrorKind::Timeout, format!("the library is being opened since {stuck:.1} s"))
        }
        Library::Released(_) => (ErrorKind::Gone, "the cards are released on request".to_owned()),
        Library::Ended(why) => (ErrorKind::Crashed, why.clone()),
        Library::Failed(fault) => {
            let absent =
                matches!(fault.kind, FaultKind::LibraryMissing | FaultKind::DriverNotLoaded);
            if absent && none_expected {
                return Some(CollectError::unsupported(fault.detail.clone()));
            }
            (error_kind(fault.kind), fault.detail.clone())
        }
    };
    Some(CollectError::new(kind, why))
}

/// A fault as the catalog names it.
#[must_use]
pub const fn error_kind(kind: FaultKind) -> ErrorKind {
    match kind {
        FaultKind::LibraryMissing | FaultKind::DriverNotLoaded => ErrorKind::Missing,
        FaultKind::NoPermission => ErrorKind::Permission,
        FaultKind::VersionMismatch | FaultKind::BadRequest => ErrorKind::Protocol,
        FaultKind::Uninitialized
        | FaultKind::GpuLost
        | FaultKind::ResetRequired
        | FaultKind::CardChanged => ErrorKind::Gone,
        FaultKind::Timeout => ErrorKind::Timeout,
        FaultKind::NotSupported => ErrorKind::Missing,
        FaultKind::Driver => ErrorKind::Malformed,
    }
}

#[cfg(test)]
mod tests;
