//! Frames on their way out.

use memory_pool::Block;
use types::Time;

use super::job::FrameJob;
use super::room::Phase;
use super::{By, PrefillEnd, plan};
use crate::ends::{Count, RoomKey};
use crate::failure::Failure;
use crate::frame::FrameHeader;
use crate::link::News;
use crate::message::Message;
use crate::observe::Side;
use crate::room::{PeerId, Room};

impl PrefillEnd {
    /// The next frame for a peer: none while as many are on their way as may be, or while nothing
    /// is computed. Ask again after every input, after a frame was given back, and when the
    /// progress of a forward pass says so.
    #[must_use]
    pub fn next_frame(&mut self, now: Time, peer: PeerId) -> Option<FrameJob> {
        let active: Vec<Room> = self.links.get(&peer)?.active.iter().copied().collect();
        for room in &active {
            self.advance(now, RoomKey { peer, room: *room });
        }
        for _ in 0..active.len() {
            let link = self.links.get_mut(&peer)?;
            if link.peer.frames() >= self.limits.frames_in_flight {
                return None;
            }
            let room = link.active.pop_front()?;
            let key = RoomKey { peer, room };
            let Some(state) = self.rooms.get_mut(&key) else { continue };
            if !matches!(state.phase, Phase::Wanted | Phase::Sent) {
                continue;
            }
            let seq = match state.again.pop_front() {
                Some(seq) => Some(seq),
                None => match state.plan.next(&self.layout, self.payload_max) {
                    Ok(seq) => seq,
                    Err(plan::PassFailed) => {
                        self.fail(now, key, Failure::Internal, By::Us);
                        continue;
                    }
                },
            };
            if seq.is_some() || state.plan.is_open() {
                link.active.push_back(room);
            }
            match seq {
                Some(seq) => return Some(self.job(now, key, seq)),
                None => self.advance(now, key),
            }
        }
        None
    }

    fn job(&mut self, now: Time, key: RoomKey, seq: u32) -> FrameJob {
        let room = self.rooms.get_mut(&key).expect("it has a frame");
        let frame = room.plan.frame(seq);
        let layers = frame.first_layer..frame.first_layer + frame.layers;
        let pages = room.plan.pages(&self.layout, &frame);
        let block =
            |page| Block { rank: frame.rank, part: frame.part, page, layers: layers.clone() };
        let blocks = pages.into_iter().map(block).collect();
        let layer_bytes = self.layout.parts[usize::from(frame.part)].layer_bytes;
        let length = usize::from(frame.pages) * usize::from(frame.layers) * layer_bytes;
        let header = FrameHeader {
            length: u32::try_from(length).expect("payloads are bounded"),
            room: key.room,
            seq,
            rank: frame.rank,
            part: frame.part,
            first_layer: frame.first_layer,
            layers: frame.layers,
            first_page: frame.first_page,
            pages: frame.pages,
            checksum: 0,
        };
        room.in_flight += 1;
        room.first.get_or_insert(now);
        room.last = Some(now);
        self.arm(key);
        let link = self.links.get_mut(&key.peer).expect("it was asked for this peer");
        link.peer.frame_begins(now);
        FrameJob { key, header, blocks }
    }

    /// A frame was written (`sent`), or was not and is dropped; its [bytes](FrameJob::load) are
    /// gone. One that was not is sent again, if there is still somebody to send it to.
    pub fn frame_ends(&mut self, now: Time, job: FrameJob, sent: bool) {
        let FrameJob { key, header, .. } = job;
        if let Some(link) = self.links.get_mut(&key.peer)
            && let Some(busy) = link.peer.frame_ends(now)
        {
            let (side, peer) = (Side::Send, link.peer.name.clone());
            self.count(Count::Busy { side, peer, busy });
        }
        let room = self.rooms.get_mut(&key).expect("a room stays while it is read from");
        room.in_flight -= 1;
        if let (Phase::Sent, Some(why), false) = (room.phase, room.let_go, sent) {
            // It was asked for, and there is nothing any more to send it from.
            self.fail(now, key, why, By::Us);
            return;
        }
        if matches!(room.phase, Phase::Over(_)) || room.let_go.is_some() {
            self.settle(key);
            return;
        }
        room.last = Some(now);
        if !sent {
            room.again.push_back(header.seq);
            self.activate(key);
            return;
        }
        let first = !room.plan.was_read(header.seq);
        room.plan.read(header.seq);
        if first {
            room.sent = Some(now);
        }
        let peer = room.peer.clone();
        let part = self.layout.parts[usize::from(header.part)].name;
        let (side, bytes) = (Side::Send, header.length.into());
        self.count(Count::Bytes { side, peer, part, bytes });
        self.arm(key);
        self.advance(now, key);
    }

    /// Looks how far a transfer has come: fences, the end of the computation, the end of sending.
    pub(super) fn advance(&mut self, now: Time, key: RoomKey) {
        let Some(room) = self.rooms.get_mut(&key) else { return };
        if room.phase != Phase::Wanted {
            return;
        }
        match room.plan.is_computed() {
            Ok(true) if room.computed.is_none() => room.computed = Some(now),
            Ok(_) => {}
            Err(plan::PassFailed) => {
                self.fail(now, key, Failure::Internal, By::Us);
                return;
            }
        }
        let (passed, request) = (room.plan.passed(), room.request);
        let whole = room.plan.is_read();
        let (frames, times) = (room.plan.frames(), room.times());
        if whole {
            room.phase = Phase::Sent;
            room.last = Some(now);
        }
        if let (Some(fence), Some(request)) = (passed, request) {
            self.news(request, News::Passed(fence));
        }
        if whole {
            self.arm(key);
            self.control(key.peer, Message::Sent { room: key.room, frames, times });
        }
    }
}
