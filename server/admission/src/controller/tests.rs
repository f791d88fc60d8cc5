//! Each bound, each reason and each `Retry-After`, one by one.

use super::*;

const NOW: Time = Time(1_000_000_000);

fn limits(requests: usize, tokens: Option<u64>, objective_seconds: u64) -> Limits {
    Limits {
        max_queued_requests: requests,
        max_queued_tokens: tokens,
        ttft_objective: Duration::from_secs(objective_seconds),
    }
}

fn charged(controller: &Arc<AdmissionController>, tokens: u64) -> Result<QueuePermit, Rejected> {
    controller.try_admit(Priority::NORMAL, NOW)?.charge(tokens, NOW)
}

#[test]
fn the_count_is_bounded_and_a_dropped_permit_makes_room() {
    let controller = AdmissionController::new(limits(2, Some(0), 0), 1.0);
    let first = controller.try_admit(Priority::NORMAL, NOW).expect("room");
    let _second = controller.try_admit(Priority::NORMAL, NOW).expect("room");
    let refusal = controller.try_admit(Priority::NORMAL, NOW).expect_err("full");
    assert_eq!(refusal.reason, RejectReason::QueueRequestsFull);
    assert_eq!((refusal.value, refusal.limit), (2, 2));
    drop(first);
    let _third = controller.try_admit(Priority::NORMAL, NOW).expect("room again");
    assert_eq!(controller.snapshot(NOW).requests, 2);
}

