//! The engine's values become metrics here and nowhere else.
//!
//! Runs on the engine's thread, once a step and once a request: every handle is resolved at
//! start, so that recording is a few atomic operations.

use std::time::Duration;

use engine::{
    Abort, AbortReason, Direction, Initiator, LoopStage, Observer, Outcome, PreemptReason, Queue,
    RequestEnd, Stage, StepPhase, StepStats,
};
use metric_catalog::install::{CounterHandle, HistogramHandle, Registry, TimeHandle};
use metric_catalog::labels::{self, Slo, SloResult};
use metric_catalog::server as catalog;

use super::ages::AgeHandles;
use super::all;
use super::requests::RequestMetrics;
use crate::config::Resolved;

/// What finished requests are judged against; zero means that nothing is late.
#[derive(Debug, Clone, Copy)]
pub struct Objectives {
    /// From accept to the first token.
    pub ttft: Duration,
    /// Mean gap between tokens.
    pub itl: Duration,
    /// From accept to the end.
    pub e2e: Duration,
}

/// Handles of one kind of batch.
#[derive(Debug)]
struct PhaseHandles {
    duration: HistogramHandle,
    requests: HistogramHandle,
    tokens: HistogramHandle,
    /// By rank.
    busy: Vec<TimeHandle>,
}

/// Records what the engine reports.
#[derive(Debug)]
pub struct EngineObserver {
    objectives: Objectives,
    turns: Vec<CounterHandle>,
    phases: Vec<PhaseHandles>,
    stages: Vec<TimeHandle>,
    queue_time: Vec<HistogramHandle>,
    preemptions: Vec<CounterHandle>,
    preempted: Vec<CounterHandle>,
    /// By source.
    prompt_tokens: Vec<CounterHandle>,
    recomputed: CounterHandle,
    copy_waits: Vec<TimeHandle>,
    held: CounterHandle,
    ages: AgeHandles,
    copy_times: Vec<HistogramHandle>,
    generated: CounterHandle,
    ttft: Vec<HistogramHandle>,
    /// By phase; none of those that this role's requests never have.
    ttft_phases: Vec<Option<HistogramHandle>>,
    inter_token: HistogramHandle,
    per_token: HistogramHandle,
    duration: Vec<HistogramHandle>,
    generated_per_request: HistogramHandle,
    finished: Vec<CounterHandle>,
    /// By stage, initiator and reason; `None` where the catalog says that it cannot happen.
    aborted: Vec<Option<CounterHandle>>,
    slo: Vec<[CounterHandle; 2]>,
    /// For refusals of requests that waited; they end in the engine.
    requests: RequestMetrics,
}

