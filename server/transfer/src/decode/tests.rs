//! Peers that lie, and the order of what the engine hears.

use std::time::Duration;

use types::{PageId, PoolId, Priority, TokenId};

use super::*;
use crate::codec::payload_checksum;
use crate::frame::FrameHeader;
use crate::loopback::Dice;
use crate::message::{Answer, RemoteTimes};
use crate::observe::{Stage, TransferEnd};
use crate::sim_test::pages::{TestPages, parts};

const REQUEST: RequestId = RequestId(7);
const SECOND: Duration = Duration::from_secs(1);

struct Rig {
    end: DecodeEnd,
    pages: TestPages,
    peer: PeerId,
    now: Time,
    ends: Vec<TransferEnd>,
    held: [Vec<PageId>; 2],
}

impl Rig {
    fn new(limits: Limits) -> Self {
        let pages = TestPages::new(2, true);
        let name = PeerName::new("p:1");
        let random = Box::new(Dice::new(1));
        let mut end = DecodeEnd::new(limits, &pages, std::slice::from_ref(&name), random);
        let now = Time::ZERO + SECOND;
        let peer = end.connected(now, name, 100);
        let held = pages.take([3, 2]).unwrap();
        pages.open(&held, true);
        Self { end, pages, peer, now, ends: Vec::new(), held }
    }

    fn prompt(tokens: u32) -> Prompt {
        Prompt {
            request: "r".to_owned(),
            traceparent: None,
            tokens: (0..tokens).map(TokenId).collect(),
            namespace: Vec::new(),
            priority: Priority::NORMAL,
            tenant: None,
        }
    }

    fn offer(&mut self) -> RoomKey {
        self.end.offer(self.now, &PeerName::new("p:1"), REQUEST, Self::prompt(10)).unwrap()
    }

    fn accepted(&mut self) -> RoomKey {
        let key = self.offer();
        let answer = Answer::Accepted { drain: SECOND };
        self.hear(Message::Answer { room: key.room, answer });
        key
    }

    /// Three pages of the first pool and two of the second.
    fn landed(&mut self) -> RoomKey {
        let key = self.accepted();
        self.land(key);
        self.outputs();
        key
    }

    fn land(&mut self, key: RoomKey) {
        let pool = |pool: u16, first_index| LandPages {
            pool: PoolId(pool),
            first_index,
            pages: self.held[usize::from(pool)].clone(),
        };
        self.end.land(self.now, key, 0, vec![pool(0, 0), pool(1, 1)]);
    }

    fn hear(&mut self, message: Message) {
        self.end.on_message(self.now, self.peer, message);
    }

    /// What the end wants, but for counts, which are kept.
    fn outputs(&mut self) -> Vec<Output> {
        let mut outputs = Vec::new();
        while let Some(output) = self.end.poll_output() {
            if let Output::Count(Count::End(end)) = output {
                self.ends.push(end);
            } else if !matches!(output, Output::Count(_)) {
                outputs.push(output);
            }
        }
        outputs
    }

    fn result(&mut self) -> Result<(), Failure> {
        self.outputs();
        assert_eq!(self.ends.len(), 1, "one end: {:?}", self.ends);
        self.ends[0].result
    }

    fn frame(&mut self, header: FrameHeader, byte: u8) {
        let payload = vec![byte; header.length as usize];
        let checksum = payload_checksum([&payload[..]]);
        let header = FrameHeader { checksum, ..header };
        self.end.on_frame(self.now, self.peer, &header, &payload, &self.pages);
    }
}

/// All layers of all pages of a part, as one frame.
fn whole(key: RoomKey, part: u16, seq: u32) -> FrameHeader {
    let shape = &parts(true)[usize::from(part)];
    let (first_page, pages) = if shape.pool == PoolId(0) { (0, 3) } else { (1, 2) };
    let layers = shape.layers.len() as u16;
    FrameHeader {
        length: u32::from(pages) * u32::from(layers) * shape.layer_bytes as u32,
        room: key.room,
        seq,
        rank: 0,
        part,
        first_layer: 0,
        layers,
        first_page,
        pages,
        checksum: 0,
    }
}

fn news(all: &[Output]) -> Vec<News> {
    let news = |output: &Output| {
        if let Output::News(_, news) = output { Some(*news) } else { None }
    };
    all.iter().filter_map(news).collect()
}

fn sent(key: RoomKey, frames: u32) -> Message {
    Message::Sent { room: key.room, frames, times: RemoteTimes::default() }
}

