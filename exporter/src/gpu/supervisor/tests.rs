//! The supervisor in virtual time.

use super::*;
use nvml_worker::protocol::{Fast, Fixed, Hello, Problem, Slow, Values};

const SECOND: Duration = Duration::from_secs(1);

/// A supervisor, a clock, and what a worker would be told.
struct Bench {
    supervisor: Supervisor,
    start: Now,
    now: Now,
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn fault(kind: FaultKind) -> Fault {
    Fault { kind, detail: format!("{kind:?}") }
}

fn hello(cards: u32) -> Report {
    Report::Hello(Hello {
        library: "lib".to_owned(),
        driver_version: Some("580".to_owned()),
        library_version: None,
        cuda_version: None,
        cards,
    })
}

fn uuid(card: u32) -> String {
    format!("GPU-{card}")
}

impl Bench {
    fn new() -> Self {
        let intervals = Intervals { fast: SECOND, slow: seconds(10), fixed: seconds(60) };
        let open = Open { libraries: Vec::new(), probe_again_millis: 0 };
        let now = Now::read();
        let supervisor = Supervisor::new(open, intervals, Patience::default(), now);
        Self { supervisor, start: now, now }
    }

    /// With a worker that has opened the library.
    fn open(cards: u32) -> Self {
        let mut bench = Self::new();
        bench.begin(cards);
        bench
    }

    fn begin(&mut self, cards: u32) {
        assert_eq!(self.tick(), [Action::Start]);
        let said = self.supervisor.started(self.now);
        assert!(matches!(said, Action::Say(Request::Open(_))));
        assert!(self.supervisor.report(hello(cards), self.now).is_empty());
    }

