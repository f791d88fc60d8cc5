//! Overview: is the service good to its users, and if not, where to look.

mod detail;

use super::common;
use crate::build::{line, section, stat, time_series};
use crate::ir::{Color, Dashboard, Line, Panel, Section, Stack};
use crate::lint::Lint;
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{
    EngineState, Instance, Outcome, PromptSource, Queue, RejectReason, Role, Route, Slo, SloResult,
    StatusCode,
};
use metric_catalog::promql::{Selection, Window, max, quantile, rate, ratio, recorded, sum};
use metric_catalog::{server, slo};

const NOW: Window = Window::Interval;

/// The board.
pub(super) fn board() -> Dashboard {
    common::board(
        common::OVERVIEW,
        "Overview",
        "Is the service good to its users, and if not, which board explains it. Read it from top \
         to bottom: objectives, traffic, latency, errors, state.",
        vec![
            now(),
            objectives(),
            traffic(),
            detail::latency(),
            detail::failures(),
            detail::state(),
            detail::processes(),
        ],
    )
}

fn now() -> Section {
    section("now", "Now", vec![stats_of_service(), stats_of_load()])
}

fn stats_of_service() -> Line {
    let engines = server::ENGINE_STATE.is(EngineState::Ready).without(Role::Router);
    let ready = sum(engines).total();
    let ready = stat("ready-engines")
        .title("Ready engines")
        .describe(
            "Engines that take requests. At 0 nothing is served: look at *Engine state* below and \
             at the log of the process; it names the phase that failed.",
        )
        .unit(Unit::Count)
        .query(ready, "ready")
        .base(Color::Red)
        .threshold(1.0, Color::Green)
        .background();
    let firing = stat("firing-alerts")
        .title("Firing alerts")
        .describe(
            "Warnings and pages that fire now. *Alerts* below names them; each leads to its panel \
             and to its section of the runbook.",
        )
        .unit(Unit::Count)
        .query(common::firing_alerts(), "firing")
        .threshold(1.0, Color::Red)
        .background();
    let up = stat("targets-up")
        .title("Targets up")
        .describe(
            "Processes that answer a scrape. The series of one that does not end, so no other \
             panel shows it: look at the process on its host.",
        )
        .unit(Unit::Count)
        .query(common::targets_up(), "up")
        .base(Color::Red)
        .threshold(1.0, Color::Green);
    line(4, vec![ready.into(), firing.into(), up.into(), within_objectives(), drain()])
}

fn within_objectives() -> Panel {
    let good = ratio(
        common::seen(server::SLO_REQUESTS.is(SloResult::Good), Window::M5).total(),
        common::seen(server::SLO_REQUESTS, Window::M5).total(),
    );
    stat("slo-good")
        .title("Within objectives")
        .describe(
            "Share of judged requests of the last 5 minutes that met their objectives, all \
             objectives together. Below the goal the error budget of 30 days shrinks faster than \
             it should: see *Objectives*.",
        )
        .unit(Unit::Ratio)
        .query(good, "good")
        .allow(Lint::L05, "the last five minutes, whatever range is shown")
        .no_value("no traffic")
        .max(1.0)
        .decimals(1)
        .base(Color::Red)
        .threshold(slo::SLO_TARGET_RATIO, Color::Green)
        .into()
}

fn drain() -> Panel {
    stat("drain-now")
        .title("Queue drain")
        .describe(
            "Seconds that the prefill of everything queued takes: a forecast of the time to first \
             token of the next request. See the queue board.",
        )
        .unit(Unit::Seconds)
        .query(max(recorded::QUEUE_DRAIN.get()).total(), "drain")
        .no_value("idle")
        .threshold(slo::DRAIN_WARNING_SECONDS, Color::Orange)
        .threshold(slo::DRAIN_CRITICAL_SECONDS, Color::Red)
        .into()
}

fn stats_of_load() -> Line {
    let turned_away = server::REQUESTS_REJECTED.none_of(&RejectReason::AFTER_ADMISSION);
    let admitted = common::seen(server::REQUESTS_ADMITTED, NOW).total();
    let offered = admitted.plus(common::seen(turned_away, NOW).total());
    line(
        4,
        vec![
            stat("offered-now")
                .title("Offered")
                .describe("Inference requests that arrive, refused ones included.")
                .unit(Unit::RequestsPerSecond)
                .query(offered, "offered")
                .base(Color::Blue)
                .into(),
            stat("ttft-now")
                .title("TTFT p95")
                .describe("Time to first token that 95 % of requests stay under.")
                .unit(Unit::Seconds)
                .query(common::seen_quantile(0.95, server::TIME_TO_FIRST_TOKEN, NOW).total(), "p95")
                .no_value("no traffic")
                .base(Color::Blue)
                .into(),
            stat("generated-now")
                .title("Generated tokens")
                .describe("Output tokens produced by the second, all engines together.")
                .unit(Unit::TokensPerSecond)
                .query(sum(rate(server::GENERATION_TOKENS, NOW)).total(), "generated")
                .base(Color::Blue)
                .into(),
            stat("running-now")
                .title("Running requests")
                .describe("Requests in the running batch, all engines together.")
                .unit(Unit::Requests)
                .query(sum(server::RUNNING_REQUESTS).total(), "running")
                .base(Color::Blue)
                .into(),
        ],
    )
}

