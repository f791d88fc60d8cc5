//! What the engine tells about itself: plain values, recorded by somebody else.

use std::time::Duration;

use kv_cache::{Age, Direction, HostStats, PoolStats};
use memory_pool::CopyStats;
use types::{RequestId, Time};

use crate::output::{RequestEnd, TtftPhases};
use crate::storage::StorageStats;

/// Takes the engine's values. Runs on the engine's thread; what it does is paid by every step.
pub trait Observer: Send {
    /// After every turn of the loop, idle ones included.
    fn on_step(&mut self, stats: &StepStats<'_>);

    /// Once per request that was accepted, before its sink hears of the end.
    fn on_request_end(&mut self, end: &RequestEnd);
}

/// One turn of the loop. Counts are of this turn only.
#[derive(Debug)]
pub struct StepStats<'a> {
    /// The end of the turn.
    pub now: Time,
    /// What the turn ran.
    pub phase: StepPhase,
    /// From the first event drained to the last token committed; zero when idle.
    pub duration: Duration,
    /// Of which in the model's forward pass, waits for copies included.
    pub busy: Duration,
    /// How long each rank computed of that, without what it waited for other ranks and for loads:
    /// [`ModelRunner::busy`](model::ModelRunner::busy). Empty when idle, and where the model does
    /// not say: `busy` is all that is known then.
    pub rank_busy: &'a [Duration],
    /// Requests in the batch.
    pub requests: usize,
    /// Tokens in the batch: prompt and recomputed ones, and answer tokens computed for the first
    /// time.
    pub tokens: usize,
    /// Prompt tokens computed for the first time.
    pub prompt_tokens: u64,
    /// Prompt tokens taken from pages of the prefix cache on the device, for the first time:
    /// `prompt_tokens_total` of the source `device`. The sources and `prompt_tokens` add up to the
    /// prompts that reached their end.
    pub cached_device_tokens: u64,
    /// The same from pages that were loaded from the host tier for it.
    pub cached_host_tokens: u64,
    /// The same from pages that came from storage.
    pub cached_storage_tokens: u64,
    /// Prompt tokens whose KV a prefill worker has computed and sent; counted when all of it was
    /// there, once for each request.
    pub cached_remote_tokens: u64,
    /// Prompt and answer tokens computed again after a preemption.
    pub recomputed_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Requests retracted, by reason.
    pub preemptions: Preemptions,
    /// What was lost to copies between the tiers.
    pub copy_waits: CopyWaits,
    /// Requests whose first token came.
    pub first_tokens: &'a [FirstToken],
    /// Gaps between this turn's tokens and the ones before them, of the same requests.
    pub inter_token: &'a [Duration],
    /// Requests that left a queue, whatever the exit.
    pub queue_exits: &'a [QueueExit],
    /// For how long pages had lain unused that were given up or used again; about a thousand at
    /// most, beyond which pages are counted together.
    pub ages: &'a [Age],
    /// Copies between the tiers that were made since the last turn.
    pub copies: &'a [CopyTime],
    /// Time by stage since the last turn's report; over all turns they add up to elapsed time.
    pub stages: &'a StageTimes,
}

/// A copy between the tiers that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyTime {
    /// Which way.
    pub direction: Direction,
    /// How long it took, without its time in the queue; of several nodes, the longest.
    pub busy: Duration,
}

/// What one turn lost to copies between the tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopyWaits {
    /// Time in which the forward pass waited for loads, layer by layer; part of `busy`. Where ranks
    /// wait beside each other, that of the rank that waited longest.
    pub loads: Duration,
    /// Copies that had to end before the forward pass could begin: of pages that are somebody
    /// else's already, or because the queue had no room for a load.
    pub urgent: u64,
    /// Time spent on those; part of `busy`.
    pub urgent_time: Duration,
    /// Requests that stood still because pages that they need are being copied.
    pub held: u64,
}

/// What a turn ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepPhase {
    /// Prompt chunks only.
    Prefill,
    /// Decode rows only.
    Decode,
    /// Both.
    Mixed,
    /// Nothing.
    Idle,
}

impl StepPhase {
    /// Every phase, in declaration order.
    pub const ALL: [Self; 4] = [Self::Prefill, Self::Decode, Self::Mixed, Self::Idle];
}

/// The exclusive stages of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LoopStage {
    /// Blocked, with nothing to do.
    Wait,
    /// Taking in submissions and aborts.
    Events,
    /// Choosing the batch.
    Schedule,
    /// The model's forward pass.
    Forward,
    /// Choosing tokens from logits.
    Sample,
    /// Handing tokens out and ending requests.
    Commit,
    /// Reporting: observers, snapshot, ends.
    Observe,
}

impl LoopStage {
    /// Every stage, in declaration order.
    pub const ALL: [Self; 7] = [
        Self::Wait,
        Self::Events,
        Self::Schedule,
        Self::Forward,
        Self::Sample,
        Self::Commit,
        Self::Observe,
    ];
}

/// A duration per stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StageTimes([Duration; LoopStage::ALL.len()]);

impl StageTimes {
    /// The time of one stage.
    #[must_use]
    pub const fn of(&self, stage: LoopStage) -> Duration {
        self.0[stage as usize]
    }

    /// The sum of all stages.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.0.iter().sum()
    }

    pub(crate) fn add(&mut self, stage: LoopStage, time: Duration) {
        self.0[stage as usize] += time;
    }
}

/// Why a running request was retracted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PreemptReason {
    /// No page was free for a better running request.
    KvPressure,
    /// A waiting request that is much better needed its slot or its pages.
    Priority,
}

impl PreemptReason {
    /// Every reason, in declaration order.
    pub const ALL: [Self; 2] = [Self::KvPressure, Self::Priority];
}

