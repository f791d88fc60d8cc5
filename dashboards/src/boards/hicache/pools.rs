//! The pools of the host tier: how full, how useful, what they give up.

use super::NOW;
use crate::build::line;
use crate::build::pools::time_series;
use crate::ir::{Color, Line, Section, Stack};
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{EvictReason, Instance, PageEvent, Pool, SlotState, Tier};
use metric_catalog::promql::{Selection, quantile, rate, recorded, sum};
use metric_catalog::{server, slo};

/// Legend of a series for each pool of a process.
const POOL: &str = "{{pool}} {{instance}}";
/// Instead of data, where no server has a host tier.
const NO_TIER: &str = "no host tier";

pub(super) fn section() -> Section {
    crate::build::section("pools", "Host pools", vec![fill(), churn(), ages()])
}

fn fill() -> Line {
    let of_host = |state: SlotState| server::KV_POOL_USED_BYTES.is(Tier::Host).is(state);
    let by = (Pool::KEY, Instance::KEY);
    line(
        9,
        vec![
            time_series("host-pool-fill")
                .title("Host pool fill")
                .describe(
                    "Share of each host pool that holds pages. A full pool is healthy while it \
                     serves; full with far more evictions than hits, it churns.",
                )
                .unit(Unit::Ratio)
                .query(recorded::POOL_USED.is(Tier::Host), POOL)
                .max(1.0)
                .threshold(slo::HOST_POOL_FULL_RATIO, Color::Orange)
                .threshold_lines()
                .no_value(NO_TIER)
                .into(),
            time_series("host-pool-bytes")
                .title("Bytes used by pool")
                .describe(
                    "Bytes of each pool: pinned (on the device, too, or being copied), and on the \
                     host alone, which is what the tier adds. The largest pool is the one to look \
                     at, not the last in a log.",
                )
                .unit(Unit::Bytes)
                .query(sum(of_host(SlotState::Active)).by(by), "pinned {{pool}} {{instance}}")
                .query(sum(of_host(SlotState::Cached)).by(by), "host only {{pool}} {{instance}}")
                .stacked(Stack::Sum)
                .no_value(NO_TIER)
                .into(),
        ],
    )
}

fn churn() -> Line {
    let hits = sum(rate(server::KV_POOL_HIT_SLOTS.is(Tier::Host), NOW));
    let evicted = sum(rate(server::KV_POOL_EVICTED_SLOTS.is(Tier::Host), NOW));
    line(
        8,
        vec![
            time_series("host-hit-slots")
                .title("Pages served")
                .describe("Pages of each host pool that a prefix hit loaded.")
                .unit(Unit::SlotsPerSecond)
                .query(hits.by((Pool::KEY, Instance::KEY)), POOL)
                .no_value(NO_TIER)
                .into(),
            time_series("host-evictions")
                .title("Pages given up")
                .describe(
                    "Pages that left the host tier, by reason: the pool itself was full, or the \
                     page of another pool that belongs to the same tokens went. Many more than \
                     *Pages served* is a tier that copies for nobody.",
                )
                .unit(Unit::SlotsPerSecond)
                .query(
                    evicted.by((EvictReason::KEY, Pool::KEY, Instance::KEY)),
                    "{{reason}} {{pool}} {{instance}}",
                )
                .no_value(NO_TIER)
                .into(),
        ],
    )
}

fn ages() -> Line {
    let panel = |tier: Tier, id: &'static str, title: &'static str| {
        let age = |event: PageEvent| {
            quantile(0.5, server::KV_PAGE_AGE.is(tier).is(event), NOW).by((Pool::KEY,))
        };
        time_series(id)
            .title(title)
            .describe(
                "Median time that a page had lain unused when it was given up, beside that of \
                 pages that were used again. Given up sooner than others are used again: a larger \
                 tier would have kept what comes back. Given up much later: the tier is large \
                 enough for this traffic.",
            )
            .unit(Unit::Seconds)
            .query(age(PageEvent::Evicted), "given up {{pool}}")
            .query(age(PageEvent::Reused), "used again {{pool}}")
    };
    line(
        8,
        vec![
            panel(Tier::Device, "device-age", "Age of pages: device").into(),
            panel(Tier::Host, "host-age", "Age of pages: host").no_value(NO_TIER).into(),
        ],
    )
}
