//! Requests that wait at the router, and the lists of workers that it reads.

use super::{NO_ROUTER, NOW};
use crate::build::{line, section as titled, time_series};
use crate::ir::{Section, Stack};
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{DiscoverySource, HoldOutcome, Instance};
use metric_catalog::promql::{max, quantile, rate, sum, time};
use metric_catalog::router;

pub(super) fn section() -> Section {
    let waited = |share| quantile(share, router::ROUTER_HOLD_DURATION, NOW).total();
    let ends = sum(rate(router::ROUTER_HOLDS, NOW)).by(HoldOutcome::KEY);
    let panels = vec![
        time_series("held-requests")
            .title("Requests held")
            .describe(
                "Requests that wait because nobody can be asked for a moment, against how many may \
                 (dashed). At the limit the next one is refused: bring a worker back, or raise the \
                 limit where clients wait that long.",
            )
            .unit(Unit::Requests)
            .query(max(router::ROUTER_HELD_REQUESTS).by(Instance::KEY), "held {{instance}}")
            .query(max(router::ROUTER_HELD_REQUESTS_LIMIT).by(Instance::KEY), "limit {{instance}}")
            .dashed("/^limit/")
            .no_value(NO_ROUTER)
            .into(),
        time_series("held-tokens")
            .title("Prompt tokens held")
            .describe(
                "Their prompt tokens, estimated: what falls upon the first worker that comes back.",
            )
            .unit(Unit::Tokens)
            .query(max(router::ROUTER_HELD_TOKENS).by(Instance::KEY), "{{instance}}")
            .no_value(NO_ROUTER)
            .into(),
        time_series("holds")
            .title("How holds end")
            .describe(
                "`routed` is what holding is for. `expired`: no worker came back in time; `full`: \
                 too many waited already; `refused`: those that came back were full at once.",
            )
            .unit(Unit::CountPerSecond)
            .query(ends.in_unit(Unit::CountPerSecond), "{{outcome}}")
            .stacked(Stack::Sum)
            .no_value(NO_ROUTER)
            .into(),
        time_series("hold-duration")
            .title("Time held")
            .describe("How long requests waited at the router. It is part of what clients wait.")
            .unit(Unit::Seconds)
            .query(waited(0.5), "p50")
            .query(waited(0.95), "p95")
            .no_value("nothing was held")
            .into(),
    ];
    titled("holding", "Holding", vec![line(8, panels)])
}

pub(super) fn discovery() -> Section {
    let by = (DiscoverySource::KEY, Instance::KEY);
    let last = max(router::ROUTER_DISCOVERY_SUCCESS_TIMESTAMP).by(by).above(0.0);
    let panels = vec![
        time_series("discovery-failures")
            .title("Lists of workers that could not be read")
            .describe(
                "Looks at a list that gave none, by source; the last one is kept. A steady rate: \
                 the file is broken, or names do not resolve; the log says which line.",
            )
            .unit(Unit::CountPerSecond)
            .query(
                sum(rate(router::ROUTER_DISCOVERY_FAILURES, NOW)).by(by),
                "{{source}} {{instance}}",
            )
            .no_value(NO_ROUTER)
            .into(),
        time_series("discovery-age")
            .title("Age of the lists")
            .describe(
                "Time since a list of workers was last read. A file is read when it changes, so \
                 its age alone is no fault.",
            )
            .unit(Unit::Seconds)
            .query(time().minus(last), "{{source}} {{instance}}")
            .no_value("no list was ever read")
            .into(),
    ];
    titled("discovery", "Discovery", vec![line(7, panels)])
}
