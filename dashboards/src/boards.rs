//! The dashboards, one in each file.

mod common;
mod hicache;
mod instances;
mod kv_pools;
mod node_health;
mod observability;
mod overview;
mod pd_flow;
mod queue;
mod router;
mod transfer;

use crate::ir::Dashboard;

/// All dashboards.
#[must_use]
pub fn all() -> Vec<Dashboard> {
    vec![
        overview::board(),
        queue::board(),
        pd_flow::board(),
        kv_pools::board(),
        hicache::board(),
        transfer::board(),
        router::board(),
        instances::board(),
        node_health::board(),
        observability::board(),
    ]
}
