//! The worker's process: when one is started, when it is ended, and what is known of it.

use std::time::Duration;

use nvml_worker::protocol::{Fault, Hello};

use super::{Action, Note};
use crate::gpu::facts::Library;
use crate::slot::Now;

/// Workers left alone at most; beyond that none is started until one of them ends.
const ABANDONED_MAX: usize = 4;

/// How long is waited for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For the library to open, and for one card at least to answer, before the worker is ended.
    pub useless: Duration,
    /// For a worker to end when asked; it takes its time to leave the library in order.
    pub end: Duration,
    /// For a worker to die when killed.
    pub kill: Duration,
    /// For the cards to be free on request, before who asked is told that they are not.
    pub release: Duration,
    /// Before the next worker when one could not be killed.
    pub abandoned: Duration,
    /// Before the next worker otherwise: the first time, and at most. It doubles in between.
    pub again: (Duration, Duration),
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            useless: Duration::from_secs(60),
            end: Duration::from_secs(8),
            kill: Duration::from_secs(5),
            release: Duration::from_secs(10),
            abandoned: Duration::from_secs(600),
            again: (Duration::from_secs(1), Duration::from_secs(60)),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// None runs; one is started then.
    Down { start_at: Now },
    /// Told to start then, and not said to have.
    Starting { since: Now },
    /// One runs.
    Up { since: Now, open: bool },
    /// One runs and is to end.
    Ending { asked: Now, killed: Option<Now> },
}

#[derive(Debug)]
pub(super) struct Process {
    patience: Patience,
    state: State,
    /// What went wrong last; gone when a library opens.
    trouble: Option<Library>,
    hello: Option<Hello>,
    released: Option<Now>,
    pause: Duration,
    abandoned: usize,
}

impl Process {
    pub(super) const fn new(patience: Patience, now: Now) -> Self {
        Self {
            patience,
            state: State::Down { start_at: now },
            trouble: None,
            hello: None,
            released: None,
            pause: patience.again.0,
            abandoned: 0,
        }
    }

    pub(super) const fn is_running(&self) -> bool {
        match self.state {
            State::Down { .. } => false,
            State::Starting { .. } | State::Up { .. } | State::Ending { .. } => true,
        }
    }

    /// Whether cards can be asked.
    pub(super) const fn is_open(&self) -> bool {
        match self.state {
            State::Up { open, .. } => open,
            State::Down { .. } | State::Starting { .. } | State::Ending { .. } => false,
        }
    }

    pub(super) fn hello(&self) -> Option<Hello> {
        self.hello.clone()
    }

    pub(super) fn library(&self) -> Library {
        if let Some(until) = self.released {
            return Library::Released(until);
        }
        match (self.state, &self.trouble) {
            (State::Up { open: true, .. }, _) => Library::Open,
            (_, Some(trouble)) => trouble.clone(),
            (
                State::Down { start_at: since }
                | State::Starting { since }
                | State::Up { since, .. }
                | State::Ending { asked: since, .. },
                None,
            ) => Library::Opening(since),
        }
    }

    /// `stuck` is since when every card hangs.
    pub(super) fn tick(&mut self, now: Now, stuck: Option<Now>) -> (Vec<Action>, Option<Note>) {
        match self.state {
            State::Down { start_at } => (self.start(start_at, now), None),
            State::Starting { .. } => (Vec::new(), None),
            State::Up { .. } if self.released.is_some() => {
                (self.end(now).into_iter().collect(), None)
            }
            State::Up { since, open } => {
                let useless = if open { stuck } else { Some(since) };
                let Some(useless) = useless else { return (Vec::new(), None) };
                if now.since(useless) < self.patience.useless {
                    return (Vec::new(), None);
                }
                let time = now.since(useless).as_secs();
                let what = if open { "every card hangs" } else { "the library does not open" };
                let why = format!("{what} since {time} s");
                self.trouble = Some(Library::Ended(why.clone()));
                (self.end(now).into_iter().collect(), Some(Note::Useless(why)))
            }
            State::Ending { asked, killed: None } if now.since(asked) >= self.patience.end => {
                self.state = State::Ending { asked, killed: Some(now) };
                (vec![Action::Kill], None)
            }
            State::Ending { killed: Some(at), .. } if now.since(at) >= self.patience.kill => {
                self.abandoned += 1;
                self.state = State::Down { start_at: now + self.patience.abandoned };
                (vec![Action::Abandon], Some(Note::Abandoned))
            }
            State::Ending { .. } => (Vec::new(), None),
        }
    }

    fn start(&mut self, start_at: Now, now: Now) -> Vec<Action> {
        let held = self.released.is_some_and(|until| until.mono > now.mono);
        if held || start_at.mono > now.mono || self.abandoned >= ABANDONED_MAX {
            return Vec::new();
        }
        self.released = None;
        self.state = State::Starting { since: now };
        vec![Action::Start]
    }

    pub(super) fn started(&mut self, now: Now) {
        self.state = State::Up { since: now, open: false };
    }

    pub(super) fn opened(&mut self, hello: Hello) {
        if let State::Up { open, .. } = &mut self.state {
            *open = true;
            self.trouble = None;
            self.hello = Some(hello);
        }
    }

    /// Says whether that is news.
    pub(super) fn failed(&mut self, fault: &Fault) -> bool {
        let trouble = Some(Library::Failed(fault.clone()));
        let news = self.trouble != trouble && !matches!(self.state, State::Ending { .. });
        self.trouble = trouble;
        news
    }

    pub(super) fn nonsense(&mut self, why: String, now: Now) -> Option<Action> {
        self.trouble = Some(Library::Ended(why));
        self.end(now)
    }

    /// Asks the worker to end.
    pub(super) fn end(&mut self, now: Now) -> Option<Action> {
        match self.state {
            State::Up { since, open } => {
                if open && now.since(since) >= self.patience.again.1 {
                    // It was of use for a while.
                    self.pause = self.patience.again.0;
                }
                self.state = State::Ending { asked: now, killed: None };
                Some(Action::CloseInput)
            }
            State::Down { .. } | State::Starting { .. } | State::Ending { .. } => None,
        }
    }

    /// Says whether nobody wanted it to.
    pub(super) fn ended(&mut self, why: &str, now: Now) -> bool {
        let unexpected = match self.state {
            State::Up { since, open } => {
                if open && now.since(since) >= self.patience.again.1 {
                    self.pause = self.patience.again.0;
                }
                true
            }
            State::Starting { .. } => true,
            State::Down { .. } | State::Ending { .. } => false,
        };
        if unexpected {
            self.trouble = Some(Library::Ended(why.to_owned()));
        }
        let mut start_at = now + self.pause;
        if self.released.is_some() {
            start_at = now;
        } else {
            self.pause = (self.pause * 2).min(self.patience.again.1);
        }
        self.state = State::Down { start_at };
        unexpected
    }

    pub(super) fn abandoned_ended(&mut self) {
        self.abandoned = self.abandoned.saturating_sub(1);
    }

    pub(super) fn release(&mut self, until: Now, now: Now) -> Option<Action> {
        self.released = Some(until);
        self.trouble = None;
        self.end(now)
    }

    pub(super) fn attach(&mut self, now: Now) {
        self.released = None;
        self.pause = self.patience.again.0;
        if let State::Down { start_at } = &mut self.state
            && self.abandoned == 0
        {
            *start_at = now;
        }
    }
}
