//! The cards: what each was asked and when, what it answered, and which is which after the driver
//! has numbered them anew.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nvml_worker::protocol::{CARDS_MAX, Fault, Group, Values};

use super::{Note, Outcome, error_kind};
use crate::gpu::facts::{Card, GpuFacts, Stamped};
use crate::slot::{CollectError, ErrorKind, Now};

/// How often each group is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intervals {
    /// What changes by the second.
    pub fast: Duration,
    /// What changes by the minute.
    pub slow: Duration,
    /// What hardly ever changes.
    pub fixed: Duration,
}

impl Intervals {
    const fn of(self, group: Group) -> Duration {
        match group {
            Group::Fast => self.fast,
            Group::Slow => self.slow,
            Group::Fixed => self.fixed,
        }
    }
}

/// Names first, so that values have an owner.
const ORDER: [Group; 3] = [Group::Fixed, Group::Slow, Group::Fast];

/// A card's turn at the current worker.
#[derive(Debug)]
struct Turn {
    /// Which of the known cards it is, or is taken for until it has said its name.
    card: usize,
    /// Whether it has. Until then nothing else is asked of it: values would go to another card.
    named: bool,
    asked: Option<Group>,
    /// When each group of [`ORDER`] is due.
    due: [Now; ORDER.len()],
    took: [Duration; ORDER.len()],
}

impl Turn {
    /// Groups that may be asked, with when they are due.
    fn dues(&self) -> impl Iterator<Item = (Group, Now)> + '_ {
        let may = |group: Group| self.named || group == Group::Fixed;
        ORDER.into_iter().zip(self.due).filter(move |(group, _)| may(*group))
    }
}

#[derive(Debug)]
pub(super) struct Cards {
    intervals: Intervals,
    /// Every card seen, by a number of ours.
    known: BTreeMap<usize, Card>,
    last_id: usize,
    /// By the driver's number, while a worker has the library open.
    turns: Vec<Turn>,
}

const fn place(group: Group) -> usize {
    match group {
        Group::Fixed => 0,
        Group::Slow => 1,
        Group::Fast => 2,
    }
}

impl Cards {
    pub(super) const fn new(intervals: Intervals) -> Self {
        Self { intervals, known: BTreeMap::new(), last_id: 0, turns: Vec::new() }
    }

    pub(super) const fn intervals(&self) -> Intervals {
        self.intervals
    }

    /// Every card, by the driver's number.
    pub(super) fn all(&self) -> Vec<Card> {
        let mut all: Vec<Card> = self.known.values().cloned().collect();
        all.sort_by(|a, b| (a.index, &a.uuid).cmp(&(b.index, &b.uuid)));
        all
    }

    /// A worker has opened a library with `count` cards. Until a card says its name, it is taken
    /// for the one that had its number before.
    pub(super) fn opened(&mut self, count: u32, now: Now) {
        self.turns.clear();
        for index in 0..count.min(CARDS_MAX) {
            let known = self.known.iter().find(|(_, card)| card.index == index).map(|(id, _)| *id);
            let card = known.unwrap_or_else(|| self.add(index));
            let none = [Duration::ZERO; ORDER.len()];
            let due = [now; ORDER.len()];
            self.turns.push(Turn { card, named: false, asked: None, due, took: none });
        }
        self.forget();
    }

    fn add(&mut self, index: u32) -> usize {
        self.last_id += 1;
        self.known.insert(self.last_id, Card::new(index));
        self.last_id
    }

    /// Cards that nobody has any more are remembered, because somebody misses them; not without
    /// bound.
    fn forget(&mut self) {
        let bound = CARDS_MAX as usize;
        while self.known.len() > bound {
            let used = |id: &usize| self.turns.iter().any(|turn| turn.card == *id);
            let Some(oldest) = self.known.keys().copied().find(|id| !used(id)) else { return };
            self.known.remove(&oldest);
        }
    }

    /// No worker can read cards any more, and why.
    pub(super) fn detached(&mut self, fault: &Fault) {
        self.turns.clear();
        for card in self.known.values_mut() {
            card.busy_since = None;
            card.fault = Some(fault.clone());
            card.listening = None;
        }
    }

