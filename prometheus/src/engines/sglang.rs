//! SGLang: the families that boards and rules use, and the quirks of its exposition.
//!
//! - Each scheduler rank exposes the gauges and counters of its data-parallel group for itself, so
//!   that copies of one number are added up where they are just summed. `deduped` takes the largest
//!   of the copies first; what is shares of a whole (bytes moved by a rank) is summed as it is.
//! - Where priorities are on, the queues have a series for each priority beside that of all: the
//!   largest is that of all, so `deduped` holds there as well.
//! - Pending tokens are not on the page but on `/v1/loads`, which knows no model and no role and is
//!   a scrape job of its own. `of_processes` joins them with the page on cluster and instance.
//! - A failed transfer is counted once by the prefill and once by the decode process: roles are
//!   never added up.
//! - Requests that are refused or given up appear in no histogram.

use super::labels::*;
use super::{families, page};
use crate::def::{Cumulative, Gauge, Label, LabelSet, Metric, Unit};
use crate::labels::{Cluster, Instance, Job, ModelName, Node, TpRank};
use crate::promql::{
    Expr, Instant, Selection, Window, avg, clamp_min, group, increase, max, quotient_of, rate, sum,
};
use crate::slo::CAPACITY_FLOOR_TOKENS_PER_SECOND;

/// Labels of one process of one model.
pub const INSTANCE: &[&str] = &["cluster", "node", "job", "instance", "engine_type", "model_name"];

/// Labels that `/v1/loads` and the page of one process share.
pub const PROCESS: &[&str] = &["cluster", "instance"];

page! {
    /// Labels of what a scheduler rank says.
    Scheduler: Cluster, Node, Job, Instance, EngineType, ModelName, DpRank, TpRank, PpRank,
        MoeEpRank
}
page! {
    /// Labels of what the front process says of requests.
    Tokenizer: Cluster, Node, Job, Instance, EngineType, ModelName
}
page! {
    /// Labels of what the prefix cache says: it knows neither model nor role.
    Cache: Cluster, Node, Job, Instance, DpRank, TpRank, PpRank
}
page! {
    /// Labels of what the HTTP server says.
    Http: Cluster, Node, Job, Instance
}
page! {
    /// Labels of what `/v1/loads` says.
    Loads: Cluster, Node, Instance, DpRank
}

/// Edges of the time to first token.
pub const TTFT_BUCKETS: &[f64] = &[
    0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0,
    400.0,
];
/// Edges of the duration of requests.
pub const E2E_BUCKETS: &[f64] = &[
    0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0,
    400.0, 600.0, 1200.0, 1800.0, 2400.0,
];
/// Edges of the gap between tokens.
pub const ITL_BUCKETS: &[f64] = &[
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2,
    0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0,
];
/// Edges of the time in the queue.
pub const QUEUE_BUCKETS: &[f64] = &[
    0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 15.0, 20.0, 30.0,
    40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0,
    900.0, 1000.0, 1200.0, 1400.0, 1600.0, 1800.0, 2000.0, 2500.0, 3000.0,
];
/// Edges of the duration of a transfer, in milliseconds.
pub const TRANSFER_MS_BUCKETS: &[f64] =
    &[1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0];
/// Edges of what precedes a transfer, in milliseconds.
pub const TRANSFER_SETUP_MS_BUCKETS: &[f64] =
    &[1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0];
/// Edges of the size of a transfer, in MiB.
pub const TRANSFER_MB_BUCKETS: &[f64] =
    &[1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1000.0, 5000.0, 10_000.0];
/// Edges of the speed of a transfer, in GiB/s.
pub const TRANSFER_SPEED_BUCKETS: &[f64] =
    &[0.1, 0.5, 1.0, 5.0, 10.0, 25.0, 50.0, 100.0, 200.0, 400.0];
/// Edges of the duration of a copy from host to device, and of an eviction.
pub const COPY_BUCKETS: &[f64] = &[
    0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.007, 0.008, 0.009, 0.01, 0.02, 0.03, 0.04, 0.05,
    0.1, 0.2, 0.5, 1.0,
];
/// Edges of the duration of a copy from device to host.
pub const BACKUP_BUCKETS: &[f64] =
    &[0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];
