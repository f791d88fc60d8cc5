//! How far a forward pass has come: whoever sends pages away reads the rows of a layer as soon as
//! that layer is computed, while the next ones still are.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a forward pass is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgressState {
    /// It runs, or has not begun.
    Running,
    /// Every layer's rows are in their pages.
    Finished,
    /// It ended before that; what the pages hold is unspecified.
    Failed,
}

/// Called after a change, on the thread that made it; must not block.
type OnChange = Arc<dyn Fn() + Send + Sync>;

/// How many of the model's layers one forward pass has behind it, on all ranks. The runner tells
/// it, the engine says how the pass ended, and whoever sends pages looks. Clones are the same pass.
///
/// A layer is behind when its rows are in the pages of the batch: those that the pass computes, and
/// those that were loaded for it from the host tier. What was read of them after a look at
/// [`layers`](Self::layers) is what the pass has written.
#[derive(Clone)]
pub struct LayerProgress {
    shared: Arc<Mutex<Inner>>,
}

struct Inner {
    /// Per rank.
    done: Vec<usize>,
    layers: usize,
    state: ProgressState,
    on_change: Option<OnChange>,
}

impl Inner {
    fn done(&self) -> usize {
        match self.state {
            ProgressState::Finished => self.layers,
            ProgressState::Running | ProgressState::Failed => {
                self.done.iter().copied().min().unwrap_or(0)
            }
        }
    }
}

impl LayerProgress {
    /// Of a pass over `layers` layers on `ranks` ranks that has not begun.
    ///
    /// # Panics
    /// Where there is no rank.
    #[must_use]
    pub fn new(ranks: usize, layers: usize) -> Self {
        assert!(ranks > 0, "a pass has at least one rank");
        let (done, state, on_change) = (vec![0; ranks], ProgressState::Running, None);
        Self { shared: Arc::new(Mutex::new(Inner { done, layers, state, on_change })) }
    }

    /// The rows of the first `layers` layers are in their pages on `rank`. A smaller number than
    /// before changes nothing, nor does any once the pass has ended.
    ///
    /// # Panics
    /// Where there is no such rank, or the model has fewer layers.
    pub fn advance(&self, rank: usize, layers: usize) {
        let mut inner = self.lock();
        let (ranks, all) = (inner.done.len(), inner.layers);
        assert!(rank < ranks, "rank {rank} of {ranks}");
        assert!(layers <= all, "{layers} layers of {all}");
        if inner.state != ProgressState::Running {
            return;
        }
        let before = inner.done();
        inner.done[rank] = inner.done[rank].max(layers);
        let waker = if inner.done() > before { inner.on_change.clone() } else { None };
        drop(inner);
        if let Some(wake) = waker {
            wake();
        }
    }

    /// The pass is over and every row is in its page.
    pub fn finish(&self) {
        self.end(ProgressState::Finished);
    }

    /// The pass is over and its rows are worth nothing.
    pub fn fail(&self) {
        self.end(ProgressState::Failed);
    }

    /// The first end counts.
    fn end(&self, state: ProgressState) {
        let mut inner = self.lock();
        if inner.state != ProgressState::Running {
            return;
        }
        inner.state = state;
        // It will not be called again, and may hold the pass itself.
        let waker = inner.on_change.take();
        drop(inner);
        if let Some(wake) = waker {
            wake();
        }
    }

    /// So many of the model's layers, from the first on, have their rows in the pages, on all
    /// ranks. Never less than before; all of them once the pass is
    /// [finished](ProgressState::Finished).
    #[must_use]
    pub fn layers(&self) -> usize {
        self.lock().done()
    }

    /// Whether it runs, or how it ended.
    #[must_use]
    pub fn state(&self) -> ProgressState {
        self.lock().state
    }

    /// From now on `wake` is called whenever [`layers`](Self::layers) has grown and when the pass
    /// has ended, on the thread that did it, and dropped after that; it takes the place of one
    /// given before. What changed before this call is not told again: look once afterwards.
    pub fn on_change(&self, wake: Box<dyn Fn() + Send + Sync>) {
        let mut inner = self.lock();
        if inner.state == ProgressState::Running {
            inner.on_change = Some(Arc::from(wake));
        }
    }

