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
    /// Most prompt tokens of one request in one step, which bounds what it holds in a window pool.
    chunk: usize,
}

impl PageReserve {
    /// For steps with chunks of at most `chunk` tokens.
    pub(crate) const fn new(chunk: usize) -> Self {
        Self { pages: Vec::new(), chunk }
    }

    /// Nothing reserved; keeps its memory.
    pub(crate) fn reset(&mut self, pools: &PoolSet) {
        self.pages.clear();
        self.pages.resize(pools.specs().len(), 0);
    }

    /// Reserves what `request` lacks of the pages for its present tokens, and one page to grow.
    pub(crate) fn add(&mut self, request: &Request, pools: &PoolSet) {
        for ((reserved, spec), index) in self.pages.iter_mut().zip(pools.specs()).zip(0..) {
            *reserved += share(request, spec, PoolId(index), self.chunk);
        }
    }

    /// Takes back what [`add`](Self::add) would reserve now.
    pub(crate) fn remove(&mut self, request: &Request, pools: &PoolSet) {
        for ((reserved, spec), index) in self.pages.iter_mut().zip(pools.specs()).zip(0..) {
            *reserved -= share(request, spec, PoolId(index), self.chunk);
        }
    }

    /// Would every pool have room for all of `request`'s present tokens beside the reserve, if the
    /// requests behind `gain` were gone? Pages that are only cached count as free: `request` takes
    /// those that are its own, and others make room. With `copied`, so do those that only copies
    /// hold.
    pub(crate) fn leaves_room_for(
        &self,
        request: &Request,
        gain: &PageGain,
        pools: &PoolSet,
        copied: bool,
    ) -> bool {
        self.pages.iter().zip(pools.specs()).zip(0..).all(|((reserved, spec), index)| {
            let gained = gain.pages.get(usize::from(index)).copied().unwrap_or(0);
            let copying = if copied { pools.copying(PoolId(index)) } else { 0 };
            let wanted = spec.pages_at_most(request.tokens.len(), self.chunk);
            reserved + wanted <= pools.available(PoolId(index)) + copying + gained
        })
    }

    /// Is there what `request`, which holds its pages already, lacks for its present tokens, and a
    /// page to grow?
    pub(crate) fn has_room_to_grow(&self, request: &Request, pools: &PoolSet) -> bool {
        let chunk = self.chunk;
        pools
            .specs()
            .iter()
            .zip((0..).map(PoolId))
            .all(|(spec, pool)| share(request, spec, pool, chunk) <= pools.available(pool))
    }

    /// The pages of each pool that nobody in the batch will need.
    pub(crate) fn spare(&self, pools: &PoolSet) -> impl Iterator<Item = usize> {
        let available = (0..).map(|index| pools.available(PoolId(index)));
        self.pages.iter().zip(available).map(|(reserved, pages)| pages.saturating_sub(*reserved))
    }

    /// As [`leaves_room_for`](Self::leaves_room_for) while everybody stays: then `request` needs no
    /// room for pages that others hold and it would share.
    pub(crate) fn has_room_for(&self, request: &Request, pools: &PoolSet) -> bool {
        let short = |credit: usize| {
            self.pages.iter().zip(pools.specs()).zip(0..).any(|((reserved, spec), index)| {
                let credit = if spec.window.is_none() { credit } else { 0 };
                let wanted = spec.pages_at_most(request.tokens.len(), self.chunk);
                reserved + wanted - credit > pools.available(PoolId(index))
            })
        };
        // Looking for them costs a walk over the prompt, so only where it matters.
        !short(0) || (pools.is_enabled() && !short(request.pages_held_by_others(pools)))
    }
}

/// What a running request holds back of a pool: the pages that it lacks for its present tokens, and
/// one to grow.
fn share(request: &Request, spec: &PoolSpec, pool: PoolId, chunk: usize) -> usize {
    let tokens = request.tokens.len();
    let lacks = spec.pages_for(tokens) - spec.pages_for(request.table.tokens());
    let held = request.table.pages(pool).1.len();
    lacks.min(spec.pages_at_most(tokens, chunk).saturating_sub(held)) + 1
}

/// The pages, per pool, that would be there for others without some running requests: what each
/// holds alone, and what is reserved for it. Empty is nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct PageGain {
    pages: Vec<usize>,
    chunk: usize,
}

impl PageGain {
    /// Nothing; keeps its memory.
    pub(crate) fn clear(&mut self, reserve: &PageReserve, pools: &PoolSet) {
        self.chunk = reserve.chunk;
        self.pages.clear();
        self.pages.resize(pools.specs().len(), 0);
    }

    /// Without `request` too.
    pub(crate) fn add(&mut self, request: &Request, pools: &PoolSet) {
        for ((gain, spec), index) in self.pages.iter_mut().zip(pools.specs()).zip(0..) {
            *gain += gained(request, spec, PoolId(index), self.chunk);
        }
    }

    /// With `request` again.
    pub(crate) fn remove(&mut self, request: &Request, pools: &PoolSet) {
        for ((gain, spec), index) in self.pages.iter_mut().zip(pools.specs()).zip(0..) {
            *gain -= gained(request, spec, PoolId(index), self.chunk);
        }
    }
}

fn gained(request: &Request, spec: &PoolSpec, pool: PoolId, chunk: usize) -> usize {
    // Pages that a link may still read stay where they are.
    let stays = request.is_on_wire();
    let freed = if stays { 0 } else { request.table.exclusive_pages(pool) };
    freed + share(request, spec, pool, chunk)
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
