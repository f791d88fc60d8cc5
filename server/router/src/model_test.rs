//! Random lists, polls, drains, routes, failures and ends against what workers have said.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use protocol::internal::{LoadReport, LoadState};

use types::Time;

use crate::testing::*;
use crate::*;

const WORKERS: [(&str, WorkerRole); 7] = [
    ("u1:1", WorkerRole::Unified),
    ("u2:1", WorkerRole::Unified),
    ("p1:1", WorkerRole::Prefill),
    ("p2:1", WorkerRole::Prefill),
    ("d1:1", WorkerRole::Decode),
    ("d2:1", WorkerRole::Decode),
    ("d3:1", WorkerRole::Decode),
];

const SOURCES: usize = Source::ALL.len();

/// What may wait: little, so that it is often full.
const HOLD: HoldConfig = HoldConfig { time: Duration::from_secs(5), requests: 3, tokens: 2_000 };

#[derive(Debug, Clone)]
enum Action {
    List { source: usize, listed: u8 },
    Tell { worker: usize, state: LoadState, instance: u8, print: u8, tokens: u64 },
    Silent { worker: usize },
    LatePoll { worker: usize },
    Drain { worker: usize, on: bool },
    Route { stem: u8, length: usize },
    Answered { pick: usize },
    Failed { pick: usize, kind: usize, by_prefill: bool, begun: bool },
    Ended { pick: usize },
    Pass { millis: u64 },
    Hold { length: usize },
    Held { pick: usize },
}

fn action() -> impl Strategy<Value = Action> {
    let worker = 0..WORKERS.len();
    let state = prop_oneof![
        6 => Just(LoadState::Ready),
        1 => Just(LoadState::Starting),
        1 => Just(LoadState::Draining),
        1 => Just(LoadState::Failed),
    ];
    let instance = prop_oneof![5 => Just(0_u8), 1 => 1..3_u8];
    let print = prop_oneof![5 => Just(0_u8), 1 => Just(1_u8)];
    let tells = (worker.clone(), state, instance, print, 0..150_000_u64);
    let fails = (0..64_usize, 0..FAILURES.len(), any::<bool>(), any::<bool>());
    prop_oneof![
        2 => (0..SOURCES, any::<u8>()).prop_map(|(source, listed)| Action::List { source, listed }),
        10 => tells.prop_map(|(worker, state, instance, print, tokens)|
            Action::Tell { worker, state, instance, print, tokens }),
        1 => worker.clone().prop_map(|worker| Action::Silent { worker }),
        1 => worker.clone().prop_map(|worker| Action::LatePoll { worker }),
        1 => (worker, any::<bool>()).prop_map(|(worker, on)| Action::Drain { worker, on }),
        10 => (0..4_u8, 0..6_000_usize).prop_map(|(stem, length)| Action::Route { stem, length }),
        4 => (0..64_usize).prop_map(|pick| Action::Answered { pick }),
        4 => fails.prop_map(|(pick, kind, by_prefill, begun)|
            Action::Failed { pick, kind, by_prefill, begun }),
        4 => (0..64_usize).prop_map(|pick| Action::Ended { pick }),
        2 => (0..5_000_u64).prop_map(|millis| Action::Pass { millis }),
        4 => (0..6_000_usize).prop_map(|length| Action::Hold { length }),
        2 => (0..64_usize).prop_map(|pick| Action::Held { pick }),
    ]
}

const FAILURES: [FailureKind; 8] = [
    FailureKind::Connect,
    FailureKind::Broken,
    FailureKind::FirstByteTimeout,
    FailureKind::IdleTimeout,
    FailureKind::Rejected { status: 429, retry_after: None },
    FailureKind::Rejected { status: 503, retry_after: None },
    FailureKind::Status(500),
    FailureKind::BadRequest(400),
];

struct Open {
    route: Route,
    prompt: Vec<u8>,
    attempt: Attempt,
}

/// What a worker said last.
#[derive(Clone, PartialEq)]
struct Said {
    state: LoadState,
    instance: u8,
    print: u8,
}

struct World {
    bed: Bed,
    listed: [u8; SOURCES],
    said: BTreeMap<&'static str, Said>,
    drained: BTreeMap<&'static str, bool>,
    open: Vec<Open>,
    /// Those that wait.
    held: Vec<Place>,
    /// When somebody could be asked last, at a moment at which a worker had told its load.
    answered: Option<Time>,
}

impl World {
    fn new() -> Self {
        let config = Config { refuse_at_door: true, hold: HOLD, ..Config::default() };
        Self {
            bed: Bed::listed(config, &[]),
            listed: [0; SOURCES],
            said: BTreeMap::new(),
            drained: BTreeMap::new(),
            open: Vec::new(),
            held: Vec::new(),
            answered: None,
        }
    }

