//! Thresholds: the line on a panel and the limit of an alert are the same const.
//!
//! Objectives are the defaults of the server's flags; a server that is told others exports them as
//! `sightline_slo_objective_seconds`. Units are in the names.

/// Time to first token that we promise.
pub const TTFT_OBJECTIVE_SECONDS: f64 = 30.0;
/// Edge of the buckets of SGLang and vLLM above which a first token counts as late: their pages
/// cannot tell 30 s, and what is slower than the next edge has missed the objective for certain.
pub const ENGINE_TTFT_EDGE_SECONDS: f64 = 40.0;
/// Share of requests that must meet an objective.
pub const SLO_TARGET_RATIO: f64 = 0.99;
/// What may miss it.
pub const SLO_BUDGET_RATIO: f64 = 0.01;
/// Burn rate that pages, over an hour and over five minutes: the budget of 30 days in two.
pub const BURN_FAST: f64 = 14.4;
/// Burn rate that makes a ticket, over six hours and over half an hour.
pub const BURN_SLOW: f64 = 6.0;
/// Share of bad requests that pages: `BURN_FAST` times the budget.
pub const SLO_BAD_FAST_RATIO: f64 = 0.144;
/// Share of bad requests that makes a ticket: `BURN_SLOW` times the budget.
pub const SLO_BAD_SLOW_RATIO: f64 = 0.06;
/// Bad requests in an hour below which nobody is paged: one failure of two is no outage.
pub const SLO_BAD_FAST_MIN: f64 = 10.0;
/// Bad requests in six hours below which there is no ticket.
pub const SLO_BAD_SLOW_MIN: f64 = 20.0;

/// Drain time that warns: half of the objective is used up by what already waits.
pub const DRAIN_WARNING_SECONDS: f64 = TTFT_OBJECTIVE_SECONDS / 2.0;
/// Drain time that pages: the next request will miss the objective.
pub const DRAIN_CRITICAL_SECONDS: f64 = TTFT_OBJECTIVE_SECONDS;
/// A queue that may hold no more than this much work is bounded by the objective. A tenth more than
/// that: what a server measures when it starts and what is recorded of it differ by a little.
pub const DRAIN_BOUND_SECONDS: f64 = DRAIN_CRITICAL_SECONDS * 1.1;
/// Requests that must wait before a long drain hurts anybody.
pub const DRAIN_MIN_REQUESTS: f64 = 2.0;
/// Share of the last five minutes that must be busy before the measured rate is trusted.
pub const CAPACITY_MIN_BUSY_RATIO: f64 = 0.05;
/// Rate that stands in for a server that has never been measured.
pub const CAPACITY_FLOOR_TOKENS_PER_SECOND: f64 = 100.0;
/// Share of its mean below which the capacity counts as collapsed.
pub const CAPACITY_COLLAPSED_RATIO: f64 = 0.5;
/// Tokens that must wait before a collapse matters.
pub const CAPACITY_COLLAPSED_MIN_TOKENS: f64 = 20_000.0;
/// Share of the limit of waiting tokens that is enough as well: a limit made from a rate that has
/// collapsed may be below those.
pub const CAPACITY_COLLAPSED_MIN_FILL: f64 = 0.5;

/// Fill of the queue that warns.
pub const QUEUE_FILL_RATIO: f64 = 0.8;
/// Share of offered requests that may be refused.
pub const REFUSED_RATIO: f64 = 0.05;
/// Requests refused in five minutes below which there is no warning.
pub const REFUSED_MIN: f64 = 5.0;
/// Share of a model's requests that may be refused at the door for long before that pages.
pub const TURNED_AWAY_RATIO: f64 = 0.5;
/// Requests in five minutes below which it does not: two clients are no outage.
pub const TURNED_AWAY_MIN_REQUESTS: f64 = 10.0;
/// Age of a waiting request that pages: a client with the usual time-out has given up.
pub const OLDEST_REQUEST_SECONDS: f64 = 60.0;
/// Age of the last turn that counts as a stall: far above any step, and an idle loop turns too.
pub const STALL_SECONDS: f64 = 30.0;

/// Time in the queue, 99th percentile, that warns where other engines are watched: half of the
/// objective is used up by waiting. An edge of their buckets.
pub const QUEUE_TIME_WARNING_SECONDS: f64 = DRAIN_WARNING_SECONDS;
/// Time in the queue, 99th percentile, that pages where the drain time is not known.
pub const QUEUE_TIME_CRITICAL_SECONDS: f64 = DRAIN_CRITICAL_SECONDS;
/// Requests in five minutes below which that percentile means nothing.
pub const QUEUE_TIME_MIN_REQUESTS: f64 = 5.0;

