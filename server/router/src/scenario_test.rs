//! What went wrong in other routers, one test each.

use std::time::Duration;

use protocol::internal::{LoadReport, LoadRole, LoadState};

use crate::testing::*;
use crate::*;

const U: WorkerRole = WorkerRole::Unified;

#[test]
fn it_starts_without_workers_and_names_the_roles_that_are_missing() {
    let mut bed = Bed::listed(Config::default(), &[]);
    let missing = bed.core.readiness(bed.now).expect_err("nobody is there").to_string();
    assert!(missing.contains("no unified worker"), "{missing}");
    assert!(matches!(bed.route(b"hi"), Err(Refusal::NoWorker { .. })));
    // A worker that is down or slow to start keeps nobody from starting.
    let workers = [("p1:1", WorkerRole::Prefill), ("d1:1", WorkerRole::Decode)];
    let mut bed = Bed::listed(Config::default(), &workers);
    let missing = bed.core.readiness(bed.now).expect_err("nobody answered").to_string();
    assert!(missing.contains("no prefill worker") && missing.contains("no decode worker"));
    assert!(missing.contains("p1:1 is joining: it has not answered yet"), "{missing}");
    bed.tell("p1:1", report(LoadRole::Prefill));
    let missing = bed.core.readiness(bed.now).expect_err("no decode worker").to_string();
    assert!(missing.contains("decode") && !missing.contains("prefill"), "{missing}");
    bed.tell("d1:1", report(LoadRole::Decode));
    assert_eq!(bed.core.readiness(bed.now), Ok(()));
}

#[test]
fn a_worker_is_removed_during_a_hundred_streams() {
    let mut bed = Bed::unified(&["a:1", "b:1"]);
    let mut routes: Vec<Route> = (0..100).map(|_| bed.route(b"hi").expect("ready")).collect();
    let there = routes.iter().filter(|route| route.serve.name.as_str() == "a:1").count() as u64;
    assert!((1..100).contains(&there));
    let events = bed.core.relist(Source::Flags, &[spec("b:1", U)]).expect("few");
    assert_eq!(events.iter().filter(|event| event.kind == EventKind::Left).count(), 1);
    for route in &mut routes {
        bed.core.answered(route, bed.now);
    }
    assert_eq!(bed.route(b"hi").expect("b is there").serve.name, name("b:1"));
    // It comes back while its streams still run: they still count.
    bed.core.relist(Source::Flags, &[spec("a:1", U), spec("b:1", U)]).expect("few");
    assert_eq!(bed.view("a:1").own.requests, there);
    assert_eq!(bed.state("a:1"), WorkerState::Joining);
    let failed = routes.pop().expect("there are a hundred");
    let mut attempt = Attempt::new();
    let broken = Failure { answer_begun: true, ..failure(FailureKind::Broken) };
    let (verdict, _) = bed.core.failed(failed, broken, &request(b"hi"), &mut attempt, bed.now);
    assert!(matches!(verdict, Verdict::Pass { retry_after: None }), "bytes were sent");
    drop(routes);
    assert!(bed.core.workers(bed.now).iter().all(|view| view.own == Amount::default()));
}

#[test]
fn models_are_those_of_the_registry_not_of_the_first_worker() {
    let mut bed = Bed::unified(&["a:1", "b:1"]);
    bed.tell("b:1", LoadReport { model: "other".into(), ..report(LoadRole::Unified) });
    for _ in 0..9 {
        bed.silent("a:1");
    }
    assert_eq!(bed.state("a:1"), WorkerState::Unhealthy);
    let names: Vec<String> = models(&bed.core).iter().map(|model| model.to_string()).collect();
    assert_eq!(names, ["m", "other"], "a dead worker's model is still known");
    let asked = Request { model: "other", ..request(b"hi") };
    let route = bed.core.route(&asked, &mut Attempt::new(), bed.now).expect("b is ready");
    assert_eq!(route.serve.name, name("b:1"));
    assert!(matches!(bed.route(b"hi"), Err(Refusal::NoWorker { .. })), "known, not ready");
    let unknown = Request { model: "none", ..request(b"hi") };
    let refusal = bed.core.route(&unknown, &mut Attempt::new(), bed.now).expect_err("unknown");
    assert!(refusal.to_string().contains("served are m, other"), "{refusal}");
}

