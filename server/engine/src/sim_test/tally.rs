//! Counting: what the observer was told in one world, and what all seeds have covered.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::RejectReason;
use types::{RequestId, Time};

use crate::{
    AbortReason, Observer, Outcome, PreemptReason, Queue, QueueExitCause, RequestEnd, RequestError,
    Stage, StepPhase, StepStats,
};

/// Most ages that one turn may tell of.
const AGES_MAX: usize = 1100;

/// Sums over everything that the observer was told.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) ends: Vec<RequestEnd>,
    pub(super) generated: u64,
    pub(super) prompt: u64,
    pub(super) cached: u64,
    /// Requests that had their KV by a link and lost it before they ran.
    pub(super) landed_retracted: u64,
    /// Prompt tokens that links have brought.
    pub(super) remote: u64,
    /// Of these, those whose pages came from the host.
    pub(super) cached_host: u64,
    /// Requests that stood still until pages were copied, by turn; and what steps waited.
    pub(super) held: u64,
    pub(super) gate_time: Duration,
    /// Pages whose ages were told, by tier and event.
    pub(super) ages: BTreeMap<String, u64>,
    /// Something was told that cannot be.
    pub(super) wrong: Option<String>,
    pub(super) urgent: u64,
    pub(super) recomputed: u64,
    pub(super) batch_tokens: u64,
    pub(super) first_tokens: u64,
    pub(super) ttft: Duration,
    pub(super) ttft_phases: Duration,
    pub(super) gaps: u64,
    pub(super) preemptions: u64,
    /// Exits by queue, and of these, those into the next queue.
    pub(super) left: BTreeMap<Queue, (u64, u64)>,
    pub(super) left_retracted: u64,
    /// Time in the retracted queue of requests that had no token yet.
    pub(super) retracted_before_first: HashMap<RequestId, Duration>,
    had_first: HashSet<RequestId>,
    pub(super) stages: Duration,
    pub(super) last_step: Time,
    pub(super) phases: [u64; StepPhase::ALL.len()],
    pub(super) largest_batch: usize,
    pub(super) scheduled: u64,
    /// That left the waiting queue for the batch, since the world last looked.
    pub(super) started: Vec<RequestId>,
    /// That were let into the batch, from whichever queue, since the world last looked.
    pub(super) let_in: Vec<RequestId>,
    /// Retractions by reason.
    pub(super) preempted: [u64; PreemptReason::ALL.len()],
    /// Refused after they were accepted.
    pub(super) rejected: BTreeMap<RejectReason, u64>,
}

/// The observer of a world.
#[derive(Debug, Clone, Default)]
pub(super) struct Watcher(pub(super) Arc<Mutex<Told>>);

impl Observer for Watcher {
    fn on_step(&mut self, stats: &StepStats<'_>) {
        let mut told = self.0.lock().expect("one thread");
        told.generated += stats.generated_tokens;
        told.prompt += stats.prompt_tokens;
        told.cached += stats.cached_device_tokens + stats.cached_host_tokens;
        told.remote += stats.cached_remote_tokens;
        told.cached_host += stats.cached_host_tokens;
        told.held += stats.copy_waits.held;
        told.gate_time += stats.copy_waits.loads;
        told.urgent += stats.copy_waits.urgent;
        for age in stats.ages {
            let what = format!("ages of pages: {:?}, {:?}", age.tier, age.event);
            *told.ages.entry(what).or_default() += age.pages;
            if age.pages == 0 || age.age > stats.now.since(Time::ZERO) {
                told.wrong = Some(format!("{age:?} at {:?}", stats.now));
            }
        }
        if stats.ages.len() > AGES_MAX {
            told.wrong = Some(format!("{} ages in a turn", stats.ages.len()));
        }
        told.recomputed += stats.recomputed_tokens;
        told.batch_tokens += stats.tokens as u64;
        told.largest_batch = told.largest_batch.max(stats.tokens);
        told.gaps += stats.inter_token.len() as u64;
        told.preemptions += stats.preemptions.requests();
        for reason in PreemptReason::ALL {
            told.preempted[reason as usize] += stats.preemptions.of(reason);
        }
        // A request leaves its queue before its first token of the same step.
        for exit in stats.queue_exits {
            let left = told.left.entry(exit.queue).or_default();
            left.0 += 1;
            let advanced = u64::from(exit.cause == QueueExitCause::Advanced);
            left.1 += advanced;
            // Those in the waiting queue go nowhere else.
            let retracted = if exit.queue == Queue::Waiting { advanced } else { 0 };
            told.landed_retracted += retracted;
            match exit.queue {
                Queue::Waiting
                | Queue::Bootstrap
                | Queue::InflightSend
                | Queue::Prealloc
                | Queue::Transfer => {}
                Queue::Retracted => {
                    told.left_retracted += 1;
                    if !told.had_first.contains(&exit.id) {
                        *told.retracted_before_first.entry(exit.id).or_default() += exit.waited;
                    }
                }
            }
            let scheduled = exit.cause == QueueExitCause::Scheduled;
            told.scheduled += u64::from(scheduled);
            if scheduled {
                told.let_in.push(exit.id);
            }
            if scheduled && exit.queue == Queue::Waiting {
                told.started.push(exit.id);
            }
        }
        for first in stats.first_tokens {
            told.first_tokens += 1;
            told.had_first.insert(first.id);
            told.ttft += first.ttft;
            told.ttft_phases += first.phases.total();
        }
        told.stages += stats.stages.total();
        told.last_step = stats.now;
        told.phases[stats.phase as usize] += 1;
    }

