//! The dashboards, one in each file.

mod common;
mod hicache;
mod kv_pools;
mod node_health;
mod overview;
mod pairs;
mod queue;

use crate::ir::Dashboard;

/// All dashboards.
#[must_use]
pub fn all() -> Vec<Dashboard> {
    vec![
        overview::board(),
        queue::board(),
        kv_pools::board(),
        hicache::board(),
        pairs::board(),
        node_health::board(),
    ]
}
