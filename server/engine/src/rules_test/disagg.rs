//! Prompts that are computed elsewhere and for somebody else: who gets pages, who may overtake, and
//! what giving up costs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use transfer::{Chunk, Failure, LandPages, Landing, News, Sending};
use types::RequestId;

use super::rig::{Job, Rig, bounds};
use crate::disagg::PATIENCE;
use crate::step::Turn;
use crate::{
    Abort, AbortReason, EngineConfig, HeldSnapshot, Outcome, QueueSnapshot, RequestError,
    Scheduling, Stage,
};

/// Takes down what a link is told.
#[derive(Debug, Clone, Default)]
struct Link(Arc<Mutex<Told>>);

#[derive(Debug, Default)]
struct Told {
    landed: bool,
    chunks: usize,
    abandoned: Option<Failure>,
}

impl Landing for Link {
    fn land(&mut self, _: usize, _: usize, _: Vec<LandPages>) {
        self.0.lock().expect("one thread").landed = true;
    }

    fn abandon(&mut self, why: Failure) {
        self.0.lock().expect("one thread").abandoned = Some(why);
    }
}

impl Sending for Link {
    fn chunk(&mut self, _: Chunk) {
        self.0.lock().expect("one thread").chunks += 1;
    }

    fn abandon(&mut self, why: Failure) {
        self.0.lock().expect("one thread").abandoned = Some(why);
    }
}

impl Link {
    fn has_landed(&self) -> bool {
        self.0.lock().expect("one thread").landed
    }

    fn abandoned(&self) -> Option<Failure> {
        self.0.lock().expect("one thread").abandoned
    }
}

impl Rig {
    fn remote(&mut self, prompt: usize, answer: usize) -> (RequestId, Link) {
        let link = Link::default();
        let own = Some(Box::new(link.clone()) as _);
        let id = self.try_submit_linked(&Job::plain(prompt, answer), own, None);
        (id.expect("there is room"), link)
    }

    fn send(&mut self, prompt: usize) -> (RequestId, Link) {
        let link = Link::default();
        let own = Some(Box::new(link.clone()) as _);
        let id = self.try_submit_linked(&Job::plain(prompt, 0), None, own);
        (id.expect("there is room"), link)
    }

    /// Nothing is left of anybody.
    fn is_empty(&self) {
        let snapshot = self.handle.snapshot();
        let lines = [snapshot.bootstrap, snapshot.inflight_send, snapshot.prealloc];
        let lines = lines.iter().chain([&snapshot.transfer, &snapshot.landed]);
        assert!(lines.clone().all(|line| *line == QueueSnapshot::default()), "{snapshot:?}");
        assert_eq!(snapshot.held, HeldSnapshot::default());
        assert_eq!((snapshot.running, snapshot.waiting, snapshot.retracted.requests), (0, 0, 0));
        assert!(snapshot.pools.iter().all(|pool| pool.device.used_active.0 == 0), "{snapshot:?}");
        let queue = self.admission.snapshot(self.time.read());
        assert_eq!((queue.requests, queue.pending_tokens), (0, 0));
    }
}

/// Pages for 20 x 16 tokens, of which a local request takes 13 and will take more.
fn crowded() -> (Rig, RequestId) {
    let config = EngineConfig { pool_pages: vec![20], ..bounds(8, Scheduling::default()) };
    let mut rig = Rig::new(config);
    let hog = rig.submit(&Job::plain(200, 100));
    while rig.log().firsts.is_empty() {
        rig.turn();
    }
    (rig, hog)
}

#[test]
fn a_prompt_that_does_not_fit_is_overtaken_until_it_has_waited_for_long() {
    let (mut rig, hog) = crowded();
    let (_, large) = rig.remote(160, 5);
    let (first, small) = rig.remote(20, 5);
    rig.turn();
    assert!(!large.has_landed() && small.has_landed(), "looked past the one that does not fit");
    let local = rig.submit(&Job::plain(5, 1));
    rig.turn();
    assert!(rig.log().starts.iter().any(|(id, _)| *id == local), "so may local ones");
    // From here on nobody takes a page that it waits for.
    rig.time.pass(PATIENCE);
    let (_, late) = rig.remote(20, 5);
    rig.turn();
    let local = rig.submit(&Job::plain(5, 1));
    rig.turn();
    assert!(!late.has_landed() && !rig.runs(local), "nobody overtakes any more");
    rig.handle.abort(hog, AbortReason::ClientGone);
    rig.turn();
    assert!(large.has_landed() && late.has_landed(), "there is room for both");
    rig.turn();
    assert!(rig.log().starts.iter().any(|(id, _)| *id == local));
    rig.handle.abort(first, AbortReason::ClientGone);
    rig.turn();
    let expected =
        Outcome::Aborted(Abort { stage: Stage::Transfer, reason: AbortReason::ClientGone });
    assert_eq!(rig.end_of(first).outcome, expected);
    assert_eq!(small.abandoned(), Some(Failure::LocalAbort));
    let held = rig.handle.snapshot().held;
    assert_eq!((held.requests, held.pages), (1, 2), "until the link has let go");
    rig.handle.news(first, News::Settled);
    rig.turn();
    assert_eq!(rig.handle.snapshot().held, HeldSnapshot::default());
}

