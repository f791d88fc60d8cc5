//! Seeded simulation: the whole engine on a fake model in virtual time.
//!
//! Each seed draws its own bounds, pool, load, clients and faults, then checks every invariant
//! after every turn and every balance at the end. The same seed always does the same.
//!
//! `SIGHTLINE_SIM_SEEDS=10000` runs so many seeds instead of 500, `SIGHTLINE_SIM_SEED=n` seed `n`
//! alone. `SIGHTLINE_SIM_PLANT=n` makes the engine lose the pages of request `n`, and
//! `SIGHTLINE_SIM_PLANT_LOAD=n` makes load `n` from the host tier move nothing, and
//! `SIGHTLINE_SIM_PLANT_EARLY=n` gives pages back though a link still uses them.

mod check;
mod client;
mod copier;
mod cover;
mod door;
mod ending;
mod link;
mod load;
mod order;
mod rig;
mod tally;
mod world;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tally::Coverage;

/// Fails the seed with a message, as `assert!` fails a test.
macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err(format!($($message)+));
        }
    };
}
use ensure;

const SEEDS: u64 = 500;
const PLANT_SEEDS: u64 = 100;

/// How rows show that are not where they should be: to the model, and to a link.
const NOT_THERE: [&str; 2] = ["does not hold position", "on the wire holds"];
const SEED: &str = "SIGHTLINE_SIM_SEED";
const SEED_COUNT: &str = "SIGHTLINE_SIM_SEEDS";

/// A fault that a test plants, in the `n`th of those that it could befall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plant {
    Leak(u32),
    LostLoad(u32),
    /// Pages are given back before their link has let go.
    Early(u32),
}

impl Plant {
    const LEAK: &str = "SIGHTLINE_SIM_PLANT";
    const LOST_LOAD: &str = "SIGHTLINE_SIM_PLANT_LOAD";
    const EARLY: &str = "SIGHTLINE_SIM_PLANT_EARLY";

    const fn variable(self) -> (&'static str, u32) {
        match self {
            Self::Leak(nth) => (Self::LEAK, nth),
            Self::LostLoad(nth) => (Self::LOST_LOAD, nth),
            Self::Early(nth) => (Self::EARLY, nth),
        }
    }

    fn from_variables() -> Option<Self> {
        let small = |nth: u64| u32::try_from(nth).expect("a small number");
        let leak = variable(Self::LEAK).map(|nth| Self::Leak(small(nth)));
        let load = || variable(Self::LOST_LOAD).map(|nth| Self::LostLoad(small(nth)));
        let early = || variable(Self::EARLY).map(|nth| Self::Early(small(nth)));
        leak.or_else(load).or_else(early)
    }
}

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

/// Runs one seed; a panic of the engine fails it too.
///
/// # Errors
/// Why the seed fails.
fn run(seed: u64, plant: Option<Plant>) -> Result<Coverage, String> {
    run_planted(seed, plant).0
}

/// As [`run`]; also whether the planted fault was reached.
fn run_planted(seed: u64, plant: Option<Plant>) -> (Result<Coverage, String>, bool) {
    match plant {
        Some(Plant::Leak(nth)) => crate::testing::plant_leak(nth),
        Some(Plant::LostLoad(nth)) => crate::testing::plant_lost_load(nth),
        Some(Plant::Early(nth)) => crate::testing::plant_early(nth),
        None => {}
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| world::run(seed)));
    let reached = !crate::testing::clear();
    let panicked =
        |panic: Box<dyn std::any::Any + Send>| Err(crate::step::panic_text(&*panic).to_owned());
    (outcome.unwrap_or_else(panicked), reached)
}

/// What to type to see it again.
fn replay(seed: u64) -> String {
    let plant = Plant::from_variables().map(Plant::variable);
    let plant = plant.map(|(name, nth)| format!("{name}={nth} ")).unwrap_or_default();
    format!("{plant}{SEED}={seed} cargo test -p engine --lib every_seed_keeps -- --nocapture")
}

