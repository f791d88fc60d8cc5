//! The top of the overview: are users hurt, is there somebody to serve them, how much comes.

use super::NOW;
use crate::boards::common::{self, FAULTS, INFERENCE};
use crate::build::{line, section as titled, stat};
use crate::ir::{Color, Line, Panel, Section};
use crate::lint::Lint;
use crate::variables::scope;
use metric_catalog::def::Unit;
use metric_catalog::labels::{EngineState, RejectReason, Role, SloResult};
use metric_catalog::promql::{
    Expr, Selection, Window, max, rate, ratio, raw, recorded, sum, vector,
};
use metric_catalog::{node, server, slo};

/// What windows of this section are waived for.
const BY_NOW: &str = "the last five minutes, whatever range is shown";

pub(super) fn section() -> Section {
    titled("now", "Are users hurt now?", vec![users(), service(), load()])
}

fn users() -> Line {
    let answers = server::HTTP_REQUESTS.any_of(INFERENCE);
    let available = ratio(
        common::seen(answers.clone().none_of(FAULTS), Window::M5).total(),
        common::seen(answers.clone(), Window::M5).total(),
    );
    let availability = stat("availability-now")
        .title("Availability")
        .describe(
            "Share of the API requests of the last 5 minutes that ended in no 5xx. Orange: below \
             the goal. Red: an outage; look at *Error ratio* for its kind, then at *Engine state* \
             and at the router board.",
        )
        .unit(Unit::Ratio)
        .query(available, "available")
        .allow(Lint::L05, BY_NOW)
        .no_value("no traffic")
        .max(1.0)
        .decimals(2)
        .base(Color::Red)
        .threshold(1.0 - slo::ERROR_RATIO, Color::Orange)
        .threshold(slo::SLO_TARGET_RATIO, Color::Green)
        .background()
        .alert("ErrorRateHigh");
    let errors = stat("errors-now")
        .title("Server errors")
        .describe(
            "API requests by the second that end in a 5xx, as clients see them. Each one is a \
             fault of ours: the log of the process that answered names it by its request id.",
        )
        .unit(Unit::RequestsPerSecond)
        .query(common::seen(answers.any_of(FAULTS), NOW).total(), "5xx")
        .no_value("no traffic")
        .threshold(0.01, Color::Orange)
        .alert("ErrorRateHigh");
    let burn = stat("burn-now")
        .title("Missed in the last hour")
        .describe(
            "Share of requests of the last hour that missed the objective which is missed most. \
             From the upper threshold on, the error budget of a month is gone in two days: \
             *Error budget burn* says which objective, and since when.",
        )
        .unit(Unit::Ratio)
        .query(max(recorded::SLO_BAD_H1.get()).total(), "missed")
        .no_value("no traffic")
        .threshold(slo::SLO_BAD_SLOW_RATIO, Color::Orange)
        .threshold(slo::SLO_BAD_FAST_RATIO, Color::Red)
        .alert("SloBudgetBurnFast");
    line(
        4,
        vec![
            availability.into(),
            errors.into(),
            within_objectives(),
            burn.into(),
            refused(),
            firing(),
        ],
    )
}

fn refused() -> Panel {
    stat("refused-now")
        .title("Refused")
        .describe(
            "Share of the requests of the model that is refused most that find no place, over 5 \
             minutes. Orange: add capacity. Red for half an hour is an outage; *Refusals by \
             reason* says which limit.",
        )
        .unit(Unit::Ratio)
        .query(max(recorded::TURNED_AWAY_M5.get()).total(), "refused")
        .no_value("no traffic")
        .threshold(slo::REFUSED_RATIO, Color::Orange)
        .threshold(slo::TURNED_AWAY_RATIO, Color::Red)
        .alert("MostRequestsRefused")
        .detail(common::QUEUE)
        .into()
}

