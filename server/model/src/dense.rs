//! The runner of dense decoders: a [`Decoder`], its KV pools, and its threads.

use kernels::ThreadPool;
use memory_pool::{DevicePool, PoolError};

use crate::arch::{Decoder, NoTrace, Trace, kv_layout};
use crate::runner::{Batch, Logits, ModelRunner, ModelSpec, RunError};

pub(crate) struct DenseRunner {
    spec: ModelSpec,
    decoder: Decoder,
    /// Empty before they are allocated.
    pools: Vec<DevicePool>,
    /// The number of pages in each.
    pages: Vec<usize>,
    threads: ThreadPool,
}

impl DenseRunner {
    pub(crate) const fn new(spec: ModelSpec, decoder: Decoder, threads: ThreadPool) -> Self {
        Self { spec, decoder, pools: Vec::new(), pages: Vec::new(), threads }
    }

    /// [`ModelRunner::execute`] with a look at what happens inside.
    pub(crate) fn execute_traced(
        &mut self,
        batch: &Batch,
        logits: &mut Logits,
        trace: &mut impl Trace,
    ) -> Result<(), RunError> {
        if self.pools.is_empty() {
            return Err(RunError::NotAllocated);
        }
        batch.check(&self.spec, &self.pages)?;
        if batch.tokens.is_empty() {
            logits.reset(0, self.spec.vocab);
            return Ok(());
        }
        self.decoder.forward(batch, &mut self.pools, logits, &self.threads, trace);
        Ok(())
    }

    #[cfg(test)]
    pub(crate) const fn config(&self) -> &crate::config::ModelConfig {
        self.decoder.config()
    }

    #[cfg(test)]
    pub(crate) fn pools(&self) -> &[DevicePool] {
        &self.pools
    }
}

impl ModelRunner for DenseRunner {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn allocate(&mut self, pages: &[usize]) -> Result<(), RunError> {
        assert_eq!(pages.len(), self.spec.pools.len(), "a number of pages per pool");
        // The old pools go first: both together may not fit.
        self.pools.clear();
        for (spec, pages) in self.spec.pools.iter().zip(pages) {
            let layout = kv_layout(self.decoder.config(), spec.layers, spec.page_tokens);
            let pool = DevicePool::new(layout, *pages).map_err(|error| match error {
                PoolError::TooLarge { .. } => RunError::OutOfMemory { bytes: u64::MAX },
                PoolError::Refused { bytes, .. } => RunError::OutOfMemory { bytes: bytes.0 },
            });
            match pool {
                Ok(pool) => self.pools.push(pool),
                Err(error) => {
                    self.pools.clear();
                    return Err(error);
                }
            }
        }
        self.pages = pages.to_vec();
        // The first pool keeps every position of a request.
        let positions = self.spec.pools[0].page_tokens.saturating_mul(pages[0]);
        self.decoder.reach(positions.min(self.spec.max_context));
        Ok(())
    }

    fn execute(&mut self, batch: &Batch, logits: &mut Logits) -> Result<(), RunError> {
        self.execute_traced(batch, logits, &mut NoTrace)
    }
}
