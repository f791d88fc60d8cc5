//! What a prefill worker does with decode workers that lie, and with its own engine.

use std::time::Duration;

use memory_pool::LayerProgress;
use types::{PageId, PoolId, Priority, TokenId};

use super::*;
use crate::message::{CachedTokens, Offer, RemoteTimes};
use crate::observe::{Stage, TransferEnd};
use crate::sim_test::pages::{LAYERS, PAGE_TOKENS, TestPages};

const REQUEST: RequestId = RequestId(7);
const SECOND: Duration = Duration::from_secs(1);

struct Rig {
    end: PrefillEnd,
    pages: TestPages,
    peer: PeerId,
    now: Time,
    ends: Vec<TransferEnd>,
}

impl Rig {
    fn new(limits: Limits) -> Self {
        let pages = TestPages::new(1, false);
        let mut end = PrefillEnd::new(limits, &pages, PAGE_TOKENS as u32, &[]);
        let now = Time::ZERO + SECOND;
        let peer = end.connected(now, PeerName::other());
        Self { end, pages, peer, now, ends: Vec::new() }
    }

    fn hear(&mut self, message: Message) {
        self.end.on_message(self.now, self.peer, message);
    }

    fn offer(&mut self, room: u128) -> RoomKey {
        let room = Room(room);
        self.hear(Message::Offer(Offer {
            room,
            request: "r".to_owned(),
            traceparent: None,
            tokens: (0..10).map(TokenId).collect(),
            namespace: Vec::new(),
            priority: Priority::NORMAL,
            tenant: None,
        }));
        RoomKey { peer: self.peer, room }
    }

    fn accepted(&mut self) -> RoomKey {
        let key = self.offer(1);
        self.end.accept(self.now, key, REQUEST, SECOND);
        key
    }

    fn wanted(&mut self) -> RoomKey {
        let key = self.accepted();
        self.hear(Message::Land { room: key.room, skip_tokens: 0 });
        self.outputs();
        key
    }

    /// Everything in one chunk.
    fn chunk(&mut self, key: RoomKey, progress: Option<LayerProgress>) {
        let pool = |pool, pages: u32| {
            (0..pages).map(move |page| (PoolId(pool), page as usize, PageId(page)))
        };
        let pages = pool(0, 3).chain(pool(1, 2)).collect();
        let cached = CachedTokens::default();
        self.end.chunk(self.now, key, Chunk { fence: 1, pages, progress, last: true, cached });
    }

    /// Takes and writes all frames that there are; how many.
    fn write(&mut self) -> usize {
        let mut frames = 0;
        while let Some(job) = self.end.next_frame(self.now, self.peer) {
            drop(job.load(&self.pages));
            self.end.frame_ends(self.now, job, true);
            frames += 1;
        }
        frames
    }

    fn sent(&mut self) -> RoomKey {
        let key = self.wanted();
        self.chunk(key, None);
        assert_eq!(self.write(), 3);
        self.outputs();
        key
    }

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
}

fn news(all: &[Output]) -> Vec<News> {
    let news = |output: &Output| {
        if let Output::News(_, news) = output { Some(*news) } else { None }
    };
    all.iter().filter_map(news).collect()
}

