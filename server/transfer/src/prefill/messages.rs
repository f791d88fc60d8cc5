//! What the decode workers say.

use types::Time;

use super::room::{Phase, SendRoom};
use super::{By, PrefillEnd};
use crate::ends::{Count, Output, RoomKey, Violation};
use crate::failure::Failure;
use crate::link::News;
use crate::message::{Answer, Message, Offer, Rejected};
use crate::room::PeerId;

/// When to come again where a peer's rooms are all taken.
const ROOMS_FULL_RETRY: std::time::Duration = std::time::Duration::from_secs(1);

impl PrefillEnd {
    /// A message came. Any message at any time is borne: what no correct peer says costs the
    /// transfer it is about, and is counted.
    pub fn on_message(&mut self, now: Time, peer: PeerId, message: Message) {
        let Some(link) = self.links.get_mut(&peer) else { return };
        link.peer.hear(now);
        match message {
            Message::Offer(offer) => self.on_offer(now, peer, offer),
            Message::Land { room, skip_tokens } => {
                self.on_land(now, RoomKey { peer, room }, skip_tokens);
            }
            Message::Again { room, frame, broken } => {
                self.on_again(now, RoomKey { peer, room }, frame, broken);
            }
            Message::Received { room } => self.on_received(now, RoomKey { peer, room }),
            Message::Abort { room, failure } => {
                self.on_abort(now, RoomKey { peer, room }, failure.told());
            }
            Message::Ping { number } => self.control(peer, Message::Pong { number }),
            Message::Pong { .. } => {}
            other @ (Message::Hello(_)
            | Message::Welcome(_)
            | Message::Proof(_)
            | Message::Ready(_)
            | Message::Refused(_)
            | Message::Answer { .. }
            | Message::Started { .. }
            | Message::Sent { .. }
            | Message::Ended { .. }) => {
                let violation = Violation::direction(&other);
                self.board.violation();
                self.outputs.push_back(Output::Violated(peer, other.room(), violation));
            }
        }
    }

    fn on_offer(&mut self, now: Time, peer: PeerId, offer: Offer) {
        let key = RoomKey { peer, room: offer.room };
        if self.rooms.contains_key(&key) {
            self.board.stray();
            return;
        }
        let Some(link) = self.links.get_mut(&peer) else { return };
        if link.recent.has(offer.room) {
            self.board.violation();
            self.outputs.push_back(Output::Violated(peer, Some(offer.room), Violation::Room));
            return;
        }
        if link.peer.rooms >= link.peer.rooms_max {
            link.recent.insert(offer.room);
            let (value, limit) = (link.peer.rooms as u64 + 1, link.peer.rooms_max as u64);
            let (reason, retry_after) = (Rejected::ROOMS_FULL, ROOMS_FULL_RETRY);
            let answer = Answer::Rejected(Rejected { reason, retry_after, value, limit });
            self.control(peer, Message::Answer { room: key.room, answer });
            return;
        }
        link.peer.rooms += 1;
        let name = link.peer.name.clone();
        self.rooms.insert(key, SendRoom::new(now, name.clone(), offer.tokens.len() as u64));
        self.outputs.push_back(Output::Offered(key, name, offer));
    }

    fn on_land(&mut self, now: Time, key: RoomKey, skip_tokens: u64) {
        let Some(room) = self.rooms.get_mut(&key) else {
            let link = self.links.get(&key.peer);
            if link.is_some_and(|link| link.recent.has(key.room)) {
                // That it is over is on its way.
                self.board.stray();
            } else {
                self.unknown(key, Failure::Protocol);
            }
            return;
        };
        match (room.phase, room.skip) {
            (Phase::Accepted, _) => {
                let range =
                    Violation::range("number of tokens to skip", skip_tokens, 0, room.tokens + 1);
                let rest = skip_tokens % self.page_tokens;
                let what = "rest of the tokens to skip after whole pages";
                let whole = Violation::Unequal { what, value: rest, expected: 0 };
                let checked = range.and(if rest == 0 { Ok(()) } else { Err(whole) });
                let (Ok(()), Ok(skip), Some(request)) =
                    (checked.clone(), usize::try_from(skip_tokens), room.request)
                else {
                    self.violated(now, key, checked.err().unwrap_or(Violation::Room));
                    return;
                };
                room.phase = Phase::Wanted;
                room.skip = Some(skip_tokens);
                room.wanted = Some(now);
                self.timers.disarm(key);
                self.news(request, News::Wanted { skip_tokens: skip });
            }
            (Phase::Offered(_), _) => self.early(now, key, "land"),
            (Phase::Wanted | Phase::Sent, Some(before)) if before != skip_tokens => {
                let (what, value) = ("number of tokens to skip", skip_tokens);
                self.violated(now, key, Violation::Unequal { what, value, expected: before });
            }
            (Phase::Wanted | Phase::Sent | Phase::Over(_), _) => self.board.stray(),
        }
    }

