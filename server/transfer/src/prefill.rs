//! The prefill worker's end: it is asked, and sends pages as they are computed.

mod frames;
mod job;
mod messages;
mod plan;
mod room;
#[cfg(test)]
mod tests;

pub use job::{FrameBytes, FrameJob};

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use memory_pool::PageBytes;
use types::{RequestId, Time};

use crate::PAYLOAD_BYTES;
use crate::ends::{
    Beat, Count, Layout, Limits, Output, Peer, Recent, RoomKey, Timers, TransferState, Violation,
};
use crate::failure::Failure;
use crate::link::{Chunk, News};
use crate::message::{Answer, Message, Rejected};
use crate::observe::{LinkSnapshot, Side};
use crate::plant::{self, Plant};
use crate::room::{PeerId, PeerName, Room};
use crate::snapshot::Board;
use room::{Phase, SendRoom};

/// Who ends a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// This end: the peer and the engine are told.
    Us,
    /// The engine: the peer is told.
    Engine,
    /// The peer: the engine is told, and the peer gets its answer.
    Peer,
    /// The connection: the engine is told.
    Loss,
}

/// A connected peer.
#[derive(Debug)]
struct Link {
    peer: Peer,
    recent: Recent,
    /// Rooms that may have a frame, in turn.
    active: VecDeque<Room>,
}

/// All transfers of a prefill worker. Every method takes what happened and when; what is to be done
/// comes out of [`poll_output`](Self::poll_output), and frames out of
/// [`next_frame`](Self::next_frame).
#[derive(Debug)]
pub struct PrefillEnd {
    limits: Limits,
    layout: Layout,
    page_tokens: u64,
    payload_max: usize,
    links: BTreeMap<PeerId, Link>,
    next_peer: u64,
    rooms: BTreeMap<RoomKey, SendRoom>,
    timers: Timers,
    board: Board,
    outputs: VecDeque<Output>,
}

impl PrefillEnd {
    /// An end whose pages are `pages`, of `page_tokens` tokens each. `peers` are the decode
    /// workers of the configuration, for the snapshot.
    #[must_use]
    pub fn new(
        limits: Limits,
        pages: &dyn PageBytes,
        page_tokens: u32,
        peers: &[PeerName],
    ) -> Self {
        let largest = pages.parts().iter().map(|part| part.layer_bytes).max().unwrap_or(0);
        Self {
            limits,
            layout: Layout::of(pages),
            page_tokens: page_tokens.into(),
            payload_max: PAYLOAD_BYTES.max(largest),
            links: BTreeMap::new(),
            next_peer: 0,
            rooms: BTreeMap::new(),
            timers: Timers::default(),
            board: Board::new(Side::Send, peers),
            outputs: VecDeque::new(),
        }
    }

    /// A peer's handshake is done.
    pub fn connected(&mut self, now: Time, name: PeerName) -> PeerId {
        let id = PeerId(self.next_peer);
        self.next_peer += 1;
        let peer = Peer::new(now, name, self.limits.rooms_max, &self.limits);
        let (recent, active) = (Recent::default(), VecDeque::new());
        self.links.insert(id, Link { peer, recent, active });
        id
    }

    /// The peers of the configuration are others now: for the snapshot.
    pub fn set_peers(&mut self, peers: &[PeerName]) {
        self.board.set_peers(peers);
    }

    /// Why a peer of the configuration cannot be used now, for the snapshot; `None` once it can.
    pub fn trouble(&mut self, name: &PeerName, trouble: Option<String>) {
        self.board.trouble(name, trouble);
    }

    /// The peer's connections are lost: its transfers fail, with `failure`. Frames of it are still
    /// to be given back, and offers to be decided.
    pub fn lost(&mut self, now: Time, peer: PeerId, failure: Failure) {
        if self.links.remove(&peer).is_none() {
            return;
        }
        let all = RoomKey { peer, room: Room(0) }..=RoomKey { peer, room: Room(u128::MAX) };
        let keys: Vec<RoomKey> = self.rooms.range(all).map(|(key, _)| *key).collect();
        for key in keys {
            self.fail(now, key, failure, By::Loss);
        }
        self.outputs.push_back(Output::Lost(peer, failure));
    }

    /// Something came from the peer: it is there.
    pub fn heard(&mut self, now: Time, peer: PeerId) {
        if let Some(link) = self.links.get_mut(&peer) {
            link.peer.hear(now);
        }
    }

