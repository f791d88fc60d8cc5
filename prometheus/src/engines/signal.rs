//! What a board wants to know, whatever engine it is about.

use std::fmt;

macro_rules! signals {
    ($($(#[$doc:meta])+ $name:ident = $text:literal,)+) => {
        /// Something that a board wants to know of an engine.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Signal {
            $($(#[$doc])+ $name,)+
        }

        impl Signal {
            /// All of them, in the order of `signals.json`.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Its name in `signals.json`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }
    };
}

signals! {
    /// Requests in the running batch.
    RunningRequests = "running_requests",
    /// Requests waiting to be scheduled.
    QueuedRequests = "queued_requests",
    /// Uncached prompt tokens queued for prefill.
    PendingPrefillTokens = "pending_prefill_tokens",
    /// Time to prefill what is queued at the current rate.
    QueueDrainSeconds = "queue_drain_seconds",
    /// Age of the oldest waiting request.
    OldestQueuedAgeSeconds = "oldest_queued_age_seconds",
    /// Queue wait per request (p99).
    QueueTimeSeconds = "queue_time_seconds",
    /// Time to first token (p99).
    TtftSeconds = "ttft_seconds",
    /// Exclusive phases of TTFT.
    TtftBreakdown = "ttft_breakdown",
    /// Inter-token latency (p99).
    ItlSeconds = "itl_seconds",
    /// Per-request mean time per output token (p99).
    TpotSeconds = "tpot_seconds",
    /// Request duration (p99).
    E2eSeconds = "e2e_seconds",
    /// Prompt tokens of finished or processed requests.
    PromptTokensRate = "prompt_tokens_rate",
    /// Prompt tokens actually computed.
    PrefillComputeRate = "prefill_compute_rate",
    /// Output tokens.
    GenerationTokensRate = "generation_tokens_rate",
    /// Share of prompt tokens served from any cache.
    PrefixHitRatio = "prefix_hit_ratio",
    /// Cached tokens by tier.
    PrefixHitByTier = "prefix_hit_by_tier",
    /// Device KV pinned share, worst pool.
    KvDeviceUsageRatio = "kv_device_usage_ratio",
    /// Host KV tier used share.
    KvHostUsageRatio = "kv_host_usage_ratio",
    /// Host tier used share per pool.
    KvHostUsageByPool = "kv_host_usage_by_pool",
    /// Host tier size in bytes, and what was asked for.
    HostCacheBytes = "host_cache_bytes",
    /// Host pool pages by NUMA node.
    HostCacheNumaPlacement = "host_cache_numa_placement",
    /// Host to device.
    HicacheLoadBytesRate = "hicache_load_bytes_rate",
    /// Device to host.
    HicacheBackupBytesRate = "hicache_backup_bytes_rate",
    /// Bytes over busy time, host to device.
    HicacheBandwidth = "hicache_bandwidth",
    /// Cache evictions.
    KvEvictionsRate = "kv_evictions_rate",
    /// PD queues.
    PdQueueRequests = "pd_queue_requests",
    /// KV transfer time (p99).
    KvTransferSeconds = "kv_transfer_seconds",
    /// KV transfer volume.
    KvTransferBytesRate = "kv_transfer_bytes_rate",
    /// Bytes over time on the wire.
    KvTransferBandwidth = "kv_transfer_bandwidth",
    /// Failed KV transfers.
    KvTransferFailuresRate = "kv_transfer_failures_rate",
    /// Retracted or preempted requests.
    PreemptionsRate = "preemptions_rate",
    /// Aborted requests by reason.
    AbortsRate = "aborts_rate",
    /// Requests refused by admission control.
    RejectionsRate = "rejections_rate",
    /// HTTP responses by status.
    HttpStatusRate = "http_status_rate",
    /// Lifecycle and sleep.
    EngineState = "engine_state",
    /// Scheduler turn time and stages.
    SchedulerLoopSeconds = "scheduler_loop_seconds",
    /// Proof the loop turns.
    SchedulerHeartbeat = "scheduler_heartbeat",
    /// Share of time in forward passes.
    GpuForwardBusyRatio = "gpu_forward_busy_ratio",
    /// Executed batch size.
    BatchSize = "batch_size",
    /// Accepted over drafted tokens.
    SpecAcceptanceRatio = "spec_acceptance_ratio",
    /// Requests that missed the objective.
    SloBadRatio = "slo_bad_ratio",
    /// Startup phases.
    StartupSeconds = "startup_seconds",
    /// Memory held by dead transfers.
    KvHeldByFailedTransfers = "kv_held_by_failed_transfers",
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
