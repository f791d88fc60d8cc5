//! The prefill worker's end: it is asked, and sends pages as they are computed.

mod job;
mod messages;
mod plan;
mod room;

pub use job::{FrameBytes, FrameJob};

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use memory_pool::{Block, PageBytes};
use types::{RequestId, Time};

use crate::PAYLOAD_BYTES;
use crate::ends::{
    Beat, Count, Layout, Limits, Output, Peer, Recent, RoomKey, Timers, TransferState, Violation,
};
use crate::failure::Failure;
use crate::frame::FrameHeader;
use crate::link::{Chunk, News};
use crate::message::{Answer, Message, Rejected};
use crate::observe::{LinkSnapshot, Side};
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
        self.remove(key);
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
        match &mut room.phase {
            Phase::Offered(failed) => {
                failed.get_or_insert(why);
                room.let_go = Some(why);
            }
            Phase::Accepted | Phase::Wanted => self.fail(now, key, why, By::Engine),
            Phase::Sent => {
                room.let_go.get_or_insert(why);
                room.again.clear();
                self.settle(key);
            }
            Phase::Over(_) => {}
        }
    }

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
    fn advance(&mut self, now: Time, key: RoomKey) {
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
        self.timers.disarm(key);
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
        if room.in_flight > 0 {
            return;
        }
        let news = match (room.phase, room.let_go) {
            (Phase::Over(Ok(())), None) => News::Delivered,
            (Phase::Over(_), _) | (Phase::Sent, Some(_)) => News::Settled,
            (Phase::Offered(_) | Phase::Accepted | Phase::Wanted | Phase::Sent, _) => return,
        };
        let told = std::mem::replace(&mut room.settled, true);
        room.plan.drop_pages();
        let (phase, request) = (room.phase, room.request);
        if let Some(request) = request.filter(|_| !told) {
            self.news(request, news);
        }
        if let Phase::Over(result) = phase {
            self.remove(key);
            // To be told only now: the peer's pages are written from here.
            if let (Err(failure), true) = (result, self.limits.remote_writes) {
                self.control(key.peer, Message::Ended { room: key.room, failure });
            }
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

    fn remove(&mut self, key: RoomKey) {
        self.timers.disarm(key);
        if self.rooms.remove(&key).is_some()
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