    /// An offer is taken, as `request`.
    ///
    /// # Panics
    /// Where it was not [offered](Output::Offered), or is decided already.
    pub fn accept(&mut self, now: Time, key: RoomKey, request: RequestId, drain: Duration) {
        let room = self.rooms.get_mut(&key).expect("an offer stays until it is decided");
        let Phase::Offered(failed) = room.phase else { panic!("{key:?} is decided") };
        room.request = Some(request);
        room.phase = Phase::Accepted;
        let by_engine = room.let_go.take().is_some();
        if let Some(failure) = failed {
            // It ended while it was being decided.
            let by = if by_engine { By::Engine } else { By::Us };
            self.fail(now, key, failure, by);
            return;
        }
        self.arm(key);
        let (room, answer) = (key.room, Answer::Accepted { drain });
        self.control(key.peer, Message::Answer { room, answer });
    }

    /// An offer is not taken.
    ///
    /// # Panics
    /// Where it was not [offered](Output::Offered), or is decided already.
    pub fn reject(&mut self, key: RoomKey, rejected: Rejected) {
        let room = self.rooms.get(&key).expect("an offer stays until it is decided");
        assert!(matches!(room.phase, Phase::Offered(_)), "{key:?} is decided");
        self.close(key);
        self.rooms.remove(&key);
        let (room, answer) = (key.room, Answer::Rejected(rejected));
        self.control(key.peer, Message::Answer { room, answer });
    }

    /// The engine has computed pages, or will: see [`Sending::chunk`](crate::Sending::chunk).
    ///
    /// # Panics
    /// Before the pages are [wanted](News::Wanted), and after the last chunk.
    pub fn chunk(&mut self, now: Time, key: RoomKey, chunk: Chunk) {
        let Some(room) = self.rooms.get_mut(&key) else { return };
        match room.phase {
            Phase::Over(_) => return,
            Phase::Wanted => {}
            Phase::Offered(_) | Phase::Accepted | Phase::Sent => {
                panic!("a chunk while {}", room.phase.name())
            }
        }
        room.cached = chunk.cached;
        room.plan.add(&self.layout, chunk);
        if room.started.is_none() {
            room.started = Some(now);
            self.control(key.peer, Message::Started { room: key.room });
        }
        self.activate(key);
        self.advance(now, key);
    }

    /// The engine gives it up, or lets go of it: see [`Sending::abandon`](crate::Sending::abandon).
    /// Once everything is sent, whether it succeeded is the decode worker's to say.
    pub fn abandon(&mut self, now: Time, key: RoomKey, why: Failure) {
        let Some(room) = self.rooms.get_mut(&key) else { return };
        room.owned = false;
        match &mut room.phase {
            Phase::Offered(failed) => {
                failed.get_or_insert(why);
                room.let_go = Some(why);
            }
            Phase::Accepted | Phase::Wanted => self.fail(now, key, why, By::Engine),
            // The decode worker waits for a frame that it will not get.
            Phase::Sent if !room.again.is_empty() => self.fail(now, key, why, By::Engine),
            Phase::Sent => {
                room.let_go.get_or_insert(why);
                self.settle(key);
            }
            Phase::Over(result) => {
                // Success is on its way to the engine, or not told yet because of a frame.
                let (succeeded, told, request) = (result.is_ok(), room.settled, room.request);
                if succeeded && !told {
                    room.let_go = Some(why);
                }
                if let Some(request) = request.filter(|_| succeeded && told) {
                    self.news(request, News::Settled);
                }
                self.settle(key);
            }
        }
    }

    /// The engine lets go of it without a word. Before its end that gives it up.
    pub fn release(&mut self, now: Time, key: RoomKey) {
        let Some(room) = self.rooms.get_mut(&key) else { return };
        if matches!(room.phase, Phase::Over(_)) {
            room.owned = false;
            self.settle(key);
        } else {
            self.abandon(now, key, Failure::LocalAbort);
        }
    }

    /// Ends a transfer, unless it has ended, and lets go of it as far as possible.
    fn fail(&mut self, now: Time, key: RoomKey, failure: Failure, by: By) {
        let Some(room) = self.rooms.get_mut(&key) else { return };
        match &mut room.phase {
            Phase::Offered(failed) => {
                failed.get_or_insert(failure);
                return;
            }
            Phase::Over(_) => return,
            Phase::Accepted | Phase::Wanted | Phase::Sent => {}
        }
        let end = room.end(now, Err(failure));
        room.phase = Phase::Over(Err(failure));
        room.again.clear();
        let (request, let_go) = (room.request, room.let_go.is_some());
        self.close(key);
        self.count(Count::End(end));
        if by != By::Engine
            && !let_go
            && let Some(request) = request
        {
            self.news(request, News::Failed(failure));
        }
        if by != By::Loss && !self.limits.remote_writes {
            self.control(key.peer, Message::Ended { room: key.room, failure });
        }
        self.settle(key);
    }

