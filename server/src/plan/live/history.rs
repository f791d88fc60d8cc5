//! Counters of the last hour, one set a minute.

use std::collections::VecDeque;
use std::time::Duration;

use types::Time;

/// How far back rates go.
const WINDOW: Duration = Duration::from_secs(3_600);
/// How often the counters are remembered.
pub(super) const PERIOD: Duration = Duration::from_secs(60);
/// Less than a period by what a timer may be early.
const LEAST: Duration = Duration::from_secs(59);
/// Sets that are remembered at most: those of the window, and one before it.
const MOST: usize = (WINDOW.as_secs() / LEAST.as_secs()) as usize + 2;

/// Counters since the start, or over a window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Requests that the curve has seen.
    pub(super) requests: u64,
    /// Events that it has missed.
    pub(super) dropped: u64,
    /// Prompt tokens of the requests seen.
    pub(super) lookup_tokens: u64,
    /// Prompt tokens that the cache was asked for.
    pub(super) queried_tokens: u64,
    /// Prompt tokens that it had.
    pub(super) found_tokens: u64,
    /// Hit and window-loss tokens of each candidate, in the order of the curve.
    pub(super) candidates: Vec<(u64, u64)>,
}

impl Counts {
    /// The share of prompt tokens that was found; `None` where none was asked for.
    pub(super) fn hit_ratio(&self) -> Option<f64> {
        (self.queried_tokens > 0).then(|| self.found_tokens as f64 / self.queried_tokens as f64)
    }

    /// What was counted since `before`.
    fn since(&self, before: &Self) -> Self {
        // The start has no candidates: all of theirs were 0.
        let earlier = before.candidates.iter().copied().chain(std::iter::repeat((0, 0)));
        let candidates = self.candidates.iter().zip(earlier);
        Self {
            requests: self.requests.saturating_sub(before.requests),
            dropped: self.dropped.saturating_sub(before.dropped),
            lookup_tokens: self.lookup_tokens.saturating_sub(before.lookup_tokens),
            queried_tokens: self.queried_tokens.saturating_sub(before.queried_tokens),
            found_tokens: self.found_tokens.saturating_sub(before.found_tokens),
            candidates: candidates
                .map(|((hits, loss), (had, lost))| {
                    (hits.saturating_sub(had), loss.saturating_sub(lost))
                })
                .collect(),
        }
    }
}

/// What was counted, and in how long.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Window {
    /// Its length: an hour and up to a minute more, or less where the server is younger.
    pub(super) seconds: u64,
    /// Whether it begins with the server.
    pub(super) since_start: bool,
    /// What was counted in it.
    pub(super) counts: Counts,
}

/// Sets of counters, oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    sets: VecDeque<(Time, Counts)>,
    /// Whether the oldest is that of the start.
    whole: bool,
}

impl History {
    /// Counting begins at 0.
    pub(super) fn begin(&mut self, now: Time) {
        self.sets.clear();
        self.sets.push_back((now, Counts::default()));
        self.whole = true;
    }

    /// Remembers a set, unless the last one is hardly older; forgets what no window needs.
    pub(super) fn note(&mut self, now: Time, counts: Counts) {
        if self.sets.back().is_some_and(|(last, _)| now.since(*last) < LEAST) {
            return;
        }
        self.sets.push_back((now, counts));
        let old = |sets: &VecDeque<(Time, Counts)>| {
            sets.get(1).is_some_and(|(at, _)| now.since(*at) >= WINDOW) || sets.len() > MOST
        };
        while old(&self.sets) {
            self.sets.pop_front();
            self.whole = false;
        }
    }

    /// The last hour up to `now`, when the counters are `counts`; since the start where the server
    /// is younger.
    pub(super) fn window(&self, now: Time, counts: &Counts) -> Window {
        let old = self.sets.iter().rposition(|(at, _)| now.since(*at) >= WINDOW);
        let first = old.unwrap_or(0);
        let Some((at, before)) = self.sets.get(first) else { return Window::default() };
        Window {
            seconds: now.since(*at).as_secs(),
            since_start: self.whole && first == 0,
            counts: counts.since(before),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    /// A server that looks up a request of 10 tokens every second and finds 3 of them.
    fn counts(seconds: u64) -> Counts {
        Counts {
            requests: seconds,
            dropped: 0,
            lookup_tokens: 10 * seconds,
            queried_tokens: 10 * seconds,
            found_tokens: 3 * seconds,
            candidates: vec![(3 * seconds, 0), (5 * seconds, seconds)],
        }
    }

    #[test]
    fn a_young_server_is_judged_by_all_it_has_seen() {
        let mut history = History::default();
        assert_eq!(history.window(at(9), &counts(9)), Window::default());
        history.begin(at(5));
        let window = history.window(at(45), &counts(40));
        assert_eq!((window.seconds, window.since_start), (40, true));
        assert_eq!(window.counts, counts(40));
        assert_eq!(window.counts.hit_ratio(), Some(0.3));
        assert_eq!(Counts::default().hit_ratio(), None);
    }

    #[test]
    fn an_old_one_by_its_last_hour_in_bounded_memory() {
        let mut history = History::default();
        history.begin(at(0));
        for second in 0..20_000 {
            history.note(at(second), counts(second));
            assert!(history.sets.len() <= MOST);
            let window = history.window(at(second), &counts(second));
            assert_eq!(window.counts, counts(window.seconds), "a steady load");
            assert!(window.seconds == second || (3_600..3_660).contains(&window.seconds));
            assert_eq!(window.since_start, window.seconds == second, "{second}");
        }
    }

    #[test]
    fn a_process_that_slept_says_how_long_the_window_is() {
        let mut history = History::default();
        history.begin(at(0));
        history.note(at(60), counts(60));
        history.note(at(9_000), counts(90));
        let window = history.window(at(9_030), &counts(120));
        assert_eq!((window.seconds, window.since_start), (8_970, false));
        assert_eq!(window.counts, counts(60));
    }
}
