//! One pool: the free list, and who proves that a page is not given out twice.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use types::{Bytes, PageId, Pages};

use crate::layout::PoolSpec;

/// Usage of a pool; plain values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolStats {
    /// The pool's name.
    pub name: &'static str,
    /// Bytes of one page.
    pub page_bytes: Bytes,
    /// Pages there are.
    pub capacity: Pages,
    /// Pages held by page tables.
    pub used_active: Pages,
    /// Allocations that found no room, since the pool was made.
    pub alloc_failures: u64,
}

#[derive(Debug)]
struct State {
    /// Free pages; the last one freed is the first one reused, while it is still in cache.
    free: Vec<PageId>,
    /// Which pages are out. Costs a bit per page and turns a double free into a panic at its cause.
    out: Vec<bool>,
    alloc_failures: u64,
}

/// The pages of one pool. Clones share it; the mutex is held by one thread in practice and lets
/// the pool be moved between threads and read by any.
#[derive(Debug, Clone)]
pub struct BlockPool {
    spec: Arc<PoolSpec>,
    state: Arc<Mutex<State>>,
}

impl BlockPool {
    /// A pool whose pages are all free.
    ///
    /// # Panics
    /// When a field of `spec` is out of the range that it documents.
    #[must_use]
    pub fn new(spec: PoolSpec) -> Self {
        assert!(spec.page_tokens > 0, "a page holds at least one token");
        let pages = u32::try_from(spec.capacity.0).expect("a page id has 32 bits");
        assert!(pages > 0, "a pool has at least one page");
        // Reversed, so that the first allocations take the lowest ids.
        let free = (0..pages).rev().map(PageId).collect();
        let state = State { free, out: vec![false; pages as usize], alloc_failures: 0 };
        Self { spec: Arc::new(spec), state: Arc::new(Mutex::new(state)) }
    }

    /// The pool's geometry.
    #[must_use]
    pub fn spec(&self) -> &PoolSpec {
        &self.spec
    }

    /// Pages that are free now.
    #[must_use]
    pub fn free(&self) -> usize {
        self.lock().free.len()
    }

    /// Usage now.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let state = self.lock();
        PoolStats {
            name: self.spec.name,
            page_bytes: self.spec.page_bytes,
            capacity: self.spec.capacity,
            used_active: Pages(self.spec.capacity.0 - state.free.len() as u64),
            alloc_failures: state.alloc_failures,
        }
    }

    /// Appends `count` pages to `to`, or nothing. `false` counts an allocation failure.
    pub(crate) fn take(&self, count: usize, to: &mut Vec<PageId>) -> bool {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(keep) = state.free.len().checked_sub(count) else {
            state.alloc_failures += 1;
            return false;
        };
        for page in state.free.drain(keep..).rev() {
            let out = &mut state.out[page.index()];
            assert!(!*out, "a free page is not held by anyone");
            *out = true;
            to.push(page);
        }
        true
    }

    /// Takes pages back; empties `from`.
    pub(crate) fn give_back(&self, from: &mut Vec<PageId>) {
        if from.is_empty() {
            return;
        }
        let mut state = self.lock();
        let state = &mut *state;
        for page in from.drain(..).rev() {
            let out = &mut state.out[page.index()];
            assert!(*out, "a page is freed once");
            *out = false;
            state.free.push(page);
        }
    }

    /// No method leaves the state half changed.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
