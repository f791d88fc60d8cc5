//! The hit-ratio curve beside the engine: a thread of its own, fed through a bounded queue.
//!
//! The engine's thread only puts events into the queue: it neither waits nor allocates, and what
//! finds the queue full is counted and forgotten. Pages are hashed at the front door and, for
//! answers, on the estimator's thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kv_cache::{Candidate, CurveOptions, HitCurve, Namespace, ResetReason, page_keys};
use rustix::time::{ClockId, clock_gettime};
use types::TokenId;

#[cfg(test)]
mod tests;

/// Events that may wait for the estimator; a request has three or four.
const QUEUE: usize = 4096;

/// What happened to a request.
#[derive(Debug)]
enum Event {
    LookedUp {
        keys: Arc<[u64]>,
        prompt_tokens: usize,
    },
    Published {
        keys: Arc<[u64]>,
        pages: usize,
    },
    Ended {
        keys: Arc<[u64]>,
        namespace: Namespace,
        tokens: Vec<TokenId>,
        computed: usize,
    },
    /// Wakes the thread up; what is wanted is in `Shared::flush`.
    Flushed,
    /// Answered when everything before it is done.
    #[cfg(test)]
    Ask(SyncSender<()>),
}

/// The curve, read at any time.
#[derive(Debug, Clone, PartialEq)]
pub struct CurveSnapshot {
    /// Each candidate, by ascending ratio.
    pub candidates: Vec<Candidate>,
    /// Prompt tokens of the requests seen.
    pub lookup_tokens: u64,
    /// Tokens of pages that no candidate could have had.
    pub cold_tokens: u64,
    /// Requests seen.
    pub requests: u64,
    /// Pages followed.
    pub tracked_pages: usize,
    /// Share of the pages that stand for all; 1 where all are followed.
    pub sampling_ratio: f64,
    /// Events that found the queue full.
    pub dropped: u64,
    /// Times that it started again because the cache was flushed.
    pub flushes: u64,
    /// CPU time of the thread.
    pub cpu: Duration,
}

/// What the thread, its feeders and its readers share.
#[derive(Debug)]
struct Shared {
    curve: Mutex<HitCurve>,
    page_tokens: usize,
    /// The cache was emptied; kept beside the queue, so that it is never lost.
    flush: AtomicBool,
    dropped: AtomicU64,
    cpu_nanoseconds: AtomicU64,
}

impl Shared {
    fn curve(&self) -> MutexGuard<'_, HitCurve> {
        self.curve.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Owns the curve. Cheap to clone; the thread ends when the last clone and the last [`Follower`]
/// are gone.
#[derive(Debug, Clone)]
pub struct Estimator {
    events: SyncSender<Event>,
    shared: Arc<Shared>,
}

impl Estimator {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's, when it gives no thread.
    pub fn start(options: CurveOptions) -> std::io::Result<Self> {
        Self::with_queue(options, QUEUE)
    }

    fn with_queue(options: CurveOptions, queue: usize) -> std::io::Result<Self> {
        let (events, inbox) = sync_channel(queue);
        let shared = Arc::new(Shared {
            page_tokens: options.page_tokens,
            curve: Mutex::new(HitCurve::new(options)),
            flush: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            cpu_nanoseconds: AtomicU64::new(0),
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("hit-curve".to_owned());
        thread.spawn(move || run(&inbox, &own))?;
        Ok(Self { events, shared })
    }

    /// What a request of `prompt` carries through the engine. Hashes the prompt: not for the
    /// engine's thread.
    #[must_use]
    pub fn follow(&self, namespace: &Namespace, prompt: &[TokenId]) -> Follower {
        let keys = page_keys(namespace, prompt, self.shared.page_tokens).into();
        Follower { keys, estimator: self.clone() }
    }

    /// The curve now.
    #[must_use]
    pub fn snapshot(&self) -> CurveSnapshot {
        let curve = self.shared.curve();
        CurveSnapshot {
            candidates: curve.candidates().collect(),
            lookup_tokens: curve.lookup_tokens(),
            cold_tokens: curve.cold_tokens(),
            requests: curve.requests(),
            tracked_pages: curve.tracked_pages(),
            sampling_ratio: curve.sampling_ratio(),
            dropped: self.shared.dropped.load(Ordering::Relaxed),
            flushes: curve.resets(ResetReason::Flush),
            cpu: Duration::from_nanos(self.shared.cpu_nanoseconds.load(Ordering::Relaxed)),
        }
    }

    fn tell(&self, event: Event) {
        match self.events.try_send(event) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The estimator's eye on one request.
#[derive(Debug, Clone)]
pub struct Follower {
    keys: Arc<[u64]>,
    estimator: Estimator,
}

impl Follower {
    /// The request is looked up in the prefix cache for the first time.
    pub(crate) fn looked_up(&self, prompt_tokens: usize) {
        let keys = Arc::clone(&self.keys);
        self.estimator.tell(Event::LookedUp { keys, prompt_tokens });
    }

    /// The rows of its first `computed` tokens are there for others.
    pub(crate) fn published(&self, computed: usize) {
        let pages = computed / self.estimator.shared.page_tokens;
        self.estimator.tell(Event::Published { keys: Arc::clone(&self.keys), pages });
    }

    /// It has ended and leaves the rows of its first `computed` tokens to others.
    pub(crate) fn ended(self, namespace: Namespace, tokens: Vec<TokenId>, computed: usize) {
        let Self { keys, estimator } = self;
        estimator.tell(Event::Ended { keys, namespace, tokens, computed });
    }

    /// The cache is emptied.
    pub(crate) fn flushed(&self) {
        self.estimator.shared.flush.store(true, Ordering::Release);
        // Where the queue is full the thread is awake anyway.
        drop(self.estimator.events.try_send(Event::Flushed));
    }
}

fn run(inbox: &Receiver<Event>, shared: &Shared) {
    for event in inbox {
        let mut curve = shared.curve();
        if shared.flush.swap(false, Ordering::Acquire) {
            curve.reset(ResetReason::Flush);
        }
        match event {
            Event::LookedUp { keys, prompt_tokens } => curve.lookup(&keys, prompt_tokens),
            Event::Published { keys, pages } => {
                curve.publish(&keys[..pages.min(keys.len())], keys.len());
            }
            Event::Ended { keys, namespace, tokens, computed } => {
                let computed = &tokens[..computed.min(tokens.len())];
                let all = page_keys(&namespace, computed, shared.page_tokens);
                curve.publish(&all, keys.len());
                curve.abort(&keys);
            }
            Event::Flushed => {}
            #[cfg(test)]
            Event::Ask(answer) => drop(answer.send(())),
        }
        drop(curve);
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let cpu = cpu.tv_sec.unsigned_abs() * 1_000_000_000 + cpu.tv_nsec.unsigned_abs();
        shared.cpu_nanoseconds.store(cpu, Ordering::Relaxed);
    }
}
