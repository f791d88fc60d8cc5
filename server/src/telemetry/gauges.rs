//! Gauges that are read, not counted: set from one snapshot right before a page is rendered, so
//! that none of them can freeze at an old value.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::transfer::{LinkSnapshot, TransferObserver};
use admission::QueueSnapshot;
use engine::{CurveSnapshot, EngineSnapshot, QueueSnapshot as LineSnapshot};
use kv_store::StoreStats;
use metric_catalog::install::{CounterHandle, GaugeHandle, Registry, TimeHandle};
use metric_catalog::labels::{
    DpSize, EngineState, Format, HicacheMode, Kernel, KvDtype, Op, PageTokens, Queue, StartupPhase,
    TpSize, TransferBackend,
};
use metric_catalog::{process, server as catalog};
use model::KernelUse;
use types::{Clock, Time};

use super::curve::{CurveGauges, record_costs};
use super::host::{HostGauges, record_sizes};
use super::pools::{self, PoolGauges};
use super::store::StoreGauges;
use super::transfer::Transfers;
use crate::cli::{Role, spelled};
use crate::config::Resolved;
use crate::host_tier::Facts;
use crate::lifecycle::Phase;

/// Handles of one queue.
#[derive(Debug)]
struct QueueGauges {
    requests: GaugeHandle,
    tokens: GaugeHandle,
    uncached: GaugeHandle,
    oldest: GaugeHandle,
}

/// A counter whose total the engine keeps.
#[derive(Debug)]
pub(super) struct Follower {
    counter: CounterHandle,
    /// What was counted, of the engine's total.
    counted: AtomicU64,
}

impl Follower {
    pub(super) const fn new(counter: CounterHandle) -> Self {
        Self { counter, counted: AtomicU64::new(0) }
    }

    /// Catches up with `total`, which never falls. Two scrapes at a time add everything once.
    pub(super) fn follow(&self, total: u64) {
        let before = self.counted.fetch_max(total, Ordering::Relaxed);
        self.counter.add(total.saturating_sub(before));
    }
}

/// Every gauge that is set at scrape time.
#[derive(Debug)]
pub struct Gauges {
    clock: Clock,
    limit_requests: GaugeHandle,
    limit_tokens: GaugeHandle,
    queues: Vec<QueueGauges>,
    running: GaugeHandle,
    running_limit: GaugeHandle,
    last_iteration: GaugeHandle,
    states: Vec<GaugeHandle>,
    pools: Vec<PoolGauges>,
    host: HostGauges,
    queries: Follower,
    store: StoreGauges,
    curve: CurveGauges,
    transfers: Option<Arc<Transfers>>,
    process: ProcessGauges,
}

/// What the gauges are set from.
#[derive(Debug)]
pub struct Snapshot {
    /// When.
    pub now: Time,
    /// Where the process is in its life.
    pub phase: Phase,
    /// The queue, once there is one.
    pub queue: Option<QueueSnapshot>,
    /// The engine, once there is one.
    pub engine: Option<EngineSnapshot>,
    /// The hit-ratio curve, where one is drawn and the engine runs.
    pub curve: Option<CurveSnapshot>,
    /// The host tier, once its memory is there.
    pub tier: Option<Arc<Facts>>,
    /// What the store behind it did and holds, once it is open.
    pub store: Option<StoreStats>,
    /// The link to the other workers of a pair, once it is open.
    pub link: Option<LinkSnapshot>,
}

impl Gauges {
    /// Handles in `registry`, and the gauges that never change set to their values.
    #[must_use]
    pub fn new(registry: &Registry, clock: Clock, resolved: &Resolved) -> Self {
        let queue = |queue: &Queue| QueueGauges {
            requests: registry.gauge(catalog::QUEUE_REQUESTS, (*queue,)),
            tokens: registry.gauge(catalog::QUEUE_PENDING_TOKENS, (*queue,)),
            uncached: registry.gauge(catalog::QUEUE_PENDING_UNCACHED_TOKENS, (*queue,)),
            oldest: registry.gauge(catalog::QUEUE_OLDEST_REQUEST_AGE, (*queue,)),
        };
        let state = |state: &EngineState| registry.gauge(catalog::ENGINE_STATE, (*state,));
        record_config(registry, resolved);
        record_costs(registry, resolved);
        Self {
            clock,
            limit_requests: registry.gauge(catalog::ADMISSION_QUEUE_LIMIT_REQUESTS, ()),
            limit_tokens: registry.gauge(catalog::ADMISSION_QUEUE_LIMIT_TOKENS, ()),
            queues: Queue::ALL.iter().map(queue).collect(),
            running: registry.gauge(catalog::RUNNING_REQUESTS, ()),
            running_limit: registry.gauge(catalog::RUNNING_REQUESTS_LIMIT, ()),
            last_iteration: registry.gauge(catalog::SCHEDULER_LAST_ITERATION, ()),
            states: EngineState::ALL.iter().map(state).collect(),
            pools: pools::gauges(registry, resolved),
            host: HostGauges::new(registry, resolved),
            queries: Follower::new(registry.counter(catalog::KV_PREFIX_QUERY_TOKENS, ())),
            store: StoreGauges::new(registry),
            curve: CurveGauges::new(registry),
            transfers: Transfers::new(registry, super::role(resolved.roles.role), resolved),
            process: ProcessGauges::new(registry),
        }
    }

