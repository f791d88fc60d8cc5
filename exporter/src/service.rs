//! Services of this node: their units, health URLs, control groups and processes, and what these
//! say together.
//!
//! A service is whatever the configuration names; each of its parts is optional. Collectors fill
//! their slots; [`states`] is a pure function over them.

pub mod fetch;
pub mod group;
pub mod kills;
pub mod page;
pub mod probe;
pub mod restarts;
pub mod unit;

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, SystemTime};

use metric_catalog::labels::ServiceState;
use tokio_util::task::TaskTracker;

use self::fetch::Client;
use self::group::{GroupFacts, Groups, Usage};
use self::probe::{Probe, ProbeFacts, Probes};
use self::unit::{Bus, Unit, UnitFacts};
use crate::config::{Config, Service};
use crate::facts::{Facts, Slots};
use crate::slot::{Now, Stop, run_async, run_blocking};

/// How long all units together may take: each has a second to connect and one to answer.
const BUS_DEADLINE: Duration = Duration::from_secs(3);

/// Starts the collectors of units, health URLs and control groups.
///
/// # Errors
/// The system gives no thread.
pub fn start(
    config: &Config,
    slots: &Slots,
    client: &Client,
    tasks: &TaskTracker,
    stop: &Stop,
) -> io::Result<()> {
    let units: Vec<(String, String)> = config
        .services
        .iter()
        .filter_map(|service| Some((service.name.clone(), service.unit.clone()?)))
        .collect();
    let mut bus = Bus::default();
    let slot = slots.systemd.clone();
    let ask = async move || {
        let found = bus.collect(&units).await?;
        found.problems().for_each(|problem| slot.incomplete(problem.clone()));
        Ok(found)
    };
    run_async(slots.systemd.clone(), tasks, stop.clone(), BUS_DEADLINE, ask);

    let interval = slots.probe.interval();
    let probes = Probes::start(&config.services, client, interval, tasks, stop);
    let gather = async move || probes.collect();
    run_async(slots.probe.clone(), tasks, stop.clone(), interval, gather);

    let mut groups = Groups {
        root: config.root(),
        services: config.services.clone(),
        units: slots.systemd.clone(),
        kills: BTreeMap::new(),
    };
    let slot = slots.cgroup.clone();
    let read = move || {
        let found = groups.collect(Now::read())?;
        found.problems().for_each(|problem| slot.incomplete(problem.clone()));
        Ok(found)
    };
    run_blocking(slots.cgroup.clone(), stop.clone(), read)
}

/// What is known of one service at one moment.
#[derive(Debug, Clone)]
pub struct State<'a> {
    /// Its configuration.
    pub service: &'a Service,
    /// What it does.
    pub state: ServiceState,
    /// Its unit, as far as it is fresh.
    pub unit: Option<&'a Unit>,
    /// Its health URL, as far as it is fresh.
    pub probe: Option<&'a Probe>,
    /// Its memory, as far as it is fresh.
    pub usage: Option<&'a Usage>,
    /// Whether it may still be starting: neither a failing probe nor a unit that activates counts
    /// yet.
    pub starting: bool,
    /// Restarts: automatic ones of its unit; without a unit, those seen. `None`: nobody counts.
    pub restarts: Option<u64>,
    /// Restarts of the last ten minutes.
    pub recent_restarts: usize,
    /// When it started last.
    pub started: Option<SystemTime>,
}

