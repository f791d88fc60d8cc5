//! Metrics that only a router has; beside them it exports its front door (see `server`).
//!
//! What concerns requests carries the model of the request, what concerns one worker does not:
//! `worker` is its address, from the configuration or from discovery.

use crate::buckets;
use crate::def::catalog;
use crate::labels::*;
use crate::roles::ROUTER;

catalog! {
    source: Server, roles: ROUTER;

    /// Requests routed; outcome is ok, no_worker, upstream_rejected, upstream_error or client_gone.
    ROUTER_REQUESTS: Counter<(RouterPolicy, RouterOutcome)> = "sightline_router_requests_total";
    /// Responses from workers.
    ROUTER_UPSTREAM_RESPONSES: Counter<(Worker, StatusCode)> =
        "sightline_router_upstream_responses_total", per Process;
    /// 1 when the worker is routable.
    ROUTER_WORKER_UP: Gauge<(Worker, WorkerRole)> = "sightline_router_worker_up", per Process;
    /// Workers of a role that the configuration declares for a model; 0 when only discovery
    /// decides.
    ROUTER_WORKERS_DECLARED: Gauge<(WorkerRole,)> = "sightline_router_workers_declared";
    /// Requests the router has open at a worker.
    ROUTER_WORKER_ACTIVE_REQUESTS: Gauge<(Worker,)> =
        "sightline_router_worker_active_requests", per Process;
    /// Uncached prompt tokens the router believes are queued at a worker.
    ROUTER_WORKER_PENDING_TOKENS: Gauge<(Worker,)> =
        "sightline_router_worker_pending_tokens", per Process;
    /// Age of the last load report of a worker.
    ROUTER_LOAD_REPORT_AGE: Gauge<(Worker,)> =
        "sightline_router_load_report_age_seconds", per Process;
    /// Routing decisions by branch of the policy.
    ROUTER_DECISIONS: Counter<(RouterPolicy, RouterBranch)> =
        "sightline_router_decisions_total", only decision_possible;
    /// Requests sent again to another worker.
    ROUTER_RETRIES: Counter<(RetryReason,)> = "sightline_router_retries_total";
    /// 1 for the current circuit state; state is closed, open or half_open.
    ROUTER_CIRCUIT_STATE: Gauge<(Worker, CircuitState)> =
        "sightline_router_circuit_state", per Process;
    /// Requests that wait at the router because nobody can be asked for a moment.
    ROUTER_HELD_REQUESTS: Gauge<()> = "sightline_router_held_requests", per Process;
    /// Prompt tokens of those, estimated.
    ROUTER_HELD_TOKENS: Gauge<()> = "sightline_router_held_tokens", per Process;
    /// Requests that may wait at the router, of all models together; 0 where none may.
    ROUTER_HELD_REQUESTS_LIMIT: Gauge<()> =
        "sightline_router_held_requests_limit", per Process;
    /// Requests that waited at the router, or did not for lack of room, by what became of them.
    ROUTER_HOLDS: Counter<(HoldOutcome,)> = "sightline_router_holds_total";
    /// How long requests waited at the router.
    ROUTER_HOLD_DURATION: Histogram<()> =
        "sightline_router_hold_duration_seconds", buckets buckets::QUEUE;
    /// Looks at a list of workers that gave none, so that the last one is kept.
    ROUTER_DISCOVERY_FAILURES: Counter<(DiscoverySource,)> =
        "sightline_router_discovery_failures_total", per Process;
    /// Unix time a list of workers was last read; 0 where that never was.
    ROUTER_DISCOVERY_SUCCESS_TIMESTAMP: Gauge<(DiscoverySource,)> =
        "sightline_router_discovery_last_success_timestamp_seconds", per Process;
    /// Share of prompt tokens the chosen worker is believed to hold.
    ROUTER_PREFIX_MATCH: Histogram<()> =
        "sightline_router_prefix_match_ratio", buckets buckets::RATIO;
}
