//! The files for somewhere else than a checkout: what one gives to a Grafana and a Prometheus.
//!
//! `<flavor>/<target>/<uid>.json`, `rules/`, `scrape/`, `provisioning/` and `manifest.json`, below
//! a folder that the caller chooses. Nothing is removed there.

use crate::backend::Flavor;
use crate::output::{Artifact, Output};
use crate::targets::SCRAPE_FOLDER;
use crate::{manifest, provision, rules};
use metric_catalog::target::Target;

/// The files of these targets, with their dashboards in these formats; `compact` puts a dashboard
/// on one line.
#[must_use]
pub fn artifacts(
    output: &Output,
    targets: &[Target],
    flavors: &[Flavor],
    compact: bool,
) -> Vec<Artifact> {
    let mut files = Vec::new();
    for board in output.boards.iter().filter(|board| targets.contains(&board.target)) {
        for &flavor in flavors {
            let path = format!("{}/{}/{}.json", flavor.as_str(), board.target, board.ir.uid);
            files.push(Artifact::of(board.target, path, board.text(flavor, compact)));
        }
    }
    files.extend(rules(output, targets, "rules"));
    files.extend(provisioning(output, "provisioning"));
    let of_targets = output.artifacts.iter().filter(|artifact| artifact.is_of(targets));
    files.extend(moved(of_targets, SCRAPE_FOLDER, "scrape"));
    let manifest = output.artifacts.iter().find(|artifact| artifact.path == manifest::PATH);
    files.extend(manifest.map(|file| Artifact::common("manifest.json", &*file.text)));
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// The rule files of these targets, below `folder`.
pub fn rules(output: &Output, targets: &[Target], folder: &str) -> Vec<Artifact> {
    let of = output.artifacts.iter().filter(|artifact| artifact.is_of(targets));
    moved(of, rules::FOLDER, folder)
}

/// Grafana's provisioning files, below `folder`.
pub fn provisioning(output: &Output, folder: &str) -> Vec<Artifact> {
    moved(output.artifacts.iter(), provision::FOLDER, folder)
}

/// The files below one folder, below another; `.` for the top.
fn moved<'a>(artifacts: impl Iterator<Item = &'a Artifact>, from: &str, to: &str) -> Vec<Artifact> {
    let inside = |artifact: &'a Artifact| {
        let rest = artifact.path.strip_prefix(from)?.strip_prefix('/')?;
        let path = if to == "." { rest.to_owned() } else { format!("{to}/{rest}") };
        Some(Artifact { path, ..artifact.clone() })
    };
    artifacts.filter_map(inside).collect()
}
