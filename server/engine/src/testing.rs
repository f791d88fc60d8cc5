//! Faults that tests plant in the engine itself, and work that they count, per test thread.

use std::cell::Cell;
use std::thread::LocalKey;

thread_local! {
    static LEAK_IN: Cell<Option<u32>> = const { Cell::new(None) };
    static LOST_LOAD_IN: Cell<Option<u32>> = const { Cell::new(None) };
    static EARLY_IN: Cell<Option<u32>> = const { Cell::new(None) };
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

/// The `nth` load (from 0) that is submitted on this thread is told to have ended well and moves
/// nothing.
pub(crate) fn plant_lost_load(nth: u32) {
    LOST_LOAD_IN.set(Some(nth));
}

/// The `nth` table (from 0) that is to be kept until its link has let go is not.
pub(crate) fn plant_early(nth: u32) {
    EARLY_IN.set(Some(nth));
}

/// Takes planted faults out; true where one was not reached.
pub(crate) fn clear() -> bool {
    let left = [LEAK_IN.take(), LOST_LOAD_IN.take(), EARLY_IN.take()];
    left.iter().any(Option::is_some)
}

/// Called once per ended request that holds pages.
pub(crate) fn leaks_now() -> bool {
    is_due(&LEAK_IN)
}

/// Called once per load.
pub(crate) fn loses_load() -> bool {
    is_due(&LOST_LOAD_IN)
}

/// Called once per table that is to be kept.
pub(crate) fn lets_go_early() -> bool {
    is_due(&EARLY_IN)
}

fn is_due(fault: &'static LocalKey<Cell<Option<u32>>>) -> bool {
    let left = fault.get();
    fault.set(left.and_then(|left| left.checked_sub(1)));
    left == Some(0)
}
