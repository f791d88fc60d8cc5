//! Host cache: what another size of it would be worth and cost, and what the present one does.

mod copies;
mod pools;
mod sizing;
mod store;

use super::common::{self, INSTANCE as BY_INSTANCE};
use crate::build::pools::{stat, time_series};
use crate::build::{line, section};
use crate::ir::{Color, Dashboard, Line, Section, Stack};
use crate::lint::Lint;
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{CopyWait, Instance, Local, NumaNode, PromptSource, Tier};
use metric_catalog::promql::{
    Expr, Selection, Window, max, quotient_of, rate, ratio, recorded, sum,
};
use metric_catalog::{server, slo};

const NOW: Window = Window::Interval;

/// What the windows of the first line are waived for.
const BY_NOW: &str = "the last five minutes, whatever range is shown";

/// The board.
pub(super) fn board() -> Dashboard {
    common::board_of_pools(
        common::HICACHE,
        "Host cache",
        "The host tier of the KV cache: what it holds, serves and copies, and the hit ratio that \
         every other size would have, with what each costs in bytes. Sizes are estimated exactly \
         from the traffic as it comes, without a restart, whether there is a tier or not.",
        vec![
            now(),
            sizing::section(),
            hits(),
            pools::section(),
            copies::section(),
            memory(),
            store::section(),
        ],
    )
}

/// Bytes of the host tier.
fn held() -> Expr {
    sum(server::KV_POOL_CAPACITY_BYTES.is(Tier::Host)).total()
}

fn now() -> Section {
    section("now", "Now", vec![state()])
}

fn state() -> Line {
    let failures = sum(rate(server::HICACHE_TRANSFER_FAILURES, Window::M5)).total();
    let used = sum(server::KV_POOL_USED_BYTES.is(Tier::Host)).total();
    let panels = vec![
        stat("host-capacity-now")
            .title("Host tier")
            .describe("Bytes of all host pools, all ranks.")
            .unit(Unit::Bytes)
            .query(held(), "capacity")
            .no_value("no host tier")
            .base(Color::Blue)
            .into(),
        stat("host-ratio-now")
            .title("Ratio in force")
            .describe(
                "Host pages for each device page; 0 where there is no host tier. A ratio of 1 \
                 buys nothing: the host then holds copies of what the device holds.",
            )
            .unit(Unit::Count)
            .query(max(server::HICACHE_RATIO).total().in_unit(Unit::Count), "ratio")
            .base(Color::Blue)
            .into(),
        stat("host-used-now")
            .title("Used")
            .describe("Share of the host tier that holds pages.")
            .unit(Unit::Ratio)
            .query(ratio(used, held()), "used")
            .no_value("no host tier")
            .base(Color::Blue)
            .into(),
        stat("host-hit-now")
            .title("From the host")
            .describe(
                "Share of the prompt tokens of the last 5 minutes whose KV came from the host \
                 tier instead of being computed.",
            )
            .unit(Unit::Ratio)
            .query(of_host(Window::M5), "host")
            .no_value("no traffic")
            .base(Color::Blue)
            .allow(Lint::L05, BY_NOW)
            .into(),
        stat("copy-failures-now")
            .title("Pages without a copy")
            .describe(
                "Pages of the last 5 minutes that got no copy on the host; by reason below. Such a \
                 page cannot be found again once the device needs its place.",
            )
            .unit(Unit::CountPerSecond)
            .query(failures, "dropped")
            .base(Color::Blue)
            .allow(Lint::L05, BY_NOW)
            .into(),
    ];
    line(5, panels)
}

/// Prompt tokens of the host tier over all.
fn of_host(window: Window) -> Expr {
    ratio(
        sum(rate(server::PROMPT_TOKENS.is(PromptSource::Host), window)).total(),
        sum(rate(server::PROMPT_TOKENS, window)).total(),
    )
}

