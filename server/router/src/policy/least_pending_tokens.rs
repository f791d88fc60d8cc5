//! The worker with the fewest uncached tokens waiting.

use super::{Branch, Candidate, Guard, Policy, PolicyKind, Prompt, least};

/// Counts tokens, not seconds: right where all workers are equally fast. Ties go by open requests,
/// then by turn.
#[derive(Debug, Clone, Copy)]
pub struct LeastPendingTokens;

impl Policy for LeastPendingTokens {
    fn kind(&self) -> PolicyKind {
        PolicyKind::LeastPendingTokens
    }

    fn pick(&self, candidates: &[Candidate], _: &Prompt, _: &Guard) -> (usize, Branch) {
        let key = |candidate: &Candidate| (candidate.pending, candidate.active, candidate.turn);
        (least(candidates, |candidate| Some(key(candidate))), Branch::LeastLoad)
    }
}
