//! A cluster in one thread and virtual time: the router's core, two prefill and two decode workers
//! with their engines, admission and transfers, on fake models.
//!
//! Each seed draws its own workers, bounds, links, clients and misfortunes (processes that die,
//! connections that break or fall silent, messages that come twice or late, bytes that break,
//! clients that leave), and checks at its end that everybody was told how it ended, that nothing is
//! left anywhere, and that every answer is the model's. The same seed always does the same.
//!
//! `SIGHTLINE_CLUSTER_SEEDS=10000` runs so many seeds instead of 500, `SIGHTLINE_CLUSTER_SEED=n`
//! seed `n` alone.

mod alerts;
mod check;
mod client;
mod event;
mod front;
mod incident;
mod lives;
mod load;
mod rig;
mod telemetry;
mod week;
mod wire;
mod worker;
mod world;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use client::End;
use rig::ensure;
use worker::Plant;
use world::{Tally, World};

const SEEDS: u64 = 500;
const SEED: &str = "SIGHTLINE_CLUSTER_SEED";
const SEED_COUNT: &str = "SIGHTLINE_CLUSTER_SEEDS";

/// More events than any story has: something goes round in circles.
const EVENTS_MAX: u64 = 3_000_000;
/// Longer than every time limit of the links.
const REST: Duration = Duration::from_secs(60);
/// A client that waits for longer than that is forgotten.
const LONGEST: Duration = Duration::from_secs(1000);

#[expect(clippy::disallowed_methods, reason = "a test is replayed by hand, it has no CLI")]
fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is not a number")))
}

fn seeds() -> Range<u64> {
    match variable(SEED) {
        Some(seed) => seed..seed + 1,
        None => 0..variable(SEED_COUNT).unwrap_or(SEEDS),
    }
}

/// What the seeds have seen, so that a test knows that it tested something.
#[derive(Debug, Default)]
struct Coverage {
    ends: [u64; 6],
    tally: Tally,
}

const ENDS: [End; 6] =
    [End::Answered, End::Refused, End::NoWorker, End::Failed, End::Cut, End::Left];

impl Coverage {
    fn add(&mut self, world: &World) {
        for (count, end) in self.ends.iter_mut().zip(&ENDS) {
            *count += world.ended_with(end) as u64;
        }
        let (sum, tally) = (&mut self.tally, &world.tally);
        sum.refusals += tally.refusals;
        sum.refused_by_router += tally.refused_by_router;
        sum.refused_by_prefill += tally.refused_by_prefill;
        sum.retries += tally.retries;
        sum.local += tally.local;
        sum.violations += tally.violations;
        sum.broken_frames += tally.broken_frames;
        sum.kills += tally.kills;
        sum.cuts += tally.cuts;
        sum.events += tally.events;
        for (own, other) in [(&mut sum.sent, &tally.sent), (&mut sum.received, &tally.received)] {
            own.ok += other.ok;
            for (reason, count) in &other.failed {
                *own.failed.entry(reason).or_default() += count;
            }
        }
    }
}

/// Runs one seed.
///
/// # Errors
/// Why it fails.
fn run(seed: u64, plant: Plant) -> Result<World, String> {
    let mut world = World::of_seed(seed, plant)?;
    while world.open > 0 {
        ensure!(world.step()?, "clients are left and nothing happens any more");
        ensure!(world.tally.events < EVENTS_MAX, "it goes round in circles");
        ensure!(world.now.since(types::Time::ZERO) < LONGEST, "somebody waits for ever");
    }
    let until = world.now + REST;
    while world.now < until && world.step()? {}
    check::at_rest(&world)?;
    check::balances(&world)?;
    Ok(world)
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without words".to_owned())
}

#[test]
fn every_seed_keeps_every_invariant() {
    let seeds = seeds();
    let (next, failed) = (AtomicU64::new(seeds.start), Mutex::new(None::<(u64, String)>));
    let coverage = Mutex::new(Coverage::default());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || failed.lock().expect("no panics here").is_some() {
                        return;
                    }
                    let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, Plant::Nothing)));
                    match outcome.unwrap_or_else(|panic| Err(panic_text(&*panic))) {
                        Ok(world) => coverage.lock().expect("no panics here").add(&world),
                        Err(why) => {
                            failed.lock().expect("no panics here").get_or_insert((seed, why));
                        }
                    }
                }
            });
        }
    });
    if let Some((seed, why)) = failed.into_inner().expect("no panics here") {
        panic!(
            "seed {seed}: {why}\nreplay: {SEED}={seed} cargo test -p tests --test cluster \
             every_seed_keeps -- --nocapture"
        );
    }
    let coverage = coverage.into_inner().expect("no panics here");
    println!("{coverage:#?}");
    if seeds.end - seeds.start >= SEEDS {
        covers(&coverage);
    }
}

/// What the checks are worth: engines that never learn that a link has let go keep pages for ever,
/// and prefill workers that never learn that everything has arrived keep requests.
#[test]
fn planted_faults_are_found() {
    // What is kept shows at the end, or makes somebody wait for it for ever.
    for (plant, sign) in [(Plant::LostSettled, "in held"), (Plant::LostDelivered, "left")] {
        let signs = |why: &String| why.contains(sign) || why.contains("waits for ever");
        let found = (0..12).filter_map(|seed| run(seed, plant).err()).filter(signs).count();
        assert!(found > 0, "{plant:?} was not found");
    }
}

/// A simulation that never meets what it is for proves nothing.
fn covers(coverage: &Coverage) {
    let Coverage { ends, tally } = coverage;
    for (end, count) in ENDS.iter().zip(ends) {
        assert!(*count > 0, "no client ended {end:?}");
    }
    let counts = [
        ("refused by the router", tally.refused_by_router),
        ("refused by a prefill worker", tally.refused_by_prefill),
        ("retries", tally.retries),
        ("computed by the decode worker", tally.local),
        ("broken frames", tally.broken_frames),
        ("kills", tally.kills),
        ("cuts", tally.cuts),
        ("transfers", tally.received.ok),
    ];
    for (name, count) in counts {
        assert!(count > 0, "{name}: none");
    }
    for reason in ["peer_abort", "local_abort", "peer_gone", "connect"] {
        let sides = [&tally.sent, &tally.received];
        let seen = sides.iter().any(|side| side.failed.contains_key(reason));
        assert!(seen, "no transfer failed by {reason}: {tally:#?}");
    }
}
