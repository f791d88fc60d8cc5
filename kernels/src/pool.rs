//! A fixed set of worker threads for data-parallel loops.
//!
//! Workers spin briefly for the next job and then sleep, so a decode step of many short loops pays
//! microseconds per loop and an idle pool uses no CPU. Running a job allocates nothing.
//! This is no task scheduler: one job runs at a time and jobs do not nest, except in another pool.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::buffer::SharedOut;

/// How often a thread looks again before it sleeps; tens of microseconds.
const SPINS: u32 = 1_500;

/// After so many looks (about a microsecond), and then every so many, a thread lets others have
/// its core: on a busy machine the one it waits for may need that core.
const SPINS_PER_YIELD: u32 = 64;

/// The closure of a job: worker index, number of workers.
type Job<'a> = dyn Fn(usize, usize) + Sync + 'a;

thread_local! {
    /// The address of the pool whose job runs on this thread, the innermost; 0: none.
    static IN_JOB: Cell<usize> = const { Cell::new(0) };
}

/// Persistent workers. The calling thread works too, as worker 0.
pub struct ThreadPool {
    shared: Arc<Shared>,
    handles: Vec<JoinHandle<()>>,
    /// Serialises callers: one job at a time.
    turn: Mutex<()>,
}

struct Shared {
    workers: usize,
    spins: u32,
    /// Number of the current job; a change wakes the workers.
    epoch: AtomicU64,
    /// Written only while no worker is inside a job.
    job: UnsafeCell<Option<*const Job<'static>>>,
    /// Workers (without the caller) that have not finished the current job.
    remaining: AtomicUsize,
    stop: AtomicBool,
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
    caller_waits: AtomicBool,
    done_lock: Mutex<()>,
    done: Condvar,
    /// The first panic of the current job.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `job` is the only field that is not `Send`/`Sync` by itself. It is written by the caller
// while every worker waits for the next epoch and read after the epoch's release store.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl ThreadPool {
    /// A pool of `threads` workers, the caller's thread included; 0 counts as 1.
    ///
    /// # Panics
    /// When the operating system refuses to start a thread.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let workers = threads.max(1);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shared = Arc::new(Shared {
            workers,
            // Spinning on a core that the other side needs only delays it.
            spins: if workers <= cores { SPINS } else { 1 },
            epoch: AtomicU64::new(0),
            job: UnsafeCell::new(None),
            remaining: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            caller_waits: AtomicBool::new(false),
            done_lock: Mutex::new(()),
            done: Condvar::new(),
            panic: Mutex::new(None),
        });
        let handles = (1..workers)
            .map(|index| {
                let shared = Arc::clone(&shared);
                std::thread::Builder::new()
                    .name(format!("kernel-{index}"))
                    .spawn(move || shared.work(index))
                    .expect("the operating system can start a kernel thread")
            })
            .collect();
        Self { shared, handles, turn: Mutex::new(()) }
    }

    /// Number of workers, the caller included.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.shared.workers
    }

    /// Calls `job(worker, workers)` once on every worker and returns when all are done.
    ///
    /// # Panics
    /// When a worker's call panics (with its payload, after all have finished), and when called
    /// from inside a job of this pool.
    pub fn run<F: Fn(usize, usize) + Sync>(&self, job: F) {
        if self.shared.workers == 1 {
            let _mark = self.shared.enter();
            job(0, 1);
            return;
        }
        let nested = IN_JOB.get() == self.shared.address();
        assert!(!nested, "ThreadPool::run must not be called from inside a job");
        let turn = lock(&self.turn);
        let outcome = self.shared.run(&job);
        drop(turn);
        if let Err(payload) = outcome {
            resume_unwind(payload);
        }
    }

    /// Splits `0..items` into ranges of about `grain` and lets the workers take them in turn.
    ///
    /// Which worker takes which range is not defined; results must not depend on it. Runs on the
    /// caller alone when there is only one range.
    ///
    /// # Panics
    /// As [`ThreadPool::run`].
    pub fn parallel_for<F: Fn(Range<usize>) + Sync>(&self, items: usize, grain: usize, body: F) {
        let grain = grain.max(1);
        if items <= grain || self.shared.workers == 1 {
            if items > 0 {
                body(0..items);
            }
            return;
        }
        let next = AtomicUsize::new(0);
        self.run(|_, _| {
            loop {
                let start = next.fetch_add(grain, Ordering::Relaxed);
                if start >= items {
                    break;
                }
                body(start..items.min(start + grain));
            }
        });
    }

    /// Calls `body(index, row)` for every row of `row_len` values of `data`, `grain` rows a turn.
    ///
    /// # Panics
    /// When `data` is not whole rows; and as [`ThreadPool::run`].
    pub fn for_each_row<T: Send, F: Fn(usize, &mut [T]) + Sync>(
        &self,
        data: &mut [T],
        row_len: usize,
        grain: usize,
        body: F,
    ) {
        if data.is_empty() {
            return;
        }
        assert!(
            row_len > 0 && data.len().is_multiple_of(row_len),
            "{} values are not whole rows of {row_len}",
            data.len()
        );
        let rows = data.len() / row_len;
        let out = SharedOut::new(data);
        self.parallel_for(rows, grain, |range| {
            for row in range {
                // SAFETY: `parallel_for` hands out each row index once, so rows do not overlap.
                body(row, unsafe { out.slice(row * row_len..(row + 1) * row_len) });
            }
        });
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.publish();
        for handle in self.handles.drain(..) {
            // A worker catches its jobs' panics, so joining cannot report one.
            drop(handle.join());
        }
    }
}

