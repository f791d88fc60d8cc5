//! Runs collectors: blocking ones on a thread each, asynchronous ones as tasks with a deadline.
//!
//! A collection that hangs keeps its thread (or loses its task at the deadline) and nothing else:
//! nobody waits for it, and it is not started a second time while it runs. The first collection
//! begins at once, the second at a moment that differs between collectors, so that they do not all
//! run in the same millisecond for ever.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{CollectError, CollectorName, ErrorKind, Now, Slot};

/// Stack of a collector's thread: parsers of small files need little of it.
const STACK_BYTES: usize = 256 << 10;

/// Tells collectors to end; both kinds can wait for it.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    token: CancellationToken,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl Stop {
    /// Nobody is told yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Tells everybody.
    pub fn stop(&self) {
        *self.gate.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.gate.1.notify_all();
        self.token.cancel();
    }

    /// Whether everybody was told.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Waits for `time`, less if told to end. Says whether it was. Blocks: for threads.
    #[must_use]
    pub fn wait(&self, time: Duration) -> bool {
        let told = self.gate.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.gate.1.wait_timeout_while(told, time, |told| !*told);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Resolves when told to end. For tasks.
    pub async fn stopped(&self) {
        self.token.cancelled().await;
    }
}

/// Runs `collect` every interval of the slot on a thread of its own, until `stop`. Returns at once;
/// the thread is never joined, because it may hang.
///
/// # Errors
/// The system gives no thread.
pub fn run_blocking<T: Send + Sync + 'static>(
    slot: Slot<T>,
    stop: Stop,
    mut collect: impl FnMut() -> Result<T, CollectError> + Send + 'static,
) -> io::Result<()> {
    let name = format!("collect-{}", slot.name().as_str());
    let thread = thread::Builder::new().name(name).stack_size(STACK_BYTES);
    let work = move || {
        let mut pause = first_pause(slot.name(), slot.interval());
        while !stop.is_stopped() {
            slot.begin(Now::read());
            let result = catch_unwind(AssertUnwindSafe(&mut collect));
            end(&slot, result.unwrap_or_else(|_| Err(panicked())));
            if stop.wait(pause) {
                return;
            }
            pause = slot.interval();
        }
    };
    thread.spawn(work).map(drop)
}

/// Runs `collect` every interval of the slot as a task of the tracker, until `stop`. A collection
/// that takes longer than `deadline` is dropped where it waits and counts as `timeout`.
pub fn run_async<T: Send + Sync + 'static>(
    slot: Slot<T>,
    tasks: &TaskTracker,
    stop: Stop,
    deadline: Duration,
    mut collect: impl AsyncFnMut() -> Result<T, CollectError> + 'static,
) {
    let work = async move {
        let mut pause = first_pause(slot.name(), slot.interval());
        loop {
            slot.begin(Now::read());
            let late = || CollectError::new(ErrorKind::Timeout, format!("no end in {deadline:?}"));
            let result = tokio::select! {
                () = stop.stopped() => return,
                result = tokio::time::timeout(deadline, collect()) => result,
            };
            end(&slot, result.unwrap_or_else(|_| Err(late())));
            tokio::select! {
                () = stop.stopped() => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = slot.interval();
        }
    };
    drop(tasks.spawn_local(work));
}

/// Leaves the result in the slot. What fails is logged when it starts to fail, and when it works
/// again: not every second.
pub(crate) fn end<T>(slot: &Slot<T>, result: Result<T, CollectError>) {
    let now = Now::read();
    let before = slot.view(now).status;
    slot.finish(now, result);
    let after = slot.view(now).status;
    let collector = after.name.as_str();
    match (&before.error, &after.error) {
        (None, Some(error)) => tracing::warn!(collector, %error, "A collector fails."),
        (Some(_), None) => tracing::info!(collector, "A collector works again."),
        (Some(old), Some(new)) if old != new => {
            tracing::debug!(collector, error = %new, "A collector fails differently.");
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
    if let Some(why) = after.unsupported.filter(|_| before.unsupported.is_none()) {
        tracing::info!(collector, why, "There is nothing to collect.");
    }
}

fn panicked() -> CollectError {
    CollectError::new(ErrorKind::Internal, "the collector panicked")
}

/// Between half an interval and a whole one, by the collector's place in the list.
fn first_pause(name: CollectorName, interval: Duration) -> Duration {
    let all = CollectorName::ALL.len() as f64;
    interval.mul_f64(0.5 + 0.5 * name.index() as f64 / all)
}
