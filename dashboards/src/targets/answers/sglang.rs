//! SGLang's answers.

use super::{BY_PROCESS, Composed, NOW, P99, Queries, one};
use metric_catalog::def::{Histogram, Label, LabelSet, Unit};
use metric_catalog::engines::labels::{
    CacheSource, Category, DropReason, EngineType, HttpStatusCode, Phase, TokenMode,
};
use metric_catalog::engines::sglang::*;
use metric_catalog::engines::signal::Signal;
use metric_catalog::promql::{
    Expr, Selection, amount, avg, count, group, max, mean, observations, observations_within,
    quantile, rate, ratio, sum,
};
use metric_catalog::slo;

/// The queries of a signal.
pub(super) fn queries(signal: Signal) -> Queries {
    use Signal as S;
    match signal {
        S::RunningRequests => one(per_process(deduped(NUM_RUNNING_REQS)), BY_PROCESS),
        S::QueuedRequests => one(per_process(deduped(NUM_QUEUE_REQS)), BY_PROCESS),
        S::PendingPrefillTokens => one(pending_tokens(), BY_PROCESS),
        S::QueueDrainSeconds => one(drain(NOW), BY_PROCESS),
        S::QueueTimeSeconds => one(quantile(0.99, QUEUE_TIME, NOW).group(process()), P99),
        S::TtftSeconds => one(p99(TIME_TO_FIRST_TOKEN), P99),
        S::TtftBreakdown => stages(),
        S::ItlSeconds => one(p99(INTER_TOKEN_LATENCY), P99),
        S::TpotSeconds => one(p99(REQUEST_TIME_PER_OUTPUT_TOKEN), P99),
        S::E2eSeconds => one(p99(E2E_REQUEST_LATENCY), P99),
        S::PromptTokensRate => one(sum(rate(PROMPT_TOKENS, NOW)).group(process()), BY_PROCESS),
        S::PrefillComputeRate => one(computed_tokens(NOW), BY_PROCESS),
        S::GenerationTokensRate => one(generated(), BY_PROCESS),
        S::PrefixHitRatio => one(hit_ratio(), BY_PROCESS),
        S::PrefixHitByTier => hits_by_tier(),
        S::KvDeviceUsageRatio => one(max(TOKEN_USAGE).group(process()), BY_PROCESS),
        S::KvHostUsageRatio => one(host_usage(), BY_PROCESS),
        S::HicacheLoadBytesRate => one(cached(rate(LOAD_BACK_BYTES, NOW)), BY_PROCESS),
        S::HicacheBackupBytesRate => one(cached(rate(HICACHE_BACKUP_BYTES, NOW)), BY_PROCESS),
        S::HicacheBandwidth => one(copy_speed(), BY_PROCESS),
        S::KvEvictionsRate => one(evictions(), BY_PROCESS),
        S::PdQueueRequests => pair_queues(),
        S::KvTransferSeconds => transfer_seconds(),
        S::KvTransferBytesRate => one(transferred(), BY_PROCESS),
        S::KvTransferBandwidth => one(transfer_speed(), BY_PROCESS),
        S::KvTransferFailuresRate => transfer_failures(),
        S::PreemptionsRate => {
            one(per_process(deduped_rate(NUM_RETRACTED_REQUESTS, NOW)), BY_PROCESS)
        }
        S::AbortsRate => one(sum(rate(NUM_ABORTED_REQUESTS, NOW)).group(process()), BY_PROCESS),
        S::RejectionsRate => one(refused(), "503 {{instance}}"),
        S::HttpStatusRate => {
            one(sum(rate(HTTP_RESPONSES, NOW)).by(HttpStatusCode::KEY), "{{status_code}}")
        }
        S::EngineState => one(per_process(deduped(NUM_PAUSED_REQS)), "paused {{instance}}"),
        S::SchedulerLoopSeconds => one(scheduler_stages(), "{{category}}"),
        S::GpuForwardBusyRatio => one(busy(), BY_PROCESS),
        S::SpecAcceptanceRatio => one(avg(SPEC_ACCEPT_RATE).group(process()), BY_PROCESS),
        S::SloBadRatio => one(late(), BY_PROCESS),
        S::StartupSeconds => one(max(STARTUP_TIME).by(Phase::KEY), "{{phase}}"),
        S::KvHeldByFailedTransfers => {
            one(per_process(deduped(NUM_DECODE_DEFERRED_KV_RELEASE_REQS)), BY_PROCESS)
        }
        S::OldestQueuedAgeSeconds
        | S::KvHostUsageByPool
        | S::HostCacheBytes
        | S::HostCacheNumaPlacement
        | S::SchedulerHeartbeat
        | S::BatchSize => Vec::new(),
    }
}