    fn on_request_end(&mut self, end: &RequestEnd) {
        let mut told = self.0.lock().expect("one thread");
        if let Outcome::Rejected(refusal) = &end.outcome {
            *told.rejected.entry(refusal.reason).or_default() += 1;
        }
        told.ends.push(end.clone());
    }
}

/// What was reached, over all seeds. Every count must be above zero.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    counts: BTreeMap<String, u64>,
}

impl Coverage {
    pub(super) fn count(&mut self, what: &str, times: u64) {
        *self.counts.entry(what.to_owned()).or_default() += times;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (what, times) in &other.counts {
            self.count(what, *times);
        }
    }

    pub(super) fn of(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    pub(super) fn end(&mut self, end: &RequestEnd) {
        let what = match &end.outcome {
            Outcome::Stop => "ended: stop".to_owned(),
            Outcome::Length => "ended: length".to_owned(),
            Outcome::Aborted(abort) => {
                self.count("ended: aborted", 1);
                self.count(&format!("aborted in {:?}", abort.stage), 1);
                format!("aborted for {:?}", abort.reason)
            }
            Outcome::Rejected(refusal) => format!("ended: {}", refusal.reason.as_str()),
            Outcome::Error(RequestError::Model(_)) => "ended: error, model".to_owned(),
            Outcome::Error(RequestError::Engine(_)) => "ended: error, engine".to_owned(),
            Outcome::Error(RequestError::Sink) => "ended: error, sink".to_owned(),
            Outcome::Error(RequestError::Transfer(why)) => format!("ended: error, {why}"),
        };
        self.count(&what, 1);
        self.count("ended after a preemption", u64::from(end.preemptions > 0));
    }

    /// Fails the test where something was never reached.
    pub(super) fn check(&self) {
        let mut wanted: Vec<String> = [
            "ended: stop",
            "ended: length",
            "ended: error, model",
            "ended: error, engine",
            "ended: error, sink",
            "refused: queue_requests_full",
            "refused: queue_tokens_full",
            "refused: drain_time",
            "refused: priority_evicted",
            "ended: priority_evicted",
            "ended: queue_timeout",
            "refused: busy",
            "refused together",
            "seeds with a window",
            "turns with pages that a window has passed",
            "refused: too long",
            "left before submission",
            "preemptions",
            "ended after a preemption",
            "tokens recomputed",
            "prompt tokens taken from the cache",
            "prompt tokens loaded from the host",
            "seeds with a host tier",
            "seeds with a host tier and a window",
            "seeds with WriteThrough",
            "seeds with WriteThroughSelective",
            "seeds with WriteBack",
            "backups",
            "loads",
            "copies that found the queue full",
            "backups dropped for the queue",
            "waits at a gate",
            "waits for a whole copy",
            "requests held by a copy",
            "turns that waited for a copy",
            "turns with a late copy",
            "engines that failed with a copy",
            "pages evicted from the host",
            "ages of pages: Device, Evicted",
            "ages of pages: Device, Reused",
            "ages of pages: Host, Evicted",
            "ages of pages: Host, Reused",
            "turns that waited for a link",
            "prompt tokens that links have brought",
            "transfers that arrived",
            "transfers that were delivered",
            "transfers that failed",
            "pages sent before their pass",
            "layers read during their pass",
            "ended: error, peer_gone",
            "ended: error, peer_abort",
            "ended: error, alloc",
            "turns with pages held for a link",
            "landed requests that were retracted",
        ]
        .map(str::to_owned)
        .to_vec();
        wanted.extend(Stage::ALL.map(|stage| format!("aborted in {stage:?}")));
        wanted.extend(AbortReason::ALL.map(|reason| format!("aborted for {reason:?}")));
        wanted.extend(PreemptReason::ALL.map(|reason| format!("preempted for {reason:?}")));
        wanted.extend(StepPhase::ALL.map(|phase| format!("steps: {phase:?}")));
        for what in wanted {
            assert!(self.of(&what) > 0, "no seed reached '{what}'");
        }
        let (calm, seeds) = (self.of("seeds without a preemption"), self.of("seeds"));
        assert!(20 * calm <= seeds, "{calm} of {seeds} seeds saw no preemption");
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, times) in &self.counts {
            writeln!(f, "{times:>12} {what}")?;
        }
        Ok(())
    }
}