/// Retractions of one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Preemptions {
    /// Requests by reason.
    requests: [u64; PreemptReason::ALL.len()],
    /// Computed prompt tokens thrown away.
    pub input_tokens: u64,
    /// Computed answer tokens thrown away.
    pub output_tokens: u64,
}

impl Preemptions {
    /// Requests retracted for `reason`.
    #[must_use]
    pub const fn of(&self, reason: PreemptReason) -> u64 {
        self.requests[reason as usize]
    }

    /// Requests retracted, for whatever reason.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.iter().sum()
    }

    pub(crate) const fn count(&mut self, reason: PreemptReason, input: u64, output: u64) {
        self.requests[reason as usize] += 1;
        self.input_tokens += input;
        self.output_tokens += output;
    }
}

/// The first token of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstToken {
    /// The request.
    pub id: RequestId,
    /// Whether its client reads a stream; passed through from the submission.
    pub streaming: bool,
    /// From accept to the token; the sum of `phases`.
    pub ttft: Duration,
    /// Its exclusive parts.
    pub phases: TtftPhases,
}

/// The engine's queues. The live permits are those of `Waiting`, but for the landed requests in it,
/// of `Bootstrap` and of `Prealloc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Queue {
    /// Not scheduled yet. On a decode worker also a request whose KV has come and that waits for a
    /// running slot.
    Waiting,
    /// Preempted; comes before whatever waits with the same rank.
    Retracted,
    /// Prefill: accepted; the decode worker has no pages for it yet.
    Bootstrap,
    /// Prefill: computed; the decode worker has not said yet that it has all of it.
    InflightSend,
    /// Decode: a prefill worker has accepted it; it waits for pages here.
    Prealloc,
    /// Decode: it has pages; what they will hold is being computed or is on its way.
    Transfer,
}

impl Queue {
    /// Every queue, in declaration order.
    pub const ALL: [Self; 6] = [
        Self::Waiting,
        Self::Retracted,
        Self::Bootstrap,
        Self::InflightSend,
        Self::Prealloc,
        Self::Transfer,
    ];
}

/// A request left a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueExit {
    /// The request.
    pub id: RequestId,
    /// Which queue.
    pub queue: Queue,
    /// Time in it; for `Waiting` since its permit was given, where it was in no queue before.
    pub waited: Duration,
    /// Where to.
    pub cause: QueueExitCause,
}

/// Where a request went from its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueueExitCause {
    /// Into the running batch.
    Scheduled,
    /// Into the next queue.
    Advanced,
    /// Out of the engine: given up, failed, or complete.
    Ended,
}

/// The life of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EngineState {
    /// Takes requests.
    Ready,
    /// Finishes what it has.
    Draining,
    /// Drained or shut down; its thread has ended.
    Stopped,
    /// The model failed or the engine panicked; its thread has ended.
    Failed,
}

/// The engine now: readable at any time, never waits for a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineSnapshot {
    /// Where in its life it is.
    pub state: EngineState,
    /// Why it failed.
    pub failure: Option<String>,
    /// Requests in the running batch.
    pub running: usize,
    /// Most that may be.
    pub running_limit: usize,
    /// Requests in the engine's waiting queue; those still on their way to it are not in here, so
    /// the gauge of the queue depth is admission's.
    pub waiting: usize,
    /// The retracted queue.
    pub retracted: RetractedSnapshot,
    /// Prefill: requests whose decode worker has no pages for them yet.
    pub bootstrap: QueueSnapshot,
    /// Prefill: computed prompts that their decode workers do not have in full yet.
    pub inflight_send: QueueSnapshot,
    /// Decode: requests that wait for pages.
    pub prealloc: QueueSnapshot,
    /// Decode: requests whose KV is being computed or is on its way.
    pub transfer: QueueSnapshot,
    /// Decode: requests whose KV has come and that wait for a running slot; part of the queue
    /// `waiting`, and without permits.
    pub landed: QueueSnapshot,
    /// Pages whose requests have ended or were retracted while a link could still use them.
    pub held: HeldSnapshot,
    /// Each KV pool, in the order of `PoolId`.
    pub pools: Vec<PoolSnapshot>,
    /// What was copied between the tiers so far.
    pub copies: CopyStats,
    /// What was asked of the storage behind the host tier, where there is one.
    pub storage: Option<StorageStats>,
    /// When the last turn ended; at most a second old while the engine lives and no step runs.
    pub last_iteration: Time,
    /// Turns so far.
    pub iterations: u64,
}

/// One KV pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSnapshot {
    /// Its pages on the device.
    pub device: PoolStats,
    /// Its pages on the host, where there is such a tier.
    pub host: Option<HostStats>,
}

/// A queue of prefill/decode disaggregation, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueSnapshot {
    /// Requests in it.
    pub requests: usize,
    /// Their prompt tokens that no worker had computed when they came into the queue; 0 for what
    /// is computed already.
    pub pending_tokens: u64,
    /// Of these, those that this worker will have to compute as far as it knows: 0 but for
    /// `bootstrap`.
    pub uncached_tokens: u64,
    /// Since when the one that has been in it longest has been.
    pub oldest: Option<Time>,
}

/// Pages that nobody may have until a link has let go of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeldSnapshot {
    /// Requests that they were of.
    pub requests: usize,
    /// Pages, of all pools; those that others hold as well are among them.
    pub pages: u64,
    /// Their bytes on the device.
    pub bytes: u64,
}

/// The retracted queue, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetractedSnapshot {
    /// Requests in it.
    pub requests: usize,
    /// Tokens that they have to compute again.
    pub tokens: u64,
    /// Since when the one that was retracted first has been in it.
    pub oldest: Option<Time>,
}
