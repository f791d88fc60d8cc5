//! Time as the cores see it: a number they are given, never one they read.

use std::ops::Add;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since the process (or the simulation) started. Monotonic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

impl Time {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);

    /// Time passed since `earlier`; zero where `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Saturates at the end of time (584 years).
    fn add(self, later: Duration) -> Self {
        let nanos = u64::try_from(later.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

/// The one reader of the system's clocks; made once at start and copied to the rim.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    start_unix: Duration,
}

impl Clock {
    /// Starts the clock: `Time::ZERO` is now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    pub fn start() -> Self {
        let start_unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), start_unix }
    }

    /// Now, on the monotonic clock.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::ZERO + self.start.elapsed()
    }

    /// The `Instant` of a `Time`, for timers of the async runtime.
    #[must_use]
    pub fn instant(&self, time: Time) -> Instant {
        self.start + Duration::from_nanos(time.0)
    }

    /// Seconds since 1970 at `time`. Follows the monotonic clock from the start of the process on.
    #[must_use]
    pub fn unix_seconds(&self, time: Time) -> f64 {
        (self.start_unix + Duration::from_nanos(time.0)).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_runs_backwards() {
        assert_eq!(Time(5).since(Time(9)), Duration::ZERO);
        assert_eq!((Time::ZERO + Duration::from_millis(3)).since(Time(1_000_000)).as_millis(), 2);
        let clock = Clock::start();
        assert!(clock.now() <= clock.now());
    }
}