    fn tick(&mut self) -> Vec<Action> {
        self.supervisor.tick(self.now)
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    fn since_start(&self) -> Duration {
        self.now.since(self.start)
    }

    fn answer(&mut self, card: u32, group: Group, name: &str) {
        let values = match group {
            Group::Fast => Values::Fast(Box::default()),
            Group::Slow => Values::Slow(Box::default()),
            Group::Fixed => {
                Values::Fixed(Box::new(Fixed { uuid: name.to_owned(), ..Fixed::default() }))
            }
        };
        let report = Report::Sample { card, micros: 100, values };
        assert!(self.supervisor.report(report, self.now).is_empty());
    }

    /// Runs for a while; cards of which `hangs` says so do not answer. Gives the actions that are
    /// no polls.
    fn run(&mut self, time: Duration, hangs: impl Fn(u32) -> bool) -> Vec<Action> {
        let end = self.now + time;
        let mut others = Vec::new();
        while self.now.mono < end.mono {
            for action in self.tick() {
                match action {
                    Action::Say(Request::Poll { card, group }) if !hangs(card) => {
                        self.answer(card, group, &uuid(card));
                    }
                    Action::Say(Request::Poll { .. }) => {}
                    other @ (Action::Start
                    | Action::Say(_)
                    | Action::CloseInput
                    | Action::Kill
                    | Action::Abandon) => others.push(other),
                }
            }
            self.wait(Duration::from_millis(100));
        }
        others
    }

    fn up(&self) -> Vec<bool> {
        let facts = self.supervisor.facts();
        facts.cards.iter().map(|card| facts.is_up(card, self.now)).collect()
    }

    fn result(&self, cards: Option<u32>) -> Option<Result<(), CollectError>> {
        self.supervisor.outcome(cards, self.now).0.result
    }
}

fn kind(result: Option<Result<(), CollectError>>) -> Option<ErrorKind> {
    match result {
        Some(Err(CollectError::Failed { kind, .. })) => Some(kind),
        Some(Err(CollectError::Unsupported(_)) | Ok(())) | None => None,
    }
}

#[test]
fn names_come_first_and_every_group_at_its_interval() {
    let mut bench = Bench::open(2);
    let first = bench.tick();
    let names = [0, 1].map(|card| Action::Say(Request::Poll { card, group: Group::Fixed }));
    assert_eq!(first, names);
    assert!(bench.tick().is_empty(), "a busy card is not asked again");
    for card in [0, 1] {
        bench.answer(card, Group::Fixed, &uuid(card));
    }
    let mut asked = [0; 3];
    for _ in 0..601 {
        for action in bench.tick() {
            let Action::Say(Request::Poll { card, group }) = action else { panic!("{action:?}") };
            bench.answer(card, group, &uuid(card));
            asked[group as usize] += usize::from(card == 1);
        }
        bench.wait(Duration::from_millis(100));
    }
    let [fast, slow, fixed] = asked;
    assert!((59..=62).contains(&fast), "{fast} in {:?}", bench.since_start());
    assert!((6..=8).contains(&slow), "{slow}");
    assert!((1..=2).contains(&fixed), "{fixed}");
    assert_eq!(bench.up(), [true, true]);
    assert_eq!(bench.result(None), Some(Ok(())));
}

#[test]
fn a_card_that_hangs_is_forgotten_while_the_others_stay_fresh() {
    let mut bench = Bench::open(8);
    bench.run(seconds(5), |_| false);
    assert_eq!(bench.up(), [true; 8]);
    let hung_at = bench.now;
    let actions = bench.run(seconds(20), |card| card == 3);
    assert!(actions.is_empty(), "{actions:?}");
    let facts = bench.supervisor.facts();
    for card in &facts.cards {
        let hung = card.index == 3;
        assert_eq!(facts.fast(card, bench.now).is_none(), hung);
        assert_eq!(facts.slow(card, bench.now).is_none(), hung);
        let age = bench.now.since(card.fast.as_ref().expect("read once").at);
        assert!(hung || age <= 2 * SECOND, "{age:?}");
    }
    let (fast, _) = bench.supervisor.outcome(None, bench.now);
    assert_eq!(fast.result, Some(Ok(())));
    assert_eq!(fast.partly.len(), 1);
    let hung = fast.hung_since.expect("one hangs");
    assert!(hung.since(hung_at) < seconds(2));
    // The answer comes after all.
    bench.answer(3, Group::Fast, "");
    bench.run(seconds(3), |_| false);
    assert_eq!(bench.up(), [true; 8]);
    assert_eq!(bench.supervisor.outcome(None, bench.now).0.hung_since, None);
}

#[test]
fn a_worker_whose_cards_all_hang_is_ended_killed_and_left_alone() {
    let mut bench = Bench::open(2);
    bench.run(seconds(5), |_| false);
    let actions = bench.run(seconds(59), |_| true);
    assert!(actions.is_empty(), "{actions:?}");
    assert_eq!(bench.run(seconds(4), |_| true), [Action::CloseInput]);
    assert_eq!(bench.run(seconds(8), |_| true), [Action::Kill]);
    assert_eq!(bench.run(seconds(5), |_| true), [Action::Abandon]);
    assert!(bench.supervisor.notes().contains(&Note::Abandoned));
    // Stuck in the kernel: the next one only after ten minutes.
    let actions = bench.run(seconds(590), |_| true);
    assert!(actions.is_empty(), "{actions:?}");
    assert_eq!(bench.run(SECOND * 11, |_| true), [Action::Start]);
}

#[test]
fn workers_that_cannot_be_killed_do_not_pile_up() {
    let mut bench = Bench::new();
    let mut starts = 0;
    for _ in 0..20 {
        let actions = bench.run(seconds(700), |_| true);
        if actions.contains(&Action::Start) {
            starts += 1;
            bench.supervisor.started(bench.now);
        }
    }
    assert_eq!(starts, 4);
    bench.supervisor.abandoned_ended();
    assert!(bench.run(seconds(700), |_| true).contains(&Action::Start));
}

#[test]
fn a_worker_that_dies_is_followed_by_another_after_a_pause_that_grows() {
    let mut bench = Bench::open(1);
    bench.run(seconds(5), |_| false);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        bench.supervisor.exited("signal: 6", bench.now);
        assert!(bench.tick().is_empty());
        assert_eq!(bench.up(), [false], "nothing is frozen");
        assert_eq!(kind(bench.result(None)), Some(ErrorKind::Crashed));
        let ended = bench.now;
        while bench.tick() != [Action::Start] {
            bench.wait(Duration::from_millis(100));
        }
        pauses.push(bench.now.since(ended).as_secs());
        bench.supervisor.started(bench.now);
        bench.supervisor.report(hello(1), bench.now);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    // One that lived for a while starts anew.
    bench.run(seconds(120), |_| false);
    assert_eq!(bench.up(), [true]);
    bench.supervisor.exited("signal: 6", bench.now);
    assert_eq!(bench.run(seconds(2), |_| false), [Action::Start]);
}

#[test]
fn a_library_that_hangs_when_opened_is_said_and_ended() {
    let mut bench = Bench::new();
    assert_eq!(bench.tick(), [Action::Start]);
    bench.supervisor.started(bench.now);
    bench.wait(seconds(30));
    assert!(bench.tick().is_empty());
    assert_eq!(kind(bench.result(Some(8))), Some(ErrorKind::Timeout));
    bench.wait(seconds(31));
    assert_eq!(bench.tick(), [Action::CloseInput]);
    bench.supervisor.exited("exit status: 75", bench.now);
    assert_eq!(bench.run(seconds(2), |_| false), [Action::Start]);
}

#[test]
fn a_driver_that_is_replaced_ends_the_worker() {
    let mut bench = Bench::open(2);
    bench.run(seconds(5), |_| false);
    let gone = Report::Failed(fault(FaultKind::VersionMismatch));
    assert_eq!(bench.supervisor.report(gone.clone(), bench.now), [Action::CloseInput]);
    // The other card's thread says the same.
    assert!(bench.supervisor.report(gone, bench.now).is_empty());
    let failed = |note: &Note| matches!(note, Note::Failed(_));
    assert_eq!(bench.supervisor.notes().into_iter().filter(failed).count(), 1);
    assert_eq!(bench.up(), [false, false]);
    assert_eq!(kind(bench.result(Some(2))), Some(ErrorKind::Protocol));
    bench.supervisor.exited("exit status: 0", bench.now);
    assert_eq!(bench.run(seconds(2), |_| false), [Action::Start]);
    bench.supervisor.started(bench.now);
    bench.supervisor.report(hello(2), bench.now);
    bench.run(seconds(2), |_| false);
    assert_eq!(bench.up(), [true, true]);
}

#[test]
fn a_node_without_cards_has_nothing_to_collect() {
    let mut bench = Bench::new();
    for _ in 0..3 {
        while bench.tick() != [Action::Start] {
            bench.wait(Duration::from_millis(100));
        }
        bench.supervisor.started(bench.now);
        let missing = Report::Failed(fault(FaultKind::LibraryMissing));
        assert_eq!(bench.supervisor.report(missing, bench.now), [Action::CloseInput]);
        bench.supervisor.exited("exit status: 0", bench.now);
    }
    assert_eq!(bench.supervisor.notes().len(), 1, "it is said once");
    let unsupported = |result| matches!(result, Some(Err(CollectError::Unsupported(_))));
    assert!(unsupported(bench.result(Some(0))));
    // With cards on the bus it is a fault.
    assert_eq!(kind(bench.result(Some(8))), Some(ErrorKind::Missing));
    assert_eq!(kind(bench.result(None)), Some(ErrorKind::Missing));
    let mut bench = Bench::open(0);
    bench.run(SECOND, |_| false);
    assert!(unsupported(bench.result(Some(0))));
    assert_eq!(kind(bench.result(Some(1))), Some(ErrorKind::Missing));
}

#[test]
fn cards_are_made_free_on_request_and_taken_back() {
    let mut bench = Bench::open(1);
    bench.run(seconds(2), |_| false);
    let until = bench.now + seconds(60);
    assert_eq!(bench.supervisor.release(until, bench.now), [Action::CloseInput]);
    bench.supervisor.report(Report::Bye { clean: true }, bench.now);
    bench.supervisor.exited("exit status: 0", bench.now);
    assert!(!bench.supervisor.has_worker());
    assert_eq!(bench.up(), [false]);
    assert_eq!(bench.supervisor.facts().library, Library::Released(until));
    assert!(bench.run(seconds(59), |_| false).is_empty());
    assert_eq!(bench.run(seconds(2), |_| false), [Action::Start]);
    // Asked for while it starts: it ends as soon as it can.
    let until = bench.now + seconds(60);
    assert!(bench.supervisor.release(until, bench.now).is_empty());
    bench.supervisor.started(bench.now);
    assert_eq!(bench.tick(), [Action::CloseInput]);
    bench.supervisor.exited("exit status: 0", bench.now);
    assert!(bench.run(seconds(1), |_| false).is_empty());
    bench.supervisor.attach(bench.now);
    bench.begin(1);
    bench.run(seconds(2), |_| false);
    assert_eq!(bench.up(), [true]);
    let notes = bench.supervisor.notes();
    assert!(!notes.iter().any(|note| matches!(note, Note::Died(_))), "{notes:?}");
}

#[test]
fn a_lost_card_is_told_once_and_keeps_its_counts() {
    let mut bench = Bench::open(2);
    bench.run(seconds(5), |_| false);
    bench.supervisor.notes();
    bench.supervisor.report(Report::Xid { card: 0, code: 79 }, bench.now);
    for _ in 0..20 {
        for action in bench.tick() {
            let Action::Say(Request::Poll { card, group }) = action else { panic!("{action:?}") };
            if card == 1 {
                bench.answer(1, group, &uuid(1));
                continue;
            }
            let fault = fault(FaultKind::GpuLost);
            let error = Report::Error { card, group, micros: 5, fault };
            bench.supervisor.report(error, bench.now);
        }
        bench.wait(Duration::from_millis(500));
    }
    assert_eq!(bench.up(), [false, true]);
    let facts = bench.supervisor.facts();
    assert!(facts.cards[0].is_lost());
    assert_eq!(facts.cards[0].xids.get(79).map(|seen| seen.count), Some(1));
    let fails = Note::CardFails("GPU-0 (0)".to_owned(), fault(FaultKind::GpuLost));
    assert_eq!(bench.supervisor.notes(), [Note::Xid("GPU-0".to_owned(), 79), fails]);
    let partly = bench.supervisor.outcome(None, bench.now).0.partly;
    assert!(matches!(&partly[..], [CollectError::Failed { kind: ErrorKind::Gone, .. }]));
    bench.run(seconds(2), |_| false);
    assert_eq!(bench.up(), [true, true]);
    assert_eq!(bench.supervisor.notes(), [Note::CardWorks("GPU-0".to_owned())]);
}

#[test]
fn cards_keep_their_names_when_the_driver_numbers_them_anew() {
    let mut bench = Bench::open(2);
    bench.run(seconds(2), |_| false);
    bench.supervisor.report(Report::Xid { card: 1, code: 48 }, bench.now);
    bench.supervisor.exited("exit status: 0", bench.now);
    bench.run(seconds(2), |_| false);
    bench.supervisor.started(bench.now);
    bench.supervisor.report(hello(1), bench.now);
    // Card 0 is gone for good; what was card 1 is card 0 now.
    for group in [Group::Fixed, Group::Slow, Group::Fast] {
        bench.tick();
        bench.answer(0, group, "GPU-1");
    }
    let facts = bench.supervisor.facts();
    let cards: Vec<_> = facts.cards.iter().map(|card| (card.index, card.id())).collect();
    assert_eq!(cards, [(0, "GPU-0"), (0, "GPU-1")]);
    assert_eq!(bench.up(), [false, true]);
    assert_eq!(facts.cards[1].xids.get(48).map(|seen| seen.count), Some(1));
}

#[test]
fn no_value_goes_to_a_card_whose_name_was_not_said() {
    let mut bench = Bench::open(2);
    bench.run(seconds(2), |_| false);
    bench.supervisor.exited("exit status: 0", bench.now);
    bench.run(seconds(2), |_| false);
    bench.supervisor.started(bench.now);
    bench.supervisor.report(hello(1), bench.now);
    bench.supervisor.report(Report::Listening { card: 0, fault: None }, bench.now);
    // What was card 1 is card 0 now, and does not say so for a while: nothing else is asked.
    let name = Action::Say(Request::Poll { card: 0, group: Group::Fixed });
    let mut asked = 0;
    for _ in 0..100 {
        for action in bench.tick() {
            assert_eq!(action, name);
            asked += 1;
            let fault = fault(FaultKind::Timeout);
            let error = Report::Error { card: 0, group: Group::Fixed, micros: 5, fault };
            bench.supervisor.report(error, bench.now);
        }
        assert!(bench.supervisor.next(bench.now) > Duration::ZERO, "nothing is due at once");
        bench.wait(Duration::from_millis(100));
    }
    assert!((9..=12).contains(&asked), "{asked} times in 10 s");
    assert_eq!(bench.up(), [false, false]);
    assert_eq!(kind(bench.result(None)), Some(ErrorKind::Timeout), "and why");
    while bench.tick() != [name.clone()] {
        bench.wait(Duration::from_millis(100));
    }
    bench.answer(0, Group::Fixed, "GPU-1");
    for group in [Group::Slow, Group::Fast] {
        bench.tick();
        bench.answer(0, group, "GPU-1");
    }
    let facts = bench.supervisor.facts();
    let up: Vec<_> =
        facts.cards.iter().map(|card| (card.id(), facts.is_up(card, bench.now))).collect();
    assert_eq!(up, [("GPU-0", false), ("GPU-1", true)]);
    let listening: Vec<_> = facts.cards.iter().map(|card| card.listening.clone()).collect();
    assert_eq!(listening, [None, Some(Ok(()))], "it was said of the number");
    let soon = bench.run(seconds(30), |_| false);
    assert!(soon.is_empty(), "{soon:?}");
}

#[test]
fn cards_that_are_exchanged_all_the_time_are_forgotten_in_the_end() {
    let mut bench = Bench::open(1);
    for round in 0..200 {
        bench.tick();
        bench.answer(0, Group::Fixed, &format!("GPU-{round}"));
        bench.supervisor.exited("exit status: 0", bench.now);
        bench.wait(seconds(61));
        bench.begin(1);
    }
    assert!(bench.supervisor.facts().cards.len() <= 65);
}

#[test]
fn what_nobody_asked_for_is_not_believed() {
    let mut bench = Bench::open(1);
    bench.answer(0, Group::Fast, "");
    bench.answer(7, Group::Fast, "");
    bench.supervisor.report(Report::Xid { card: 7, code: 1 }, bench.now);
    let listening = Report::Listening { card: 7, fault: None };
    bench.supervisor.report(listening, bench.now);
    assert_eq!(bench.up(), [false]);
    assert_eq!(bench.supervisor.garbage("\"hello\" is no line", bench.now), [Action::CloseInput]);
    assert!(bench.supervisor.report(hello(9), bench.now).is_empty());
    assert_eq!(kind(bench.result(None)), Some(ErrorKind::Crashed));
}

#[test]
fn a_program_that_cannot_be_started_is_tried_again() {
    let mut bench = Bench::new();
    assert_eq!(bench.tick(), [Action::Start]);
    bench.supervisor.start_failed("no such file", bench.now);
    assert_eq!(kind(bench.result(None)), Some(ErrorKind::Crashed));
    assert_eq!(bench.run(seconds(2), |_| false), [Action::Start]);
}

#[test]
fn a_part_of_a_card_that_cannot_be_read_is_a_part_that_failed() {
    let mut bench = Bench::open(2);
    bench.run(seconds(2), |_| false);
    while !bench.tick().contains(&Action::Say(Request::Poll { card: 1, group: Group::Slow })) {
        bench.answer(0, Group::Fast, "");
        bench.answer(1, Group::Fast, "");
        bench.answer(0, Group::Slow, "");
        bench.wait(Duration::from_millis(100));
    }
    let fault = Fault { kind: FaultKind::NoPermission, detail: "f(1): no permission".to_owned() };
    let problems = vec![Problem { call: "f(1)".to_owned(), fault }];
    let values = Values::Slow(Box::new(Slow { problems, ..Slow::default() }));
    bench.supervisor.report(Report::Sample { card: 1, micros: 1, values }, bench.now);
    let (fast, slow) = bench.supervisor.outcome(None, bench.now);
    assert_eq!((fast.result, fast.partly), (Some(Ok(())), vec![]));
    let why = "card 1 (GPU-1): f(1): no permission";
    assert_eq!(slow.result, Some(Ok(())), "the rest of it worked");
    assert_eq!(slow.partly, [CollectError::new(ErrorKind::Permission, why)]);
}

#[test]
fn values_of_two_kinds_age_apart() {
    let mut bench = Bench::open(1);
    bench.tick();
    bench.answer(0, Group::Fixed, &uuid(0));
    bench.tick();
    let slow = Slow { pcie_replays: Some(1), ..Slow::default() };
    let values = Values::Slow(Box::new(slow));
    bench.supervisor.report(Report::Sample { card: 0, micros: 1, values }, bench.now);
    bench.tick();
    let fast = Fast { power_milliwatts: Some(2), ..Fast::default() };
    let values = Values::Fast(Box::new(fast));
    bench.supervisor.report(Report::Sample { card: 0, micros: 1, values }, bench.now);
    let facts = bench.supervisor.facts();
    let card = &facts.cards[0];
    assert!(facts.fast(card, bench.now + seconds(3)).is_some());
    assert!(facts.fast(card, bench.now + seconds(4)).is_none());
    // Slow values of a card that is not up are not shown, however fresh.
    assert!(facts.slow(card, bench.now + seconds(3)).is_some());
    assert!(facts.slow(card, bench.now + seconds(4)).is_none());
}
