//! What one step may spend: tokens, and the pages that admissions must leave alone.

use kv_cache::{PoolSet, PoolSpec};
use types::PoolId;

use crate::request::Request;

/// The tokens of one step. Every decode row is paid for before the first prompt token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenBudget {
    prefill: usize,
    chunk: usize,
    /// Prompt tokens that may be scored.
    scored: usize,
}

impl TokenBudget {
    /// The budget of a step in which `decoding` requests take a token each, and which scores up to
    /// `scored` prompt tokens.
    pub(crate) const fn new(step: usize, chunk: usize, decoding: usize, scored: usize) -> Self {
        Self { prefill: step.saturating_sub(decoding), chunk, scored }
    }

    /// Takes up to one chunk of what `request` has to compute; a chunk of a prompt that is scored
    /// is no longer than what may be scored.
    pub(crate) fn take_for(&mut self, request: &Request) -> usize {
        if !request.scores_prompt() {
            return self.take_chunk(request.uncomputed());
        }
        let taken = self.take_chunk(request.uncomputed().min(self.scored));
        self.scored -= taken;
        taken
    }

    /// Takes up to one chunk of `wanted` prompt tokens.
    fn take_chunk(&mut self, wanted: usize) -> usize {
        let taken = wanted.min(self.chunk).min(self.prefill);
        self.prefill -= taken;
        taken
    }

    /// Whether tokens of `request` may be computed as far as scoring them is concerned.
    pub(crate) fn may_score(&self, request: &Request) -> bool {
        self.scored > 0 || !request.scores_prompt()
    }

    /// A decode row will not run after all.
    pub(crate) const fn give_back_row(&mut self) {
        self.prefill += 1;
    }

    pub(crate) const fn is_spent(&self) -> bool {
        self.prefill == 0
    }
}

/// The pages, per pool, that requests in the batch will still need for what they already have to
/// compute. An admission must leave them free, else it would only cause a retraction.
#[derive(Debug, Clone, Default)]
pub(crate) struct PageReserve {
    pages: Vec<usize>,
}

impl PageReserve {
    /// Nothing reserved; keeps its memory.
    pub(crate) fn reset(&mut self, pools: &PoolSet) {
        self.pages.clear();
        self.pages.resize(pools.specs().len(), 0);
    }

    /// Reserves what `request` lacks of the pages for its present tokens, and one page to grow.
    pub(crate) fn add(&mut self, request: &Request, pools: &PoolSet) {
        for (reserved, spec) in self.pages.iter_mut().zip(pools.specs()) {
            *reserved += share(request, spec);
        }
    }

    /// Takes back what [`add`](Self::add) would reserve now.
    pub(crate) fn remove(&mut self, request: &Request, pools: &PoolSet) {
        for (reserved, spec) in self.pages.iter_mut().zip(pools.specs()) {
            *reserved -= share(request, spec);
        }
    }

    /// Would every pool have room for all of `request`'s present tokens beside the reserve, if the
    /// requests behind `gain` were gone?
    pub(crate) fn leaves_room_for(
        &self,
        request: &Request,
        gain: &PageGain,
        pools: &PoolSet,
    ) -> bool {
        self.pages.iter().zip(pools.specs()).zip(0..).all(|((reserved, spec), index)| {
            let gained = gain.pages.get(usize::from(index)).copied().unwrap_or(0);
            let wanted = spec.pages_for(request.tokens.len());
            reserved + wanted <= pools.available(PoolId(index)) + gained
        })
    }
}

/// What a running request holds back of a pool.
fn share(request: &Request, spec: &PoolSpec) -> usize {
    let covered = request.table.tokens();
    spec.pages_for(request.tokens.len()) - spec.pages_for(covered) + 1
}

/// The pages, per pool, that would be there for others without some running requests: what they
/// hold, and what is reserved for them. Empty is nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct PageGain {
    pages: Vec<usize>,
}

impl PageGain {
    /// Nothing; keeps its memory.
    pub(crate) fn clear(&mut self, pools: &PoolSet) {
        self.pages.clear();
        self.pages.resize(pools.specs().len(), 0);
    }

    /// Without `request` too.
    pub(crate) fn add(&mut self, request: &Request, pools: &PoolSet) {
        for ((gain, spec), index) in self.pages.iter_mut().zip(pools.specs()).zip(0..) {
            *gain += request.table.pages(PoolId(index)).1.len() + share(request, spec);
        }
    }

    /// With `request` again.
    pub(crate) fn remove(&mut self, request: &Request, pools: &PoolSet) {
        for ((gain, spec), index) in self.pages.iter_mut().zip(pools.specs()).zip(0..) {
            *gain -= request.table.pages(PoolId(index)).1.len() + share(request, spec);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_rows_come_out_of_the_budget_first() {
        let mut budget = TokenBudget::new(10, 4, 3, 1);
        assert_eq!(budget.take_chunk(100), 4);
        assert_eq!(budget.take_chunk(2), 2);
        assert_eq!(budget.take_chunk(100), 1);
        assert!(budget.is_spent());
        assert_eq!(budget.take_chunk(100), 0);
        assert!(TokenBudget::new(3, 4, 5, 1).is_spent());
    }
}