/// Edges of the time in one stage of a request: 1 ms, and 29 times 1.62 as much.
pub const STAGE_BUCKETS: &[f64] = &[
    0.001,
    0.0016200000000000001,
    0.0026244000000000007,
    0.004251528,
    0.006887475360000002,
    0.011157710083200004,
    0.018075490334784006,
    0.029282294342350097,
    0.047437316834607154,
    0.07684845327206359,
    0.12449449430074302,
    0.20168108076720373,
    0.3267233508428701,
    0.5292918283654495,
    0.8574527619520282,
    1.389073474362286,
    2.2502990284669036,
    3.6454844261163837,
    5.905684770308542,
    9.567209327899839,
    15.49887911119774,
    25.10818416014034,
    40.67525833942735,
    65.89391850987231,
    106.74814798599316,
    172.93199973730896,
    280.1498395744405,
    453.84274011059364,
    735.2252389791618,
    1191.064887146242,
];

families! {
    /// What scheduler ranks say.
    SCHEDULER: SglangScheduler<Scheduler>;

    /// Requests in the running batch.
    NUM_RUNNING_REQS: Gauge = "sglang:num_running_reqs", Requests;
    /// Requests that wait to be scheduled.
    NUM_QUEUE_REQS: Gauge = "sglang:num_queue_reqs", Requests;
    /// Requests that wait for a grammar to be compiled.
    NUM_GRAMMAR_QUEUE_REQS: Gauge = "sglang:num_grammar_queue_reqs", Requests;
    /// Requests on a prefill process that wait for their decode process.
    NUM_PREFILL_BOOTSTRAP_QUEUE_REQS: Gauge =
        "sglang:num_prefill_bootstrap_queue_reqs", Requests;
    /// Requests on a prefill process whose KV is being sent.
    NUM_PREFILL_INFLIGHT_QUEUE_REQS: Gauge = "sglang:num_prefill_inflight_queue_reqs", Requests;
    /// Requests on a decode process that wait for room.
    NUM_DECODE_PREALLOC_QUEUE_REQS: Gauge = "sglang:num_decode_prealloc_queue_reqs", Requests;
    /// Requests on a decode process whose KV has not all come.
    NUM_DECODE_TRANSFER_QUEUE_REQS: Gauge = "sglang:num_decode_transfer_queue_reqs", Requests;
    /// Requests on a decode process whose KV is held for a peer that may still write to it.
    NUM_DECODE_DEFERRED_KV_RELEASE_REQS: Gauge =
        "sglang:num_decode_deferred_kv_release_reqs", Requests;
    /// Requests retracted and not yet running again.
    NUM_RETRACTED_REQS: Gauge = "sglang:num_retracted_reqs", Requests;
    /// Requests retracted.
    NUM_RETRACTED_REQUESTS: Counter = "sglang:num_retracted_requests_total", Requests;
    /// Requests held back by a pause.
    NUM_PAUSED_REQS: Gauge = "sglang:num_paused_reqs", Requests;
    /// Time requests spent in the queue; those that were refused or given up are missing.
    QUEUE_TIME: Histogram = "sglang:queue_time_seconds", Seconds, buckets QUEUE_BUCKETS;
    /// Time requests spent in each stage.
    PER_STAGE_REQ_LATENCY: Histogram<Stage> =
        "sglang:per_stage_req_latency_seconds", Seconds, buckets STAGE_BUCKETS;
    /// Tokens processed, as they are.
    REALTIME_TOKENS: Counter<TokenMode> = "sglang:realtime_tokens_total", Tokens;
    /// Used share of the worst pool.
    TOKEN_USAGE: Gauge = "sglang:token_usage", Ratio;
    /// Used share of the pool of full attention.
    FULL_TOKEN_USAGE: Gauge = "sglang:full_token_usage", Ratio;
    /// Used share of the pool of sliding windows.
    SWA_TOKEN_USAGE: Gauge = "sglang:swa_token_usage", Ratio;
    /// Used share of the pool of states.
    MAMBA_USAGE: Gauge = "sglang:mamba_usage", Ratio;
    /// Tokens that the device pool can hold.
    MAX_TOTAL_NUM_TOKENS: Gauge = "sglang:max_total_num_tokens", Tokens;
    /// Tokens of live requests in the pool of full attention.
    KV_USED_TOKENS: Gauge = "sglang:kv_used_tokens", Tokens;
    /// Cached tokens in it, which may be evicted.
    KV_EVICTABLE_TOKENS: Gauge = "sglang:kv_evictable_tokens", Tokens;
    /// Free tokens of it.
    KV_AVAILABLE_TOKENS: Gauge = "sglang:kv_available_tokens", Tokens;
    /// Time in forward passes on the device.
    FORWARD_EXECUTION_SECONDS: TimeCounter<Category> =
        "sglang:forward_execution_seconds_total", Seconds;
    /// Wall time of the scheduler by exclusive stage.
    SCHEDULER_STAGE_SECONDS: TimeCounter<Category, ForwardOverlap> =
        "sglang:scheduler_stage_seconds_total", Seconds;
    /// Time the scheduler had nothing to do.
    SCHEDULER_IDLE_SECONDS: TimeCounter = "sglang:scheduler_idle_seconds_total", Seconds;
    /// Share of draft tokens accepted in the last interval.
    SPEC_ACCEPT_RATE: Gauge = "sglang:spec_accept_rate", Ratio;
    /// Time from the first to the last byte of a transfer, in milliseconds; of the last chunk alone
    /// with some backends.
    KV_TRANSFER_LATENCY_MS: Histogram =
        "sglang:kv_transfer_latency_ms", Milliseconds, buckets TRANSFER_MS_BUCKETS;
    /// Time until the peers of a transfer had found each other, in milliseconds.
    KV_TRANSFER_BOOTSTRAP_MS: Histogram =
        "sglang:kv_transfer_bootstrap_ms", Milliseconds, buckets TRANSFER_SETUP_MS_BUCKETS;
    /// Time until there was room for a transfer, in milliseconds.
    KV_TRANSFER_ALLOC_MS: Histogram =
        "sglang:kv_transfer_alloc_ms", Milliseconds, buckets TRANSFER_SETUP_MS_BUCKETS;
    /// Size of a transfer, in MiB.
    KV_TRANSFER_TOTAL_MB: Histogram =
        "sglang:kv_transfer_total_mb", Mebibytes, buckets TRANSFER_MB_BUCKETS;
    /// Speed of a transfer, in GiB/s.
    KV_TRANSFER_SPEED_GB_S: Histogram =
        "sglang:kv_transfer_speed_gb_s", GibibytesPerSecond, buckets TRANSFER_SPEED_BUCKETS;
    /// Requests whose peers did not find each other; once on each side.
    NUM_BOOTSTRAP_FAILED_REQS: Counter = "sglang:num_bootstrap_failed_reqs_total", Requests;
    /// Requests whose transfer failed; once on each side.
    NUM_TRANSFER_FAILED_REQS: Counter = "sglang:num_transfer_failed_reqs_total", Requests;
    /// Prefills done again after a failed transfer.
    NUM_PREFILL_RETRIES: Counter = "sglang:num_prefill_retries_total", Requests;
    /// Used tokens of the host tier; of its anchor pool.
    HICACHE_HOST_USED_TOKENS: Gauge = "sglang:hicache_host_used_tokens", Tokens;
    /// Size of the host tier in tokens; of its anchor pool.
    HICACHE_HOST_TOTAL_TOKENS: Gauge = "sglang:hicache_host_total_tokens", Tokens;
}

