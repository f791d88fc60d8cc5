//! Gates: a forward pass waits at each layer for the copies that bring the layer's rows.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use types::Clock;

/// All layers are there, or will never be.
const ENDED: usize = usize::MAX;

/// A copy into pages of the batch did not happen; what the pages hold is unspecified.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("loading KV pages from host memory failed: {0}")]
pub struct LoadFailed(pub String);

/// Loads that somebody carries out, as those who wait for them see them.
pub trait Loads: Send + Sync {
    /// As [`LoadGate::wait`].
    ///
    /// # Errors
    /// [`LoadFailed`] where one of the loads ended without success.
    fn wait(&self, rank: usize, layer: usize) -> Result<(), LoadFailed>;

    /// As [`LoadGate::wait_all`].
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    fn wait_all(&self) -> Result<(), LoadFailed>;

    /// As [`LoadGate::is_open`].
    fn is_open(&self, rank: usize, layer: usize) -> bool;

    /// As [`LoadGate::waited`].
    fn waited(&self) -> Duration;
}

/// The loads that may still run when a step begins. A runner passes [`wait`](Self::wait) before it
/// reads the rows of a layer. Clones are the same gate.
#[derive(Clone)]
pub struct LoadGate {
    loads: Arc<dyn Loads>,
}

/// The loads of a copy engine.
struct Running {
    loads: Vec<Arc<Load>>,
    /// Per rank: nanoseconds spent in waiting.
    waited: Vec<AtomicU64>,
    clock: Clock,
}

/// How far one load has come, on every rank.
#[derive(Debug)]
pub(crate) struct Load {
    /// Per rank: so many of the model's layers are there, from the first on.
    ready: Vec<AtomicUsize>,
    failed: Mutex<Option<LoadFailed>>,
    changed: Condvar,
}

impl LoadGate {
    /// A gate over `loads`: for copies that are carried out by somebody else than a
    /// [`CopyEngine`](crate::CopyEngine).
    #[must_use]
    pub fn over(loads: Arc<dyn Loads>) -> Self {
        Self { loads }
    }

    pub(crate) fn new(loads: Vec<Arc<Load>>, clock: Clock) -> Self {
        let ranks = loads.iter().map(|load| load.ready.len()).max().unwrap_or(0);
        let waited = (0..ranks).map(|_| AtomicU64::new(0)).collect();
        Self::over(Arc::new(Running { loads, waited, clock }))
    }

    /// Waits until all rows of the model's layer `layer` that are loaded on `rank` are in device
    /// memory.
    ///
    /// # Errors
    /// [`LoadFailed`] where one of the loads ended without success.
    ///
    /// # Panics
    /// Where there is no such rank.
    pub fn wait(&self, rank: usize, layer: usize) -> Result<(), LoadFailed> {
        self.loads.wait(rank, layer)
    }

    /// Whether [`wait`](Self::wait) would return at once and without an error.
    #[must_use]
    pub fn is_open(&self, rank: usize, layer: usize) -> bool {
        self.loads.is_open(rank, layer)
    }

    /// Waits for all layers on all ranks.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_all(&self) -> Result<(), LoadFailed> {
        self.loads.wait_all()
    }

    /// For how long the waits of one rank lasted so far: of the rank that waited longest. A forward
    /// pass lost at least that time.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.loads.waited()
    }
}

impl Running {
    fn pass(&self, load: &Load, rank: usize, layer: usize) -> Result<(), LoadFailed> {
        if load.is_there(rank, layer) {
            return Ok(());
        }
        let start = self.clock.now();
        let passed = load.wait(rank, layer);
        let nanos = u64::try_from(self.clock.now().since(start).as_nanos()).unwrap_or(u64::MAX);
        self.waited[rank].fetch_add(nanos, Ordering::Relaxed);
        passed
    }
}

