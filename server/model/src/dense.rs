//! The runner of dense decoders: a [`Decoder`], its KV pools, and its threads.

use std::sync::Arc;

use kernels::ThreadPool;
use memory_pool::{Compute, DeviceMemory, PoolError};

use crate::arch::{Decoder, NoTrace, Trace};
use crate::runner::{Batch, Logits, ModelRunner, ModelSpec, RunError};

pub(crate) struct DenseRunner {
    spec: ModelSpec,
    decoder: Decoder,
    /// `None` before pages are allocated.
    compute: Option<Compute>,
    /// The memory of `compute`.
    memories: Vec<Arc<DeviceMemory>>,
    /// The number of pages of each pool.
    pages: Vec<usize>,
    threads: ThreadPool,
}

impl DenseRunner {
    pub(crate) const fn new(spec: ModelSpec, decoder: Decoder, threads: ThreadPool) -> Self {
        Self { spec, decoder, compute: None, memories: Vec::new(), pages: Vec::new(), threads }
    }

    /// [`ModelRunner::execute`] with a look at what happens inside.
    pub(crate) fn execute_traced(
        &mut self,
        batch: &Batch,
        logits: &mut Logits,
        trace: &mut impl Trace,
    ) -> Result<(), RunError> {
        let Some(compute) = &mut self.compute else { return Err(RunError::NotAllocated) };
        batch.check(&self.spec, &self.pages)?;
        if batch.tokens.is_empty() {
            logits.reset(0, self.spec.vocab);
            return Ok(());
        }
        self.decoder.forward(batch, compute, logits, &self.threads, trace)
    }

    #[cfg(test)]
    pub(crate) const fn config(&self) -> &crate::config::ModelConfig {
        self.decoder.config()
    }

    #[cfg(test)]
    pub(crate) fn compute(&self) -> &Compute {
        self.compute.as_ref().expect("tests allocate first")
    }
}

impl ModelRunner for DenseRunner {
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
        // The first pool keeps every position of a request.
        let positions = self.spec.pools[0].page_tokens.saturating_mul(pages[0]);
        self.decoder.reach(positions.min(self.spec.max_context));
        Ok(())
    }

    fn memories(&self) -> &[Arc<DeviceMemory>] {
        &self.memories
    }

    fn execute(&mut self, batch: &Batch, logits: &mut Logits) -> Result<(), RunError> {
        self.execute_traced(batch, logits, &mut NoTrace)
    }
}
