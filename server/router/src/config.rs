//! The settings of the core, all of which can change while it runs.

use std::time::Duration;

use crate::policy::{Guard, PolicyKind};

/// Settings of [`Core`](crate::Core).
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// How workers are chosen.
    pub policy: PolicyKind,
    /// When a worker counts as well.
    pub health: HealthConfig,
    /// When a worker is left alone after failures.
    pub breaker: BreakerConfig,
    /// What is sent again.
    pub retry: RetryConfig,
    /// Bounds on what is remembered of prompts.
    pub prefixes: PrefixConfig,
    /// How long, and how much, waits where nobody can be asked for a moment.
    pub hold: HoldConfig,
    /// How long a worker that came back, or is drained no more, gets a growing share of the
    /// requests that it could take, where others can; zero means all at once.
    pub slow_start: Duration,
    /// How much more to do than others a worker may have and still be chosen for its prefixes or
    /// by hash.
    pub guard: Guard,
    /// Prompt tokens per second of a worker that does not tell.
    pub assumed_prefill_rate: f64,
    /// Requests are refused at the door where every worker would refuse them.
    pub refuse_at_door: bool,
    /// Prompts are taken for so much shorter than estimated before they are refused at the door,
    /// 0 to 1; less so where estimates were better lately.
    pub door_margin: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            policy: PolicyKind::default(),
            health: HealthConfig::default(),
            breaker: BreakerConfig::default(),
            retry: RetryConfig::default(),
            prefixes: PrefixConfig::default(),
            hold: HoldConfig::default(),
            slow_start: Duration::from_secs(10),
            guard: Guard { factor: 1.5, floor: Duration::from_secs(2), occupancy_floor: 0.5 },
            assumed_prefill_rate: 3000.0,
            refuse_at_door: true,
            door_margin: 0.8,
        }
    }
}

/// When a worker counts as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthConfig {
    /// Polls in a row without an answer after which a worker is unhealthy; at least 1.
    pub unhealthy_after: u32,
    /// Answers in a row after which an unhealthy or new worker is ready; at least 1.
    pub ready_after: u32,
    /// A load report older than this is not believed.
    pub report_fresh: Duration,
    /// A worker that has not answered a poll for so long is unhealthy, also where nobody polled it.
    pub silent_after: Duration,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            unhealthy_after: 3,
            ready_after: 1,
            report_fresh: Duration::from_secs(3),
            silent_after: Duration::from_secs(30),
        }
    }
}

/// When a worker is left alone after failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerConfig {
    /// Failures within `window`, at least half of what ended there, that open it; at least 1.
    pub failures: u32,
    /// Over how long failures are counted.
    pub window: Duration,
    /// How long it stays open the first time; doubles each time a probe fails.
    pub open: Duration,
    /// The longest that it stays open.
    pub open_max: Duration,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            failures: 5,
            window: Duration::from_secs(30),
            open: Duration::from_secs(2),
            open_max: Duration::from_secs(60),
        }
    }
}

/// What is sent again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryConfig {
    /// Times that one request is sent, the first one included; at least 1.
    pub tries: u32,
    /// Retries per request over the long run, 0 to 1. Those after connections that were not made
    /// do not count: nobody has done anything for them.
    pub budget_share: f64,
    /// Retries that may be saved up.
    pub budget_burst: f64,
    /// How long a worker is left alone that asked for time without saying how much.
    pub cool: Duration,
    /// The longest that a worker is left alone because it asked for time.
    pub cool_max: Duration,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            tries: 3,
            budget_share: 0.2,
            budget_burst: 20.0,
            cool: Duration::from_secs(1),
            cool_max: Duration::from_secs(60),
        }
    }
}

/// Bounds on what is remembered of prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixConfig {
    /// Bytes of memory over all workers: about 130 for each piece of a prompt at a worker, a prompt
    /// of 60,000 bytes having about 70 pieces of which it shares those at its beginning.
    pub bytes_max: usize,
    /// Pieces remembered of one worker; the least recently used go first.
    pub pieces_per_worker: usize,
}

impl Default for PrefixConfig {
    fn default() -> Self {
        Self { bytes_max: 32 << 20, pieces_per_worker: 32_768 }
    }
}

/// What waits where nobody can be asked for a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldConfig {
    /// How long after a model could last be answered; zero means that nothing is held.
    pub time: Duration,
    /// Requests at a time, of all models.
    pub requests: usize,
    /// Prompt tokens of those, estimated.
    pub tokens: u64,
}

impl Default for HoldConfig {
    fn default() -> Self {
        Self { time: Duration::from_secs(10), requests: 32, tokens: 65_536 }
    }
}
