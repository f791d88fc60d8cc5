//! Each reason, and the example with its figures.

use super::*;
use crate::plan::{NodeRoom, PlanPart, PlanPool, Room, Sizing, Want};

/// A pool of a rank, all of it mirrored.
fn pool(name: &'static str, device_pages: usize, page_bytes: u64) -> PlanPool {
    let parts = vec![PlanPart { name, page_bytes, host: true }];
    PlanPool { name, page_tokens: 256, device_pages, sizing: Sizing::OWN, parts }
}

/// Ranks that are bound to nodes, and bytes of each node.
fn tier(pools: Vec<PlanPool>, ranks: &[u32], nodes: &[u64]) -> PlanInput {
    let room = |(node, bytes): (u32, &u64)| NodeRoom { node, bytes: *bytes };
    let nodes = (0..).zip(nodes).map(room).collect();
    PlanInput {
        pools,
        ranks: ranks.iter().map(|node| Some(*node)).collect(),
        want: Want::Ratio(2.0),
        room: Room { nodes, ..Room::default() },
    }
}

/// A curve by ratio, of 1,000,000 tokens; all warm.
fn input(curve: &[(f64, f64)], headroom: u64) -> AdviseInput {
    let point = |(ratio, hits): &(f64, f64)| AdviceRatio {
        ratio: *ratio,
        hit_tokens: (hits * 1e6) as u64,
        window_loss_tokens: 0,
        warm: true,
    };
    AdviseInput {
        seconds: 7_200,
        requests: 5_000,
        dropped_requests: 0,
        lookup_tokens: 1_000_000,
        ratios: curve.iter().map(point).collect(),
        tier: tier(vec![pool("kv", 1_000, 10_000_000)], &[0], &[headroom]),
        current: 2.0,
        actual: 0.3,
        epsilon: 0.01,
    }
}

const GROWS: [(f64, f64); 6] =
    [(0.0, 0.1), (1.0, 0.1), (2.0, 0.3), (4.0, 0.5), (8.0, 0.7), (16.0, 0.704)];
const GB: u64 = 1_000_000_000;

fn decision(input: &AdviseInput) -> (Action, Reason) {
    let Advice { action, reason, .. } = advise(input);
    (action, reason)
}

#[test]
fn short_windows_few_requests_and_cold_curves_are_not_warm() {
    let keep = (Action::Keep, Reason::NotWarm);
    let base = input(&GROWS, 1_000 * GB);
    assert_eq!(decision(&AdviseInput { seconds: 3_599, ..base.clone() }), keep);
    assert_eq!(decision(&AdviseInput { requests: 999, ..base.clone() }), keep);
    let mut cold = base;
    cold.ratios.iter_mut().for_each(|point| point.warm = point.ratio <= 1.0);
    assert_eq!(decision(&cold), keep);
    let text = advise(&AdviseInput { seconds: 60, ..cold.clone() }).text;
    assert!(text.starts_with("too little traffic: 5000 requests were seen in 60 s"), "{text}");
    // Nothing is not zero.
    let idle = advise(&AdviseInput { requests: 0, lookup_tokens: 0, ..cold });
    assert!(idle.text.starts_with("no traffic: no request was seen in 7200 s"), "{}", idle.text);
    assert!(idle.rows.iter().all(|row| !row.text.contains('%')), "{idle:?}");
    assert_eq!(
        idle.rows[3].text,
        "ratio 4 would take 20 GB more on node 0; too few requests were seen to say what it finds"
    );
}

#[test]
fn wrong_predictions_and_missed_requests_are_not_trusted() {
    let keep = (Action::Keep, Reason::Untrusted);
    let base = input(&GROWS, 1_000 * GB);
    assert_eq!(decision(&AdviseInput { actual: 0.24, ..base.clone() }), keep);
    assert_eq!(decision(&AdviseInput { actual: 0.36, ..base.clone() }), keep);
    assert_eq!(decision(&AdviseInput { dropped_requests: 60, ..base.clone() }), keep);
    assert_ne!(decision(&AdviseInput { dropped_requests: 40, actual: 0.34, ..base }), keep);
}

#[test]
fn a_flat_curve_turns_the_tier_off() {
    let mut flat = input(&[(0.0, 0.3), (2.0, 0.302), (8.0, 0.304)], 1_000 * GB);
    let advice = advise(&flat);
    assert_eq!((advice.action, advice.reason), (Action::Off, Reason::Flat));
    assert_eq!(
        advice.text,
        "no host tier would give -0.2 % hits for 20 GB less on node 0; no size of the host tier \
         finds more than the device alone"
    );
    flat.current = 0.0;
    assert_eq!(decision(&flat), (Action::Keep, Reason::Flat), "it is off");
}

#[test]
fn the_knee_is_the_smallest_that_is_as_good_as_the_best() {
    let base = input(&GROWS, 1_000 * GB);
    let advice = advise(&base);
    assert_eq!((advice.action, advice.reason), (Action::Set(8.0), Reason::Knee));
    assert_eq!(
        advice.text,
        "ratio 8 would give +40 % hits for 60 GB more on node 0; more memory would bring next to \
         nothing"
    );
    // From there, nothing more; and a larger one gives its memory back.
    let at = |current, actual| AdviseInput { current, actual, ..base.clone() };
    assert_eq!(decision(&at(8.0, 0.7)), (Action::Keep, Reason::Knee));
    assert_eq!(decision(&at(16.0, 0.704)), (Action::Set(8.0), Reason::Knee));
}

