//! Random texts, faults and policies, from a seed.

use std::time::Duration;

use types::RequestId;

use super::fake::{Disk, Faults};
use super::{Life, Setup, Sources, text};
use crate::AbortReason;
use crate::dice::Dice;
use crate::storage::{PrefetchPolicy, PrefetchTimeout, StorageStats};

const SEEDS: u64 = 60;

/// Two engines, one after the other, with the same texts; what the second took from storage.
fn run(seed: u64) -> (Sources, StorageStats) {
    let mut dice = Dice::new(seed);
    let faults = Faults {
        busy: [0, 0, 60][dice.below(3)],
        broken: [0, 20, 100][dice.below(3)],
        slow: [0, 300, 800][dice.below(3)],
    };
    let timeout = PrefetchTimeout {
        base: Duration::from_millis(20 + dice.below(60) as u64),
        per_ki_tokens: Duration::from_millis(100),
        max: Duration::from_secs(1),
    };
    let policy = [
        PrefetchPolicy::BestEffort,
        PrefetchPolicy::WaitComplete,
        PrefetchPolicy::Timeout(timeout),
        PrefetchPolicy::Timeout(timeout),
    ][dice.below(4)];
    let device_pages = 60 + dice.below(60);
    let setup = Setup {
        window: [None, None, Some(9)][dice.below(3)],
        device_pages,
        host_pages: device_pages + dice.below(150),
        window_pages: [None, Some(device_pages / 2)][dice.below(2)],
        policy,
    };
    let disk = Disk::new(dice.clone(), faults);
    let bases: Vec<_> = (0..5).map(|base| text(seed ^ (base << 32), 40 + dice.below(90))).collect();
    let mut last = (Sources::default(), StorageStats::default());
    for _ in 0..2 {
        let mut life = Life::new(setup, &disk);
        for _ in 0..40 {
            let base = &bases[dice.below(bases.len())];
            let cut = if dice.chance(300) { dice.below(base.len()) } else { base.len() };
            let prompt = [&base[..cut], &text(dice.next(), 1 + dice.below(12))[..]].concat();
            let salt = dice.chance(150).then_some("salt");
            let id = life.submit(&prompt, 1 + dice.below(8), salt);
            if dice.chance(80) {
                life.turns(dice.below(9));
                life.handle.abort(RequestId(id), AbortReason::ClientGone);
            }
            life.turns(dice.below(12));
        }
        if dice.chance(500) {
            life.settle();
        }
        last = life.end();
    }
    last
}

#[expect(clippy::disallowed_methods, reason = "a test is replayed by hand, it has no CLI")]
fn one_seed() -> Option<u64> {
    std::env::var("SIGHTLINE_STORAGE_SEED").ok()?.parse().ok()
}

#[test]
fn whatever_the_storage_does_answers_are_right_and_no_page_is_lost() {
    let seeds = one_seed().map_or(0..SEEDS, |seed| seed..seed + 1);
    let many = seeds.end - seeds.start == SEEDS;
    let mut all = (0, StorageStats::default());
    for seed in seeds {
        println!("seed {seed}: SIGHTLINE_STORAGE_SEED={seed} cargo test -p engine storage_test");
        let (sums, stats) = run(seed);
        all.0 += sums.storage;
        all.1.found += stats.found;
        all.1.timeouts += stats.timeouts;
        all.1.busy += stats.busy;
        all.1.backups_dropped += stats.backups_dropped;
        all.1.arrived_pages += stats.arrived_pages;
        all.1.asked_pages += stats.asked_pages;
    }
    if many {
        let (storage, stats) = all;
        println!("{storage} tokens from storage; {stats:?}");
        assert!(storage > 1000 && stats.arrived_pages < stats.asked_pages, "{stats:?}");
        assert!(stats.timeouts > 0 && stats.busy > 0 && stats.backups_dropped > 0, "{stats:?}");
    }
}