impl State<'_> {
    /// Whether processes of it may hold memory; `None` where nobody knows.
    #[must_use]
    pub fn is_running(&self) -> Option<bool> {
        match self.unit {
            Some(unit) => unit.is_running(),
            None => self.is_seen().then_some(true),
        }
    }

    /// Whether something of it was seen just now: an answer of its health URL or its page, or a
    /// process in its group. That nothing was seen is no proof that nothing runs.
    fn is_seen(&self) -> bool {
        let answers = self.probe.is_some_and(|probe| probe.status.is_some());
        let group = self.usage.and_then(|usage| usage.group.as_ref());
        let processes = group.and_then(|group| group.processes.as_ref());
        // Without a unit, the start is the one that its page says.
        let said = self.unit.is_none() && self.started.is_some();
        answers || said || processes.is_some_and(|processes| !processes.is_empty())
    }

    /// The node its memory comes from: what the configuration says, else the one its processes are
    /// bound to.
    #[must_use]
    pub fn node(&self) -> Option<u32> {
        self.service.numa_node.or_else(|| self.usage?.bound_to())
    }
}

/// What is known of every service, in the order of the configuration.
#[must_use]
pub fn states<'a>(services: &'a [Service], facts: &'a Facts) -> Vec<State<'a>> {
    let one = |service: &'a Service| {
        let name = service.name.as_str();
        let units: Option<&UnitFacts> = facts.systemd.facts.as_deref();
        let probes: Option<&ProbeFacts> = facts.probe.facts.as_deref();
        let groups: Option<&GroupFacts> = facts.cgroup.facts.as_deref();
        let unit = units.and_then(|units| units.unit(name));
        let probe = probes.and_then(|probes| probes.0.get(name));
        // Counters are shown as they were last, whatever happened since.
        let counted = facts.systemd.last_good.as_deref();
        let seen = facts.hostcache.last_good.as_deref().and_then(|caches| caches.0.get(name));
        let seen = seen.map(|seen| &seen.restarts);
        let (restarts, recent) = if service.unit.is_some() {
            let told = counted.and_then(|units| units.unit(name)?.restarts).map(u64::from);
            (told, counted.and_then(|units| units.restarts.get(name)))
        } else {
            (seen.and_then(|seen| seen.is_told().then(|| seen.seen())), seen)
        };
        let own = facts.hostcache.facts.as_deref().and_then(|caches| caches.0.get(name)?.started);
        let started = match unit {
            Some(unit) => unit.started,
            None => own.and_then(|seconds| {
                SystemTime::UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)
            }),
        };
        let starting = match unit {
            // Its probe has no say: one that answers early is not ready before it says so.
            Some(unit) if unit.state == ServiceState::Activating => {
                let age = started.and_then(|began| facts.now.wall.duration_since(began).ok());
                age.is_none_or(|age| age < service.start_up)
            }
            Some(_) | None => probe.is_some_and(|probe| {
                let began = started.and_then(|time| moment(time, facts.now));
                probe.is_starting(began, service.start_up, facts.now)
            }),
        };
        State {
            service,
            state: state(service, unit, probe, starting),
            unit,
            probe,
            usage: groups.and_then(|groups| groups.0.get(name)),
            starting,
            restarts,
            recent_restarts: recent.map_or(0, |recent| recent.recent(facts.now)),
            started,
        }
    };
    services.iter().map(one).collect()
}

/// A moment of the past on both clocks; `None` for one that the clock of this process cannot say.
fn moment(time: SystemTime, now: Now) -> Option<Now> {
    let age = now.wall.duration_since(time).ok()?;
    Some(Now { mono: now.mono.checked_sub(age)?, wall: time })
}

/// What the unit says; without one, what the health URL shows.
fn state(
    service: &Service,
    unit: Option<&Unit>,
    probe: Option<&Probe>,
    starting: bool,
) -> ServiceState {
    match (&service.unit, unit, probe) {
        (Some(_), Some(unit), _) => unit.state,
        (Some(_), None, _) | (None, _, None) => ServiceState::Unknown,
        (None, _, Some(probe)) if probe.is_success() => ServiceState::Active,
        (None, _, Some(_)) if starting => ServiceState::Activating,
        // One slow answer is no failure yet.
        (None, _, Some(probe)) if probe.failures < probe::TRIES && probe.last_success.is_some() => {
            ServiceState::Active
        }
        (None, _, Some(_)) => ServiceState::Failed,
    }
}

#[cfg(test)]
mod tests;