families! {
    /// What the front process says of requests.
    TOKENIZER: SglangTokenizer<Tokenizer>;

    /// Time to the first token. Where prefill and decode are apart, that of a prefill process is of
    /// a request of one token that no client sees.
    TIME_TO_FIRST_TOKEN: Histogram =
        "sglang:time_to_first_token_seconds", Seconds, buckets TTFT_BUCKETS;
    /// Gap between tokens.
    INTER_TOKEN_LATENCY: Histogram =
        "sglang:inter_token_latency_seconds", Seconds, buckets ITL_BUCKETS;
    /// Duration of requests.
    E2E_REQUEST_LATENCY: Histogram =
        "sglang:e2e_request_latency_seconds", Seconds, buckets E2E_BUCKETS;
    /// Mean gap between tokens of a request.
    REQUEST_TIME_PER_OUTPUT_TOKEN: Histogram =
        "sglang:request_time_per_output_token_seconds", Seconds, buckets ITL_BUCKETS;
    /// Prompt tokens of requests, added when they end.
    PROMPT_TOKENS: Counter = "sglang:prompt_tokens_total", Tokens;
    /// Generated tokens, added when requests end.
    GENERATION_TOKENS: Counter = "sglang:generation_tokens_total", Tokens;
    /// Prompt tokens whose KV was there, by tier. A decode process counts those of its prefill
    /// process again.
    CACHED_TOKENS: Counter<CacheSource> = "sglang:cached_tokens_total", Tokens;
    /// Duration of the parts of the start.
    STARTUP_TIME: Gauge<Phase> = "sglang:startup_time_seconds", Seconds;
    /// Requests that ended.
    NUM_REQUESTS: Counter = "sglang:num_requests_total", Requests;
    /// Requests that the front process gave up.
    NUM_ABORTED_REQUESTS: Counter = "sglang:num_aborted_requests_total", Requests;
}

