//! Workers as the router sees them, by name, with a bound on how many have series of their own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metric_catalog::install::{CounterHandle, GaugeHandle, Members, OTHER, Registry};
use metric_catalog::labels::{self, StatusCode, Worker};
use metric_catalog::router as catalog;

use super::all;
use crate::worker::{CircuitState, WorkerName, WorkerRole};

/// What is told of one worker when a page is rendered.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) name: WorkerName,
    pub(crate) up: bool,
    pub(crate) circuit: CircuitState,
    pub(crate) active: u64,
    pub(crate) pending: u64,
    pub(crate) report_age: Option<Duration>,
}

/// The handles of one worker.
#[derive(Debug)]
pub(crate) struct Handles {
    /// By status.
    responses: Vec<CounterHandle>,
    up: GaugeHandle,
    active: GaugeHandle,
    pending: GaugeHandle,
    age: GaugeHandle,
    /// By state.
    circuit: Vec<GaugeHandle>,
}

impl Handles {
    fn new(registry: &Registry, name: &str, role: WorkerRole) -> Arc<Self> {
        let worker = || Worker::new(name.to_owned());
        Arc::new(Self {
            responses: all(|status: StatusCode| {
                registry.counter(catalog::ROUTER_UPSTREAM_RESPONSES, (worker(), status))
            }),
            up: registry.gauge(catalog::ROUTER_WORKER_UP, (worker(), label(role))),
            active: registry.gauge(catalog::ROUTER_WORKER_ACTIVE_REQUESTS, (worker(),)),
            pending: registry.gauge(catalog::ROUTER_WORKER_PENDING_TOKENS, (worker(),)),
            age: registry.gauge(catalog::ROUTER_LOAD_REPORT_AGE, (worker(),)),
            circuit: all(|state| registry.gauge(catalog::ROUTER_CIRCUIT_STATE, (worker(), state))),
        })
    }

    /// It answered.
    pub(crate) fn responded(&self, status: u16) {
        self.responses[StatusCode::from_code(status).index()].increment();
    }

    fn set(&self, sum: &Sum) {
        self.up.set_count(sum.up);
        self.active.set_count(sum.active);
        self.pending.set_count(sum.pending);
        self.age.set_duration(sum.age);
        for state in labels::CircuitState::ALL {
            self.circuit[state.index()].set_count(sum.circuit[state.index()]);
        }
    }
}

/// A plain worker is declared as a unified one.
pub(crate) const fn label(role: WorkerRole) -> labels::WorkerRole {
    match role {
        WorkerRole::Unified | WorkerRole::Plain => labels::WorkerRole::Unified,
        WorkerRole::Prefill => labels::WorkerRole::Prefill,
        WorkerRole::Decode => labels::WorkerRole::Decode,
    }
}

const fn circuit(state: CircuitState) -> labels::CircuitState {
    match state {
        CircuitState::Closed => labels::CircuitState::Closed,
        CircuitState::Open => labels::CircuitState::Open,
        CircuitState::HalfOpen => labels::CircuitState::HalfOpen,
    }
}

/// What one series shows: of one worker, or of all that share it.
#[derive(Debug, Default)]
struct Sum {
    up: u64,
    active: u64,
    pending: u64,
    age: Duration,
    circuit: [u64; labels::CircuitState::ALL.len()],
}

impl Sum {
    fn add(&mut self, seen: &Seen) {
        self.up += u64::from(seen.up);
        self.active += seen.active;
        self.pending += seen.pending;
        self.age = self.age.max(seen.report_age.unwrap_or_default());
        self.circuit[circuit(seen.circuit).index()] += 1;
    }
}

/// The handles of all workers.
#[derive(Debug)]
pub(crate) struct Workers {
    registry: Registry,
    members: Mutex<Members<Arc<Handles>>>,
}

impl Workers {
    /// None yet.
    pub(super) fn new(registry: &Registry) -> Self {
        let other = Handles::new(registry, OTHER, WorkerRole::Unified);
        Self { registry: registry.clone(), members: Mutex::new(Members::new(other)) }
    }

    fn members(&self) -> MutexGuard<'_, Members<Arc<Handles>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker is there; its series are, at 0.
    pub(crate) fn join(&self, name: &WorkerName, role: WorkerRole) {
        let mut members = self.members();
        let make = |name: &str| Handles::new(&self.registry, name, role);
        if let Some(gone) = members.join(name.as_str(), make) {
            self.registry.remove(&Worker::new(gone.to_string()));
        }
    }

    /// A worker is gone; its series stay for a while.
    pub(crate) fn leave(&self, name: &WorkerName, now: Duration) {
        self.members().leave(name.as_str(), now);
    }

    /// The handles of a worker.
    pub(crate) fn of(&self, name: &WorkerName) -> Arc<Handles> {
        Arc::clone(self.members().of(name.as_str()))
    }

    /// Sets the gauges of all workers, those that are gone to 0.
    pub(crate) fn set(&self, seen: &[Seen], now: Duration) {
        let mut members = self.members();
        for gone in members.sweep(now) {
            self.registry.remove(&Worker::new(gone.to_string()));
        }
        let mut other = Sum::default();
        for (name, handles) in members.iter().filter(|(name, _)| *name != OTHER) {
            let mut sum = Sum::default();
            let own = seen.iter().filter(|seen| seen.name.as_str() == name);
            own.for_each(|seen| sum.add(seen));
            handles.set(&sum);
        }
        let named = |seen: &&Seen| members.iter().any(|(name, _)| name == seen.name.as_str());
        seen.iter().filter(|seen| !named(seen)).for_each(|seen| other.add(seen));
        members.of(OTHER).set(&other);
    }
}
