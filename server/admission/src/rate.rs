//! The prefill rate: tokens per second in which the engine was busy with prefill.

use std::time::Duration;

/// Observations older than this many busy seconds weigh less than 1/e.
const MEMORY: Duration = Duration::from_secs(10);

/// The weight, in busy seconds, of the rate that was measured before the first request.
const PRIOR: f64 = 1.0;

/// No estimate is below this, so that a drain time is always a finite number.
const FLOOR: f64 = 1.0;

/// A mean over the last busy seconds. Idle time does not age it: a server that was idle for an
/// hour is as fast as before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PrefillRate {
    tokens: f64,
    busy: f64,
}

impl PrefillRate {
    pub(crate) fn new(tokens_per_second: f64) -> Self {
        let rate = if tokens_per_second.is_finite() { tokens_per_second } else { FLOOR };
        Self { tokens: rate.max(FLOOR) * PRIOR, busy: PRIOR }
    }

    /// Weighs `tokens` computed in `busy` against what is remembered.
    pub(crate) fn observe(&mut self, tokens: u64, busy: Duration) {
        if tokens == 0 || busy.is_zero() {
            return;
        }
        let keep = (-busy.as_secs_f64() / MEMORY.as_secs_f64()).exp();
        self.tokens = self.tokens * keep + tokens as f64;
        self.busy = self.busy * keep + busy.as_secs_f64();
    }

    /// Tokens per busy second, at least 1.
    pub(crate) fn tokens_per_second(self) -> f64 {
        (self.tokens / self.busy).max(FLOOR)
    }

    /// How long `tokens` take at this rate.
    pub(crate) fn time_for(self, tokens: u64) -> Duration {
        Duration::try_from_secs_f64(tokens as f64 / self.tokens_per_second())
            .unwrap_or(Duration::MAX)
    }

    /// How many tokens fit into `time` at this rate, at least 1.
    pub(crate) fn tokens_in(self, time: Duration) -> u64 {
        // A float to integer cast saturates, which is the bound that is wanted here.
        ((time.as_secs_f64() * self.tokens_per_second()) as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_the_last_busy_seconds() {
        let mut rate = PrefillRate::new(1000.0);
        assert_eq!(rate.tokens_per_second(), 1000.0);
        for _ in 0..600 {
            rate.observe(300, Duration::from_millis(100));
        }
        assert!((rate.tokens_per_second() - 3000.0).abs() < 10.0, "{}", rate.tokens_per_second());
        assert_eq!(rate.time_for(220_000).as_secs(), 73);
    }

    #[test]
    fn nonsense_never_makes_the_rate_nonsense() {
        for initial in [f64::NAN, f64::INFINITY, -5.0, 0.0] {
            let mut rate = PrefillRate::new(initial);
            assert_eq!(rate.tokens_per_second(), 1.0, "{initial}");
            rate.observe(0, Duration::from_secs(3600));
            rate.observe(5, Duration::ZERO);
            assert_eq!(rate.tokens_per_second(), 1.0, "{initial}");
        }
        assert_eq!(PrefillRate::new(1.0).time_for(u64::MAX).as_secs(), u64::MAX);
        assert_eq!(PrefillRate::new(2.5).tokens_in(Duration::from_secs(10)), 25);
    }
}
