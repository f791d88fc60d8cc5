//! Metrics that are for reading by hand, with the reason; reviewed like code.

use super::ByHand;

const fn by_hand(name: &'static str, reason: &'static str) -> ByHand {
    ByHand { name, reason }
}

/// All of them.
pub(super) const METRICS: &[ByHand] = &[
    by_hand(
        "sightline_kv_prefix_query_tokens_total",
        "the share of hits is taken over prompt tokens; this is its other base, for a look at the index alone",
    ),
    by_hand(
        "sightline_kv_hit_curve_capacity_slots",
        "what a ratio of the hit curve means in slots, to set a size by it",
    ),
    by_hand(
        "sightline_node_gpu_memory_copy_utilization_ratio",
        "how busy the memory of a card is, beside a profile of a kernel",
    ),
    by_hand(
        "sightline_node_gpu_memory_free_bytes",
        "what a card has left; boards show what is used of all",
    ),
    by_hand(
        "sightline_node_gpu_memory_reserved_bytes",
        "what the driver keeps of a card, to explain the rest",
    ),
    by_hand(
        "sightline_node_gpu_energy_joules_total",
        "energy over a day, for a bill; boards show the power",
    ),
    by_hand(
        "sightline_node_gpu_clock_max_hertz",
        "the clock that a card may reach, beside the one it has",
    ),
    by_hand(
        "sightline_node_gpu_pcie_replays_total",
        "a bad slot or riser, when a card is slow to copy",
    ),
    by_hand(
        "sightline_node_gpu_pcie_link_generation",
        "a link that trained down; boards show its width",
    ),
    by_hand(
        "sightline_node_gpu_nvlink_up",
        "which link of a card is down, after the alert on the card",
    ),
    by_hand("sightline_node_gpu_mig_enabled", "whether a card is split, a setting"),
    by_hand(
        "sightline_node_service_probe_status_code",
        "what a failed probe was answered, after the alert on the service",
    ),
    by_hand(
        "process_virtual_memory_bytes",
        "address space, which is not memory; for a leak of mappings",
    ),
];