#[test]
fn the_incident_is_refused_at_the_objective_with_a_truthful_delay() {
    // 3,300 tokens/s and prompts of 15,000 tokens: 30 s hold six of them, not twenty.
    let controller = AdmissionController::new(limits(32, None, 30), 3300.0);
    let mut held = Vec::new();
    let refusal = loop {
        match charged(&controller, 15_000) {
            Ok(permit) => held.push(permit),
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(held.len(), 6);
    assert_eq!(refusal.reason, RejectReason::DrainTime);
    // 105,000 tokens would wait, 99,000 may: 6,000 tokens take 1.8 s.
    assert_eq!(refusal.retry_after, Duration::from_secs(2));
    let snapshot = controller.snapshot(NOW);
    assert_eq!(snapshot.limit_tokens, 99_000);
    assert_eq!(snapshot.drain.as_secs(), 27);

    let mut debt = held.remove(0).start(NOW).expect("not evicted");
    debt.computed(6_000);
    assert!(charged(&controller, 15_000).is_ok(), "what was promised holds");
}

#[test]
fn a_full_queue_refuses_before_the_prompt_is_tokenised() {
    let controller = AdmissionController::new(limits(0, Some(100), 0), 10.0);
    let _ahead = charged(&controller, 100).expect("an empty queue takes any prompt");
    let refusal = controller.try_admit(Priority::NORMAL, NOW).expect_err("no token fits");
    assert_eq!(refusal.reason, RejectReason::QueueTokensFull);
    assert_eq!((refusal.value, refusal.limit), (101, 100));
    assert_eq!(refusal.retry_after, Duration::from_secs(1));
}

#[test]
fn a_prompt_beyond_the_bound_runs_when_nothing_is_pending_and_only_then() {
    let controller = AdmissionController::new(limits(0, Some(100), 1), 10.0);
    let small = charged(&controller, 50).expect("fits");
    let refusal = charged(&controller, 5000).expect_err("passes the bound");
    assert_eq!(refusal.retry_after, Duration::from_secs(5), "until nothing is pending");
    let mut debt = small.start(NOW).expect("not evicted");
    assert!(charged(&controller, 5000).is_err(), "a started prompt still counts");
    debt.computed(50);
    assert!(charged(&controller, 5000).is_ok());
}

#[test]
fn zero_turns_every_bound_off() {
    let controller = AdmissionController::new(limits(0, Some(0), 0), 1.0);
    let held: Vec<_> = (0..1000).map(|_| charged(&controller, 1 << 40).expect("free")).collect();
    let snapshot = controller.snapshot(NOW);
    assert_eq!((snapshot.limit_requests, snapshot.limit_tokens), (0, 0));
    drop(held);
    assert_eq!(controller.snapshot(NOW).pending_tokens, 0);
    let follows = AdmissionController::new(limits(0, None, 0), 7.0);
    assert_eq!(follows.snapshot(NOW).limit_tokens, 0, "no objective, no derived bound");
}

#[test]
fn states_refuse_new_requests_and_leave_permits_valid() {
    let controller = AdmissionController::new(limits(2, Some(50), 0), 10.0);
    let held = charged(&controller, 25).expect("room");
    controller.set_draining(true);
    let refusal = controller.try_admit(Priority::NORMAL, NOW).expect_err("draining");
    assert_eq!(refusal.reason, RejectReason::Draining);
    assert_eq!(refusal.retry_after, Duration::from_secs(3), "until the pending work is done");
    controller.set_unhealthy(true);
    assert_eq!(
        controller.try_admit(Priority::NORMAL, NOW).expect_err("failed").reason,
        RejectReason::Unhealthy,
        "a failure outweighs a drain"
    );
    assert_eq!(held.start(NOW).expect("not evicted").rest(), 25);
    controller.set_unhealthy(false);
    controller.set_draining(false);
    assert!(controller.try_admit(Priority::NORMAL, NOW).is_ok());
}

#[test]
fn a_queue_that_waits_for_slots_tells_the_time_of_the_next_start() {
    // Prefill is fast, but a request starts only every 20 s, because the running slots are taken.
    let controller = AdmissionController::new(limits(3, Some(0), 0), 1e6);
    let second = |seconds: u64| Time(seconds * 1_000_000_000);
    let mut held: Vec<_> =
        (0..3).map(|_| controller.try_admit(Priority::NORMAL, second(0)).expect("room")).collect();
    for turn in 1..40 {
        drop(held.remove(0).start(second(20 * turn)));
        held.push(
            controller.try_admit(Priority::NORMAL, second(20 * turn)).expect("a place is free"),
        );
    }
    let now = second(20 * 39 + 5);
    let refusal = controller.try_admit(Priority::NORMAL, now).expect_err("full");
    assert_eq!(refusal.retry_after, Duration::from_secs(15));
    // A router that is told so answers the same, although nothing is left to compute.
    let snapshot = controller.snapshot(now);
    assert_eq!((snapshot.next_place.as_secs_f64().round(), snapshot.drain), (15.0, Duration::ZERO));
    // Under lower bounds two must start.
    controller.set_limits(limits(2, Some(0), 0));
    assert_eq!(controller.snapshot(now).next_place.as_secs_f64().round(), 35.0);
    drop(held.split_off(1));
    assert_eq!(controller.snapshot(now).next_place, Duration::ZERO, "there is a place");
}

#[test]
fn cached_tokens_leave_the_bound_at_the_match_and_the_queue_at_the_start() {
    let controller = AdmissionController::new(limits(0, Some(100), 0), 10.0);
    let mut permit = charged(&controller, 80).expect("room");
    permit.refund_cached(60);
    let snapshot = controller.snapshot(NOW);
    assert_eq!((snapshot.pending_tokens, snapshot.pending_uncached_tokens), (80, 20));
    permit.refund_cached(60);
    assert_eq!(controller.snapshot(NOW).pending_uncached_tokens, 0, "never below zero");
    let debt = permit.start(NOW).expect("not evicted");
    assert_eq!(debt.rest(), 0);
    assert_eq!(controller.snapshot(NOW).pending_tokens, 0);
}

#[test]
fn the_oldest_age_is_that_of_the_oldest_live_permit() {
    let controller = AdmissionController::new(limits(0, Some(0), 0), 1.0);
    let old = controller.try_admit(Priority::NORMAL, Time(0)).expect("free");
    let young = controller.try_admit(Priority::NORMAL, Time(700_000_000)).expect("free");
    assert_eq!(controller.snapshot(NOW).oldest_age.as_millis(), 1000);
    drop(old);
    assert_eq!(controller.snapshot(NOW).oldest_age.as_millis(), 300);
    assert_eq!(young.enqueued_at(), Time(700_000_000));
    drop(young);
    assert_eq!(controller.snapshot(NOW).oldest_age, Duration::ZERO);
}

#[test]
fn a_panic_beside_the_lock_does_not_spread() {
    let controller = AdmissionController::new(limits(0, Some(0), 0), 1.0);
    let poisoner = Arc::clone(&controller);
    let panicked = std::thread::spawn(move || {
        let _guard = poisoner.state.lock().expect("not poisoned yet");
        panic!("on purpose");
    })
    .join();
    assert!(panicked.is_err());
    let permit = charged(&controller, 5).expect("still admits");
    drop(permit);
    assert_eq!(controller.snapshot(NOW).pending_tokens, 0);
}

#[test]
fn bounds_can_change_and_nobody_who_waits_is_thrown_out() {
    let controller = AdmissionController::new(limits(3, Some(0), 0), 10.0);
    let held: Vec<_> = (0..3).map(|_| charged(&controller, 50).expect("room")).collect();
    controller.set_limits(limits(2, Some(100), 20));
    assert_eq!(controller.limits(), limits(2, Some(100), 20));
    let snapshot = controller.snapshot(NOW);
    assert_eq!((snapshot.requests, snapshot.pending_uncached_tokens), (3, 150));
    assert_eq!((snapshot.limit_requests, snapshot.limit_tokens), (2, 100));
    let refusal = controller.try_admit(Priority::NORMAL, NOW).expect_err("over the bound");
    assert_eq!((refusal.reason, refusal.limit), (RejectReason::QueueRequestsFull, 2));
    for permit in held {
        permit.start(NOW).expect("its place was kept");
    }
    controller.set_limits(limits(0, None, 1));
    let _ahead = charged(&controller, 500).expect("an empty queue takes any prompt");
    let refusal = charged(&controller, 1).expect_err("10 tokens a second for one second");
    assert_eq!(refusal.reason, RejectReason::DrainTime);
}

#[test]
fn what_steps_take_is_left_of_the_objective() {
    let controller = AdmissionController::new(limits(0, None, 30), 1000.0);
    assert_eq!(controller.snapshot(NOW).limit_tokens, 30_000);
    // The step that runs and the one that ends it: two times 2,000 tokens.
    controller.set_step_tokens(2_000);
    assert_eq!(controller.snapshot(NOW).limit_tokens, 26_000);
    let _ahead = charged(&controller, 16_000).expect("the queue is empty");
    let refusal = charged(&controller, 10_001).expect_err("one token too many");
    assert_eq!((refusal.reason, refusal.limit), (RejectReason::DrainTime, 26_000));
    let _fits = charged(&controller, 10_000).expect("exactly as many as may");
    // Steps longer than the objective leave half of it.
    controller.set_step_tokens(1_000_000);
    assert_eq!(controller.snapshot(NOW).limit_tokens, 15_000);
}