#[test]
fn every_seed_keeps_every_invariant() {
    let (seeds, plant) = (seeds(), Plant::from_variables());
    let (next, failed) = (AtomicU64::new(seeds.start), Mutex::new(None::<(u64, String)>));
    let coverage = Mutex::new(Coverage::default());
    let worker = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || failed.lock().expect("no panics here").is_some() {
                return;
            }
            match run(seed, plant) {
                Ok(covered) => coverage.lock().expect("no panics here").add(&covered),
                Err(why) => {
                    failed.lock().expect("no panics here").get_or_insert((seed, why));
                }
            }
        }
    };
    std::thread::scope(|threads| {
        for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            threads.spawn(worker);
        }
    });
    if let Some((seed, why)) = failed.into_inner().expect("no panics here") {
        panic!("seed {seed}: {why}\nreplay: {}", replay(seed));
    }
    let coverage = coverage.into_inner().expect("no panics here");
    println!("{coverage}");
    if seeds.end - seeds.start >= SEEDS {
        coverage.check();
    }
}

/// The command that a failing seed prints, run as it stands: the same seed fails the same way.
#[test]
fn a_failing_seed_fails_again_when_it_is_replayed() {
    let (seed, plant) = (7, Plant::Leak(5));
    let why = run(seed, Some(plant)).expect_err("the planted leak is found");
    let program = std::env::current_exe().expect("this program has a path");
    let again = |plant: Option<Plant>| {
        let mut command = Command::new(&program);
        command.args(["every_seed_keeps", "--nocapture"]).env(SEED, seed.to_string());
        command.env_remove(SEED_COUNT).env_remove(Plant::LEAK).env_remove(Plant::LOST_LOAD);
        command.env_remove(Plant::EARLY);
        if let Some((name, nth)) = plant.map(Plant::variable) {
            command.env(name, nth.to_string());
        }
        let output = command.output().expect("this program runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    let (passed, text) = again(Some(plant));
    assert!(!passed && text.contains(&format!("seed {seed}: {why}")), "{text}");
    let command = format!("{}=5 {SEED}={seed} cargo test -p engine --lib", Plant::LEAK);
    assert!(text.contains(&command), "{text}");
    let (passed, text) = again(None);
    assert!(passed, "without the fault the seed is sound: {text}");
}

/// Runs seeds with the fault; returns how many found it and how many had it. Those that fail must
/// fail with one of `symptoms`.
fn planted(plant: impl Fn(u64) -> Plant, symptoms: &[&str]) -> (u64, u64) {
    let (mut found, mut reached) = (0, 0);
    for seed in 0..PLANT_SEEDS {
        let (outcome, planted) = run_planted(seed, Some(plant(seed)));
        reached += u64::from(planted);
        match outcome {
            Ok(_) => {}
            Err(why) => {
                let known = symptoms.iter().any(|symptom| why.contains(symptom));
                assert!(known, "seed {seed} failed for another reason: {why}");
                found += 1;
            }
        }
    }
    println!("the fault was found by {found} of {PLANT_SEEDS} seeds, {reached} had it");
    (found, reached)
}

#[test]
fn a_planted_page_leak_is_found() {
    // The pages of the nth request that ends with some; a few seeds see fewer of those.
    let (found, reached) = planted(|seed| Plant::Leak((seed % 40) as u32), &["page"]);
    assert_eq!(found, reached);
    assert!(reached > PLANT_SEEDS * 9 / 10, "{reached}");
}

/// A load that is told to be done and has moved nothing. Not every seed has a host tier, and not
/// every tier so many loads.
#[test]
fn a_planted_load_that_moves_nothing_is_found() {
    let (found, reached) = planted(|seed| Plant::LostLoad((seed % 5) as u32), &NOT_THERE);
    // What is loaded for a request whose transfer then fails is not always read.
    assert!(10 * found >= 8 * reached, "{found} of {reached}");
    assert!(reached > PLANT_SEEDS / 5, "{reached}");
}

/// Pages that are given back although a link still reads or writes them. Not always does somebody
/// else get them in time to notice.
#[test]
fn planted_pages_that_are_given_back_early_are_found() {
    let mut found = 0;
    for seed in 0..PLANT_SEEDS {
        if let (Err(why), true) = run_planted(seed, Some(Plant::Early((seed % 7) as u32))) {
            let known = NOT_THERE.iter().any(|symptom| why.contains(symptom));
            assert!(known, "seed {seed} failed for another reason: {why}");
            found += 1;
        }
    }
    assert!(found > PLANT_SEEDS / 10, "{found} of {PLANT_SEEDS} seeds");
}

#[test]
fn a_seed_is_deterministic() {
    for seed in [3, 77] {
        let (first, second) = (world::run(seed), world::run(seed));
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
    }
}
