//! vLLM: the families that boards and rules use, and the quirks of its exposition.
//!
//! - A process has a series for each data-parallel engine (`engine`); those are no copies and are
//!   summed.
//! - It exports no role. The scrape configuration sets `engine_role` on the targets; where it does
//!   not, all processes are taken together.
//! - Names of old versions differ: a query that must hold for both takes the new name `or` the old.
//! - How many prompt tokens wait is not exported, so there is no drain time. Requests that are
//!   refused or given up appear in no histogram.

use super::labels::*;
use super::{families, page};
use crate::labels::{Cluster, Instance, Job, ModelName, Node, Role};
use crate::promql::{Expr, Window, bucket_rate, max, quantile_of};

/// Labels of one process of one model.
pub const INSTANCE: &[&str] = crate::promql::INSTANCE;

page! {
    /// Labels of what an engine says.
    OfEngine: Cluster, Node, Job, Instance, Role, ModelName, EngineIndex
}
page! {
    /// Labels of what the front process says of admission.
    Front: Cluster, Node, Job, Instance, Role, ModelName
}
page! {
    /// Labels of what the HTTP server says.
    Http: Cluster, Node, Job, Instance, Role
}

/// Edges of the time to first token.
pub const TTFT_BUCKETS: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
/// Edges of the gap between tokens.
pub const ITL_BUCKETS: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
/// Edges of the durations of requests and of their parts.
pub const REQUEST_BUCKETS: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
/// Edges of the tokens of a step.
pub const ITERATION_BUCKETS: &[f64] =
    &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16_384.0];
/// Edges of the duration of a transfer.
pub const TRANSFER_BUCKETS: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 5.0];
/// Edges of the time that blocks stay in the device pool.
pub const RESIDENCY_BUCKETS: &[f64] = &[
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0,
    120.0, 300.0, 600.0, 1200.0, 1800.0,
];
/// Edges of the size of a transfer: every other power of two from 2 KiB.
pub const TRANSFER_SIZE_BUCKETS: &[f64] = &[
    2048.0,
    8192.0,
    32_768.0,
    131_072.0,
    524_288.0,
    2_097_152.0,
    8_388_608.0,
    33_554_432.0,
    134_217_728.0,
    536_870_912.0,
    2_147_483_648.0,
    8_589_934_592.0,
];

