//! KV pools: how full they are, what they are made of, and what running out of them costs.

use super::common;
use crate::build::{bar_gauge, line, section, stat, table, time_series};
use crate::ir::{Color, Dashboard, Line, Section, Stack};
use crate::lint::Lint;
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{
    Instance, Layers, Layout, PageTokens, Pool, PreemptReason, PreemptedKind, SlotBytes, SlotState,
    Tier,
};
use metric_catalog::promql::{Window, max, rate, recorded, sum};
use metric_catalog::{server, slo};

const NOW: Window = Window::Interval;

/// Legend of a series for each pool of a process.
const POOL: &str = "{{tier}} {{pool}} {{instance}}";

/// The board.
pub(super) fn board() -> Dashboard {
    common::board(
        common::KV_POOLS,
        "KV pools",
        "How full each KV pool is, what its pages look like, and what running out of them costs. \
         A pool is sized once, at start; a full one makes the scheduler preempt.",
        vec![now(), occupancy(), pressure(), geometry()],
    )
}

fn now() -> Section {
    let failures = sum(rate(server::KV_POOL_ALLOC_FAILURES, Window::M5)).total();
    let stats = line(
        5,
        vec![
            bar_gauge("pool-active-now")
                .title("Pinned by live requests")
                .describe(
                    "Share of each pool that live requests pin. From the threshold on, the next \
                     long request preempts another one.",
                )
                .unit(Unit::Ratio)
                .query(recorded::POOL_ACTIVE.get(), POOL)
                .max(1.0)
                .threshold(slo::POOL_ACTIVE_RATIO, Color::Orange)
                .span(9)
                .into(),
            stat("pool-capacity-now")
                .title("Capacity")
                .describe("Bytes of all pools together.")
                .unit(Unit::Bytes)
                .query(sum(server::KV_POOL_CAPACITY_BYTES).total(), "capacity")
                .base(Color::Blue)
                .into(),
            stat("pool-used-now")
                .title("Used")
                .describe("Bytes in use, all pools together.")
                .unit(Unit::Bytes)
                .query(sum(server::KV_POOL_USED_BYTES).total(), "used")
                .base(Color::Blue)
                .into(),
            stat("alloc-failures-now")
                .title("Allocations without room")
                .describe(
                    "Allocations of the last 5 minutes that found no free page. Each one delays \
                     or preempts a request; see *Pressure*.",
                )
                .unit(Unit::CountPerSecond)
                .query(failures, "failed")
                .allow(Lint::L05, "the last five minutes, whatever range is shown")
                .threshold(slo::RETRACTIONS_PER_SECOND, Color::Orange)
                .into(),
        ],
    );
    section("now", "Now", vec![stats])
}

fn occupancy() -> Section {
    section("occupancy", "Occupancy", vec![shares(), bytes_and_slots()])
}

fn shares() -> Line {
    line(
        9,
        vec![
            time_series("pool-active")
                .title("Pool fill")
                .describe(
                    "Share of each pool in use, and the part that live requests pin. A pool full \
                     of cached pages is healthy; one full of pinned pages preempts. Above the \
                     line lower the running limit, or give the pool more memory.",
                )
                .unit(Unit::Ratio)
                .query(recorded::POOL_ACTIVE.get(), "active {{tier}} {{pool}} {{instance}}")
                .query(recorded::POOL_USED.get(), "used {{tier}} {{pool}} {{instance}}")
                .max(1.0)
                .threshold(slo::POOL_ACTIVE_RATIO, Color::Orange)
                .threshold_lines()
                .into(),
            time_series("running-against-pool")
                .title("Running requests")
                .describe(
                    "The running batch and its limit. A batch that stays below the limit while \
                     the pool is full is limited by memory.",
                )
                .unit(Unit::Requests)
                .query(max(server::RUNNING_REQUESTS).by(Instance::KEY), "running {{instance}}")
                .query(max(server::RUNNING_REQUESTS_LIMIT).by(Instance::KEY), "limit {{instance}}")
                .dashed("/^limit/")
                .into(),
        ],
    )
}

