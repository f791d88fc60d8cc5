//! What the prefill workers say.

use std::time::Duration;

use types::Time;

use super::room::Phase;
use super::{By, DecodeEnd};
use crate::ends::{Output, RoomKey, Violation};
use crate::failure::Failure;
use crate::link::{News, NotOffered};
use crate::message::{Answer, Message, RemoteTimes};
use crate::room::PeerId;

impl DecodeEnd {
    /// A message came. Any message at any time is borne: what no correct peer says costs the
    /// transfer it is about, and is counted.
    pub fn on_message(&mut self, now: Time, peer: PeerId, message: Message) {
        let Some(state) = self.peers.get_mut(&peer) else { return };
        state.hear(now);
        match message {
            Message::Answer { room, answer } => {
                self.on_answer(now, RoomKey { peer, room }, answer);
            }
            Message::Started { room } => self.on_started(now, RoomKey { peer, room }),
            Message::Sent { room, frames, times } => {
                self.on_sent(now, RoomKey { peer, room }, frames, times);
            }
            Message::Ended { room, failure } => {
                self.on_ended(now, RoomKey { peer, room }, failure.told());
            }
            Message::Ping { number } => self.control(peer, Message::Pong { number }),
            Message::Pong { .. } => {}
            other @ (Message::Hello(_)
            | Message::Welcome(_)
            | Message::Proof(_)
            | Message::Ready(_)
            | Message::Refused(_)
            | Message::Offer(_)
            | Message::Land { .. }
            | Message::Again { .. }
            | Message::Received { .. }
            | Message::Abort { .. }) => {
                let violation = Violation::direction(&other);
                self.board.violation();
                self.outputs.push_back(Output::Violated(peer, other.room(), violation));
            }
        }
    }

    fn on_answer(&mut self, now: Time, key: RoomKey, answer: Answer) {
        let Some(room) = self.rooms.get_mut(&key) else {
            self.board.stray();
            // The offer was given up before the peer had it: it must not compute for nobody.
            if matches!(answer, Answer::Accepted { .. }) {
                let failure = Failure::LocalAbort;
                self.control(key.peer, Message::Abort { room: key.room, failure });
            }
            return;
        };
        if room.phase != Phase::Offered {
            self.board.stray();
            return;
        }
        match answer {
            Answer::Accepted { drain } => {
                room.phase = Phase::Accepted;
                room.answered = Some(now);
                room.owned = true;
                self.timers.disarm(key);
                self.answered(key, Ok(drain));
            }
            Answer::Rejected(rejected) => {
                self.close(key, Phase::Done);
                self.rooms.remove(&key);
                self.answered(key, Err(NotOffered::Rejected(rejected)));
            }
        }
    }

    fn answered(&mut self, key: RoomKey, answer: Result<Duration, NotOffered>) {
        self.outputs.push_back(Output::Answered(key, answer));
    }

    fn on_started(&mut self, now: Time, key: RoomKey) {
        let Some(room) = self.rooms.get_mut(&key) else {
            self.board.stray();
            return;
        };
        match room.phase {
            Phase::Landed if room.started.is_none() => {
                room.started = Some(now);
                let request = room.request;
                self.arm(key);
                self.news(request, News::Started);
            }
            Phase::Landed | Phase::Done | Phase::Failed(_) => self.board.stray(),
            Phase::Offered | Phase::Accepted => self.early(now, key, "started"),
        }
    }

    fn on_sent(&mut self, now: Time, key: RoomKey, frames: u32, times: RemoteTimes) {
        let Some(room) = self.rooms.get_mut(&key) else {
            self.board.stray();
            return;
        };
        match (room.phase, room.sent) {
            (Phase::Landed, None) => {
                let most = room.target.as_ref().map_or(0, super::Target::frames_max);
                let range = Violation::range("number of frames", frames.into(), 0, most + 1);
                if let Err(violation) = range {
                    self.violated(now, key, violation);
                    return;
                }
                room.sent = Some((frames, times));
                room.started.get_or_insert(now);
                self.arm(key);
                self.complete(now, key);
            }
            (Phase::Landed, Some((before, _))) if before != frames => {
                let (what, value, expected) = ("number of frames", frames.into(), before.into());
                self.violated(now, key, Violation::Unequal { what, value, expected });
            }
            (Phase::Landed | Phase::Done | Phase::Failed(_), _) => self.board.stray(),
            (Phase::Offered | Phase::Accepted, _) => self.early(now, key, "sent"),
        }
    }

    fn on_ended(&mut self, now: Time, key: RoomKey, failure: Failure) {
        // An unknown room is normal: that is the answer to what this end gave up.
        let Some(room) = self.rooms.get_mut(&key) else { return };
        room.stopped = true;
        self.fail(now, key, failure, By::Peer);
        self.settle(key);
    }

    fn early(&mut self, now: Time, key: RoomKey, what: &'static str) {
        let state = self.rooms.get(&key).map_or("forgotten", |room| room.phase.name());
        self.violated(now, key, Violation::Early { what, state });
    }
}