impl EngineObserver {
    /// Handles in `registry` for an engine with these settings; also sets the gauges of the
    /// objectives.
    #[must_use]
    pub fn new(registry: &Registry, objectives: Objectives, resolved: &Resolved) -> Self {
        let Objectives { ttft, itl, e2e } = objectives;
        for (slo, objective) in [(Slo::Ttft, ttft), (Slo::Itl, itl), (Slo::E2e, e2e)] {
            registry.gauge(catalog::SLO_OBJECTIVE, (slo,)).set_duration(objective);
        }
        let busy = |phase: labels::Phase, rank: usize| {
            let rank = labels::TpRank::new(rank.to_string());
            registry.time(catalog::FORWARD_BUSY_SECONDS, (phase, rank))
        };
        let phase = |phase: &labels::Phase| PhaseHandles {
            duration: registry.histogram(catalog::SCHEDULER_ITERATION_DURATION, (*phase,)),
            requests: registry.histogram(catalog::BATCH_REQUESTS, (*phase,)),
            tokens: registry.histogram(catalog::BATCH_TOKENS, (*phase,)),
            busy: (0..resolved.tp_size).map(|rank| busy(*phase, rank)).collect(),
        };
        Self {
            objectives,
            turns: all(|turn| registry.counter(catalog::SCHEDULER_ITERATIONS, (turn,))),
            phases: labels::Phase::ALL.iter().map(phase).collect(),
            stages: all(|stage| registry.time(catalog::SCHEDULER_STAGE_SECONDS, (stage,))),
            queue_time: all(|queue| registry.histogram(catalog::REQUEST_QUEUE_TIME, (queue,))),
            preemptions: all(|reason| registry.counter(catalog::PREEMPTIONS, (reason,))),
            preempted: all(|kind| registry.counter(catalog::PREEMPTED_TOKENS, (kind,))),
            prompt_tokens: all(|source| registry.counter(catalog::PROMPT_TOKENS, (source,))),
            copy_waits: all(|cause| registry.time(catalog::HICACHE_WAIT_SECONDS, (cause,))),
            held: registry.counter(catalog::HICACHE_HELD_REQUESTS, ()),
            ages: AgeHandles::new(registry, resolved),
            copy_times: all(|direction| {
                registry.histogram(catalog::HICACHE_TRANSFER_DURATION, (direction,))
            }),
            recomputed: registry.counter(catalog::RECOMPUTED_TOKENS, ()),
            generated: registry.counter(catalog::GENERATION_TOKENS, ()),
            ttft: all(|stream| registry.histogram(catalog::TIME_TO_FIRST_TOKEN, (stream,))),
            ttft_phases: all(|phase| {
                let known = registry.exports(catalog::TTFT_PHASE, &(phase,));
                known.then(|| registry.histogram(catalog::TTFT_PHASE, (phase,)))
            }),
            inter_token: registry.histogram(catalog::INTER_TOKEN_LATENCY, ()),
            per_token: registry.histogram(catalog::REQUEST_TIME_PER_OUTPUT_TOKEN, ()),
            duration: all(|outcome| registry.histogram(catalog::REQUEST_DURATION, (outcome,))),
            generated_per_request: registry.histogram(catalog::REQUEST_GENERATED_TOKENS, ()),
            finished: all(|outcome| registry.counter(catalog::REQUESTS_FINISHED, (outcome,))),
            aborted: registry.counters(catalog::REQUESTS_ABORTED),
            slo: all(|slo| {
                [SloResult::Good, SloResult::Bad]
                    .map(|result| registry.counter(catalog::SLO_REQUESTS, (slo, result)))
            }),
            requests: RequestMetrics::new(registry),
        }
    }

    fn record_batch(&self, stats: &StepStats<'_>) {
        let phase = match stats.phase {
            StepPhase::Prefill => labels::Phase::Prefill,
            StepPhase::Decode => labels::Phase::Decode,
            StepPhase::Mixed => labels::Phase::Mixed,
            StepPhase::Idle => return,
        };
        let handles = &self.phases[phase.index()];
        handles.duration.record_duration(stats.duration);
        handles.requests.record_count(stats.requests as u64);
        handles.tokens.record_count(stats.tokens as u64);
        let whole = &[stats.busy][..];
        let busy = if stats.rank_busy.is_empty() { whole } else { stats.rank_busy };
        for (handle, time) in handles.busy.iter().zip(busy) {
            handle.add(*time);
        }
    }

    /// Also of a turn that ran nothing: it may have taken pages from the cache.
    fn record_tokens(&self, stats: &StepStats<'_>) {
        let sources = [
            (labels::PromptSource::Computed, stats.prompt_tokens),
            (labels::PromptSource::Device, stats.cached_device_tokens),
            (labels::PromptSource::Host, stats.cached_host_tokens),
            (labels::PromptSource::Storage, stats.cached_storage_tokens),
            (labels::PromptSource::Remote, stats.cached_remote_tokens),
        ];
        for (source, tokens) in sources {
            self.prompt_tokens[source.index()].add(tokens);
        }
        let waits = &stats.copy_waits;
        self.copy_waits[labels::CopyWait::Loads.index()].add(waits.loads);
        self.copy_waits[labels::CopyWait::Urgent.index()].add(waits.urgent_time);
        self.held.add(waits.held);
        self.ages.record(stats.ages);
        for copy in stats.copies {
            let direction = match copy.direction {
                Direction::Load => labels::CopyDirection::Load,
                Direction::Backup => labels::CopyDirection::Backup,
            };
            self.copy_times[direction.index()].record_duration(copy.busy);
        }
        self.recomputed.add(stats.recomputed_tokens);
        self.generated.add(stats.generated_tokens);
    }

