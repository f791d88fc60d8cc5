//! The runner of dense decoders: a [`Decoder`], its KV pool, and its threads.

use kernels::ThreadPool;
use memory_pool::{DevicePool, PoolError};

use crate::arch::{Decoder, NoTrace, Trace};
use crate::runner::{Batch, Logits, ModelRunner, ModelSpec, RunError};

pub(crate) struct DenseRunner {
    spec: ModelSpec,
    decoder: Decoder,
    page_tokens: usize,
    pool: Option<DevicePool>,
    threads: ThreadPool,
}

impl DenseRunner {
    pub(crate) const fn new(
        spec: ModelSpec,
        decoder: Decoder,
        page_tokens: usize,
        threads: ThreadPool,
    ) -> Self {
        Self { spec, decoder, page_tokens, pool: None, threads }
    }

    /// [`ModelRunner::execute`] with a look at what happens inside.
    pub(crate) fn execute_traced(
        &mut self,
        batch: &Batch,
        logits: &mut Logits,
        trace: &mut impl Trace,
    ) -> Result<(), RunError> {
        let pool = self.pool.as_mut().ok_or(RunError::NotAllocated)?;
        batch.check(&self.spec, &[pool.pages()])?;
        if batch.tokens.is_empty() {
            logits.reset(0, self.spec.vocab);
            return Ok(());
        }
        self.decoder.forward(batch, pool, logits, &self.threads, trace);
        Ok(())
    }

    #[cfg(test)]
    pub(crate) const fn config(&self) -> &crate::config::ModelConfig {
        self.decoder.config()
    }

    #[cfg(test)]
    pub(crate) const fn pool(&self) -> Option<&DevicePool> {
        self.pool.as_ref()
    }
}

impl ModelRunner for DenseRunner {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn allocate(&mut self, pages: &[usize]) -> Result<(), RunError> {
        let [pages] = *pages else { panic!("{} numbers of pages for one pool", pages.len()) };
        // The old pool goes first: both together may not fit.
        self.pool = None;
        let layout = Decoder::kv_layout(self.decoder.config(), self.page_tokens);
        let pool = DevicePool::new(layout, pages).map_err(|error| match error {
            PoolError::TooLarge { .. } => RunError::OutOfMemory { bytes: u64::MAX },
            PoolError::Refused { bytes, .. } => RunError::OutOfMemory { bytes: bytes.0 },
        })?;
        self.pool = Some(pool);
        Ok(())
    }

    fn execute(&mut self, batch: &Batch, logits: &mut Logits) -> Result<(), RunError> {
        self.execute_traced(batch, logits, &mut NoTrace)
    }
}
