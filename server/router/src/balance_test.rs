//! Balance under a prompt that everybody wants, in virtual time against simulated queues.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use protocol::internal::{LoadLimits, LoadRole};
use std::time::Duration;
use types::Time;

use crate::policy::Guard;
use crate::testing::*;
use crate::{Attempt, Config, Core, PolicyKind, Refusal, Route, Verdict, WorkerRole};

const WORKERS: usize = 8;
/// Prompt tokens per second of each.
const RATE: f64 = 800.0;
/// Bytes of a prompt: 4,000 tokens, which take 5 s.
const PROMPT: usize = 16_000;
/// Of which the first ones are what everybody asks for.
const HOT: usize = 12_000;

/// A worker that prefills one prompt after the other, and holds the hot prefix from the first one
/// that it has computed on.
#[derive(Default)]
struct Queue {
    /// When the last of what waits is done, in seconds.
    until: f64,
    hot_from: Option<f64>,
}

impl Queue {
    /// Adds a prompt; returns when it is prefilled.
    fn add(&mut self, hot: bool, now: f64) -> f64 {
        let begins = self.until.max(now);
        let cached = hot && self.hot_from.is_some_and(|from| from <= begins);
        let bytes = if cached { PROMPT - HOT } else { PROMPT };
        self.until = begins + bytes as f64 / 4.0 / RATE;
        if hot && self.hot_from.is_none() {
            self.hot_from = Some(self.until);
        }
        self.until
    }

    fn backlog(&self, now: f64) -> f64 {
        (self.until - now).max(0.0)
    }
}

fn prompt(hot: bool, number: u64) -> Vec<u8> {
    let mut prompt = vec![b'h'; if hot { HOT } else { 0 }];
    let own = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    prompt.extend(own.repeat((PROMPT - prompt.len()) / 8));
    prompt
}

/// Routes 800 prompts, three quarters of which are hot; reports come each second. Returns the
/// backlogs of all workers after each of the later ones, sorted.
fn run(config: Config, interval: f64) -> Vec<Vec<f64>> {
    let names: Vec<String> = (0..WORKERS).map(|at| format!("w{at}:1")).collect();
    let listed: Vec<_> = names.iter().map(|name| (name.as_str(), WorkerRole::Unified)).collect();
    let mut bed = Bed::ready(config, &listed);
    let mut queues: Vec<Queue> = (0..WORKERS).map(|_| Queue::default()).collect();
    let mut open: BinaryHeap<Reverse<(Time, usize)>> = BinaryHeap::new();
    let mut routes: Vec<Option<Route>> = Vec::new();
    let (mut backlogs, mut reported) = (Vec::new(), 1.0);
    for number in 0..800_u64 {
        let now = 1.0 + number as f64 * interval;
        bed.now = at(now);
        while open.peek().is_some_and(|Reverse((done, _))| *done <= bed.now) {
            let Some(Reverse((_, route))) = open.pop() else { break };
            routes[route] = None;
        }
        if now - reported >= 1.0 {
            reported = now;
            for (name, queue) in names.iter().zip(&queues) {
                let tokens = (queue.backlog(now) * RATE) as u64;
                let mut load = busy(LoadRole::Unified, tokens / 4_000, tokens);
                (load.limits, load.prefill_rate, load.running) = (Default::default(), RATE, 0);
                bed.tell(name, load);
            }
        }
        let hot = number % 4 != 0;
        let route = bed.route(&prompt(hot, number)).expect("all are ready");
        let at_worker = names.iter().position(|name| *name == route.serve.name.as_str());
        let worker = at_worker.expect("it is one of them");
        let done = queues[worker].add(hot, now);
        open.push(Reverse((at(done), routes.len())));
        routes.push(Some(route));
        if number >= 200 {
            let mut all: Vec<f64> = queues.iter().map(|queue| queue.backlog(now)).collect();
            all.sort_by(f64::total_cmp);
            backlogs.push(all);
        }
    }
    check_counts(&mut bed.core, routes, bed.now);
    backlogs
}

fn check_counts(core: &mut Core, routes: Vec<Option<Route>>, now: Time) {
    drop(routes);
    assert!(core.workers(now).iter().all(|view| view.own == crate::Amount::default()));
}

/// Moments at which a worker has more than twice the median to do, and more than one prompt.
fn uneven(backlogs: &[Vec<f64>]) -> usize {
    let alone = PROMPT as f64 / 4.0 / RATE;
    let over = |all: &&Vec<f64>| all[WORKERS - 1] > (2.0 * all[WORKERS / 2]).max(alone + 2.0);
    backlogs.iter().filter(over).count()
}

#[test]
fn no_worker_has_more_than_twice_the_median_to_do_under_a_hot_prefix() {
    // With the prefix cached everywhere the fleet does a prompt each 0.27 s: light load, nearly
    // all that it can do, and more than that.
    for interval in [0.50, 0.30, 0.25] {
        let backlogs = run(Config::default(), interval);
        assert_eq!(uneven(&backlogs), 0, "a prompt each {interval} s");
    }
}