#[test]
fn saturation_never_opens_a_breaker() {
    let mut bed = Bed::unified(&["a:1"]);
    for number in 0..1000_u64 {
        bed.pass(2.0);
        bed.tell("a:1", busy(LoadRole::Unified, 30, 60_000));
        let kind = match number % 3 {
            0 => FailureKind::Rejected { status: 429, retry_after: Some(Duration::from_secs(1)) },
            1 => FailureKind::Rejected { status: 503, retry_after: None },
            _ => FailureKind::FirstByteTimeout,
        };
        bed.fails(b"hi", failure(kind));
        assert_eq!(bed.circuit("a:1"), CircuitState::Closed, "{kind:?}");
    }
}

#[test]
fn bad_requests_are_neutral() {
    let mut bed = Bed::unified(&["a:1", "b:1"]);
    for _ in 0..1000 {
        let (_, verdict) = bed.fails(b"hi", failure(FailureKind::BadRequest(400)));
        assert!(matches!(verdict, Verdict::Pass { retry_after: None }), "no retry helps");
    }
    assert!(["a:1", "b:1"].iter().all(|name| bed.circuit(name) == CircuitState::Closed));
}

#[test]
fn back_pressure_cools_a_worker_for_as_long_as_it_asks() {
    let mut bed = Bed::unified(&["a:1", "b:1"]);
    let (refused, verdict) = bed.fails(b"hi", refusal(7));
    let other = next(&verdict).expect("the other has head-room").to_owned();
    assert_ne!(refused, other);
    drop(verdict);
    for _ in 0..20 {
        assert_eq!(bed.route(b"hi").expect("one is ready").serve.name.as_str(), other);
    }
    assert_eq!(bed.view(&refused).cooling, Some(Duration::from_secs(7)));
    bed.pass(7.1);
    let taken: Vec<_> = (0..4).map(|_| bed.route(b"hi").expect("ready")).collect();
    assert!(taken.iter().any(|route| route.serve.name.as_str() == refused));
}

#[test]
fn why_a_worker_asked_for_time_is_told_on() {
    for (status, why) in [(429, OverloadReason::Cooling), (503, OverloadReason::Closed)] {
        let mut bed = Bed::unified(&["a:1"]);
        let retry_after = Some(Duration::from_secs(7));
        bed.fails(b"hi", failure(FailureKind::Rejected { status, retry_after }));
        let refusal = bed.route(b"hi").expect_err("it asked for time");
        let Refusal::Overloaded { reason, retry_after, .. } = refusal else { panic!("{refusal}") };
        assert_eq!(reason, why, "{status}");
        // Only who is full has others that were told to come back before.
        let behind = if status == 429 { 8 } else { 7 };
        assert_eq!(retry_after, Duration::from_secs(behind), "{status}");
    }
}

#[test]
fn a_later_report_with_room_ends_the_cooling() {
    let mut bed = Bed::unified(&["a:1"]);
    bed.fails(b"hi", refusal(7));
    let refusal = bed.route(b"hi").expect_err("it asked for time");
    assert!(
        matches!(refusal, Refusal::Overloaded { reason: OverloadReason::Cooling, retry_after, .. }
            // Behind the one that was refused.
            if retry_after == Duration::from_secs(8)),
        "{refusal}"
    );
    bed.pass(1.0);
    bed.tell("a:1", busy(LoadRole::Unified, 40, 120_000));
    assert!(bed.view("a:1").cooling.is_some(), "it has no room");
    bed.tell("a:1", report(LoadRole::Unified));
    assert!(bed.route(b"hi").is_ok());
}

