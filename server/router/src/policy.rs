//! Policies: which of the workers that can be asked is asked.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

mod cache_aware;
mod least_pending_tokens;
mod power_of_two;
mod prefix_hash;
mod round_robin;

pub use cache_aware::CacheAware;
pub use least_pending_tokens::LeastPendingTokens;
pub use power_of_two::PowerOfTwo;
pub use prefix_hash::PrefixHash;
pub use round_robin::RoundRobin;

/// The policies by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PolicyKind {
    /// The worker that would answer first: with the least to do before this prompt and with it,
    /// where it holds a part of the prompt already.
    #[default]
    CacheAware,
    /// The worker with the fewest uncached tokens waiting.
    LeastPendingTokens,
    /// The better of two taken at random.
    PowerOfTwo,
    /// One after the other.
    RoundRobin,
    /// By a hash of the beginning of the prompt; few prompts move when workers join or leave.
    PrefixHash,
}

impl PolicyKind {
    /// Every policy, in declaration order.
    pub const ALL: [Self; 5] = [
        Self::CacheAware,
        Self::LeastPendingTokens,
        Self::PowerOfTwo,
        Self::RoundRobin,
        Self::PrefixHash,
    ];

    /// The name in configuration and the label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CacheAware => "cache_aware",
            Self::LeastPendingTokens => "least_pending_tokens",
            Self::PowerOfTwo => "power_of_two",
            Self::RoundRobin => "round_robin",
            Self::PrefixHash => "prefix_hash",
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that no policy has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no policy {0:?}; policies are cache_aware, least_pending_tokens, power_of_two, \
     round_robin and prefix_hash"
)]
pub struct UnknownPolicy(pub String);

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let named = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        named.ok_or_else(|| UnknownPolicy(text.to_owned()))
    }
}

/// Why a policy chose as it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Branch {
    /// It holds more of the prompt than others.
    CacheHit,
    /// It has the least to do.
    LeastLoad,
    /// What the policy prefers has too much to do.
    LoadGuard,
    /// The hash of the prompt.
    Hash,
    /// Its turn.
    Turn,
    /// There was no other.
    Only,
}

impl Branch {
    /// Every branch, in declaration order.
    pub const ALL: [Self; 6] =
        [Self::CacheHit, Self::LeastLoad, Self::LoadGuard, Self::Hash, Self::Turn, Self::Only];

    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CacheHit => "cache_hit",
            Self::LeastLoad => "least_load",
            Self::LoadGuard => "load_guard",
            Self::Hash => "hash",
            Self::Turn => "turn",
            Self::Only => "only",
        }
    }
}

/// A worker that can be asked, as policies see it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// A hash of its name: the same over restarts of the worker and of the router.
    pub name_hash: u64,
    /// Seconds until what waits there is prefilled.
    pub backlog: f64,
    /// Prompt tokens per second that it computes, above 0.
    pub prefill_rate: f64,
    /// Uncached prompt tokens that wait there.
    pub pending: u64,
    /// Requests that this router has open there.
    pub active: u64,
    /// Requests that run or wait there, per running slot; 0 where it only computes prompts.
    pub occupancy: f64,
    /// Share of the prompt that it is believed to hold, 0 to 1.
    pub matched: f64,
    /// When it was last chosen, as a count of choices; 0 is never.
    pub turn: u64,
}

impl Candidate {
    /// Seconds until the prompt of `tokens` would be prefilled there.
    #[must_use]
    pub fn wait(&self, tokens: u64) -> f64 {
        self.backlog + tokens as f64 * (1.0 - self.matched) / self.prefill_rate
    }

    /// Order by load: backlog, then open requests, then whose turn it is.
    fn load(&self) -> (f64, u64, u64) {
        (self.backlog, self.active, self.turn)
    }
}

/// What a policy knows of the request.
#[derive(Debug, Clone, Copy)]
pub struct Prompt {
    /// Prompt tokens, estimated.
    pub tokens: u64,
    /// A hash of its beginning, of its model and its namespace.
    pub head: u64,
    /// A number drawn for this choice.
    pub draw: u64,
}

/// When a worker has too much to do to be preferred to one with less.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guard {
    /// A backlog, and the requests per running slot, may be so many times the least of all workers;
    /// at least 1.
    pub factor: f64,
    /// Shorter backlogs are always let through.
    pub floor: Duration,
    /// Fewer requests per running slot are always let through.
    pub occupancy_floor: f64,
}

/// What a guard lets through among some candidates.
#[derive(Debug, Clone, Copy)]
struct Limits {
    backlog: f64,
    occupancy: f64,
}

impl Guard {
    fn limits(&self, candidates: &[Candidate]) -> Limits {
        let factor = self.factor.max(1.0);
        let least = |of: fn(&Candidate) -> f64| candidates.iter().map(of).fold(f64::MAX, f64::min);
        let backlog = (least(|c| c.backlog) * factor).max(self.floor.as_secs_f64());
        let occupancy = (least(|c| c.occupancy) * factor).max(self.occupancy_floor);
        let limits = Limits { backlog, occupancy };
        // Who has the least of one may have too much of the other; then the backlog counts.
        let any = candidates.iter().any(|candidate| limits.lets(candidate));
        if any { limits } else { Limits { backlog, occupancy: f64::INFINITY } }
    }
}

impl Limits {
    fn lets(&self, candidate: &Candidate) -> bool {
        candidate.backlog <= self.backlog && candidate.occupancy <= self.occupancy
    }
}

/// A way to choose. Costs a pass over the candidates and allocates nothing.
pub trait Policy: fmt::Debug + Send + Sync {
    /// Its name.
    fn kind(&self) -> PolicyKind;

    /// The index of the chosen candidate, and why.
    ///
    /// `candidates` has at least two: with one there is nothing to choose.
    fn pick(&self, candidates: &[Candidate], prompt: &Prompt, guard: &Guard) -> (usize, Branch);
}

impl PolicyKind {
    /// The policy of that name.
    #[must_use]
    pub fn policy(self) -> &'static dyn Policy {
        match self {
            Self::CacheAware => &CacheAware,
            Self::LeastPendingTokens => &LeastPendingTokens,
            Self::PowerOfTwo => &PowerOfTwo,
            Self::RoundRobin => &RoundRobin,
            Self::PrefixHash => &PrefixHash,
        }
    }
}

/// The index of the smallest by `key`, the first among equals. Keys that cannot be compared, which
/// only a number that is none would be, count as equal.
fn least<K: PartialOrd>(
    candidates: &[Candidate],
    mut key: impl FnMut(&Candidate) -> Option<K>,
) -> usize {
    let mut best: Option<(usize, K)> = None;
    for (at, candidate) in candidates.iter().enumerate() {
        if let Some(found) = key(candidate)
            && best.as_ref().is_none_or(|(_, least)| found < *least)
        {
            best = Some((at, found));
        }
    }
    best.map_or(0, |(at, _)| at)
}

#[cfg(test)]
mod tests;