#[test]
fn a_transfer_from_offer_to_delivery() {
    let mut rig = Rig::new(Limits::default());
    let key = rig.offer(1);
    assert!(matches!(rig.outputs()[..], [Output::Offered(..)]));
    rig.end.accept(rig.now, key, REQUEST, SECOND);
    let answer = Answer::Accepted { drain: SECOND };
    let answer = Message::Answer { room: key.room, answer };
    assert_eq!(rig.outputs(), [Output::Control(rig.peer, answer)]);
    rig.now = rig.now + SECOND;
    rig.hear(Message::Land { room: key.room, skip_tokens: 0 });
    assert_eq!(news(&rig.outputs()), [News::Wanted { skip_tokens: 0 }]);
    let progress = LayerProgress::new(1, LAYERS);
    rig.now = rig.now + SECOND;
    rig.chunk(key, Some(progress.clone()));
    let started = Message::Started { room: key.room };
    assert_eq!(rig.outputs(), [Output::Control(rig.peer, started)]);
    assert_eq!(rig.write(), 0, "nothing is computed");
    // Layer by layer: 0 is in two parts, 1 in two, 2 in one, 3 in one.
    let mut frames = Vec::new();
    for layers in 1..=LAYERS {
        progress.advance(0, layers);
        frames.push(rig.write());
    }
    assert_eq!(frames, [2, 2, 1, 1]);
    assert!(rig.outputs().is_empty(), "the pass is not over");
    rig.now = rig.now + SECOND;
    progress.finish();
    assert_eq!(rig.write(), 0);
    let times = RemoteTimes { queued: SECOND, prefill: SECOND, ..RemoteTimes::default() };
    let sent = Message::Sent { room: key.room, frames: 6, times };
    let expected = [Output::News(REQUEST, News::Passed(1)), Output::Control(rig.peer, sent)];
    assert_eq!(rig.outputs(), expected);
    rig.hear(Message::Received { room: key.room });
    assert_eq!(news(&rig.outputs()), [News::Delivered]);
    rig.end.release(rig.now, key);
    assert_eq!((rig.result(), rig.end.rooms()), (Ok(()), 0));
    let [bootstrap, total] = [rig.ends[0].bootstrap, Some(rig.ends[0].total)];
    assert_eq!((bootstrap, total), (Some(SECOND), Some(SECOND * 3)));
}

#[test]
fn frames_under_way_are_bounded() {
    let mut rig = Rig::new(Limits { frames_in_flight: 2, ..Limits::default() });
    let key = rig.wanted();
    rig.chunk(key, None);
    let one = rig.end.next_frame(rig.now, rig.peer).unwrap();
    let other = rig.end.next_frame(rig.now, rig.peer).unwrap();
    assert!(rig.end.next_frame(rig.now, rig.peer).is_none());
    assert_ne!(one.header.part, other.header.part);
    // One that was not written comes again, with its number.
    let seq = other.header.seq;
    rig.end.frame_ends(rig.now, other, false);
    let again = rig.end.next_frame(rig.now, rig.peer).unwrap();
    assert_eq!(again.header.seq, seq);
    rig.end.frame_ends(rig.now, again, true);
    rig.end.frame_ends(rig.now, one, true);
    assert_eq!(rig.write(), 1);
    assert!(rig.outputs().iter().any(|o| matches!(o, Output::Control(_, Message::Sent { .. }))));
}

#[test]
fn a_room_is_used_once() {
    let mut rig = Rig::new(Limits::default());
    let key = rig.wanted();
    rig.offer(1);
    rig.hear(Message::Land { room: key.room, skip_tokens: 0 });
    assert!(rig.outputs().is_empty() && rig.end.snapshot().strays == 2, "twice is once");
    rig.end.abandon(rig.now, key, Failure::LocalAbort);
    rig.outputs();
    rig.offer(1);
    let outputs = rig.outputs();
    assert_eq!(outputs, [Output::Violated(rig.peer, Some(key.room), Violation::Room)]);
    // Another peer's room of the same name is another room.
    rig.peer = rig.end.connected(rig.now, PeerName::other());
    rig.offer(1);
    assert!(matches!(rig.outputs()[..], [Output::Offered(..)]));
}

#[test]
fn rooms_are_bounded_per_peer() {
    let mut rig = Rig::new(Limits { rooms_max: 2, ..Limits::default() });
    for room in 1..=3 {
        rig.offer(room);
    }
    let outputs = rig.outputs();
    let Output::Control(_, Message::Answer { room, answer: Answer::Rejected(rejected) }) =
        &outputs[2]
    else {
        panic!("{outputs:?}")
    };
    assert_eq!((room.0, rejected.value, rejected.limit), (3, 3, 2));
    rig.peer = rig.end.connected(rig.now, PeerName::other());
    rig.offer(4);
    assert!(matches!(rig.outputs()[..], [Output::Offered(..)]), "others have their own bound");
}

