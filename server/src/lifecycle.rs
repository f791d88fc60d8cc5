//! The state of the process that probes, admission and the shutdown sequence share.

use std::sync::atomic::{AtomicU8, Ordering};

/// Where the process is between start and end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Taking the memory of the host tier, where there is one.
    HostPools,
    /// Reading weights.
    Loading,
    /// Running the warm-up.
    Warming,
    /// Serving.
    Ready,
    /// Finishing what runs, taking nothing new.
    Draining,
    /// The engine has failed; nothing can be served any more.
    Failed,
}

impl Phase {
    /// Every phase, in order.
    pub const ALL: [Self; 6] =
        [Self::HostPools, Self::Loading, Self::Warming, Self::Ready, Self::Draining, Self::Failed];

    /// The name in probes and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HostPools => "host_pools",
            Self::Loading => "loading",
            Self::Warming => "warming",
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Failed => "failed",
        }
    }
}

/// The phase, readable from every thread without waiting.
#[derive(Debug)]
pub struct Lifecycle(AtomicU8);

impl Default for Lifecycle {
    fn default() -> Self {
        Self::new(Phase::Loading)
    }
}

impl Lifecycle {
    /// A life that begins in `first`.
    #[must_use]
    pub const fn new(first: Phase) -> Self {
        Self(AtomicU8::new(first as u8))
    }

    /// The phase now.
    #[must_use]
    pub fn phase(&self) -> Phase {
        let now = self.0.load(Ordering::Acquire);
        Phase::ALL.into_iter().find(|phase| *phase as u8 == now).unwrap_or(Phase::Failed)
    }

    /// Moves on to `phase`. Phases only move forward: a late `Ready` does not undo a drain.
    pub fn advance(&self, phase: Phase) {
        self.0.fetch_max(phase as u8, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_only_move_forward() {
        let life = Lifecycle::default();
        assert_eq!(life.phase(), Phase::Loading);
        life.advance(Phase::HostPools);
        assert_eq!(life.phase(), Phase::Loading, "that is behind it");
        life.advance(Phase::Draining);
        life.advance(Phase::Ready);
        assert_eq!(life.phase(), Phase::Draining);
        life.advance(Phase::Failed);
        assert_eq!(life.phase(), Phase::Failed);
        let life = Lifecycle::new(Phase::HostPools);
        assert_eq!(life.phase().as_str(), "host_pools");
        life.advance(Phase::Loading);
        assert_eq!(life.phase(), Phase::Loading);
    }
}
