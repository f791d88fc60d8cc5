//! Running requests that give way to better ones that wait.

use std::collections::HashSet;

use proptest::prelude::*;
use types::RequestId;

use super::rig::{Job, Rig, WINDOW, bounds};
use crate::step::Turn;
use crate::{EngineConfig, Outcome, PreemptReason, Scheduling};

fn threshold(levels: u32) -> Scheduling {
    Scheduling { preemption_threshold: levels, ..Scheduling::default() }
}

#[test]
fn only_a_request_that_is_better_by_the_threshold_takes_a_slot() {
    for (levels, level, preempts) in [(10, 10, false), (10, 11, true), (0, 100, false)] {
        let mut rig = Rig::new(bounds(2, threshold(levels)));
        let running = [rig.submit(&Job::plain(10, 300)), rig.submit(&Job::plain(10, 300))];
        for _ in 0..5 {
            rig.turn();
        }
        // The running ones are a little better for their age.
        let better = rig.submit(&Job::at(level, 10, 20));
        rig.turn();
        assert_eq!(rig.runs(better), preempts, "{level} against a threshold of {levels}");
        assert_eq!(rig.is_retracted(running[1]), preempts, "the newest of the worst goes");
        assert!(rig.runs(running[0]));
        rig.finish();
        assert_eq!(rig.log().preempted, [0, u64::from(preempts)]);
        for id in [running[0], running[1], better] {
            assert_eq!(rig.end_of(id).outcome, Outcome::Length);
        }
    }
}

#[test]
fn a_retracted_request_resumes_before_one_that_waits_with_the_same_rank() {
    let mut rig = Rig::new(bounds(1, threshold(10)));
    let first = rig.submit(&Job::plain(10, 300));
    let equal = rig.submit(&Job::plain(10, 20));
    rig.turn();
    let better = rig.submit(&Job::at(20, 10, 20));
    rig.finish();
    let order: Vec<_> = rig.log().starts.iter().map(|(id, _)| *id).collect();
    assert_eq!(order, [first, better, first, equal]);
}

#[test]
fn pages_are_taken_only_where_that_is_enough() {
    // 8 pages of 16 tokens; the worst holds 2 of them, the next one 4.
    let config = EngineConfig { pool_pages: vec![8], ..bounds(8, threshold(10)) };
    let mut rig = Rig::new(config);
    let large = rig.submit(&Job::plain(56, 8));
    let small = rig.submit(&Job::at(-20, 24, 8));
    rig.turn();
    // Seven pages: not even without both of them and the reserve.
    let equal = rig.submit(&Job::plain(110, 4));
    rig.turn();
    assert!(rig.runs(large) && rig.runs(small) && !rig.runs(equal));
    let better = rig.submit(&Job::at(15, 40, 8));
    rig.turn();
    assert!(rig.runs(better) && rig.runs(large), "the small one is enough");
    assert!(rig.is_retracted(small));
    rig.finish();
    assert_eq!(rig.log().preempted[PreemptReason::Priority as usize], 1);
}

#[test]
fn a_long_answer_whose_window_has_moved_gives_way() {
    for prefix_cache in [false, true] {
        let pool_pages = vec![400, 40];
        let config = EngineConfig { prefix_cache, pool_pages, ..bounds(1, threshold(10)) };
        let mut rig = Rig::new(config);
        let long = rig.submit(&Job::plain(10, 4 * WINDOW));
        for _ in 0..3 * WINDOW {
            rig.turn();
        }
        let better = rig.submit(&Job::at(30, 10, 5));
        rig.turn();
        assert!(rig.runs(better) && rig.is_retracted(long), "cache {prefix_cache}");
        rig.finish();
        assert_eq!(rig.log().preempted, [0, 1]);
        for id in [long, better] {
            assert_eq!(rig.end_of(id).outcome, Outcome::Length);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Nobody takes turns: whoever gave way to a request never takes anything back from it. Each
    /// retraction for priority is for one that starts in the same step and is better by the
    /// threshold, and whoever was retracted still ends as it would have.
    #[test]
    fn preemption_never_goes_back_and_forth(
        running in 1..5_usize,
        levels in 1..30_u32,
        pages in 12..60_usize,
        jobs in prop::collection::vec((-100..=100_i64, 1..60_usize, 1..60_usize, 0..6_u8), 5..40),
    ) {
        let config = EngineConfig { pool_pages: vec![pages], ..bounds(running, threshold(levels)) };
        let mut rig = Rig::new(config);
        let mut gave_way: HashSet<(RequestId, RequestId)> = HashSet::new();
        let mut jobs = jobs.into_iter().peekable();
        let mut accepted = Vec::new();
        loop {
            while let Some((level, prompt, answer, _)) =
                jobs.next_if(|job| job.3 == 0 || accepted.is_empty())
            {
                accepted.push(rig.submit(&Job::at(level, prompt, answer)));
            }
            if let Some(job) = jobs.peek_mut() {
                job.3 = job.3.saturating_sub(1);
            }
            let scheduler = &rig.core.scheduler;
            let before: Vec<_> = scheduler.running.iter().map(|r| (r.id, r.rank)).collect();
            let preempted = rig.log().preempted;
            let starts = rig.log().starts.len();
            let turn = rig.turn();
            let now = rig.log().preempted;
            let for_priority = now[1] - preempted[1];
            if for_priority > 0 && now[0] == preempted[0] {
                let started: Vec<_> = rig.log().starts[starts..].iter().map(|s| s.0).collect();
                let scheduler = &rig.core.scheduler;
                let ranks: Vec<_> = started
                    .iter()
                    .filter_map(|id| scheduler.running.iter().find(|r| r.id == *id))
                    .map(|r| (r.id, r.rank))
                    .collect();
                let victims: Vec<_> =
                    before.iter().filter(|(id, _)| rig.is_retracted(*id)).collect();
                prop_assert_eq!(victims.len() as u64, for_priority);
                for (victim, rank) in victims {
                    let for_whom: Vec<_> =
                        ranks.iter().filter(|(_, better)| better.exceeds(*rank, levels)).collect();
                    prop_assert!(
                        !for_whom.is_empty() || ranks.len() < started.len(),
                        "{} was retracted for nobody", victim
                    );
                    for (better, _) in for_whom {
                        gave_way.insert((*victim, *better));
                        prop_assert!(!gave_way.contains(&(*better, *victim)), "back and forth");
                    }
                }
            }
            if turn == Turn::Idle && jobs.peek().is_none() {
                break;
            }
        }
        for id in accepted {
            prop_assert_eq!(rig.end_of(id).outcome, Outcome::Length);
        }
    }
}
