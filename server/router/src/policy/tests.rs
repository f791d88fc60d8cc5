use std::collections::BTreeMap;

use super::*;

const GUARD: Guard = Guard { factor: 1.5, floor: Duration::from_secs(2), occupancy_floor: 0.5 };

fn idle(count: u64) -> Vec<Candidate> {
    let one = |at: u64| Candidate {
        name_hash: xxhash_rust::xxh3::xxh3_64(&at.to_le_bytes()),
        backlog: 0.0,
        prefill_rate: 1000.0,
        pending: 0,
        active: 0,
        occupancy: 0.0,
        matched: 0.0,
        turn: 0,
    };
    (0..count).map(one).collect()
}

fn prompt(number: u64) -> Prompt {
    let draw = xxhash_rust::xxh3::xxh3_64_with_seed(&number.to_le_bytes(), 3);
    Prompt { tokens: 4000, head: xxhash_rust::xxh3::xxh3_64(&number.to_le_bytes()), draw }
}

#[test]
fn names_read_back_and_a_wrong_one_is_told_the_right_ones() {
    for kind in PolicyKind::ALL {
        assert_eq!(kind.to_string().parse(), Ok(kind));
        assert_eq!(kind.policy().kind(), kind);
    }
    let error = "cache".parse::<PolicyKind>().expect_err("no policy").to_string();
    assert!(PolicyKind::ALL.iter().all(|kind| error.contains(kind.as_str())), "{error}");
}

#[test]
fn cache_aware_weighs_what_is_held_against_what_is_to_do() {
    let pick = |candidates: &[Candidate]| CacheAware.pick(candidates, &prompt(1), &GUARD);
    let mut candidates = idle(3);
    candidates[0].backlog = 0.5;
    assert_eq!(pick(&candidates), (1, Branch::LeastLoad), "nobody holds anything");
    // Three quarters of 4 s are worth 3 s.
    candidates[0].matched = 0.75;
    assert_eq!(pick(&candidates), (0, Branch::CacheHit));
    candidates[0].backlog = 1.9;
    assert_eq!(pick(&candidates), (0, Branch::CacheHit));
    candidates[0].backlog = 2.1;
    assert_eq!(pick(&candidates), (1, Branch::LoadGuard), "beyond the floor, others are idle");
    candidates[1].backlog = 2.0;
    candidates[2].backlog = 2.0;
    candidates[0].backlog = 2.9;
    assert_eq!(pick(&candidates), (0, Branch::CacheHit), "within half as much again");
    candidates[0].backlog = 3.1;
    assert_eq!(pick(&candidates).1, Branch::LoadGuard);
    candidates.iter_mut().for_each(|candidate| candidate.backlog = 40.0);
    candidates[0].backlog = 44.0;
    assert_eq!(pick(&candidates).1, Branch::LoadGuard, "4 s more is more than 3 s less");
    candidates[0].backlog = 42.0;
    assert_eq!(pick(&candidates), (0, Branch::CacheHit));
}

#[test]
fn a_worker_whose_slots_are_taken_is_not_preferred_to_an_empty_one() {
    let mut candidates = idle(3);
    (candidates[0].matched, candidates[0].occupancy) = (0.9, 0.5);
    let pick = |candidates: &[Candidate]| CacheAware.pick(candidates, &prompt(1), &GUARD);
    assert_eq!(pick(&candidates), (0, Branch::CacheHit), "half of its slots are free");
    candidates[0].occupancy = 0.6;
    assert_eq!(pick(&candidates).1, Branch::LoadGuard);
    candidates[1..].iter_mut().for_each(|candidate| candidate.occupancy = 0.5);
    assert_eq!(pick(&candidates), (0, Branch::CacheHit), "the others are as full");
    // One has running slots, the other no queue: the queue is what the first token waits for.
    candidates[1..].iter_mut().for_each(|candidate| candidate.backlog = 60.0);
    candidates[0].occupancy = 3.0;
    assert_eq!(pick(&candidates).0, 0);
}

#[test]
fn cache_aware_knows_slow_workers() {
    let mut candidates = idle(2);
    candidates[0].prefill_rate = 100.0;
    candidates[1].backlog = 1.0;
    assert_eq!(CacheAware.pick(&candidates, &prompt(1), &GUARD).0, 1, "5 s against 40 s");
}

