//! Series that the recording rules over clusters of vLLM make.

use super::{INSTANCE, MODEL, ROLE, Recorded, SLO, Unit};

const BY_REASON: &[&str] =
    &["cluster", "node", "job", "instance", "engine_role", "model_name", "reason"];

recorded! {
    /// 99th percentile of the time in the queue, of requests that have left it.
    QUEUE_TIME_P99 = "instance:vllm_queue_time_seconds:p99_rate5m", INSTANCE, Seconds;
    /// Requests refused at a limit of the queue, by which.
    REFUSED = "instance:vllm_requests_refused:rate5m", BY_REASON, RequestsPerSecond;
    /// Their share of all that were offered.
    REFUSED_RATIO = "instance:vllm_requests_refused:ratio_rate5m", BY_REASON, Ratio;
    /// Share of the requests for a model that are refused.
    TURNED_AWAY_M5 = "model:vllm_requests_refused:ratio_rate5m", MODEL, Ratio;
    /// The same over half an hour.
    TURNED_AWAY_M30 = "model:vllm_requests_refused:ratio_rate30m", MODEL, Ratio;
    /// Processes of a role that answer.
    LIVE_REPLICAS = "role:vllm_live_replicas:count", ROLE, Count;
    /// Requests that ended, as clients see them.
    FINISHED = "model:vllm_requests_finished:rate5m", MODEL, RequestsPerSecond;
    /// 99th percentile of the gap between tokens.
    ITL_P99 = "model:vllm_inter_token_latency_seconds:p99_rate5m", MODEL, Seconds;
    /// Share of requests whose first token came later than the edge of the buckets above the
    /// objective, over five minutes.
    SLO_BAD_M5 = "model:vllm_slo_bad:ratio_rate5m", SLO, Ratio;
    /// The same over half an hour.
    SLO_BAD_M30 = "model:vllm_slo_bad:ratio_rate30m", SLO, Ratio;
    /// The same over an hour.
    SLO_BAD_H1 = "model:vllm_slo_bad:ratio_rate1h", SLO, Ratio;
    /// The same over six hours.
    SLO_BAD_H6 = "model:vllm_slo_bad:ratio_rate6h", SLO, Ratio;
    /// Their number in an hour.
    SLO_BAD_COUNT_H1 = "model:vllm_slo_bad:increase1h", SLO, Requests;
    /// The same in six hours.
    SLO_BAD_COUNT_H6 = "model:vllm_slo_bad:increase6h", SLO, Requests;
}
