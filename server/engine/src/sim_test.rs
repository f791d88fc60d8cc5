//! Seeded simulation: the whole engine on a fake model in virtual time.
//!
//! Each seed draws its own bounds, pool, load, clients and faults, then checks every invariant
//! after every turn and every balance at the end. The same seed always does the same.
//!
//! `SIGHTLINE_SIM_SEEDS=10000` runs so many seeds instead of 500, `SIGHTLINE_SIM_SEED=n` seed `n`
//! alone, and `SIGHTLINE_SIM_PLANT=n` makes the engine lose the pages of request `n`.

mod check;
mod client;
mod dice;
mod door;
mod ending;
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
const LEAK_SEEDS: u64 = 100;
const SEED: &str = "SIGHTLINE_SIM_SEED";
const SEED_COUNT: &str = "SIGHTLINE_SIM_SEEDS";
const PLANT: &str = "SIGHTLINE_SIM_PLANT";

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
fn run(seed: u64, plant: Option<u64>) -> Result<Coverage, String> {
    run_planted(seed, plant).0
}

/// As [`run`]; also whether the planted fault was reached.
fn run_planted(seed: u64, plant: Option<u64>) -> (Result<Coverage, String>, bool) {
    if let Some(nth) = plant {
        crate::testing::plant_leak(u32::try_from(nth).expect("a small number"));
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| world::run(seed)));
    let reached = !crate::testing::clear_leak();
    let panicked =
        |panic: Box<dyn std::any::Any + Send>| Err(crate::step::panic_text(&*panic).to_owned());
    (outcome.unwrap_or_else(panicked), reached)
}

/// What to type to see it again.
fn replay(seed: u64) -> String {
    let plant = variable(PLANT).map(|nth| format!("{PLANT}={nth} ")).unwrap_or_default();
    format!("{plant}{SEED}={seed} cargo test -p engine --lib every_seed_keeps -- --nocapture")
}

#[test]
fn every_seed_keeps_every_invariant() {
    let (seeds, plant) = (seeds(), variable(PLANT));
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
    let (seed, plant) = (7, 5);
    let why = run(seed, Some(plant)).expect_err("the planted leak is found");
    let program = std::env::current_exe().expect("this program has a path");
    let again = |plant: Option<u64>| {
        let mut command = Command::new(&program);
        command.args(["every_seed_keeps", "--nocapture"]).env(SEED, seed.to_string());
        command.env_remove(SEED_COUNT).env_remove(PLANT);
        if let Some(nth) = plant {
            command.env(PLANT, nth.to_string());
        }
        let output = command.output().expect("this program runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    let (passed, text) = again(Some(plant));
    assert!(!passed && text.contains(&format!("seed {seed}: {why}")), "{text}");
    let command = format!("{PLANT}={plant} {SEED}={seed} cargo test -p engine --lib");
    assert!(text.contains(&command), "{text}");
    let (passed, text) = again(None);
    assert!(passed, "without the fault the seed is sound: {text}");
}

#[test]
fn a_planted_page_leak_is_found() {
    let (mut found, mut reached) = (0, 0);
    for seed in 0..LEAK_SEEDS {
        // The pages of the nth request that ends with some; a few seeds see fewer of those.
        let (outcome, leaked) = run_planted(seed, Some(seed % 40));
        reached += u64::from(leaked);
        match outcome {
            Ok(_) => {}
            Err(why) => {
                assert!(why.contains("page"), "seed {seed} failed for another reason: {why}");
                found += 1;
            }
        }
    }
    println!("the leak was found by {found} of {LEAK_SEEDS} seeds, {reached} had it");
    assert_eq!(found, reached);
    assert!(reached > LEAK_SEEDS * 9 / 10, "{reached}");
}

#[test]
fn a_seed_is_deterministic() {
    for seed in [3, 77] {
        let (first, second) = (world::run(seed), world::run(seed));
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
    }
}