#[test]
fn a_breaker_does_not_stay_open_while_nobody_asks() {
    let mut bed = Bed::unified(&["a:1"]);
    for _ in 0..5 {
        bed.fails(b"hi", failure(FailureKind::Status(500)));
    }
    assert_eq!(bed.circuit("a:1"), CircuitState::Open);
    assert!(!bed.view("a:1").up);
    let refusal = bed.route(b"hi").expect_err("it is left alone").to_string();
    assert!(refusal.contains("a:1 has failed and is left alone for a while"), "{refusal}");
    for _ in 0..600 {
        bed.pass(1.0);
        bed.tell("a:1", report(LoadRole::Unified));
    }
    assert_eq!(bed.circuit("a:1"), CircuitState::HalfOpen);
    let mut probe = bed.route(b"hi").expect("a probe goes through");
    assert!(bed.route(b"hi").is_err(), "one at a time");
    let events = bed.core.answered(&mut probe, bed.now);
    assert_eq!(events[0].kind, EventKind::Circuit(CircuitState::Closed));
    assert!(bed.route(b"hi").is_ok());
}

#[test]
fn a_429_goes_to_one_other_worker_with_head_room_and_no_further() {
    let mut bed = Bed::unified(&["a:1", "b:1", "c:1", "d:1"]);
    let mut attempt = Attempt::new();
    let asked = request(b"hi");
    let first = bed.core.route(&asked, &mut attempt, bed.now).expect("ready");
    let (verdict, _) = bed.core.failed(first, refusal(9), &asked, &mut attempt, bed.now);
    let Verdict::Again(second, RetryReason::Rejected) = verdict else { panic!("{verdict:?}") };
    let (verdict, _) = bed.core.failed(*second, refusal(4), &asked, &mut attempt, bed.now);
    let Verdict::Pass { retry_after } = verdict else { panic!("a third one was asked") };
    assert_eq!(retry_after, Some(Duration::from_secs(1)), "two others have room by now");
}

#[test]
fn a_429_is_passed_on_where_no_other_worker_reports_head_room() {
    // Long prompts: 60,000 bytes are about 15,000 tokens.
    let long = vec![b'x'; 60_000];
    let mut bed = Bed::unified(&["a:1", "b:1"]);
    bed.tell("a:1", busy(LoadRole::Unified, 3, 60_000));
    // By estimate it fits with the margin and not without: no head-room, and no refusal either.
    bed.tell("b:1", busy(LoadRole::Unified, 5, 86_000));
    let (worker, verdict) = bed.fails(&long, refusal(6));
    assert_eq!(worker, "a:1");
    let Verdict::Pass { retry_after } = verdict else { panic!("b has no head-room") };
    assert_eq!(retry_after, Some(Duration::from_secs(1)), "by its report b may take it");
    // A report that is too old is no head-room.
    let mut bed = Bed::unified(&["a:1", "b:1"]);
    bed.pass(5.0);
    let (_, verdict) = bed.fails(b"hi", refusal(6));
    let Verdict::Pass { retry_after } = verdict else { panic!("nobody knows") };
    assert_eq!(retry_after, Some(Duration::from_secs(6)));
}

#[test]
fn when_prefill_fails_the_decode_worker_is_let_go_at_once() {
    let mut bed = Bed::pairs(&["p1:1", "p2:1", "d1:1"]);
    let mut attempt = Attempt::new();
    let asked = request(b"hi");
    let route = bed.core.route(&asked, &mut attempt, bed.now).expect("a pair is ready");
    let prefill = route.prefill.as_ref().expect("a pair").name.to_string();
    assert_eq!(bed.view("d1:1").own.requests, 1);
    let failed = Failure { by_prefill: true, ..failure(FailureKind::Status(502)) };
    let (verdict, _) = bed.core.failed(route, failed, &asked, &mut attempt, bed.now);
    let Verdict::Again(route, RetryReason::Error) = verdict else { panic!("{verdict:?}") };
    let (serve, other) = names(&route);
    assert_eq!(serve, "d1:1", "the decode worker is well");
    assert_ne!(other.as_deref(), Some(prefill.as_str()));
    assert_eq!(bed.view(&prefill).own, Amount::default());
    assert_eq!(bed.view("d1:1").own.requests, 1, "only the new one");
}

