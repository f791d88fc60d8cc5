//! Who went before whom: nobody overtakes, and nobody is refused or given up without the reason.

use std::time::Duration;

use admission::{Rank, RejectReason};
use types::RequestId;

use super::ensure;
use super::load::Kind;
use super::world::World;
use crate::{AbortReason, Outcome, RequestEnd};

/// After a turn in which the requests `started` left the waiting queue: each of them was better
/// than whoever still waits; with fair shares, than whoever waits of its tenant and priority.
pub(super) fn starts(world: &World, started: &[RequestId]) -> Result<(), String> {
    let fair = world.config().scheduling.fair_share;
    let rank_of = |id: &RequestId| world.ranks.get(id).copied();
    for id in started {
        let rank = rank_of(id).ok_or_else(|| format!("request {id} was never submitted"))?;
        let Some(wish) = world.accepted.get(id) else { continue };
        // One that has its pages already passes those that lack nothing else.
        if wish.kind == Kind::Remote {
            continue;
        }
        let passed_over = |other: RequestId, waits: Rank| {
            let Some(theirs) = world.accepted.get(&other) else { return false };
            let same = theirs.priority == wish.priority && theirs.tenant == wish.tenant;
            waits < rank && (same || !fair)
        };
        let mut waiting = world.core.scheduler.waiting.iter();
        let first = waiting.find(|request| passed_over(request.id, request.rank));
        if let Some(first) = first {
            return Err(format!("request {id} started before {}, which is better", first.id));
        }
    }
    Ok(())
}

/// A refusal or a timeout has its reason in the configuration and in the times.
pub(super) fn end(world: &World, end: &RequestEnd) -> Result<(), String> {
    let scheduling = world.config().scheduling;
    match &end.outcome {
        Outcome::Rejected(refusal) => {
            let untouched = end.timings.scheduled.is_none()
                && (end.generated_tokens, end.recomputed_tokens, end.preemptions) == (0, 0, 0);
            ensure!(untouched, "refused after it had started: {end:?}");
            ensure!(refusal.retry_after >= Duration::from_secs(1), "{refusal:?}");
            if refusal.reason == RejectReason::QueueTimeout {
                let limit = scheduling.queue_timeout.map(|limit| limit.as_millis() as u64);
                ensure!(Some(refusal.limit) == limit, "{refusal:?} of {limit:?}");
                ensure!(refusal.value >= refusal.limit, "refused early: {refusal:?}");
            }
        }
        Outcome::Aborted(abort) if abort.reason == AbortReason::RunningTimeout => {
            let since = end.timings.scheduled.ok_or("a running timeout of one that never ran")?;
            let ran = end.timings.ended.since(since);
            let limit = scheduling.request_timeout;
            ensure!(limit.is_some_and(|limit| ran >= limit), "{ran:?} of {limit:?}");
        }
        Outcome::Aborted(_) | Outcome::Stop | Outcome::Length | Outcome::Error(_) => {}
    }
    Ok(())
}
