//! The decode worker's end: it offers, lands, receives, and says when everything is there.

mod frames;
mod messages;
mod room;
mod target;
#[cfg(test)]
mod tests;

pub use target::Writing;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use memory_pool::PageBytes;
use types::{RequestId, Time};

use crate::ends::{
    Beat, Count, Layout, Limits, Output, Peer, RoomKey, Timers, TransferState, Violation,
};
use crate::failure::Failure;
use crate::link::{LandPages, News, NotOffered, Prompt};
use crate::message::{Message, Offer, Rejected};
use crate::observe::{LinkSnapshot, Side};
use crate::plant::{self, Plant};
use crate::room::{PeerId, PeerName, Random, Room};
use crate::snapshot::Board;
use room::{Phase, RecvRoom};
use target::Target;

/// When to come again where a peer's rooms are all taken.
const ROOMS_FULL_RETRY: Duration = Duration::from_secs(1);

/// Who ends a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// This end: the peer and the engine are told.
    Us,
    /// The engine: the peer is told.
    Engine,
    /// The peer: the engine is told, and the peer writes no more.
    Peer,
}

/// All transfers of a decode worker. Every method takes what happened and when; what is to be done
/// comes out of [`poll_output`](Self::poll_output).
pub struct DecodeEnd {
    limits: Limits,
    layout: Layout,
    random: Box<dyn Random>,
    peers: BTreeMap<PeerId, Peer>,
    next_peer: u64,
    rooms: BTreeMap<RoomKey, RecvRoom>,
    timers: Timers,
    board: Board,
    outputs: VecDeque<Output>,
}

impl std::fmt::Debug for DecodeEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DecodeEnd")
            .field("peers", &self.peers)
            .field("rooms", &self.rooms)
            .field("outputs", &self.outputs)
            .finish_non_exhaustive()
    }
}

impl DecodeEnd {
    /// An end whose pages are `pages`. `peers` are the prefill workers of the configuration, for
    /// the snapshot.
    #[must_use]
    pub fn new(
        limits: Limits,
        pages: &dyn PageBytes,
        peers: &[PeerName],
        random: Box<dyn Random>,
    ) -> Self {
        Self {
            limits,
            layout: Layout::of(pages),
            random,
            peers: BTreeMap::new(),
            next_peer: 0,
            rooms: BTreeMap::new(),
            timers: Timers::default(),
            board: Board::new(Side::Recv, peers),
            outputs: VecDeque::new(),
        }
    }

    /// A peer's handshake is done; it bears at most `rooms_max` open rooms.
    pub fn connected(&mut self, now: Time, name: PeerName, rooms_max: u32) -> PeerId {
        let peer = PeerId(self.next_peer);
        self.next_peer += 1;
        let rooms_max = self.limits.rooms_max.min(rooms_max as usize);
        self.board.trouble(&name, None);
        self.peers.insert(peer, Peer::new(now, name, rooms_max, &self.limits));
        peer
    }

    /// The peers of the configuration are others now: for the snapshot.
    pub fn set_peers(&mut self, peers: &[PeerName]) {
        self.board.set_peers(peers);
    }

    /// Why a peer of the configuration cannot be used now, for the snapshot; `None` once it can.
    pub fn trouble(&mut self, name: &PeerName, trouble: Option<String>) {
        self.board.trouble(name, trouble);
    }

    /// The peer's connections are lost: its transfers fail, with `failure`. Frames that are being
    /// received are still to be given back.
    pub fn lost(&mut self, now: Time, peer: PeerId, failure: Failure) {
        if !self.peers.contains_key(&peer) {
            return;
        }
        for key in self.rooms_of(peer) {
            if let Some(room) = self.rooms.get_mut(&key) {
                room.stopped = true;
            }
            self.fail(now, key, failure, By::Peer);
            self.settle(key);
        }
        self.peers.remove(&peer);
        self.outputs.push_back(Output::Lost(peer, failure));
    }

    fn rooms_of(&self, peer: PeerId) -> Vec<RoomKey> {
        let all = RoomKey { peer, room: Room(0) }..=RoomKey { peer, room: Room(u128::MAX) };
        self.rooms.range(all).map(|(key, _)| *key).collect()
    }