families! {
    /// What the prefix cache says.
    CACHE: SglangCache<Cache>;

    /// Tokens evicted from the device.
    EVICTED_TOKENS: Counter = "sglang:evicted_tokens_total", Tokens;
    /// Tokens copied from host to device; each rank counts all of them.
    LOAD_BACK_TOKENS: Counter = "sglang:load_back_tokens_total", Tokens;
    /// Bytes copied from host to device; each rank counts its share.
    LOAD_BACK_BYTES: Counter = "sglang:load_back_bytes_total", Bytes;
    /// Duration of a copy from host to device.
    LOAD_BACK_DURATION: Histogram =
        "sglang:load_back_duration_seconds", Seconds, buckets COPY_BUCKETS;
    /// Bytes copied from device to host; each rank counts its share.
    HICACHE_BACKUP_BYTES: Counter = "sglang:hicache_backup_bytes_total", Bytes;
    /// Duration of a copy from device to host.
    HICACHE_BACKUP_DURATION: Histogram =
        "sglang:hicache_backup_duration_seconds", Seconds, buckets BACKUP_BUCKETS;
    /// Tokens that were dropped rather than copied or kept.
    HICACHE_DROPPED_TOKENS: Counter<DropReason, CachePool> =
        "sglang:hicache_dropped_tokens_total", Tokens;
}

families! {
    /// What the HTTP server says.
    HTTP: SglangHttp<Http>;

    /// Answers.
    HTTP_RESPONSES: Counter<Endpoint, HttpStatusCode, HttpMethod> =
        "sglang:http_responses_total", Requests;
    /// Requests being answered.
    HTTP_REQUESTS_ACTIVE: Gauge<Endpoint, HttpMethod> = "sglang:http_requests_active", Requests;
}

families! {
    /// What `/v1/loads` says.
    LOADS: SglangLoads<Loads>;

    /// Prompt tokens of waiting requests that are in no cache.
    NUM_WAITING_UNCACHED_TOKENS: Gauge = "sglang_num_waiting_uncached_tokens", Tokens;
    /// Waiting requests.
    NUM_WAITING_REQS: Gauge = "sglang_num_waiting_reqs", Requests;
    /// Most requests that run at a time.
    MAX_RUNNING_REQUESTS: Gauge = "sglang_max_running_requests", Requests;
    /// Prompt tokens computed; typed as a gauge on the page, and only grows.
    TOTAL_PREFILL_UNCACHED_TOKENS: Counter = "sglang_total_prefill_uncached_tokens", Tokens;
    /// Time in steps that prefill, in microseconds; typed as a gauge on the page, and only grows.
    TOTAL_PREFILL_BUSY_US: Counter = "sglang_total_prefill_busy_us", Microseconds;
}

/// All families, page by page.
pub const ALL: &[&[&crate::def::Info]] = &[SCHEDULER, TOKENIZER, CACHE, HTTP, LOADS];

/// Labels of one scheduler of a process, and the family's own.
fn of_scheduler<L: LabelSet>() -> Vec<&'static str> {
    let own = L::LABELS.iter().map(|label| label.name);
    INSTANCE.iter().copied().chain(["dp_rank"]).chain(own).collect()
}