    /// Polls that are due of cards that are not busy, which they are from now on.
    pub(super) fn due(&mut self, now: Now) -> Vec<(u32, Group)> {
        let mut polls = Vec::new();
        for (index, turn) in self.turns.iter_mut().enumerate() {
            if turn.asked.is_some() {
                continue;
            }
            let due = turn.dues().find(|(_, due)| due.mono <= now.mono);
            let Some((group, _)) = due else { continue };
            turn.asked = Some(group);
            if let Some(card) = self.known.get_mut(&turn.card) {
                card.busy_since = Some(now);
            }
            polls.push((index as u32, group));
        }
        polls
    }

    /// How long until something is due.
    pub(super) fn next(&self, now: Now) -> Duration {
        let idle = self.turns.iter().filter(|turn| turn.asked.is_none());
        let dues = idle.flat_map(|turn| turn.dues().map(|(_, due)| due.since(now)));
        dues.min().unwrap_or(self.intervals.fast).min(self.intervals.fast)
    }

    /// The card of an answer, which is not busy any more. `None` for what nobody asked.
    fn answered(&mut self, index: u32, group: Group, took: Duration, now: Now) -> Option<usize> {
        let turn = self.turns.get_mut(index as usize)?;
        if turn.asked != Some(group) {
            return None;
        }
        turn.asked = None;
        // A name that is not to be had is asked for again soon, for nothing goes on without it.
        let soon = group == Group::Fixed && !turn.named;
        let interval = if soon { self.intervals.fast } else { self.intervals.of(group) };
        let due = &mut turn.due[place(group)];
        *due = *due + interval;
        if due.mono <= now.mono {
            // What was missed is not made up for. Cards start apart, so as not to be read all at
            // the same moment for ever.
            let apart = 1.0 - f64::from(index % 8) / 16.0;
            *due = now + interval.mul_f64(apart);
        }
        turn.took[place(group)] = took;
        if let Some(card) = self.known.get_mut(&turn.card) {
            card.busy_since = None;
        }
        Some(turn.card)
    }

    pub(super) fn sample(
        &mut self,
        index: u32,
        took: Duration,
        values: Values,
        now: Now,
    ) -> Option<Note> {
        let mut id = self.answered(index, values.group(), took, now)?;
        if let Values::Fixed(fixed) = &values {
            id = self.identify(index, id, &fixed.uuid, now);
        }
        let card = self.known.get_mut(&id)?;
        match values {
            Values::Fast(value) => {
                let works = card.fault.take().is_some() && card.fast.is_some();
                card.fast = Some(Stamped { value: Arc::new(*value), at: now });
                works.then(|| Note::CardWorks(card.id().to_owned()))
            }
            Values::Slow(value) => {
                card.slow_fault = None;
                card.slow = Some(Stamped { value: Arc::new(*value), at: now });
                None
            }
            Values::Fixed(value) => {
                card.fixed = Some(Stamped { value: Arc::new(*value), at: now });
                None
            }
        }
    }

    /// The number `index` means the card `uuid`. Gives the card's own number.
    fn identify(&mut self, index: u32, taken_for: usize, uuid: &str, now: Now) -> usize {
        let is_it = |card: &Card| card.uuid.as_deref() == Some(uuid);
        let known = self.known.iter().find(|(_, card)| is_it(card)).map(|(id, _)| *id);
        let nameless = self.known.get(&taken_for).is_some_and(|card| card.uuid.is_none());
        let id = match known {
            Some(known) => {
                if nameless && known != taken_for {
                    self.known.remove(&taken_for);
                }
                known
            }
            None if nameless => taken_for,
            None => self.add(index),
        };
        if let Some(turn) = self.turns.get_mut(index as usize) {
            turn.card = id;
            if !turn.named {
                turn.named = true;
                turn.due[place(Group::Fixed)] = now + self.intervals.fixed;
            }
        }
        // Whether errors are listened for was said of the number.
        let taken = self.known.get_mut(&taken_for).filter(|_| taken_for != id);
        let listening = taken.and_then(|card| card.listening.take());
        if let Some(card) = self.known.get_mut(&id) {
            card.listening = listening.or(card.listening.take());
            card.index = index;
            card.uuid = Some(uuid.to_owned());
        }
        id
    }

