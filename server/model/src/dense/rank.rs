//! One rank: its share of the model, its pages, its threads, its part of the logits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kernels::ThreadPool;
use memory_pool::{Compute, DeviceMemory};

use crate::arch::{Decoder, Exchange, Peers, Trace};
use crate::runner::{Batch, Logits, RunError};

pub(super) struct Rank {
    decoder: Decoder,
    /// `None` before pages are allocated.
    compute: Option<Compute>,
    threads: ThreadPool,
    /// Of its part of the vocabulary, where there are several ranks.
    logits: Logits,
    /// Why the last step failed, and whether that is of the rank's own making.
    failure: Option<(bool, RunError)>,
}

impl Rank {
    pub(super) fn new(decoder: Decoder, threads: ThreadPool) -> Self {
        Self { decoder, compute: None, threads, logits: Logits::new(), failure: None }
    }

    /// Gives its pages back.
    pub(super) fn release(&mut self) {
        self.compute = None;
    }

    /// Computes in `memory` from now on, requests of up to `positions` positions.
    pub(super) fn take(&mut self, memory: &Arc<DeviceMemory>, positions: usize) {
        self.compute = memory.compute();
        self.decoder.reach(positions);
    }

    pub(super) fn forward(
        &mut self,
        batch: &Batch,
        logits: &mut Logits,
        trace: &mut impl Trace,
        peers: &mut Peers<'_>,
    ) -> Result<(), RunError> {
        let Some(compute) = &mut self.compute else { return Err(RunError::NotAllocated) };
        self.decoder.forward(batch, compute, logits, &self.threads, trace, peers)
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
        body: impl FnOnce(&mut Self) -> Result<(), RunError>,
    ) {
        let outcome = catch_unwind(AssertUnwindSafe(|| body(self)));
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
        let own = self.decoder.vocab();
        for (row, to) in rows.chunks_exact_mut(vocab).enumerate() {
            to[first..first + own].copy_from_slice(self.logits.row(row));
        }
        own
    }

    #[cfg(test)]
    pub(super) const fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    #[cfg(test)]
    pub(super) fn threads(&self) -> usize {
        self.threads.threads()
    }

    #[cfg(test)]
    pub(super) fn compute(&self) -> &Compute {
        self.compute.as_ref().expect("tests allocate first")
    }
}
