//! When clients that were sent away come back.
//!
//! Told one by one when there is room for each of them alone, all would come for the same room: one
//! gets it, and the others are sent away again, the largest prompt for ever. So each is told a time
//! behind those that were told before and have not come yet, by what their work takes.

use std::collections::BTreeMap;
use std::time::Duration;

use types::Time;

/// Most clients that are remembered; beyond, times are told as if there were no more.
const REMEMBERED: usize = 4096;

/// Clients that were told to come back, until their time has come. Whether they do, nobody knows:
/// nothing is kept free for them.
#[derive(Debug, Default)]
pub struct Returns {
    /// What each will ask for, by its time.
    due: BTreeMap<(Time, u64), Duration>,
    told: u64,
}

impl Returns {
    /// The longest time that is told because of others. The clients of the `openai` packages
    /// follow up to a minute, and come back at once where they are told more.
    pub const LONGEST: Duration = Duration::from_secs(60);

    /// When a client shall come back for which there would be room after `wait`, if it were alone,
    /// and which asks for `work`: whole seconds, at least 1.
    pub fn tell(&mut self, wait: Duration, work: Duration, now: Time) -> Duration {
        while let Some(entry) = self.due.first_entry().filter(|entry| entry.key().0 <= now) {
            entry.remove();
        }
        let (room, latest) = (now + wait, now + Self::LONGEST.max(wait));
        let mut behind = room;
        for ((due, _), work) in &self.due {
            // Before the next one comes there is time for this one.
            if *due > behind || behind >= latest {
                break;
            }
            behind = behind + *work;
        }
        let told = behind.min(latest).since(now);
        let up = u64::from(told.subsec_nanos() > 0);
        let told = Duration::from_secs(told.as_secs().saturating_add(up).max(1));
        if self.due.len() < REMEMBERED {
            self.due.insert((now + told, self.told), work);
            self.told += 1;
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn each_comes_behind_those_that_were_told_before() {
        let mut returns = Returns::default();
        let now = Time(5);
        assert_eq!(returns.tell(Duration::from_millis(1200), seconds(4), now), seconds(2));
        // The first comes at 2 and is served until 6.
        assert_eq!(returns.tell(seconds(2), seconds(3), now), seconds(6));
        assert_eq!(returns.tell(seconds(2), seconds(9), now), seconds(9));
        assert_eq!(returns.tell(seconds(1), seconds(1), now), seconds(1), "before all of them");
        // The first two have come, and got it or not.
        let later = now + seconds(6);
        assert_eq!(returns.tell(seconds(3), seconds(1), later), seconds(12), "behind the third");
        assert_eq!(returns.tell(Duration::ZERO, seconds(1), later + seconds(60)), seconds(1));
    }

    #[test]
    fn nobody_is_told_more_than_a_minute_because_of_others() {
        let mut returns = Returns::default();
        for _ in 0..100 {
            assert!(returns.tell(seconds(2), seconds(4), Time::ZERO) <= Returns::LONGEST);
        }
        assert_eq!(returns.tell(seconds(90), seconds(4), Time::ZERO), seconds(90), "by itself");
        for _ in 0..2 * REMEMBERED {
            returns.tell(seconds(2), seconds(4), Time::ZERO);
        }
        assert_eq!(returns.due.len(), REMEMBERED);
        returns.tell(seconds(1), seconds(1), Time::ZERO + seconds(100));
        assert_eq!(returns.due.len(), 1, "whose time has come is forgotten");
    }
}
