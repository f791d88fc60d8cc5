//! KV pools: how full they are, what they are made of, and what running out of them costs.

use super::common::{self, INSTANCE as BY_INSTANCE};
use crate::build::pools::{bar_gauge, stat, table, time_series};
use crate::build::{line, section};
use crate::ir::{Color, Dashboard, Line, Section, Stack};
use crate::lint::Lint;
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{
    EvictReason, Instance, Layers, Layout, PageTokens, Pool, PreemptReason, PreemptedKind,
    PromptSource, SlotBytes, SlotState, Tier,
};
use metric_catalog::promql::{Expr, Selection, Window, max, rate, ratio, recorded, sum};
use metric_catalog::{server, slo};

const NOW: Window = Window::Interval;

/// Legend of a series for each pool of a process.
const POOL: &str = "{{tier}} {{pool}} {{instance}}";

/// The board.
pub(super) fn board() -> Dashboard {
    common::board_of_pools(
        common::KV_POOLS,
        "KV pools",
        "How full each KV pool is, what its pages look like, and what running out of them costs. \
         A pool is sized once, at start; a full one makes the scheduler preempt.",
        vec![now(), occupancy(), prefix_cache(), pressure(), geometry()],
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
                .alert("DevicePoolExhausted")
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
            stat("prefix-hit-now")
                .title("Reused prompt tokens")
                .describe(
                    "Share of the prompt tokens of the last 5 minutes that needed no computing.",
                )
                .unit(Unit::Ratio)
                .query(prompt_share(), "reused")
                .no_value("no traffic")
                .base(Color::Blue)
                .allow(Lint::L05, "the last five minutes, whatever range is shown")
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
                .alert("RetractionStorm")
                .into(),
        ],
    );
    section("now", "Now", vec![stats])
}

/// Reused over all prompt tokens, all processes together.
fn prompt_share() -> Expr {
    let reused = server::PROMPT_TOKENS.none_of(&[PromptSource::Computed]);
    ratio(
        sum(rate(reused, Window::M5)).total(),
        sum(rate(server::PROMPT_TOKENS, Window::M5)).total(),
    )
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

fn prefix_cache() -> Section {
    let per_pool = (Tier::KEY, Pool::KEY, Instance::KEY);
    let evicted = sum(rate(server::KV_POOL_EVICTED_SLOTS, NOW));
    let lines = vec![line(
        8,
        vec![
            time_series("prefix-hit-ratio")
                .title("Reused prompt tokens")
                .describe(
                    "Share of prompt tokens whose KV an earlier request had left. A fall with the \
                     same traffic means that pages are evicted before they are asked for again: \
                     compare *Evicted slots*, and give the pool more memory.",
                )
                .unit(Unit::Ratio)
                .query(recorded::PREFIX_HIT.get(), BY_INSTANCE)
                .no_value("no traffic")
                .max(1.0)
                .detail(common::HICACHE)
                .into(),
            time_series("prompt-tokens-by-source")
                .title("Prompt tokens by source")
                .describe(
                    "Where the KV of prompts came from. Only `computed` tokens cost prefill time; \
                     `device` tokens were found in the pool.",
                )
                .unit(Unit::TokensPerSecond)
                .query(sum(rate(server::PROMPT_TOKENS, NOW)).by(PromptSource::KEY), "{{source}}")
                .stacked(Stack::Sum)
                .into(),
            time_series("hit-slots")
                .title("Reused slots")
                .describe("Slots (pages) of each pool that a prefix hit used again.")
                .unit(Unit::SlotsPerSecond)
                .query(sum(rate(server::KV_POOL_HIT_SLOTS, NOW)).by(per_pool), POOL)
                .into(),
            time_series("evicted-slots")
                .title("Evicted slots")
                .describe(
                    "Cached slots given up. `capacity`: a live request needed the page, which is \
                     what a cache is for; much more than *Reused slots* is a cache that turns \
                     over before it helps.",
                )
                .unit(Unit::SlotsPerSecond)
                .query(
                    evicted.by((Tier::KEY, Pool::KEY, EvictReason::KEY, Instance::KEY)),
                    "{{tier}} {{pool}} {{reason}} {{instance}}",
                )
                .into(),
        ],
    )];
    section("prefix-cache", "Prefix cache", lines)
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
                .alert("RetractionStorm")
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
                .query(
                    sum(rate(server::PROMPT_TOKENS.is(PromptSource::Computed), NOW)).total(),
                    "computed",
                )
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
