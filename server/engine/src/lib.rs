//! The scheduler and its thread: continuous batching over paged KV.
//!
//! One thread turns one loop ([`step`](self)): drain events, schedule, execute, commit, observe. A
//! step mixes one decode row per running answer with chunks of prompts under a token budget, in
//! the order of rank: effective priority, then arrival. When pages run out, the worst running
//! request is retracted: its pages are freed, it queues before whatever waits with the same rank,
//! and its tokens are computed again later; its text stays the same. The same happens to one that
//! a waiting request exceeds by the configured levels of priority, where there is no slot for it.
//!
//! Invariants:
//! - every accepted submission ends exactly once, through [`Sink::finish`];
//! - the best running request progresses in every step that runs a batch, or waits for pages that
//!   are being copied between the tiers, for a second at most while others run;
//! - pages belong to a request and are freed by dropping it; the queue depth is the live permits;
//! - the cost of a step is logarithmic in how many requests wait;
//! - a step that only decodes allocates nothing once its buffers are warm.
//!
//! This crate knows no text, no wire format and no metric: a [`Sink`] takes the tokens of one
//! request, an [`Observer`] takes plain values once per step. Only the thread's rim reads a clock;
//! the core takes time from a [`TimeSource`].
#![forbid(unsafe_code)]

mod admit;
mod budget;
mod commit;
mod config;
mod copier;
mod curve;
mod deadlines;
mod disagg;
mod event;
mod handle;
mod host;
mod mailbox;
mod output;
mod plan;
mod preempt;
mod prepare;
mod queue;
mod request;
mod scheduler;
mod scores;
mod shares;
mod stats;
mod step;
mod stepper;
mod storage;
mod submission;
mod tenants;
mod time;
mod waiting;

#[cfg(test)]
mod cache_test;
#[cfg(test)]
mod dice;
#[cfg(test)]
mod rules_test;
#[cfg(test)]
mod sim_test;
#[cfg(test)]
mod storage_test;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod witness;

pub use config::{ConfigError, EngineConfig, HitCurveConfig, Scheduling};
pub use curve::{CurveSnapshot, Estimator, Follower};
pub use event::{AbortReason, Initiator};
pub use handle::{Handle, SubmitError, SubmitRefused};
pub use kv_cache::{
    Age, AgeEvent, CacheTier, Direction, HostStats, HostTier, Namespace, PoolStats, Retention,
    WritePolicy,
};
pub use memory_pool::CopyStats;
pub use output::{
    Abort, Finish, Outcome, PromptLogprob, RemotePhases, RequestEnd, RequestError, Sink, Stage,
    Timings, TokenEvent, TtftPhases, Verdict,
};
pub use prepare::{PrepareError, Prepared, prepare};
pub use stats::{
    CopyTime, CopyWaits, EngineSnapshot, EngineState, FirstToken, HeldSnapshot, LoopStage,
    Observer, PoolSnapshot, PreemptReason, Preemptions, Queue, QueueExit, QueueExitCause,
    QueueSnapshot, RetractedSnapshot, StageTimes, StepPhase, StepStats,
};
pub use step::Turn;
pub use stepper::Stepper;
pub use storage::{
    Places, PrefetchPolicy, PrefetchTimeout, Reading, Storage, StorageBusy, StorageStats,
    StoredPages,
};
pub use submission::Submission;
pub use time::TimeSource;