#[test]
fn least_pending_tokens_takes_the_least_and_goes_round_among_equals() {
    let mut candidates = idle(3);
    candidates[0].pending = 5;
    candidates[1].turn = 7;
    let pick = |candidates: &[Candidate]| LeastPendingTokens.pick(candidates, &prompt(1), &GUARD);
    assert_eq!(pick(&candidates), (2, Branch::LeastLoad));
    candidates[2].turn = 8;
    assert_eq!(pick(&candidates).0, 1);
    candidates[1].active = 1;
    assert_eq!(pick(&candidates).0, 2);
}

#[test]
fn power_of_two_never_takes_the_worst_and_takes_all_others() {
    let mut candidates = idle(5);
    (0..5).for_each(|at| candidates[at].backlog = at as f64);
    let mut taken = BTreeMap::new();
    for number in 0..2000 {
        let (at, _) = PowerOfTwo.pick(&candidates, &prompt(number), &GUARD);
        *taken.entry(at).or_insert(0) += 1;
    }
    // The best of 5 is in two fifths of the pairs, the next one in three tenths, and so on.
    let shares: Vec<i32> = taken.values().map(|count| (count + 50) / 100).collect();
    assert_eq!((taken.len(), taken.contains_key(&4)), (4, false), "{taken:?}");
    assert!(shares.windows(2).all(|pair| pair[0] > pair[1]), "{taken:?}");
}

#[test]
fn round_robin_is_fair_when_the_candidates_change() {
    let mut workers = idle(4);
    let mut counts = [0; 4];
    for choice in 1..=400_u64 {
        // Two models, served by three workers each, two of which serve both.
        let from = if choice % 2 == 0 { 0 } else { 1 };
        let candidates = &workers[from..from + 3];
        let (at, branch) = RoundRobin.pick(candidates, &prompt(choice), &GUARD);
        assert_eq!(branch, Branch::Turn);
        workers[from + at].turn = choice;
        counts[from + at] += 1;
    }
    assert!(counts.iter().all(|count| *count >= 66), "{counts:?}");
}

#[test]
fn prefix_hash_moves_few_keys_when_a_worker_joins_or_leaves() {
    const KEYS: u64 = 20_000;
    let home = |candidates: &[Candidate]| -> Vec<u64> {
        let pick = |key| PrefixHash.pick(candidates, &prompt(key), &GUARD).0;
        (0..KEYS).map(|key| candidates[pick(key)].name_hash).collect()
    };
    for workers in [2, 3, 8, 32] {
        let mut candidates = idle(workers + 1);
        let more = home(&candidates);
        let left = candidates.remove(0).name_hash;
        let fewer = home(&candidates);
        let moved = more.iter().zip(&fewer).filter(|(a, b)| a != b).count();
        let own = more.iter().filter(|name| **name == left).count();
        assert_eq!(moved, own, "only the keys of the one that left move");
        let expected = KEYS as f64 / (workers + 1) as f64;
        assert!((moved as f64 - expected).abs() < 0.2 * expected, "{moved} of {expected}");
        candidates.reverse();
        assert_eq!(home(&candidates), fewer, "the order does not count");
    }
}

#[test]
fn prefix_hash_goes_to_the_next_one_where_the_first_has_too_much_to_do() {
    let mut candidates = idle(4);
    let home = PrefixHash.pick(&candidates, &prompt(9), &GUARD);
    assert_eq!(home.1, Branch::Hash);
    candidates[home.0].backlog = 2.5;
    let next = PrefixHash.pick(&candidates, &prompt(9), &GUARD);
    assert!(next.0 != home.0 && next.1 == Branch::LoadGuard);
    candidates.iter_mut().for_each(|candidate| candidate.backlog = 2.0);
    candidates[home.0].backlog = 3.0;
    assert_eq!(PrefixHash.pick(&candidates, &prompt(9), &GUARD), home);
}

#[test]
fn any_numbers_give_a_choice() {
    for kind in PolicyKind::ALL {
        for backlog in [0.0, f64::INFINITY, f64::MAX, f64::NAN] {
            let mut candidates = idle(3);
            candidates.iter_mut().for_each(|candidate| candidate.backlog = backlog);
            assert!(kind.policy().pick(&candidates, &prompt(5), &GUARD).0 < 3, "{kind}");
        }
    }
}