#[test]
fn when_decode_is_unreachable_the_prefill_worker_is_let_go_at_once() {
    let mut bed = Bed::pairs(&["p1:1", "d1:1", "d2:1"]);
    let mut attempt = Attempt::new();
    let asked = request(b"hi");
    let route = bed.core.route(&asked, &mut attempt, bed.now).expect("a pair is ready");
    let decode = route.serve.name.to_string();
    let (verdict, _) =
        bed.core.failed(route, failure(FailureKind::Connect), &asked, &mut attempt, bed.now);
    let Verdict::Again(route, RetryReason::Connect) = verdict else { panic!("{verdict:?}") };
    assert_ne!(route.serve.name.as_str(), decode);
    assert_eq!(bed.view(&decode).own, Amount::default());
    assert_eq!(bed.view("p1:1").own.requests, 1);
}

#[test]
fn each_side_restarts_alone_and_no_pair_is_stale() {
    let mut bed = Bed::pairs(&["p1:1", "d1:1"]);
    let anew = |role, fingerprint: &str| LoadReport {
        instance_id: "second".into(),
        fingerprint: fingerprint.into(),
        ..report(role)
    };
    for (worker, role) in [("p1:1", LoadRole::Prefill), ("d1:1", LoadRole::Decode)] {
        assert!(bed.route(b"hi").is_ok());
        bed.tell(worker, anew(role, "f"));
        assert!(bed.route(b"hi").is_err(), "the new {worker} was not heard of twice");
        bed.tell(worker, anew(role, "f"));
        assert!(bed.route(b"hi").is_ok(), "the partner needs no restart");
    }
    // A restart with another version is another fingerprint.
    let newer = LoadReport { instance_id: "third".into(), ..anew(LoadRole::Prefill, "g") };
    bed.tell("p1:1", newer.clone());
    bed.tell("p1:1", newer);
    let refusal = bed.route(b"hi").expect_err("they do not fit").to_string();
    let why = "d1:1 has the fingerprint \"f\" and p1:1 has \"g\"";
    assert!(refusal.contains(why), "{refusal}");
    assert!(bed.core.readiness(bed.now).is_err());
}

#[test]
fn an_idle_pair_answers_its_first_request() {
    let mut bed = Bed::pairs(&["p1:1", "d1:1"]);
    for _ in 0..600 {
        bed.pass(1.0);
        bed.tell("p1:1", report(LoadRole::Prefill));
        bed.tell("d1:1", report(LoadRole::Decode));
    }
    let route = bed.route(b"hi").expect("it was idle, not dead");
    assert_eq!(names(&route), ("d1:1".to_owned(), Some("p1:1".to_owned())));
}

#[test]
fn another_instance_is_another_worker() {
    let long = vec![b'x'; 60_000];
    let mut bed = Bed::unified(&["a:1"]);
    drop(bed.route(&long));
    assert!(bed.route(&long).expect("ready").prefix_match > 0.9);
    for _ in 0..4 {
        bed.fails(b"hi", failure(FailureKind::Status(500)));
    }
    let old = bed.route(b"hi").expect("not open yet");
    let anew = LoadReport { instance_id: "second".into(), ..report(LoadRole::Unified) };
    let events = bed.tell("a:1", anew.clone());
    assert_eq!(events[0].kind, EventKind::Restarted);
    assert_eq!(bed.state("a:1"), WorkerState::Joining);
    bed.tell("a:1", anew);
    assert_eq!(bed.route(&long).expect("ready").prefix_match, 0.0, "its cache is empty");
    // What the process before it failed at does not count against it.
    let mut attempt = Attempt::new();
    for route in [old, bed.route(b"hi").expect("ready")] {
        let failed = failure(FailureKind::Status(500));
        bed.core.failed(route, failed, &request(b"hi"), &mut attempt, bed.now);
        assert_eq!(bed.circuit("a:1"), CircuitState::Closed);
    }
}

