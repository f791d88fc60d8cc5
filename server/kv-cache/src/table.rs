//! The page table of a request: one list of pages per pool, grown together, freed by drop.

use std::sync::Arc;

use types::{PageId, PoolId};

use crate::layout::PoolSpec;
use crate::pool::{BlockPool, PoolStats};

/// A pool had too few free pages; nothing was taken from any pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("pool {pool} has no room for {pages} more pages")]
pub struct NoRoom {
    /// The pool that was short.
    pub pool: PoolId,
    /// Pages that were asked of it.
    pub pages: usize,
}

/// All pools of a model, by `PoolId`. Clones share them.
#[derive(Debug, Clone)]
pub struct PoolSet {
    pools: Arc<[BlockPool]>,
}

impl PoolSet {
    /// One pool per spec, in the order of `PoolId`.
    ///
    /// # Panics
    /// Without any spec, with 2^16 or more, or where a spec is out of range.
    #[must_use]
    pub fn new(specs: Vec<PoolSpec>) -> Self {
        assert!(!specs.is_empty(), "a model has at least one pool");
        assert!(u16::try_from(specs.len()).is_ok(), "a pool id has 16 bits");
        Self { pools: specs.into_iter().map(BlockPool::new).collect() }
    }

    /// An empty page table over these pools.
    #[must_use]
    pub fn table(&self) -> PageTable {
        PageTable { set: self.clone(), pages: vec![Vec::new(); self.pools.len()], tokens: 0 }
    }

    /// The pools in the order of `PoolId`.
    #[must_use]
    pub fn pools(&self) -> &[BlockPool] {
        &self.pools
    }

    /// Usage of each pool, in the order of `PoolId`.
    pub fn stats(&self) -> impl Iterator<Item = PoolStats> {
        self.pools.iter().map(BlockPool::stats)
    }
}

/// The pages of one request in every pool. Dropping it frees them all.
#[derive(Debug)]
pub struct PageTable {
    set: PoolSet,
    pages: Vec<Vec<PageId>>,
    tokens: usize,
}

impl PageTable {
    /// Grows until `tokens` tokens are covered in every pool: all or nothing. Never shrinks.
    ///
    /// # Errors
    /// [`NoRoom`]; the table is as before, and the failure is counted at the pool that was short.
    pub fn grow_to(&mut self, tokens: usize) -> Result<(), NoRoom> {
        for (index, pool) in self.set.pools.iter().enumerate() {
            let held = self.pages[index].len();
            let more = pool.spec().pages_for(tokens).saturating_sub(held);
            if more > 0 && !pool.take(more, &mut self.pages[index]) {
                self.shrink_to(self.tokens);
                let pool = PoolId(u16::try_from(index).expect("checked in PoolSet::new"));
                return Err(NoRoom { pool, pages: more });
            }
        }
        self.tokens = self.tokens.max(tokens);
        Ok(())
    }

    /// The pages of `pool`, in the order of the tokens that they hold.
    ///
    /// # Panics
    /// When the model has no such pool.
    #[must_use]
    pub fn pages(&self, pool: PoolId) -> &[PageId] {
        &self.pages[usize::from(pool.0)]
    }

    /// The tokens that the last successful growth asked for.
    #[must_use]
    pub const fn tokens(&self) -> usize {
        self.tokens
    }

    /// Frees every page and keeps the table.
    pub fn clear(&mut self) {
        self.tokens = 0;
        self.shrink_to(0);
    }

    fn shrink_to(&mut self, tokens: usize) {
        for (pool, pages) in self.set.pools.iter().zip(&mut self.pages) {
            let keep = pool.spec().pages_for(tokens);
            if keep < pages.len() {
                let mut freed = pages.split_off(keep);
                pool.give_back(&mut freed);
            }
        }
    }
}

impl Drop for PageTable {
    fn drop(&mut self) {
        for (pool, pages) in self.set.pools.iter().zip(&mut self.pages) {
            pool.give_back(pages);
        }
    }
}