fn hits() -> Section {
    let by_source = sum(rate(server::PROMPT_TOKENS, NOW)).by(PromptSource::KEY);
    let panels = vec![
        time_series("prompt-tokens-by-tier")
            .title("Prompt tokens by tier")
            .describe(
                "Where the KV of prompt tokens came from. All but `computed` is work that was \
                 saved; what is computed again and again belongs in a larger tier, if the curve \
                 says so.",
            )
            .unit(Unit::TokensPerSecond)
            .query(by_source, "{{source}}")
            .stacked(Stack::Sum)
            .detail(common::KV_POOLS)
            .into(),
        time_series("prefill-seconds-saved")
            .title("Prefill saved, less loads waited for")
            .describe(
                "Seconds of prefill that host hits saved, by the measured prefill rate, seconds \
                 that forward passes waited for loads, and the difference, each by the second. The \
                 tier pays while the difference is above 0.",
            )
            .unit(Unit::Ratio)
            .query(seconds_saved(), "saved {{instance}}")
            .query(seconds_waited(), "waited {{instance}}")
            .query(seconds_saved().minus(seconds_waited()), "difference {{instance}}")
            .into(),
    ];
    section("hits", "What it serves", vec![line(8, panels)])
}

/// Prefill seconds that host hits save, by the second.
fn seconds_saved() -> Expr {
    let hits = sum(rate(server::PROMPT_TOKENS.is(PromptSource::Host), NOW)).per_instance();
    // Without prefill there is no rate to measure; the newest one stands in.
    let capacity = recorded::PREFILL_CAPACITY.get();
    let capacity = capacity.or(recorded::PREFILL_CAPACITY.last_over(Window::H6));
    quotient_of(hits, capacity.above(0.0)).in_unit(Unit::Ratio)
}

/// Seconds that forward passes waited for loads, by the second.
fn seconds_waited() -> Expr {
    sum(rate(server::HICACHE_WAIT_SECONDS.is(CopyWait::Loads), NOW)).per_instance()
}

fn memory() -> Section {
    let held = sum(server::KV_POOL_CAPACITY_BYTES.is(Tier::Host)).by(Instance::KEY);
    let by_node = sum(server::HOST_POOL_NUMA_BYTES).by((NumaNode::KEY, Local::KEY, Instance::KEY));
    let off = ratio(
        sum(server::HOST_POOL_NUMA_BYTES.is(Local::False)).by(Instance::KEY),
        sum(server::HOST_POOL_NUMA_BYTES).by(Instance::KEY),
    );
    let panels = vec![
        time_series("host-bytes")
            .title("Wanted, requested, allocated")
            .describe(
                "What the operator wanted (`--hicache-target` or `--hicache-budget`), what the \
                 flags ask for, and what the pools hold. Below half of what was wanted, the tier \
                 counts as undersized.",
            )
            .unit(Unit::Bytes)
            .query(max(server::HICACHE_TARGET_BYTES).by(Instance::KEY), "wanted {{instance}}")
            .query(max(server::HICACHE_REQUESTED_BYTES).by(Instance::KEY), "requested {{instance}}")
            .query(held, "allocated {{instance}}")
            .dashed("/^wanted/")
            .into(),
        time_series("numa-placement")
            .title("Placement by NUMA node")
            .describe(
                "Bytes of the host tier on each node, by sampling, and whether it is the one they \
                 were meant for. Empty where the system does not say.",
            )
            .unit(Unit::Bytes)
            .query(by_node, "node {{numa_node}} local {{local}} {{instance}}")
            .stacked(Stack::Sum)
            .detail(common::NODE)
            .into(),
        time_series("numa-off-node")
            .title("Off its node")
            .describe("Share of the host tier on another node than meant; copies cross the link.")
            .unit(Unit::Ratio)
            .query(off, BY_INSTANCE)
            .no_value("no host tier, or its placement is not known")
            .threshold(slo::HOST_OFF_NODE_RATIO, Color::Orange)
            .threshold_lines()
            .into(),
    ];
    section("memory", "Memory", vec![line(8, panels)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use metric_catalog::promql::INSTANCE;

    #[test]
    fn what_is_saved_is_by_the_second() {
        assert_eq!(seconds_saved().labels(), INSTANCE);
        assert_eq!(seconds_waited().unit(), seconds_saved().unit());
    }
}