/// Gap between tokens, 99th percentile, above which text no longer flows.
pub const ITL_P99_SECONDS: f64 = 0.25;
/// Tokens a second below which that percentile means nothing.
pub const ITL_MIN_TOKENS_PER_SECOND: f64 = 1.0;
/// Share of requests that end in an error of ours.
pub const ERROR_RATIO: f64 = 0.05;
/// Errors in five minutes below which nobody is paged.
pub const ERROR_MIN: f64 = 10.0;
/// Requests a second, over an hour, that count as steady traffic.
pub const STEADY_REQUESTS_PER_SECOND: f64 = 0.2;

/// Share of KV transfers that may fail; requests that were given up do not count.
pub const TRANSFER_ERROR_RATIO: f64 = 0.02;
/// Failed transfers in five minutes below which nobody is paged.
pub const TRANSFER_ERROR_MIN: f64 = 3.0;
/// Requests a second that clients give up, at one role, before it counts as a cascade.
pub const CLIENT_ABORTS_PER_SECOND: f64 = 0.2;
/// Planned work further ahead than this is a mistake, and ignored.
pub const MAINTENANCE_SECONDS_MAX: f64 = 900.0;

/// Share of a pool that live requests may pin.
pub const POOL_ACTIVE_RATIO: f64 = 0.95;
/// Retractions a second that count as a storm.
pub const RETRACTIONS_PER_SECOND: f64 = 0.5;

/// Fill of a host pool from which evictions count against it.
pub const HOST_POOL_FULL_RATIO: f64 = 0.95;
/// Share of a host pool that copies may pin, where only that is known.
pub const HOST_POOL_PINNED_RATIO: f64 = 0.95;
/// Evictions per hit above which a full host pool only churns.
pub const HOST_EVICTIONS_PER_HIT: f64 = 4.0;
/// Share of the wanted host bytes below which a tier counts as undersized.
pub const HOST_UNDERSIZED_RATIO: f64 = 0.5;
/// Share of host pool bytes that may lie on another NUMA node than meant.
pub const HOST_OFF_NODE_RATIO: f64 = 0.05;

/// Restarts of a service in ten minutes that count as a loop: one is a deploy.
pub const RESTARTS_FAST: f64 = 2.0;
/// Restarts in an hour that count as one: weights may take long to load before each crash.
pub const RESTARTS_SLOW: f64 = 3.0;
/// Headroom of a NUMA node, as a share of its reserve, that pages: half of the reserve is eaten.
pub const NUMA_HEADROOM_RATIO: f64 = -0.5;
/// Share of a NUMA node that counts as its reserve where the exporter does not say one.
pub const NUMA_RESERVE_RATIO: f64 = 0.05;
/// Share of time that all tasks may wait for memory, over a minute.
pub const MEMORY_STALLED_RATIO: f64 = 0.01;
/// Age of a collector's data, with `COLLECTOR_STALE_INTERVALS`, from which it is a blind spot.
pub const COLLECTOR_STALE_SECONDS: f64 = 60.0;
/// Intervals of a collector after which its data is stale.
pub const COLLECTOR_STALE_INTERVALS: f64 = 3.0;

/// Difference between predicted and measured hit ratio above which the curve is not trusted.
pub const CURVE_TRUST_RATIO: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buckets;
    use crate::engines::{sglang, vllm};

    #[test]
    fn objectives_are_bucket_edges() {
        assert!(buckets::TTFT.contains(&TTFT_OBJECTIVE_SECONDS));
        assert!(buckets::TTFT.contains(&DRAIN_WARNING_SECONDS));
        assert!(buckets::QUEUE.contains(&OLDEST_REQUEST_SECONDS));
        assert!(buckets::ITL.contains(&ITL_P99_SECONDS));
    }

    /// The first edge that both engines have at or above the objective, so that no page is wrong.
    #[test]
    fn limits_of_other_engines_are_edges_of_theirs() {
        let ours = |edge: &&f64| **edge >= TTFT_OBJECTIVE_SECONDS;
        for edges in [sglang::TTFT_BUCKETS, vllm::TTFT_BUCKETS] {
            assert_eq!(edges.iter().find(ours), Some(&ENGINE_TTFT_EDGE_SECONDS));
        }
        for edges in [sglang::QUEUE_BUCKETS, vllm::REQUEST_BUCKETS] {
            assert!(edges.contains(&QUEUE_TIME_WARNING_SECONDS));
            assert!(edges.contains(&QUEUE_TIME_CRITICAL_SECONDS));
        }
    }

    #[test]
    fn burn_rates_are_of_the_budget() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(SLO_BUDGET_RATIO, 1.0 - SLO_TARGET_RATIO));
        assert!(near(SLO_BAD_FAST_RATIO, BURN_FAST * SLO_BUDGET_RATIO));
        assert!(near(SLO_BAD_SLOW_RATIO, BURN_SLOW * SLO_BUDGET_RATIO));
    }
}
