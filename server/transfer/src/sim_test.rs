//! Thousands of schedules of two decode and two prefill workers over a network that fails, with
//! engines that do everything an engine may.
//!
//! Pages know who may touch them, so that after every event: no link writes into a page that was
//! given back, no page changes while it is sent, and what has arrived is what was computed. At the
//! end each side has ended each transfer once, the counts agree, and nothing is left.
//!
//! `SIGHTLINE_SIM_SEEDS=20000` runs so many seeds instead of 400, `SIGHTLINE_SIM_SEED=n` seed `n`
//! alone.

mod decoder;
pub(crate) mod pages;
mod prefiller;
mod tally;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::failure::Failure;
use crate::plant::{self, Plant};
use tally::Coverage;
use world::Outcome;

const SEEDS: u64 = 400;
/// Seeds in which a planted fault must be found.
const PLANT_SEEDS: u64 = 150;

#[expect(clippy::disallowed_methods, reason = "a test is replayed by hand, it has no CLI")]
fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
    };
    match (number("SIGHTLINE_SIM_SEED"), number("SIGHTLINE_SIM_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(seeds)) => 0..seeds,
        (None, None) => 0..SEEDS,
    }
}

/// One seed; why it failed.
fn run(seed: u64) -> Result<Outcome, String> {
    catch_unwind(AssertUnwindSafe(|| world::run(seed))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default()
    })
}

#[test]
fn every_seed_keeps_every_invariant() {
    let mut coverage = Coverage::default();
    let seeds = seeds();
    let all = seeds.end - seeds.start >= SEEDS;
    for seed in seeds {
        match run(seed) {
            Ok(seen) => coverage.add(&seen.tally, &seen.recv, &seen.send, seen.strays),
            Err(why) => panic!(
                "seed {seed}: {why}\nreplay: SIGHTLINE_SIM_SEED={seed} cargo test -p transfer \
                 --lib every_seed_keeps -- --nocapture"
            ),
        }
    }
    if !all {
        return;
    }
    let Coverage { arrived, delivered, rejected, given_up, strays, .. } = coverage;
    assert!(arrived > 4000 && delivered > 4000, "{coverage:?}");
    assert!(rejected > 500 && given_up > 2000 && strays > 1000, "{coverage:?}");
    let both = [&coverage.recv, &coverage.send, &coverage.told];
    let reasons = [
        Failure::PeerAbort,
        Failure::BootstrapTimeout,
        Failure::WaitingTimeout,
        Failure::Checksum,
        Failure::PeerGone,
        Failure::Internal,
    ];
    for reason in reasons {
        assert!(both.iter().all(|seen| seen.contains_key(&reason)), "{reason}: {coverage:?}");
    }
    assert!(coverage.recv.contains_key(&Failure::Connect), "{coverage:?}");
    assert!(coverage.recv.contains_key(&Failure::RestoreFailed), "{coverage:?}");
    // Nobody breaks the protocol, however messages are doubled and exchanged.
    assert!(both.iter().all(|seen| !seen.contains_key(&Failure::Protocol)), "{coverage:?}");
}

#[test]
fn a_seed_is_the_same_every_time() {
    for seed in [3, 7] {
        let one = run(seed).unwrap();
        let other = run(seed).unwrap();
        let seen = |outcome: &Outcome| {
            format!("{:?} {:?} {:?}", outcome.tally, outcome.recv, outcome.send)
        };
        assert_eq!(seen(&one), seen(&other));
    }
}

/// The simulation finds what it is there to find.
#[test]
fn planted_faults_are_found() {
    for planted in Plant::ALL {
        plant::sow(planted);
        let found = (0..PLANT_SEEDS).any(|seed| run(seed).is_err());
        plant::clear();
        assert!(found, "{planted:?} is not noticed in {PLANT_SEEDS} seeds");
    }
    assert!(run(0).is_ok());
}