    /// Who takes what happens on the link to the other workers of a pair.
    #[must_use]
    pub fn transfer_observer(&self) -> Arc<dyn TransferObserver> {
        match &self.transfers {
            Some(transfers) => Arc::<Transfers>::clone(transfers),
            None => Arc::new(()),
        }
    }

    /// Sets them all.
    pub fn set(&self, snapshot: &Snapshot) {
        let state = match snapshot.phase {
            Phase::HostPools | Phase::Loading => EngineState::Loading,
            Phase::Warming => EngineState::Warming,
            Phase::Ready => EngineState::Ready,
            Phase::Draining => EngineState::Draining,
            Phase::Failed => EngineState::Failed,
        };
        for (index, gauge) in self.states.iter().enumerate() {
            gauge.set(f64::from(u8::from(index == state.index())));
        }
        if let Some(queue) = &snapshot.queue {
            self.set_queue(queue, snapshot.engine.as_ref(), snapshot.now);
        }
        if let Some(engine) = &snapshot.engine {
            self.set_engine(engine, snapshot.now);
        }
        if let Some(tier) = &snapshot.tier {
            self.host.place(tier);
            if snapshot.engine.is_none() {
                self.pools.iter().for_each(|pool| pool.set_allocated(tier));
            }
        }
        if let Some(store) = &snapshot.store {
            let engine = snapshot.engine.as_ref().and_then(|engine| engine.storage);
            self.store.set(store, &engine.unwrap_or_default());
        }
        if let Some(curve) = &snapshot.curve {
            self.curve.set(curve);
        }
        if let (Some(transfers), Some(link)) = (&self.transfers, &snapshot.link) {
            transfers.set(link, snapshot.now);
        }
        self.process.set();
    }

    /// Admission knows all that hold a permit; on a worker of a pair some of those wait for the
    /// other one, and some wait for a slot without a permit.
    fn set_queue(&self, queue: &QueueSnapshot, engine: Option<&EngineSnapshot>, now: Time) {
        self.limit_requests.set_count(queue.limit_requests as u64);
        self.limit_tokens.set_count(queue.limit_tokens);
        let none = LineSnapshot::default();
        let [bootstrap, prealloc, landed] =
            engine.map_or([none; 3], |engine| [engine.bootstrap, engine.prealloc, engine.landed]);
        let elsewhere = bootstrap.requests + prealloc.requests;
        let requests = queue.requests.saturating_sub(elsewhere) + landed.requests;
        let tokens = bootstrap.pending_tokens + prealloc.pending_tokens;
        let waiting = &self.queues[Queue::Waiting.index()];
        waiting.requests.set_count(requests as u64);
        waiting.tokens.set_count(queue.pending_tokens.saturating_sub(tokens));
        let uncached = queue.pending_uncached_tokens.saturating_sub(bootstrap.uncached_tokens);
        waiting.uncached.set_count(uncached);
        let age = |line: &LineSnapshot| line.oldest.map_or(Duration::ZERO, |at| now.since(at));
        // Which queue the oldest permit is in is told by the engine, a moment later than by
        // admission. Where it waits for the other worker, it is shown there.
        let apart = age(&bootstrap).max(age(&prealloc)) + Duration::from_secs(1);
        let here = requests > landed.requests && queue.oldest_age >= apart;
        let here = here || (elsewhere == 0 && queue.requests > 0);
        let oldest = if here { queue.oldest_age } else { Duration::ZERO };
        waiting.oldest.set_duration(oldest.max(age(&landed)));
    }

