//! The lower half of the overview: latency, failures, state.

use crate::boards::common::{self, INSTANCE as BY_INSTANCE};
use crate::build::{bar_chart, heatmap, line, section, state_timeline, time_series};
use crate::ir::{Color, Line, Panel, Section, Stack};
use crate::lint::Lint;
use metric_catalog::def::{Histogram, Label, LabelSet, Unit};
use metric_catalog::labels::{
    AbortInitiator, AbortReason, AbortStage, EngineState, Instance, ModelName, RejectReason, Route,
    Slo, TtftPhase,
};
use metric_catalog::promql::{
    Expr, Selection, Window, bucket_rate, increase, max, mean, observed, quantile, recorded, sum,
};
use metric_catalog::{server, slo};

const NOW: Window = Window::Interval;

/// Time to first token, gaps, whole requests.
pub(super) fn latency() -> Section {
    let distribution = sum(observed(bucket_rate(server::TIME_TO_FIRST_TOKEN, NOW)));
    let distribution = distribution.group(vec!["le"]).in_unit(Unit::CountPerSecond);
    let phases = mean(server::TTFT_PHASE, NOW).by(TtftPhase::KEY);
    let first = line(
        9,
        vec![
            quantiles(
                "ttft",
                "Time to first token",
                "From accept to the first output token. When it passes the objective, *TTFT by \
                 phase* says whether requests wait (queue board) or compute.",
                server::TIME_TO_FIRST_TOKEN,
                Some(Slo::Ttft),
            ),
            heatmap("ttft-heatmap")
                .title("Time to first token, distribution")
                .describe(
                    "Requests by time to first token. Two bands are two kinds of requests: long \
                     and short prompts, or those that waited and those that did not.",
                )
                .unit(Unit::Seconds)
                .query(distribution, "{{le}}")
                .into(),
            time_series("ttft-phases")
                .title("TTFT by phase, mean")
                .describe(
                    "Where the time to first token goes; the parts add up. Queue: waiting for a \
                     place in the batch. Prefill: computing the prompt. The others are those of a \
                     prefill and a decode worker.",
                )
                .unit(Unit::Seconds)
                .query(phases, "{{phase}}")
                .stacked(Stack::Sum)
                .into(),
        ],
    );
    section("latency", "Latency", vec![first, further()])
}

fn further() -> Line {
    line(
        9,
        vec![
            inter_token_latency(),
            quantiles(
                "e2e",
                "Request duration",
                "From accept to the end of a request. Follows output length: compare with \
                 *Request size*.",
                server::REQUEST_DURATION,
                Some(Slo::E2e),
            ),
            quantiles(
                "time-per-output-token",
                "Time per output token",
                "Mean gap of one finished request: what a reader of the stream feels.",
                server::REQUEST_TIME_PER_OUTPUT_TOKEN,
                None,
            ),
            time_series("http-duration")
                .title("HTTP duration, p95 by route")
                .describe(
                    "From accept to the last byte, by route. Probes and metrics pages must stay \
                     under 10 ms also under load; inference routes follow output length.",
                )
                .unit(Unit::Seconds)
                .query(
                    quantile(0.95, server::HTTP_REQUEST_DURATION, NOW).by(Route::KEY),
                    "{{route}}",
                )
                .log_scale()
                .into(),
        ],
    )
}

/// Three quantiles of a histogram, and its objective as a dashed line where there is one.
fn quantiles<L: LabelSet>(
    slug: &str,
    title: &str,
    description: &str,
    histogram: Histogram<L>,
    objective: Option<Slo>,
) -> Panel {
    let mut draft = time_series(slug).title(title).describe(description).unit(Unit::Seconds);
    for (share, name) in [(0.5, "p50"), (0.95, "p95"), (0.99, "p99")] {
        draft = draft.query(common::seen_quantile(share, histogram, NOW).total(), name);
    }
    if let Some(objective) = objective {
        draft = draft
            .query(max(server::SLO_OBJECTIVE.is(objective)).total(), "objective")
            .dashed("objective");
    }
    draft.into()
}

fn inter_token_latency() -> Panel {
    let name = ModelName::KEY;
    let gap = |share| common::seen_quantile(share, server::INTER_TOKEN_LATENCY, NOW).by(name);
    time_series("itl")
        .title("Inter-token latency")
        .describe(
            "Gap between successive tokens of a request. Grows with the batch and with prefill \
             mixed into decode: see *Batch* on the queue board. The line is the alert's.",
        )
        .unit(Unit::Seconds)
        .query(gap(0.5), "p50 {{model_name}}")
        .query(gap(0.99), "p99 {{model_name}}")
        .threshold(slo::ITL_P99_SECONDS, Color::Orange)
        .threshold_lines()
        .into()
}

