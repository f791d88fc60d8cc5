//! The runner: the ranks, each a share of the model with its KV pages and its threads.

mod rank;

#[cfg(test)]
mod loads_test;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kernels::ThreadPool;
use memory_pool::{DeviceMemory, PoolError};
use types::Clock;

use self::rank::Rank;
use crate::arch::{Decoder, Exchange, ModelShare, NoTrace, Peers, Trace, deepseek_v4};
use crate::runner::{Batch, Logits, ModelRunner, ModelSpec, RunError};

/// Of dense decoders.
pub(crate) type DenseRunner = RanksRunner<Decoder>;
/// Of DeepSeek-V4.
pub(crate) type DeepseekRunner = RanksRunner<deepseek_v4::Model>;

pub(crate) struct RanksRunner<M> {
    spec: ModelSpec,
    /// At least one.
    ranks: Vec<Mutex<Rank<M>>>,
    /// What several ranks need: a thread each, the first one the engine's, and each other.
    crew: Option<(ThreadPool, Exchange)>,
    /// One per rank; empty before pages are allocated.
    memories: Vec<Arc<DeviceMemory>>,
    /// The number of pages of each pool.
    pages: Vec<usize>,
    /// How long each rank computed in the last step.
    busy: Vec<Duration>,
    clock: Clock,
    /// The rank that panics in the next step.
    #[cfg(test)]
    panic: Option<usize>,
}

impl<M: ModelShare> RanksRunner<M> {
    /// `threads` threads in all are shared out among the ranks, one at least for each.
    pub(crate) fn new(spec: ModelSpec, shares: Vec<M>, threads: usize) -> Self {
        let threads = threads.max(1);
        let ranks = shares.len();
        let rank = |(number, share): (usize, M)| {
            let own = threads / ranks + usize::from(number < threads % ranks);
            Mutex::new(Rank::new(share, ThreadPool::new(own)))
        };
        Self {
            spec,
            ranks: shares.into_iter().enumerate().map(rank).collect(),
            crew: (ranks > 1).then(|| (ThreadPool::new(ranks), Exchange::new(ranks))),
            memories: Vec::new(),
            pages: Vec::new(),
            busy: vec![Duration::ZERO; ranks],
            clock: Clock::start(),
            #[cfg(test)]
            panic: None,
        }
    }

    /// [`ModelRunner::execute`] with a look at what happens inside, on the first rank if there are
    /// several.
    pub(crate) fn execute_traced(
        &mut self,
        batch: &Batch,
        logits: &mut Logits,
        trace: &mut (impl Trace + Send),
    ) -> Result<(), RunError> {
        self.busy.fill(Duration::ZERO);
        if self.memories.is_empty() {
            return Err(RunError::NotAllocated);
        }
        batch.check(&self.spec, &self.pages)?;
        if batch.tokens.is_empty() {
            logits.reset(0, self.spec.vocab);
            return Ok(());
        }
        if self.crew.is_some() {
            return self.execute_together(batch, logits, trace);
        }
        let rank = own(&mut self.ranks[0]);
        let start = self.clock.now();
        let mut peers = Peers::none(self.clock);
        let outcome = rank.forward(batch, logits, trace, &mut peers);
        self.busy[0] = self.clock.now().since(start).saturating_sub(peers.waited());
        outcome
    }

    /// A step of several ranks: each leaves its part of the vocabulary, then they are joined.
    fn execute_together(
        &mut self,
        batch: &Batch,
        logits: &mut Logits,
        trace: &mut (impl Trace + Send),
    ) -> Result<(), RunError> {
        let Some((crew, exchange)) = &self.crew else { return Err(RunError::NotAllocated) };
        exchange.begin();
        let trace = Mutex::new(trace);
        #[cfg(test)]
        let ill = self.panic.take();
        crew.run(|number, _| {
            let mut rank = self.ranks[number].lock().unwrap_or_else(PoisonError::into_inner);
            let mut peers = Peers::of(number, exchange, self.clock);
            rank.step(exchange, &mut peers, |rank, peers| {
                #[cfg(test)]
                assert!(ill != Some(number), "injected panic");
                if number == 0 {
                    let mut trace = trace.lock().unwrap_or_else(PoisonError::into_inner);
                    rank.forward_apart(batch, &mut **trace, peers)
                } else {
                    rank.forward_apart(batch, &mut NoTrace, peers)
                }
            });
        });
        self.join(batch.logits_rows(), logits)
    }

    /// Puts the parts of all ranks side by side; the first cause of a failure is the step's.
    fn join(&mut self, rows: usize, logits: &mut Logits) -> Result<(), RunError> {
        let vocab = self.spec.vocab;
        let mut failed: Option<(bool, RunError)> = None;
        let out = logits.reset(rows, vocab);
        let mut first = 0;
        for (number, rank) in self.ranks.iter_mut().enumerate() {
            let rank = own(rank);
            self.busy[number] = rank.busy();
            if let Some((own, error)) = rank.take_failure(number) {
                // What a rank says of itself says more than what it says of the others.
                if failed.as_ref().is_none_or(|(known, _)| own && !known) {
                    failed = Some((own, error));
                }
            } else if failed.is_none() {
                first += rank.copy_logits(out, vocab, first);
            }
        }
        failed.map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Rank `rank` panics in the next step.
    #[cfg(test)]
    pub(crate) const fn let_panic(&mut self, rank: usize) {
        self.panic = Some(rank);
    }

    #[cfg(test)]
    pub(crate) fn share(&mut self, rank: usize) -> &M {
        own(&mut self.ranks[rank]).share()
    }

    #[cfg(test)]
    pub(crate) fn compute(&mut self, rank: usize) -> &mut memory_pool::Compute {
        own(&mut self.ranks[rank]).compute()
    }
}

/// The rank, outside of a step.
fn own<M>(rank: &mut Mutex<Rank<M>>) -> &mut Rank<M> {
    rank.get_mut().unwrap_or_else(PoisonError::into_inner)
}

impl<M: ModelShare> ModelRunner for RanksRunner<M> {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn allocate(&mut self, pages: &[usize]) -> Result<(), RunError> {
        let layouts = self.spec.part_layouts(pages);
        // The first pool keeps every position of a request.
        let positions = self.spec.pools[0].page_tokens.saturating_mul(pages[0]);
        let positions = positions.min(self.spec.max_context);
        // The old pages go first: both together may not fit.
        self.memories.clear();
        self.ranks.iter_mut().map(own).for_each(Rank::release);
        let mut memories = Vec::new();
        for rank in self.ranks.iter_mut().map(own) {
            let parts = layouts.iter().map(|(part, _)| part.clone()).collect();
            let memory = DeviceMemory::new(parts).map_err(|error| match error {
                PoolError::TooLarge { .. } => RunError::OutOfMemory { bytes: u64::MAX },
                PoolError::Refused { bytes, .. } => RunError::OutOfMemory { bytes: bytes.0 },
            })?;
            rank.take(&memory, positions);
            memories.push(memory);
        }
        self.memories = memories;
        self.pages = pages.to_vec();
        Ok(())
    }

    fn memories(&self) -> &[Arc<DeviceMemory>] {
        &self.memories
    }

    fn busy(&self) -> &[Duration] {
        &self.busy
    }

    fn execute(&mut self, batch: &Batch, logits: &mut Logits) -> Result<(), RunError> {
        self.execute_traced(batch, logits, &mut NoTrace)
    }
}
