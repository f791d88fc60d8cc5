//! The incident, replayed: one prefill and one decode worker behind a router, prompts of 15,000
//! tokens, 3,300 tokens computed per second, clients that wait for a minute. Once without bounds,
//! as it was, and once with those that a server has by default.

use std::time::Duration;

use admission::Limits as Bounds;
use engine::{EngineConfig, Retention, Scheduling};
use model::{FakeOptions, FakeTiming};
use transfer::Limits;
use types::{Time, TokenId};

use super::check;
use super::client::{Client, End};
use super::event::Which;
use super::rig::Dice;
use super::telemetry::Watch;
use super::wire::Weather;
use super::worker::{Plan, Plant};
use super::world::{Setting, World};

/// The objective for the time to first token, which the default bounds follow.
pub(crate) const OBJECTIVE: Duration = Duration::from_secs(30);
/// No bounds: run A.
pub(crate) const UNBOUNDED: Bounds =
    Bounds { max_queued_requests: 0, max_queued_tokens: Some(0), ttft_objective: Duration::ZERO };
/// What a server has when nobody says otherwise: run B.
pub(crate) const DEFAULTS: Bounds =
    Bounds { max_queued_requests: 32, max_queued_tokens: None, ttft_objective: OBJECTIVE };
/// How long a client waits for its first token.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long clients come.
const STORY: Duration = Duration::from_secs(300);
/// How long is looked at what comes after it.
const AFTERWARDS: Duration = Duration::from_secs(840);
/// Prompt tokens of all requests: 15,000 on average.
const PROMPT: (usize, usize) = (5_000, 25_000);

/// What one run shows.
#[derive(Debug)]
pub(crate) struct Shown {
    answered: usize,
    gave_up: usize,
    refusals: u64,
    transfer_errors: u64,
    peer_aborts: u64,
    drain_max: Duration,
    waiting_tokens_max: u64,
    ttft_p99: Duration,
    pub(crate) first_gave_up: Option<Duration>,
    drain_over_objective: Option<Duration>,
    slowest_refusal: Duration,
    most_refusals_of_one: usize,
}

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        let after = |time: Option<Duration>| time.map_or("never".to_owned(), seconds);
        writeln!(f, "answered                 {}", self.answered)?;
        writeln!(f, "gave up                  {}", self.gave_up)?;
        writeln!(f, "refusals                 {}", self.refusals)?;
        writeln!(f, "transfers given up       {}", self.peer_aborts)?;
        writeln!(f, "transfers that failed    {}", self.transfer_errors)?;
        writeln!(f, "longest drain time       {}", seconds(self.drain_max))?;
        writeln!(f, "most tokens waiting      {}", self.waiting_tokens_max)?;
        writeln!(f, "time to first token, p99 {}", seconds(self.ttft_p99))?;
        writeln!(f, "drain over the objective {}", after(self.drain_over_objective))?;
        writeln!(f, "first client gave up     {}", after(self.first_gave_up))?;
        writeln!(f, "slowest refusal          {:?}", self.slowest_refusal)
    }
}

pub(crate) fn worker(bounds: Bounds, prefill: bool) -> Plan {
    let model = FakeOptions {
        max_context: 32_768,
        timing: FakeTiming {
            step: Duration::from_millis(1),
            prefill_token: Duration::from_micros(303),
            decode_row: Duration::from_micros(500),
        },
        ..FakeOptions::default()
    };
    let tokens = if prefill { 400_000 } else { 1_000_000 };
    let engine = EngineConfig {
        max_running: if prefill { 8 } else { 64 },
        max_batch_tokens: 1024,
        prefill_chunk: 1024,
        pool_pages: vec![tokens / model.page_tokens],
        max_submissions: 1024,
        prefix_cache: true,
        host: None,
        retention: Retention::TailBranch,
        hit_curve: None,
        scheduling: Scheduling::default(),
        seed: 1,
    };
    Plan { engine, model, bounds, rate: 3300.0, limits: Limits::default(), plant: Plant::Nothing }
}

/// `clients` that ask, wait, and ask again, as long as the story lasts.
fn replay(bounds: Bounds, clients: usize) -> Result<(World, Shown), String> {
    replayed(bounds, clients, Duration::ZERO, None)
}

/// The same, with one client alone for as long as it is `calm`. Where somebody scrapes it, he goes
/// on looking for a while when the crowd is gone, and that one client goes on asking.
pub(crate) fn replayed(
    bounds: Bounds,
    clients: usize,
    calm: Duration,
    watch: Option<Watch>,
) -> Result<(World, Shown), String> {
    let weather = Weather { delay: (50, 500), bandwidth: 1 << 30, twice: 0, late: 0, broken: 0 };
    let setting = Setting {
        prefills: vec![worker(bounds, true)],
        decodes: vec![worker(bounds, false)],
        router: router::Config::default(),
        weather,
        local_tokens: 16,
    };
    let ends = calm + STORY;
    let goes_on = if watch.is_some() { AFTERWARDS } else { Duration::ZERO };
    let mut world = World::watched(setting, 7, watch)?;
    world.lasts = Time::ZERO + ends + goes_on;
    let mut dice = Dice::new(clients as u64);
    let stays = if goes_on.is_zero() { ends } else { ends + goes_on - PATIENCE };
    let mut seen = Seen { ends, stays, ..Seen::default() };
    for person in 0..clients {
        let calm = if person == 0 { Duration::ZERO } else { calm };
        let at = Time::ZERO + calm + Duration::from_secs(1) + dice.micros(0, 2_000_000);
        let request = request(&mut dice);
        let client = world.add(request, at);
        seen.current.push((client, person));
    }
    while world.open > 0 {
        if !world.step()? {
            return Err("clients are left and nothing happens any more".to_owned());
        }
        seen.look(&mut world, &mut dice);
    }
    let until = world.lasts.max(world.now + Duration::from_secs(10));
    while world.now < until && world.step()? {}
    check::at_rest(&world)?;
    check::balances(&world)?;
    let shown = seen.shown(&world);
    Ok((world, shown))
}

