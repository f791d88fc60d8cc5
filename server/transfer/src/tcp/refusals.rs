//! Which refusals are worth a line in the log.

use std::collections::VecDeque;
use std::time::Duration;
use types::Time;

/// The same refusal is told again after this long.
const QUIET: Duration = Duration::from_secs(60);
/// Different refusals remembered; the one told longest ago makes room. Somebody who sends a new
/// text each time gets at most this many lines per [`QUIET`].
const REMEMBERED: usize = 32;

/// Remembers what was told. A peer that dials every second with the wrong model is one line a
/// minute, not sixty.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    told: VecDeque<Told>,
    /// Refusals that were not told because too many different ones came.
    crowded: u64,
}

#[derive(Debug)]
struct Told {
    text: String,
    at: Time,
    again: u64,
}

impl Refusals {
    /// Whether to log `text` now; if so, how often it came unlogged since the last time.
    pub(crate) fn tell(&mut self, text: &str, now: Time) -> Option<u64> {
        let old = |told: &Told| now.since(told.at) >= QUIET;
        if let Some(index) = self.told.iter().position(|told| told.text == text) {
            if !old(&self.told[index]) {
                self.told[index].again += 1;
                return None;
            }
            let told = self.told.remove(index)?;
            self.told.push_back(Told { at: now, again: 0, ..told });
            return Some(told.again);
        }
        if self.told.len() == REMEMBERED {
            if !self.told.front().is_some_and(old) {
                self.crowded += 1;
                return None;
            }
            self.told.pop_front();
        }
        self.told.push_back(Told { text: text.to_owned(), at: now, again: 0 });
        Some(std::mem::take(&mut self.crowded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn the_same_text_is_told_once_a_minute_with_its_count() {
        let mut refusals = Refusals::default();
        assert_eq!(refusals.tell("model a, not b", at(0)), Some(0));
        for second in 1..60 {
            assert_eq!(refusals.tell("model a, not b", at(second)), None);
        }
        assert_eq!(refusals.tell("page 16, not 32", at(5)), Some(0));
        assert_eq!(refusals.tell("model a, not b", at(60)), Some(59));
        assert_eq!(refusals.tell("model a, not b", at(61)), None);
    }

    #[test]
    fn many_different_texts_cannot_flood_the_log() {
        let mut refusals = Refusals::default();
        let told = |refusals: &mut Refusals, second| {
            (0..1000)
                .filter(|n| refusals.tell(&format!("{second} {n}"), at(second)).is_some())
                .count()
        };
        assert_eq!(told(&mut refusals, 0), REMEMBERED);
        assert_eq!(told(&mut refusals, 30), 0);
        assert_eq!(told(&mut refusals, 61), REMEMBERED);
        assert_eq!(refusals.told.len(), REMEMBERED);
        assert_eq!(refusals.tell("another", at(200)), Some(1000 - REMEMBERED as u64));
    }
}
