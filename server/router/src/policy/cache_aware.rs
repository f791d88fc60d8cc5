//! The worker that would have prefilled the prompt first.

use super::{Branch, Candidate, Guard, Policy, PolicyKind, Prompt, least};

/// Weighs what a worker has to do before the prompt against what it holds of it, both in seconds:
/// a prefix is worth the time that computing it takes, and no more. A worker behind the guard is
/// not taken whatever it holds, so that a prefix that everybody wants gets to other workers too.
#[derive(Debug, Clone, Copy)]
pub struct CacheAware;

impl Policy for CacheAware {
    fn kind(&self) -> PolicyKind {
        PolicyKind::CacheAware
    }

    fn pick(&self, candidates: &[Candidate], prompt: &Prompt, guard: &Guard) -> (usize, Branch) {
        let limits = guard.limits(candidates);
        let chosen = least(candidates, |candidate| {
            limits.lets(candidate).then(|| (candidate.wait(prompt.tokens), candidate.load()))
        });
        let held = candidates.iter().map(|candidate| candidate.matched).fold(0.0, f64::max);
        let branch = if held == 0.0 {
            Branch::LeastLoad
        } else if candidates[chosen].matched == held {
            Branch::CacheHit
        } else {
            Branch::LoadGuard
        };
        (chosen, branch)
    }
}