fn bytes_and_slots() -> Line {
    let used = (Tier::KEY, Pool::KEY, SlotState::KEY, Instance::KEY);
    let capacity = (Tier::KEY, Pool::KEY, Instance::KEY);
    let used_legend = "{{tier}} {{pool}} {{state}} {{instance}}";
    line(
        8,
        vec![
            time_series("pool-bytes")
                .title("Bytes")
                .describe(
                    "Used bytes of each pool against its capacity, which is fixed at start. \
                     `sightline-server plan` shows how the capacity was chosen.",
                )
                .unit(Unit::Bytes)
                .query(sum(server::KV_POOL_USED_BYTES).by(used), used_legend)
                .query(
                    sum(server::KV_POOL_CAPACITY_BYTES).by(capacity),
                    "capacity {{tier}} {{pool}} {{instance}}",
                )
                .dashed("/^capacity/")
                .into(),
            time_series("pool-slots")
                .title("Slots")
                .describe(
                    "Used slots (pages) of each pool against its capacity. A request holds whole \
                     pages: many short requests use more than their tokens.",
                )
                .unit(Unit::Slots)
                .query(sum(server::KV_POOL_USED_SLOTS).by(used), used_legend)
                .query(
                    sum(server::KV_POOL_CAPACITY_SLOTS).by(capacity),
                    "capacity {{tier}} {{pool}} {{instance}}",
                )
                .dashed("/^capacity/")
                .into(),
        ],
    )
}

fn pressure() -> Section {
    let failures =
        sum(rate(server::KV_POOL_ALLOC_FAILURES, NOW)).by((Tier::KEY, Pool::KEY, Instance::KEY));
    let lines = vec![line(
        8,
        vec![
            time_series("alloc-failures")
                .title("Allocations without room")
                .describe(
                    "Allocations that found no free page. A few at a full batch are normal \
                     scheduling; a steady rate with preemptions is a pool that is too small.",
                )
                .unit(Unit::CountPerSecond)
                .query(failures, POOL)
                .into(),
            time_series("preemptions")
                .title("Preemptions")
                .describe(
                    "Running requests that lost their pages and wait again. Above the line the \
                     running limit is too large for the pool: lower it.",
                )
                .unit(Unit::CountPerSecond)
                .query(
                    sum(rate(server::PREEMPTIONS, NOW)).by((Instance::KEY, PreemptReason::KEY)),
                    "{{reason}} {{instance}}",
                )
                .threshold(slo::RETRACTIONS_PER_SECOND, Color::Orange)
                .threshold_lines()
                .into(),
            time_series("preempted-tokens")
                .title("Preempted tokens")
                .describe("Tokens whose work preemption threw away, by kind.")
                .unit(Unit::TokensPerSecond)
                .query(sum(rate(server::PREEMPTED_TOKENS, NOW)).by(PreemptedKind::KEY), "{{kind}}")
                .stacked(Stack::Sum)
                .into(),
            time_series("recomputed-tokens")
                .title("Recomputed tokens")
                .describe(
                    "Tokens of prompts and answers computed again after a preemption, beside \
                     prompt tokens computed for the first time: what preemption costs in prefill.",
                )
                .unit(Unit::TokensPerSecond)
                .query(sum(rate(server::RECOMPUTED_TOKENS, NOW)).total(), "recomputed")
                .query(sum(rate(server::PROMPT_TOKENS, NOW)).total(), "computed")
                .color("recomputed", Color::Orange)
                .into(),
        ],
    )];
    section("pressure", "Pressure", lines)
}

fn geometry() -> Section {
    let info = max(server::KV_POOL_INFO).by((
        Instance::KEY,
        Tier::KEY,
        Pool::KEY,
        Layers::KEY,
        PageTokens::KEY,
        SlotBytes::KEY,
        Layout::KEY,
    ));
    let columns = [
        ("instance", "Instance"),
        ("tier", "Tier"),
        ("pool", "Pool"),
        ("layers", "Layers"),
        ("page_tokens", "Tokens per page"),
        ("slot_bytes", "Bytes per page"),
        ("layout", "Layout"),
    ];
    let panel = table("pool-geometry", &columns)
        .title("Pool geometry")
        .describe(
            "What a page of each pool holds. Tokens times pages is the context that fits at once.",
        )
        .unit(Unit::Flag)
        .query(info, "")
        .into();
    section("geometry", "Geometry", vec![line(6, vec![panel])])
}
