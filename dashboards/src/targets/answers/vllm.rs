//! vLLM's answers.

use super::{BY_PROCESS, Composed, NOW, P99, Queries, one};
use metric_catalog::def::{Histogram, Label, Unit};
use metric_catalog::engines::labels::{
    CacheHitSource, FetchStage, FinishedReason, HttpStatusClass, SleepState, TokenSource,
    WaitingReason,
};
use metric_catalog::engines::signal::Signal;
use metric_catalog::engines::vllm::*;
use metric_catalog::labels::Role;
use metric_catalog::promql::{
    Expr, Selection, amount, count, group, max, mean, observations, observations_within, quantile,
    rate, ratio, sum,
};
use metric_catalog::slo;

/// The queries of a signal.
pub(super) fn queries(signal: Signal) -> Queries {
    use Signal as S;
    match signal {
        S::RunningRequests => one(per_process(NUM_REQUESTS_RUNNING), BY_PROCESS),
        S::QueuedRequests => one(per_process(NUM_REQUESTS_WAITING), BY_PROCESS),
        S::QueueTimeSeconds => one(p99(REQUEST_QUEUE_TIME), P99),
        S::TtftSeconds => one(p99(TIME_TO_FIRST_TOKEN), P99),
        S::TtftBreakdown => parts(),
        S::ItlSeconds => one(inter_token_latency(0.99, NOW, INSTANCE), P99),
        S::TpotSeconds => one(p99(REQUEST_TIME_PER_OUTPUT_TOKEN), P99),
        S::E2eSeconds => one(p99(E2E_REQUEST_LATENCY), P99),
        S::PromptTokensRate => one(per_process(rate(PROMPT_TOKENS, NOW)), BY_PROCESS),
        S::PrefillComputeRate => one(computed(), BY_PROCESS),
        S::GenerationTokensRate => one(per_process(rate(GENERATION_TOKENS, NOW)), BY_PROCESS),
        S::PrefixHitRatio => one(hit_ratio(), BY_PROCESS),
        S::PrefixHitByTier => {
            let hits = sum(rate(PROMPT_TOKENS_CACHED_BY_SOURCE, NOW));
            one(hits.by(CacheHitSource::KEY), "{{source}}")
        }
        S::KvDeviceUsageRatio => one(max(kv_usage()).group(process()), BY_PROCESS),
        S::KvHostUsageRatio => {
            one(max(KV_OFFLOAD_CPU_CACHE_USAGE_PERC).group(process()), BY_PROCESS)
        }
        S::HicacheLoadBytesRate => one(loaded(), BY_PROCESS),
        S::HicacheBackupBytesRate => {
            one(per_process(rate(KV_OFFLOAD_STORE_BYTES, NOW)), BY_PROCESS)
        }
        S::HicacheBandwidth => {
            one(ratio(loaded(), per_process(rate(KV_OFFLOAD_LOAD_TIME, NOW))), BY_PROCESS)
        }
        S::KvEvictionsRate => one(per_process(observations(KV_BLOCK_LIFETIME, NOW)), BY_PROCESS),
        S::PdQueueRequests => {
            one(sum(NUM_REQUESTS_KV_FETCH_BY_STAGE).by(FetchStage::KEY), "{{stage}}")
        }
        S::KvTransferSeconds => one(p99(NIXL_XFER_TIME), P99),
        S::KvTransferBytesRate => one(transferred(), BY_PROCESS),
        S::KvTransferBandwidth => {
            one(ratio(transferred(), per_process(amount(NIXL_XFER_TIME, NOW))), BY_PROCESS)
        }
        S::KvTransferFailuresRate => transfer_failures(),
        S::PreemptionsRate => one(per_process(rate(NUM_PREEMPTIONS, NOW)), BY_PROCESS),
        S::AbortsRate => {
            one(per_process(rate(REQUEST_SUCCESS.is(FinishedReason::Abort), NOW)), BY_PROCESS)
        }
        S::RejectionsRate => one(refusals(), "{{reason}} {{instance}}"),
        S::HttpStatusRate => {
            one(sum(rate(HTTP_REQUESTS, NOW)).by(HttpStatusClass::KEY), "{{status}}")
        }
        S::EngineState => one(sum(ENGINE_SLEEP_STATE).by(SleepState::KEY), "{{sleep_state}}"),
        S::BatchSize => one(mean(ITERATION_TOKENS, NOW).group(process()), BY_PROCESS),
        S::SpecAcceptanceRatio => one(accepted(), BY_PROCESS),
        S::SloBadRatio => one(late(), BY_PROCESS),
        S::KvHeldByFailedTransfers => {
            one(per_process(rate(NIXL_NUM_KV_EXPIRED_REQS, NOW)), BY_PROCESS)
        }
        S::PendingPrefillTokens
        | S::QueueDrainSeconds
        | S::OldestQueuedAgeSeconds
        | S::KvHostUsageByPool
        | S::HostCacheBytes
        | S::HostCacheNumaPlacement
        | S::SchedulerLoopSeconds
        | S::SchedulerHeartbeat
        | S::GpuForwardBusyRatio
        | S::StartupSeconds => Vec::new(),
    }
}