fn process() -> Vec<&'static str> {
    INSTANCE.to_vec()
}

/// 99th percentile by process. A prefill process of a pair measures what no client sees.
fn p99<L: LabelSet>(histogram: Histogram<Tokenizer<L>>) -> Expr {
    quantile(0.99, histogram.without(EngineType::Prefill), NOW).group(process())
}

/// What the prefix cache of a process counts, its ranks and schedulers summed.
fn cached(of_ranks: impl Into<Expr>) -> Expr {
    let of_ranks: Expr = of_ranks.into();
    of_processes(sum(of_ranks).group(PROCESS.to_vec()))
}

fn stages() -> Queries {
    let mean = mean(PER_STAGE_REQ_LATENCY, NOW).group(vec!["engine_type", "stage"]);
    one(mean, "{{engine_type}} {{stage}}")
}

fn generated() -> Expr {
    per_process(deduped_rate(REALTIME_TOKENS.is(TokenMode::Decode), NOW))
}

fn hit_ratio() -> Expr {
    let hits = sum(rate(CACHED_TOKENS.without(EngineType::Decode), NOW));
    let all = sum(rate(PROMPT_TOKENS.without(EngineType::Decode), NOW));
    ratio(hits.group(process()), all.group(process()))
}

fn hits_by_tier() -> Queries {
    let hits = rate(CACHED_TOKENS.without(EngineType::Decode), NOW);
    one(sum(hits).by(CacheSource::KEY), "{{cache_source}}")
}

fn host_usage() -> Expr {
    let used = per_process(deduped(HICACHE_HOST_USED_TOKENS));
    ratio(used, per_process(deduped(HICACHE_HOST_TOTAL_TOKENS)))
}

fn copy_speed() -> Expr {
    let moved = sum(rate(LOAD_BACK_BYTES, NOW)).group(PROCESS.to_vec());
    let spent = sum(amount(LOAD_BACK_DURATION, NOW)).group(PROCESS.to_vec());
    of_processes(ratio(moved, spent))
}

/// Each rank counts all tokens of its scheduler.
fn evictions() -> Expr {
    cached(max(rate(EVICTED_TOKENS, NOW)).group([PROCESS, &["dp_rank"]].concat()))
}

fn pair_queues() -> Queries {
    let queue = |gauge| sum(deduped(gauge)).total();
    vec![
        (queue(NUM_PREFILL_BOOTSTRAP_QUEUE_REQS), "prefill: bootstrap"),
        (queue(NUM_PREFILL_INFLIGHT_QUEUE_REQS), "prefill: in flight"),
        (queue(NUM_DECODE_PREALLOC_QUEUE_REQS), "decode: waits for room"),
        (queue(NUM_DECODE_TRANSFER_QUEUE_REQS), "decode: waits for KV"),
    ]
}

fn transfer_seconds() -> Queries {
    let wire = quantile(0.99, KV_TRANSFER_LATENCY_MS, NOW).group(process());
    let setup = |part| quantile(0.99, part, NOW).total().in_base_unit();
    vec![
        (wire.in_base_unit(), "p99 wire {{instance}}"),
        (setup(KV_TRANSFER_BOOTSTRAP_MS), "p99 bootstrap"),
        (setup(KV_TRANSFER_ALLOC_MS), "p99 room"),
    ]
}

fn transferred() -> Expr {
    sum(amount(KV_TRANSFER_TOTAL_MB, NOW)).group(process()).in_base_unit()
}

fn transfer_speed() -> Expr {
    quantile(0.5, KV_TRANSFER_SPEED_GB_S, NOW).group(process()).in_base_unit()
}

fn transfer_failures() -> Queries {
    let by_role = |counter| sum(deduped_rate(counter, NOW)).by(EngineType::KEY);
    vec![
        (by_role(NUM_TRANSFER_FAILED_REQS), "transfer, seen by {{engine_type}}"),
        (by_role(NUM_BOOTSTRAP_FAILED_REQS), "bootstrap, seen by {{engine_type}}"),
    ]
}

/// Answers that the service is unavailable, by the second.
fn refused() -> Expr {
    let unavailable = HTTP_RESPONSES.is(HttpStatusCode::new("503"));
    of_processes(sum(rate(unavailable, NOW)).group(PROCESS.to_vec()))
}

