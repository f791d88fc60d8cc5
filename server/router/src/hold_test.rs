//! Short absences of the only worker, or pair, of a model; workers that come back.

use std::time::Duration;

use protocol::internal::{LoadReport, LoadRole};

use crate::testing::*;
use crate::worker::WorkerRole::{Decode, Prefill, Unified};
use crate::*;

const ABSENCE: Duration = Duration::from_secs(10);

fn config(requests: usize, tokens: u64) -> Config {
    let hold = HoldConfig { time: ABSENCE, requests, tokens };
    Config { hold, ..Config::default() }
}

fn hold(bed: &mut Bed, prompt: &[u8]) -> Hold {
    bed.core.hold(&request(prompt), bed.now)
}

fn waits(bed: &mut Bed, prompt: &[u8]) -> Place {
    match hold(bed, prompt) {
        Hold::Wait(place) => place,
        other @ (Hold::Full | Hold::Pointless) => panic!("{other:?}"),
    }
}

fn gone(bed: &mut Bed, worker: &str) {
    for _ in 0..3 {
        bed.silent(worker);
    }
    assert_eq!(bed.state(worker), WorkerState::Unhealthy);
}

#[test]
fn an_absence_is_bridged_from_when_the_model_was_last_answerable() {
    let mut bed = Bed::ready(config(4, 1000), &[("a:1", Unified)]);
    let seen = bed.now;
    gone(&mut bed, "a:1");
    assert!(matches!(bed.route(b"hi"), Err(Refusal::NoWorker { .. })));
    let first = waits(&mut bed, b"hi");
    bed.pass(9.0);
    let late = waits(&mut bed, b"hi");
    assert_eq!((first.until(), late.until()), (seen + ABSENCE, seen + ABSENCE));
    bed.pass(1.0);
    assert!(matches!(hold(&mut bed, b"hi"), Hold::Pointless), "it is away for too long");
    drop((first, late));
    bed.tell("a:1", LoadReport { instance_id: "second".into(), ..report(LoadRole::Unified) });
    bed.tell("a:1", LoadReport { instance_id: "second".into(), ..report(LoadRole::Unified) });
    drop(bed.route(b"hi").expect("it is back"));
    let seen = bed.now;
    bed.pass(5.0);
    gone(&mut bed, "a:1");
    assert_eq!(waits(&mut bed, b"hi").until(), seen + ABSENCE, "a new absence");
}

#[test]
fn what_waits_is_bounded_in_requests_and_in_tokens() {
    let mut bed = Bed::ready(config(3, 1000), &[("a:1", Unified)]);
    gone(&mut bed, "a:1");
    let prompt = vec![b'a'; 1600];
    let tokens = bed.core.tokens("m", prompt.len());
    assert!(tokens > 333 && tokens <= 500, "two fit and three do not: {tokens}");
    let places = [waits(&mut bed, &prompt), waits(&mut bed, &prompt)];
    assert_eq!(bed.core.held(), Held { requests: 2, tokens: 2 * tokens });
    assert!(matches!(hold(&mut bed, &prompt), Hold::Full), "too many tokens");
    let short = waits(&mut bed, b"hi");
    assert!(matches!(hold(&mut bed, b"hi"), Hold::Full), "too many requests");
    drop(places);
    assert_eq!(bed.core.held(), Held { requests: 1, tokens: short.tokens() });
    drop(short);
    assert_eq!(bed.core.held(), Held::default());
    let long = vec![b'a'; 8000];
    assert!(matches!(hold(&mut bed, &long), Hold::Full), "never more than the bound");
}

#[test]
fn nobody_waits_for_what_was_never_there_or_is_not_known() {
    let mut bed = Bed::listed(config(3, 1000), &[("a:1", Unified)]);
    assert!(matches!(hold(&mut bed, b"hi"), Hold::Pointless), "it has never been ready");
    let mut bed = Bed::unified(&["a:1"]);
    let unknown = Request { model: "other", ..request(b"hi") };
    assert!(matches!(bed.core.hold(&unknown, bed.now), Hold::Pointless));
    bed.core.relist(Source::Flags, &[]).expect("few");
    assert!(matches!(hold(&mut bed, b"hi"), Hold::Pointless), "it is listed no more");
    let off = HoldConfig { time: Duration::ZERO, ..HoldConfig::default() };
    let mut bed = Bed::ready(Config { hold: off, ..Config::default() }, &[("a:1", Unified)]);
    gone(&mut bed, "a:1");
    assert!(matches!(hold(&mut bed, b"hi"), Hold::Pointless), "nothing is held");
}

#[test]
fn a_pair_is_away_while_one_half_or_their_link_is() {
    let pair = [("p:1", Prefill), ("d:1", Decode)];
    for half in ["p:1", "d:1"] {
        let mut bed = Bed::ready(config(3, 1000), &pair);
        let seen = bed.now;
        bed.pass(1.0);
        gone(&mut bed, half);
        bed.pass(4.0);
        assert_eq!(waits(&mut bed, b"hi").until(), seen + ABSENCE, "{half}");
    }
    let mut bed = Bed::ready(config(3, 1000), &pair);
    bed.pass(1.0);
    let cut = LoadReport { peers_up: Some(Vec::new()), ..report(LoadRole::Decode) };
    bed.tell("d:1", cut);
    assert!(matches!(bed.route(b"hi"), Err(Refusal::NoWorker { .. })));
    let place = waits(&mut bed, b"hi");
    let up = LoadReport { peers_up: Some(vec!["p:1".into()]), ..report(LoadRole::Decode) };
    bed.tell("d:1", up);
    drop(place);
    assert!(bed.route(b"hi").is_ok(), "the link is up again");
}

