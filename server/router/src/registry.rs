//! Who the workers are: lists of them, polls of them, states, models, pairs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use protocol::internal::LoadReport;
use types::Time;

use crate::charge::Ledger;
use crate::config::HealthConfig;
use crate::member::{Member, Reported};
use crate::set::{MAX_WORKERS, WorkerSet};
use crate::worker::{
    DrainBy, Event, EventKind, Source, WorkerKey, WorkerName, WorkerRole, WorkerSpec, WorkerState,
};

/// Models that one worker may list; more are an answer that is not believed.
pub const MAX_MODELS_PER_WORKER: usize = 64;

/// More workers than a router can know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{listed} workers are listed and a router takes {MAX_WORKERS}; the list is not used. Divide \
     the workers over several routers"
)]
pub struct TooManyWorkers {
    /// How many there would be.
    pub listed: usize,
}

/// A worker that is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no worker {0}; `GET /internal/workers` lists them")]
pub struct NoSuchWorker(pub WorkerName);

/// A poll under way.
#[derive(Debug, Clone)]
pub struct Poll {
    key: WorkerKey,
    epoch: u64,
    asked: Time,
}

/// What a worker answered to a poll.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Its load.
    Load(Box<LoadReport>),
    /// It tells no load and is well.
    Plain {
        /// What it serves.
        models: Vec<String>,
    },
}

/// Workers that ought to be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// Unified, prefill or decode.
    pub role: WorkerRole,
    /// For which model; `None` where nobody knows it.
    pub model: Option<Arc<str>>,
    /// How many.
    pub workers: usize,
}

/// The workers.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// By slot.
    members: Vec<Option<Member>>,
    by_name: HashMap<WorkerName, u16>,
    /// Counts of workers that have left and still have requests open, should they come back.
    left: Vec<(WorkerName, Ledger)>,
    generations: u32,
    expected: Vec<Declared>,
    /// When a worker was ready for the first time.
    first_ready: Option<Time>,
}