    fn set_engine(&self, engine: &EngineSnapshot, now: Time) {
        self.running.set_count(engine.running as u64);
        self.running_limit.set_count(engine.running_limit as u64);
        self.last_iteration.set(self.clock.unix_seconds(engine.last_iteration));
        let retracted = &self.queues[Queue::Retracted.index()];
        retracted.requests.set_count(engine.retracted.requests as u64);
        retracted.tokens.set_count(engine.retracted.tokens);
        retracted.uncached.set_count(engine.retracted.tokens);
        let age = engine.retracted.oldest.map_or(Duration::ZERO, |since| now.since(since));
        retracted.oldest.set_duration(age);
        let lines = [
            (Queue::Bootstrap, &engine.bootstrap),
            (Queue::InflightSend, &engine.inflight_send),
            (Queue::Prealloc, &engine.prealloc),
            (Queue::Transfer, &engine.transfer),
        ];
        for (queue, line) in lines {
            let gauges = &self.queues[queue.index()];
            gauges.requests.set_count(line.requests as u64);
            gauges.tokens.set_count(line.pending_tokens);
            gauges.uncached.set_count(line.uncached_tokens);
            gauges.oldest.set_duration(line.oldest.map_or(Duration::ZERO, |at| now.since(at)));
        }
        for gauges in &self.pools {
            gauges.set(&engine.pools);
        }
        self.host.set(engine);
        // Every pool knows it.
        self.queries.follow(engine.pools.first().map_or(0, |pool| pool.device.query_tokens));
    }
}

/// The info metrics that are constants of the configuration.
fn record_config(registry: &Registry, resolved: &Resolved) {
    let tier = resolved.hierarchy.as_ref();
    let mode = tier.map_or_else(|| "none".to_owned(), |tier| spelled(tier.policy));
    let page_tokens = || PageTokens::new(resolved.page_tokens.to_string());
    let config = (
        TpSize::new(resolved.tp_size.to_string()),
        DpSize::new("1"),
        KvDtype::new("f32"),
        page_tokens(),
        HicacheMode::new(mode),
        TransferBackend::new(match resolved.roles.role {
            Role::Unified => "none",
            Role::Prefill | Role::Decode => "tcp",
        }),
    );
    registry.gauge(catalog::CONFIG_INFO, config).set(1.0);
    pools::record_geometry(registry, resolved);
    record_sizes(registry, resolved);
}

/// Which kernels run, as an info metric; a model that only pretends to compute has none, and says
/// so.
pub(crate) fn record_kernels(registry: &Registry, kernels: &[KernelUse]) {
    let none = "none".to_owned();
    let nothing = [KernelUse { op: none.clone(), format: none.clone(), kernel: none }];
    let kernels = if kernels.is_empty() { &nothing } else { kernels };
    for used in kernels {
        let labels = (
            Op::new(used.op.clone()),
            Format::new(used.format.clone()),
            Kernel::new(used.kernel.clone()),
        );
        registry.gauge(catalog::KERNEL_INFO, labels).set(1.0);
    }
}

/// How long a phase of the start-up took.
pub fn record_startup(registry: &Registry, phase: StartupPhase, time: Duration) {
    registry.gauge(catalog::STARTUP_PHASE, (phase,)).set_duration(time);
}

/// The engine is ready now.
pub fn record_ready(registry: &Registry, unix_seconds: f64) {
    registry.gauge(catalog::READY_TIMESTAMP, ()).set(unix_seconds);
}

/// The standard numbers of a process.
#[derive(Debug)]
struct ProcessGauges {
    root: node_info::Root,
    cpu: TimeHandle,
    resident: GaugeHandle,
    mapped: GaugeHandle,
    start: GaugeHandle,
    open_files: GaugeHandle,
    max_files: GaugeHandle,
}

impl ProcessGauges {
    fn new(registry: &Registry) -> Self {
        Self {
            root: node_info::Root::default(),
            cpu: registry.time(process::CPU_SECONDS, ()),
            resident: registry.gauge(process::RESIDENT_MEMORY, ()),
            mapped: registry.gauge(process::VIRTUAL_MEMORY, ()),
            start: registry.gauge(process::START_TIME, ()),
            open_files: registry.gauge(process::OPEN_FDS, ()),
            max_files: registry.gauge(process::MAX_FDS, ()),
        }
    }

    fn set(&self) {
        let Ok(facts) = self.root.process() else { return };
        self.cpu.set_total(Duration::from_secs_f64(facts.cpu_seconds));
        self.resident.set_count(facts.resident_bytes);
        self.mapped.set_count(facts.virtual_bytes);
        self.start.set(facts.start_seconds);
        self.open_files.set_count(facts.open_files);
        self.max_files.set_count(facts.max_files);
    }
}
