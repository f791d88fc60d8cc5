//! Series that the recording rules over clusters of SGLang make.

use super::{MODEL, Recorded, SLO, Unit};
use crate::engines::sglang::INSTANCE;

/// Labels of one role of a model.
pub const ROLE: &[&str] = &["cluster", "engine_type", "model_name"];

recorded! {
    /// Requests that wait for their prefill.
    QUEUED_REQUESTS = "instance:sglang_queue_requests:sum", INSTANCE, Requests;
    /// Tokens that wait for their prefill; only where `/v1/loads` is scraped.
    PENDING_UNCACHED_TOKENS =
        "instance:sglang_queue_pending_uncached_tokens:sum", INSTANCE, Tokens;
    /// Prompt tokens by busy second, or by elapsed second of five minutes with a queue throughout:
    /// what the process can do. Absent while it is not known.
    PREFILL_CAPACITY =
        "instance:sglang_prefill_capacity_tokens:rate5m", INSTANCE, TokensPerSecond;
    /// Time to prefill all that waits: a forecast of the next request's time to first token.
    QUEUE_DRAIN = "instance:sglang_queue_drain_seconds:estimate", INSTANCE, Seconds;
    /// 99th percentile of the time in the queue, of requests that have left it.
    QUEUE_TIME_P99 = "instance:sglang_queue_time_seconds:p99_rate5m", INSTANCE, Seconds;
    /// Processes of a role that answer.
    LIVE_REPLICAS = "role:sglang_live_replicas:count", ROLE, Count;
    /// Requests that ended, as clients see them.
    FINISHED = "model:sglang_requests_finished:rate5m", MODEL, RequestsPerSecond;
    /// 99th percentile of the gap between tokens.
    ITL_P99 = "model:sglang_inter_token_latency_seconds:p99_rate5m", MODEL, Seconds;
    /// Share of requests whose first token came later than the edge of the buckets above the
    /// objective, over five minutes.
    SLO_BAD_M5 = "model:sglang_slo_bad:ratio_rate5m", SLO, Ratio;
    /// The same over half an hour.
    SLO_BAD_M30 = "model:sglang_slo_bad:ratio_rate30m", SLO, Ratio;
    /// The same over an hour.
    SLO_BAD_H1 = "model:sglang_slo_bad:ratio_rate1h", SLO, Ratio;
    /// The same over six hours.
    SLO_BAD_H6 = "model:sglang_slo_bad:ratio_rate6h", SLO, Ratio;
    /// Their number in an hour.
    SLO_BAD_COUNT_H1 = "model:sglang_slo_bad:increase1h", SLO, Requests;
    /// The same in six hours.
    SLO_BAD_COUNT_H6 = "model:sglang_slo_bad:increase6h", SLO, Requests;
}