#[test]
fn an_abort_is_answered_and_no_error() {
    for landed in [true, false] {
        let mut rig = Rig::new(Limits::default());
        let key = if landed { rig.wanted() } else { rig.accepted() };
        rig.outputs();
        rig.hear(Message::Abort { room: key.room, failure: Failure::LocalAbort });
        let (room, failure) = (key.room, Failure::PeerAbort);
        let outputs = rig.outputs();
        assert!(outputs.contains(&Output::Control(rig.peer, Message::Ended { room, failure })));
        assert_eq!(news(&outputs), [News::Failed(failure), News::Settled]);
        assert!(rig.result().unwrap_err().is_abort());
        let stage = if landed { Stage::Wire } else { Stage::Bootstrap };
        assert_eq!(rig.ends[0].stage, stage);
    }
}

#[test]
fn an_abort_may_overtake_its_offer() {
    let mut rig = Rig::new(Limits::default());
    let room = Room(1);
    rig.hear(Message::Abort { room, failure: Failure::LocalAbort });
    let ended = Message::Ended { room, failure: Failure::PeerAbort };
    assert_eq!(rig.outputs(), [Output::Control(rig.peer, ended)]);
    rig.offer(1);
    assert!(!rig.outputs().iter().any(|output| matches!(output, Output::Offered(..))));
}

#[test]
fn an_offer_may_end_while_it_is_decided() {
    for lost in [true, false] {
        let mut rig = Rig::new(Limits::default());
        let key = rig.offer(1);
        if lost {
            rig.end.lost(rig.now, rig.peer, Failure::PeerGone);
        } else {
            rig.hear(Message::Abort { room: key.room, failure: Failure::LocalAbort });
        }
        rig.outputs();
        rig.end.accept(rig.now, key, REQUEST, SECOND);
        let failure = if lost { Failure::PeerGone } else { Failure::PeerAbort };
        assert_eq!(news(&rig.outputs()), [News::Failed(failure), News::Settled]);
        rig.end.release(rig.now, key);
        assert_eq!((rig.result(), rig.end.rooms()), (Err(failure), 0));
    }
}

#[test]
fn pages_are_settled_when_their_last_reader_is_through() {
    let mut rig = Rig::new(Limits::default());
    let key = rig.wanted();
    rig.chunk(key, None);
    let job = rig.end.next_frame(rig.now, rig.peer).unwrap();
    rig.outputs();
    rig.end.abandon(rig.now, key, Failure::LocalAbort);
    assert!(news(&rig.outputs()).is_empty());
    assert!(rig.end.next_frame(rig.now, rig.peer).is_none(), "no more is sent");
    rig.end.frame_ends(rig.now, job, true);
    assert_eq!(news(&rig.outputs()), [News::Settled]);
}

/// Whether what is sent has arrived is the decode worker's to say: both sides count the same.
#[test]
fn given_up_when_all_is_sent_the_peer_decides() {
    for received in [true, false] {
        let mut rig = Rig::new(Limits::default());
        let key = rig.sent();
        rig.end.abandon(rig.now, key, Failure::LocalAbort);
        assert_eq!(news(&rig.outputs()), [News::Settled], "the pages are free");
        assert!(rig.ends.is_empty());
        if received {
            rig.hear(Message::Received { room: key.room });
        } else {
            rig.hear(Message::Again { room: key.room, frame: 0, broken: 1 });
        }
        let expected = if received { Ok(()) } else { Err(Failure::LocalAbort) };
        assert!(news(&rig.outputs()).is_empty());
        assert_eq!((rig.result(), rig.end.rooms()), (expected, 0));
    }
}

/// Questions come twice: the second says nothing about what has arrived since the first.
#[test]
fn given_up_it_is_not_failed_by_a_question_that_was_answered() {
    let mut rig = Rig::new(Limits::default());
    let key = rig.sent();
    let again = Message::Again { room: key.room, frame: 0, broken: 1 };
    rig.hear(again.clone());
    assert_eq!(rig.write(), 1, "it is sent again");
    rig.hear(again.clone());
    assert_eq!(rig.write(), 0, "once");
    rig.end.abandon(rig.now, key, Failure::LocalAbort);
    rig.hear(again);
    assert!(rig.outputs().iter().all(|output| *output == Output::News(REQUEST, News::Settled)));
    rig.hear(Message::Received { room: key.room });
    assert_eq!((rig.result(), rig.end.rooms()), (Ok(()), 0));
}

