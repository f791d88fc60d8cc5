//! What checks remember from one judgement to the next: when something began, and when a counter
//! grew last.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::slot::Now;

/// Something that is watched: what, and of whom.
type Key = (&'static str, String);

#[derive(Debug, Clone, Copy)]
struct Counter {
    value: u64,
    grew: Option<Now>,
    asked: Now,
}

#[derive(Debug, Clone, Copy)]
struct Began {
    at: Now,
    asked: Now,
}

/// Remembers. What nobody asks about any more is forgotten.
#[derive(Debug, Default)]
pub struct History {
    now: Option<Now>,
    counters: BTreeMap<Key, Counter>,
    began: BTreeMap<Key, Began>,
    highest: BTreeMap<Key, (f64, Now)>,
}

/// After so long without a question, what was remembered is of no use.
const KEPT: Duration = Duration::from_secs(3600);

impl History {
    /// Judgements from now on are of this moment.
    pub(super) fn at(&mut self, now: Now) {
        self.now = Some(now);
    }

    fn now(&self) -> Now {
        self.now.expect("a judgement begins with its moment")
    }

    /// Whether a counter has grown within the last `window`. What it was when it was seen first
    /// does not count, and one that starts again from less has not grown.
    pub(super) fn grew(
        &mut self,
        what: &'static str,
        whose: &str,
        value: u64,
        window: Duration,
    ) -> bool {
        let now = self.now();
        let first = Counter { value, grew: None, asked: now };
        let counter = self.counters.entry((what, whose.to_owned())).or_insert(first);
        if value > counter.value {
            counter.grew = Some(now);
        }
        (counter.value, counter.asked) = (value, now);
        counter.grew.is_some_and(|grew| now.since(grew) <= window)
    }

    /// For how long something has been so; `None` if it is not.
    pub(super) fn lasts(&mut self, what: &'static str, whose: &str, is: bool) -> Option<Duration> {
        let now = self.now();
        let key = (what, whose.to_owned());
        if !is {
            self.began.remove(&key);
            return None;
        }
        let began = self.began.entry(key).or_insert(Began { at: now, asked: now });
        began.asked = now;
        Some(now.since(began.at))
    }

    /// The highest value there was, this one included.
    pub(super) fn highest(&mut self, what: &'static str, whose: &str, value: f64) -> f64 {
        let now = self.now();
        let (highest, asked) = self.highest.entry((what, whose.to_owned())).or_insert((value, now));
        (*highest, *asked) = (highest.max(value), now);
        *highest
    }

    /// Drops what nobody has asked about for an hour.
    pub(super) fn forget(&mut self) {
        let now = self.now();
        self.counters.retain(|_, counter| now.since(counter.asked) < KEPT);
        self.began.retain(|_, began| now.since(began.asked) < KEPT);
        self.highest.retain(|_, (_, asked)| now.since(*asked) < KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn growth_counts_for_a_while_and_a_restart_is_none() {
        let (mut history, start) = (History::default(), Now::read());
        let mut at = |minute: u32, value| {
            history.at(start + MINUTE * minute);
            history.grew("oom", "a", value, MINUTE * 10)
        };
        assert!(!at(0, 5), "what was there before is old");
        assert!(at(1, 6));
        assert!(at(11, 6));
        assert!(!at(12, 6));
        assert!(!at(13, 0), "started again");
        assert!(at(14, 1));
    }

    #[test]
    fn how_long_something_lasts_starts_again_when_it_stops() {
        let (mut history, start) = (History::default(), Now::read());
        let mut at = |minute: u32, is| {
            history.at(start + MINUTE * minute);
            history.lasts("hot", "a", is)
        };
        assert_eq!((at(0, true), at(3, true)), (Some(Duration::ZERO), Some(MINUTE * 3)));
        assert_eq!((at(4, false), at(5, true)), (None, Some(Duration::ZERO)));
    }

    #[test]
    fn what_nobody_asks_about_is_forgotten() {
        let (mut history, start) = (History::default(), Now::read());
        history.at(start);
        history.grew("oom", "a", 1, MINUTE);
        history.lasts("hot", "a", true);
        assert_eq!(history.highest("rate", "a", 2.0), 2.0);
        assert_eq!(history.highest("rate", "a", 1.0), 2.0);
        history.at(start + MINUTE * 61);
        history.forget();
        assert!(history.counters.is_empty() && history.began.is_empty());
    }
}
