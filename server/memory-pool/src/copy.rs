//! Copies between device memory and host memory, beside the forward pass.
//!
//! One thread per NUMA node moves the pages of the ranks there, in the order in which copies were
//! submitted, both directions: a load into a page whose backup was queued before it is safe. What
//! is copied and when is decided elsewhere. A copy cannot be taken back; pages that one names must
//! be left alone until it is done (`device.rs` says how much).

mod stats;
mod stream;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use types::{Clock, PageId, PoolId};

use self::stats::Tally;
pub use self::stats::{CopyBusy, CopyStats, PartCopies};
use crate::device::DeviceMemory;
use crate::gate::{Load, LoadFailed, LoadGate};
use crate::host::HostMemory;

/// Which way pages go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the device to the host.
    Backup,
    /// From the host to the device.
    Load,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Backup, Self::Load];

    /// The label value of metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Backup => "backup",
            Self::Load => "load",
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Backup => 0,
            Self::Load => 1,
        }
    }
}

/// One page of an index pool on both sides: the mirrored parts of it, on every rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyPage {
    /// The index pool.
    pub pool: PoolId,
    /// Its page on the device.
    pub device: PageId,
    /// Its page on the host.
    pub host: PageId,
}

/// The queue has no room: try again later, or do without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Full(pub Vec<CopyPage>);

/// Why a copy did not happen; what its target holds is unspecified.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("copying KV pages failed: {0}")]
pub struct CopyFailed(pub String);

/// A copy that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyDone {
    /// As submitted.
    pub id: u64,
    /// As submitted.
    pub direction: Direction,
    /// As submitted.
    pub pages: Vec<CopyPage>,
    /// Bytes moved of each part, all ranks together, in the order of `HostMemory::parts`.
    pub bytes: Vec<u64>,
    /// How long threads copied for it, the times of all ranks added up.
    pub busy: Duration,
    /// Whether every byte was moved.
    pub result: Result<(), CopyFailed>,
}

/// What a copy thread is about to do, for hooks of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyStep {
    /// The copy.
    pub id: u64,
    /// Its direction.
    pub direction: Direction,
    /// The rank.
    pub rank: usize,
    /// The model's layer that comes next; `None` where all layers go at once.
    pub layer: Option<usize>,
}

/// Called on copy threads before each step. It may wait, and a panic makes the copy fail.
pub type CopyHook = Arc<dyn Fn(CopyStep) + Send + Sync>;

/// Called on copy threads after each copy that has ended; must not block.
pub type CopyWaker = Arc<dyn Fn() + Send + Sync>;

/// The threads that copy. Dropping it ends what runs, gives up what is queued, and joins them.
pub struct CopyEngine {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    queue: usize,
}

/// What the threads and the engine share.
struct Shared {
    devices: Vec<Arc<DeviceMemory>>,
    host: Arc<HostMemory>,
    /// Number of each host part among those of the devices.
    device_parts: Vec<usize>,
    /// Every layer of every host part: the model's layer, the part, the layer's number in it;
    /// ascending.
    layers: Vec<(usize, usize, usize)>,
    /// The ranks of each thread.
    nodes: Vec<(Option<u32>, Vec<usize>)>,
    tally: Tally,
    clock: Clock,
    hook: Option<CopyHook>,
    waker: OnceLock<CopyWaker>,
    state: Mutex<State>,
    /// There is something to do, or it is over.
    work: Condvar,
    /// A copy has ended.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// One queue per thread.
    queues: Vec<VecDeque<Arc<Job>>>,
    /// Submitted and not ended, in order.
    running: Vec<Arc<Job>>,
    /// Ended and not polled.
    done: Vec<Arc<Job>>,
    stop: bool,
}

/// A submitted copy.
struct Job {
    id: u64,
    direction: Direction,
    pages: Vec<CopyPage>,
    /// Of a load.
    load: Option<Arc<Load>>,
    outcome: Mutex<Outcome>,
}