fn process() -> Vec<&'static str> {
    INSTANCE.to_vec()
}

fn p99(histogram: Histogram<OfEngine<()>>) -> Expr {
    quantile(0.99, histogram, NOW).group(process())
}

/// A sum over the engines of each process.
fn per_process(instant: impl Into<Expr>) -> Expr {
    let expr: Expr = instant.into();
    sum(expr).group(process())
}

fn parts() -> Queries {
    let by = || vec!["engine_role", "instance"];
    let queue = mean(REQUEST_QUEUE_TIME, NOW).group(by());
    let prefill = mean(REQUEST_PREFILL_TIME, NOW).group(by());
    vec![
        (queue, "queue {{engine_role}} {{instance}}"),
        (prefill, "prefill {{engine_role}} {{instance}}"),
    ]
}

/// Prompt tokens computed; of old versions those that were not found in the cache.
fn computed() -> Expr {
    let new = per_process(rate(PROMPT_TOKENS_BY_SOURCE.is(TokenSource::LocalCompute), NOW));
    let hits = per_process(rate(PREFIX_CACHE_HITS, NOW));
    new.or(per_process(rate(PROMPT_TOKENS, NOW)).minus(hits))
}

fn hit_ratio() -> Expr {
    let hits = per_process(rate(PREFIX_CACHE_HITS, NOW));
    ratio(hits, per_process(rate(PREFIX_CACHE_QUERIES, NOW)))
}

fn loaded() -> Expr {
    per_process(rate(KV_OFFLOAD_LOAD_BYTES, NOW))
}

fn transferred() -> Expr {
    per_process(amount(NIXL_BYTES_TRANSFERRED, NOW))
}

fn transfer_failures() -> Queries {
    let by_role = |counter| sum(rate(counter, NOW)).by(Role::KEY);
    vec![
        (by_role(NIXL_NUM_FAILED_TRANSFERS), "transfer {{engine_role}}"),
        (by_role(NIXL_NUM_FAILED_NOTIFICATIONS), "notification {{engine_role}}"),
        (by_role(NIXL_NUM_KV_EXPIRED_REQS), "not fetched in time {{engine_role}}"),
    ]
}

fn refusals() -> Expr {
    sum(rate(ADMISSION_REJECTIONS, NOW)).group([INSTANCE, &["reason"]].concat())
}

fn accepted() -> Expr {
    let accepted = per_process(rate(SPEC_DECODE_NUM_ACCEPTED_TOKENS, NOW));
    ratio(accepted, per_process(rate(SPEC_DECODE_NUM_DRAFT_TOKENS, NOW)))
}

fn late() -> Expr {
    let up_to = |edge| per_process(observations_within(TIME_TO_FIRST_TOKEN, edge, NOW));
    let all = || up_to(f64::INFINITY);
    ratio(all().minus(up_to(slo::ENGINE_TTFT_EDGE_SECONDS)), all())
}

/// What is put together of several signals.
pub(super) fn composed(what: Composed) -> Queries {
    match what {
        Composed::Offered => {
            let ended = sum(rate(REQUEST_SUCCESS, NOW));
            one(ended.group(vec!["cluster", "model_name"]), "{{model_name}}")
        }
        Composed::ErrorRatio => {
            let target = || vec!["cluster", "job", "instance"];
            let errors = HTTP_REQUESTS.is(HttpStatusClass::new("5xx"));
            let errors = sum(rate(errors, NOW)).group(target());
            one(ratio(errors, sum(rate(HTTP_REQUESTS, NOW)).group(target())), BY_PROCESS)
        }
        Composed::RefusedRatio => {
            let refused = || sum(rate(ADMISSION_REJECTIONS, NOW)).group(process());
            let served = per_process(rate(REQUEST_SUCCESS, NOW));
            one(ratio(refused(), refused().plus(served)), BY_PROCESS)
        }
        Composed::Replicas => {
            let processes = group(NUM_REQUESTS_RUNNING).group(process());
            one(count(processes).by(Role::KEY), "{{engine_role}}")
        }
        Composed::TransferErrorRatio => {
            let failed = || per_process(rate(NIXL_NUM_FAILED_TRANSFERS, NOW));
            let done = per_process(observations(NIXL_XFER_TIME, NOW));
            let all = failed().plus(done.in_unit(Unit::RequestsPerSecond));
            one(ratio(failed(), all), BY_PROCESS)
        }
        Composed::PoolUsage => one(kv_usage(), "engine {{engine}} {{instance}}"),
        Composed::WaitingFor => {
            one(sum(NUM_REQUESTS_WAITING_BY_REASON).by(WaitingReason::KEY), "{{reason}}")
        }
        Composed::HostDropped => vec![
            (sum(rate(KV_OFFLOAD_STORES_SKIPPED, NOW)).total(), "copies left out"),
            (sum(rate(KV_OFFLOAD_ALLOCATION_FAILURE, NOW)).total(), "no room"),
        ],
        Composed::PrefillCapacity | Composed::PoolSize | Composed::CopySeconds => Vec::new(),
    }
}