#[test]
fn a_worker_that_fails_all_requests_is_no_short_absence() {
    let mut bed = Bed::unified(&["a:1"]);
    bed.core.configure(config(3, 1000));
    let seen = bed.now;
    for _ in 0..5 {
        bed.fails(b"hi", failure(FailureKind::Status(500)));
    }
    assert_eq!(bed.circuit("a:1"), CircuitState::Open);
    for _ in 0..20 {
        bed.pass(1.0);
        bed.tell("a:1", report(LoadRole::Unified));
        if let Hold::Wait(place) = hold(&mut bed, b"hi") {
            assert!(place.until() <= seen + ABSENCE, "polls do not make it well");
        }
    }
    assert!(matches!(hold(&mut bed, b"hi"), Hold::Pointless));
}

/// How many of 200 requests go to `worker`.
fn share(bed: &mut Bed, worker: &str) -> usize {
    let to = |bed: &mut Bed| bed.route(b"hi").expect("somebody is ready").serve.name;
    (0..200).filter(|_| to(bed) == name(worker)).count()
}

#[test]
fn who_comes_back_gets_a_growing_share_under_every_policy() {
    for policy in PolicyKind::ALL {
        let mut bed = Bed::unified(&["a:1", "b:1"]);
        bed.core.configure(Config { policy, ..Config::default() });
        let everything = share(&mut bed, "a:1");
        bed.pass(20.0);
        for worker in ["a:1", "b:1"] {
            bed.tell(worker, report(LoadRole::Unified));
        }
        bed.core.drain(&name("a:1"), DrainBy::Operator, bed.now).expect("it is listed");
        assert_eq!(share(&mut bed, "a:1"), 0);
        bed.core.undrain(&name("a:1"), DrainBy::Operator, bed.now).expect("it is listed");
        assert!((bed.view("a:1").share - 0.1).abs() < 1e-9);
        let shares: Vec<usize> = (0..5)
            .map(|_| {
                let of = share(&mut bed, "a:1");
                bed.pass(2.5);
                for worker in ["a:1", "b:1"] {
                    bed.tell(worker, report(LoadRole::Unified));
                }
                of
            })
            .collect();
        let policy = policy.as_str();
        if everything > 0 {
            assert!(shares[0] > 0 && shares[0] <= everything / 4, "{policy}: {shares:?}");
            assert!(shares[2] > shares[0], "{policy}: {shares:?} of {everything}");
            assert!(shares[4] * 10 >= everything * 9, "{policy}: {shares:?} of {everything}");
        }
        assert!((bed.view("a:1").share - 1.0).abs() < 1e-9, "{policy}");
    }
}

#[test]
fn slow_start_refuses_nobody_and_ends_at_once_where_it_is_off() {
    let mut bed = Bed::unified(&["a:1"]);
    bed.core.drain(&name("a:1"), DrainBy::Operator, bed.now).expect("it is listed");
    bed.core.undrain(&name("a:1"), DrainBy::Operator, bed.now).expect("it is listed");
    assert_eq!(share(&mut bed, "a:1"), 200, "there is no other");
    let mut bed = Bed::unified(&["a:1", "b:1"]);
    bed.core.configure(Config { slow_start: Duration::ZERO, ..Config::default() });
    bed.pass(20.0);
    bed.tell("b:1", busy(LoadRole::Unified, 40, 200_000));
    gone(&mut bed, "a:1");
    bed.tell("a:1", report(LoadRole::Unified));
    assert_eq!(share(&mut bed, "a:1"), 200, "the other is full");
}

#[test]
fn a_pair_that_is_new_starts_slowly_on_both_sides() {
    let workers = [("p1:1", Prefill), ("p2:1", Prefill), ("d1:1", Decode), ("d2:1", Decode)];
    let mut bed = Bed::ready(Config::default(), &workers);
    bed.pass(20.0);
    let again = |bed: &mut Bed, instance: &str| {
        for (worker, role) in workers {
            let new = worker.ends_with("2:1");
            let instance_id = if new { instance.into() } else { "first".into() };
            bed.tell(worker, LoadReport { instance_id, ..report(load_role(role)) });
        }
    };
    again(&mut bed, "second");
    again(&mut bed, "second");
    let mut counts = [0_usize; 2];
    for _ in 0..400 {
        let route = bed.route(b"hi").expect("pairs are ready");
        let prefill = route.prefill.as_ref().expect("a pair");
        counts[0] += usize::from(prefill.name == name("p2:1"));
        counts[1] += usize::from(route.serve.name == name("d2:1"));
    }
    assert!(counts.iter().all(|count| (1..=60).contains(count)), "{counts:?} of 400 at a tenth");
}

#[test]
fn who_joins_later_starts_slowly_and_who_is_there_when_the_router_begins_does_not() {
    let mut bed = Bed::listed(Config::default(), &[("a:1", Unified), ("b:1", Unified)]);
    bed.tell("a:1", report(LoadRole::Unified));
    bed.pass(3.0);
    bed.tell("b:1", report(LoadRole::Unified));
    assert_eq!([bed.view("a:1").share, bed.view("b:1").share], [1.0, 1.0]);
    bed.pass(20.0);
    let more = ["a:1", "b:1", "c:1"].map(|worker| spec(worker, Unified));
    bed.core.relist(Source::Flags, &more).expect("few");
    bed.tell("c:1", report(LoadRole::Unified));
    assert!((bed.view("c:1").share - 0.1).abs() < 1e-9);
    assert_eq!([bed.view("a:1").share, bed.view("b:1").share], [1.0, 1.0]);
}