    fn record_first_tokens(&self, stats: &StepStats<'_>) {
        for first in stats.first_tokens {
            self.ttft[streaming(first.streaming).index()].record_duration(first.ttft);
            let parts = [
                (labels::TtftPhase::Tokenize, first.phases.tokenize),
                (labels::TtftPhase::Queue, first.phases.queue),
                (labels::TtftPhase::Bootstrap, first.phases.bootstrap),
                (labels::TtftPhase::Prefill, first.phases.prefill),
                (labels::TtftPhase::KvTransfer, first.phases.kv_transfer),
                (labels::TtftPhase::DecodeQueue, first.phases.decode_queue),
                (labels::TtftPhase::FirstDecode, first.phases.first_decode),
            ];
            for (phase, time) in parts {
                if let Some(histogram) = &self.ttft_phases[phase.index()] {
                    histogram.record_duration(time);
                }
            }
        }
        for gap in stats.inter_token {
            self.inter_token.record_duration(*gap);
        }
    }

    fn record_queues(&self, stats: &StepStats<'_>) {
        for exit in stats.queue_exits {
            let queue = match exit.queue {
                Queue::Waiting => labels::Queue::Waiting,
                Queue::Retracted => labels::Queue::Retracted,
                Queue::Bootstrap => labels::Queue::Bootstrap,
                Queue::InflightSend => labels::Queue::InflightSend,
                Queue::Prealloc => labels::Queue::Prealloc,
                Queue::Transfer => labels::Queue::Transfer,
            };
            self.queue_time[queue.index()].record_duration(exit.waited);
        }
        let thrown = stats.preemptions;
        for reason in PreemptReason::ALL {
            self.preemptions[preempt_reason(reason).index()].add(thrown.of(reason));
        }
        self.preempted[labels::PreemptedKind::Input.index()].add(thrown.input_tokens);
        self.preempted[labels::PreemptedKind::Output.index()].add(thrown.output_tokens);
    }

    fn judge(&self, end: &RequestEnd) {
        let good = |slo: Slo, good: bool| self.slo[slo.index()][usize::from(!good)].increment();
        let within = |time: Duration, limit: Duration| limit.is_zero() || time <= limit;
        let complete = match end.outcome {
            Outcome::Stop | Outcome::Length => true,
            Outcome::Aborted(_) | Outcome::Rejected(_) | Outcome::Error(_) => false,
        };
        let ttft = end.timings.ttft();
        // A request that wanted no answer has no first token to be late with.
        if !complete || ttft.is_some() {
            good(Slo::Ttft, complete && ttft.is_some_and(|t| within(t, self.objectives.ttft)));
        }
        if !complete {
            return;
        }
        if let Some(gap) = end.time_per_output_token() {
            good(Slo::Itl, within(gap, self.objectives.itl));
        }
        good(Slo::E2e, within(end.timings.duration(), self.objectives.e2e));
    }

    fn record_abort(&self, abort: &Abort) {
        let (stage, reason) = (abort_stage(abort.stage), abort_reason(abort.reason));
        let initiator = abort_initiator(abort.reason.initiator());
        match &self.aborted[abort_place(stage, initiator, reason)] {
            Some(counter) => counter.increment(),
            None => tracing::error!(
                stage = stage.as_str(),
                reason = reason.as_str(),
                "The catalog does not declare this kind of abort."
            ),
        }
    }
}

