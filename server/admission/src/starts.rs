//! When will the next waiting request start? From the gaps between the starts so far.

use std::time::Duration;

use types::Time;

/// The weight of a new gap between two starts in the running mean.
const GAP_WEIGHT: f64 = 0.2;

/// What bounds the queue when running slots or KV pages, not prefill, are short.
#[derive(Debug, Default)]
pub(crate) struct Starts {
    /// Mean time between two starts while somebody waits.
    gap: Duration,
    /// Since when the head of the queue has been waiting for its start; `None` when none waits.
    head_since: Option<Time>,
}

impl Starts {
    /// Somebody waits.
    pub(crate) fn waits(&mut self, now: Time) {
        self.head_since.get_or_insert(now);
    }

    /// Nobody waits any more.
    pub(crate) fn nobody_waits(&mut self) {
        self.head_since = None;
    }

    /// A waiting request started; others may still wait.
    pub(crate) fn started(&mut self, now: Time) {
        if let Some(since) = self.head_since.replace(now) {
            self.gap = mean_with(self.gap, now.since(since));
        }
    }

    /// When the `nth` start from now (from 1) is expected; never less for a later one.
    ///
    /// The first takes what is left of a mean gap. Where that has passed already, the gap is
    /// expected to last as long again as it is overdue, and later gaps to be longer too.
    pub(crate) fn time_of(&self, nth: u64, now: Time) -> Duration {
        let Some(since) = self.head_since else { return Duration::ZERO };
        let passed = now.since(since);
        let first = self.gap.abs_diff(passed);
        let later = if passed > self.gap { mean_with(self.gap, passed) } else { self.gap };
        let gaps = u32::try_from(nth.saturating_sub(1)).unwrap_or(u32::MAX);
        first.saturating_add(later.saturating_mul(gaps))
    }
}

fn mean_with(mean: Duration, gap: Duration) -> Duration {
    let (mean, gap) = (mean.as_secs_f64(), gap.as_secs_f64());
    Duration::from_secs_f64(mean + GAP_WEIGHT * (gap - mean))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    /// Starts every 20 s up to 800 s.
    fn steady() -> Starts {
        let mut starts = Starts::default();
        starts.waits(at(0));
        for turn in 1..=40 {
            starts.started(at(20 * turn));
        }
        starts
    }

    #[test]
    fn within_a_gap_its_rest_is_what_is_left() {
        let seconds = |passed: u64| steady().time_of(1, at(800 + passed)).as_secs_f64().round();
        assert_eq!([0, 5, 19].map(seconds), [20.0, 15.0, 1.0]);
        // Overdue: as long again as it is overdue, instead of nothing.
        assert_eq!([30, 60, 200].map(seconds), [10.0, 40.0, 180.0]);
    }

    #[test]
    fn more_starts_never_take_less_time() {
        for passed in 0..100 {
            let times: Vec<_> = (1..6).map(|n| steady().time_of(n, at(800 + passed))).collect();
            assert!(times.is_sorted(), "{times:?}");
        }
        // With the first start still to come, what has passed is all that is known.
        let mut starts = Starts::default();
        assert_eq!(starts.time_of(3, at(9)), Duration::ZERO);
        starts.waits(at(0));
        assert_eq!(starts.time_of(1, at(9)).as_secs(), 9);
        starts.nobody_waits();
        assert_eq!(starts.time_of(1, at(20)), Duration::ZERO);
    }
}
