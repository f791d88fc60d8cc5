//! The hit-ratio curve on a thread of its own, fed by the engine without waiting.
//!
//! The engine sends what happens to requests into a bounded queue. What does not fit is counted and
//! forgotten: the curve is a statistic, a step is not. See `docs/adr/019-hit-ratio-curve.md`.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use kv_cache::{Candidate, CurveOptions, HitCurve, ResetReason};
use rustix::time::{ClockId, clock_gettime};

/// The most events that are applied before the snapshot is made new.
const BATCH: usize = 256;

/// What happened to a request. Keys name the whole pages of its tokens, chained.
#[derive(Debug, Clone)]
pub enum CurveEvent {
    /// It was looked up for the first time: not per chunk, not again after a preemption.
    Lookup {
        /// The pages of its prompt.
        keys: Arc<[u64]>,
        /// Tokens of its prompt.
        prompt_tokens: usize,
    },
    /// The first `pages` pages of `keys` are published.
    Publish {
        /// Those of its prompt, or of its prompt and its answer.
        keys: Arc<[u64]>,
        /// How many of them; at most all.
        pages: usize,
        /// How many of `keys` are of the prompt.
        prompt_pages: usize,
    },
    /// It ended before all pages of its prompt were published.
    Abort {
        /// The pages of its prompt.
        keys: Arc<[u64]>,
    },
}

enum Message {
    Event(CurveEvent),
    Reset(ResetReason),
    /// Everything before it is in the snapshot once this sender is dropped.
    Flush(SyncSender<()>),
    Stop,
}

/// The curve now.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CurveSnapshot {
    /// By ascending ratio.
    pub candidates: Vec<Candidate>,
    /// Prompt tokens of the requests seen.
    pub lookup_tokens: u64,
    /// Tokens of pages that no candidate could have had.
    pub cold_tokens: u64,
    /// Requests seen.
    pub requests: u64,
    /// Pages followed now.
    pub tracked_pages: usize,
    /// The share of all pages that is followed; 1 when exact.
    pub sampling_ratio: f64,
    /// Requests that the curve missed, or whose publication it missed, because its queue was full.
    pub dropped_requests: u64,
    /// Restarts from nothing, in the order of [`ResetReason::ALL`].
    pub resets: [u64; ResetReason::ALL.len()],
    /// CPU time of the thread.
    pub cpu: Duration,
}

#[derive(Debug, Default)]
struct Shared {
    snapshot: Mutex<CurveSnapshot>,
    dropped_requests: AtomicU64,
    /// Resets that found the queue full, as bits by reason.
    resets: AtomicU8,
}

impl Shared {
    fn snapshot(&self) -> MutexGuard<'_, CurveSnapshot> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Feeds the curve. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CurveSender {
    queue: SyncSender<Message>,
    shared: Arc<Shared>,
}

impl CurveSender {
    /// Hands an event over, or counts that it did not fit; neither waits nor allocates. `true` when
    /// the curve will see it.
    pub fn try_send(&self, event: CurveEvent) -> bool {
        // A lost abort leaves pages that nobody computes; they end matches until they fall out.
        let counts = matches!(event, CurveEvent::Lookup { .. } | CurveEvent::Publish { .. });
        let sent = self.queue.try_send(Message::Event(event)).is_ok();
        if !sent && counts {
            self.shared.dropped_requests.fetch_add(1, Ordering::Relaxed);
        }
        sent
    }

    /// Starts the curve from nothing. Is never lost: with a full queue it happens a little early.
    pub fn reset(&self, reason: ResetReason) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Message::Reset(reason)) {
            self.shared.resets.fetch_or(1 << reason as u8, Ordering::Release);
        }
    }
}

/// Owns the thread; it ends when this is dropped, after what is in the queue.
#[derive(Debug)]
pub struct Estimator {
    sender: CurveSender,
    thread: Option<JoinHandle<()>>,
}

