//! Seeded simulation: the whole engine on a fake model in virtual time.
//!
//! Each seed draws its own bounds, pool, load, clients and faults, then checks every invariant
//! after every turn and every balance at the end. The same seed always does the same.

mod check;
mod client;
mod dice;
mod ending;
mod load;
mod rig;
mod tally;
mod world;

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

/// `SIGHTLINE_SIM_SEED=n` runs seed `n` alone.
#[expect(clippy::disallowed_methods, reason = "a test is replayed by hand, it has no CLI")]
fn seeds() -> std::ops::Range<u64> {
    match std::env::var("SIGHTLINE_SIM_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..SEEDS,
    }
}

#[test]
fn every_seed_keeps_every_invariant() {
    let mut coverage = Coverage::default();
    for seed in seeds() {
        match world::run(seed) {
            Ok(covered) => coverage.add(&covered),
            Err(why) => panic!(
                "seed {seed}: {why}\nreplay: SIGHTLINE_SIM_SEED={seed} \
                 cargo test -p engine --lib every_seed_keeps -- --nocapture"
            ),
        }
    }
    println!("{coverage}");
    if seeds().end - seeds().start == SEEDS {
        coverage.check();
    }
}

#[test]
fn a_planted_page_leak_is_found() {
    let mut found = 0;
    for seed in 0..LEAK_SEEDS {
        crate::testing::plant_leak(u32::try_from(seed % 40).expect("small"));
        let outcome = world::run(seed);
        crate::testing::clear_leak();
        match outcome {
            Ok(_) => {}
            Err(why) => {
                assert!(why.contains("page"), "seed {seed} failed for another reason: {why}");
                found += 1;
            }
        }
    }
    println!("the leak was found by {found} of {LEAK_SEEDS} seeds");
    assert_eq!(found, LEAK_SEEDS);
}

#[test]
fn a_seed_is_deterministic() {
    for seed in [3, 77] {
        let (first, second) = (world::run(seed), world::run(seed));
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
    }
}