fn request(dice: &mut Dice) -> Client {
    let len = dice.size(PROMPT.0, PROMPT.1);
    let prompt = (0..len).map(|_| TokenId(dice.within(0, 90) as u32)).collect();
    let mut client = Client::new(prompt, dice.size(50, 200));
    client.patience = PATIENCE;
    // It believes what it is told.
    client.returns = 1000;
    client
}

#[derive(Debug, Default)]
struct Seen {
    /// When nobody asks any more.
    ends: Duration,
    /// When the first client does not any more.
    stays: Duration,
    /// The open request of each person.
    current: Vec<(usize, usize)>,
    looked: Time,
    drain_max: Duration,
    tokens_max: u64,
    over: Option<Duration>,
    gave_up: Option<Duration>,
}

impl Seen {
    /// Whoever has an answer, or has given up, asks the next thing.
    fn look(&mut self, world: &mut World, dice: &mut Dice) {
        let since = world.now.since(Time::ZERO);
        for place in &mut self.current {
            if !world.clients[place.0].is_over() {
                continue;
            }
            if world.clients[place.0].end() == Some(&End::Left) {
                self.gave_up.get_or_insert(since);
            }
            if since < if place.1 == 0 { self.stays } else { self.ends } {
                let at = world.now + dice.micros(100_000, 1_000_000);
                let next = request(dice);
                place.0 = world.add(next, at);
            }
        }
        if world.now.since(self.looked) >= Duration::from_millis(200) {
            self.looked = world.now;
            let worker = world.worker(Which::Prefill(0)).expect("nobody kills it");
            let queue = worker.admission.snapshot(worker.clock.read());
            self.drain_max = self.drain_max.max(queue.drain);
            self.tokens_max = self.tokens_max.max(queue.pending_uncached_tokens);
            if queue.drain > OBJECTIVE {
                self.over.get_or_insert(since);
            }
        }
    }

    fn shown(&self, world: &World) -> Shown {
        let mut waits: Vec<Duration> = world
            .clients
            .iter()
            .filter_map(|client| client.first_token.map(|first| first.since(client.came)))
            .collect();
        waits.sort_unstable();
        let p99 = waits.get(waits.len() * 99 / 100).or(waits.last());
        let refusals = || world.clients.iter().flat_map(|client| &client.refusals);
        let (sent, received) = (&world.tally.sent.failed, &world.tally.received.failed);
        let aborts = |reason: &str| sent.get(reason).copied().unwrap_or(0);
        let errors = |(reason, _): &(&&str, &u64)| !["peer_abort", "local_abort"].contains(*reason);
        Shown {
            answered: world.ended_with(&End::Answered),
            gave_up: world.ended_with(&End::Left),
            refusals: world.tally.refusals,
            transfer_errors: sent.iter().chain(received).filter(errors).map(|(_, n)| n).sum(),
            peer_aborts: aborts("peer_abort"),
            drain_max: self.drain_max,
            waiting_tokens_max: self.tokens_max,
            ttft_p99: p99.copied().unwrap_or_default(),
            first_gave_up: self.gave_up,
            drain_over_objective: self.over,
            slowest_refusal: refusals().map(|(_, took)| *took).max().unwrap_or_default(),
            most_refusals_of_one: world
                .clients
                .iter()
                .map(|client| client.refusals.len())
                .max()
                .unwrap_or(0),
        }
    }
}

#[test]
fn without_bounds_it_piles_up_and_cascades() {
    let (_, shown) = replay(UNBOUNDED, 30).expect("everything else still holds");
    println!("{shown}");
    assert!(shown.drain_max > Duration::from_secs(60), "no pile-up: {shown:?}");
    assert!(shown.gave_up > 0 && shown.peer_aborts > 0, "nobody gave up: {shown:?}");
    assert_eq!(shown.refusals, 0, "there are no bounds");
    let (warned, gave_up) = (shown.drain_over_objective, shown.first_gave_up);
    let (warned, gave_up) = (warned.expect("a long queue"), gave_up.expect("somebody did"));
    assert!(warned + Duration::from_secs(40) <= gave_up, "the queue tells in time: {shown:?}");
}

#[test]
fn with_the_default_bounds_whoever_is_let_in_is_served_in_time() {
    for clients in [15, 40] {
        let (_, shown) = replay(DEFAULTS, clients).expect("everything holds");
        println!("{clients} clients\n{shown}");
        assert!(shown.ttft_p99 <= OBJECTIVE, "{shown:?}");
        assert_eq!(shown.gave_up, 0, "{shown:?}");
        assert_eq!((shown.peer_aborts, shown.transfer_errors), (0, 0), "{shown:?}");
        assert!(shown.refusals > 0, "the load is too high for everybody: {shown:?}");
        assert!(shown.slowest_refusal < Duration::from_millis(50), "{shown:?}");
        assert!(shown.answered >= clients, "the honest get in: {shown:?}");
        // Nobody is sent away for ever.
        assert!(shown.most_refusals_of_one < 60, "{shown:?}");
    }
}