#[test]
fn without_the_guard_the_hot_worker_is_buried() {
    let floor = Duration::from_secs(1 << 30);
    let guard = Guard { floor, occupancy_floor: 1e9, ..Config::default().guard };
    let config = Config { policy: PolicyKind::PrefixHash, guard, ..Config::default() };
    let backlogs = run(config, 0.30);
    assert!(uneven(&backlogs) > 300, "{} moments", uneven(&backlogs));
    let guarded = Config { policy: PolicyKind::PrefixHash, ..Config::default() };
    let backlogs = run(guarded, 0.30);
    assert!(uneven(&backlogs) <= 6, "{} of 600 moments", uneven(&backlogs));
}

/// The share of later turns of conversations that find what the turns before left.
fn found(policy: PolicyKind) -> f64 {
    let names: Vec<String> = (0..WORKERS).map(|at| format!("w{at}:1")).collect();
    let listed: Vec<_> = names.iter().map(|name| (name.as_str(), WorkerRole::Unified)).collect();
    let mut bed = Bed::ready(Config { policy, ..Config::default() }, &listed);
    let (mut turns, mut found) = (0, 0);
    for turn in 1..=10 {
        for conversation in 0..40_u64 {
            // All begin with the same 2,000 bytes, and grow by as much each time.
            let own = conversation.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
            let mut prompt = vec![b's'; 2_000];
            prompt.extend(own.repeat(turn * 250));
            let mut route = bed.route(&prompt).expect("all are ready");
            bed.core.answered(&mut route, bed.now);
            turns += usize::from(turn > 1);
            found += usize::from(turn > 1 && route.prefix_match > 0.6);
        }
    }
    found as f64 / turns as f64
}

#[test]
fn conversations_stay_where_their_beginning_is() {
    let (aware, hashed) = (found(PolicyKind::CacheAware), found(PolicyKind::PrefixHash));
    assert!(aware > 0.7 && hashed > 0.7, "{aware} {hashed}");
    assert!(found(PolicyKind::PowerOfTwo) < 0.5);
}

/// A worker that refuses what would wait for longer than `OBJECTIVE`.
const OBJECTIVE: f64 = 30.0;

#[test]
fn an_honest_client_gets_in_and_waits_no_longer_than_the_objective() {
    // 40 clients, each of whose prompts takes 5 s: 200 s of work at once.
    let mut bed = Bed::ready(Config::default(), &[("w:1", WorkerRole::Unified)]);
    let mut queue = Queue::default();
    // When each comes (again), and the prompts that are being computed.
    let mut clients: BinaryHeap<Reverse<(Time, u64)>> =
        (0..40).map(|number| Reverse((at(1.5 + number as f64 * 0.2), number))).collect();
    let (mut open, mut routes) = (BinaryHeap::new(), Vec::new());
    let (mut polled, mut asked, mut refused_late) = (1.0, 0, 0);
    while let Some(Reverse((time, number))) = clients.pop() {
        let now = time.since(Time::ZERO).as_secs_f64();
        while polled + 1.0 <= now {
            polled += 1.0;
            bed.now = at(polled);
            while open.peek().is_some_and(|Reverse((done, _))| *done <= bed.now) {
                let Some(Reverse((_, route))) = open.pop() else { break };
                routes[route] = None;
            }
            let tokens = (queue.backlog(polled) * RATE) as u64;
            let mut load = busy(LoadRole::Unified, tokens.div_ceil(4_000), tokens);
            load.limits = LoadLimits { requests: 0, tokens: 0, drain_ms: OBJECTIVE as u64 * 1000 };
            load.prefill_rate = RATE;
            bed.tell("w:1", load);
        }
        (bed.now, asked) = (time, asked + 1);
        let text = prompt(false, number);
        let (request, mut attempt) = (request(&text), Attempt::new());
        let wait = match bed.core.route(&request, &mut attempt, time) {
            Ok(route) if queue.backlog(now) + 5.0 <= OBJECTIVE => {
                let done = queue.add(false, now);
                assert!(done - now <= OBJECTIVE);
                open.push(Reverse((at(done), routes.len())));
                routes.push(Some(route));
                continue;
            }
            Ok(route) => {
                // The worker counts exactly; so much does its refusal say.
                refused_late += 1;
                let wait = (queue.backlog(now) + 5.0 - OBJECTIVE).ceil() as u64;
                match bed.core.failed(route, refusal(wait), &request, &mut attempt, time).0 {
                    Verdict::Pass { retry_after } => retry_after.expect("it was refused"),
                    Verdict::Again(..) => panic!("there is no other"),
                }
            }
            Err(Refusal::Overloaded { retry_after, .. }) => retry_after,
            Err(refusal) => panic!("{refusal}"),
        };
        assert!(wait <= admission::Returns::LONGEST, "{wait:?}");
        clients.push(Reverse((time + wait, number)));
    }
    assert_eq!(routes.len(), 40, "all got in");
    // It worked all the time: nobody was told to wait for longer than was needed.
    assert!(queue.until <= 1.5 + 200.0 + 5.0, "{}", queue.until);
    // And nobody came for nothing again and again: they were told to come one by one.
    assert!(asked < 40 * 6 && refused_late < asked / 4, "{asked} {refused_late}");
}