#[test]
fn a_transfer_from_offer_to_arrival() {
    let mut rig = Rig::new(Limits::default());
    let key = rig.accepted();
    let outputs = rig.outputs();
    let Output::Control(_, Message::Offer(offer)) = &outputs[0] else { panic!("{outputs:?}") };
    assert_eq!((offer.room, offer.tokens.len()), (key.room, 10));
    assert_eq!(outputs[1..], [Output::Answered(key, Ok(SECOND))]);
    assert_eq!(rig.end.state(key), Some(TransferState::Bootstrapping));
    rig.land(key);
    let land = Message::Land { room: key.room, skip_tokens: 0 };
    assert_eq!(rig.outputs(), [Output::Control(rig.peer, land)]);
    assert_eq!(rig.end.state(key), Some(TransferState::WaitingForInput));
    rig.hear(Message::Started { room: key.room });
    rig.now = rig.now + SECOND;
    rig.frame(whole(key, 0, 0), 1);
    assert_eq!(rig.end.state(key), Some(TransferState::Transferring));
    assert_eq!(news(&rig.outputs()), [News::Started, News::FirstByte]);
    rig.now = rig.now + SECOND;
    rig.hear(sent(key, 3));
    rig.frame(whole(key, 2, 2), 3);
    assert!(rig.outputs().is_empty(), "a part is missing");
    rig.frame(whole(key, 1, 1), 2);
    let received = Output::Control(rig.peer, Message::Received { room: key.room });
    let arrived = Output::News(REQUEST, News::Arrived(RemoteTimes::default()));
    assert_eq!(rig.outputs(), [received, arrived]);
    assert_eq!(rig.end.state(key), Some(TransferState::Success));
    rig.end.release(rig.now, key);
    assert!(rig.end.state(key).is_none() && rig.outputs().is_empty());
    let [end] = &rig.ends[..] else { panic!("{:?}", rig.ends) };
    assert_eq!((end.result, end.stage), (Ok(()), Stage::Wire));
    assert_eq!((end.wire, end.total), (Some(SECOND), SECOND * 2));
}

/// Who waits in the prefill worker's queue is not late, however long it takes.
#[test]
fn time_in_the_peers_queue_does_not_count() {
    let mut rig = Rig::new(Limits { silent_beats: u32::MAX, ..Limits::default() });
    let key = rig.landed();
    rig.now = rig.now + SECOND * 100_000;
    rig.end.tick(rig.now);
    assert!(news(&rig.outputs()).is_empty());
    rig.hear(Message::Started { room: key.room });
    rig.now = rig.now + SECOND * 299;
    rig.end.tick(rig.now);
    rig.frame(whole(key, 0, 0), 1);
    // A byte is a sign of life.
    rig.now = rig.now + SECOND * 299;
    rig.end.tick(rig.now);
    assert_eq!(news(&rig.outputs()), [News::Started, News::FirstByte]);
    rig.now = rig.now + SECOND;
    rig.end.tick(rig.now);
    assert_eq!(rig.result(), Err(Failure::WaitingTimeout));
}

#[test]
fn pages_are_settled_when_their_last_writer_is_through() {
    for engine in [true, false] {
        let mut rig = Rig::new(Limits::default());
        let key = rig.landed();
        let header = FrameHeader { checksum: 5, ..whole(key, 0, 0) };
        let writing = rig.end.frame_begins(rig.now, rig.peer, &header).unwrap();
        if engine {
            rig.end.abandon(rig.now, key, Failure::LocalAbort);
        } else {
            rig.end.lost(rig.now, rig.peer, Failure::PeerGone);
        }
        let heard = news(&rig.outputs());
        assert_eq!(heard, if engine { vec![] } else { vec![News::Failed(Failure::PeerGone)] });
        let held = rig.end.snapshot().peers[0].held_bytes;
        // Three pages of 41 bytes and two of 14, on two ranks.
        assert_eq!(held, 2 * (3 * 41 + 2 * 14));
        rig.end.frame_ends(rig.now, writing, true);
        assert_eq!(news(&rig.outputs()), [News::Settled]);
        assert_eq!(rig.end.snapshot().peers[0].held_bytes, 0);
        assert!(rig.end.frame_begins(rig.now, rig.peer, &header).is_none(), "late frames");
    }
}

#[test]
fn with_remote_writes_the_peer_lets_go() {
    let limits = Limits { remote_writes: true, ..Limits::default() };
    for answers in [true, false] {
        let mut rig = Rig::new(limits);
        let key = rig.landed();
        rig.end.abandon(rig.now, key, Failure::LocalAbort);
        let (room, failure) = (key.room, Failure::LocalAbort);
        let abort = Output::Control(rig.peer, Message::Abort { room, failure });
        assert_eq!(rig.outputs(), [abort]);
        assert!(rig.end.snapshot().peers[0].held_bytes > 0);
        if answers {
            rig.hear(Message::Ended { room, failure: Failure::PeerAbort });
        } else {
            rig.end.lost(rig.now, rig.peer, Failure::PeerGone);
        }
        assert_eq!(news(&rig.outputs()), [News::Settled]);
        assert_eq!(rig.result(), Err(Failure::LocalAbort), "the first reason counts");
    }
}