impl Estimator {
    /// Starts the thread. `queue` is the most events that wait for it; at least 1.
    ///
    /// # Errors
    /// When the system gives no thread.
    ///
    /// # Panics
    /// As [`HitCurve::new`] does, or when `queue` is 0.
    pub fn new(options: CurveOptions, queue: usize) -> std::io::Result<Self> {
        assert!(queue > 0, "an event must fit");
        let curve = HitCurve::new(options);
        let (sender, receiver) = sync_channel(queue);
        let shared = Arc::new(Shared::default());
        publish(&curve, &shared);
        shared.snapshot().cpu = Duration::ZERO;
        let sender = CurveSender { queue: sender, shared: Arc::clone(&shared) };
        let run = move || run(curve, &receiver, &shared);
        let thread = std::thread::Builder::new().name("hit-curve".into()).spawn(run)?;
        Ok(Self { sender, thread: Some(thread) })
    }

    /// Feeds it.
    #[must_use]
    pub fn sender(&self) -> CurveSender {
        self.sender.clone()
    }

    /// The curve now; behind by what waits in the queue.
    #[must_use]
    pub fn snapshot(&self) -> CurveSnapshot {
        let mut snapshot = self.sender.shared.snapshot().clone();
        snapshot.dropped_requests = self.sender.shared.dropped_requests.load(Ordering::Relaxed);
        snapshot
    }

    /// Waits until everything sent before is in the snapshot.
    pub fn flush(&self) {
        let (answer, answered) = sync_channel(1);
        // A thread that is gone answers nothing, and there is nothing to wait for.
        if self.sender.queue.send(Message::Flush(answer)).is_ok() {
            for () in answered {}
        }
    }
}

impl Drop for Estimator {
    fn drop(&mut self) {
        // Senders may live on: they find nobody, and count what they lose.
        drop(self.sender.queue.send(Message::Stop));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn run(mut curve: HitCurve, queue: &Receiver<Message>, shared: &Shared) {
    while let Ok(first) = queue.recv() {
        let mut flushed = None;
        let rest = queue.try_iter().take(BATCH - 1);
        for message in std::iter::once(first).chain(rest) {
            late_resets(&mut curve, shared);
            match message {
                Message::Event(event) => apply(&mut curve, &event),
                Message::Reset(reason) => curve.reset(reason),
                Message::Stop => return publish(&curve, shared),
                Message::Flush(answer) => {
                    flushed = Some(answer);
                    break;
                }
            }
        }
        publish(&curve, shared);
        drop(flushed);
    }
}

fn late_resets(curve: &mut HitCurve, shared: &Shared) {
    let late = shared.resets.swap(0, Ordering::Acquire);
    for reason in ResetReason::ALL {
        if late & (1 << reason as u8) != 0 {
            curve.reset(reason);
        }
    }
}

fn apply(curve: &mut HitCurve, event: &CurveEvent) {
    match event {
        CurveEvent::Lookup { keys, prompt_tokens } => curve.lookup(keys, *prompt_tokens),
        CurveEvent::Publish { keys, pages, prompt_pages } => {
            curve.publish(&keys[..keys.len().min(*pages)], *prompt_pages);
        }
        CurveEvent::Abort { keys } => curve.abort(keys),
    }
}

fn publish(curve: &HitCurve, shared: &Shared) {
    let mut snapshot = shared.snapshot();
    snapshot.candidates.clear();
    snapshot.candidates.extend(curve.candidates());
    snapshot.lookup_tokens = curve.lookup_tokens();
    snapshot.cold_tokens = curve.cold_tokens();
    snapshot.requests = curve.requests();
    snapshot.tracked_pages = curve.tracked_pages();
    snapshot.sampling_ratio = curve.sampling_ratio();
    snapshot.resets = ResetReason::ALL.map(|reason| curve.resets(reason));
    snapshot.cpu = cpu_time();
}

/// CPU time of the calling thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // The clock starts at 0 with the thread.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
