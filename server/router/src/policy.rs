//! Policies: which of the workers that can be asked is asked.

use std::fmt;
use std::str::FromStr;

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