/// Nobody waits out a time limit for a frame that cannot come any more.
#[test]
fn given_up_with_a_frame_to_send_again_it_fails_at_once() {
    for taken in [false, true] {
        let mut rig = Rig::new(Limits::default());
        let key = rig.sent();
        rig.hear(Message::Again { room: key.room, frame: 0, broken: 1 });
        let job = taken.then(|| rig.end.next_frame(rig.now, rig.peer).expect("frame 0"));
        rig.end.abandon(rig.now, key, Failure::LocalAbort);
        if let Some(job) = job {
            assert!(rig.outputs().is_empty() && rig.ends.is_empty(), "it may still arrive");
            rig.end.frame_ends(rig.now, job, false);
        }
        let outputs = rig.outputs();
        let (room, failure) = (key.room, Failure::LocalAbort);
        let ended = Output::Control(rig.peer, Message::Ended { room, failure });
        assert!(outputs.contains(&ended), "the decode worker learns of it: {outputs:?}");
        assert_eq!(news(&outputs), [News::Settled]);
        assert_eq!((rig.result(), rig.end.rooms()), (Err(failure), 0));
    }
}

/// The peer may read a frame, and ask for it again, before the driver says that it is written.
#[test]
fn a_frame_may_be_asked_for_again_while_it_is_in_the_drivers_hands() {
    let mut rig = Rig::new(Limits::default());
    let key = rig.wanted();
    rig.chunk(key, None);
    let job = rig.end.next_frame(rig.now, rig.peer).expect("frame 0");
    rig.hear(Message::Again { room: key.room, frame: 0, broken: 1 });
    rig.end.frame_ends(rig.now, job, true);
    assert_eq!(rig.write(), 3, "it, and the two that follow");
    rig.hear(Message::Received { room: key.room });
    assert_eq!(rig.result(), Ok(()));
}

/// What is computed and was not begun cannot have arrived broken.
#[test]
fn a_frame_that_was_never_begun_cannot_be_asked_for_again() {
    for begun in 0..3 {
        let mut rig = Rig::new(Limits::default());
        let key = rig.wanted();
        rig.chunk(key, None);
        let take = |_| rig.end.next_frame(rig.now, rig.peer).expect("of three frames");
        let jobs: Vec<_> = (0..begun).map(take).collect();
        rig.outputs();
        rig.hear(Message::Again { room: key.room, frame: begun, broken: 1 });
        let outputs = rig.outputs();
        let Output::Violated(_, _, violation) = &outputs[0] else { panic!("{outputs:?}") };
        let expected = format!("frame to send again {begun} is not within 0..{begun}");
        assert_eq!(violation.to_string(), expected);
        assert!(news(&outputs).contains(&News::Failed(Failure::Protocol)), "{outputs:?}");
        jobs.into_iter().for_each(|job| rig.end.frame_ends(rig.now, job, false));
        assert_eq!(rig.write(), 0, "nothing is sent for a transfer that failed");
    }
}

