//! Frames as they come in.

use memory_pool::PageBytes;
use types::Time;

use super::room::Phase;
use super::target::{Claim, Writing};
use super::{By, DecodeEnd};
use crate::ends::{Count, Output, RoomKey, Violation};
use crate::failure::Failure;
use crate::frame::FrameHeader;
use crate::link::News;
use crate::message::Message;
use crate::observe::Side;
use crate::plant::{self, Plant};
use crate::room::PeerId;

impl DecodeEnd {
    /// A header came. `None`: read the payload away, it is for nobody.
    #[must_use]
    pub fn frame_begins(
        &mut self,
        now: Time,
        peer: PeerId,
        header: &FrameHeader,
    ) -> Option<Writing> {
        let key = RoomKey { peer, room: header.room };
        self.peers.get_mut(&peer)?.hear(now);
        let Some(room) = self.rooms.get_mut(&key) else {
            self.board.stray();
            return None;
        };
        let state = room.phase.name();
        let claim = match (&mut room.target, room.phase) {
            (Some(target), Phase::Landed) => target.claim(key, header),
            (_, Phase::Done | Phase::Failed(_)) => Ok(Claim::Known),
            (_, Phase::Offered | Phase::Accepted | Phase::Landed) => {
                Err(Violation::Early { what: "a frame", state })
            }
        };
        match claim {
            Ok(Claim::New(writing)) => {
                room.writers += 1;
                room.first.get_or_insert(now);
                self.peers.get_mut(&peer).expect("it was there above").frame_begins(now);
                Some(writing)
            }
            Ok(Claim::Known) => {
                self.board.stray();
                None
            }
            Err(violation) => {
                self.violated(now, key, violation);
                None
            }
        }
    }

    /// A frame was received and, where it was intact, [written](Writing::write). One that was not
    /// is asked for again.
    pub fn frame_ends(&mut self, now: Time, writing: Writing, intact: bool) {
        let key = writing.key;
        if let Some(peer) = self.peers.get_mut(&key.peer) {
            peer.hear(now);
            if let Some(busy) = peer.frame_ends(now) {
                let (side, peer) = (Side::Recv, peer.name.clone());
                self.outputs.push_back(Output::Count(Count::Busy { side, peer, busy }));
            }
        }
        let room = self.rooms.get_mut(&key).expect("a room stays while it is written to");
        room.writers -= 1;
        if let Phase::Failed(_) = room.phase {
            self.settle(key);
        } else if intact || plant::is(Plant::TakeBroken) {
            self.written(now, &writing);
        } else {
            self.broke(now, &writing);
        }
    }

    /// All of [`frame_begins`](Self::frame_begins) to [`frame_ends`](Self::frame_ends) at once.
    pub fn on_frame(
        &mut self,
        now: Time,
        peer: PeerId,
        header: &FrameHeader,
        payload: &[u8],
        pages: &dyn PageBytes,
    ) {
        let Some(writing) = self.frame_begins(now, peer, header) else { return };
        let intact = header.intact(payload);
        if intact {
            writing.write(payload, pages);
        }
        self.frame_ends(now, writing, intact);
    }

    fn written(&mut self, now: Time, writing: &Writing) {
        let (key, header) = (writing.key, &writing.header);
        let Some(room) = self.rooms.get_mut(&key) else { return };
        let target = room.target.as_mut().expect("it was written to");
        target.written(header);
        let first = room.last.is_none();
        room.last = Some(now);
        let (request, peer) = (room.request, room.peer.clone());
        if first {
            self.news(request, News::FirstByte);
        }
        let part = self.layout.parts[usize::from(header.part)].name;
        let (side, bytes) = (Side::Recv, writing.bytes());
        self.outputs.push_back(Output::Count(Count::Bytes { side, peer, part, bytes }));
        self.arm(key);
        self.complete(now, key);
    }

    fn broke(&mut self, now: Time, writing: &Writing) {
        let (key, header) = (writing.key, &writing.header);
        let Some(room) = self.rooms.get_mut(&key) else { return };
        let target = room.target.as_mut().expect("it was written to");
        let broken = target.broke(header);
        if broken > self.limits.retries {
            self.fail(now, key, Failure::Checksum, By::Us);
            self.settle(key);
            return;
        }
        let (room, frame) = (key.room, header.seq);
        self.control(key.peer, Message::Again { room, frame, broken });
    }
}