fn scheduler_stages() -> Expr {
    let whole = [INSTANCE, &["dp_rank", "category"]].concat();
    avg(sum(deduped_rate(SCHEDULER_STAGE_SECONDS, NOW)).group(whole)).by(Category::KEY)
}

fn busy() -> Expr {
    let ranks = [INSTANCE, &["dp_rank", "tp_rank"]].concat();
    max(sum(rate(FORWARD_EXECUTION_SECONDS, NOW)).group(ranks)).group(process())
}

fn late() -> Expr {
    let seen = || TIME_TO_FIRST_TOKEN.without(EngineType::Prefill);
    let up_to = |edge| sum(observations_within(seen(), edge, NOW)).group(process());
    let all = || up_to(f64::INFINITY);
    ratio(all().minus(up_to(slo::ENGINE_TTFT_EDGE_SECONDS)), all())
}

/// What is put together of several signals.
pub(super) fn composed(what: Composed) -> Queries {
    match what {
        Composed::Offered => {
            let ended = rate(NUM_REQUESTS.without(EngineType::Prefill), NOW);
            one(sum(ended).group(vec!["cluster", "model_name"]), "{{model_name}}")
        }
        Composed::ErrorRatio => {
            let errors = HTTP_RESPONSES.matching(HttpStatusCode::KEY, "5..");
            let target = || vec!["cluster", "job", "instance"];
            let errors = sum(rate(errors, NOW)).group(target());
            one(ratio(errors, sum(rate(HTTP_RESPONSES, NOW)).group(target())), BY_PROCESS)
        }
        Composed::RefusedRatio => {
            let all = of_processes(sum(rate(HTTP_RESPONSES, NOW)).group(PROCESS.to_vec()));
            one(ratio(refused(), all), BY_PROCESS)
        }
        Composed::Replicas => {
            let processes = group(NUM_RUNNING_REQS).group(process());
            one(count(processes).by(EngineType::KEY), "{{engine_type}}")
        }
        Composed::TransferErrorRatio => {
            let failed = || per_process(deduped_rate(NUM_TRANSFER_FAILED_REQS, NOW));
            let done = sum(observations(KV_TRANSFER_LATENCY_MS, NOW)).group(process());
            let all = failed().plus(done.in_unit(Unit::RequestsPerSecond));
            one(ratio(failed(), all), BY_PROCESS)
        }
        Composed::PrefillCapacity => vec![
            (prefill_capacity(NOW), "by busy second {{instance}}"),
            (computed_tokens(NOW), "by second {{instance}}"),
        ],
        Composed::PoolUsage => pool_usage(),
        Composed::PoolSize => pool_size(),
        Composed::WaitingFor => {
            let queue = |gauge| sum(deduped(gauge)).total();
            vec![
                (queue(NUM_QUEUE_REQS), "to be scheduled"),
                (queue(NUM_GRAMMAR_QUEUE_REQS), "for a grammar"),
                (queue(NUM_RETRACTED_REQS), "retracted"),
            ]
        }
        Composed::CopySeconds => vec![
            (quantile(0.99, LOAD_BACK_DURATION, NOW).total(), "p99 host to device"),
            (quantile(0.99, HICACHE_BACKUP_DURATION, NOW).total(), "p99 device to host"),
        ],
        Composed::HostDropped => {
            let by = [PROCESS, &["dp_rank", "reason", "pool"]].concat();
            let dropped = max(rate(HICACHE_DROPPED_TOKENS, NOW)).group(by);
            one(sum(dropped).by(DropReason::KEY), "{{reason}}")
        }
    }
}

fn pool_usage() -> Queries {
    let worst = |gauge| max(gauge).group(process());
    vec![
        (worst(TOKEN_USAGE), "worst {{instance}}"),
        (worst(FULL_TOKEN_USAGE), "full attention {{instance}}"),
        (worst(SWA_TOKEN_USAGE), "sliding windows {{instance}}"),
        (worst(MAMBA_USAGE), "states {{instance}}"),
    ]
}

fn pool_size() -> Queries {
    let tokens = |gauge| sum(deduped(gauge)).total();
    vec![
        (tokens(KV_USED_TOKENS), "live requests"),
        (tokens(KV_EVICTABLE_TOKENS), "cached"),
        (tokens(KV_AVAILABLE_TOKENS), "free"),
    ]
}