#[test]
fn a_failure_before_the_pages_is_told_again_with_them() {
    let mut rig = Rig::new(Limits::default());
    let key = rig.accepted();
    let failure = Failure::BootstrapTimeout;
    rig.hear(Message::Ended { room: key.room, failure });
    let told = [News::Failed(failure), News::Settled];
    assert_eq!(news(&rig.outputs()), told);
    rig.land(key);
    assert_eq!(news(&rig.outputs()), told);
    rig.end.release(rig.now, key);
    assert!(rig.outputs().is_empty() && rig.end.rooms() == 0);
    assert_eq!(rig.ends[0].stage, Stage::Alloc);
}

#[test]
fn frames_that_lie_fail_their_transfer_and_nothing_else() {
    type Change = fn(&mut FrameHeader);
    let lies: [(Change, &str); 11] = [
        (|h| h.part = 3, "part 3 is not within 0..3"),
        (|h| h.rank = 1, "rank 1 is not within 0..1"),
        (|h| h.first_layer = 3, "first layer 3 is not within 0..3"),
        (|h| h.layers = 4, "number of layers 4 is not within 1..4"),
        (|h| h.layers = 0, "number of layers 0 is not within 1..4"),
        (|h| h.first_page = 3, "first page 3 is not within 0..3"),
        (|h| h.first_page = u32::MAX, "first page 4294967295 is not within 0..3"),
        (|h| h.pages = 4, "number of pages 4 is not within 1..4"),
        (|h| h.pages = 0, "number of pages 0 is not within 1..4"),
        (|h| h.length = 1, "length of a frame is 1, expected 108"),
        (|h| h.seq = u32::MAX, "frame 4294967295 is not within 0..16"),
    ];
    for (lie, expected) in lies {
        let mut rig = Rig::new(Limits::default());
        let (key, other) = (rig.landed(), rig.landed());
        let mut header = whole(key, 0, 0);
        lie(&mut header);
        rig.frame(header, 1);
        let outputs = rig.outputs();
        let violation = |output: &Output| {
            let Output::Violated(_, _, violation) = output else { return None };
            Some(violation.to_string())
        };
        let text = outputs.iter().find_map(violation);
        assert_eq!(text.as_deref(), Some(expected));
        assert_eq!(news(&outputs), [News::Failed(Failure::Protocol), News::Settled]);
        assert_eq!(rig.end.state(other), Some(TransferState::WaitingForInput));
        assert_eq!(rig.end.snapshot().violations, 1);
    }
}

#[test]
fn blocks_come_once() {
    let mut rig = Rig::new(Limits::default());
    let key = rig.landed();
    rig.frame(whole(key, 0, 0), 1);
    // The same again is ignored, whatever it holds.
    rig.frame(whole(key, 0, 0), 9);
    let block = memory_pool::Block { rank: 1, part: 0, page: rig.held[0][1], layers: 0..3 };
    assert!(rig.pages.read(&block).iter().all(|byte| *byte == 1));
    assert_eq!(rig.end.snapshot().strays, 1);
    // A number that is used is not another frame's.
    rig.frame(whole(key, 1, 0), 1);
    assert_eq!(rig.result(), Err(Failure::Protocol));

    let mut rig = Rig::new(Limits::default());
    let key = rig.landed();
    let one = FrameHeader { pages: 1, length: 36, ..whole(key, 0, 0) };
    rig.frame(one, 1);
    // Some of it is there: no correct peer cuts a frame anew.
    rig.frame(whole(key, 0, 1), 1);
    assert_eq!(rig.result(), Err(Failure::Protocol));
}

#[test]
fn numbers_of_frames_must_agree() {
    for frames in [0, 2, 4] {
        let mut rig = Rig::new(Limits::default());
        let key = rig.landed();
        (0..3).for_each(|part| rig.frame(whole(key, part, part.into()), 1));
        rig.hear(sent(key, frames));
        assert_eq!(rig.result(), Err(Failure::Protocol), "{frames} of 3");
    }
    let mut rig = Rig::new(Limits::default());
    let key = rig.landed();
    // Everything was sent, it says, and the pages are not whole: without this it would wait.
    rig.frame(whole(key, 0, 0), 1);
    rig.hear(sent(key, 1));
    assert_eq!(rig.result(), Err(Failure::Protocol));
    let mut rig = Rig::new(Limits::default());
    let key = rig.landed();
    rig.hear(sent(key, 1000));
    assert_eq!(rig.result(), Err(Failure::Protocol));
}

