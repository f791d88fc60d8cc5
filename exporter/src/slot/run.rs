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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use tokio::task::LocalSet;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn slot() -> Slot<u32> {
        Slot::new(CollectorName::Pressure, Duration::from_millis(1))
    }

    fn next<T>(calls: &Receiver<T>) -> T {
        calls.recv_timeout(PATIENCE).expect("it goes on")
    }

    #[test]
    fn a_collector_that_panics_fails_and_goes_on() {
        let (slot, stop, (sender, calls)) = (slot(), Stop::new(), channel());
        let mut count = 0;
        let collect = move || {
            count += 1;
            let _sent = sender.send(count);
            assert_ne!(count, 1, "this panic is part of the test");
            Ok(count)
        };
        run_blocking(slot.clone(), stop.clone(), collect).expect("a thread");
        while next(&calls) < 3 {}
        stop.stop();
        let view = slot.view(Now::read());
        assert_eq!(view.status.errors[ErrorKind::Internal.index()], 1);
        assert!(view.last_good.is_some_and(|facts| *facts >= 2));
        // The thread ends, and with it the sender.
        while calls.recv_timeout(PATIENCE).is_ok() {}
        assert!(stop.is_stopped() && stop.wait(PATIENCE), "nobody waits once told");
    }

    #[test]
    fn a_collection_that_hangs_is_not_started_again() {
        let (slot, stop, (sender, calls)) = (slot(), Stop::new(), channel());
        let (release, held) = channel::<()>();
        let collect = move || {
            let _sent = sender.send(());
            let _hung = held.recv();
            Ok(1)
        };
        run_blocking(slot.clone(), stop.clone(), collect).expect("a thread");
        next(&calls);
        let later = Now::read() + Duration::from_secs(60);
        let status = slot.view(later).status;
        assert!(status.stuck >= Duration::from_secs(60) && status.age.is_none());
        assert!(calls.try_recv().is_err(), "once is enough");
        // Hanging up lets this one end, and those that follow.
        drop(release);
        next(&calls);
        assert!(slot.view(Now::read()).last_good.is_some());
        stop.stop();
    }

    #[test]
    fn a_task_that_takes_too_long_is_dropped_at_its_deadline() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
        let (slot, stop) = (slot(), Stop::new());
        let fourth = std::rc::Rc::new(tokio::sync::Notify::new());
        LocalSet::new().block_on(&runtime, async {
            let tasks = TaskTracker::new();
            let (mut count, begins) = (0, std::rc::Rc::clone(&fourth));
            let collect = async move || {
                count += 1;
                if count == 4 {
                    begins.notify_one();
                }
                if count < 3 {
                    std::future::pending::<()>().await;
                }
                Ok(count)
            };
            let deadline = Duration::from_secs(3);
            run_async(slot.clone(), &tasks, stop.clone(), deadline, collect);
            let begun = tokio::time::Instant::now();
            fourth.notified().await;
            assert!(begun.elapsed() >= deadline * 2, "{:?}", begun.elapsed());
            stop.stop();
            tasks.close();
            tasks.wait().await;
        });
        assert_eq!(slot.view(Now::read()).status.errors[ErrorKind::Timeout.index()], 2);
        assert!(slot.view(Now::read()).last_good.is_some_and(|facts| *facts >= 3));
    }

    #[test]
    fn collectors_begin_their_second_collection_apart() {
        let interval = Duration::from_secs(8);
        let all = CollectorName::ALL;
        let mut pauses: Vec<_> = all.iter().map(|name| first_pause(*name, interval)).collect();
        pauses.dedup();
        assert_eq!(pauses.len(), all.len());
        assert!(pauses.iter().all(|pause| *pause >= interval / 2 && *pause <= interval));
    }
}