#[test]
fn lies_fail_their_transfer() {
    type Prepare = fn(&mut Rig) -> RoomKey;
    let lies: [(Prepare, Message, &str); 7] = [
        (
            Rig::accepted,
            Message::Land { room: Room(1), skip_tokens: 12 },
            "number of tokens to skip 12 is not within 0..11",
        ),
        (
            Rig::accepted,
            Message::Land { room: Room(1), skip_tokens: 3 },
            "rest of the tokens to skip after whole pages is 3, expected 0",
        ),
        (
            Rig::wanted,
            Message::Land { room: Room(1), skip_tokens: 4 },
            "number of tokens to skip is 4, expected 0",
        ),
        (
            Rig::wanted,
            Message::Received { room: Room(1) },
            "received came while the transfer was wanted",
        ),
        (
            Rig::accepted,
            Message::Again { room: Room(1), frame: 0, broken: 1 },
            "again came while the transfer was accepted",
        ),
        (
            Rig::sent,
            Message::Again { room: Room(1), frame: 3, broken: 1 },
            "frame to send again 3 is not within 0..3",
        ),
        (
            Rig::sent,
            Message::Again { room: Room(1), frame: 2, broken: 3 },
            "times a frame came broken 3 is not within 1..3",
        ),
    ];
    for (prepare, lie, expected) in lies {
        let mut rig = Rig::new(Limits::default());
        prepare(&mut rig);
        rig.outputs();
        rig.hear(lie);
        let outputs = rig.outputs();
        let Output::Violated(_, _, violation) = &outputs[0] else { panic!("{outputs:?}") };
        assert_eq!(violation.to_string(), expected);
        assert_eq!(news(&outputs), [News::Failed(Failure::Protocol), News::Settled]);
    }
    let mut rig = Rig::new(Limits::default());
    rig.hear(Message::Started { room: Room(1) });
    let outputs = rig.outputs();
    let Output::Violated(_, _, violation) = &outputs[0] else { panic!("{outputs:?}") };
    assert_eq!(violation.to_string(), "started is not for this side");
}

#[test]
fn time_limits() {
    let quiet = Limits { silent_beats: u32::MAX, ..Limits::default() };
    let mut rig = Rig::new(quiet);
    rig.accepted();
    rig.now = rig.now + SECOND * 300;
    rig.end.tick(rig.now);
    assert_eq!(rig.result(), Err(Failure::BootstrapTimeout));
    let mut rig = Rig::new(quiet);
    let key = rig.wanted();
    // Waiting and computing are the engine's business.
    rig.now = rig.now + SECOND * 10_000;
    rig.end.tick(rig.now);
    rig.chunk(key, None);
    let job = rig.end.next_frame(rig.now, rig.peer).unwrap();
    rig.now = rig.now + SECOND * 300;
    rig.end.tick(rig.now);
    assert_eq!(rig.result(), Err(Failure::WaitingTimeout), "the peer takes nothing");
    assert!(!news(&rig.outputs()).contains(&News::Settled));
    rig.end.frame_ends(rig.now, job, false);
    let mut rig = Rig::new(quiet);
    rig.sent();
    rig.now = rig.now + SECOND * 300;
    rig.end.tick(rig.now);
    assert_eq!(rig.result(), Err(Failure::WaitingTimeout), "the peer confirms nothing");
}

#[test]
fn a_pass_that_fails_fails_its_transfer() {
    let mut rig = Rig::new(Limits::default());
    let key = rig.wanted();
    let progress = LayerProgress::new(1, LAYERS);
    rig.chunk(key, Some(progress.clone()));
    rig.outputs();
    progress.fail();
    assert_eq!(rig.write(), 0);
    let outputs = rig.outputs();
    assert_eq!(news(&outputs), [News::Failed(Failure::Internal), News::Settled]);
    let (room, failure) = (key.room, Failure::Internal);
    assert!(outputs.contains(&Output::Control(rig.peer, Message::Ended { room, failure })));
}

#[test]
fn a_lost_peer_costs_its_own_transfers() {
    let mut rig = Rig::new(Limits::default());
    rig.wanted();
    let lost = rig.peer;
    rig.peer = rig.end.connected(rig.now, PeerName::new("d:1"));
    rig.offer(2);
    // Only one of the two answers.
    for _ in 0..6 {
        rig.now = rig.now + SECOND;
        rig.end.tick(rig.now);
        rig.hear(Message::Pong { number: 1 });
    }
    let outputs = rig.outputs();
    assert!(outputs.contains(&Output::Lost(lost, Failure::PeerGone)));
    assert_eq!(news(&outputs), [News::Failed(Failure::PeerGone), News::Settled]);
    assert_eq!(rig.end.rooms(), 2, "the other, and the one that the engine still has");
}
