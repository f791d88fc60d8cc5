//! Whom a request tells what: its sink, and the hit-ratio curve.

use super::Request;
use crate::output::{Sink, TokenEvent, Verdict};

impl Request {
    /// Tells the hit-ratio curve what it has left to others.
    pub(super) fn tell_published(&self) {
        if let Some(follower) = self.follower.as_ref().filter(|_| self.was_looked_up) {
            follower.published(self.computed);
        }
    }

    /// Tells the hit-ratio curve that the cache is emptied.
    pub(crate) fn tell_flushed(&self) {
        if let Some(follower) = &self.follower {
            follower.flushed();
        }
    }
}

/// Asks a sink, and takes a panic in it for a verdict of its own.
pub(crate) fn ask(sink: &mut dyn Sink, event: &TokenEvent<'_>) -> Result<Verdict, SinkPanicked> {
    let call = std::panic::AssertUnwindSafe(|| sink.token(event));
    std::panic::catch_unwind(call).map_err(|_| SinkPanicked)
}

/// A sink panicked; its state is not to be trusted, but its end is still told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SinkPanicked;
