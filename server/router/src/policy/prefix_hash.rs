//! By a hash of the beginning of the prompt.

use super::{Branch, Candidate, Guard, Policy, PolicyKind, Prompt};

/// Rendezvous hashing: each worker has a weight for each beginning, and the heaviest is asked. A
/// worker that joins takes its share from all, one that leaves gives its own to all, and nothing
/// else moves. Where the heaviest has too much to do, the next one is asked.
#[derive(Debug, Clone, Copy)]
pub struct PrefixHash;

impl Policy for PrefixHash {
    fn kind(&self) -> PolicyKind {
        PolicyKind::PrefixHash
    }

    fn pick(&self, candidates: &[Candidate], prompt: &Prompt, guard: &Guard) -> (usize, Branch) {
        let limits = guard.limits(candidates);
        let weight = |candidate: &Candidate| mix(candidate.name_hash ^ prompt.head);
        let (mut home, mut chosen) = ((0, 0), None);
        for (at, candidate) in candidates.iter().enumerate() {
            let own = (weight(candidate), at);
            home = home.max(own);
            if limits.lets(candidate) {
                chosen = chosen.max(Some(own));
            }
        }
        // The limits let at least the one with the shortest backlog through.
        let chosen = chosen.unwrap_or(home);
        (chosen.1, if chosen == home { Branch::Hash } else { Branch::LoadGuard })
    }
}

/// Spreads a number over 64 bits, each input to another output (the finalizer of `SplitMix64`).
fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
