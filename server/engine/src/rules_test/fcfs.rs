//! Waiting times against an oracle that knows nothing but first come, first served; and the bound
//! within which every request starts.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use types::{RequestId, Time};

use super::rig::{Job, Rig, bounds};
use crate::Scheduling;
use crate::step::Turn;

/// When each job comes, its prompt, its answer.
type Load = Vec<(Duration, usize, usize)>;

/// Waiting times of a plain batch server: a list of the running, a list of the waiting, a budget
/// of 64 tokens a step of which each answer takes one first.
fn oracle(load: &Load, slots: usize) -> Vec<Duration> {
    let mut waits = vec![Duration::ZERO; load.len()];
    let (mut now, mut next) = (Duration::ZERO, 0);
    let mut queue: VecDeque<usize> = VecDeque::new();
    // Job, prompt tokens left, answer tokens left.
    let mut running: Vec<(usize, usize, usize)> = Vec::new();
    while next < load.len() || !queue.is_empty() || !running.is_empty() {
        while next < load.len() && load[next].0 <= now {
            queue.push_back(next);
            next += 1;
        }
        if queue.is_empty() && running.is_empty() {
            now = load[next].0;
            continue;
        }
        let mut budget = 64 - running.iter().filter(|job| job.1 == 0).count();
        while running.len() < slots && !queue.is_empty() {
            let wanted: usize = running.iter().map(|job| job.1).sum();
            if wanted >= budget {
                break;
            }
            let job = queue.pop_front().expect("not empty");
            waits[job] = now.saturating_sub(load[job].0);
            running.push((job, load[job].1, load[job].2));
        }
        let mut step = Duration::from_millis(2);
        for (_, prompt, answer) in &mut running {
            let chunk = if *prompt == 0 { 1 } else { (*prompt).min(budget) };
            if *prompt > 0 {
                budget -= chunk;
                *prompt -= chunk;
            }
            // As the fake model counts: a slice of one token is a decode row.
            step += match chunk {
                1 => Duration::from_millis(1),
                chunk => Duration::from_micros(500) * u32::try_from(chunk).expect("a chunk"),
            };
            if *prompt == 0 && chunk > 0 {
                *answer -= 1;
            }
        }
        running.retain(|job| job.2 > 0);
        now += step;
    }
    waits
}

/// Runs `load` at one priority and returns what each request waited.
fn waits(load: &Load, slots: usize, level: i64) -> Vec<Duration> {
    let mut rig = Rig::new(bounds(slots, Scheduling::default()));
    let mut next = 0;
    loop {
        while next < load.len() && Time::ZERO + load[next].0 <= rig.time.read() {
            rig.submit(&Job::at(level, load[next].1, load[next].2));
            next += 1;
        }
        if rig.turn() == Turn::Idle {
            let Some(job) = load.get(next) else { break };
            rig.run_until(job.0);
        }
    }
    let log = rig.log();
    let mut waits = vec![Duration::ZERO; load.len()];
    for (id, waited) in &log.starts {
        // From when it came, not from the turn in which it was taken in.
        waits[usize::try_from(id.0).expect("few requests")] = *waited;
    }
    waits
}

fn load() -> impl Strategy<Value = Load> {
    let job = (0..400_u64, 1..200_usize, 1..80_usize);
    prop::collection::vec(job, 5..40).prop_map(|jobs| {
        let mut at = Duration::ZERO;
        let mut arrive = |gap| {
            at += Duration::from_millis(gap);
            at
        };
        jobs.into_iter().map(|(gap, prompt, answer)| (arrive(gap), prompt, answer)).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn equal_priorities_wait_no_longer_than_twice_first_come_first_served(
        load in load(),
        slots in 1..8_usize,
        level in -100..=100_i64,
    ) {
        // One step is the grain of both: whoever comes during a step is seen at its end.
        let step = Duration::from_millis(2 + 32 + 8);
        let (found, fcfs) = (waits(&load, slots, level), oracle(&load, slots));
        for (job, (found, fcfs)) in found.iter().zip(&fcfs).enumerate() {
            prop_assert!(*found <= 2 * *fcfs + step, "job {job}: {found:?}, oracle {fcfs:?}");
        }
        let (sum, fcfs) = (found.iter().sum::<Duration>(), fcfs.iter().sum::<Duration>());
        prop_assert!(sum <= fcfs.mul_f64(1.1) + step * load.len() as u32, "{sum:?} of {fcfs:?}");
    }
}

/// The bound: before a request of level p starts, only those start that came before it or less
/// than (q - p) x 10 s after it, with their level q. Under a flood that never ends it still starts.
#[test]
fn nobody_starves_under_a_flood_of_better_requests() {
    let (mut rig, gap) = (Rig::new(bounds(2, Scheduling::default())), Duration::from_millis(40));
    let low = rig.submit(&Job::at(0, 40, 20));
    let flood = Job::at(3, 40, 20);
    // Twice what two slots can serve.
    let mut came: Vec<(RequestId, Duration)> = Vec::new();
    let mut at = Duration::ZERO;
    rig.submit(&flood);
    rig.submit(&flood);
    rig.submit(&flood);
    while !rig.log().starts.iter().any(|(id, _)| *id == low) {
        while Time::ZERO + at <= rig.time.read() {
            came.push((rig.submit(&flood), at));
            at += gap;
        }
        rig.turn();
        assert!(at < Duration::from_secs(200), "it starves");
    }
    let log = rig.log();
    let before = log.starts.iter().take_while(|(id, _)| *id != low);
    let last = before.filter_map(|(id, _)| came.iter().find(|(other, _)| other == id));
    let last = last.map(|(_, at)| *at).max().expect("some start before");
    assert!(last <= Duration::from_secs(30), "one that came {last:?} later started before");
    assert!(last > Duration::from_secs(20), "the flood was too thin to show anything: {last:?}");
}
