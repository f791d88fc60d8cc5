//! The dashboards over other engines: the same questions on the same boards, in each engine's own
//! names.
//!
//! `answers` says for each signal which queries answer it, or that there is a gap; `panels` turns
//! that into a panel, and a gap into a text that names it and what would close it. Boards, sections
//! and panels have the same slugs and order for all engines, so that what is learnt on one is known
//! on the other. No board needs the recording rules: they work on a Prometheus that only scrapes.

mod answers;
mod boards;
mod panels;
mod subject;

use crate::ir::Dashboard;
use crate::output::Artifact;
use metric_catalog::engines::{Engine, scrape};
use metric_catalog::target::Target;

pub use answers::{Answer, answer};

/// The dashboards of an engine.
#[must_use]
pub fn boards(engine: Engine) -> Vec<Dashboard> {
    boards::all(engine)
}

/// Folder of the scrape jobs, from the root of the repository.
pub const SCRAPE_FOLDER: &str = "prometheus/targets";

/// The scrape jobs of each engine, to copy from.
#[must_use]
pub fn artifacts() -> Vec<Artifact> {
    let file = |engine: &Engine| {
        let path = format!("{SCRAPE_FOLDER}/{engine}.yml.example");
        Artifact::of(Target::Engine(*engine), path, scrape::example(*engine))
    };
    Engine::ALL.iter().map(file).collect()
}

#[cfg(test)]
mod tests;