impl Registry {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().flatten()
    }

    /// The member at `slot`.
    ///
    /// # Panics
    /// Where there is none.
    pub(crate) fn at(&self, slot: u16) -> &Member {
        self.members[usize::from(slot)].as_ref().expect("only slots with members are handed out")
    }

    /// As [`at`](Self::at), to be changed.
    pub(crate) fn at_mut(&mut self, slot: u16) -> &mut Member {
        self.members[usize::from(slot)].as_mut().expect("only slots with members are handed out")
    }

    /// The incarnation of that key, where it is still the one.
    pub(crate) fn get_mut(&mut self, key: WorkerKey) -> Option<&mut Member> {
        let member = self.members.get_mut(usize::from(key.slot))?.as_mut();
        member.filter(|member| member.key == key)
    }

    /// The worker that was polled, also where the poll found another process there.
    pub(crate) fn polled(&self, poll: &Poll) -> Option<&Member> {
        self.members.get(usize::from(poll.key.slot))?.as_ref()
    }

    fn named(&mut self, name: &WorkerName) -> Result<&mut Member, NoSuchWorker> {
        match self.by_name.get(name) {
            Some(slot) => Ok(self.at_mut(*slot)),
            None => Err(NoSuchWorker(name.clone())),
        }
    }

    fn next_generation(&mut self) -> u32 {
        self.generations = self.generations.wrapping_add(1);
        self.generations
    }

    /// Takes the whole list of a source. Returns what happened and the slots that are empty now.
    pub(crate) fn relist(
        &mut self,
        source: Source,
        specs: &[WorkerSpec],
    ) -> Result<(Vec<Event>, WorkerSet), TooManyWorkers> {
        let at = source as usize;
        let names: BTreeMap<&WorkerName, &WorkerSpec> =
            specs.iter().map(|spec| (&spec.name, spec)).collect();
        let others = |member: &Member| {
            let listed =
                (0..member.sources.len()).any(|other| other != at && member.sources[other]);
            listed && !names.contains_key(member.name())
        };
        let listed = names.len() + self.iter().filter(|member| others(member)).count();
        if listed > MAX_WORKERS {
            return Err(TooManyWorkers { listed });
        }
        let mut events = Vec::new();
        let mut emptied = WorkerSet::default();
        for slot in 0..self.members.len() {
            let Some(member) = &mut self.members[slot] else { continue };
            let spec = names.get(member.name());
            member.sources[at] = spec.is_some();
            // Listed as something else: it leaves as what it was and joins as what it is. Where
            // two sources list it, the first one's word holds.
            let alone = member.sources.iter().filter(|listed| **listed).count() == 1;
            let other = alone && spec.is_some_and(|spec| **spec != member.spec);
            if other || !member.sources.contains(&true) {
                emptied.insert(slot as u16);
                events.push(self.leave(slot as u16));
            }
        }
        for spec in names.into_values() {
            if !self.by_name.contains_key(&spec.name) {
                events.push(self.join(spec.clone(), at));
            }
        }
        self.find_pairs();
        Ok((events, emptied))
    }

    fn join(&mut self, spec: WorkerSpec, source: usize) -> Event {
        self.forget_idle();
        let known = self.left.iter().position(|(name, _)| *name == spec.name);
        let ledger = known.map(|at| self.left.swap_remove(at).1).unwrap_or_default();
        let free = self.members.iter().position(Option::is_none);
        let slot = free.unwrap_or_else(|| {
            self.members.push(None);
            self.members.len() - 1
        });
        let key = WorkerKey { slot: slot as u16, generation: self.next_generation() };
        let event = Event { name: spec.name.clone(), role: spec.role, kind: EventKind::Joined };
        self.by_name.insert(spec.name.clone(), key.slot);
        let mut member = Member::new(key, spec, ledger);
        member.sources[source] = true;
        self.members[slot] = Some(member);
        event
    }

    fn leave(&mut self, slot: u16) -> Event {
        let member = self.members[usize::from(slot)].take().expect("the caller found it there");
        self.by_name.remove(member.name());
        self.forget_idle();
        let event = Event { name: member.name().clone(), role: member.role, kind: EventKind::Left };
        if member.ledger.amounts().0.requests > 0 {
            self.left.push((member.spec.name, member.ledger));
        }
        event
    }

    /// Bounds `left` by the requests that are open.
    fn forget_idle(&mut self) {
        self.left.retain(|(_, ledger)| ledger.amounts().0.requests > 0);
    }

    /// Workers that only discovery lists and that ought to be there.
    pub(crate) fn expect(&mut self, expected: Vec<Declared>) {
        self.expected = expected;
    }

    pub(crate) fn drain(
        &mut self,
        name: &WorkerName,
        by: DrainBy,
        on: bool,
        now: Time,
        config: &HealthConfig,
    ) -> Result<Vec<Event>, NoSuchWorker> {
        let mut first = self.first_ready;
        let member = self.named(name)?;
        let before = member.state(now, config);
        match by {
            DrainBy::Operator => member.drain_operator = on,
            DrainBy::Worker => member.drain_worker = on,
        }
        member.came_back(before, &mut first, now, config);
        let events = state_event(member, before, now, config).into_iter().collect();
        self.first_ready = first;
        Ok(events)
    }

    pub(crate) fn poll_began(&self, name: &WorkerName, now: Time) -> Option<Poll> {
        let member = self.at(*self.by_name.get(name)?);
        Some(Poll { key: member.key, epoch: member.ledger.poll_began(), asked: now })
    }

    /// Takes the answer of a poll. Returns what happened, and the slot whose process is another.
    pub(crate) fn poll_ended(
        &mut self,
        poll: &Poll,
        answer: Result<Answer, String>,
        now: Time,
        config: &HealthConfig,
    ) -> (Vec<Event>, Option<u16>) {
        let generation = self.generations.wrapping_add(1);
        let mut first = self.first_ready;
        let Some(member) = self.get_mut(poll.key) else { return (Vec::new(), None) };
        let before = member.state(now, config);
        member.polled = true;
        let mut events = Vec::new();
        let mut stale = false;
        match answer {
            Err(reason) => member.health.failed(reason, config),
            Ok(Answer::Plain { models }) if models.len() > MAX_MODELS_PER_WORKER => {
                let count = models.len();
                let reason =
                    format!("it lists {count} models and {MAX_MODELS_PER_WORKER} are taken");
                member.health.not_ready(WorkerState::Unhealthy, reason);
            }
            Ok(Answer::Plain { models }) => {
                stale = member.report.is_some();
                member.instance = None;
                member.plain(models.into_iter().map(Into::into).collect(), now, config);
            }
            Ok(Answer::Load(load)) => {
                let known = member.instance.as_ref();
                let restarted = known.is_some_and(|known| *known != load.instance_id);
                if restarted {
                    member.restarted(generation);
                    events.push(event(member, EventKind::Restarted));
                }
                member.instance = Some(load.instance_id.clone());
                stale = pairs_change(member, &load);
                member.ledger.reported(poll.epoch);
                let reported = Reported { load: *load, asked: poll.asked, came: now };
                member.reported(reported, !restarted, config);
            }
        }
        member.came_back(before, &mut first, now, config);
        events.extend(state_event(member, before, now, config));
        let restarted = (member.key != poll.key).then_some(poll.key.slot);
        self.first_ready = first;
        if restarted.is_some() {
            self.generations = generation;
        }
        if stale {
            self.find_pairs();
        }
        (events, restarted)
    }

    /// Finds out again who can be paired with whom, after that may have changed.
    fn find_pairs(&mut self) {
        for slot in 0..self.members.len() {
            let Some(decode) = &self.members[slot] else { continue };
            let mut pairs = WorkerSet::default();
            let fitting = self.iter().filter(|prefill| fits(decode, prefill));
            fitting.for_each(|prefill| pairs.insert(prefill.key.slot));
            self.at_mut(slot as u16).pairs = pairs;
        }
    }

    /// Every model that a worker serves or is listed for, in order.
    pub(crate) fn models(&self) -> Vec<Arc<str>> {
        let mut models: Vec<Arc<str>> =
            self.iter().flat_map(|member| member.models.iter().cloned()).collect();
        models.sort_unstable();
        models.dedup();
        models
    }

    /// How many workers ought to be there, by role and model: as many as are declared or, where
    /// that is more, expected.
    pub(crate) fn declared(&self) -> Vec<Declared> {
        let models = self.models();
        let only = Some(&models).filter(|models| models.len() == 1).map(|models| models[0].clone());
        let mut counts: BTreeMap<(WorkerRole, Option<Arc<str>>), usize> = BTreeMap::new();
        let declares = |member: &&Member| member.listed_by().any(Source::declares);
        for member in self.iter().filter(declares) {
            let role = member.spec.role.declared();
            if member.models.is_empty() {
                *counts.entry((role, only.clone())).or_default() += 1;
            }
            for model in &member.models {
                *counts.entry((role, Some(model.clone()))).or_default() += 1;
            }
        }
        for expected in &self.expected {
            let model = expected.model.clone().or_else(|| only.clone());
            let count = counts.entry((expected.role.declared(), model)).or_default();
            *count = (*count).max(expected.workers);
        }
        let declared = |((role, model), workers)| Declared { role, model, workers };
        counts.into_iter().map(declared).collect()
    }
}