/// Pages of a prompt that others compute are charged to its tenant, which passes the turn to start
/// on to another tenant's request: the engine does not sleep over that.
#[test]
fn a_landing_that_passes_the_turn_to_another_tenant_is_followed_by_a_step() {
    let fair = Scheduling { fair_share: true, ..Scheduling::default() };
    let mut rig = Rig::new(EngineConfig { pool_pages: vec![20], ..bounds(8, fair) });
    let (_, hog) = rig.remote(200, 5);
    rig.turn();
    assert!(hog.has_landed());
    let of = |tenant, prompt| Job { tenant: Some(tenant), ..Job::plain(prompt, 1) };
    let link = Link::default();
    let small = rig.try_submit_linked(&of("a", 20), Some(Box::new(link.clone())), None);
    small.expect("there is room");
    let large = rig.submit(&of("a", 160));
    let other = rig.submit(&of("b", 5));
    assert_eq!(rig.turn(), Turn::Idle, "it is the turn of one that does not fit");
    assert!(link.has_landed() && !rig.core.is_idle());
    assert_eq!(rig.turn(), Turn::Worked);
    assert_eq!(rig.end_of(other).outcome, Outcome::Length);
    assert!(!rig.runs(large));
    assert_eq!(rig.turn(), Turn::Idle);
    assert!(rig.core.is_idle(), "and sleeps where nothing can start");
}

/// One that waits to start keeps pages from worse ones that wait for theirs, while it waits.
#[test]
fn who_was_kept_from_pages_gets_them_once_that_one_has_gone() {
    let (mut rig, _) = crowded();
    let large = rig.submit(&Job::plain(160, 5));
    let (_, small) = rig.remote(20, 5);
    rig.turn();
    assert!(!small.has_landed(), "the large one is better");
    rig.handle.abort(large, AbortReason::ClientGone);
    rig.turn();
    assert!(small.has_landed(), "though no page has come back");
}

#[test]
fn a_transfer_that_fails_ends_its_request_with_the_reason_and_keeps_its_pages() {
    let (mut rig, _) = crowded();
    let (id, _link) = rig.remote(20, 5);
    rig.turn();
    rig.handle.news(id, News::Started);
    rig.handle.news(id, News::Failed(Failure::Checksum));
    rig.turn();
    let expected = Outcome::Error(RequestError::Transfer(Failure::Checksum));
    assert_eq!(rig.end_of(id).outcome, expected);
    assert_eq!(rig.handle.snapshot().held.requests, 1);
    rig.handle.news(id, News::Settled);
    // What comes later means nothing.
    rig.handle.news(id, News::Failed(Failure::PeerGone));
    rig.turn();
    assert_eq!(rig.handle.snapshot().held.requests, 0);
}

/// As when a decode worker dies: its clients' prompts wait, are computed, and are on the wire.
#[test]
fn when_200_are_given_up_not_one_token_more_is_computed_for_them() {
    let mut rig = Rig::new(bounds(8, Scheduling::default()));
    let sent: Vec<_> = (0..200).map(|_| rig.send(1000)).collect();
    rig.turn();
    assert_eq!(rig.handle.snapshot().bootstrap.requests, 200);
    assert_eq!(rig.handle.snapshot().bootstrap.pending_tokens, 200_000);
    // Half of them have pages; the first are computed, and one is complete.
    for (id, _) in &sent[..100] {
        rig.handle.news(*id, News::Wanted { skip_tokens: 0 });
    }
    while rig.handle.snapshot().inflight_send.requests == 0 {
        rig.turn();
    }
    let snapshot = rig.handle.snapshot();
    assert!(snapshot.running > 0 && snapshot.waiting > 0 && snapshot.bootstrap.requests == 100);
    let before = rig.log().computed;
    for (number, (id, _)) in sent.iter().enumerate() {
        if number % 2 == 0 {
            rig.handle.news(*id, News::Failed(Failure::PeerAbort));
        } else {
            rig.handle.abort(*id, AbortReason::ClientGone);
        }
    }
    rig.turn();
    rig.turn();
    assert_eq!(rig.log().computed, before, "computed for nobody");
    let held = rig.handle.snapshot().held;
    assert!(held.requests > 0 && held.pages > 0 && held.bytes > 0, "{held:?}");
    for (number, (id, link)) in sent.iter().enumerate() {
        let peer = number % 2 == 0;
        let Outcome::Aborted(abort) = rig.end_of(*id).outcome else { panic!("{number}") };
        let reason = if peer { AbortReason::PeerAbort } else { AbortReason::ClientGone };
        assert_eq!(abort.reason, reason);
        assert_eq!(link.abandoned(), (!peer).then_some(Failure::LocalAbort));
        rig.handle.news(*id, News::Settled);
    }
    rig.turn();
    rig.is_empty();
}

#[test]
fn a_computed_prompt_gives_up_its_slot_and_ends_when_it_is_delivered() {
    let mut rig = Rig::new(bounds(1, Scheduling::default()));
    let (id, link) = rig.send(60);
    rig.turn();
    rig.handle.news(id, News::Wanted { skip_tokens: 32 });
    rig.turn();
    let snapshot = rig.handle.snapshot();
    assert_eq!((snapshot.running, snapshot.inflight_send.requests), (0, 1));
    assert_eq!(link.0.lock().expect("one thread").chunks, 1);
    let next = rig.submit(&Job::plain(5, 1));
    rig.turn();
    assert_eq!(rig.end_of(next).outcome, Outcome::Length, "its slot is free");
    rig.time.pass(Duration::from_secs(3));
    rig.handle.news(id, News::Delivered);
    rig.turn();
    assert_eq!(rig.end_of(id).outcome, Outcome::Length);
    rig.is_empty();
}
