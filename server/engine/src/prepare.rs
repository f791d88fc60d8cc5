//! From a loaded model to a running engine: check, allocate, warm up, spawn.
//!
//! Three calls, because the server times each and reports it as a phase of start-up.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use admission::AdmissionController;
use kv_cache::PoolSet;
use memory_pool::{CopyEngine, HostMemory, PageBytes};
use model::{Batch, Logits, ModelRunner, ModelSpec, PageList, RunError};
use types::{Clock, PageId, TokenId};

use crate::config::{ConfigError, EngineConfig};
use crate::copier::{Copier, NoBytes};
use crate::curve::Estimator;
use crate::handle::Handle;
use crate::host::queue;
use crate::stats::Observer;
use crate::step::{Core, Turn};
use crate::storage::{PrefetchPolicy, Storage};
use crate::time::TimeSource;

/// How often an idle engine shows that it is alive.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// How often a draining engine that is empty looks whether the last permit is gone.
const DRAIN_POLL: Duration = Duration::from_millis(20);

/// Tokens of the first, cold step of the warm-up.
const WARM_UP_TOKENS: usize = 32;

/// The measured step of the warm-up has so many tokens that it takes about this long.
const WARM_UP_TIME: Duration = Duration::from_secs(1);

/// Why an engine could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrepareError {
    /// A bound cannot hold.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Host memory without a host tier, or the other way round.
    #[error("{0}")]
    Host(&'static str),
    /// The model could not allocate its pools or run a step.
    #[error("{0}")]
    Run(#[from] RunError),
}

/// An engine whose pools are allocated and whose thread does not run yet.
pub struct Prepared {
    pub(crate) config: EngineConfig,
    pub(crate) runner: Box<dyn ModelRunner>,
    pub(crate) copier: Option<Box<dyn Copier>>,
    pub(crate) storage: Option<(Box<dyn Storage>, PrefetchPolicy)>,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Checks the bounds, allocates the pools, and starts the threads that copy between the tiers.
///
/// `host` is the memory of `config.host`, for runners that have bytes: the parts that the host
/// mirrors, with as many pages as the tier has.
///
/// # Errors
/// A bound that cannot hold, pools that do not fit into memory, or host memory that is not what
/// the configuration says.
pub fn prepare(
    config: EngineConfig,
    mut runner: Box<dyn ModelRunner>,
    host: Option<Arc<HostMemory>>,
) -> Result<Prepared, PrepareError> {
    config.check(runner.spec())?;
    if config.host.is_none() && host.is_some() {
        return Err(PrepareError::Host("host memory was allocated and no host tier is configured"));
    }
    runner.allocate(&config.pool_pages)?;
    let devices = runner.memories().to_vec();
    let copier: Option<Box<dyn Copier>> = match (&config.host, host, devices.is_empty()) {
        (None, _, _) => None,
        (Some(_), Some(host), false) => {
            let queue = queue(config.max_running);
            Some(Box::new(CopyEngine::new(devices, host, queue)))
        }
        (Some(_), None, true) => Some(Box::new(NoBytes::new(runner.mover()))),
        (Some(_), None, false) => {
            return Err(PrepareError::Host("a host tier is configured and has no memory"));
        }
        (Some(_), Some(_), true) => {
            return Err(PrepareError::Host("this model has no bytes to keep in host memory"));
        }
    };
    Ok(Prepared { config, runner, copier, storage: None })
}

impl Prepared {
    /// The same with storage behind its host tier; `policy` says how long requests wait for it.
    ///
    /// # Errors
    /// There is no host tier that reports its pages ([`HostTier::storage`](crate::HostTier)).
    pub fn with_storage(
        self,
        storage: Box<dyn Storage>,
        policy: PrefetchPolicy,
    ) -> Result<Self, PrepareError> {
        if !self.config.host.as_ref().is_some_and(|host| host.storage) {
            return Err(PrepareError::Host("storage is behind a host tier, and needs one"));
        }
        Ok(Self { storage: Some((storage, policy)), ..self })
    }

    /// The model that will run.
    #[must_use]
    pub fn spec(&self) -> &ModelSpec {
        self.runner.spec()
    }

    /// What a link to another worker reads and writes pages by; `None` where the model's pages hold
    /// nothing.
    #[must_use]
    pub fn page_bytes(&self) -> Option<Arc<dyn PageBytes>> {
        self.runner.page_bytes()
    }

    /// The bounds in force.
    #[must_use]
    pub const fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The most tokens, prompt and answer together, that one request may ever have.
    #[must_use]
    pub fn max_request_tokens(&self) -> usize {
        self.config.max_request_tokens(self.runner.spec())
    }

    /// Runs two prefill steps, the first to touch every weight, the second to measure. Returns the
    /// prefill rate in tokens per second; takes about a second, or one short step where that is
    /// longer.
    ///
    /// # Errors
    /// The model's, when it cannot run.
    pub fn warm_up(&mut self, time: &mut dyn TimeSource) -> Result<f64, PrepareError> {
        let EngineConfig { prefill_chunk, max_batch_tokens, .. } = self.config;
        let most = prefill_chunk.min(max_batch_tokens).min(self.max_request_tokens());
        let (tokens, busy) = self.timed_prefill(most.min(WARM_UP_TOKENS), time)?;
        let cold = tokens as f64 / busy.as_secs_f64().max(1e-9);
        // The cast saturates; the result is clamped into the range of one chunk.
        let wanted = (cold * WARM_UP_TIME.as_secs_f64()) as usize;
        let (tokens, busy) = self.timed_prefill(wanted.clamp(tokens, most), time)?;
        Ok(tokens as f64 / busy.as_secs_f64().max(1e-9))
    }

    fn timed_prefill(
        &mut self,
        tokens: usize,
        time: &mut dyn TimeSource,
    ) -> Result<(usize, Duration), PrepareError> {
        let spec = self.runner.spec();
        let vocab = spec.vocab.max(1);
        let ids = (0..tokens).map(|i| TokenId(u32::try_from(i % vocab).unwrap_or(0)));
        let ids: Vec<_> = ids.collect();
        // Nothing is running yet, so the first pages of every pool are free.
        let pages = |page_tokens| u32::try_from(tokens.div_ceil(page_tokens)).unwrap_or(0);
        let most = spec.pools.iter().map(|pool| pages(pool.page_tokens)).max().unwrap_or(0);
        let ids_of_pages: Vec<_> = (0..most).map(PageId).collect();
        let mut batch = Batch::default();
        let lists = spec
            .pools
            .iter()
            .map(|pool| PageList::whole(&ids_of_pages[..pages(pool.page_tokens) as usize]));
        batch.push(&ids, 0, 1, lists);
        let start = time.now();
        self.runner.execute(&batch, &mut Logits::new())?;
        if let Some(busy) = self.runner.modelled_time(&batch) {
            time.modelled(busy);
        }
        Ok((tokens, time.now().since(start)))
    }

    /// Starts the engine's thread. It ends after a drain, a shutdown, a failure, or when the last
    /// handle is gone; joining it then returns at once.
    ///
    /// # Errors
    /// The operating system's, when it gives no thread.
    pub fn spawn(
        self,
        admission: Arc<AdmissionController>,
        observer: Box<dyn Observer>,
        clock: Clock,
    ) -> std::io::Result<(Handle, JoinHandle<()>)> {
        let curve = self.config.curve(self.runner.spec());
        let estimator = curve.map(Estimator::start).transpose()?;
        let (core, handle) = self.into_core(admission, observer, Box::new(clock));
        let handle = handle.with_estimator(estimator);
        let thread = std::thread::Builder::new().name("engine".to_owned());
        let join = thread.spawn(move || run(core))?;
        Ok((handle, join))
    }

    /// The engine without a thread.
    pub(crate) fn into_core(
        self,
        admission: Arc<AdmissionController>,
        observer: Box<dyn Observer>,
        time: Box<dyn TimeSource>,
    ) -> (Core, Handle) {
        let specs = self.config.pools(self.runner.spec());
        let pools = PoolSet::new(specs, self.config.cache());
        Core::new(self, pools, admission, observer, time)
    }
}

/// The engine's thread: turns until the end, and turns a panic into a failure.
fn run(mut core: Core) {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    loop {
        let nap = if core.is_draining() { DRAIN_POLL } else { HEARTBEAT };
        match catch_unwind(AssertUnwindSafe(|| {
            core.rest(nap);
            core.turn()
        })) {
            Ok(Turn::Ended) => return,
            Ok(Turn::Idle | Turn::Worked) => {}
            Err(panic) => {
                let why = format!("the engine panicked: {}", crate::step::panic_text(&*panic));
                core.perish(&why);
                return;
            }
        }
    }
}