/// Could the two be a pair, were both ready? They must have told the same fingerprint, and where
/// the decode worker tells which links are up, that one must be.
fn fits(decode: &Member, prefill: &Member) -> bool {
    let roles = (decode.role, prefill.role) == (WorkerRole::Decode, WorkerRole::Prefill);
    let (Some(ours), Some(theirs)) = (&decode.report, &prefill.report) else { return false };
    let equal = ours.load.fingerprint == theirs.load.fingerprint
        && !ours.load.fingerprint.is_empty()
        && ours.load.model == theirs.load.model;
    let up = |peers: &Vec<String>| peers.iter().any(|peer| peer == prefill.name().as_str());
    roles && equal && ours.load.peers_up.as_ref().is_none_or(up)
}

/// Why the two are no pair: words for an operator, empty where they fit.
pub(crate) fn misfit(decode: &Member, prefill: &Member) -> String {
    let (name, other) = (decode.name(), prefill.name());
    let (Some(ours), Some(theirs)) = (&decode.report, &prefill.report) else {
        return format!("{name} and {other} have not told their loads");
    };
    let (ours, theirs) = (&ours.load, &theirs.load);
    if ours.fingerprint.is_empty() || ours.fingerprint != theirs.fingerprint {
        let (ours, theirs) = (&ours.fingerprint, &theirs.fingerprint);
        return format!(
            "{name} has the fingerprint {ours:?} and {other} has {theirs:?}; a pair has equal ones"
        );
    }
    match &ours.peers_up {
        Some(peers) if !peers.iter().any(|peer| peer == other.as_str()) => {
            let links =
                if peers.is_empty() { "no prefill worker".into() } else { peers.join(", ") };
            format!("{name} has links to {links} and not to {other}; names must be the same")
        }
        Some(_) | None => String::new(),
    }
}

/// Does the report of `member` say anything new about pairs?
fn pairs_change(member: &Member, load: &LoadReport) -> bool {
    member.report.as_ref().is_none_or(|known| {
        let known = &known.load;
        known.fingerprint != load.fingerprint
            || known.model != load.model
            || known.role != load.role
            || known.peers_up != load.peers_up
    })
}

pub(crate) fn event(member: &Member, kind: EventKind) -> Event {
    Event { name: member.name().clone(), role: member.role, kind }
}

fn state_event(
    member: &Member,
    before: WorkerState,
    now: Time,
    config: &HealthConfig,
) -> Option<Event> {
    let state = member.state(now, config);
    let reason = member.reason(state, now);
    (state != before).then(|| event(member, EventKind::State(state, reason)))
}