fn objectives() -> Section {
    let good = ratio(
        common::seen(server::SLO_REQUESTS.is(SloResult::Good), NOW).per_model_and(Slo::KEY),
        common::seen(server::SLO_REQUESTS, NOW).per_model_and(Slo::KEY),
    );
    let lines = vec![line(
        8,
        vec![
            time_series("slo-good-share")
                .title("Requests within objective")
                .describe(
                    "Share of requests that met each objective; refused and aborted ones count as \
                     missed for TTFT. The line is the goal. When TTFT falls, look at the queue \
                     board; when ITL falls, at batch sizes there.",
                )
                .unit(Unit::Ratio)
                .query(good, "{{slo}} {{model_name}}")
                .max(1.0)
                .base(Color::Red)
                .threshold(slo::SLO_TARGET_RATIO, Color::Green)
                .threshold_lines()
                .span(10)
                .into(),
            time_series("slo-bad")
                .title("Error budget burn")
                .describe(
                    "Share of requests that missed an objective, over four windows. Both the 1 h \
                     and the 5 m line above the upper threshold page: the budget of a month is \
                     gone in two days. Both the 6 h and the 30 m line above the lower one make a \
                     ticket: there is time until the next working day.",
                )
                .unit(Unit::Ratio)
                .query(recorded::SLO_BAD_M5.get(), "{{slo}} 5m {{model_name}}")
                .query(recorded::SLO_BAD_M30.get(), "{{slo}} 30m {{model_name}}")
                .query(recorded::SLO_BAD_H1.get(), "{{slo}} 1h {{model_name}}")
                .query(recorded::SLO_BAD_H6.get(), "{{slo}} 6h {{model_name}}")
                .no_value("no traffic")
                .threshold(slo::SLO_BAD_SLOW_RATIO, Color::Orange)
                .threshold(slo::SLO_BAD_FAST_RATIO, Color::Red)
                .threshold_lines()
                .span(10)
                .into(),
            stat("slo-objectives")
                .title("Objectives")
                .describe("The objectives in force. They are flags of the server.")
                .unit(Unit::Seconds)
                .query(max(server::SLO_OBJECTIVE).by(Slo::KEY), "{{slo}}")
                .base(Color::Text)
                .plain()
                .names()
                .into(),
        ],
    )];
    section("objectives", "Objectives", lines)
}

fn traffic() -> Section {
    section("traffic", "Traffic", vec![requests(), tokens()])
}

fn requests() -> Line {
    line(
        8,
        vec![
            time_series("offered")
                .title("Offered requests")
                .describe(
                    "Inference requests that arrive, by model, refused ones included. A drop to 0 \
                     after steady traffic is on the way here: name service, balancer, client.",
                )
                .unit(Unit::RequestsPerSecond)
                .query(recorded::OFFERED.get(), "{{model_name}}")
                .no_value("no traffic")
                .into(),
            time_series("http-requests")
                .title("HTTP responses")
                .describe(
                    "Responses by route and final status. 429 is a refusal that the client may \
                     repeat; 5xx is a fault of ours.",
                )
                .unit(Unit::RequestsPerSecond)
                .query(
                    common::seen(server::HTTP_REQUESTS, NOW)
                        .by((Route::KEY, StatusCode::KEY))
                        .above(0.0),
                    "{{route}} {{status_code}}",
                )
                .no_value("no traffic")
                .stacked(Stack::Sum)
                .into(),
            time_series("finished")
                .title("Finished requests by outcome")
                .describe("How inference requests ended. Aborts and errors are split up below.")
                .unit(Unit::RequestsPerSecond)
                .query(common::seen(server::REQUESTS_FINISHED, NOW).by(Outcome::KEY), "{{outcome}}")
                .stacked(Stack::Sum)
                .into(),
        ],
    )
}

fn tokens() -> Line {
    // What a prefill worker sent is counted there, by where it had it from.
    let not_reused = [PromptSource::Computed, PromptSource::Remote];
    let by_queue = max(server::QUEUE_REQUESTS).by((Queue::KEY, Instance::KEY));
    line(
        8,
        vec![
            time_series("tokens")
                .title("Tokens")
                .describe(
                    "Prompt tokens computed, those found in the prefix cache, output tokens \
                     produced, and tokens computed again after a preemption. The last ones are \
                     pure loss.",
                )
                .unit(Unit::TokensPerSecond)
                .query(
                    sum(rate(server::PROMPT_TOKENS.is(PromptSource::Computed), NOW)).total(),
                    "prompt",
                )
                .query(
                    sum(rate(server::PROMPT_TOKENS.none_of(&not_reused), NOW)).total(),
                    "prompt, reused",
                )
                .query(sum(rate(server::GENERATION_TOKENS, NOW)).total(), "generated")
                .query(sum(rate(server::RECOMPUTED_TOKENS, NOW)).total(), "recomputed")
                .into(),
            time_series("running-queued")
                .title("Running and queued requests")
                .describe(
                    "The running batch against its limit, and what waits. A full batch with a \
                     queue is an engine at its capacity.",
                )
                .unit(Unit::Requests)
                .query(max(server::RUNNING_REQUESTS).by(Instance::KEY), "running {{instance}}")
                .query(by_queue, "{{queue}} {{instance}}")
                .query(max(server::RUNNING_REQUESTS_LIMIT).total(), "limit")
                .dashed("limit")
                .into(),
            time_series("request-size")
                .title("Request size, p50 and p95")
                .describe(
                    "Prompt and output length of requests. A jump here explains a jump of the \
                     queue that no request count shows.",
                )
                .unit(Unit::Tokens)
                .query(quantile(0.5, server::REQUEST_PROMPT_TOKENS, NOW).total(), "prompt p50")
                .query(quantile(0.95, server::REQUEST_PROMPT_TOKENS, NOW).total(), "prompt p95")
                .query(quantile(0.5, server::REQUEST_GENERATED_TOKENS, NOW).total(), "output p50")
                .query(quantile(0.95, server::REQUEST_GENERATED_TOKENS, NOW).total(), "output p95")
                .into(),
        ],
    )
}