#[test]
fn draining_wins_over_healthy() {
    let mut bed = Bed::unified(&["a:1", "b:1"]);
    let open: Vec<_> = (0..4).map(|_| bed.route(b"hi").expect("ready")).collect();
    bed.core.drain(&name("a:1"), DrainBy::Operator, bed.now).expect("known");
    bed.tell("a:1", report(LoadRole::Unified));
    assert_eq!(bed.state("a:1"), WorkerState::Draining);
    for _ in 0..10 {
        assert_eq!(bed.route(b"hi").expect("b is ready").serve.name, name("b:1"));
    }
    assert!(bed.view("a:1").own.requests > 0, "what runs there goes on");
    drop(open);
    bed.core.drain(&name("a:1"), DrainBy::Operator, bed.now).expect("twice is once");
    bed.core.undrain(&name("a:1"), DrainBy::Operator, bed.now).expect("known");
    assert_eq!(bed.state("a:1"), WorkerState::Ready);
    bed.tell("a:1", LoadReport { state: LoadState::Draining, ..report(LoadRole::Unified) });
    assert_eq!(bed.state("a:1"), WorkerState::Draining, "it says so itself");
    assert!(bed.core.drain(&name("z:1"), DrainBy::Operator, bed.now).is_err());
}

#[test]
fn a_drain_by_the_worker_ends_with_its_process_and_one_by_an_operator_does_not() {
    for (by, after) in
        [(DrainBy::Worker, WorkerState::Ready), (DrainBy::Operator, WorkerState::Draining)]
    {
        let mut bed = Bed::unified(&["a:1"]);
        bed.core.drain(&name("a:1"), by, bed.now).expect("known");
        let anew = LoadReport { instance_id: "second".into(), ..report(LoadRole::Unified) };
        bed.tell("a:1", anew.clone());
        bed.tell("a:1", anew);
        assert_eq!(bed.state("a:1"), after, "{by:?}");
    }
}

#[test]
fn a_ghost_leaves_with_the_next_list_and_readiness_needs_a_real_answer() {
    let mut bed = Bed::listed(Config::default(), &[]);
    bed.core.relist(Source::Dns, &[spec("a:1", U), spec("b:1", U)]).expect("few");
    assert!(bed.core.readiness(bed.now).is_err(), "listed is not ready");
    bed.tell("a:1", report(LoadRole::Unified));
    assert!(bed.core.readiness(bed.now).is_ok());
    bed.core.relist(Source::Dns, &[spec("b:1", U)]).expect("few");
    assert!(bed.core.readiness(bed.now).is_err(), "the one that answered is gone");
    bed.tell("b:1", report(LoadRole::Unified));
    for _ in 0..3 {
        assert!(bed.core.readiness(bed.now).is_ok(), "one missed poll is none");
        bed.silent("b:1");
    }
    assert!(bed.core.readiness(bed.now).is_err());
    bed.tell("b:1", report(LoadRole::Unified));
    bed.pass(31.0);
    assert!(bed.core.readiness(bed.now).is_err(), "nobody polls any more");
    assert!(bed.view("b:1").reason.contains("31 s"), "{}", bed.view("b:1").reason);
}

#[test]
fn a_replica_that_vanishes_from_discovery_is_still_declared() {
    let mut bed = Bed::unified(&["a:1", "b:1"]);
    let specs = [spec("c:1", WorkerRole::Decode)];
    bed.core.relist(Source::Dns, &specs).expect("few");
    bed.core.expect(vec![Declared { role: WorkerRole::Decode, model: None, workers: 2 }]);
    let declared = |core: &Core| -> Vec<(WorkerRole, Option<String>, usize)> {
        let entry = |d: Declared| (d.role, d.model.map(|model| model.to_string()), d.workers);
        core.declared().into_iter().map(entry).collect()
    };
    let model = Some("m".to_owned());
    let all = vec![(U, model.clone(), 2), (WorkerRole::Decode, model.clone(), 2)];
    assert_eq!(declared(&bed.core), all);
    for _ in 0..9 {
        bed.silent("a:1");
    }
    bed.core.relist(Source::Dns, &[]).expect("few");
    assert_eq!(declared(&bed.core), all, "whoever is dead or gone is missed");
    bed.core.relist(Source::Flags, &[spec("b:1", U)]).expect("few");
    assert_eq!(declared(&bed.core)[0], (U, model, 1), "the configuration wants one fewer");
}

