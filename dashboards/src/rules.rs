//! The Prometheus rule files. Their content is the metric catalog's; their place is known here.

use crate::output::Artifact;
use metric_catalog::target::Target;

/// Folder of the rule files, from the root of the repository.
pub const FOLDER: &str = "prometheus/rules";

/// The files of all targets.
#[must_use]
pub fn artifacts() -> Vec<Artifact> {
    let file = |(name, text): (String, String)| {
        Artifact::of(target_of(&name), format!("{FOLDER}/{name}"), text)
    };
    metric_catalog::alerts::rule_files().into_iter().map(file).collect()
}

/// An engine's rules lie in the file of its name; all others are of our own server.
fn target_of(name: &str) -> Target {
    let stem = name.strip_suffix(".yml").unwrap_or(name);
    stem.parse().unwrap_or(Target::Sightline)
}
