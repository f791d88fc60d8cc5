//! Refusals at the door, and what is sent again.

use std::time::Duration;

use protocol::internal::{LoadLimits, LoadReport, LoadRole};

use crate::testing::*;
use crate::*;

/// About 15,000 tokens.
fn long() -> Vec<u8> {
    vec![b'x'; 60_000]
}

fn overloaded(refusal: &Refusal) -> (OverloadReason, u64, u64, u64) {
    let Refusal::Overloaded { reason, retry_after, value, limit } = refusal else {
        panic!("{refusal}")
    };
    (*reason, retry_after.as_secs(), *value, *limit)
}

#[test]
fn what_every_worker_would_refuse_is_refused_at_the_door() {
    let mut bed = Bed::unified(&["a:1", "b:1"]);
    bed.tell("a:1", busy(LoadRole::Unified, 10, 104_000));
    bed.tell("b:1", busy(LoadRole::Unified, 8, 98_000));
    let refusal = bed.route(&long()).expect_err("both are full");
    // b: 98,000 + 0.8 * 15,000 tokens, of which 10,000 too many take 3.03 s.
    assert_eq!(overloaded(&refusal), (OverloadReason::QueueTokensFull, 4, 110_000, 100_000));
    let text = refusal.to_string();
    assert!(text.contains("110000 prompt tokens") && text.ends_with("Retry in 4 s."), "{text}");
    // An honest client comes back when it was told to, and gets in.
    bed.pass(4.0);
    bed.tell("a:1", busy(LoadRole::Unified, 10, 104_000 - 13_200));
    bed.tell("b:1", busy(LoadRole::Unified, 8, 98_000 - 13_200));
    assert_eq!(bed.route(&long()).expect("b has room").serve.name, name("b:1"));
}

#[test]
fn one_that_would_refuse_is_not_asked_while_another_would_not() {
    let mut bed = Bed::unified(&["a:1", "b:1"]);
    let slow = LoadReport { prefill_rate: 330.0, ..busy(LoadRole::Unified, 1, 9_000) };
    bed.tell("a:1", slow);
    bed.tell("b:1", busy(LoadRole::Unified, 6, 80_000));
    // a: 27 s of backlog, and 36 s more would pass the objective of 30 s.
    assert_eq!(bed.route(&long()).expect("b takes it").serve.name, name("b:1"));
    assert_eq!(bed.route(b"hi").expect("short").serve.name, name("b:1"), "the shorter backlog");
    let open = Config {
        refuse_at_door: false,
        policy: PolicyKind::LeastPendingTokens,
        ..Config::default()
    };
    bed.core.configure(open);
    assert_eq!(bed.route(&long()).expect("a decides itself").serve.name, name("a:1"));
}

#[test]
fn each_bound_is_named() {
    let told = |requests, tokens, drain_ms| LoadReport {
        limits: LoadLimits { requests, tokens, drain_ms },
        ..busy(LoadRole::Unified, 20, 66_000)
    };
    let refused = |load: LoadReport| {
        let mut bed = Bed::unified(&["a:1"]);
        bed.tell("a:1", load);
        bed.route(&long()).map(drop).map_err(|refusal| overloaded(&refusal))
    };
    assert_eq!(refused(told(0, 0, 0)), Ok(()), "no bounds");
    // 20 s for 20 requests, of which one must go, where the worker does not tell.
    assert_eq!(refused(told(20, 0, 0)), Err((OverloadReason::QueueRequestsFull, 1, 20, 20)));
    let slow = LoadReport { place_ms: Some(24_100), ..told(20, 0, 0) };
    assert_eq!(refused(slow), Err((OverloadReason::QueueRequestsFull, 25, 20, 20)));
    let free_slot = LoadReport { running: 15, ..told(20, 0, 0) };
    assert_eq!(refused(free_slot), Ok(()), "it starts at once");
    // 78,000 tokens at 3,300 a second.
    assert_eq!(refused(told(0, 0, 20_000)), Err((OverloadReason::DrainTime, 4, 23_636, 20_000)));
    let idle = LoadReport { limits: told(0, 1_000, 1_000).limits, ..report(LoadRole::Unified) };
    assert_eq!(refused(idle), Ok(()), "an empty queue takes any prompt");
}

#[test]
fn an_old_report_refuses_nobody() {
    let mut bed = Bed::unified(&["a:1"]);
    bed.tell("a:1", busy(LoadRole::Unified, 10, 99_000));
    assert!(bed.route(&long()).is_err());
    bed.pass(3.1);
    assert!(bed.route(&long()).is_ok(), "nobody knows what has happened since");
}

