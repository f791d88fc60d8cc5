//! The better of two taken at random.

use super::{Branch, Candidate, Guard, Policy, PolicyKind, Prompt};

/// Several routers that know the same loads do not all run to the same worker.
#[derive(Debug, Clone, Copy)]
pub struct PowerOfTwo;

impl Policy for PowerOfTwo {
    fn kind(&self) -> PolicyKind {
        PolicyKind::PowerOfTwo
    }

    fn pick(&self, candidates: &[Candidate], prompt: &Prompt, _: &Guard) -> (usize, Branch) {
        let count = candidates.len();
        let (high, low) = ((prompt.draw >> 32) as usize, prompt.draw as u32 as usize);
        let one = high % count;
        // Any of the others.
        let other = (one + 1 + low % (count - 1).max(1)) % count;
        let better = if candidates[other].load() < candidates[one].load() { other } else { one };
        (better, Branch::LeastLoad)
    }
}