impl Observer for EngineObserver {
    fn on_step(&mut self, stats: &StepStats<'_>) {
        let turn = match stats.phase {
            StepPhase::Prefill => labels::Turn::Prefill,
            StepPhase::Decode => labels::Turn::Decode,
            StepPhase::Mixed => labels::Turn::Mixed,
            StepPhase::Idle => labels::Turn::Idle,
        };
        self.turns[turn.index()].increment();
        for stage in LoopStage::ALL {
            self.stages[loop_stage(stage).index()].add(stats.stages.of(stage));
        }
        self.record_batch(stats);
        self.record_tokens(stats);
        self.record_first_tokens(stats);
        self.record_queues(stats);
    }

    fn on_request_end(&mut self, end: &RequestEnd) {
        let outcome = match &end.outcome {
            Outcome::Stop if end.tool_calls => labels::Outcome::ToolCall,
            Outcome::Stop => labels::Outcome::Stop,
            Outcome::Length => labels::Outcome::Length,
            Outcome::Error(_) => labels::Outcome::Error,
            // Refused while it waited: it never ran, so it is counted with the refusals.
            Outcome::Rejected(refusal) => {
                return self.requests.rejected(refusal, 1, end.priority.class());
            }
            Outcome::Aborted(abort) => {
                self.record_abort(abort);
                labels::Outcome::Aborted
            }
        };
        self.finished[outcome.index()].increment();
        self.duration[outcome.index()].record_duration(end.timings.duration());
        self.generated_per_request.record_count(end.generated_tokens as u64);
        if let Some(gap) = end.time_per_output_token() {
            self.per_token.record_duration(gap);
        }
        self.judge(end);
    }
}

/// Position of an abort's counter among all combinations.
fn abort_place(
    stage: labels::AbortStage,
    initiator: labels::AbortInitiator,
    reason: labels::AbortReason,
) -> usize {
    let initiators = labels::AbortInitiator::ALL.len();
    let reasons = labels::AbortReason::ALL.len();
    (stage.index() * initiators + initiator.index()) * reasons + reason.index()
}

const fn streaming(streaming: bool) -> labels::Streaming {
    if streaming { labels::Streaming::True } else { labels::Streaming::False }
}

const fn loop_stage(stage: LoopStage) -> labels::Stage {
    match stage {
        LoopStage::Wait => labels::Stage::Wait,
        LoopStage::Events => labels::Stage::Events,
        LoopStage::Schedule => labels::Stage::Schedule,
        LoopStage::Forward => labels::Stage::Forward,
        LoopStage::Sample => labels::Stage::Sample,
        LoopStage::Commit => labels::Stage::Commit,
        LoopStage::Observe => labels::Stage::Observe,
    }
}

const fn preempt_reason(reason: PreemptReason) -> labels::PreemptReason {
    match reason {
        PreemptReason::KvPressure => labels::PreemptReason::KvPressure,
        PreemptReason::Priority => labels::PreemptReason::Priority,
    }
}

const fn abort_stage(stage: Stage) -> labels::AbortStage {
    match stage {
        Stage::Queued => labels::AbortStage::Queued,
        Stage::Bootstrap => labels::AbortStage::Bootstrap,
        Stage::Transfer => labels::AbortStage::Transfer,
        Stage::Prefill => labels::AbortStage::Prefill,
        Stage::Decode => labels::AbortStage::Decode,
    }
}

const fn abort_reason(reason: AbortReason) -> labels::AbortReason {
    match reason {
        AbortReason::ClientGone => labels::AbortReason::ClientGone,
        AbortReason::SlowClient => labels::AbortReason::SlowClient,
        AbortReason::RunningTimeout => labels::AbortReason::RunningTimeout,
        AbortReason::DrainDeadline => labels::AbortReason::DrainDeadline,
        AbortReason::Shutdown => labels::AbortReason::Shutdown,
        AbortReason::PeerAbort => labels::AbortReason::PeerAbort,
    }
}

const fn abort_initiator(initiator: Initiator) -> labels::AbortInitiator {
    match initiator {
        Initiator::Client => labels::AbortInitiator::Client,
        Initiator::Server => labels::AbortInitiator::Server,
        Initiator::Peer => labels::AbortInitiator::Peer,
    }
}
