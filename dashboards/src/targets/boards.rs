//! The boards over an engine, one in each file.

mod flow;
mod instances;
mod overview;
mod pools;
mod queue;

use crate::ir::Dashboard;
use metric_catalog::engines::Engine;

/// All boards of an engine.
pub(super) fn all(engine: Engine) -> Vec<Dashboard> {
    vec![
        overview::board(engine),
        queue::board(engine),
        flow::pd_flow(engine),
        pools::kv_pools(engine),
        pools::hicache(engine),
        flow::transfer(engine),
        instances::board(engine),
    ]
}