#[test]
fn a_gain_too_small_is_not_worth_a_change() {
    let curve = [(0.0, 0.1), (2.0, 0.3), (4.0, 0.315)];
    assert_eq!(decision(&input(&curve, 1_000 * GB)), (Action::Keep, Reason::Knee));
    let curve = [(0.0, 0.1), (2.0, 0.3), (4.0, 0.321)];
    assert_eq!(decision(&input(&curve, 1_000 * GB)), (Action::Set(4.0), Reason::Knee));
}

#[test]
fn a_window_pool_that_loses_too_much_comes_first() {
    let mut base = input(&GROWS, 1_000 * GB);
    base.ratios.iter_mut().for_each(|point| point.window_loss_tokens = 51_000);
    assert_eq!(decision(&base), (Action::Keep, Reason::WindowPoolBound));
    base.ratios.iter_mut().for_each(|point| point.window_loss_tokens = 50_000);
    assert_eq!(decision(&base), (Action::Set(8.0), Reason::Knee));
}

#[test]
fn memory_bounds_the_ratio_on_the_tightest_node() {
    let mut base = input(&GROWS, 1_000 * GB);
    base.tier = tier(base.tier.pools, &[0, 1, 1], &[1_000 * GB, 99 * GB]);
    let advice = advise(&base);
    // Node 1 would take 160 GB at ratio 8; 98 GB at 4.9, and 99 GB at 4.95.
    let missing = 61 * GB;
    let reason = Reason::MemoryBound { next: 8.0, missing };
    assert_eq!((advice.action, advice.reason), (Action::Set(4.9), reason));
    let row = advice.rows.iter().find(|row| row.ratio == 4.9).expect("solved off the grid");
    assert!((row.hit_ratio - 0.545).abs() < 1e-6 && row.feasible());
    assert_eq!(
        advice.text,
        "ratio 4.9 would give +25 % hits for 29 GB more on node 0 and 58 GB more on node 1; \
         ratio 8 does not fit, 61 GB are missing"
    );
    let fits: Vec<_> = advice.rows.iter().map(AdviceRow::fits).collect();
    assert_eq!(fits, [true, true, true, true, true, false, false]);
}

#[test]
fn without_room_for_more_than_copies_memory_is_what_is_missing() {
    let base = AdviseInput { current: 0.0, actual: 0.1, ..input(&GROWS, 5 * GB) };
    let reason = Reason::MemoryBound { next: 2.0, missing: 15 * GB };
    assert_eq!(decision(&base), (Action::Keep, reason));
    // A tier that does not fit any more goes.
    assert_eq!(decision(&AdviseInput { current: 2.0, actual: 0.3, ..base }).0, Action::Off);
}

#[test]
fn a_ratio_that_is_not_warm_is_never_advised() {
    let mut base = input(&GROWS, 1_000 * GB);
    base.ratios.iter_mut().for_each(|point| point.warm = point.ratio <= 4.0);
    assert_eq!(decision(&base), (Action::Set(4.0), Reason::Knee));
}

/// The agentic trace on 835 pages of each of two pools, every page kept, four ranks on a node.
#[test]
fn the_example_of_four_ranks_and_two_hundred_gigabytes() {
    let curve = [(0.0, 0.098), (2.0, 0.22), (4.0, 0.54), (8.0, 0.86), (16.0, 0.95)];
    let example = AdviseInput {
        tier: tier(
            vec![pool("kv", 835, 998_208), pool("swa", 835, 8_160_000)],
            &[0; 4],
            &[200 * GB],
        ),
        actual: 0.22,
        ..input(&curve, 0)
    };
    let advice = advise(&example);
    let gigabytes: Vec<u64> =
        advice.rows.iter().map(|row| (row.nodes[0].bytes + GB / 2) / GB).collect();
    assert_eq!(gigabytes, [0, 61, 122, 199, 245, 489]);
    assert_eq!(advice.action, Action::Set(6.5));
    let Reason::MemoryBound { next, missing } = advice.reason else { panic!("{advice:?}") };
    assert_eq!((next, (missing + GB / 2) / GB), (8.0, 45));
    assert_eq!(
        advice.text,
        "ratio 6.5 would give +52 % hits for 138 GB more on node 0; ratio 8 does not fit, 45 GB \
         are missing"
    );
}

#[test]
fn every_candidate_is_a_sentence() {
    let mut base = input(&GROWS, 120 * GB);
    base.ratios.push(AdviceRatio { warm: false, ..base.ratios[5] });
    base.ratios[6].ratio = 24.0;
    let said = |input: &AdviseInput| -> Vec<String> {
        advise(input).rows.into_iter().map(|row| row.text).collect()
    };
    assert_eq!(
        said(&base),
        [
            "no host tier would give -20 % hits for 20 GB less on node 0",
            "ratio 1 would hold copies of the device's pages and nothing else",
            "ratio 2 is in force: 30 % hits expected",
            "ratio 4 would give +20 % hits for 20 GB more on node 0",
            "ratio 8 would give +40 % hits for 60 GB more on node 0",
            "ratio 12 would give +40 % hits for 100 GB more on node 0",
            "ratio 16 does not fit (node 0 lacks 40 GB); it would give +40 % hits",
            "ratio 24 does not fit (node 0 lacks 120 GB)",
        ]
    );
    // Ranks that are bound to no node, and small pools.
    base.tier = PlanInput {
        ranks: vec![None],
        room: Room { host: Some(1_000_000), group: Some(70_000), ..Room::default() },
        ..tier(vec![pool("kv", 10, 1_000)], &[0], &[])
    };
    base.current = 0.0;
    let said = said(&base);
    assert_eq!(said[0], "no host tier is in force: 10 % hits expected");
    assert_eq!(said[3], "ratio 4 would give +40 % hits for 40 kB more on the host");
    let lacks = "ratio 8 does not fit (the control group lacks 10 kB); it would give +60 % hits";
    assert_eq!(said[5], lacks);
}
