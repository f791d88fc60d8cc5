//! Who moves pages between the tiers: threads with real bytes, or nobody where there are none.

use std::sync::Arc;
use std::time::Duration;

use memory_pool::{
    CopyDone, CopyEngine, CopyPage, CopyStats, CopyWaker, Direction, Full, LoadGate,
};
use model::PageMover;

/// Carries out copies in the order in which they are submitted, each direction for itself at
/// least. None of it blocks but [`wait`](Self::wait).
pub(crate) trait Copier: Send {
    /// Queues a copy.
    ///
    /// # Errors
    /// [`Full`] gives the pages back.
    fn submit(&mut self, id: u64, direction: Direction, pages: Vec<CopyPage>) -> Result<(), Full>;

    /// A gate over every load that may still run; `None` where there is none.
    fn gate(&self) -> Option<LoadGate>;

    /// Moves the copies that have ended to `done`, in the order in which they did.
    fn poll(&mut self, done: &mut Vec<CopyDone>);

    /// Blocks until the copy `id` has ended.
    fn wait(&mut self, id: u64);

    /// From now on `waker` is called when a copy has ended that nobody waits for.
    fn wake_with(&mut self, waker: CopyWaker);

    /// What was copied so far.
    fn stats_into(&self, stats: &mut CopyStats);
}

impl Copier for CopyEngine {
    fn submit(&mut self, id: u64, direction: Direction, pages: Vec<CopyPage>) -> Result<(), Full> {
        Self::submit(self, id, direction, pages)
    }

    fn gate(&self) -> Option<LoadGate> {
        Self::gate(self)
    }

    fn poll(&mut self, done: &mut Vec<CopyDone>) {
        Self::poll(self, done);
    }

    fn wait(&mut self, id: u64) {
        Self::wait(self, id);
    }

    fn wake_with(&mut self, waker: CopyWaker) {
        Self::wake_with(self, waker);
    }

    fn stats_into(&self, stats: &mut CopyStats) {
        Self::stats_into(self, stats);
    }
}

/// For models without bytes: every copy is done as soon as it is submitted.
pub(crate) struct NoBytes {
    mover: Option<Arc<dyn PageMover>>,
    done: Vec<CopyDone>,
}

impl NoBytes {
    /// What pages pretend to hold is moved by `mover`.
    pub(crate) const fn new(mover: Option<Arc<dyn PageMover>>) -> Self {
        Self { mover, done: Vec::new() }
    }
}

impl Copier for NoBytes {
    fn submit(&mut self, id: u64, direction: Direction, pages: Vec<CopyPage>) -> Result<(), Full> {
        for CopyPage { pool, device, host } in pages.iter().copied() {
            match (&self.mover, direction) {
                (Some(mover), Direction::Backup) => mover.back_up(pool, device, host),
                (Some(mover), Direction::Load) => mover.load(pool, device, host),
                (None, Direction::Backup | Direction::Load) => {}
            }
        }
        let (bytes, busy) = (Vec::new(), Duration::ZERO);
        self.done.push(CopyDone { id, direction, pages, bytes, busy, result: Ok(()) });
        Ok(())
    }

    fn gate(&self) -> Option<LoadGate> {
        None
    }

    fn poll(&mut self, done: &mut Vec<CopyDone>) {
        done.append(&mut self.done);
    }

    fn wait(&mut self, _id: u64) {}

    /// Copies end while they are submitted, so nobody ever sleeps for one.
    fn wake_with(&mut self, _waker: CopyWaker) {}

    fn stats_into(&self, _stats: &mut CopyStats) {}
}
