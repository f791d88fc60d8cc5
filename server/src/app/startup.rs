//! From headers to a running engine, with the time of each phase on record.

use std::sync::Arc;
use std::thread::JoinHandle;

use admission::AdmissionController;
use engine::{
    EngineConfig, Handle, HitCurveConfig, HostTier, PrepareError, Prepared, Retention, Storage,
};
use memory_pool::{HostMemory, PageBytes};
use metric_catalog::labels::StartupPhase;
use transfer::{Shape, TransferObserver};
use types::{Clock, Time};

use super::{Checked, host_tier};
use crate::cli::{KvDtype, PrefixCache, Role, SwaRetention};
use crate::config::{Finding, Findings, Resolved};
use crate::http::{Api, Serving};
use crate::lifecycle::Phase;
use crate::pd::identity;
use crate::pd::start::Cargo;
use crate::storage::{self, Opened};
use crate::telemetry::curve::candidates;
use crate::telemetry::gauges;
use crate::telemetry::observe::{EngineObserver, Objectives};

/// Submissions that may wait for the next step of the engine where admission sets no bound.
const SUBMISSIONS_MIN: usize = 1024;

/// Why the engine cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// A setting cannot work after all.
    #[error("{0}")]
    Refused(Findings),
    /// The engine refuses.
    #[error("{0}")]
    Engine(String),
}

impl From<Finding> for StartError {
    fn from(finding: Finding) -> Self {
        Self::Refused(finding.into())
    }
}

impl From<PrepareError> for StartError {
    fn from(error: PrepareError) -> Self {
        Self::Engine(error.to_string())
    }
}

/// An engine that runs.
pub(crate) struct Started {
    /// Its thread.
    pub(crate) thread: JoinHandle<()>,
    /// What the link of a worker of a pair carries.
    pub(crate) cargo: Option<Cargo>,
}

/// Loads, allocates, warms up and starts the engine; then the API can serve. Blocks.
pub(crate) fn start(checked: Checked, api: &Api) -> Result<Started, StartError> {
    let mut stopwatch = Stopwatch { api, since: api.clock.now() };
    let (host, facts) = host_tier::allocate(&checked, api.clock)?;
    if let Some(facts) = facts {
        api.has_tier(facts);
        stopwatch.lap(StartupPhase::HostPools);
    }
    let host = host.map(Arc::new);
    let store = open_store(&checked, host.as_ref(), api)?;
    api.life.advance(Phase::Loading);
    let identity = match checked.resolved.roles.role {
        Role::Unified => None,
        Role::Prefill | Role::Decode => Some(identity::of(&checked.source).map_err(unreadable)?),
    };
    let Checked { source, tokenizer, resolved, .. } = checked;
    let runner = source.load(&resolved)?;
    let spec = runner.spec().clone();
    gauges::record_kernels(&api.registry, &spec.kernels);
    for used in &spec.kernels {
        tracing::info!(
            op = used.op,
            format = used.format,
            kernel = used.kernel,
            "A kernel was chosen."
        );
    }
    stopwatch.lap(StartupPhase::Load);
    let mut prepared = engine::prepare(config(&resolved, api.nonce()), runner, host)?;
    if let (Some(storage), Some(plan)) = (store, &resolved.store) {
        prepared = prepared.with_storage(storage, plan.policy)?;
    }
    stopwatch.lap(StartupPhase::Pools);
    api.life.advance(Phase::Warming);
    let rate = warm_up(&mut prepared, api.clock)?;
    stopwatch.lap(StartupPhase::Warmup);
    let pages = prepared.page_bytes();
    let admission = AdmissionController::new(resolved.limits, rate);
    admission.set_step_tokens(resolved.settings.load.max_batch_tokens as u64);
    let [ttft, itl, e2e] = resolved.objectives();
    let objectives = Objectives { ttft, itl, e2e };
    let observer = Box::new(EngineObserver::new(&api.registry, objectives, &resolved));
    let (engine, thread) = prepared
        .spawn(Arc::clone(&admission), observer, api.clock)
        .map_err(|error| StartError::Engine(error.to_string()))?;
    tracing::info!(
        model = spec.name,
        parameters = spec.parameters,
        pages = resolved.pages(),
        prefill_tokens_per_second = rate.round(),
        "The model is loaded."
    );
    let structures = crate::structured::Structures::default();
    let cargo = match identity {
        None => None,
        Some(identity) => {
            let observer = api.transfer_observer();
            Some(cargo(&identity, &resolved, &engine, pages, observer)?)
        }
    };
    api.open(Serving { engine, admission, tokenizer, spec, structures });
    Ok(Started { thread, cargo })
}