#[test]
fn prompts_routed_since_the_report_count() {
    let mut bed = Bed::unified(&["a:1"]);
    bed.tell("a:1", busy(LoadRole::Unified, 2, 30_000));
    let mut held = Vec::new();
    // Each in a namespace of its own, so that none is cached.
    let refusal = loop {
        let namespace = held.len().to_string();
        let asked = Request { namespace: &namespace, ..request(&[b'x'; 60_000]) };
        match bed.core.route(&asked, &mut Attempt::new(), bed.now) {
            Ok(route) => held.push(route),
            Err(refusal) => break refusal,
        }
    };
    // 30,000 and 0.8 * 15,000 each: the sixth would pass the bound.
    assert_eq!((held.len(), overloaded(&refusal).2), (5, 102_000));
    held.pop();
    assert!(bed.route(&long()).is_ok());
}

#[test]
fn either_half_of_a_pair_can_be_what_is_full() {
    let mut bed = Bed::pairs(&["p1:1", "p2:1", "d1:1"]);
    bed.tell("p1:1", busy(LoadRole::Prefill, 10, 99_000));
    let route = bed.route(&long()).expect("p2 has room");
    assert_eq!(names(&route).1.as_deref(), Some("p2:1"));
    assert_eq!(bed.view("d1:1").own.pending, 0, "it computes no prompt");
    drop(route);
    bed.tell("p2:1", busy(LoadRole::Prefill, 10, 100_000));
    let (reason, retry, ..) = overloaded(&bed.route(&long()).expect_err("both are full"));
    // p1: 99,000 + 12,000, 11,000 too many; p2 believes to hold most of it now, and is full too.
    assert_eq!((reason, retry), (OverloadReason::QueueTokensFull, 1));
    bed.tell("p1:1", report(LoadRole::Prefill));
    let mut full = busy(LoadRole::Decode, 32, 0);
    full.drain_ms = 64_000;
    bed.tell("d1:1", full);
    let (reason, retry, ..) = overloaded(&bed.route(&long()).expect_err("decode is full"));
    assert_eq!((reason, retry), (OverloadReason::QueueRequestsFull, 2));
}

#[test]
fn a_decode_worker_is_chosen_by_load_then_by_what_it_holds() {
    let mut bed = Bed::pairs(&["p1:1", "d1:1", "d2:1"]);
    let serves = |bed: &mut Bed, prompt: &[u8]| names(&bed.route(prompt).expect("a pair")).0;
    let first = serves(&mut bed, &long());
    let other = if first == "d1:1" { "d2:1" } else { "d1:1" };
    assert!((0..5).all(|_| serves(&mut bed, &long()) == first), "it holds the prompt");
    let taken =
        |running, free_tokens| LoadReport { running, free_tokens, ..report(LoadRole::Decode) };
    // Of 16 slots each.
    bed.tell(&first, taken(9, 1_000_000));
    bed.tell(other, taken(7, 1_000_000));
    assert_eq!(serves(&mut bed, &long()), first, "a quarter more is about as few");
    bed.tell(&first, taken(11, 1_000_000));
    assert_eq!(serves(&mut bed, &long()), other, "this is not");
    let new = vec![b'y'; 60_000];
    assert_eq!(serves(&mut bed, &new), other, "nobody holds it: the least loaded");
    bed.tell(other, taken(7, 10_000));
    assert_eq!(serves(&mut bed, &new), first, "no room for its KV there");
}

#[test]
fn a_refusal_by_prefill_cools_the_prefill_worker() {
    let mut bed = Bed::pairs(&["p1:1", "p2:1", "d1:1"]);
    let by_prefill = Failure { by_prefill: true, ..refusal(5) };
    let mut attempt = Attempt::new();
    let asked = request(b"hi");
    let route = bed.core.route(&asked, &mut attempt, bed.now).expect("ready");
    let first = names(&route).1.expect("a pair");
    let (verdict, _) = bed.core.failed(route, by_prefill, &asked, &mut attempt, bed.now);
    let Verdict::Again(route, RetryReason::Rejected) = verdict else { panic!("{verdict:?}") };
    assert_ne!(names(&route), ("d1:1".to_owned(), Some(first.clone())));
    assert_eq!(bed.view(&first).cooling, Some(Duration::from_secs(5)));
    assert_eq!(bed.view("d1:1").cooling, None);
}

#[test]
fn a_worker_that_refused_a_prompt_does_not_hold_it() {
    let mut bed = Bed::unified(&["a:1"]);
    let taken_back = [refusal(1), failure(FailureKind::Connect)];
    for failed in taken_back {
        bed.fails(&long(), failed);
        bed.pass(1.1);
        assert_eq!(bed.route(&long()).map(|route| route.prefix_match), Ok(0.0), "{failed:?}");
        bed.core.relist(Source::Flags, &[]).expect("few");
        bed.core.relist(Source::Flags, &[spec("a:1", WorkerRole::Unified)]).expect("few");
        bed.tell("a:1", report(LoadRole::Unified));
    }
    bed.fails(&long(), failure(FailureKind::FirstByteTimeout));
    assert!(bed.route(&long()).expect("ready").prefix_match > 0.9, "it may have computed it");
}

