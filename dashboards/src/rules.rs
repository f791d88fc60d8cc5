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

/// The target whose rules lie in a file.
fn target_of(name: &str) -> Target {
    let mut targets = Target::ALL.iter().copied();
    let found = targets.find(|&target| metric_catalog::alerts::file_name(target) == name);
    found.expect("every rule file is of a target")
}
