//! The Prometheus rule files. Their content is the metric catalog's; their place is known here.

use crate::output::Artifact;

/// Folder of the rule files, from the root of the repository.
pub const FOLDER: &str = "prometheus/rules";

/// The files.
#[must_use]
pub fn artifacts() -> Vec<Artifact> {
    let file = |(name, text)| Artifact { path: format!("{FOLDER}/{name}"), text };
    metric_catalog::alerts::rule_files().into_iter().map(file).collect()
}
