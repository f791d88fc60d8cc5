//! What is known of cards: values with the moment they were read, so that whoever looks at them
//! decides by the same rule what is too old.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nvml_worker::protocol::{Fast, Fault, FaultKind, Fixed, Hello, Slow};

use crate::slot::{FRESH_INTERVALS, Now};

/// Codes of errors counted one by one; further ones are counted together.
pub const XIDS_MAX: usize = 63;

/// Something that was read, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Stamped<T> {
    /// What.
    pub value: Arc<T>,
    /// When.
    pub at: Now,
}

/// How a library is, and the process that has it open.
#[derive(Debug, Clone, PartialEq)]
pub enum Library {
    /// Nobody was asked to open it.
    Off,
    /// Being opened, since then.
    Opening(Now),
    /// Open.
    Open,
    /// Let go on request until then, unless taken back before.
    Released(Now),
    /// Cannot be had; tried again.
    Failed(Fault),
    /// The process that had it ended by itself, or had to be ended; another one follows.
    Ended(String),
}

/// Everything known of the cards.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuFacts {
    /// How the library is.
    pub library: Library,
    /// What it said when it was opened last.
    pub hello: Option<Hello>,
    /// Every card seen since the start, in the order of their numbers.
    pub cards: Vec<Card>,
    /// How often fast values are read.
    pub interval: Duration,
    /// How often slow values are read.
    pub slow_interval: Duration,
}

impl GpuFacts {
    /// Cards that the driver has now; 0 while nobody can ask it.
    #[must_use]
    pub fn driver_cards(&self) -> u32 {
        match self.library {
            Library::Open => self.hello.as_ref().map_or(0, |hello| hello.cards),
            Library::Off
            | Library::Opening(_)
            | Library::Released(_)
            | Library::Failed(_)
            | Library::Ended(_) => 0,
        }
    }

    /// Cards that answer.
    #[must_use]
    pub fn responding(&self, now: Now) -> usize {
        self.cards.iter().filter(|card| self.is_up(card, now)).count()
    }

    /// Whether the last poll of a card worked and is younger than three intervals.
    #[must_use]
    pub fn is_up(&self, card: &Card, now: Now) -> bool {
        card.fault.is_none() && is_fresh(card.fast.as_ref(), now, self.interval)
    }

    /// A card's fast values, if the card is up.
    #[must_use]
    pub fn fast<'a>(&self, card: &'a Card, now: Now) -> Option<&'a Fast> {
        card.fast.as_ref().filter(|_| self.is_up(card, now)).map(|fast| &*fast.value)
    }

    /// A card's slow values, if the card is up and they are younger than three of their intervals.
    #[must_use]
    pub fn slow<'a>(&self, card: &'a Card, now: Now) -> Option<&'a Slow> {
        let good = card.slow_fault.is_none() && self.is_up(card, now);
        let good = good && is_fresh(card.slow.as_ref(), now, self.slow_interval);
        card.slow.as_ref().filter(|_| good).map(|slow| &*slow.value)
    }
}

fn is_fresh<T>(stamped: Option<&Stamped<T>>, now: Now, interval: Duration) -> bool {
    stamped.is_some_and(|stamped| now.since(stamped.at) <= interval * FRESH_INTERVALS)
}

/// One card. Values stay as they were last: whether they may be shown, [`GpuFacts`] says.
#[derive(Debug, Clone, PartialEq)]
pub struct Card {
    /// The driver's number, which may change when a card is lost.
    pub index: u32,
    /// Its own name; `None` for one that has never said it.
    pub uuid: Option<String>,
    /// What hardly ever changes.
    pub fixed: Option<Stamped<Fixed>>,
    /// What changes by the second.
    pub fast: Option<Stamped<Fast>>,
    /// What changes by the minute.
    pub slow: Option<Stamped<Slow>>,
    /// Why the last poll of fast values failed.
    pub fault: Option<Fault>,
    /// Why the last poll of slow values failed.
    pub slow_fault: Option<Fault>,
    /// Since when it has not answered what it was asked.
    pub busy_since: Option<Now>,
    /// Whether its errors are listened for: `None` until that is known.
    pub listening: Option<Result<(), Fault>>,
    /// Errors that the driver told of.
    pub xids: Xids,
}

impl Card {
    /// A card of which nothing is known yet.
    #[must_use]
    pub const fn new(index: u32) -> Self {
        Self {
            index,
            uuid: None,
            fixed: None,
            fast: None,
            slow: None,
            fault: None,
            slow_fault: None,
            busy_since: None,
            listening: None,
            xids: Xids::new(),
        }
    }

    /// The name to know it by, on pages and in reasons.
    #[must_use]
    pub fn id(&self) -> &str {
        self.uuid.as_deref().unwrap_or("unknown")
    }

    /// Its address as the kernel writes it.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        self.fixed.as_ref()?.value.pci_bus_id.as_deref()
    }

    /// How long it has not answered.
    #[must_use]
    pub fn stuck(&self, now: Now) -> Duration {
        self.busy_since.map(|since| now.since(since)).unwrap_or_default()
    }

    /// Why it is not up, in words.
    #[must_use]
    pub fn reason(&self, now: Now) -> String {
        if let Some(fault) = &self.fault {
            return fault.detail.clone();
        }
        let stuck = self.stuck(now).as_secs_f64();
        match &self.fast {
            Some(fast) => {
                let age = now.since(fast.at).as_secs_f64();
                format!("last answer {age:.1} s ago, asked {stuck:.1} s ago")
            }
            None => format!("no answer yet, asked {stuck:.1} s ago"),
        }
    }

    /// Whether it is gone or wants a reset, as it says itself.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.fault.as_ref().is_some_and(|fault| {
            matches!(fault.kind, FaultKind::GpuLost | FaultKind::ResetRequired)
        })
    }
}

/// How often an error happened, and when last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// How often.
    pub count: u64,
    /// When last.
    pub last: SystemTime,
}

/// Errors (Xid) of one card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Xids {
    codes: BTreeMap<u64, Seen>,
    other: Option<Seen>,
}

impl Xids {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { codes: BTreeMap::new(), other: None }
    }

    /// Counts one. Codes beyond [`XIDS_MAX`] different ones are counted together.
    pub fn count(&mut self, code: u64, at: SystemTime) {
        let room = self.codes.len() < XIDS_MAX || self.codes.contains_key(&code);
        let seen = if room {
            self.codes.entry(code).or_insert(Seen { count: 0, last: at })
        } else {
            self.other.get_or_insert(Seen { count: 0, last: at })
        };
        seen.count += 1;
        seen.last = seen.last.max(at);
    }

    /// Each code that happened.
    pub fn codes(&self) -> impl Iterator<Item = (u64, Seen)> + '_ {
        self.codes.iter().map(|(code, seen)| (*code, *seen))
    }

    /// Those beyond the bound, together.
    #[must_use]
    pub const fn other(&self) -> Option<Seen> {
        self.other
    }

    /// One code.
    #[must_use]
    pub fn get(&self, code: u64) -> Option<Seen> {
        self.codes.get(&code).copied()
    }
}