#[test]
fn retries_have_a_budget() {
    let mut bed = Bed::unified(&["a:1", "b:1", "c:1"]);
    let mut config = bed.core.config().clone();
    config.retry.budget_share = 0.1;
    config.breaker.failures = u32::MAX;
    bed.core.configure(config);
    let mut retried = 0;
    for _ in 0..1000 {
        let (_, verdict) = bed.fails(b"hi", failure(FailureKind::Status(500)));
        retried += usize::from(next(&verdict).is_some());
    }
    // What was saved up at the start, and a tenth.
    assert!((115..=120).contains(&retried), "{retried}");
    for _ in 0..100 {
        let (_, verdict) = bed.fails(b"hi", failure(FailureKind::Connect));
        assert!(next(&verdict).is_some(), "nobody has done anything for it");
    }
}

#[test]
fn what_may_have_had_effects_is_not_sent_again() {
    let mut bed = Bed::unified(&["a:1", "b:1"]);
    let mut sent_again = |kind| {
        let mut attempt = Attempt::new();
        let asked = Request { repeatable: false, ..request(b"hi") };
        let route = bed.core.route(&asked, &mut attempt, bed.now).expect("ready");
        let (verdict, _) = bed.core.failed(route, failure(kind), &asked, &mut attempt, bed.now);
        next(&verdict).is_some()
    };
    assert!(sent_again(FailureKind::Connect), "nothing was sent");
    assert!(!sent_again(FailureKind::Broken));
    assert!(!sent_again(FailureKind::FirstByteTimeout));
    assert!(!sent_again(FailureKind::Status(500)));
    assert!(sent_again(FailureKind::Rejected { status: 503, retry_after: None }));
}

#[test]
fn a_request_is_sent_three_times_at_most_and_never_to_the_same_worker() {
    let mut bed = Bed::unified(&["a:1", "b:1", "c:1", "d:1", "e:1"]);
    let (mut attempt, asked) = (Attempt::new(), request(b"hi"));
    let mut route = bed.core.route(&asked, &mut attempt, bed.now).expect("ready");
    let mut tried = std::collections::BTreeSet::new();
    loop {
        assert!(tried.insert(route.serve.name.clone()), "{} again", route.serve.name);
        let failed = failure(FailureKind::Broken);
        match bed.core.failed(route, failed, &asked, &mut attempt, bed.now).0 {
            Verdict::Again(next, RetryReason::Broken) => route = *next,
            Verdict::Again(_, reason) => panic!("{reason:?}"),
            Verdict::Pass { retry_after } => break assert_eq!(retry_after, None),
        }
    }
    assert_eq!((tried.len(), attempt.tries()), (3, 3));
    // Alone, there is no other.
    let mut bed = Bed::unified(&["a:1"]);
    let (_, verdict) = bed.fails(b"hi", failure(FailureKind::Connect));
    assert!(matches!(verdict, Verdict::Pass { retry_after: None }));
}

#[test]
fn plain_servers_are_workers_too() {
    let listed = [("a:1", WorkerRole::Unified), ("b:1", WorkerRole::Unified)];
    let mut bed = Bed::listed(Config::default(), &listed);
    let plain = |bed: &mut Bed, worker: &str, models: usize| {
        let poll = bed.core.poll_began(&name(worker), bed.now).expect("listed");
        let models = (0..models).map(|model| format!("m{model}")).collect();
        bed.core.poll_ended(&poll, Ok(Answer::Plain { models }), bed.now);
    };
    plain(&mut bed, "a:1", 2);
    plain(&mut bed, "b:1", 65);
    assert!(bed.view("b:1").reason.contains("lists 65 models and 64"), "no silent limit");
    let asked = Request { model: "m1", ..request(&[b'x'; 6_000]) };
    let mut routes = Vec::new();
    for _ in 0..3 {
        routes.push(bed.core.route(&asked, &mut Attempt::new(), bed.now).expect("a is ready"));
    }
    assert_eq!(routes[0].serve.role, WorkerRole::Plain);
    let pending: u64 = routes.iter().map(|route| route.serve.counts().pending).sum();
    assert_eq!(bed.view("a:1").pending_tokens, pending, "own counts are all there is");
    // Its word is all there is, too.
    bed.core.failed(routes.remove(0), refusal(3), &asked, &mut Attempt::new(), bed.now);
    let refusal = bed.core.route(&asked, &mut Attempt::new(), bed.now).expect_err("it cools");
    assert_eq!(overloaded(&refusal).0, OverloadReason::Cooling);
    bed.pass(3.0);
    assert!(bed.core.route(&asked, &mut Attempt::new(), bed.now).is_ok());
}