    fn is_listed(&self, worker: usize) -> bool {
        self.listed.iter().any(|listed| listed >> worker & 1 == 1)
    }

    fn list(&mut self, source: usize, listed: u8) {
        let before: Vec<bool> = (0..WORKERS.len()).map(|worker| self.is_listed(worker)).collect();
        self.listed[source] = listed;
        let specs: Vec<WorkerSpec> = WORKERS
            .iter()
            .enumerate()
            .filter(|(worker, _)| listed >> worker & 1 == 1)
            .map(|(_, (name, role))| spec(name, *role))
            .collect();
        self.bed.core.relist(Source::ALL[source], &specs).expect("they are few");
        for (worker, (name, _)) in WORKERS.iter().enumerate() {
            if !before[worker] || !self.is_listed(worker) {
                self.said.remove(name);
                self.drained.remove(name);
            }
        }
    }

    /// Is there what the action is about?
    fn applies(&self, action: &Action) -> bool {
        match action {
            Action::Tell { worker, .. }
            | Action::Silent { worker }
            | Action::LatePoll { worker }
            | Action::Drain { worker, .. } => self.is_listed(*worker),
            Action::Answered { .. } | Action::Failed { .. } | Action::Ended { .. } => {
                !self.open.is_empty()
            }
            Action::List { .. }
            | Action::Route { .. }
            | Action::Pass { .. }
            | Action::Hold { .. } => true,
            Action::Held { .. } => !self.held.is_empty(),
        }
    }

    fn apply(&mut self, action: Action) -> Result<(), TestCaseError> {
        if !self.applies(&action) {
            return Ok(());
        }
        match action {
            Action::List { source, listed } => self.list(source, listed),
            Action::Tell { worker, state, instance, print, tokens } => {
                let (name, role) = WORKERS[worker];
                let load = LoadReport {
                    state,
                    instance_id: instance.to_string(),
                    fingerprint: print.to_string(),
                    ..busy(load_role(role), tokens / 15_000, tokens)
                };
                self.bed.tell(name, load);
                self.said.insert(name, Said { state, instance, print });
                if self.bed.core.readiness(self.bed.now).is_ok() {
                    self.answered = Some(self.bed.now);
                }
            }
            Action::Silent { worker } => {
                self.bed.silent(WORKERS[worker].0);
            }
            Action::LatePoll { worker } => {
                // Its answer comes when the worker is another one; then it says nothing.
                let worker = name(WORKERS[worker].0);
                let poll = self.bed.core.poll_began(&worker, self.bed.now).expect("it is listed");
                let listed = self.listed;
                (0..SOURCES).for_each(|source| self.list(source, 0));
                (0..SOURCES).for_each(|source| self.list(source, listed[source]));
                let models = vec!["m".to_owned()];
                let late =
                    self.bed.core.poll_ended(&poll, Ok(Answer::Plain { models }), self.bed.now);
                prop_assert!(late.is_empty());
            }
            Action::Drain { worker, on } => {
                let (core, now) = (&mut self.bed.core, self.bed.now);
                let worker = WORKERS[worker].0;
                let done = match on {
                    true => core.drain(&name(worker), DrainBy::Operator, now),
                    false => core.undrain(&name(worker), DrainBy::Operator, now),
                };
                prop_assert!(done.is_ok());
                self.drained.insert(worker, on);
            }
            Action::Route { stem, length } => self.route(vec![stem; length])?,
            Action::Answered { pick } => {
                let pick = pick % self.open.len();
                self.bed.core.answered(&mut self.open[pick].route, self.bed.now);
                prop_assert_eq!(self.open[pick].route.serve.counts().pending, 0);
            }
            Action::Failed { pick, kind, by_prefill, begun } => {
                let failure = Failure { kind: FAILURES[kind], by_prefill, answer_begun: begun };
                self.failed(pick % self.open.len(), failure)?;
            }
            Action::Ended { pick } => {
                self.open.swap_remove(pick % self.open.len());
            }
            Action::Pass { millis } => self.bed.pass(millis as f64 / 1000.0),
            Action::Hold { length } => self.hold(&vec![b'a'; length])?,
            Action::Held { pick } => {
                self.held.swap_remove(pick % self.held.len());
            }
        }
        self.check()
    }

    fn route(&mut self, prompt: Vec<u8>) -> Result<(), TestCaseError> {
        let mut attempt = Attempt::new();
        let routed = self.bed.core.route(&request(&prompt), &mut attempt, self.bed.now);
        if let Ok(route) = routed {
            self.check_route(&route)?;
            self.open.push(Open { route, prompt, attempt });
        }
        Ok(())
    }

