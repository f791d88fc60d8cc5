//! The engine without its thread: somebody else says when it turns and what time it is.

use std::sync::Arc;
use std::time::Duration;

use admission::AdmissionController;

use crate::handle::Handle;
use crate::prepare::Prepared;
use crate::stats::Observer;
use crate::step::{Core, Turn};
use crate::time::TimeSource;

/// An engine that turns when it is told to, for simulations. The same code as behind
/// [`Prepared::spawn`], without its thread, its clock and its hit-ratio curve: what was submitted,
/// or told by links, before a turn counts in that turn.
pub struct Stepper {
    core: Core,
}

impl std::fmt::Debug for Stepper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stepper").field("idle", &self.is_idle()).finish_non_exhaustive()
    }
}

impl Stepper {
    /// One turn. After [`Turn::Ended`] there is none any more: further calls do nothing and return
    /// that again.
    pub fn turn(&mut self) -> Turn {
        if self.core.has_ended() {
            return Turn::Ended;
        }
        self.core.turn()
    }

    /// Whether another turn would do nothing before something comes in, a link has news, a copy
    /// between the tiers ends, or time has passed.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.core.is_idle()
    }

    /// Waits in real time until there is something to do, at most `nap`.
    pub fn rest(&mut self, nap: Duration) {
        self.core.rest(nap);
    }
}

impl Prepared {
    /// The engine without a thread.
    #[must_use]
    pub fn into_stepper(
        self,
        admission: Arc<AdmissionController>,
        observer: Box<dyn Observer>,
        time: Box<dyn TimeSource>,
    ) -> (Stepper, Handle) {
        let (core, handle) = self.into_core(admission, observer, time);
        (Stepper { core }, handle)
    }
}
