//! Faults that a test plants into the ends, to show that the simulation finds them.

#[cfg(test)]
use std::cell::Cell;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plant {
    /// Pages are let go while a frame is still being written.
    SettleEarly,
    /// Pages are let go while a frame is still being read.
    SettleWhileRead,
    /// A broken payload is taken.
    TakeBroken,
    /// Layers are sent before they are computed.
    SendEarly,
    /// A frame that comes twice is written twice.
    WriteTwice,
    /// A room that failed is not forgotten.
    Leak,
    /// The engine is not told that its success comes too late.
    ForgetCrossing,
}

#[cfg(test)]
impl Plant {
    pub(crate) const ALL: [Self; 7] = [
        Self::SettleEarly,
        Self::SettleWhileRead,
        Self::TakeBroken,
        Self::SendEarly,
        Self::WriteTwice,
        Self::Leak,
        Self::ForgetCrossing,
    ];
}

#[cfg(test)]
thread_local! {
    static PLANTED: Cell<Option<Plant>> = const { Cell::new(None) };
}

#[cfg(test)]
pub(crate) fn sow(plant: Plant) {
    PLANTED.set(Some(plant));
}

#[cfg(test)]
pub(crate) fn clear() {
    PLANTED.set(None);
}

/// Whether it is planted: never outside of tests.
#[cfg(test)]
pub(crate) fn is(plant: Plant) -> bool {
    PLANTED.get() == Some(plant)
}

/// Whether it is planted: never outside of tests.
#[cfg(not(test))]
pub(crate) const fn is(_: Plant) -> bool {
    false
}
