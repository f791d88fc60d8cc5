//! Overview: is the service good to its users, and if not, where to look.

mod detail;
mod now;
mod saturation;

use super::common;
use crate::build::{line, section, stat, time_series};
use crate::ir::{Color, Dashboard, Line, Section, Stack};
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{
    Instance, Outcome, PromptSource, Queue, Route, Slo, SloResult, StatusCode,
};
use metric_catalog::promql::{Selection, Window, max, quantile, rate, ratio, recorded, sum};
use metric_catalog::{server, slo};

const NOW: Window = Window::Interval;

/// The board.
pub(super) fn board() -> Dashboard {
    common::board(
        common::OVERVIEW,
        "Overview",
        "Are users hurt now, and if so, which board explains it. Read it from top to bottom: what \
         users see, what was promised, how long they wait, how much comes, what is full, who is \
         refused, whether hosts are fit, and whether all of that is fresh.",
        vec![
            now::section(),
            objectives(),
            detail::latency(),
            traffic(),
            saturation::section(),
            detail::failures(),
            saturation::nodes(),
            detail::state(),
        ],
    )
}

fn objectives() -> Section {
    let good = ratio(
        common::seen(server::SLO_REQUESTS.is(SloResult::Good), NOW).per_model_and(Slo::KEY),
        common::seen(server::SLO_REQUESTS, NOW).per_model_and(Slo::KEY),
    );
    let first = line(
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
                .alert("SloBudgetBurnFast")
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
    );
    section("objectives", "Promises", vec![first, detail::ratios()])
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
