//! When a request stops waiting for its pages: a decision over plain values.

use std::time::Duration;
use types::{Time, Tokens};

/// How long a prefetch may take, by how much it reads: the smaller of `max` and
/// `base + per_ki_tokens * tokens / 1024`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefetchTimeout {
    /// Whatever the length.
    pub base: Duration,
    /// For each 1024 tokens asked for.
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

/// What a request does when it could be scheduled while its pages are still being read.
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
}

/// What a request whose pages are being read does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefetchStep {
    /// Is passed over; others may be scheduled. `until` is when the answer changes by itself.
    Wait {
        /// `None`: only when more pages arrive.
        until: Option<Time>,
    },
    /// Is scheduled with the tokens that are there; what still arrives is not for it.
    Stop {
        /// Leading tokens that are there.
        tokens: Tokens,
        /// Whether that is all that will ever come: everything asked for, or up to the first miss.
        complete: bool,
    },
}

/// The prefetch of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefetch {
    deadline: Option<Time>,
    waits: bool,
    asked: Tokens,
    there: Tokens,
    ended: bool,
}

impl Prefetch {
    /// Starts `now`, asking for `asked` tokens.
    #[must_use]
    pub fn new(policy: PrefetchPolicy, now: Time, asked: Tokens) -> Self {
        let (waits, deadline) = match policy {
            PrefetchPolicy::BestEffort => (false, None),
            PrefetchPolicy::Timeout(timeout) => (true, Some(now + timeout.of(asked))),
            PrefetchPolicy::WaitComplete => (true, None),
        };
        Self { deadline, waits, asked, there: Tokens(0), ended: asked == Tokens(0) }
    }

    /// The first `tokens` of what was asked for are there. Never takes any back.
    pub fn arrived(&mut self, tokens: Tokens) {
        self.there = Tokens(tokens.0.min(self.asked.0).max(self.there.0));
        self.ended |= self.there == self.asked;
    }

    /// Nothing more will arrive: a page was missing, or reading failed.
    pub fn ended(&mut self) {
        self.ended = true;
    }

    /// What to do when the request could be scheduled `now`.
    #[must_use]
    pub fn step(&self, now: Time) -> PrefetchStep {
        let late = self.deadline.is_some_and(|deadline| now >= deadline);
        if self.ended || late || !self.waits {
            return PrefetchStep::Stop { tokens: self.there, complete: self.ended };
        }
        PrefetchStep::Wait { until: self.deadline }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn timeout() -> PrefetchTimeout {
        PrefetchTimeout { base: SECOND, per_ki_tokens: 2 * SECOND, max: 6 * SECOND }
    }

    #[test]
    fn the_timeout_grows_with_the_tokens_up_to_its_maximum() {
        for (tokens, seconds) in [(0, 1.0), (512, 2.0), (1024, 3.0), (2560, 6.0), (1 << 40, 6.0)] {
            assert_eq!(timeout().of(Tokens(tokens)).as_secs_f64(), seconds, "{tokens}");
        }
        let endless =
            PrefetchTimeout { base: SECOND, per_ki_tokens: Duration::MAX, max: Duration::MAX };
        assert!(endless.of(Tokens(u64::MAX)) > SECOND, "saturates");
    }

    #[test]
    fn best_effort_takes_what_is_there() {
        let mut prefetch = Prefetch::new(PrefetchPolicy::BestEffort, Time::ZERO, Tokens(64));
        let stop = |tokens, complete| PrefetchStep::Stop { tokens: Tokens(tokens), complete };
        assert_eq!(prefetch.step(Time::ZERO), stop(0, false));
        prefetch.arrived(Tokens(32));
        assert_eq!(prefetch.step(Time::ZERO), stop(32, false));
        prefetch.arrived(Tokens(64));
        assert_eq!(prefetch.step(Time::ZERO), stop(64, true));
    }

    #[test]
    fn wait_complete_waits_for_the_last_token_or_the_end() {
        let mut prefetch = Prefetch::new(PrefetchPolicy::WaitComplete, Time::ZERO, Tokens(64));
        let far = Time::ZERO + 1_000_000 * SECOND;
        prefetch.arrived(Tokens(48));
        prefetch.arrived(Tokens(16));
        assert_eq!(prefetch.step(far), PrefetchStep::Wait { until: None });
        let mut short = prefetch;
        short.ended();
        assert_eq!(short.step(far), PrefetchStep::Stop { tokens: Tokens(48), complete: true });
        prefetch.arrived(Tokens(99));
        assert_eq!(prefetch.step(far), PrefetchStep::Stop { tokens: Tokens(64), complete: true });
    }

    #[test]
    fn timeout_waits_until_its_deadline() {
        let start = Time::ZERO + 10 * SECOND;
        let policy = PrefetchPolicy::Timeout(timeout());
        let mut prefetch = Prefetch::new(policy, start, Tokens(1024));
        let until = start + 3 * SECOND;
        assert_eq!(prefetch.step(start), PrefetchStep::Wait { until: Some(until) });
        prefetch.arrived(Tokens(16));
        assert_eq!(
            prefetch.step(until),
            PrefetchStep::Stop { tokens: Tokens(16), complete: false }
        );
    }

    #[test]
    fn a_prefetch_of_nothing_is_over() {
        let prefetch = Prefetch::new(PrefetchPolicy::WaitComplete, Time::ZERO, Tokens(0));
        let stop = PrefetchStep::Stop { tokens: Tokens(0), complete: true };
        assert_eq!(prefetch.step(Time::ZERO), stop);
    }
}