    pub(super) fn error(
        &mut self,
        index: u32,
        group: Group,
        took: Duration,
        fault: Fault,
        now: Now,
    ) -> Option<Note> {
        let id = self.answered(index, group, took, now)?;
        let named = self.turns.get(index as usize).is_some_and(|turn| turn.named);
        let card = self.known.get_mut(&id)?;
        match group {
            // Of a card without a name nothing else is asked that could fail.
            Group::Fixed if named => None,
            Group::Fixed | Group::Fast => {
                let kind = card.fault.as_ref().map(|fault| fault.kind);
                let news = kind != Some(fault.kind);
                card.fault = Some(fault.clone());
                news.then(|| Note::CardFails(format!("{} ({})", card.id(), index), fault))
            }
            Group::Slow => {
                card.slow_fault = Some(fault);
                None
            }
        }
    }

    pub(super) fn xid(&mut self, index: u32, code: u64, now: Now) -> Option<Note> {
        let id = self.turns.get(index as usize)?.card;
        let card = self.known.get_mut(&id)?;
        card.xids.count(code, now.wall);
        Some(Note::Xid(card.id().to_owned(), code))
    }

    pub(super) fn listening(&mut self, index: u32, fault: Option<Fault>) {
        let id = self.turns.get(index as usize).map(|turn| turn.card);
        if let Some(card) = id.and_then(|id| self.known.get_mut(&id)) {
            card.listening = Some(fault.map_or(Ok(()), Err));
        }
    }

    /// Since when every card of the worker has been busy; `None` where one is not.
    pub(super) fn all_stuck_since(&self) -> Option<Now> {
        let since = |turn: &Turn| self.known.get(&turn.card).and_then(|card| card.busy_since);
        let all: Option<Vec<Now>> = self.turns.iter().map(since).collect();
        all?.into_iter().max_by_key(|since| since.mono)
    }

    /// How reading a group goes.
    pub(super) fn outcome(&self, group: Group, facts: &GpuFacts, now: Now) -> Outcome {
        let interval = self.intervals.of(group);
        let took = self.turns.iter().map(|turn| turn.took[place(group)]).max();
        let (mut works, mut partly, mut hung) = (false, Vec::new(), Vec::new());
        for turn in &self.turns {
            let Some(card) = self.known.get(&turn.card) else { continue };
            let good = match group {
                Group::Fast => facts.is_up(card, now),
                Group::Slow => facts.slow(card, now).is_some(),
                Group::Fixed => card.fixed.is_some(),
            };
            works |= good;
            if turn.asked == Some(group) && card.stuck(now) > interval {
                hung.extend(card.busy_since);
            }
            if good {
                partly.extend(problems(card, group));
            } else {
                partly.extend(failure(card, group, now));
            }
        }
        let result = match partly.first() {
            _ if works => Some(Ok(())),
            Some(_) => Some(Err(partly.remove(0))),
            None => None,
        };
        let hung_since = hung.into_iter().min_by_key(|since| since.mono);
        Outcome { result, partly, took: took.unwrap_or_default(), hung_since }
    }
}

/// What of a card's values could not be read, while the rest could.
fn problems(card: &Card, group: Group) -> impl Iterator<Item = CollectError> + '_ {
    let problems = match group {
        Group::Fast => card.fast.as_ref().map(|fast| &fast.value.problems),
        Group::Slow => card.slow.as_ref().map(|slow| &slow.value.problems),
        Group::Fixed => card.fixed.as_ref().map(|fixed| &fixed.value.problems),
    };
    problems.into_iter().flatten().map(|problem| {
        let detail = format!("card {} ({}): {}", card.index, card.id(), problem.fault.detail);
        CollectError::new(error_kind(problem.fault.kind), detail)
    })
}

/// Why a card's values are not there; `None` while it has not had the time.
fn failure(card: &Card, group: Group, now: Now) -> Option<CollectError> {
    let fault = match group {
        Group::Fast | Group::Fixed => card.fault.as_ref(),
        Group::Slow => card.slow_fault.as_ref().or(card.fault.as_ref()),
    };
    let name = format!("card {} ({})", card.index, card.id());
    match fault {
        Some(Fault { kind, detail }) => {
            Some(CollectError::new(error_kind(*kind), format!("{name}: {detail}")))
        }
        None if card.busy_since.is_some() => {
            let why = format!("{name}: {}", card.reason(now));
            Some(CollectError::new(ErrorKind::Timeout, why))
        }
        None => None,
    }
}
