//! Restarts: told by the service manager, or seen where there is none.

use std::collections::VecDeque;
use std::time::Duration;

use crate::slot::Now;

/// Restarts within this time make a loop.
pub const WINDOW: Duration = Duration::from_secs(600);

/// Restarts that are remembered; more of them are as bad as these.
const REMEMBERED: usize = 64;

/// Counts restarts of one service.
#[derive(Debug, Clone, Default)]
pub struct Restarts {
    told: Option<u64>,
    started: Option<f64>,
    seen: u64,
    recent: VecDeque<Now>,
}

impl Restarts {
    /// The service manager says that it has restarted the service `count` times. It starts at 0
    /// again when somebody starts the service by hand. Restarts from before the first report are
    /// not recent.
    pub fn told(&mut self, count: u64, now: Now) {
        if let Some(before) = self.told.replace(count) {
            self.grew(count.saturating_sub(before), now);
        }
    }

    /// The process says that it started then, in seconds since 1970.
    pub fn started(&mut self, time: f64, now: Now) {
        /// A process computes its start from the clock of the machine, which is corrected now and
        /// then.
        const SAME: f64 = 1.0;
        if self.started.is_some_and(|before| time - before > SAME) {
            self.seen += 1;
            self.grew(1, now);
        }
        self.started = Some(time);
    }

    fn grew(&mut self, by: u64, now: Now) {
        for _ in 0..by.min(REMEMBERED as u64) {
            if self.recent.len() == REMEMBERED {
                self.recent.pop_front();
            }
            self.recent.push_back(now);
        }
    }

    /// Whether anybody has said anything yet.
    #[must_use]
    pub const fn is_told(&self) -> bool {
        self.told.is_some() || self.started.is_some()
    }

    /// Restarts seen by [`Restarts::started`].
    #[must_use]
    pub const fn seen(&self) -> u64 {
        self.seen
    }

    /// Restarts within [`WINDOW`].
    #[must_use]
    pub fn recent(&self, now: Now) -> usize {
        self.recent.iter().filter(|at| now.since(**at) < WINDOW).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_loop_is_restarts_of_late() {
        let start = Now::read();
        let mut restarts = Restarts::default();
        // Seven from long ago.
        restarts.told(7, start);
        assert_eq!(restarts.recent(start), 0);
        restarts.told(8, start + MINUTE);
        restarts.told(10, start + MINUTE * 2);
        assert_eq!(restarts.recent(start + MINUTE * 3), 3);
        assert_eq!(restarts.recent(start + MINUTE * 11), 2);
        assert_eq!(restarts.recent(start + MINUTE * 12), 0);
        // Started by hand: the manager counts from 0 again.
        restarts.told(0, start + MINUTE * 20);
        restarts.told(1, start + MINUTE * 21);
        assert_eq!(restarts.recent(start + MINUTE * 21), 1);
        assert_eq!(restarts.seen(), 0);
        restarts.told(u64::MAX, start + MINUTE * 22);
        assert_eq!(restarts.recent(start + MINUTE * 22), REMEMBERED);
    }

    #[test]
    fn without_a_manager_the_start_time_tells() {
        let start = Now::read();
        let mut restarts = Restarts::default();
        restarts.started(1_000.0, start);
        restarts.started(1_000.4, start + MINUTE);
        assert_eq!((restarts.seen(), restarts.recent(start + MINUTE)), (0, 0));
        restarts.started(1_060.0, start + MINUTE * 2);
        restarts.started(1_060.0, start + MINUTE * 3);
        assert_eq!((restarts.seen(), restarts.recent(start + MINUTE * 3)), (1, 1));
        // The clock was set back.
        restarts.started(500.0, start + MINUTE * 4);
        assert_eq!(restarts.seen(), 1);
    }
}