    /// Who waits does so within the bounds, after a moment at which somebody could be asked.
    fn hold(&mut self, prompt: &[u8]) -> Result<(), TestCaseError> {
        let before = self.bed.core.held();
        let now = self.bed.now;
        match self.bed.core.hold(&request(prompt), now) {
            Hold::Wait(place) => {
                let seen = self.answered.expect("somebody could be asked once");
                prop_assert!(now < place.until() && place.until() <= seen + HOLD.time);
                self.held.push(place);
            }
            Hold::Full => {
                let tokens = self.bed.core.tokens("m", prompt.len());
                let full = before.requests == HOLD.requests || before.tokens + tokens > HOLD.tokens;
                prop_assert!(full, "{before:?} and {tokens} tokens");
            }
            Hold::Pointless => {}
        }
        Ok(())
    }

    fn failed(&mut self, pick: usize, failure: Failure) -> Result<(), TestCaseError> {
        let Open { route, prompt, mut attempt } = self.open.swap_remove(pick);
        let blamed = match (&route.prefill, failure.by_prefill) {
            (Some(prefill), true) => prefill.key,
            (_, _) => route.serve.key,
        };
        let tries = attempt.tries();
        let (verdict, _) =
            self.bed.core.failed(route, failure, &request(&prompt), &mut attempt, self.bed.now);
        if let Verdict::Again(route, _) = verdict {
            prop_assert!(!failure.answer_begun);
            prop_assert!(!matches!(failure.kind, FailureKind::BadRequest(_)));
            prop_assert!(attempt.tries() == tries + 1 && attempt.tries() <= 3);
            let again = route.prefill.iter().chain([&route.serve]).any(|leg| leg.key == blamed);
            prop_assert!(!again, "{blamed:?} was just tried");
            self.check_route(&route)?;
            self.open.push(Open { route: *route, prompt, attempt });
        }
        Ok(())
    }

    /// Only workers that are listed and said that they are ready, and pairs that fit.
    fn check_route(&self, route: &Route) -> Result<(), TestCaseError> {
        for leg in route.prefill.iter().chain([&route.serve]) {
            let worker = WORKERS.iter().position(|(name, _)| *name == leg.name.as_str());
            let worker = worker.expect("one of those listed");
            let said = self.said.get(WORKERS[worker].0);
            prop_assert!(self.is_listed(worker), "{} is not listed", leg.name);
            prop_assert!(said.is_some_and(|said| said.state == LoadState::Ready), "{}", leg.name);
            prop_assert_ne!(self.drained.get(WORKERS[worker].0), Some(&true));
        }
        let print = |leg: &Leg| self.said.get(leg.name.as_str()).map(|said| said.print);
        let is = |leg: &Leg, role| leg.role == role;
        match &route.prefill {
            Some(prefill) => {
                prop_assert!(is(prefill, WorkerRole::Prefill));
                prop_assert!(is(&route.serve, WorkerRole::Decode));
                prop_assert_eq!(print(prefill), print(&route.serve));
            }
            None => prop_assert!(is(&route.serve, WorkerRole::Unified)),
        }
        Ok(())
    }

    /// The counts are those of the routes that are open, whatever came and went.
    fn check(&self) -> Result<(), TestCaseError> {
        let held = self.bed.core.held();
        prop_assert_eq!(held.requests, self.held.len());
        prop_assert_eq!(held.tokens, self.held.iter().map(Place::tokens).sum::<u64>());
        prop_assert!(held.requests <= HOLD.requests && held.tokens <= HOLD.tokens);
        let mut counts: BTreeMap<&str, Amount> = BTreeMap::new();
        for open in &self.open {
            for leg in open.route.prefill.iter().chain([&open.route.serve]) {
                let count = counts.entry(leg.name.as_str()).or_default();
                count.requests += leg.counts().requests;
                count.pending += leg.counts().pending;
                count.kv += leg.counts().kv;
            }
        }
        for view in self.bed.core.workers(self.bed.now) {
            let expected = counts.get(view.name.as_str()).copied().unwrap_or_default();
            prop_assert_eq!(view.own, expected, "{}", view.name);
            prop_assert!(view.share > 0.0 && view.share <= 1.0, "{}", view.share);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    #[test]
    fn only_those_who_can_be_asked_are_asked_and_all_counts_return_to_zero(
        actions in proptest::collection::vec(action(), 1..120),
    ) {
        let mut world = World::new();
        world.list(0, 0x7f);
        for action in actions {
            world.apply(action)?;
        }
        world.open.clear();
        world.held.clear();
        world.check()?;
        let views = world.bed.core.workers(world.bed.now);
        prop_assert!(views.iter().all(|view| view.own == Amount::default()));
    }
}
