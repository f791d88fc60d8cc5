//! Fair shares among tenants.

use types::RequestId;

use super::rig::{Job, Rig, bounds};
use crate::Scheduling;

const FAIR: Scheduling = Scheduling {
    preemption_threshold: 10,
    fair_share: true,
    queue_timeout: None,
    request_timeout: None,
};

fn job(tenant: &'static str, prompt: usize, answer: usize) -> Job {
    Job { tenant: Some(tenant), ..Job::plain(prompt, answer) }
}

fn place(order: &[RequestId], id: RequestId) -> usize {
    order.iter().position(|other| *other == id).expect("it started")
}

fn started(rig: &Rig) -> Vec<RequestId> {
    rig.log().starts.iter().map(|(id, _)| *id).collect()
}

/// The bound of a newcomer: of each other tenant, one request at most starts before its first.
#[test]
fn a_flood_of_one_tenant_delays_another_by_one_start() {
    for (scheduling, most) in [(FAIR, 1), (Scheduling::default(), 500)] {
        let mut rig = Rig::new(bounds(4, scheduling));
        for _ in 0..500 {
            rig.submit(&job("flood", 40, 30));
        }
        for _ in 0..50 {
            rig.turn();
        }
        let before = started(&rig).len();
        let quiet = rig.submit(&job("quiet", 40, 30));
        let nameless = rig.submit(&Job::plain(40, 30));
        rig.finish();
        let order = started(&rig);
        let ahead = place(&order, quiet) - before;
        assert!(ahead <= most, "{ahead} started before the quiet tenant's request");
        if scheduling.fair_share {
            let ahead = place(&order, nameless) - before;
            assert!(ahead <= 2, "{ahead} started before the request of nobody");
        } else {
            assert!(ahead > 400, "first come, first served: {ahead}");
        }
    }
}

/// While two tenants both have requests waiting, their service differs by no more than what fits
/// into the running batch and one prompt.
#[test]
fn tenants_that_both_wait_are_served_alike() {
    let (running, prompt, answer) = (4, 40, 30);
    let mut rig = Rig::new(bounds(running, FAIR));
    // Small requests against large ones: shares are of tokens, not of requests.
    for _ in 0..200 {
        rig.submit(&job("small", 10, 5));
    }
    for _ in 0..100 {
        rig.submit(&job("large", prompt, answer));
    }
    let bound = (running + 1) * (prompt + answer);
    let mut compared = 0;
    loop {
        rig.turn();
        let served = |tenant: &str| {
            let log = rig.log();
            let ended = log.ends.values().filter(|end| (end.id.0 < 200) == (tenant == "small"));
            ended.map(|end| end.prompt_tokens + end.generated_tokens).sum::<usize>()
        };
        let waits = |small: bool| {
            rig.core.scheduler.waiting.iter().any(|request| (request.id.0 < 200) == small)
        };
        if !waits(true) || !waits(false) {
            break;
        }
        let (small, large) = (served("small"), served("large"));
        assert!(small.abs_diff(large) <= bound, "{small} and {large} tokens, bound {bound}");
        compared += 1;
    }
    assert!(compared > 100, "{compared} turns with both waiting");
    rig.finish();
}

#[test]
fn priorities_come_before_shares() {
    let mut rig = Rig::new(bounds(1, FAIR));
    let first = rig.submit(&job("a", 10, 20));
    rig.turn();
    let of_other = rig.submit(&job("b", 10, 20));
    let better = rig.submit(&Job { level: 3, ..job("a", 10, 20) });
    rig.finish();
    assert_eq!(started(&rig), [first, better, of_other]);
}
