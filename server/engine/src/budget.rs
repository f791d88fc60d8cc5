//! What one step may spend: tokens, and the pages that admissions must leave alone.

use kv_cache::PoolSet;
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
        let covered = request.table.tokens();
        for (reserved, spec) in self.pages.iter_mut().zip(pools.specs()) {
            *reserved += spec.pages_for(request.tokens.len()) - spec.pages_for(covered) + 1;
        }
    }

    /// Would every pool have room for all of `request`'s present tokens beside the reserve?
    pub(crate) fn leaves_room_for(&self, request: &Request, pools: &PoolSet) -> bool {
        let pools =
            (0..).map(PoolId).zip(pools.specs()).map(|(id, spec)| (spec, pools.available(id)));
        self.pages.iter().zip(pools).all(|(reserved, (spec, available))| {
            reserved + spec.pages_for(request.tokens.len()) <= available
        })
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