impl Shared {
    /// Runs one job on all workers; the first panic is the error.
    fn run(&self, job: &Job<'_>) -> Result<(), Box<dyn Any + Send>> {
        let job: *const Job<'_> = job;
        // SAFETY: only the lifetime is erased. Workers use the pointer between the epoch store
        // below and their decrement of `remaining`, and this function returns after all did.
        let job: *const Job<'static> = unsafe { std::mem::transmute(job) };
        // SAFETY: no worker is inside a job: the last run waited for `remaining` to be 0, and the
        // caller holds the pool's turn.
        unsafe { *self.job.get() = Some(job) };
        self.remaining.store(self.workers - 1, Ordering::SeqCst);
        self.publish();
        self.call(job, 0);
        self.wait_done();
        match lock(&self.panic).take() {
            None => Ok(()),
            Some(payload) => Err(payload),
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Marks the thread as inside a job of this pool.
    fn enter(&self) -> JobMark {
        JobMark(IN_JOB.replace(self.address()))
    }

    /// Starts the next epoch and wakes sleeping workers.
    fn publish(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        // Either a worker that goes to sleep sees the new epoch, or this load sees the worker:
        // both sides write first and read second, sequentially consistent.
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.sleep));
            self.wake.notify_all();
        }
    }

    /// Calls the job as `worker` and keeps the first panic.
    fn call(&self, job: *const Job<'static>, worker: usize) {
        let result = catch_unwind(AssertUnwindSafe(|| {
            let _mark = self.enter();
            // SAFETY: `Shared::run` keeps the closure alive until every worker has finished.
            unsafe { (*job)(worker, self.workers) }
        }));
        if let Err(payload) = result {
            lock(&self.panic).get_or_insert(payload);
        }
    }

    fn wait_done(&self) {
        for spin in 0..self.spins {
            if self.remaining.load(Ordering::Acquire) == 0 {
                return;
            }
            pause(spin);
        }
        let mut guard = lock(&self.done_lock);
        self.caller_waits.store(true, Ordering::SeqCst);
        while self.remaining.load(Ordering::SeqCst) != 0 {
            guard = self.done.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.caller_waits.store(false, Ordering::SeqCst);
    }

    /// The life of a worker thread.
    fn work(&self, worker: usize) {
        let mut seen = 0;
        loop {
            seen = self.next_epoch(seen);
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            // SAFETY: the epoch load synchronises with the store made after `job` was written,
            // and it is not written again before this worker decrements `remaining`.
            if let Some(job) = unsafe { *self.job.get() } {
                self.call(job, worker);
            }
            if self.remaining.fetch_sub(1, Ordering::SeqCst) == 1
                && self.caller_waits.load(Ordering::SeqCst)
            {
                drop(lock(&self.done_lock));
                self.done.notify_all();
            }
        }
    }

    /// Waits until the epoch differs from `seen`: first spinning, then asleep.
    fn next_epoch(&self, seen: u64) -> u64 {
        for spin in 0..self.spins {
            let epoch = self.epoch.load(Ordering::Acquire);
            if epoch != seen {
                return epoch;
            }
            pause(spin);
        }
        let mut guard = lock(&self.sleep);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let epoch = loop {
            let epoch = self.epoch.load(Ordering::SeqCst);
            if epoch != seen {
                break epoch;
            }
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        epoch
    }
}

/// A short wait between two looks.
fn pause(spin: u32) {
    if spin % SPINS_PER_YIELD == SPINS_PER_YIELD - 1 {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

/// Marks the thread as inside a job for its lifetime; holds the mark before it.
struct JobMark(usize);

impl Drop for JobMark {
    fn drop(&mut self) {
        IN_JOB.set(self.0);
    }
}

/// The guarded data stay valid when a thread panics, so poison means nothing here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