/// One value for each scheduler of a process, the copies of its ranks taken together: only then may
/// they be summed. Labels: `INSTANCE`, `dp_rank` and the gauge's own.
pub fn deduped<L: LabelSet, S: Selection<Metric = Gauge<Scheduler<L>>>>(gauge: S) -> Expr {
    max(gauge.select()).group(of_scheduler::<L>())
}

/// The same for the growth of a counter by the second.
pub fn deduped_rate<L: LabelSet, S>(counter: S, window: Window) -> Expr
where
    S: Selection<Metric: Cumulative + Metric<Labels = Scheduler<L>>>,
{
    max(rate(counter, window)).group(of_scheduler::<L>())
}

/// The same for the growth of a counter over the window.
pub fn deduped_increase<L: LabelSet, S>(counter: S, window: Window) -> Expr
where
    S: Selection<Metric: Cumulative + Metric<Labels = Scheduler<L>>>,
{
    max(increase(counter, window)).group(of_scheduler::<L>())
}

/// Sum over the schedulers of each process: one value by `INSTANCE`.
pub fn per_process(by_scheduler: Expr) -> Expr {
    sum(by_scheduler).group(INSTANCE.to_vec())
}

/// What `/v1/loads` or the prefix cache say of a process, with the labels `INSTANCE` of the page
/// of that process: its role and its model, and only where that is among the chosen ones.
///
/// `by_process` is grouped by `PROCESS`, with one series for each.
pub fn of_processes(by_process: Expr) -> Expr {
    let unit = by_process.unit();
    let processes = group(NUM_RUNNING_REQS).group(INSTANCE.to_vec());
    processes.joined_with(PROCESS, &[], by_process).in_unit(unit)
}

/// What the schedulers of a process say on `/v1/loads`, summed: one value by `PROCESS`.
fn of_loads<I: Instant<Labels = Loads<()>>>(loads: I) -> Expr {
    let by_scheduler = max(loads).by((Cluster::KEY, Instance::KEY, DpRank::KEY));
    sum(by_scheduler).group(PROCESS.to_vec())
}

/// Prompt tokens that wait and are in no cache: one value by `INSTANCE`, for processes whose
/// `/v1/loads` is scraped.
pub fn pending_tokens() -> Expr {
    of_processes(of_loads(NUM_WAITING_UNCACHED_TOKENS))
}

/// Prompt tokens computed by the second of elapsed time: one value by `INSTANCE`. A demand while
/// nothing waits, and what the process can do while something does.
pub fn computed_tokens(window: Window) -> Expr {
    per_process(deduped_rate(REALTIME_TOKENS.is(TokenMode::PrefillCompute), window))
}

/// Prompt tokens computed by the second of prefill: one value by `INSTANCE`. What the process can
/// do; from `/v1/loads` of 0.5.23, absent in 0.5.13 and where too little of the window was busy.
pub fn prefill_capacity(window: Window) -> Expr {
    let tokens = of_loads(rate(TOTAL_PREFILL_UNCACHED_TOKENS, window));
    let busy = rate_of_busy(window).above(crate::slo::CAPACITY_MIN_BUSY_RATIO);
    of_processes(quotient_of(tokens, busy).in_unit(Unit::TokensPerSecond))
}

/// Share of time in steps that prefill, averaged over the schedulers: one value by `PROCESS`.
fn rate_of_busy(window: Window) -> Expr {
    let busy: Expr = rate(TOTAL_PREFILL_BUSY_US, window).into_expr();
    let by_scheduler = max(busy).group([PROCESS, &["dp_rank"]].concat());
    let microseconds = avg(by_scheduler).group(PROCESS.to_vec());
    microseconds.times(0.000_001).in_unit(Unit::Ratio)
}

/// Time to prefill all that waits: one value by `INSTANCE`. A forecast of the next time to first
/// token; where the capacity is not known it is taken for what was computed lately.
pub fn drain(window: Window) -> Expr {
    let rate = prefill_capacity(window).or(computed_tokens(window));
    quotient_of(pending_tokens(), clamp_min(rate, CAPACITY_FLOOR_TOKENS_PER_SECOND))
}