/// What the link carries: the pages, under the model's name.
fn cargo(
    identity: &str,
    resolved: &Resolved,
    engine: &Handle,
    pages: Option<Arc<dyn PageBytes>>,
    observer: Arc<dyn TransferObserver>,
) -> Result<Cargo, StartError> {
    let missing = || StartError::Engine("this model's KV has no bytes to send".to_owned());
    let pages = pages.ok_or_else(missing)?;
    let page_tokens = u32::try_from(resolved.page_tokens).unwrap_or(u32::MAX);
    let shape = Shape::of(identity, page_tokens, &KvDtype::F32.to_string(), &*pages);
    Ok(Cargo { pages, shape, engine: engine.clone(), observer })
}

fn unreadable(error: std::io::Error) -> StartError {
    StartError::Engine(format!(
        "the files of the model cannot be read for its fingerprint: {error}"
    ))
}

/// Opens the store behind the host tier, where there is one.
fn open_store(
    checked: &Checked,
    host: Option<&Arc<HostMemory>>,
    api: &Api,
) -> Result<Option<Box<dyn Storage>>, StartError> {
    let Checked { source, resolved, .. } = checked;
    let (Some(plan), Some(memory)) = (&resolved.store, host) else { return Ok(None) };
    let Opened { storage, store } = storage::open(resolved, plan, source, memory, api.clock)?;
    api.has_store(store);
    Ok(Some(storage))
}

fn warm_up(prepared: &mut Prepared, mut clock: Clock) -> Result<f64, PrepareError> {
    prepared.warm_up(&mut clock)
}

/// The bounds of the engine; `seed` starts the randomness of requests that bring none.
pub(super) fn config(resolved: &Resolved, seed: u64) -> EngineConfig {
    let load = &resolved.settings.load;
    EngineConfig {
        max_running: load.max_running_requests,
        max_batch_tokens: load.max_batch_tokens,
        prefill_chunk: resolved.prefill_chunk,
        pool_pages: resolved.pools.iter().map(|pool| pool.pages).collect(),
        max_submissions: load.max_queued_requests.max(SUBMISSIONS_MIN),
        prefix_cache: load.prefix_cache == PrefixCache::On,
        host: resolved.hierarchy.as_ref().map(|tier| HostTier {
            storage: resolved.store.is_some(),
            ..host_tier::engine_tier(tier)
        }),
        retention: retention(resolved.retention),
        hit_curve: resolved.curve.map(|curve| HitCurveConfig {
            ratios: candidates(resolved),
            max_pages: curve.max_pages,
        }),
        scheduling: resolved.settings.order.scheduling(),
        seed,
    }
}

const fn retention(chosen: SwaRetention) -> Retention {
    match chosen {
        SwaRetention::All => Retention::All,
        SwaRetention::Tail => Retention::Tail,
        SwaRetention::TailEvery(tokens) => Retention::TailEvery(tokens),
        SwaRetention::TailBranch => Retention::TailBranch,
    }
}

struct Stopwatch<'a> {
    api: &'a Api,
    since: Time,
}

impl Stopwatch<'_> {
    fn lap(&mut self, phase: StartupPhase) {
        let now = self.api.clock.now();
        gauges::record_startup(&self.api.registry, phase, now.since(self.since));
        self.since = now;
    }
}