    /// No statement leaves it half changed.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for LayerProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inner = self.lock();
        f.debug_struct("LayerProgress")
            .field("done", &inner.done)
            .field("layers", &inner.layers)
            .field("state", &inner.state)
            .finish_non_exhaustive()
    }
}

impl PartialEq for LayerProgress {
    /// Whether it is the same pass.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for LayerProgress {}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn it_is_as_far_as_the_last_rank_and_never_goes_back() {
        let progress = LayerProgress::new(2, 3);
        let woken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&woken);
        progress.on_change(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        let woken = || woken.load(Ordering::Relaxed);
        assert_eq!((progress.layers(), progress.state()), (0, ProgressState::Running));
        progress.advance(0, 2);
        assert_eq!((progress.layers(), woken()), (0, 0), "the other rank has none");
        progress.advance(1, 1);
        assert_eq!((progress.layers(), woken()), (1, 1));
        progress.advance(0, 1);
        progress.advance(1, 3);
        assert_eq!((progress.layers(), woken()), (2, 2));
        let same = progress.clone();
        assert!(same == progress && progress != LayerProgress::new(2, 3));
        same.finish();
        assert_eq!((progress.layers(), woken()), (3, 3));
        progress.fail();
        progress.advance(0, 3);
        assert_eq!((progress.state(), woken()), (ProgressState::Finished, 3), "it ends once");
    }

    #[test]
    fn a_pass_that_fails_says_so_and_lets_go_of_its_waker() {
        let progress = LayerProgress::new(1, 4);
        let held = Arc::new(());
        let (own, inner) = (Arc::clone(&held), progress.clone());
        progress.on_change(Box::new(move || {
            // It may look: no lock is held.
            assert_eq!((inner.layers(), Arc::strong_count(&own)), (2, 2));
        }));
        progress.advance(0, 2);
        progress.fail();
        assert_eq!((progress.layers(), progress.state()), (2, ProgressState::Failed));
        assert_eq!(Arc::strong_count(&held), 1);
        let own = Arc::clone(&held);
        progress.on_change(Box::new(move || assert_eq!(Arc::strong_count(&own), 2)));
        assert_eq!(Arc::strong_count(&held), 1, "nothing changes any more");
    }

    /// Ranks write their layers while others look: what was announced is there, whatever the
    /// threads' order.
    #[test]
    fn what_is_announced_is_there() {
        const RANKS: usize = 3;
        const LAYERS: usize = 64;
        for _ in 0..50 {
            let progress = LayerProgress::new(RANKS, LAYERS);
            let rows: Vec<AtomicU64> = (0..RANKS * LAYERS).map(|_| AtomicU64::new(0)).collect();
            let told = Arc::new(AtomicUsize::new(0));
            let (seen, own) = (Arc::clone(&told), progress.clone());
            progress.on_change(Box::new(move || {
                seen.fetch_max(own.layers(), Ordering::Relaxed);
            }));
            std::thread::scope(|scope| {
                for rank in 0..RANKS {
                    let (progress, rows) = (progress.clone(), &rows);
                    scope.spawn(move || {
                        for layer in 0..LAYERS {
                            // Not ordered by itself: the announcement is what orders it.
                            rows[rank * LAYERS + layer].store(layer as u64 + 1, Ordering::Relaxed);
                            progress.advance(rank, layer + 1);
                        }
                    });
                }
                let mut before = 0;
                while before < LAYERS {
                    let layers = progress.layers();
                    assert!(layers >= before, "{layers} after {before}");
                    for rank in 0..RANKS {
                        for layer in before..layers {
                            let row = rows[rank * LAYERS + layer].load(Ordering::Relaxed);
                            assert_eq!(row, layer as u64 + 1, "rank {rank}, layer {layer}");
                        }
                    }
                    before = layers;
                }
            });
            assert_eq!(told.load(Ordering::Relaxed), LAYERS, "the last change was told");
        }
    }
}
