//! A connected peer: whether it is there, and how busy the wire to it is.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use types::Time;

use super::Limits;
use crate::room::{PeerName, Room};

/// How long the wire may be busy before that is told.
const TELL_BUSY: Duration = Duration::from_secs(1);
/// Rooms that are remembered after their end, per peer.
const RECENT_MAX: usize = 1024;

/// What to do about a peer at a tick.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Beat {
    /// Nothing.
    Rest,
    /// Ask with this number.
    Ask(u64),
    /// It is gone.
    Gone,
}

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: PeerName,
    /// Open rooms.
    pub(crate) rooms: usize,
    /// Most open rooms: the smaller of ours and the peer's bound.
    pub(crate) rooms_max: usize,
    /// When it last said anything.
    heard: Time,
    next_ping: Time,
    pings: u64,
    /// Frames under way.
    frames: usize,
    busy_since: Option<Time>,
    busy: Duration,
}

impl Peer {
    pub(crate) fn new(now: Time, name: PeerName, rooms_max: usize, limits: &Limits) -> Self {
        Self {
            name,
            rooms: 0,
            rooms_max,
            heard: now,
            next_ping: now + limits.heartbeat,
            pings: 0,
            frames: 0,
            busy_since: None,
            busy: Duration::ZERO,
        }
    }

    pub(crate) fn hear(&mut self, now: Time) {
        self.heard = self.heard.max(now);
    }

    pub(crate) fn beat(&mut self, now: Time, limits: &Limits) -> Beat {
        if now >= self.heard + limits.silence() {
            return Beat::Gone;
        }
        if now < self.next_ping {
            return Beat::Rest;
        }
        self.next_ping = now + limits.heartbeat;
        self.pings += 1;
        Beat::Ask(self.pings)
    }

    /// When [`beat`](Self::beat) has something to say.
    pub(crate) fn due(&self, limits: &Limits) -> Time {
        self.next_ping.min(self.heard + limits.silence())
    }

    /// A frame is on its way.
    pub(crate) fn frame_begins(&mut self, now: Time) {
        self.frames += 1;
        self.busy_since.get_or_insert(now);
    }

    /// A frame is not any more. Says what there is to tell of the time the wire was busy.
    pub(crate) fn frame_ends(&mut self, now: Time) -> Option<Duration> {
        self.frames -= 1;
        let since = self.busy_since?;
        if self.frames == 0 {
            self.busy += now.since(since);
            self.busy_since = None;
            return self.busy();
        }
        if now.since(since) < TELL_BUSY {
            return None;
        }
        self.busy += now.since(since);
        self.busy_since = Some(now);
        self.busy()
    }

    fn busy(&mut self) -> Option<Duration> {
        let busy = std::mem::take(&mut self.busy);
        (busy > Duration::ZERO).then_some(busy)
    }

    /// Frames on their way.
    pub(crate) const fn frames(&self) -> usize {
        self.frames
    }
}

/// The rooms of a peer that ended last, so that their names are not used again.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    rooms: BTreeSet<Room>,
    order: VecDeque<Room>,
}

impl Recent {
    pub(crate) fn insert(&mut self, room: Room) {
        if !self.rooms.insert(room) {
            return;
        }
        self.order.push_back(room);
        if self.order.len() > RECENT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.rooms.remove(&oldest);
        }
    }

    pub(crate) fn has(&self, room: Room) -> bool {
        self.rooms.contains(&room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_peer_is_asked_and_then_gone() {
        let limits = Limits::default();
        let mut peer = Peer::new(Time::ZERO, PeerName::new("a:1"), 1, &limits);
        let at = |seconds: u32| Time::ZERO + SECOND * seconds;
        assert_eq!((peer.beat(at(1), &limits), peer.due(&limits)), (Beat::Rest, at(2)));
        assert_eq!(peer.beat(at(2), &limits), Beat::Ask(1));
        peer.hear(at(3));
        assert_eq!(peer.beat(at(5), &limits), Beat::Ask(2));
        assert_eq!((peer.beat(at(8), &limits), peer.due(&limits)), (Beat::Ask(3), at(9)));
        assert_eq!(peer.beat(at(9), &limits), Beat::Gone);
    }

    #[test]
    fn the_wire_is_busy_while_any_frame_is_on_it() {
        let mut peer = Peer::new(Time::ZERO, PeerName::other(), 1, &Limits::default());
        let at = |millis: u64| Time::ZERO + Duration::from_millis(millis);
        peer.frame_begins(at(100));
        peer.frame_begins(at(200));
        assert_eq!((peer.frame_ends(at(300)), peer.frames()), (None, 1));
        assert_eq!(peer.frame_ends(at(450)), Some(Duration::from_millis(350)));
        peer.frame_begins(at(1000));
        peer.frame_begins(at(1000));
        // What is long is told before its end.
        assert_eq!(peer.frame_ends(at(3000)), Some(SECOND * 2));
        assert_eq!(peer.frame_ends(at(3500)), Some(Duration::from_millis(500)));
    }

    #[test]
    fn so_many_rooms_are_remembered() {
        let mut recent = Recent::default();
        for room in 0..=RECENT_MAX as u128 {
            recent.insert(Room(room));
            recent.insert(Room(room));
        }
        assert!(!recent.has(Room(0)) && recent.has(Room(1)));
        assert_eq!((recent.rooms.len(), recent.order.len()), (RECENT_MAX, RECENT_MAX));
    }
}