families! {
    /// What engines say.
    ENGINE: Vllm<OfEngine>;

    /// Requests in the running batch.
    NUM_REQUESTS_RUNNING: Gauge = "vllm:num_requests_running", Requests;
    /// Requests that wait to be scheduled.
    NUM_REQUESTS_WAITING: Gauge = "vllm:num_requests_waiting", Requests;
    /// Waiting requests by what they wait for.
    NUM_REQUESTS_WAITING_BY_REASON: Gauge<WaitingReason> =
        "vllm:num_requests_waiting_by_reason", Requests;
    /// Requests on a decode process by how far their KV has come.
    NUM_REQUESTS_KV_FETCH_BY_STAGE: Gauge<FetchStage> =
        "vllm:num_requests_kv_fetch_by_stage", Requests;
    /// Used share of the device pool; a ratio in spite of its name.
    KV_CACHE_USAGE_PERC: Gauge = "vllm:kv_cache_usage_perc", Ratio;
    /// The same, by its old name.
    GPU_CACHE_USAGE_PERC: Gauge = "vllm:gpu_cache_usage_perc", Ratio;
    /// Running requests preempted.
    NUM_PREEMPTIONS: Counter = "vllm:num_preemptions_total", Requests;
    /// Prompt tokens processed.
    PROMPT_TOKENS: Counter = "vllm:prompt_tokens_total", Tokens;
    /// Prompt tokens by where their KV comes from.
    PROMPT_TOKENS_BY_SOURCE: Counter<TokenSource> = "vllm:prompt_tokens_by_source_total", Tokens;
    /// Prompt tokens whose KV was there, by tier.
    PROMPT_TOKENS_CACHED_BY_SOURCE: Counter<CacheHitSource> =
        "vllm:prompt_tokens_cached_by_source_total", Tokens;
    /// Tokens generated.
    GENERATION_TOKENS: Counter = "vllm:generation_tokens_total", Tokens;
    /// Prompt tokens looked up in the prefix cache.
    PREFIX_CACHE_QUERIES: Counter = "vllm:prefix_cache_queries_total", Tokens;
    /// Prompt tokens found in it.
    PREFIX_CACHE_HITS: Counter = "vllm:prefix_cache_hits_total", Tokens;
    /// Requests that ended, by how.
    REQUEST_SUCCESS: Counter<FinishedReason> = "vllm:request_success_total", Requests;
    /// Time to the first token.
    TIME_TO_FIRST_TOKEN: Histogram =
        "vllm:time_to_first_token_seconds", Seconds, buckets TTFT_BUCKETS;
    /// Gap between tokens.
    INTER_TOKEN_LATENCY: Histogram =
        "vllm:inter_token_latency_seconds", Seconds, buckets ITL_BUCKETS;
    /// The same, by its old name.
    TIME_PER_OUTPUT_TOKEN: Histogram =
        "vllm:time_per_output_token_seconds", Seconds, buckets ITL_BUCKETS;
    /// Mean gap between tokens of a request.
    REQUEST_TIME_PER_OUTPUT_TOKEN: Histogram =
        "vllm:request_time_per_output_token_seconds", Seconds, buckets ITL_BUCKETS;
    /// Duration of requests; those that were given up are missing.
    E2E_REQUEST_LATENCY: Histogram =
        "vllm:e2e_request_latency_seconds", Seconds, buckets REQUEST_BUCKETS;
    /// Time requests spent waiting.
    REQUEST_QUEUE_TIME: Histogram =
        "vllm:request_queue_time_seconds", Seconds, buckets REQUEST_BUCKETS;
    /// Time from being scheduled to the first token.
    REQUEST_PREFILL_TIME: Histogram =
        "vllm:request_prefill_time_seconds", Seconds, buckets REQUEST_BUCKETS;
    /// Time from the first token to the last.
    REQUEST_DECODE_TIME: Histogram =
        "vllm:request_decode_time_seconds", Seconds, buckets REQUEST_BUCKETS;
    /// Tokens of a step; a histogram in spite of its name.
    ITERATION_TOKENS: Histogram =
        "vllm:iteration_tokens_total", Tokens, buckets ITERATION_BUCKETS;
    /// 1 for the state of sleep that the engine is in.
    ENGINE_SLEEP_STATE: Gauge<SleepState> = "vllm:engine_sleep_state", Flag;
    /// Draft tokens proposed.
    SPEC_DECODE_NUM_DRAFT_TOKENS: Counter = "vllm:spec_decode_num_draft_tokens_total", Tokens;
    /// Draft tokens accepted.
    SPEC_DECODE_NUM_ACCEPTED_TOKENS: Counter =
        "vllm:spec_decode_num_accepted_tokens_total", Tokens;
    /// Duration of a NIXL transfer of one rank.
    NIXL_XFER_TIME: Histogram =
        "vllm:nixl_xfer_time_seconds", Seconds, buckets TRANSFER_BUCKETS;
    /// Bytes of a NIXL transfer of one rank.
    NIXL_BYTES_TRANSFERRED: Histogram =
        "vllm:nixl_bytes_transferred", Bytes, buckets TRANSFER_SIZE_BUCKETS;
    /// NIXL transfers that failed.
    NIXL_NUM_FAILED_TRANSFERS: Counter = "vllm:nixl_num_failed_transfers_total", Requests;
    /// NIXL notifications that failed.
    NIXL_NUM_FAILED_NOTIFICATIONS: Counter =
        "vllm:nixl_num_failed_notifications_total", Requests;
    /// Requests whose KV nobody fetched in time, on the prefill process.
    NIXL_NUM_KV_EXPIRED_REQS: Counter = "vllm:nixl_num_kv_expired_reqs_total", Requests;
    /// Bytes copied from host to device.
    KV_OFFLOAD_LOAD_BYTES: Counter = "vllm:kv_offload_load_bytes_total", Bytes;
    /// Time in copies from host to device.
    KV_OFFLOAD_LOAD_TIME: TimeCounter = "vllm:kv_offload_load_time_total", Seconds;
    /// Bytes copied from device to host.
    KV_OFFLOAD_STORE_BYTES: Counter = "vllm:kv_offload_store_bytes_total", Bytes;
    /// Time in copies from device to host.
    KV_OFFLOAD_STORE_TIME: TimeCounter = "vllm:kv_offload_store_time_total", Seconds;
    /// Share of the host tier that is pinned by copies, not the share that is filled.
    KV_OFFLOAD_CPU_CACHE_USAGE_PERC: Gauge = "vllm:kv_offload_cpu_cache_usage_perc", Ratio;
    /// Copies to the host that were left out for lack of room.
    KV_OFFLOAD_STORES_SKIPPED: Counter = "vllm:kv_offload_stores_skipped_total", Count;
    /// Allocations in the host tier that found no room.
    KV_OFFLOAD_ALLOCATION_FAILURE: Counter = "vllm:kv_offload_allocation_failure_total", Count;
    /// How long blocks of the device pool lived; sampled, and off by default.
    KV_BLOCK_LIFETIME: Histogram =
        "vllm:kv_block_lifetime_seconds", Seconds, buckets RESIDENCY_BUCKETS;
}

families! {
    /// What the front process says of admission.
    FRONT: VllmFront<Front>;

    /// Requests refused at a limit of the queue, by which.
    ADMISSION_REJECTIONS: Counter<RejectionReason> = "vllm:admission_rejections_total", Requests;
}

families! {
    /// What the HTTP server says.
    HTTP: VllmHttp<Http>;

    /// Requests by class of their status.
    HTTP_REQUESTS: Counter<Handler, HttpMethod, HttpStatusClass> = "http_requests_total", Requests;
}

/// All families, page by page.
pub const ALL: &[&[&crate::def::Info]] = &[ENGINE, FRONT, HTTP];

/// Quantile of the gap between tokens, whichever name the version has; by `INSTANCE` without the
/// labels that `by` leaves out.
pub fn inter_token_latency(quantile: f64, window: Window, by: &[&'static str]) -> Expr {
    let new = bucket_rate(INTER_TOKEN_LATENCY, window);
    let buckets = new.or(bucket_rate(TIME_PER_OUTPUT_TOKEN, window));
    quantile_of(quantile, buckets).group(by.to_vec())
}

/// Used share of the device pool, whichever name the version has; by `INSTANCE` and `engine`.
pub fn kv_usage() -> Expr {
    let by = || [INSTANCE, &["engine"]].concat();
    let new = max(KV_CACHE_USAGE_PERC).group(by());
    new.or(max(GPU_CACHE_USAGE_PERC).group(by()))
}
