//! What happens when: the only order of things in a simulation.

use std::collections::BTreeMap;

use router::Poll;
use transfer::{FrameHeader, Message};
use types::Time;

/// A worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Which {
    Prefill(usize),
    Decode(usize),
}

/// Which end of a wire a message goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    Prefill,
    Decode,
}

/// Something that will happen. What belongs to a former life of a worker or of a wire is ignored.
#[derive(Debug)]
pub(crate) enum Event {
    /// A client sends its request, for the first time or after the time it was told to wait.
    Arrive(usize),
    /// A client has waited for as long as it will, for the answer to the request that it sent after
    /// so many refusals.
    GiveUp(usize, usize),
    /// The engine turns.
    Turn(Which, u64),
    /// A step has ended: what it computed may leave.
    Pump(Which, u64),
    /// The time limits of an end.
    Tick(Which, u64),
    /// A control message comes.
    Message { wire: usize, epoch: u64, to: To, message: Message },
    /// Pages come.
    Frame { wire: usize, epoch: u64, header: FrameHeader, payload: Vec<u8> },
    /// The router asks a worker for its load.
    Poll(Which),
    /// It has answered, or has not.
    Polled(Box<Poll>, Option<Box<protocol::internal::LoadReport>>),
    /// A process dies.
    Kill(Which),
    /// It is back.
    Start(Which),
    /// A process is told to stop: it finishes what it has.
    Stop(Which),
    /// It looks whether it has.
    Stopping(Which, u64),
    /// It is started again, and reads its weights.
    Load(Which),
    /// The router is restarted, as soon as nobody is being served.
    Reroute,
    /// Everybody is scraped.
    Scrape,
    /// A connection breaks; `silent`: nobody is told.
    Cut { wire: usize, silent: bool },
    /// One end learns that it did.
    Lost { wire: usize, epoch: u64, to: To },
    /// The decode worker connects again.
    Connect(usize),
}

/// Events in the order of time, those of one time in the order in which they were planned.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    events: BTreeMap<(Time, u64), Event>,
    planned: u64,
}

impl Agenda {
    pub(crate) fn plan(&mut self, at: Time, event: Event) {
        self.events.insert((at, self.planned), event);
        self.planned += 1;
    }

    pub(crate) fn next(&mut self) -> Option<(Time, Event)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }
}
