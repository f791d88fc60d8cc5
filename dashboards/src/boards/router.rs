//! The router: what becomes of requests, whom it chooses and why, what it knows of its workers.

mod holding;
mod workers;

use super::common;
use crate::build::{bar_chart, line, section, stat, time_series};
use crate::ir::{Color, Dashboard, Panel, Section, Stack};
use crate::lint::Lint;
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{
    CircuitState, Instance, RetryReason, RouterBranch, RouterOutcome, RouterPolicy, StatusCode,
    Worker,
};
use metric_catalog::promql::{
    Expr, Selection, Window, avg, increase, quantile, rate, ratio, recorded, sum,
};
use metric_catalog::{router, slo};

const NOW: Window = Window::Interval;

/// Instead of data, where there is no router.
const NO_ROUTER: &str = "no router";

/// The board.
pub(super) fn board() -> Dashboard {
    let mut board = common::board(
        common::ROUTER,
        "Router",
        "What becomes of requests at the router, whom it chooses and why, what it knows of its \
         workers, and who waits there while nobody can be asked. Without a router it is empty.",
        vec![
            now(),
            requests(),
            choices(),
            workers::who(),
            workers::load(),
            holding::section(),
            holding::discovery(),
        ],
    );
    board.split_from = vec![common::PAIRS.to_owned()];
    board
}

/// Share of routed requests that got no answer of a worker although their client waited.
fn failed() -> Expr {
    let faults = [RouterOutcome::NoWorker, RouterOutcome::UpstreamError];
    ratio(
        sum(rate(router::ROUTER_REQUESTS.any_of(&faults), NOW)).total(),
        sum(rate(router::ROUTER_REQUESTS, NOW)).total(),
    )
}

fn now() -> Section {
    let count = |slug: &str| stat(slug).no_value(NO_ROUTER).base(Color::Blue);
    let open = sum(router::ROUTER_CIRCUIT_STATE.none_of(&[CircuitState::Closed])).total();
    let panels = [
        count("failed-now")
            .title("Failed")
            .describe(
                "Share of routed requests that found no worker or whose worker failed with no try \
                 left. Above the threshold clients see an outage: look at *Workers* below.",
            )
            .unit(Unit::Ratio)
            .query(failed(), "failed")
            .base(Color::Green)
            .threshold(slo::ERROR_RATIO, Color::Red)
            .alert("ErrorRateHigh"),
        count("routed-now")
            .title("Routed")
            .describe("Requests that the router handles by the second.")
            .unit(Unit::RequestsPerSecond)
            .query(sum(rate(router::ROUTER_REQUESTS, NOW)).total(), "routed"),
        count("workers-now")
            .title("Workers that can be asked")
            .describe(
                "Workers that the router sends requests to, all roles. Red: none, so that every \
                 request is held or refused.",
            )
            .unit(Unit::Count)
            .query(sum(router::ROUTER_WORKER_UP).total().in_unit(Unit::Count), "up")
            .base(Color::Red)
            .threshold(1.0, Color::Green)
            .alert("RoleMissing"),
        count("circuits-now")
            .title("Circuits not closed")
            .describe(
                "Workers that failed so often that none, or only a few, requests go there. See \
                 *Circuits*, and the log of that worker.",
            )
            .unit(Unit::Count)
            .query(open.in_unit(Unit::Count), "open")
            .base(Color::Green)
            .threshold(1.0, Color::Orange)
            .detail(common::INSTANCES),
        count("waiting-at-router-now")
            .title("Held")
            .describe(
                "Requests that wait at the router because nobody can be asked for a moment. They \
                 are sent on, or refused, when the hold is over; see *Holding*.",
            )
            .unit(Unit::Requests)
            .query(sum(router::ROUTER_HELD_REQUESTS).total(), "held")
            .base(Color::Green)
            .threshold(1.0, Color::Orange)
            .alert("RoleMissing"),
    ];
    section("now", "Now", vec![line(4, panels.map(Panel::from).to_vec())])
}

fn requests() -> Section {
    let outcomes = sum(rate(router::ROUTER_REQUESTS, NOW)).by(RouterOutcome::KEY);
    let answers = sum(rate(router::ROUTER_UPSTREAM_RESPONSES, NOW));
    let retries = sum(rate(router::ROUTER_RETRIES, NOW)).by(RetryReason::KEY);
    let panels = vec![
        time_series("routed-requests")
            .title("Routed requests by outcome")
            .describe(
                "`no_worker`: nobody could be asked; `upstream_rejected`: all asked refuse; \
                 `upstream_error`: a worker failed, and no other try was left.",
            )
            .unit(Unit::RequestsPerSecond)
            .query(outcomes, "{{outcome}}")
            .no_value(NO_ROUTER)
            .stacked(Stack::Sum)
            .alert("ErrorRateHigh")
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
            .detail(common::INSTANCES)
            .into(),
        time_series("router-retries")
            .title("Tries on another worker")
            .describe(
                "Requests sent again before the first byte of an answer, by why. They have a \
                 budget; beyond it failures go to the client.",
            )
            .unit(Unit::CountPerSecond)
            .query(retries, "{{reason}}")
            .no_value(NO_ROUTER)
            .stacked(Stack::Sum)
            .into(),
    ];
    section("requests", "Requests", vec![line(8, panels)])
}

fn choices() -> Section {
    let decisions = sum(increase(router::ROUTER_DECISIONS, Window::Range));
    let by = (RouterPolicy::KEY, RouterBranch::KEY);
    let branches = sum(rate(router::ROUTER_DECISIONS, NOW));
    let matched = |share| quantile(share, router::ROUTER_PREFIX_MATCH, NOW).total();
    let measured = avg(recorded::PREFIX_HIT.get()).total();
    let panels = vec![
        bar_chart("branch-shares", "policy")
            .title("Policies and their branches")
            .describe(
                "Why workers were chosen in the shown range, as shares for each policy. Mostly \
                 `cache_hit` is what a policy that follows the cache is for; mostly `load_guard` \
                 means that caches are ignored because their workers have too much to do; `only` \
                 that there was no choice.",
            )
            .unit(Unit::Count)
            .query(decisions.by(by).above(0.0).in_unit(Unit::Count), "")
            .split_by("branch")
            .stacked(Stack::Percent)
            .lying()
            .no_value("nothing was decided in this range")
            .allow(Lint::L05, "one value for the whole range that is shown")
            .into(),
        time_series("router-decisions")
            .title("Choices by branch")
            .describe(
                "Why a worker was chosen. Many `load_guard`: prompts go where they are not cached, \
                 because those that hold them have too much to do.",
            )
            .unit(Unit::CountPerSecond)
            .query(branches.by(by).above(0.0), "{{policy}} {{branch}}")
            .no_value("none")
            .stacked(Stack::Sum)
            .into(),
        time_series("router-prefix-match")
            .title("Prompt believed to be cached")
            .describe(
                "Share of the prompt that the chosen worker is believed to hold, and the share \
                 that workers measured (dashed). A router that believes too much sees evictions \
                 late.",
            )
            .unit(Unit::Ratio)
            .query(matched(0.5), "p50")
            .query(matched(0.95), "p95")
            .query(measured, "measured")
            .dashed("measured")
            .no_value("none")
            .detail(common::HICACHE)
            .into(),
    ];
    section("choices", "Choices", vec![line(8, panels)])
}

/// What tells a worker of one router from that of another.
type Seen = (metric_catalog::def::Key<Worker>, metric_catalog::def::Key<Instance>);
const SEEN: Seen = (Worker::KEY, Instance::KEY);
