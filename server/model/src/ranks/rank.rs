//! One rank: its share of the model, its pages, its threads, its part of the logits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use kernels::ThreadPool;
use memory_pool::{Compute, DeviceMemory};

use crate::arch::{Exchange, ModelShare, Peers, Trace};
use crate::runner::{Batch, Logits, RunError};

pub(super) struct Rank<M> {
    share: M,
    /// `None` before pages are allocated.
    compute: Option<Compute>,
    threads: ThreadPool,
    /// Of its part of the vocabulary, where there are several ranks.
    logits: Logits,
    /// Why the last step failed, and whether that is of the rank's own making.
    failure: Option<(bool, RunError)>,
    /// How long it computed in the last step, where there are several ranks.
    busy: Duration,
}

impl<M: ModelShare> Rank<M> {
    pub(super) fn new(share: M, threads: ThreadPool) -> Self {
        let (logits, busy) = (Logits::new(), Duration::ZERO);
        Self { share, compute: None, threads, logits, failure: None, busy }
    }

    /// Gives its pages back.
    pub(super) fn release(&mut self) {
        self.compute = None;
    }

    /// Computes in `memory` from now on, requests of up to `positions` positions.
    pub(super) fn take(&mut self, memory: &Arc<DeviceMemory>, positions: usize) {
        self.compute = memory.compute();
        self.share.reach(positions);
    }

    pub(super) fn forward(
        &mut self,
        batch: &Batch,
        logits: &mut Logits,
        trace: &mut impl Trace,
        peers: &mut Peers<'_>,
    ) -> Result<(), RunError> {
        let Some(compute) = &mut self.compute else { return Err(RunError::NotAllocated) };
        self.share.forward(batch, compute, logits, &self.threads, trace, peers)
    }

    /// As [`forward`](Self::forward), into its own logits.
    pub(super) fn forward_apart(
        &mut self,
        batch: &Batch,
        trace: &mut impl Trace,
        peers: &mut Peers<'_>,
    ) -> Result<(), RunError> {
        let mut logits = std::mem::take(&mut self.logits);
        let outcome = self.forward(batch, &mut logits, trace, peers);
        self.logits = logits;
        outcome
    }

    /// Runs `body` and keeps its failure. Where it fails or panics the other ranks hear of it, so
    /// that none of them waits.
    pub(super) fn step(
        &mut self,
        exchange: &Exchange,
        peers: &mut Peers<'_>,
        body: impl FnOnce(&mut Self, &mut Peers<'_>) -> Result<(), RunError>,
    ) {
        let start = peers.now();
        let outcome = catch_unwind(AssertUnwindSafe(|| body(self, peers)));
        self.busy = peers.now().since(start).saturating_sub(peers.waited());
        self.failure = match outcome {
            Ok(Ok(())) => None,
            Ok(Err(error)) => {
                // Whoever hears of a failure is not its cause.
                Some((!exchange.is_broken(), error))
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                let text = text.unwrap_or("no reason given");
                Some((true, RunError::Backend(format!("panicked: {text}"))))
            }
        };
        if self.failure.is_some() {
            exchange.give_up();
        }
    }

    /// Why the last step failed, in the words of rank `number`.
    pub(super) fn take_failure(&mut self, number: usize) -> Option<(bool, RunError)> {
        let (own, error) = self.failure.take()?;
        let error = match error {
            RunError::Backend(text) => RunError::Backend(format!("rank {number}: {text}")),
            error @ (RunError::NotAllocated
            | RunError::OutOfMemory { .. }
            | RunError::BadBatch(_)
            | RunError::NonFinite { .. }
            | RunError::Constraint(_)
            | RunError::Load(_)) => error,
        };
        Some((own, error))
    }

    /// Copies its columns into rows of `vocab` columns, from column `first` on; returns how many.
    pub(super) fn copy_logits(&self, rows: &mut [f32], vocab: usize, first: usize) -> usize {
        let own = self.share.vocab();
        for (row, to) in rows.chunks_exact_mut(vocab).enumerate() {
            to[first..first + own].copy_from_slice(self.logits.row(row));
        }
        own
    }

    /// How long it computed in the last step: without what it waited.
    pub(super) const fn busy(&self) -> Duration {
        self.busy
    }

    #[cfg(test)]
    pub(super) const fn share(&self) -> &M {
        &self.share
    }

    #[cfg(test)]
    pub(super) fn threads(&self) -> usize {
        self.threads.threads()
    }

    #[cfg(test)]
    pub(super) fn compute(&mut self) -> &mut Compute {
        self.compute.as_mut().expect("tests allocate first")
    }
}