/// Shares of requests that failed or were refused.
pub(super) fn ratios() -> Line {
    line(
        8,
        vec![
            time_series("error-ratio")
                .title("Error ratio")
                .describe(
                    "Share of API requests that ended in a 5xx over the last minute. Above the \
                     line clients see an outage: look at *Engine state* and at the log.",
                )
                .unit(Unit::Ratio)
                .query(recorded::ERROR_RATIO.get(), "{{kind}} {{model_name}}")
                .no_value("no traffic")
                .threshold(slo::ERROR_RATIO, Color::Red)
                .threshold_lines()
                .into(),
            time_series("refused-share")
                .title("Refusal ratio")
                .describe(
                    "Share of offered requests refused for lack of capacity. Above the line, add \
                     capacity or raise a limit: *Refusals by reason* says which limit.",
                )
                .unit(Unit::Ratio)
                .query(recorded::REFUSED_RATIO.get(), BY_INSTANCE)
                .no_value("no traffic")
                .threshold(slo::REFUSED_RATIO, Color::Orange)
                .threshold_lines()
                .alert("RequestsRejected")
                .detail(common::QUEUE)
                .into(),
        ],
    )
}

/// Errors, refusals, aborts.
pub(super) fn failures() -> Section {
    let aborted = common::seen(server::REQUESTS_ABORTED, NOW)
        .by((AbortStage::KEY, AbortInitiator::KEY, AbortReason::KEY))
        .above(0.0)
        .or_on(&[], common::seen(server::REQUESTS_ABORTED, NOW).total().labelled("reason", "none"));
    let refused = sum(observed(increase(server::REQUESTS_REJECTED, Window::Range)));
    let reasons = refused.by(RejectReason::KEY).above(0.0);
    let counts = line(
        8,
        vec![
            bar_chart("refusal-reasons", "reason")
                .title("Why requests were refused")
                .describe(
                    "Requests refused in the shown range, by reason. `drain_time`, \
                     `queue_tokens_full` and `queue_requests_full`: too little capacity for what \
                     comes; `invalid`: the client; `draining`: a shutdown; `unhealthy`: an engine \
                     that failed.",
                )
                .unit(Unit::Requests)
                .query(reasons.in_unit(Unit::Requests), "refused")
                .allow(Lint::L05, "one value for the whole range that is shown")
                .no_value("nobody was refused in this range")
                .alert("RequestsRejected")
                .detail(common::QUEUE)
                .into(),
            time_series("refusals")
                .title("Refusals by reason")
                .describe(
                    "Requests refused before any header was sent. `invalid` is the client's \
                     fault; `draining` is a shutdown; the others are limits of admission.",
                )
                .unit(Unit::RequestsPerSecond)
                .query(
                    common::seen(server::REQUESTS_REJECTED, NOW).by(RejectReason::KEY),
                    "{{reason}}",
                )
                .stacked(Stack::Sum)
                .into(),
            time_series("aborts")
                .title("Aborts")
                .describe(
                    "Requests that ended early: why, who ended them, and in which stage. Many \
                     clients that leave in the queue or in prefill have given up waiting.",
                )
                .unit(Unit::RequestsPerSecond)
                .query(aborted, "{{reason}} {{initiator}} {{stage}}")
                .stacked(Stack::Sum)
                .into(),
        ],
    );
    section("failures", "Who is refused or gives up", vec![counts])
}

/// Lifecycle state and alerts over time.
pub(super) fn state() -> Section {
    let lines = vec![line(
        7,
        vec![
            state_timeline("engine-state")
                .title("Engine state")
                .describe(
                    "Lifecycle of each engine. `failed` never recovers by itself: restart it and \
                     read the last lines of its log. A gap is a process that does not answer.",
                )
                .unit(Unit::Flag)
                .query(engine_state_code(), BY_INSTANCE)
                .map(1, "loading", Color::Blue)
                .map(2, "warming", Color::Purple)
                .map(3, "ready", Color::Green)
                .map(4, "draining", Color::Yellow)
                .map(5, "failed", Color::Red)
                .into(),
            state_timeline("alert-state")
                .title("Alerts")
                .describe(
                    "Alerts that were pending or firing. Each one's annotations lead to its \
                     panel and to the section of the runbook that says what to do.",
                )
                .unit(Unit::Flag)
                .query(common::alert_states(), "{{alertname}}")
                .map(0, "quiet", Color::Green)
                .map(1, "pending", Color::Yellow)
                .map(2, "firing", Color::Red)
                .into(),
        ],
    )];
    section("state", "State", lines)
}

/// The current state of each process as a number from 1.
fn engine_state_code() -> Expr {
    let code = |state: EngineState, code: f64| -> Expr {
        Expr::from(server::ENGINE_STATE.is(state)).times(code)
    };
    let all = code(EngineState::Loading, 1.0)
        .or(code(EngineState::Warming, 2.0))
        .or(code(EngineState::Ready, 3.0))
        .or(code(EngineState::Draining, 4.0))
        .or(code(EngineState::Failed, 5.0));
    max(all).by(Instance::KEY)
}
