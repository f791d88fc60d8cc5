//! Where the time to first token goes: parts that add up to the whole.

use super::{NO_PAIR, NOW};
use crate::boards::common;
use crate::build::{bar_chart, line, section as titled, time_series};
use crate::ir::{Color, Section, Stack};
use crate::lint::Lint;
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{Instance, ModelName, Role, TtftPhase};
use metric_catalog::promql::{Selection, Window, max, mean, quantile, sum};
use metric_catalog::{server, slo};

/// What the windows of the bars are waived for.
const RANGE: &str = "one value for the whole range that is shown";

/// Order of the phases, said on each panel.
const PHASES: &str = "In order: tokenize, queue (the device of the prefill worker), bootstrap \
     (room at the decode worker), prefill, kv_transfer, decode_queue (a place in the running \
     batch), first_decode.";

pub(super) fn section() -> Section {
    let shares = mean(server::TTFT_PHASE, Window::Range).by((ModelName::KEY, TtftPhase::KEY));
    let seconds = mean(server::TTFT_PHASE, Window::Range).by((Instance::KEY, TtftPhase::KEY));
    let bars = vec![
        bar_chart("ttft-shares", "model_name")
            .title("Shares of the time to first token")
            .describe(&format!(
                "Where the mean time to first token of the shown range went. The widest part is \
                 the station to look at below. {PHASES}"
            ))
            .unit(Unit::Seconds)
            .query(shares, "{{phase}}")
            .split_by("phase")
            .stacked(Stack::Percent)
            .lying()
            .no_value("no tokens")
            .allow(Lint::L05, RANGE)
            .into(),
        bar_chart("ttft-by-instance", "instance")
            .title("Time to first token by worker, mean")
            .describe(
                "The same in seconds, for each process that sends first tokens. One that differs \
                 in one part only has trouble at that station; one that differs in all of them has \
                 other requests.",
            )
            .unit(Unit::Seconds)
            .query(seconds, "{{phase}}")
            .split_by("phase")
            .stacked(Stack::Sum)
            .no_value("no tokens")
            .allow(Lint::L05, RANGE)
            .detail(common::INSTANCES)
            .into(),
    ];
    titled("time", "Where the time to first token goes", vec![line(9, bars), over_time()])
}

fn over_time() -> crate::ir::Line {
    let phases = || mean(server::TTFT_PHASE, NOW).by(TtftPhase::KEY);
    // A router measures the same requests from further away.
    let measured = mean(server::TIME_TO_FIRST_TOKEN.without(Role::Router), NOW).total();
    let high = quantile(0.95, server::TTFT_PHASE, NOW).by(TtftPhase::KEY);
    let objective = max(server::SLO_OBJECTIVE.is(metric_catalog::labels::Slo::Ttft)).total();
    line(
        9,
        vec![
            time_series("ttft-phases")
                .title("Time to first token by phase, mean")
                .describe(&format!(
                    "The parts are exclusive and add up to the mean time to first token. {PHASES}"
                ))
                .unit(Unit::Seconds)
                .query(phases(), "{{phase}}")
                .stacked(Stack::Sum)
                .no_value("no tokens")
                .into(),
            time_series("ttft-sum")
                .title("Sum of the parts, and the whole")
                .describe(
                    "The sum of the mean parts beside the mean time to first token as it is \
                     measured, routers left out. The two lines lie on each other; where they part, \
                     time passes that no phase explains: that is a fault of ours.",
                )
                .unit(Unit::Seconds)
                .query(sum(phases()).total(), "sum of the parts")
                .query(measured, "measured")
                .color("measured", Color::Orange)
                .no_value("no tokens")
                .into(),
            time_series("ttft-phases-high")
                .title("Time to first token by phase, p95")
                .describe(
                    "What 95 % of requests stay under in each part; these do not add up. One part \
                     near the objective makes requests miss it by itself.",
                )
                .unit(Unit::Seconds)
                .query(high, "{{phase}}")
                .query(objective, "objective")
                .dashed("objective")
                .threshold(slo::TTFT_OBJECTIVE_SECONDS, Color::Red)
                .no_value(NO_PAIR)
                .alert("SloBudgetBurnFast")
                .into(),
        ],
    )
}
