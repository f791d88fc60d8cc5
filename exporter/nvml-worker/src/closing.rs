//! Ending: every thread is told, and waited for a while.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Held by a thread for as long as it may be inside the library.
#[derive(Debug, Clone)]
pub(crate) struct Alive {
    closing: Arc<Closing>,
    _held: SyncSender<()>,
}

#[derive(Debug, Default)]
struct Closing {
    closing: Mutex<bool>,
    told: Condvar,
}

impl Alive {
    /// Waits, unless it is time to end. Says whether it is.
    pub(crate) fn ends_within(&self, wait: Duration) -> bool {
        let closing = self.closing.closing.lock().unwrap_or_else(PoisonError::into_inner);
        let told = self.closing.told.wait_timeout_while(closing, wait, |closing| !*closing);
        *told.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The other end of every [`Alive`].
#[derive(Debug)]
pub(crate) struct Threads {
    alive: Alive,
    gone: Receiver<()>,
}

impl Threads {
    pub(crate) fn new() -> Self {
        let (held, gone) = sync_channel(0);
        Self { alive: Alive { closing: Arc::default(), _held: held }, gone }
    }

    pub(crate) fn alive(&self) -> Alive {
        self.alive.clone()
    }

    /// Tells every thread to end and waits for them. Says whether all have.
    pub(crate) fn end(self, patience: Duration) -> bool {
        let Self { alive, gone } = self;
        *alive.closing.closing.lock().unwrap_or_else(PoisonError::into_inner) = true;
        alive.closing.told.notify_all();
        drop(alive);
        // Nobody sends: the channel ends when the last thread does.
        matches!(gone.recv_timeout(patience), Err(RecvTimeoutError::Disconnected))
    }
}