    /// Tells the engine as soon as nobody reads the pages any more, and forgets what is over.
    fn settle(&mut self, key: RoomKey) {
        let Some(room) = self.rooms.get_mut(&key) else { return };
        if room.in_flight > 0 && !plant::is(Plant::SettleWhileRead) {
            return;
        }
        let news = match (room.phase, room.let_go) {
            (Phase::Over(Ok(())), None) => News::Delivered,
            (Phase::Over(_), _) | (Phase::Sent, Some(_)) => News::Settled,
            (Phase::Offered(_) | Phase::Accepted | Phase::Wanted | Phase::Sent, _) => return,
        };
        let told = std::mem::replace(&mut room.settled, true);
        let over = matches!(room.phase, Phase::Over(_));
        let first = over && !std::mem::replace(&mut room.closed, true);
        room.plan.drop_pages();
        let (phase, request, owned) = (room.phase, room.request, room.owned);
        if let Some(request) = request.filter(|_| !told) {
            self.news(request, news);
        }
        // To be told only now: the peer's pages are written from here.
        if let (Phase::Over(Err(failure)), true, true) = (phase, first, self.limits.remote_writes) {
            self.control(key.peer, Message::Ended { room: key.room, failure });
        }
        if over && !owned && !plant::is(Plant::Leak) {
            self.rooms.remove(&key);
        }
    }

    fn violated(&mut self, now: Time, key: RoomKey, violation: Violation) {
        self.board.violation();
        self.outputs.push_back(Output::Violated(key.peer, Some(key.room), violation));
        self.fail(now, key, Failure::Protocol, By::Us);
    }

    fn activate(&mut self, key: RoomKey) {
        if let Some(link) = self.links.get_mut(&key.peer)
            && !link.active.contains(&key.room)
        {
            link.active.push_back(key.room);
        }
    }

    /// A room is over: it makes place for another one, and its name is used up.
    fn close(&mut self, key: RoomKey) {
        self.timers.disarm(key);
        let Some(room) = self.rooms.get_mut(&key) else { return };
        if std::mem::take(&mut room.open)
            && let Some(link) = self.links.get_mut(&key.peer)
        {
            link.peer.rooms -= 1;
            link.recent.insert(key.room);
            link.active.retain(|room| *room != key.room);
        }
    }

    fn arm(&mut self, key: RoomKey) {
        if let Some((at, _)) = self.rooms.get(&key).and_then(|room| room.due(&self.limits)) {
            self.timers.arm(key, at);
        }
    }

    /// Peers that are gone are told nothing.
    fn control(&mut self, peer: PeerId, message: Message) {
        if self.links.contains_key(&peer) {
            self.outputs.push_back(Output::Control(peer, message));
        }
    }

    fn news(&mut self, request: RequestId, news: News) {
        self.outputs.push_back(Output::News(request, news));
    }

    fn count(&mut self, count: Count) {
        self.outputs.push_back(Output::Count(count));
    }

    /// Time has passed: heartbeats and time limits.
    pub fn tick(&mut self, now: Time) {
        while let Some(key) = self.timers.due(now) {
            match self.rooms.get(&key).and_then(|room| room.due(&self.limits)) {
                Some((at, failure)) if at <= now => self.fail(now, key, failure, By::Us),
                Some((at, _)) => self.timers.arm(key, at),
                None => {}
            }
        }
        let links = self.links.iter_mut();
        let beats: Vec<(PeerId, Beat)> =
            links.map(|(id, link)| (*id, link.peer.beat(now, &self.limits))).collect();
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
        let peers = self.links.values().map(|link| link.peer.due(&self.limits)).min();
        peers.into_iter().chain(self.timers.first()).min()
    }

    /// What is to be done next.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Where a transfer is; `None` where it is forgotten.
    #[must_use]
    pub fn state(&self, key: RoomKey) -> Option<TransferState> {
        self.rooms.get(&key).map(SendRoom::state)
    }

    /// How many rooms are remembered.
    #[cfg(test)]
    pub(crate) fn rooms(&self) -> usize {
        self.rooms.len()
    }

    /// What is open now.
    #[must_use]
    pub fn snapshot(&self) -> LinkSnapshot {
        let mut snapshot = self.board.snapshot(self.links.values().map(|link| &link.peer));
        for room in self.rooms.values() {
            snapshot.add(&room.peer, room.state(), 0);
        }
        snapshot
    }
}