struct Outcome {
    /// Threads that are not done with it.
    threads: usize,
    bytes: Vec<u64>,
    busy: Duration,
    failed: Option<CopyFailed>,
}

impl std::fmt::Debug for CopyEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CopyEngine").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

impl CopyEngine {
    /// Starts the threads for `devices`, one per rank, and the `host` memory of as many ranks. Up
    /// to `queue` copies, at least one, may be submitted and not yet polled.
    ///
    /// # Panics
    /// Where the two have not the same ranks, a part of the host is not on a device or is laid out
    /// differently there, or the system starts no thread.
    #[must_use]
    pub fn new(devices: Vec<Arc<DeviceMemory>>, host: Arc<HostMemory>, queue: usize) -> Self {
        Self::start(devices, host, queue, None)
    }

    /// As [`new`](Self::new), with a hook that tests use to hold copies or to make them fail.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[must_use]
    pub fn with_hook(
        devices: Vec<Arc<DeviceMemory>>,
        host: Arc<HostMemory>,
        queue: usize,
        hook: CopyHook,
    ) -> Self {
        Self::start(devices, host, queue, Some(hook))
    }

    fn start(
        devices: Vec<Arc<DeviceMemory>>,
        host: Arc<HostMemory>,
        queue: usize,
        hook: Option<CopyHook>,
    ) -> Self {
        let shared = Arc::new(Shared::new(devices, host, hook));
        let thread = |node: usize| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name(format!("copy-{node}"))
                .spawn(move || shared.work(node))
                .expect("the operating system can start a copy thread")
        };
        let threads = (0..shared.nodes.len()).map(thread).collect();
        Self { shared, threads, queue: queue.max(1) }
    }

    /// Queues a copy of `pages`, all mirrored parts of their pools, on all ranks. Never blocks. A
    /// load goes layer by layer over all pages, together with loads queued right behind it.
    ///
    /// # Errors
    /// [`Full`] gives the pages back.
    pub fn submit(&self, id: u64, direction: Direction, pages: Vec<CopyPage>) -> Result<(), Full> {
        let mut state = self.shared.lock();
        if state.running.len() + state.done.len() >= self.queue {
            return Err(Full(pages));
        }
        let load = match direction {
            Direction::Backup => None,
            Direction::Load => Some(Load::new(self.shared.devices.len())),
        };
        let outcome = Mutex::new(Outcome {
            threads: self.threads.len(),
            bytes: vec![0; self.shared.device_parts.len()],
            busy: Duration::ZERO,
            failed: None,
        });
        let job = Arc::new(Job { id, direction, pages, load, outcome });
        for queue in &mut state.queues {
            queue.push_back(Arc::clone(&job));
        }
        state.running.push(job);
        drop(state);
        self.shared.work.notify_all();
        Ok(())
    }

    /// A gate over every load that may still run, and over failed ones that were not polled;
    /// `None` where there is none.
    #[must_use]
    pub fn gate(&self) -> Option<LoadGate> {
        let state = self.shared.lock();
        let failed = state.done.iter().filter(|job| job.outcome().failed.is_some());
        let loads = state.running.iter().chain(failed).filter_map(|job| job.load.clone());
        let loads: Vec<_> = loads.collect();
        (!loads.is_empty()).then(|| LoadGate::new(loads, self.shared.clock))
    }

    /// Moves the copies that have ended to `done`, in the order in which they did.
    pub fn poll(&self, done: &mut Vec<CopyDone>) {
        let ended = std::mem::take(&mut self.shared.lock().done);
        done.extend(ended.into_iter().map(|job| {
            let job = Arc::into_inner(job).expect("threads and queues let go of what has ended");
            let Outcome { bytes, busy, failed, .. } =
                job.outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
            let result = failed.map_or(Ok(()), Err);
            let Job { id, direction, pages, .. } = job;
            CopyDone { id, direction, pages, bytes, busy, result }
        }));
    }

    /// Blocks until the copy `id` has ended; returns at once where there is none of that number.
    pub fn wait(&self, id: u64) {
        let mut state = self.shared.lock();
        while state.running.iter().any(|job| job.id == id) {
            state = self.shared.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// From now on `waker` is called after each copy that has ended, when [`poll`](Self::poll) has
    /// it. The first one given stays.
    pub fn wake_with(&self, waker: CopyWaker) {
        drop(self.shared.waker.set(waker));
    }

    /// What was copied so far.
    #[must_use]
    pub fn stats(&self) -> CopyStats {
        let mut stats = CopyStats::default();
        self.stats_into(&mut stats);
        stats
    }

    /// As [`stats`](Self::stats); allocates nothing where `stats` was filled before.
    pub fn stats_into(&self, stats: &mut CopyStats) {
        let names = self.shared.host.host_parts().iter().map(|part| part.layout.name);
        self.shared.tally.fill(names, stats);
        let state = self.shared.lock();
        // Until it was polled, whoever ordered a copy keeps its pages.
        let jobs = || state.running.iter().chain(&state.done);
        let pending = |wanted: Direction| jobs().filter(|job| job.direction == wanted).count();
        stats.pending_backups = pending(Direction::Backup);
        stats.pending_loads = pending(Direction::Load);
    }
}

impl Drop for CopyEngine {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A thread catches the panics of its copies.
            drop(thread.join());
        }
    }
}