    fn on_again(&mut self, now: Time, key: RoomKey, frame: u32, broken: u8) {
        let Some(room) = self.rooms.get_mut(&key) else {
            self.board.stray();
            return;
        };
        match room.phase {
            Phase::Wanted | Phase::Sent => {}
            Phase::Over(_) => {
                self.board.stray();
                return;
            }
            Phase::Offered(_) | Phase::Accepted => {
                self.early(now, key, "again");
                return;
            }
        }
        // A frame is planned when the driver takes it, one at a time, so that this is how many were
        // begun; the peer may have one before the driver has said that it is written.
        let planned = room.plan.frames().into();
        let range = Violation::range("frame to send again", frame.into(), 0, planned);
        let retries = self.limits.retries;
        let limit =
            Violation::range("times a frame came broken", broken.into(), 1, u64::from(retries) + 1);
        if let Err(violation) = range.and(limit) {
            self.violated(now, key, violation);
            return;
        }
        let asked = room.asked.entry(frame).or_default();
        if broken <= *asked {
            // The same question: where the pages are gone, everything may have arrived since.
            self.board.stray();
            return;
        }
        *asked = broken;
        if let Some(why) = room.let_go {
            // The pages are gone.
            self.fail(now, key, why, By::Us);
            return;
        }
        if !room.again.contains(&frame) {
            room.again.push_back(frame);
        }
        self.activate(key);
    }

    fn on_received(&mut self, now: Time, key: RoomKey) {
        let Some(room) = self.rooms.get_mut(&key) else {
            self.board.stray();
            return;
        };
        match room.phase {
            Phase::Sent => {
                let end = room.end(now, Ok(()));
                room.phase = Phase::Over(Ok(()));
                room.again.clear();
                self.close(key);
                self.count(Count::End(end));
                self.settle(key);
            }
            Phase::Over(_) => self.board.stray(),
            Phase::Offered(_) | Phase::Accepted | Phase::Wanted => {
                self.early(now, key, "received");
            }
        }
    }

    /// `failure` is this side's name for it.
    fn on_abort(&mut self, now: Time, key: RoomKey, failure: Failure) {
        match self.rooms.get(&key).map(|room| room.phase) {
            None => {
                // It may have overtaken its offer, which then is none.
                if let Some(link) = self.links.get_mut(&key.peer) {
                    link.recent.insert(key.room);
                }
                self.unknown(key, failure);
            }
            Some(Phase::Offered(_)) => {
                self.fail(now, key, failure, By::Peer);
                self.control(key.peer, Message::Ended { room: key.room, failure });
            }
            Some(Phase::Accepted | Phase::Wanted | Phase::Sent) => {
                self.fail(now, key, failure, By::Peer);
            }
            // The answer comes with the last frame, or is on its way.
            Some(Phase::Over(_)) => self.board.stray(),
        }
    }

    /// Nothing is written to the pages of a room that this end does not know.
    fn unknown(&mut self, key: RoomKey, failure: Failure) {
        self.board.stray();
        self.control(key.peer, Message::Ended { room: key.room, failure });
    }

    fn early(&mut self, now: Time, key: RoomKey, what: &'static str) {
        let state = self.rooms.get(&key).map_or("forgotten", |room| room.phase.name());
        self.violated(now, key, Violation::Early { what, state });
    }
}
