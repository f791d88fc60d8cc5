//! Who loses a place to whom, and what that frees; also with many threads at the front door.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use super::*;
use crate::Evicted;

const NOW: Time = Time(1_000_000_000);

fn level(level: i64) -> Priority {
    Priority::new(level).expect("a level of a test")
}

fn controller(requests: usize, tokens: u64) -> Arc<AdmissionController> {
    let limits = Limits {
        max_queued_requests: requests,
        max_queued_tokens: Some(tokens),
        ttft_objective: Duration::ZERO,
    };
    AdmissionController::new(limits, 10.0)
}

fn admit(
    controller: &Arc<AdmissionController>,
    at: i64,
    tokens: u64,
) -> Result<QueuePermit, Rejected> {
    controller.try_admit(level(at), NOW)?.charge(tokens, NOW)
}

fn is_evicted(permit: &QueuePermit) -> bool {
    permit.evicted().is_some_and(|refusal| refusal.reason == RejectReason::PriorityEvicted)
}

#[test]
fn the_newest_of_the_worst_goes_and_everything_of_it_is_free_at_once() {
    let controller = controller(3, 0);
    let old = admit(&controller, 0, 100).expect("room");
    let new = admit(&controller, 0, 200).expect("room");
    let better = admit(&controller, 1, 300).expect("room");
    assert!(admit(&controller, 0, 5).is_err(), "an equal is not strictly better");
    let best = admit(&controller, 2, 400).expect("the newest of the worst makes room");
    assert_eq!([&old, &new, &better].map(is_evicted), [false, true, false]);
    let snapshot = controller.snapshot(NOW);
    assert_eq!((snapshot.requests, snapshot.pending_tokens), (3, 800));
    let Evicted { permit, refusal } = new.start(NOW).expect_err("it cannot start any more");
    assert_eq!(refusal.reason, RejectReason::PriorityEvicted);
    assert!(refusal.retry_after >= Duration::from_secs(1));
    drop(permit);
    let mut ranks = Vec::new();
    controller.evicted(&mut ranks);
    assert!(ranks.is_empty(), "forgotten with its permit");
    assert_eq!(controller.snapshot(NOW).requests, 3);
    drop((old, better, best));
    assert_eq!(controller.snapshot(NOW).pending_tokens, 0);
}

#[test]
fn tokens_are_made_room_for_by_as_many_as_it_takes_or_by_nobody() {
    let controller = controller(0, 1000);
    let held: Vec<_> = (0..4).map(|_| admit(&controller, 0, 250).expect("room")).collect();
    // Without all of them it would fit; but the oldest has started.
    let mut held = held.into_iter();
    let debt = held.next().expect("four").start(NOW).expect("not evicted");
    let held: Vec<_> = held.collect();
    let refusal = admit(&controller, 5, 800).expect_err("50 tokens too many");
    assert_eq!(refusal.reason, RejectReason::QueueTokensFull);
    assert!(!held.iter().any(is_evicted), "nobody goes where that is not enough");
    let better = admit(&controller, 5, 500).expect("two of three make room");
    assert_eq!(held.iter().map(is_evicted).collect::<Vec<_>>(), [false, true, true]);
    assert_eq!(controller.snapshot(NOW).pending_uncached_tokens, 1000);
    drop((debt, better));
}

#[test]
fn a_family_is_evicted_whole_and_not_once_one_of_it_has_started() {
    let controller = controller(4, 0);
    let mut family = controller.try_admit_family(level(0), 3, NOW).expect("room");
    let single = controller.try_admit(level(0), NOW).expect("room");
    let started = family.remove(1).start(NOW).expect("not evicted");
    let _fourth = controller.try_admit(level(0), NOW).expect("one has left");
    let _fifth = controller.try_admit(level(9), NOW).expect("a single makes room");
    let _sixth = controller.try_admit(level(9), NOW).expect("the other single too");
    assert!(is_evicted(&single));
    assert!(!family.iter().any(is_evicted), "it has to run");
    assert!(controller.try_admit(level(9), NOW).is_err());
    drop((family, started));
    let family = controller.try_admit_family(level(-1), 2, NOW).expect("room");
    let _seventh = controller.try_admit(level(9), NOW).expect("the family makes room");
    assert!(family.iter().all(is_evicted));
    assert_eq!(controller.snapshot(NOW).requests, 3);
    let none = controller.try_admit_family(level(9), 4, NOW).map(|permits| permits.len());
    assert!(none.is_err(), "all or none");
    assert_eq!(controller.snapshot(NOW).requests, 3);
}

#[test]
fn an_open_slot_is_a_place_beyond_the_bound() {
    let controller = controller(2, 0);
    controller.set_open_slots(3);
    let mut held: Vec<_> =
        (0..5).map(|_| controller.try_admit(level(0), NOW).expect("two places, 3 slots")).collect();
    assert!(controller.try_admit(level(0), NOW).is_err());
    // A start takes a place and a slot along: nothing opens by it.
    let debt = held.pop().expect("five").start(NOW).expect("not evicted");
    assert!(controller.try_admit(level(0), NOW).is_err());
    assert_eq!(controller.snapshot(NOW).requests, 4);
    // The engine does not open slots while anybody waits.
    controller.set_open_slots(0);
    held.truncate(2);
    assert!(controller.try_admit(level(0), NOW).is_err());
    held.pop();
    assert!(controller.try_admit(level(0), NOW).is_ok());
    drop(debt);
}