    /// Something came from the peer: it is there, even where a frame takes long.
    pub fn heard(&mut self, now: Time, peer: PeerId) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.hear(now);
        }
    }

    /// Offers a prompt to the peer of that name, for `request`. [`Output::Answered`] says how it
    /// went, exactly once where this returns a room.
    ///
    /// # Errors
    /// Without a peer, with too many rooms, or where a field is too long; nothing happens then.
    pub fn offer(
        &mut self,
        now: Time,
        name: &PeerName,
        request: RequestId,
        prompt: Prompt,
    ) -> Result<RoomKey, NotOffered> {
        prompt.check()?;
        let found = self.peers.iter().rev().find(|(_, peer)| peer.name == *name);
        let Some((peer, full)) = found.map(|(id, peer)| (*id, peer.rooms >= peer.rooms_max)) else {
            let failure = Failure::Connect;
            let end = RecvRoom::new(now, name.clone(), request).end(now, Err(failure));
            self.outputs.push_back(Output::Count(Count::End(end)));
            return Err(NotOffered::Failed(failure));
        };
        let state = self.peers.get_mut(&peer).expect("just found");
        if full {
            let (value, limit) = (state.rooms as u64 + 1, state.rooms_max as u64);
            let (reason, retry_after) = (Rejected::ROOMS_FULL, ROOMS_FULL_RETRY);
            return Err(NotOffered::Rejected(Rejected { reason, retry_after, value, limit }));
        }
        state.rooms += 1;
        let key = RoomKey { peer, room: Room::new(&mut *self.random) };
        let before = self.rooms.insert(key, RecvRoom::new(now, name.clone(), request));
        assert!(before.is_none(), "128 random bits came twice: the generator is broken");
        self.arm(key);
        let Prompt { request, traceparent, tokens, namespace, priority, tenant } = prompt;
        let room = key.room;
        let offer = Offer { room, request, traceparent, tokens, namespace, priority, tenant };
        self.control(peer, Message::Offer(offer));
        Ok(key)
    }

    /// The engine has reserved pages: see [`Landing::land`](crate::Landing::land).
    ///
    /// # Panics
    /// Where it is called twice.
    pub fn land(&mut self, now: Time, key: RoomKey, skip_tokens: usize, pages: Vec<LandPages>) {
        let Some(room) = self.rooms.get_mut(&key) else { return };
        match room.phase {
            Phase::Failed(failure) => {
                let (request, settled) = (room.request, room.settled);
                self.news(request, News::Failed(failure));
                if settled {
                    self.news(request, News::Settled);
                }
            }
            Phase::Accepted => {
                room.phase = Phase::Landed;
                room.landed = Some(now);
                room.target = Some(Target::new(&self.layout, pages));
                let skip_tokens = skip_tokens as u64;
                self.control(key.peer, Message::Land { room: key.room, skip_tokens });
            }
            Phase::Offered | Phase::Landed | Phase::Done => {
                panic!("landed while {}", room.phase.name())
            }
        }
    }

    /// The engine gives it up: see [`Landing::abandon`](crate::Landing::abandon). Once per room.
    pub fn abandon(&mut self, now: Time, key: RoomKey, why: Failure) {
        let Some(room) = self.rooms.get_mut(&key) else { return };
        room.owned = false;
        if room.phase == Phase::Done {
            // The engine has not heard yet that it succeeded.
            let request = room.request;
            if !plant::is(Plant::ForgetCrossing) {
                self.news(request, News::Settled);
            }
            self.rooms.remove(&key);
            return;
        }
        self.fail(now, key, why, By::Engine);
        self.settle(key);
    }

    /// The engine lets go of it without a word. Before its end that gives it up.
    pub fn release(&mut self, now: Time, key: RoomKey) {
        match self.rooms.get(&key).map(|room| room.phase) {
            Some(Phase::Done) => drop(self.rooms.remove(&key)),
            Some(Phase::Offered | Phase::Accepted | Phase::Landed | Phase::Failed(_)) => {
                self.abandon(now, key, Failure::LocalAbort);
            }
            None => {}
        }
    }

    /// Ends a transfer of which everything is there.
    fn complete(&mut self, now: Time, key: RoomKey) {
        let Some(room) = self.rooms.get(&key) else { return };
        let (Phase::Landed, Some(target), Some((frames, times))) =
            (room.phase, &room.target, room.sent)
        else {
            return;
        };
        let (value, expected, whole) = (target.frames(), u64::from(frames), target.is_whole());
        if !whole && value < expected {
            return;
        }
        if !whole || value != expected {
            let what = "number of frames of a transfer that is whole";
            self.violated(now, key, Violation::Unequal { what, value, expected });
            return;
        }
        let (request, owned) = (room.request, room.owned);
        self.count(now, key, Ok(()));
        self.close(key, Phase::Done);
        if !owned {
            self.rooms.remove(&key);
        }
        self.control(key.peer, Message::Received { room: key.room });
        self.news(request, News::Arrived(times));
    }

    /// Ends a transfer, unless it has ended. Does not settle it.
    fn fail(&mut self, now: Time, key: RoomKey, failure: Failure, by: By) {
        let Some(room) = self.rooms.get_mut(&key) else { return };
        let before = room.phase;
        if matches!(before, Phase::Done | Phase::Failed(_)) {
            return;
        }
        let request = room.request;
        self.count(now, key, Err(failure));
        self.close(key, Phase::Failed(failure));
        if by != By::Peer {
            self.control(key.peer, Message::Abort { room: key.room, failure });
        }
        if before == Phase::Offered {
            self.outputs.push_back(Output::Answered(key, Err(NotOffered::Failed(failure))));
        } else if by != By::Engine {
            self.news(request, News::Failed(failure));
        }
    }

    /// Lets go of a failed room as far as possible.
    fn settle(&mut self, key: RoomKey) {
        let Some(room) = self.rooms.get_mut(&key) else { return };
        if !matches!(room.phase, Phase::Failed(_)) || room.is_written(&self.limits) {
            return;
        }
        let (request, known, owned) = (room.request, room.answered.is_some(), room.owned);
        let first = !std::mem::replace(&mut room.settled, true);
        room.target = None;
        if first && known {
            self.news(request, News::Settled);
        }
        if !owned {
            self.rooms.remove(&key);
        }
    }

    fn violated(&mut self, now: Time, key: RoomKey, violation: Violation) {
        self.board.violation();
        self.outputs.push_back(Output::Violated(key.peer, Some(key.room), violation));
        self.fail(now, key, Failure::Protocol, By::Us);
        self.settle(key);
    }

    /// A room is over: it makes place for another one.
    fn close(&mut self, key: RoomKey, phase: Phase) {
        self.timers.disarm(key);
        let Some(room) = self.rooms.get_mut(&key) else { return };
        room.phase = phase;
        if std::mem::take(&mut room.open)
            && let Some(peer) = self.peers.get_mut(&key.peer)
        {
            peer.rooms -= 1;
        }
    }

    fn count(&mut self, now: Time, key: RoomKey, result: Result<(), Failure>) {
        let end = self.rooms[&key].end(now, result);
        self.outputs.push_back(Output::Count(Count::End(end)));
    }

    fn arm(&mut self, key: RoomKey) {
        if let Some((at, _)) = self.rooms.get(&key).and_then(|room| room.due(&self.limits)) {
            self.timers.arm(key, at);
        }
    }

    fn control(&mut self, peer: PeerId, message: Message) {
        self.outputs.push_back(Output::Control(peer, message));
    }

    fn news(&mut self, request: RequestId, news: News) {
        self.outputs.push_back(Output::News(request, news));
    }

    /// Time has passed: heartbeats and time limits.
    pub fn tick(&mut self, now: Time) {
        while let Some(key) = self.timers.due(now) {
            let due = self.rooms.get(&key).and_then(|room| room.due(&self.limits));
            match due {
                Some((at, failure)) if at <= now => {
                    self.fail(now, key, failure, By::Us);
                    self.settle(key);
                }
                Some((at, _)) => self.timers.arm(key, at),
                None => {}
            }
        }
        let beats: Vec<(PeerId, Beat)> =
            self.peers.iter_mut().map(|(id, peer)| (*id, peer.beat(now, &self.limits))).collect();
        for (peer, beat) in beats {
            match beat {
                Beat::Rest => {}
                Beat::Ask(number) => self.control(peer, Message::Ping { number }),
                Beat::Gone => self.lost(now, peer, Failure::PeerGone),
            }
        }
    }

    /// When [`tick`](Self::tick) has something to do, if nothing else happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let peers = self.peers.values().map(|peer| peer.due(&self.limits)).min();
        peers.into_iter().chain(self.timers.first()).min()
    }

    /// What is to be done next.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Where a transfer is; `None` where it is forgotten: it succeeded, or nobody holds it.
    #[must_use]
    pub fn state(&self, key: RoomKey) -> Option<TransferState> {
        self.rooms.get(&key).map(RecvRoom::state)
    }

    /// How many rooms are remembered.
    #[cfg(test)]
    pub(crate) fn rooms(&self) -> usize {
        self.rooms.len()
    }

    /// What is open now.
    #[must_use]
    pub fn snapshot(&self) -> LinkSnapshot {
        let mut snapshot = self.board.snapshot(self.peers.values());
        for room in self.rooms.values() {
            let held = room.target.as_ref().filter(|_| matches!(room.phase, Phase::Failed(_)));
            let held = held.map_or(0, Target::bytes);
            snapshot.add(&room.peer, room.state(), held);
        }
        snapshot
    }
}
