//! Events in, counters out; a queue that is full.

use super::*;

fn options() -> CurveOptions {
    CurveOptions {
        page_tokens: 4,
        device_pages: 100,
        window: None,
        ratios: vec![2.0],
        computes_last_token: true,
        max_pages: 1000,
    }
}

impl Estimator {
    /// Waits until everything told so far is in the curve.
    pub(crate) fn settled(&self) -> CurveSnapshot {
        let (answer, done) = sync_channel(1);
        self.events.send(Event::Ask(answer)).expect("the thread lives as long as this");
        done.recv().expect("it answers");
        self.snapshot()
    }
}

fn tokens(first: u32, count: u32) -> Vec<TokenId> {
    (first..first + count).map(TokenId).collect()
}

#[test]
fn a_prompt_and_its_answer_are_found_by_the_next_turn() {
    let estimator = Estimator::start(options()).expect("a thread");
    let shared = Namespace::SHARED;
    let first = estimator.follow(&shared, &tokens(0, 9));
    first.looked_up(9);
    first.published(9);
    // The answer fills the third page; the last token of an answer is never computed.
    first.ended(shared.clone(), tokens(0, 13), 12);
    let second = estimator.follow(&shared, &tokens(0, 14));
    second.looked_up(14);
    let seen = estimator.settled();
    assert_eq!((seen.requests, seen.lookup_tokens, seen.cold_tokens), (2, 23, 8));
    let hits: Vec<_> = seen.candidates.iter().map(|c| (c.ratio, c.hit_tokens)).collect();
    assert_eq!(hits, [(0.0, 12), (2.0, 12)]);
    assert_eq!((seen.tracked_pages, seen.dropped, seen.flushes), (3, 0, 0));
    assert!(seen.cpu > Duration::ZERO);
    second.flushed();
    second.looked_up(14);
    let seen = estimator.settled();
    assert_eq!((seen.flushes, seen.candidates[0].hit_tokens), (1, 12), "nothing is left to find");
}

#[test]
fn what_was_not_computed_is_not_found() {
    let estimator = Estimator::start(options()).expect("a thread");
    let [one, other] = [Namespace::SHARED, Namespace::new(None, Some("salt"))];
    let gone = estimator.follow(&one, &tokens(0, 20));
    gone.looked_up(20);
    gone.ended(one.clone(), tokens(0, 20), 8);
    for namespace in [&one, &other] {
        estimator.follow(namespace, &tokens(0, 20)).looked_up(20);
    }
    let seen = estimator.settled();
    assert_eq!(seen.candidates[0].hit_tokens, 8, "two pages, and none for the other namespace");
}

#[test]
fn events_that_find_the_queue_full_are_counted_and_nobody_waits() {
    let estimator = Estimator::with_queue(options(), 2).expect("a thread");
    let held = Arc::clone(&estimator.shared);
    let curve = held.curve();
    let follower = estimator.follow(&Namespace::SHARED, &tokens(0, 8));
    // The thread takes at most one event before it finds the curve held.
    for _ in 0..10 {
        follower.looked_up(8);
    }
    drop(curve);
    let seen = estimator.settled();
    assert!((7..=8).contains(&seen.dropped), "{}", seen.dropped);
    assert_eq!(seen.requests + seen.dropped, 10);
}
