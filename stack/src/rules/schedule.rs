//! When each group is evaluated: at its start plus whole intervals. Pure.

use std::time::Duration;

struct Entry {
    interval_ms: i64,
    next_ms: i64,
}

/// The next slot of every group, in the order of the groups.
pub(super) struct Schedule(Vec<Entry>);

/// Nothing is to be done for this long when there are no groups.
const IDLE: Duration = Duration::from_secs(3600);

impl Schedule {
    /// Every group is due at `start_ms` and then at its interval.
    pub(super) fn new(intervals: impl Iterator<Item = i64>, start_ms: i64) -> Self {
        let entry = |interval_ms: i64| Entry { interval_ms: interval_ms.max(1), next_ms: start_ms };
        Self(intervals.map(entry).collect())
    }

    /// How long until something is due. After the clock was set back, at most one interval.
    pub(super) fn wait(&self, now_ms: i64) -> Duration {
        let left = |entry: &Entry| (entry.next_ms - now_ms).clamp(0, entry.interval_ms);
        let least = self.0.iter().map(left).min();
        least.map_or(IDLE, |ms| Duration::from_millis(ms.unsigned_abs()))
    }

    /// The groups that are due with the time of their slot, the newest that has come: slots that
    /// were missed are skipped. After the clock was set back a group starts again from `now_ms`.
    pub(super) fn due(&mut self, now_ms: i64) -> Vec<(usize, i64)> {
        let mut out = Vec::new();
        for (index, entry) in self.0.iter_mut().enumerate() {
            if entry.next_ms - now_ms > entry.interval_ms {
                entry.next_ms = now_ms;
            }
            if entry.next_ms <= now_ms {
                let missed = (now_ms - entry.next_ms) / entry.interval_ms;
                let slot = entry.next_ms + missed * entry.interval_ms;
                entry.next_ms = slot + entry.interval_ms;
                out.push((index, slot));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_whole_intervals_after_the_start() {
        let mut schedule = Schedule::new([15_000, 5_000].into_iter(), 100);
        assert_eq!(schedule.due(107), [(0, 100), (1, 100)]);
        assert_eq!(schedule.wait(107), Duration::from_millis(4_993));
        assert_eq!(schedule.due(5_099), []);
        assert_eq!(schedule.due(5_100), [(1, 5_100)]);
        assert_eq!(schedule.due(40_000), [(0, 30_100), (1, 35_100)], "missed slots are skipped");
        assert_eq!(schedule.due(40_100), [(1, 40_100)]);
    }

    #[test]
    fn a_clock_that_is_set_back_stops_nothing() {
        let mut schedule = Schedule::new([15_000].into_iter(), 1_000_000);
        assert_eq!(schedule.due(1_000_000), [(0, 1_000_000)]);
        assert_eq!(schedule.wait(5_000), Duration::from_secs(15));
        assert_eq!(schedule.due(5_000), [(0, 5_000)]);
        assert_eq!(Schedule::new([].into_iter(), 0).wait(9), IDLE);
    }
}
