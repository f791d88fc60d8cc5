//! The dashboards over other engines: the same questions, each engine's own names.

use crate::ir::Dashboard;
use metric_catalog::engines::Engine;

/// The dashboards of an engine.
#[must_use]
pub fn boards(engine: Engine) -> Vec<Dashboard> {
    match engine {
        Engine::Sglang | Engine::Vllm => Vec::new(),
    }
}
