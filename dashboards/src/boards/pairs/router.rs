//! The router: whom it chooses, what comes back, what it knows of its workers.

use super::NOW;
use crate::build::{line, time_series};
use crate::ir::{Line, Section, Stack};
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{
    CircuitState, Instance, RetryReason, RouterBranch, RouterOutcome, RouterPolicy, StatusCode,
    Worker, WorkerRole,
};
use metric_catalog::promql::{Selection, max, quantile, rate, sum};
use metric_catalog::router;

pub(super) fn section() -> Section {
    crate::build::section("router", "Router", vec![requests(), choices(), workers()])
}

fn requests() -> Line {
    let outcomes = sum(rate(router::ROUTER_REQUESTS, NOW)).by(RouterOutcome::KEY);
    let answers = sum(rate(router::ROUTER_UPSTREAM_RESPONSES, NOW));
    let retries = sum(rate(router::ROUTER_RETRIES, NOW)).by(RetryReason::KEY);
    line(
        8,
        vec![
            time_series("routed-requests")
                .title("Routed requests by outcome")
                .describe(
                    "`no_worker`: nobody could be asked; `upstream_rejected`: all asked refuse; \
                     `upstream_error`: a worker failed, and no other try was left.",
                )
                .unit(Unit::RequestsPerSecond)
                .query(outcomes, "{{outcome}}")
                .no_value("no router")
                .stacked(Stack::Sum)
                .into(),
            time_series("upstream-responses")
                .title("Answers of workers")
                .describe("By worker and status. One worker with other answers is that worker.")
                .unit(Unit::CountPerSecond)
                .query(
                    answers.by((Worker::KEY, StatusCode::KEY)).above(0.0),
                    "{{worker}} {{status_code}}",
                )
                .no_value("none")
                .stacked(Stack::Sum)
                .into(),
            time_series("router-retries")
                .title("Tries on another worker")
                .describe(
                    "Requests sent again before the first byte of an answer, by why. They have a \
                     budget; beyond it failures go to the client.",
                )
                .unit(Unit::CountPerSecond)
                .query(retries, "{{reason}}")
                .no_value("no router")
                .stacked(Stack::Sum)
                .into(),
        ],
    )
}

fn choices() -> Line {
    let branches = sum(rate(router::ROUTER_DECISIONS, NOW));
    let matched = |share| quantile(share, router::ROUTER_PREFIX_MATCH, NOW).total();
    line(
        8,
        vec![
            time_series("router-decisions")
                .title("Choices by branch")
                .describe(
                    "Why a worker was chosen. Many `load_guard`: prompts go where they are not \
                     cached, because those that hold them have too much to do.",
                )
                .unit(Unit::CountPerSecond)
                .query(
                    branches.by((RouterPolicy::KEY, RouterBranch::KEY)).above(0.0),
                    "{{policy}} {{branch}}",
                )
                .no_value("none")
                .stacked(Stack::Sum)
                .into(),
            time_series("router-prefix-match")
                .title("Prompt believed to be cached")
                .describe(
                    "Share of the prompt that the chosen worker is believed to hold. Compare with \
                     the hit ratio that workers measure: a router that believes too much sees \
                     evictions late.",
                )
                .unit(Unit::Ratio)
                .query(matched(0.5), "p50")
                .query(matched(0.95), "p95")
                .no_value("none")
                .into(),
        ],
    )
}

fn workers() -> Line {
    let open = max(router::ROUTER_CIRCUIT_STATE.none_of(&[CircuitState::Closed]));
    let up = max(router::ROUTER_WORKER_UP).by((Worker::KEY, WorkerRole::KEY, Instance::KEY));
    let by = (Worker::KEY, Instance::KEY);
    line(
        8,
        vec![
            time_series("workers-up")
                .title("Workers that can be asked")
                .describe(
                    "1 when the router sends requests there. At 0 it does not answer, drains, or \
                     failed too often (*circuit*, dashed).",
                )
                .unit(Unit::Count)
                .query(up.in_unit(Unit::Count), "{{worker_role}} {{worker}}")
                .query(
                    open.by((Worker::KEY, CircuitState::KEY)).in_unit(Unit::Count).above(0.0),
                    "circuit {{state}} {{worker}}",
                )
                .dashed("/^circuit/")
                .no_value("no router")
                .steps()
                .into(),
            time_series("worker-load")
                .title("Tokens that the router believes wait")
                .describe("Uncached prompt tokens queued at each worker, as the router sees it.")
                .unit(Unit::Tokens)
                .query(max(router::ROUTER_WORKER_PENDING_TOKENS).by(by), "{{worker}} {{instance}}")
                .no_value("no router")
                .into(),
            time_series("worker-active")
                .title("Open requests by worker")
                .describe("Requests that the router has open at each worker.")
                .unit(Unit::Requests)
                .query(max(router::ROUTER_WORKER_ACTIVE_REQUESTS).by(by), "{{worker}} {{instance}}")
                .no_value("no router")
                .stacked(Stack::Sum)
                .into(),
            time_series("load-report-age")
                .title("Age of load reports")
                .describe(
                    "How old what the router knows of a worker is. Old reports are choices made \
                     in the dark: the worker is slow to answer, or gone.",
                )
                .unit(Unit::Seconds)
                .query(max(router::ROUTER_LOAD_REPORT_AGE).by(by), "{{worker}} {{instance}}")
                .no_value("no router")
                .into(),
        ],
    )
}