#[test]
fn a_hung_worker_keeps_nobody_from_the_others() {
    let mut bed = Bed::unified(&["a:1", "b:1"]);
    let hung = |bed: &mut Bed| {
        let mut attempt = Attempt::new();
        let asked = request(b"hi");
        let mut route = bed.core.route(&asked, &mut attempt, bed.now).expect("ready");
        if route.serve.name.as_str() != "a:1" {
            bed.core.answered(&mut route, bed.now);
            return;
        }
        let late = failure(FailureKind::FirstByteTimeout);
        let (verdict, _) = bed.core.failed(route, late, &asked, &mut attempt, bed.now);
        assert_eq!(next(&verdict), Some("b:1"));
    };
    for _ in 0..20 {
        hung(&mut bed);
    }
    assert_eq!(bed.circuit("a:1"), CircuitState::Open);
    assert!((0..10).all(|_| bed.route(b"hi").expect("b").serve.name == name("b:1")));
}

#[test]
fn a_worker_is_asked_only_after_its_own_test() {
    let mut bed = Bed::listed(Config::default(), &[("a:1", U)]);
    let starting = LoadReport { state: LoadState::Starting, ..report(LoadRole::Unified) };
    bed.tell("a:1", starting.clone());
    assert_eq!(bed.state("a:1"), WorkerState::Joining);
    assert!(bed.route(b"hi").is_err());
    bed.tell("a:1", report(LoadRole::Unified));
    assert!(bed.route(b"hi").is_ok());
    bed.tell("a:1", starting);
    assert!(bed.route(b"hi").is_err(), "it says that it is not ready any more");
    bed.tell("a:1", LoadReport { state: LoadState::Failed, ..report(LoadRole::Unified) });
    assert_eq!(bed.state("a:1"), WorkerState::Unhealthy);
}

#[test]
fn mixed_versions_are_never_paired() {
    let mut bed = Bed::pairs(&["p1:1", "p2:1", "d1:1", "d2:1"]);
    let told = |role, print: &str| LoadReport { fingerprint: print.into(), ..report(role) };
    bed.tell("p2:1", told(LoadRole::Prefill, "g"));
    bed.tell("d2:1", told(LoadRole::Decode, "g"));
    let (mut seen, mut held) = (std::collections::BTreeSet::new(), Vec::new());
    for number in 0..100_u32 {
        let prompt: Vec<u8> = number.to_le_bytes().repeat(500);
        let route = bed.route(&prompt).expect("two pairs fit");
        seen.insert(names(&route));
        held.push(route);
    }
    let pair = |d: &str, p: &str| (d.to_owned(), Some(p.to_owned()));
    assert!(seen.iter().eq(&[pair("d1:1", "p1:1"), pair("d2:1", "p2:1")]), "{seen:?}");
    // One that tells no fingerprint fits nobody.
    bed.tell("d1:1", told(LoadRole::Decode, ""));
    bed.tell("d2:1", told(LoadRole::Decode, ""));
    bed.tell("p1:1", told(LoadRole::Prefill, ""));
    assert!(bed.route(b"hi").is_err());
}

#[test]
fn a_pair_needs_a_link_that_is_up() {
    let mut bed = Bed::pairs(&["p1:1", "p2:1", "d1:1"]);
    let linked = |peers: &[&str]| LoadReport {
        peers_up: Some(peers.iter().map(|peer| (*peer).to_owned()).collect()),
        ..report(LoadRole::Decode)
    };
    bed.tell("d1:1", linked(&["p2:1"]));
    for _ in 0..5 {
        assert_eq!(names(&bed.route(b"hi").expect("a pair")).1.as_deref(), Some("p2:1"));
    }
    bed.tell("d1:1", linked(&[]));
    assert!(bed.route(b"hi").is_err());
    bed.tell("d1:1", linked(&["localhost:1"]));
    let refusal = bed.route(b"hi").expect_err("another name").to_string();
    assert!(refusal.contains("links to localhost:1 and not to p1:1"), "{refusal}");
    bed.tell("d1:1", linked(&["p1:1", "p2:1"]));
    assert!(bed.route(b"hi").is_ok());
}
