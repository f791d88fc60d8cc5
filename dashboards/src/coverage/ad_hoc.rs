//! Metrics that are for reading by hand, with the reason; reviewed like code.

use super::ByHand;
use metric_catalog::{node, process, server};

const fn by_hand(name: &'static str, reason: &'static str) -> ByHand {
    ByHand { name, reason }
}

/// All of them.
pub(super) const METRICS: &[ByHand] = &[
    by_hand(
        server::KV_PREFIX_QUERY_TOKENS.name(),
        "the share of hits is over prompt tokens; this is its other base, of the index alone",
    ),
    by_hand(
        server::KV_HIT_CURVE_CAPACITY_SLOTS.name(),
        "what a ratio of the hit curve means in slots, to set a size by it",
    ),
    by_hand(
        node::GPU_MEMORY_COPY_UTILIZATION.name(),
        "how busy the memory of a card is, beside a profile of a kernel",
    ),
    by_hand(node::GPU_MEMORY_FREE.name(), "what a card has left; boards show what is used of all"),
    by_hand(
        node::GPU_MEMORY_RESERVED.name(),
        "what the driver keeps of a card, to explain the rest",
    ),
    by_hand(node::GPU_ENERGY.name(), "energy over a day, for a bill; boards show the power"),
    by_hand(node::GPU_CLOCK_MAX.name(), "the clock that a card may reach, beside the one it has"),
    by_hand(node::GPU_PCIE_REPLAYS.name(), "a bad slot or riser, when a card is slow to copy"),
    by_hand(
        node::GPU_PCIE_LINK_GENERATION.name(),
        "a link that trained down; boards show its width",
    ),
    by_hand(
        node::GPU_NVLINK_UP.name(),
        "which link of a card is down, after the alert on the card",
    ),
    by_hand(node::GPU_MIG_ENABLED.name(), "whether a card is split, a setting"),
    by_hand(
        node::SERVICE_PROBE_STATUS.name(),
        "what a failed probe was answered, after the alert on the service",
    ),
    by_hand(
        process::VIRTUAL_MEMORY.name(),
        "address space, which is not memory; for a leak of mappings",
    ),
];
