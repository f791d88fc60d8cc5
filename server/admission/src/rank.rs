//! The one order of requests: who is served first, and whose place is taken first.

use std::time::Duration;

use types::{Priority, Time};

/// A request that has waited so long counts one level of priority more.
pub const AGEING: Duration = Duration::from_secs(10);

/// [`AGEING`] in the unit of keys; fits, and so do a hundred of them.
const AGEING_NANOS: i64 = 10_000_000_000;

/// A place in the order; the smaller one is served first.
///
/// The effective priority of a request is its own plus one for every [`AGEING`] of waiting, so at
/// any moment the comparison of two requests is that of `enqueued_at - priority x AGEING`. That
/// key never changes: requests age without being sorted again. Equal keys go by arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    key: i64,
    seq: u64,
}

impl Rank {
    /// The rank of a request of `priority` that came at `enqueued_at` as number `seq`.
    #[must_use]
    pub fn new(enqueued_at: Time, priority: Priority, seq: u64) -> Self {
        // Beyond 146 years all times are the same.
        let since_start = i64::try_from(enqueued_at.0).unwrap_or(i64::MAX).min(i64::MAX / 2);
        Self { key: since_start - i64::from(priority.level()) * AGEING_NANOS, seq }
    }

    /// The number of arrival.
    #[must_use]
    pub const fn seq(self) -> u64 {
        self.seq
    }

    /// Whether this one's effective priority is strictly higher, by however little.
    #[must_use]
    pub const fn is_better_than(self, other: Self) -> bool {
        self.key < other.key
    }

    /// Whether this one's effective priority is higher by `levels` or more.
    #[must_use]
    pub fn exceeds(self, other: Self, levels: u32) -> bool {
        other.key.saturating_sub(self.key) >= i64::from(levels).saturating_mul(AGEING_NANOS)
    }

    /// The same key as another number of arrival.
    pub(crate) const fn with_seq(self, seq: u64) -> Self {
        Self { key: self.key, seq }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(seconds: u64, level: i64, seq: u64) -> Rank {
        let priority = Priority::new(level).expect("a level of a test");
        Rank::new(Time(seconds * 1_000_000_000), priority, seq)
    }

    #[test]
    fn a_level_is_worth_ten_seconds_of_waiting() {
        assert!(rank(0, 1, 0).is_better_than(rank(0, 0, 1)));
        assert!(rank(9, 1, 1).is_better_than(rank(0, 0, 0)), "not aged enough");
        assert!(!rank(10, 1, 1).is_better_than(rank(0, 0, 0)), "as good by now");
        assert!(rank(11, 0, 0).exceeds(rank(0, -2, 1), 0));
        assert!(!rank(0, 5, 0).exceeds(rank(0, 0, 1), 6));
        assert!(rank(0, 5, 0).exceeds(rank(0, 0, 1), 5));
    }

    #[test]
    fn equals_go_by_arrival() {
        assert!(rank(3, 0, 4) < rank(3, 0, 5));
        assert!(!rank(3, 0, 4).is_better_than(rank(3, 0, 5)));
        assert!(
            rank(u64::MAX / 1_000_000_000, 100, 0)
                < rank(0, -100, u64::MAX).with_seq(1).max(rank(u64::MAX / 1_000_000_000, 99, 0))
        );
    }
}
