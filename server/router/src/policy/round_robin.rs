//! One after the other.

use super::{Branch, Candidate, Guard, Policy, PolicyKind, Prompt, least};

/// Whoever was chosen longest ago, which is fair whatever the candidates are from one request to
/// the next.
#[derive(Debug, Clone, Copy)]
pub struct RoundRobin;

impl Policy for RoundRobin {
    fn kind(&self) -> PolicyKind {
        PolicyKind::RoundRobin
    }

    fn pick(&self, candidates: &[Candidate], _: &Prompt, _: &Guard) -> (usize, Branch) {
        (least(candidates, |candidate| Some(candidate.turn)), Branch::Turn)
    }
}