impl Loads for Running {
    fn wait(&self, rank: usize, layer: usize) -> Result<(), LoadFailed> {
        self.loads.iter().try_for_each(|load| self.pass(load, rank, layer))
    }

    fn wait_all(&self) -> Result<(), LoadFailed> {
        let ranks = |load: &Arc<Load>| {
            (0..load.ready.len()).try_for_each(|rank| self.pass(load, rank, ENDED - 1))
        };
        self.loads.iter().try_for_each(ranks)
    }

    fn is_open(&self, rank: usize, layer: usize) -> bool {
        let open = |load: &Arc<Load>| {
            load.ready[rank].load(Ordering::Acquire) > layer && load.lock().is_none()
        };
        self.loads.iter().all(open)
    }

    fn waited(&self) -> Duration {
        let nanos = self.waited.iter().map(|nanos| nanos.load(Ordering::Relaxed)).max();
        Duration::from_nanos(nanos.unwrap_or(0))
    }
}

impl std::fmt::Debug for LoadGate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadGate").finish_non_exhaustive()
    }
}

impl PartialEq for LoadGate {
    /// Whether it is the same gate.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.loads, &other.loads)
    }
}

impl Eq for LoadGate {}

impl Load {
    pub(crate) fn new(ranks: usize) -> Arc<Self> {
        Arc::new(Self {
            ready: (0..ranks).map(|_| AtomicUsize::new(0)).collect(),
            failed: Mutex::new(None),
            changed: Condvar::new(),
        })
    }

    /// The layers below `layers` are there on `rank`.
    pub(crate) fn advance(&self, rank: usize, layers: usize) {
        // Written under the lock, so that a waiter between its look and its sleep is not missed.
        let lock = self.lock();
        self.ready[rank].store(layers, Ordering::Release);
        drop(lock);
        self.changed.notify_all();
    }

    /// Nothing more comes on `rank`: all is there, or `failed` says why not.
    pub(crate) fn end(&self, rank: usize, failed: Option<LoadFailed>) {
        let mut lock = self.lock();
        if let Some(failed) = failed {
            lock.get_or_insert(failed);
        }
        self.ready[rank].store(ENDED, Ordering::Release);
        drop(lock);
        self.changed.notify_all();
    }

    /// Whether the rows of the layer are there, and more are coming. Where nothing more comes, only
    /// [`wait`](Self::wait) says whether they are.
    fn is_there(&self, rank: usize, layer: usize) -> bool {
        let ready = self.ready[rank].load(Ordering::Acquire);
        ready > layer && ready != ENDED
    }

    fn wait(&self, rank: usize, layer: usize) -> Result<(), LoadFailed> {
        let there = || self.ready[rank].load(Ordering::Acquire);
        let mut lock = self.lock();
        while there() <= layer && lock.is_none() {
            lock = self.changed.wait(lock).unwrap_or_else(PoisonError::into_inner);
        }
        lock.clone().map_or(Ok(()), Err)
    }

    fn lock(&self) -> MutexGuard<'_, Option<LoadFailed>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_opens_layer_by_layer_and_rank_by_rank() {
        let loads = [Load::new(2), Load::new(2)];
        let gate = LoadGate::new(loads.to_vec(), Clock::start());
        loads[0].end(0, None);
        loads[1].advance(0, 3);
        assert_eq!(gate.wait(0, 2), Ok(()));
        let waiter = {
            let gate = gate.clone();
            std::thread::spawn(move || (gate.wait(0, 3), gate.wait_all()))
        };
        loads[1].end(0, None);
        loads[0].end(1, None);
        loads[1].end(1, Some(LoadFailed("gone".into())));
        let (_, all) = waiter.join().unwrap();
        assert_eq!(all, Err(LoadFailed("gone".into())));
        assert_eq!(gate.wait(0, 9), Err(LoadFailed("gone".into())));
        assert!(gate == gate.clone() && gate != LoadGate::new(loads.to_vec(), Clock::start()));
    }
}
