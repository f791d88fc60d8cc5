//! How long a request waits for its pages: a decision over plain values.

use std::time::Duration;

use types::{Time, Tokens};

/// How long a request may wait, by how much it waits for: the smaller of `max` and
/// `base + per_ki_tokens * tokens / 1024`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefetchTimeout {
    /// Whatever the length.
    pub base: Duration,
    /// For each 1024 tokens that may come.
    pub per_ki_tokens: Duration,
    /// At most this.
    pub max: Duration,
}

impl Default for PrefetchTimeout {
    /// 1 s and 0.25 s per 1024 tokens, at most 30 s.
    fn default() -> Self {
        Self {
            base: Duration::from_secs(1),
            per_ki_tokens: Duration::from_millis(250),
            max: Duration::from_secs(30),
        }
    }
}

impl PrefetchTimeout {
    /// The time that `tokens` may take.
    #[must_use]
    pub fn of(&self, tokens: Tokens) -> Duration {
        let nanos = self.per_ki_tokens.as_nanos().saturating_mul(tokens.0.into()) / 1024;
        let variable = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.base.saturating_add(variable).min(self.max)
    }
}

/// What a request does whose pages are still being read when it could be scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefetchPolicy {
    /// Takes what is there.
    BestEffort,
    /// Waits for everything, but not longer than this.
    Timeout(PrefetchTimeout),
    /// Waits for everything, as long as it takes.
    WaitComplete,
}

impl PrefetchPolicy {
    /// The name operators give it.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::BestEffort => "best_effort",
            Self::Timeout(_) => "timeout",
            Self::WaitComplete => "wait_complete",
        }
    }

    /// Whether requests wait at all.
    pub(crate) const fn waits(&self) -> bool {
        match self {
            Self::BestEffort => false,
            Self::Timeout(_) | Self::WaitComplete => true,
        }
    }

    /// Until when a request waits that came `now` and may get `tokens`; `None`: to the end.
    pub(crate) fn deadline(&self, now: Time, tokens: Tokens) -> Option<Time> {
        match self {
            Self::Timeout(timeout) => Some(now + timeout.of(tokens)),
            Self::BestEffort | Self::WaitComplete => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_timeout_grows_with_the_tokens_up_to_its_maximum() {
        let timeout = PrefetchTimeout { base: SECOND, per_ki_tokens: 2 * SECOND, max: 6 * SECOND };
        for (tokens, seconds) in [(0, 1.0), (512, 2.0), (1024, 3.0), (2560, 6.0), (1 << 40, 6.0)] {
            assert_eq!(timeout.of(Tokens(tokens)).as_secs_f64(), seconds, "{tokens}");
        }
        let endless =
            PrefetchTimeout { base: SECOND, per_ki_tokens: Duration::MAX, max: Duration::MAX };
        assert!(endless.of(Tokens(u64::MAX)) > SECOND, "saturates");
        let start = Time::ZERO + 10 * SECOND;
        let until = PrefetchPolicy::Timeout(timeout).deadline(start, Tokens(1024));
        assert_eq!(until, Some(start + 3 * SECOND));
        assert_eq!(PrefetchPolicy::WaitComplete.deadline(start, Tokens(1024)), None);
    }
}