impl Shared {
    fn new(devices: Vec<Arc<DeviceMemory>>, host: Arc<HostMemory>, hook: Option<CopyHook>) -> Self {
        let nodes_of_ranks = &host.options().nodes;
        assert_eq!(devices.len(), nodes_of_ranks.len(), "as many devices as ranks of host memory");
        let find = |device: &DeviceMemory, part: &crate::PartLayout| {
            let found = device.parts().position(|own| {
                own.name == part.name
                    && own.layers == part.layers
                    && own.layer_bytes == part.layer_bytes
            });
            found.unwrap_or_else(|| panic!("no such part on the device: {part:?}"))
        };
        let device_parts: Vec<usize> =
            host.parts().map(|(part, _)| find(&devices[0], part)).collect();
        for device in &devices {
            let same =
                host.parts().zip(&device_parts).all(|((part, _), at)| find(device, part) == *at);
            assert!(same, "the parts of all ranks are in the same order");
        }
        let layers = host.parts().enumerate().flat_map(|(number, (part, _))| {
            part.layers.iter().enumerate().map(move |(at, layer)| (*layer, number, at))
        });
        let mut layers: Vec<_> = layers.collect();
        layers.sort_unstable();
        let mut nodes: Vec<(Option<u32>, Vec<usize>)> = Vec::new();
        for (rank, node) in nodes_of_ranks.iter().enumerate() {
            match nodes.iter_mut().find(|(known, _)| known == node) {
                Some((_, ranks)) => ranks.push(rank),
                None => nodes.push((*node, vec![rank])),
            }
        }
        let tally = Tally::new(devices.len(), device_parts.len());
        let queues = nodes.iter().map(|_| VecDeque::new()).collect();
        let state = Mutex::new(State { queues, ..State::default() });
        let (work, ended, waker) = (Condvar::new(), Condvar::new(), OnceLock::new());
        let clock = Clock::start();
        Self {
            devices,
            host,
            device_parts,
            layers,
            nodes,
            tally,
            clock,
            hook,
            waker,
            state,
            work,
            ended,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    fn outcome(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing more comes of this job from a thread with these ranks.
    fn end_load(&self, ranks: &[usize], failed: Option<&CopyFailed>) {
        if let Some(load) = &self.load {
            for rank in ranks {
                load.end(*rank, failed.map(|failed| LoadFailed(failed.0.clone())));
            }
        }
    }
}
