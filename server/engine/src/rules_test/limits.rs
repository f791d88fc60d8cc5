//! Evictions and time limits, as a request that waits or runs feels them.

use std::time::Duration;

use admission::RejectReason;

use super::rig::{Job, Rig, bounds};
use crate::{Abort, AbortReason, Outcome, Scheduling, Stage};

/// No priority preemption, so that slots stay taken.
const CALM: Scheduling = Scheduling {
    preemption_threshold: 0,
    fair_share: false,
    queue_timeout: None,
    request_timeout: None,
};

fn reason(outcome: &Outcome) -> Option<RejectReason> {
    match outcome {
        Outcome::Rejected(refusal) => Some(refusal.reason),
        Outcome::Stop | Outcome::Length | Outcome::Aborted(_) | Outcome::Error(_) => None,
    }
}

#[test]
fn a_better_newcomer_takes_the_place_of_the_newest_of_the_worst() {
    let mut rig = Rig::with_queue(bounds(1, CALM), 3);
    let runs = rig.submit(&Job::plain(10, 2000));
    rig.turn();
    let kept = [rig.submit(&Job::plain(10, 5)), rig.submit(&Job::at(2, 10, 5))];
    rig.turn();
    let evicted = rig.submit(&Job::plain(10, 5));
    let refusal = rig.try_submit(&Job::plain(10, 5)).expect_err("an equal evicts nobody");
    assert_eq!(refusal.reason, RejectReason::QueueRequestsFull);
    let newcomer = rig.submit(&Job::at(1, 10, 5));
    let queue = rig.admission.snapshot(rig.time.read());
    assert_eq!((queue.requests, queue.pending_tokens), (3, 30), "free at once");
    rig.turn();
    let end = rig.end_of(evicted);
    assert_eq!(reason(&end.outcome), Some(RejectReason::PriorityEvicted));
    assert_eq!((end.generated_tokens, end.timings.scheduled), (0, None));
    rig.finish();
    for id in [runs, kept[0], kept[1], newcomer] {
        assert_eq!(rig.end_of(id).outcome, Outcome::Length);
    }
}

#[test]
fn an_aged_request_is_safe() {
    let mut rig = Rig::with_queue(bounds(1, CALM), 1);
    rig.submit(&Job::plain(10, 4000));
    rig.turn();
    let waits = rig.submit(&Job::plain(10, 5));
    rig.run_until(Duration::from_secs(11));
    assert!(rig.try_submit(&Job::at(1, 10, 5)).is_err(), "it is as good as priority 1 by now");
    rig.submit(&Job::at(2, 10, 5));
    rig.turn();
    assert_eq!(reason(&rig.end_of(waits).outcome), Some(RejectReason::PriorityEvicted));
    rig.finish();
}

#[test]
fn who_waits_too_long_is_refused_and_who_runs_is_not() {
    let scheduling = Scheduling { queue_timeout: Some(Duration::from_secs(5)), ..CALM };
    let mut rig = Rig::new(bounds(1, scheduling));
    let runs = rig.submit(&Job::plain(10, 3000));
    rig.turn();
    let early = rig.submit(&Job::plain(10, 5));
    rig.run_until(Duration::from_secs(3));
    let late = rig.submit(&Job::plain(10, 5));
    rig.run_until(Duration::from_millis(4900));
    assert_eq!(rig.core.scheduler.waiting.len(), 2);
    rig.run_until(Duration::from_millis(5100));
    let Outcome::Rejected(refusal) = rig.end_of(early).outcome else { panic!("not refused") };
    assert_eq!((refusal.reason, refusal.limit), (RejectReason::QueueTimeout, 5000));
    assert!((5000..5100).contains(&refusal.value), "{refusal:?}");
    assert!(refusal.retry_after >= Duration::from_secs(1));
    assert_eq!(rig.core.scheduler.waiting.len(), 1);
    rig.finish();
    assert_eq!(reason(&rig.end_of(late).outcome), Some(RejectReason::QueueTimeout));
    assert_eq!(rig.end_of(runs).outcome, Outcome::Length, "9 s of running are no waiting");
}

#[test]
fn a_limit_on_waiting_that_comes_later_holds_for_those_that_wait() {
    let mut rig = Rig::new(bounds(1, CALM));
    rig.submit(&Job::plain(10, 3000));
    rig.turn();
    let waits = rig.submit(&Job::plain(10, 5));
    rig.run_until(Duration::from_secs(6));
    assert_eq!(rig.core.scheduler.waiting.len(), 1, "no limit");
    rig.core.shared.set_queue_timeout(Some(Duration::from_secs(5)));
    rig.turn();
    let Outcome::Rejected(refusal) = rig.end_of(waits).outcome else { panic!("not refused") };
    assert_eq!((refusal.reason, refusal.limit), (RejectReason::QueueTimeout, 5000));
    let later = rig.submit(&Job::plain(10, 5));
    rig.core.shared.set_queue_timeout(None);
    rig.finish();
    assert_eq!(rig.end_of(later).outcome, Outcome::Length, "no limit again");
}

#[test]
fn the_running_timeout_counts_the_time_in_the_batch() {
    let scheduling = Scheduling {
        preemption_threshold: 10,
        request_timeout: Some(Duration::from_secs(5)),
        ..CALM
    };
    let mut rig = Rig::new(bounds(1, scheduling));
    let long = rig.submit(&Job::plain(10, 4000));
    rig.run_until(Duration::from_secs(2));
    let better = rig.submit(&Job::at(50, 10, 1400));
    rig.turn();
    assert!(rig.is_retracted(long) && rig.runs(better));
    rig.run_until(Duration::from_secs(6));
    assert!(rig.is_retracted(long), "its time stands still while it is retracted");
    rig.finish();
    let end = rig.end_of(long);
    let abort = Abort { stage: Stage::Decode, reason: AbortReason::RunningTimeout };
    assert_eq!((end.outcome, end.preemptions), (Outcome::Aborted(abort), 1));
    let resumed = rig.end_of(better).timings.ended;
    let rest = end.timings.ended.since(resumed);
    assert!((2900..3100).contains(&rest.as_millis()), "{rest:?} after it resumed");
    assert_eq!(rig.end_of(better).outcome, Outcome::Length, "4.3 s");
}