#[test]
fn a_broken_frame_is_asked_for_twice_and_then_fails() {
    let mut rig = Rig::new(Limits::default());
    let key = rig.landed();
    let header = FrameHeader { checksum: 1, ..whole(key, 0, 4) };
    let payload = vec![0; header.length as usize];
    for broken in 1..=2 {
        rig.end.on_frame(rig.now, rig.peer, &header, &payload, &rig.pages);
        let again = Message::Again { room: key.room, frame: 4, broken };
        assert_eq!(rig.outputs(), [Output::Control(rig.peer, again)]);
    }
    rig.end.on_frame(rig.now, rig.peer, &header, &payload, &rig.pages);
    let (room, failure) = (key.room, Failure::Checksum);
    let abort = Output::Control(rig.peer, Message::Abort { room, failure });
    let outputs = rig.outputs();
    assert_eq!(outputs[0], abort);
    assert_eq!(news(&outputs), [News::Failed(failure), News::Settled]);
}

#[test]
fn messages_before_their_turn_and_of_unknown_rooms() {
    let early: [fn(Room) -> Message; 2] = [
        |room| Message::Started { room },
        |room| Message::Sent { room, frames: 0, times: RemoteTimes::default() },
    ];
    for message in early {
        let mut rig = Rig::new(Limits::default());
        let key = rig.accepted();
        rig.hear(message(key.room));
        assert_eq!(rig.result(), Err(Failure::Protocol));
        let mut rig = Rig::new(Limits::default());
        rig.hear(message(Room(5)));
        assert!(rig.outputs().is_empty() && rig.end.snapshot().strays == 1);
    }
    let mut rig = Rig::new(Limits::default());
    let key = rig.accepted();
    rig.frame(whole(key, 0, 0), 1);
    assert_eq!(rig.result(), Err(Failure::Protocol));
    // An offer that was given up before its answer is not computed for nobody.
    let (room, failure) = (Room(6), Failure::LocalAbort);
    rig.hear(Message::Answer { room, answer: Answer::Accepted { drain: SECOND } });
    assert_eq!(rig.outputs(), [Output::Control(rig.peer, Message::Abort { room, failure })]);
    // What only this side says is ignored, and counted.
    rig.hear(Message::Received { room });
    assert_eq!(rig.end.snapshot().violations, 2);
}

#[test]
fn rooms_are_bounded_and_their_own() {
    let mut rig = Rig::new(Limits { rooms_max: 2, ..Limits::default() });
    let (one, other) = (rig.offer(), rig.offer());
    assert_ne!(one.room, other.room, "samples of one request share nothing");
    let name = PeerName::new("p:1");
    let full = rig.end.offer(rig.now, &name, REQUEST, Rig::prompt(3)).unwrap_err();
    let NotOffered::Rejected(rejected) = full else { panic!("{full:?}") };
    assert_eq!((rejected.value, rejected.limit), (3, 2));
    let rejected = Rejected { reason: 2, retry_after: SECOND, value: 9, limit: 5 };
    rig.hear(Message::Answer { room: one.room, answer: Answer::Rejected(rejected) });
    assert!(rig.end.offer(rig.now, &name, REQUEST, Rig::prompt(3)).is_ok());
    assert!(rig.outputs().contains(&Output::Answered(one, Err(NotOffered::Rejected(rejected)))));
    assert!(rig.ends.is_empty(), "a refusal is no transfer");
}

#[test]
fn offers_that_cannot_be_made_say_why() {
    let mut rig = Rig::new(Limits::default());
    let nobody = rig.end.offer(rig.now, &PeerName::new("q:1"), REQUEST, Rig::prompt(3));
    assert_eq!(nobody, Err(NotOffered::Failed(Failure::Connect)));
    assert_eq!(rig.result(), Err(Failure::Connect));
    let name = PeerName::new("p:1");
    let long = Prompt { tenant: Some("t".repeat(300)), ..Rig::prompt(3) };
    let error = rig.end.offer(rig.now, &name, REQUEST, long).unwrap_err().to_string();
    assert_eq!(error, "tenant has length 300, at most 256 can be sent to a prefill worker");
    assert!(rig.end.offer(rig.now, &name, REQUEST, Rig::prompt(0)).is_err());
}

#[test]
fn an_offer_that_nobody_answers_ends() {
    let mut rig = Rig::new(Limits { silent_beats: 100, ..Limits::default() });
    let key = rig.offer();
    rig.now = rig.now + SECOND * 10;
    rig.end.tick(rig.now);
    let failed = Err(NotOffered::Failed(Failure::BootstrapTimeout));
    assert!(rig.outputs().contains(&Output::Answered(key, failed)));
    assert_eq!((rig.result(), rig.end.rooms()), (Err(Failure::BootstrapTimeout), 0));
}
