//! The lower half of the overview: latency, failures, state, processes.

use crate::boards::common::{self, INSTANCE as BY_INSTANCE};
use crate::build::{folded, heatmap, line, section, stat, state_timeline, table, time_series};
use crate::ir::{Color, Line, Panel, Section, Stack};
use metric_catalog::def::{Histogram, Label, LabelSet, Unit};
use metric_catalog::labels::{
    AbortInitiator, AbortReason, AbortStage, Cuda, DpSize, EngineState, Format, GitSha, Instance,
    Kernel, KvDtype, ModelName, Op, PageTokens, RejectReason, Route, Rustc, Slo, StartupPhase,
    TpSize, TtftPhase, Version,
};
use metric_catalog::promql::{
    Expr, Selection, Window, bucket_rate, max, mean, observed, quantile, rate, ratio, recorded, sum,
};
use metric_catalog::{process, server, slo};

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
    let rest = line(
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
        ],
    );
    section("latency", "Latency", vec![first, rest])
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

/// Errors, refusals, aborts.
pub(super) fn failures() -> Section {
    let aborted = common::seen(server::REQUESTS_ABORTED, NOW)
        .by((AbortStage::KEY, AbortInitiator::KEY, AbortReason::KEY))
        .above(0.0)
        .or_on(&[], common::seen(server::REQUESTS_ABORTED, NOW).total().labelled("reason", "none"));
    let ratios = line(
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
                .into(),
        ],
    );
    let counts = line(
        8,
        vec![
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
    section("failures", "Errors, refusals, aborts", vec![ratios, counts])
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

/// The processes themselves; folded, for when the rest does not explain it.
pub(super) fn processes() -> Section {
    let lines = vec![resources(), self_observation(), builds(), kernels_and_configuration()];
    folded("processes", "Processes", lines)
}

fn resources() -> Line {
    line(
        7,
        vec![
            time_series("cpu")
                .title("CPU")
                .describe(
                    "Cores in use. Flat at the number of threads: the engine is compute bound.",
                )
                .unit(Unit::Count)
                .query(
                    sum(rate(process::CPU_SECONDS, NOW)).by(Instance::KEY).in_unit(Unit::Count),
                    BY_INSTANCE,
                )
                .into(),
            time_series("memory")
                .title("Resident memory")
                .describe(
                    "Weights, KV pools and buffers. It should not grow once the engine is ready.",
                )
                .unit(Unit::Bytes)
                .query(max(process::RESIDENT_MEMORY).by(Instance::KEY), BY_INSTANCE)
                .into(),
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
            time_series("event-loop-delay")
                .title("Event loop delay, p99")
                .describe(
                    "How late a 10 ms timer of the HTTP side wakes up. Above 50 ms the machine is \
                     short of cores for HTTP: give the engine fewer threads.",
                )
                .unit(Unit::Seconds)
                .query(
                    quantile(0.99, server::TOKIO_EVENT_LOOP_DELAY, NOW).by(Instance::KEY),
                    BY_INSTANCE,
                )
                .into(),
        ],
    )
}

fn self_observation() -> Line {
    let requests = ratio(
        sum(server::HTTP_REQUESTS_IN_FLIGHT).by(Instance::KEY),
        max(server::RUNNING_REQUESTS_LIMIT).by(Instance::KEY),
    );
    line(
        7,
        vec![
            time_series("render-time")
                .title("Metrics page render time")
                .describe("Mean time to render the metrics page: the cost of being watched.")
                .unit(Unit::Seconds)
                .query(mean(server::METRICS_RENDER_DURATION, NOW).by(Instance::KEY), BY_INSTANCE)
                .into(),
            time_series("series")
                .title("Series")
                .describe("Series on the metrics page. Must not grow with traffic.")
                .unit(Unit::Count)
                .query(max(server::METRICS_SERIES).by(Instance::KEY), BY_INSTANCE)
                .into(),
            time_series("in-flight")
                .title("HTTP requests in flight, by running limit")
                .describe(
                    "Open HTTP requests over the largest running batch. Above 1, some of them \
                     wait in the queue.",
                )
                .unit(Unit::Ratio)
                .query(requests, BY_INSTANCE)
                .into(),
            stat("startup")
                .title("Startup phases")
                .describe("How long each phase of the last start took.")
                .unit(Unit::Seconds)
                .query(max(server::STARTUP_PHASE).by(StartupPhase::KEY), "{{phase}}")
                .base(Color::Text)
                .plain()
                .names()
                .into(),
        ],
    )
}

fn builds() -> Line {
    let build = max(server::BUILD_INFO).by((
        Instance::KEY,
        Version::KEY,
        GitSha::KEY,
        Rustc::KEY,
        Cuda::KEY,
    ));
    let columns = [
        ("instance", "Instance"),
        ("version", "Version"),
        ("git_sha", "Commit"),
        ("rustc", "Compiler"),
        ("cuda", "CUDA"),
    ];
    let builds = table("builds", &columns)
        .title("Builds")
        .describe("What each process was built from. Different builds side by side are a rollout.")
        .unit(Unit::Flag)
        .query(build, "");
    line(5, vec![builds.into()])
}

fn kernels_and_configuration() -> Line {
    let kernel = max(server::KERNEL_INFO).by((Instance::KEY, Op::KEY, Format::KEY, Kernel::KEY));
    let columns = [
        ("instance", "Instance"),
        ("op", "Operation"),
        ("format", "Weights"),
        ("kernel", "Kernel"),
    ];
    let kernels = table("kernels", &columns)
        .title("Kernels")
        .describe(
            "Code path of each operation. `reference` where a faster one is expected: the \
             processor lacks an instruction set.",
        )
        .unit(Unit::Flag)
        .query(kernel, "");
    let configuration = max(server::CONFIG_INFO).by((
        Instance::KEY,
        TpSize::KEY,
        DpSize::KEY,
        KvDtype::KEY,
        PageTokens::KEY,
    ));
    let columns = [
        ("instance", "Instance"),
        ("tp_size", "Tensor parallel"),
        ("dp_size", "Data parallel"),
        ("kv_dtype", "KV type"),
        ("page_tokens", "Tokens per page"),
    ];
    let configuration = table("configuration", &columns)
        .title("Configuration")
        .describe("The settings that other panels must be read against.")
        .unit(Unit::Flag)
        .query(configuration, "");
    line(7, vec![kernels.into(), configuration.into()])
}
