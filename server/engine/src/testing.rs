//! Faults that tests plant in the engine itself, and work that they count, per test thread.

use std::cell::Cell;

thread_local! {
    static LEAK_IN: Cell<Option<u32>> = const { Cell::new(None) };
    static WALKED: Cell<usize> = const { Cell::new(0) };
}

/// A walk over so many requests begins.
pub(crate) fn walks(requests: usize) {
    WALKED.set(WALKED.get() + requests);
}

/// Requests walked over since the last call.
pub(crate) fn walked() -> usize {
    WALKED.replace(0)
}

/// The pages of the `nth` request (from 0) that ends on this thread are lost.
pub(crate) fn plant_leak(nth: u32) {
    LEAK_IN.set(Some(nth));
}

/// Takes a planted leak out; true where it was not reached.
pub(crate) fn clear_leak() -> bool {
    LEAK_IN.take().is_some()
}

/// Called once per ended request that holds pages.
pub(crate) fn leaks_now() -> bool {
    match LEAK_IN.get() {
        Some(0) => {
            LEAK_IN.set(None);
            true
        }
        Some(left) => {
            LEAK_IN.set(Some(left - 1));
            false
        }
        None => false,
    }
}
