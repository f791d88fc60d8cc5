//! The runner: a [`Model`], its pages, and its threads.

use std::sync::Arc;

use kernels::ThreadPool;
use memory_pool::{Compute, DeviceMemory, PoolError};

use super::{Blind, Model, Watch};
use crate::runner::{Batch, Logits, ModelRunner, ModelSpec, RunError};

pub(crate) struct DeepseekRunner {
    spec: ModelSpec,
    model: Model,
    /// `None` before pages are allocated.
    compute: Option<Compute>,
    /// The memory of `compute`.
    memories: Vec<Arc<DeviceMemory>>,
    /// The number of pages of each pool.
    pages: Vec<usize>,
    threads: ThreadPool,
}

impl DeepseekRunner {
    pub(crate) const fn new(spec: ModelSpec, model: Model, threads: ThreadPool) -> Self {
        Self { spec, model, compute: None, memories: Vec::new(), pages: Vec::new(), threads }
    }

    /// [`ModelRunner::execute`] with a look at what happens inside.
    pub(super) fn execute_watched(
        &mut self,
        batch: &Batch,
        logits: &mut Logits,
        watch: &mut impl Watch,
    ) -> Result<(), RunError> {
        let Some(compute) = &mut self.compute else { return Err(RunError::NotAllocated) };
        batch.check(&self.spec, &self.pages)?;
        if batch.tokens.is_empty() {
            logits.reset(0, self.spec.vocab);
            return Ok(());
        }
        self.model.forward(batch, compute, logits, &self.threads, watch)
    }

    #[cfg(test)]
    pub(super) const fn model(&self) -> &Model {
        &self.model
    }

    #[cfg(test)]
    pub(super) fn compute(&mut self) -> &mut Compute {
        self.compute.as_mut().expect("tests allocate first")
    }
}

impl ModelRunner for DeepseekRunner {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn allocate(&mut self, pages: &[usize]) -> Result<(), RunError> {
        let parts = self.spec.part_layouts(pages).into_iter().map(|(part, _)| part).collect();
        // The old pages go first: both together may not fit.
        self.compute = None;
        self.memories.clear();
        let memory = DeviceMemory::new(parts).map_err(|error| match error {
            PoolError::TooLarge { .. } => RunError::OutOfMemory { bytes: u64::MAX },
            PoolError::Refused { bytes, .. } => RunError::OutOfMemory { bytes: bytes.0 },
        })?;
        self.compute = memory.compute();
        self.memories.push(memory);
        self.pages = pages.to_vec();
        Ok(())
    }

    fn memories(&self) -> &[Arc<DeviceMemory>] {
        &self.memories
    }

    fn execute(&mut self, batch: &Batch, logits: &mut Logits) -> Result<(), RunError> {
        self.execute_watched(batch, logits, &mut Blind)
    }
}