#[test]
fn a_worker_that_is_not_what_it_was_listed_as_is_not_asked() {
    let mut bed = Bed::listed(Config::default(), &[("a:1", WorkerRole::Prefill)]);
    bed.tell("a:1", report(LoadRole::Decode));
    let view = bed.view("a:1");
    assert_eq!(view.state, WorkerState::Unhealthy);
    assert_eq!(view.reason, "it is listed as prefill and says that it is decode");
    let poll = bed.core.poll_began(&name("a:1"), bed.now).expect("listed");
    bed.core.poll_ended(&poll, Ok(Answer::Plain { models: Vec::new() }), bed.now);
    assert!(bed.view("a:1").reason.contains("a prefill worker must"));
    bed.tell("a:1", report(LoadRole::Prefill));
    assert_eq!(bed.state("a:1"), WorkerState::Ready);
    let other = WorkerSpec { model: Some("x".into()), ..spec("b:1", WorkerRole::Unified) };
    bed.core.relist(Source::File, &[other]).expect("few");
    bed.tell("b:1", report(LoadRole::Unified));
    assert_eq!(bed.view("b:1").reason, "it is listed for x and says that it serves m");
}

#[test]
fn a_worker_stays_while_any_source_lists_it() {
    let mut bed = Bed::unified(&["a:1"]);
    let a = spec("a:1", WorkerRole::Unified);
    assert_eq!(bed.core.relist(Source::Dns, std::slice::from_ref(&a)), Ok(Vec::new()));
    assert_eq!(
        bed.core.relist(Source::Dns, std::slice::from_ref(&a)),
        Ok(Vec::new()),
        "a list again"
    );
    let other = WorkerSpec { role: WorkerRole::Prefill, ..a.clone() };
    assert_eq!(bed.core.relist(Source::File, &[other]), Ok(Vec::new()), "the first word holds");
    assert_eq!(bed.core.relist(Source::Flags, &[]), Ok(Vec::new()));
    assert_eq!(bed.core.relist(Source::File, &[]), Ok(Vec::new()));
    assert_eq!(bed.state("a:1"), WorkerState::Ready);
    // Listed as something else by the only one that lists it: another worker.
    let moved = WorkerSpec { base: "https://a:1".into(), ..a };
    let kinds: Vec<EventKind> = bed
        .core
        .relist(Source::Dns, &[moved])
        .expect("few")
        .into_iter()
        .map(|event| event.kind)
        .collect();
    assert_eq!(kinds, [EventKind::Left, EventKind::Joined]);
    assert_eq!(bed.state("a:1"), WorkerState::Joining);
}

#[test]
fn too_many_workers_are_an_error_and_change_nothing() {
    let mut bed = Bed::unified(&["a:1"]);
    let many: Vec<WorkerSpec> =
        (0..256).map(|at| spec(&format!("w{at}:1"), WorkerRole::Unified)).collect();
    let error = bed.core.relist(Source::Dns, &many).expect_err("257 in all");
    assert_eq!(error.listed, 257);
    assert_eq!(bed.core.workers(bed.now).len(), 1);
    bed.core.relist(Source::Dns, &many[1..]).expect("256 in all");
    assert_eq!(bed.core.workers(bed.now).len(), 256);
    bed.core.relist(Source::Dns, &[]).expect("few");
    assert_eq!(bed.core.workers(bed.now).len(), 1);
}

#[test]
fn tokens_are_estimated_by_what_answers_said() {
    let mut bed = Bed::unified(&["a:1"]);
    assert_eq!(bed.core.tokens("m", 4_000), 1_000);
    for _ in 0..200 {
        bed.core.usage("m", 4_000, 2_000);
        bed.core.usage("nobody's", 4_000, 2_000);
    }
    assert!((1_980..=2_020).contains(&bed.core.tokens("m", 4_000)));
    assert_eq!(
        bed.core.tokens("nobody's", 4_000),
        1_000,
        "names that clients make up are not kept"
    );
}

#[test]
fn a_full_queue_whose_requests_have_ended_is_asked_again() {
    let mut bed = Bed::unified(&["a:1"]);
    let mut open: Vec<_> = (0..32).map(|_| bed.route(b"hi").expect("room")).collect();
    bed.tell("a:1", busy(LoadRole::Unified, 32, 20_000));
    let refusal = bed.route(b"hi").expect_err("the queue is full");
    assert_eq!(overloaded(&refusal).0, OverloadReason::QueueRequestsFull);
    open.pop();
    bed.route(b"hi").expect_err("one of them may have run, and 32 may wait");
    drop(open);
    bed.route(b"hi").expect("the report is of another time");
}
