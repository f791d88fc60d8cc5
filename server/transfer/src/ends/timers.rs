//! When rooms have to be looked at again.

use std::collections::{BTreeMap, BTreeSet};

use types::Time;

use super::RoomKey;

/// At most one time per room. Times only move later cheaply: an entry that is too early is looked
/// at, and set again by whoever finds nothing to do.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    by_time: BTreeSet<(Time, RoomKey)>,
    by_room: BTreeMap<RoomKey, Time>,
}

impl Timers {
    /// The room is to be looked at no later than `at`.
    pub(crate) fn arm(&mut self, key: RoomKey, at: Time) {
        if self.by_room.get(&key).is_some_and(|before| *before <= at) {
            return;
        }
        self.disarm(key);
        self.by_time.insert((at, key));
        self.by_room.insert(key, at);
    }

    /// The room needs no look.
    pub(crate) fn disarm(&mut self, key: RoomKey) {
        if let Some(at) = self.by_room.remove(&key) {
            self.by_time.remove(&(at, key));
        }
    }

    /// The first room whose time has come; it is disarmed.
    pub(crate) fn due(&mut self, now: Time) -> Option<RoomKey> {
        let (at, key) = *self.by_time.first()?;
        if at > now {
            return None;
        }
        self.disarm(key);
        Some(key)
    }

    /// When the first is due.
    pub(crate) fn first(&self) -> Option<Time> {
        self.by_time.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::{PeerId, Room};

    #[test]
    fn the_earliest_time_of_a_room_counts() {
        let key = |room| RoomKey { peer: PeerId(1), room: Room(room) };
        let mut timers = Timers::default();
        timers.arm(key(1), Time(50));
        timers.arm(key(2), Time(40));
        timers.arm(key(1), Time(60));
        assert_eq!(timers.first(), Some(Time(40)));
        timers.arm(key(1), Time(30));
        assert_eq!((timers.due(Time(29)), timers.due(Time(45))), (None, Some(key(1))));
        timers.disarm(key(2));
        assert_eq!((timers.due(Time(99)), timers.first()), (None, None));
    }
}