fn firing() -> Panel {
    stat("firing-alerts")
        .title("Firing alerts")
        .describe(
            "Warnings and pages that fire now. *Alerts* below names them; each leads to its panel \
             and to its section of the runbook.",
        )
        .unit(Unit::Count)
        .query(common::firing_alerts(), "firing")
        .threshold(1.0, Color::Red)
        .background()
        .detail(common::OBSERVABILITY)
        .into()
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
             it should: see *Promises*.",
        )
        .unit(Unit::Ratio)
        .query(good, "good")
        .allow(Lint::L05, BY_NOW)
        .no_value("no traffic")
        .max(1.0)
        .decimals(1)
        .base(Color::Red)
        .threshold(slo::SLO_TARGET_RATIO, Color::Green)
        .alert("SloBudgetBurnFast")
        .into()
}

fn service() -> Line {
    let engines = server::ENGINE_STATE.is(EngineState::Ready).without(Role::Router);
    let ready = stat("ready-engines")
        .title("Ready engines")
        .describe(
            "Engines that take requests. At 0 nothing is served: look at *Engine state* below and \
             at the log of the process; it names the phase that failed.",
        )
        .unit(Unit::Count)
        .query(sum(engines).total(), "ready")
        .base(Color::Red)
        .threshold(1.0, Color::Green)
        .background()
        .detail(common::INSTANCES);
    let up = stat("targets-up")
        .title("Targets up")
        .describe(
            "Processes that answer a scrape. The series of one that does not end, so no other \
             panel shows it: look at the process on its host.",
        )
        .unit(Unit::Count)
        .query(common::targets_up(), "up")
        .base(Color::Red)
        .threshold(1.0, Color::Green)
        .detail(common::OBSERVABILITY);
    let unfit: Expr = Expr::from(node::HEALTHY).equals(0.0);
    let unfit = metric_catalog::promql::count(unfit).total().or_on(&[], vector(0.0));
    let nodes = stat("nodes-unfit-now")
        .within(&["cluster"])
        .title("Nodes not fit")
        .describe(
            "Hosts whose exporter says that they are not fit to serve. The board of node health \
             names the check that fails.",
        )
        .unit(Unit::Count)
        .query(unfit.in_unit(Unit::Count), "not fit")
        .allow(Lint::L06, common::OTHER_JOB)
        .threshold(1.0, Color::Red)
        .alert("NodeUnhealthy")
        .detail(common::NODE);
    line(4, vec![ready.into(), up.into(), nodes.into(), data_age(), drain()])
}

/// Whether what is shown is fresh.
fn data_age() -> Panel {
    let up = format!("up{{{}}}", common::OF_TARGETS);
    let queued = recorded::QUEUED_REQUESTS.get().render(&scope(crate::variables::SCOPE));
    let age = |series: &str| raw(&format!("max(time() - timestamp({series}))"), &[], Unit::Seconds);
    stat("data-age-now")
        .title("Age of the data")
        .describe(
            "How old the newest sample of the process is that was scraped longest ago, and how old \
             the newest recorded series are. Red: what this board shows is the past; see the \
             board of observability.",
        )
        .unit(Unit::Seconds)
        .query(age(&up), "scrapes")
        .query(age(&queued), "rules")
        .no_value("no data")
        .threshold(slo::COLLECTOR_STALE_SECONDS, Color::Red)
        .names()
        .alert("TargetDown")
        .detail(common::OBSERVABILITY)
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
        .alert("PrefillQueueDrainCritical")
        .detail(common::QUEUE)
        .into()
}

fn load() -> Line {
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
                .describe(
                    "Time to first token that 95 % of requests stay under. Red: beyond the \
                     objective; *TTFT by phase* says where it goes.",
                )
                .unit(Unit::Seconds)
                .query(common::seen_quantile(0.95, server::TIME_TO_FIRST_TOKEN, NOW).total(), "p95")
                .no_value("no traffic")
                .base(Color::Blue)
                .threshold(slo::TTFT_OBJECTIVE_SECONDS, Color::Red)
                .detail(common::PD_FLOW)
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