#[test]
fn one_that_expires_gives_its_place_up_unless_its_family_runs() {
    let (controller, limit) = (controller(0, 0), Duration::from_secs(5));
    let mut permit = admit(&controller, 0, 7).expect("free");
    let later = NOW + Duration::from_millis(5200);
    let refusal = permit.expire(limit, later).expect("alone");
    assert_eq!((refusal.reason, refusal.value), (RejectReason::QueueTimeout, 5200));
    assert_eq!(controller.snapshot(later).requests, 0);
    assert!(permit.start(later).is_err());
    let mut family = controller.try_admit_family(level(0), 2, NOW).expect("free");
    let first = family.remove(0).start(NOW);
    assert!(family[0].expire(limit, later).is_none());
    assert!(first.is_ok() && family.remove(0).start(later).is_ok());
}

/// More ahead never means to come back sooner.
#[test]
fn the_time_to_come_back_grows_with_what_is_ahead() {
    let second = |seconds: u64| Time(seconds * 1_000_000_000);
    let told = |waiting: usize, tokens: u64, passed: u64| {
        let controller = controller(4, 4000);
        controller.set_open_slots(waiting);
        let admit = |at| controller.try_admit(level(0), at).expect("room");
        let mut held: Vec<_> = (0..waiting).map(|_| admit(second(0))).collect();
        for turn in 1..=10 {
            controller.set_open_slots(waiting + 1);
            drop(held.remove(0).start(second(7 * turn)));
            held.push(admit(second(7 * turn)));
        }
        controller.set_open_slots(0);
        let ahead = held.pop().expect("one at least").charge(tokens, second(70));
        let now = second(70 + passed);
        let by_count = controller.try_admit(level(0), now).map(|permit| permit.charge(10, now));
        let refusal = match by_count {
            Ok(Ok(_)) => Duration::ZERO,
            Ok(Err(refusal)) | Err(refusal) => refusal.retry_after,
        };
        drop((ahead, held));
        refusal
    };
    for passed in [0, 3, 6, 7, 9, 20, 60] {
        let by_count: Vec<_> = (4..12).map(|waiting| told(waiting, 10, passed)).collect();
        assert!(by_count.is_sorted(), "{passed} s after a start: {by_count:?}");
        assert!(by_count[0] < by_count[7]);
        let by_tokens: Vec<_> = (1..8).map(|k| told(1, 1000 * k, passed)).collect();
        assert!(by_tokens.is_sorted(), "{passed} s after a start: {by_tokens:?}");
    }
    // A head that is overdue by a minute is not told to come back in a second.
    assert!(told(4, 10, 67) >= Duration::from_secs(60), "{:?}", told(4, 10, 67));
}

/// Threads at the front door against one that starts requests in the order of rank: each request
/// starts or is evicted, never both, and the depth is the places that are taken.
#[test]
fn a_request_that_starts_is_never_evicted_whatever_races() {
    let controller = controller(16, 0);
    let (sender, permits) = channel::<QueuePermit>();
    let done = AtomicBool::new(false);
    let count = std::thread::scope(|threads| {
        let (controller, done) = (&controller, &done);
        let doors: Vec<_> = (0..4_u64)
            .map(|door| {
                let sender = sender.clone();
                threads.spawn(move || {
                    let mut admitted = 0_u64;
                    for turn in 0..3000_u64 {
                        let mixed = (turn * 4 + door).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
                        let at = level((mixed % 201).cast_signed() - 100);
                        let permit = controller.try_admit(at, Time(turn));
                        let charged = permit.and_then(|permit| permit.charge(5, Time(turn)));
                        if let Ok(permit) = charged {
                            admitted += 1;
                            sender.send(permit).expect("the engine listens");
                        }
                        assert!(controller.snapshot(NOW).requests <= 16);
                    }
                    admitted
                })
            })
            .collect();
        let engine = threads.spawn(move || {
            let (mut waiting, mut started, mut evicted) = (Vec::new(), 0_u64, 0_u64);
            let mut debts = Vec::new();
            loop {
                let last = done.load(Ordering::Acquire);
                waiting.extend(permits.try_iter());
                waiting.sort_by_key(|permit: &QueuePermit| std::cmp::Reverse(permit.rank()));
                match waiting.pop().map(|permit| permit.start(NOW)) {
                    Some(Ok(debt)) => {
                        assert_eq!(debt.rest(), 5);
                        started += 1;
                        debts.push(debt);
                    }
                    Some(Err(Evicted { refusal, .. })) => {
                        assert_eq!(refusal.reason, RejectReason::PriorityEvicted);
                        evicted += 1;
                    }
                    None if last => return (started, evicted, debts.len() as u64),
                    None => std::thread::yield_now(),
                }
            }
        });
        let admitted: u64 = doors.into_iter().map(|door| door.join().expect("no panic")).sum();
        done.store(true, Ordering::Release);
        let (started, evicted, debts) = engine.join().expect("no panic");
        assert_eq!(started + evicted, admitted);
        assert_eq!(debts, started);
        (started, evicted)
    });
    assert!(count.0 > 0 && count.1 > 0, "{count:?} started and evicted");
    let snapshot = controller.snapshot(NOW);
    assert_eq!((snapshot.requests, snapshot.pending_tokens), (0, 0));
}
