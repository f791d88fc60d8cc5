//! The circuit breaker of one worker. What it counts are failures; refusals and bad requests are
//! none. It opens again only where a probe fails, and an open one lets a probe through when its
//! time is over, whether or not anybody asked meanwhile.

use std::sync::{Arc, Weak};
use std::time::Duration;

use types::Time;

use crate::config::BreakerConfig;
use crate::worker::CircuitState;

/// The right to ask a worker whose breaker is half open. There is one at a time; dropping it lets
/// the next one ask.
#[derive(Debug)]
pub(crate) struct Probe(#[expect(dead_code, reason = "held, not read")] Arc<()>);

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    well: u32,
    failed: u32,
}

#[derive(Debug, Clone, Copy)]
struct Opened {
    until: Time,
    lasted: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Breaker {
    opened: Option<Opened>,
    probe: Weak<()>,
    /// Two halves of the window: the one that began at `since`, and the one before.
    since: Time,
    current: Counts,
    previous: Counts,
}

impl Breaker {
    pub(crate) fn state(&self, now: Time) -> CircuitState {
        match self.opened {
            None => CircuitState::Closed,
            Some(opened) if now < opened.until => CircuitState::Open,
            Some(_) => CircuitState::HalfOpen,
        }
    }

    /// When it lets somebody through again, where it does not now: an open one.
    pub(crate) fn opens_at(&self, now: Time) -> Option<Time> {
        self.opened.map(|opened| opened.until).filter(|until| now < *until)
    }

    /// May a request go there?
    pub(crate) fn may_ask(&self, now: Time) -> bool {
        match self.state(now) {
            CircuitState::Closed => true,
            CircuitState::Open => false,
            CircuitState::HalfOpen => self.probe.strong_count() == 0,
        }
    }

    /// A request goes there: in the half-open state it is a probe.
    pub(crate) fn ask(&mut self, now: Time) -> Option<Probe> {
        (self.state(now) == CircuitState::HalfOpen).then(|| {
            let permit = Arc::new(());
            self.probe = Arc::downgrade(&permit);
            Probe(permit)
        })
    }

    /// A request was answered, or refused in good order. Returns the state where it changed.
    pub(crate) fn well(
        &mut self,
        probe: bool,
        now: Time,
        config: &BreakerConfig,
    ) -> Option<CircuitState> {
        match self.state(now) {
            CircuitState::Closed => {
                self.roll(now, config.window);
                self.current.well = self.current.well.saturating_add(1);
                None
            }
            CircuitState::HalfOpen if probe => {
                *self = Self { since: now, ..Self::default() };
                Some(CircuitState::Closed)
            }
            CircuitState::HalfOpen | CircuitState::Open => None,
        }
    }

    /// A request failed. Returns the state where it changed.
    pub(crate) fn failed(
        &mut self,
        probe: bool,
        now: Time,
        config: &BreakerConfig,
    ) -> Option<CircuitState> {
        let lasted = match (self.state(now), self.opened) {
            (CircuitState::Closed, _) | (_, None) => {
                self.roll(now, config.window);
                self.current.failed = self.current.failed.saturating_add(1);
                let failed = self.current.failed.saturating_add(self.previous.failed);
                let well = self.current.well.saturating_add(self.previous.well);
                if failed < config.failures.max(1) || failed < well {
                    return None;
                }
                config.open
            }
            (CircuitState::HalfOpen, Some(opened)) if probe => {
                opened.lasted.saturating_mul(2).min(config.open_max.max(config.open))
            }
            (CircuitState::HalfOpen | CircuitState::Open, Some(_)) => return None,
        };
        *self = Self {
            opened: Some(Opened { until: now + lasted, lasted }),
            since: now,
            ..Self::default()
        };
        Some(CircuitState::Open)
    }

    fn roll(&mut self, now: Time, window: Duration) {
        let half = window / 2;
        let past = now.since(self.since);
        if past >= window {
            (self.previous, self.current) = Default::default();
            self.since = now;
        } else if past >= half {
            self.previous = std::mem::take(&mut self.current);
            self.since = self.since + half;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: BreakerConfig = BreakerConfig {
        failures: 3,
        window: Duration::from_secs(10),
        open: Duration::from_secs(2),
        open_max: Duration::from_secs(5),
    };

    fn at(seconds: f64) -> Time {
        Time::ZERO + Duration::from_secs_f64(seconds)
    }

    fn opened() -> Breaker {
        let mut breaker = Breaker::default();
        assert_eq!(breaker.failed(false, at(1.0), &CONFIG), None);
        assert_eq!(breaker.failed(false, at(1.0), &CONFIG), None);
        assert_eq!(breaker.failed(false, at(1.0), &CONFIG), Some(CircuitState::Open));
        breaker
    }

    #[test]
    fn failures_within_the_window_open_it_and_older_ones_do_not() {
        let mut breaker = Breaker::default();
        for second in 0..60 {
            let now = at(f64::from(second) * 6.0);
            assert_eq!(breaker.failed(false, now, &CONFIG), None, "one in 6 s is not 3 in 10 s");
        }
        assert!(!opened().may_ask(at(2.9)));
        assert_eq!(opened().opens_at(at(2.0)), Some(at(3.0)));
    }

    #[test]
    fn a_minority_of_failures_does_not_open_it() {
        let mut breaker = Breaker::default();
        for _ in 0..100 {
            assert_eq!(breaker.well(false, at(1.0), &CONFIG), None);
        }
        for _ in 0..99 {
            assert_eq!(breaker.failed(false, at(1.0), &CONFIG), None);
        }
        assert_eq!(breaker.failed(false, at(1.0), &CONFIG), Some(CircuitState::Open));
    }

    #[test]
    fn a_half_open_one_lets_one_probe_through_at_a_time() {
        let mut breaker = opened();
        assert_eq!(breaker.state(at(3600.0)), CircuitState::HalfOpen, "idle time heals it");
        let probe = breaker.ask(at(3600.0)).expect("it is half open");
        assert!(!breaker.may_ask(at(3600.0)));
        drop(probe);
        assert!(breaker.may_ask(at(3600.0)), "a client that left gives the probe back");
        assert_eq!(breaker.well(true, at(3600.0), &CONFIG), Some(CircuitState::Closed));
        assert!(breaker.ask(at(3600.0)).is_none());
    }

    #[test]
    fn only_a_failed_probe_opens_it_again_and_each_time_for_longer() {
        let mut breaker = opened();
        assert_eq!(breaker.failed(false, at(2.0), &CONFIG), None, "an older request");
        assert_eq!(breaker.failed(false, at(3.0), &CONFIG), None, "also when half open");
        assert_eq!(breaker.well(false, at(3.0), &CONFIG), None);
        assert_eq!(breaker.state(at(3.0)), CircuitState::HalfOpen);
        assert_eq!(breaker.failed(true, at(3.0), &CONFIG), Some(CircuitState::Open));
        assert_eq!(breaker.opens_at(at(3.0)), Some(at(7.0)));
        assert_eq!(breaker.failed(true, at(7.0), &CONFIG), Some(CircuitState::Open));
        assert_eq!(breaker.opens_at(at(7.0)), Some(at(12.0)), "no longer than open_max");
    }
}
