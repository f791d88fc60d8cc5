//! `manifest.json`: which dashboards there are, at which revision, and what they need.
//!
//! It lies beside the folder of the dashboards and not in it: Grafana would take it for one.

use crate::output::Board;
use crate::usage;
use crate::write::canonical_json;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// Path from the root of the repository.
pub const PATH: &str = "dashboards/manifest.json";

/// Oldest Grafana whose schema these dashboards use.
pub const MIN_GRAFANA: &str = "12.0.0";

/// Oldest Prometheus that takes every query and rule.
pub const MIN_PROMETHEUS: &str = "2.42.0";

/// Hex digits of a revision.
const REV_DIGITS: usize = 12;

/// One dashboard of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Whose metrics it reads.
    pub target: &'static str,
    /// Uid.
    pub uid: String,
    /// Title.
    pub title: String,
    /// Revision of the content.
    pub rev: String,
    /// Path from the root of the repository.
    pub file: String,
    /// Size in bytes.
    pub bytes: usize,
    /// Ids of rows and panels by slug: alerts and links name panels by slug.
    pub panels: BTreeMap<String, u32>,
    /// Queries.
    pub queries: usize,
    /// Metrics and recorded series that the queries read.
    pub metrics: BTreeSet<&'static str>,
}

impl From<&Board> for Entry {
    fn from(board: &Board) -> Self {
        let queries = || board.ir.panels().flat_map(|(_, panel)| &panel.queries);
        Self {
            target: board.target.as_str(),
            uid: board.ir.uid.clone(),
            title: board.ir.title.clone(),
            rev: board.rev.clone(),
            file: board.path(),
            bytes: board.json.len(),
            panels: board.slugs().into_iter().map(|(id, slug)| (slug, id)).collect(),
            queries: queries().count(),
            metrics: queries().flat_map(|query| usage::names_in(&query.expr)).collect(),
        }
    }
}

#[derive(Serialize)]
struct Manifest<'a> {
    generator: &'a str,
    min_grafana: &'a str,
    min_prometheus: &'a str,
    dashboards: &'a [Entry],
}

/// The file.
#[must_use]
pub fn render(dashboards: &[Entry]) -> String {
    canonical_json(&Manifest {
        generator: concat!("sightline-dashboards ", env!("CARGO_PKG_VERSION")),
        min_grafana: MIN_GRAFANA,
        min_prometheus: MIN_PROMETHEUS,
        dashboards,
    })
}

/// Revision of a content: the start of its SHA-256, in hex.
#[must_use]
pub fn revision(content: &str) -> String {
    let digest = Sha256::digest(content.as_bytes());
    let mut hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    hex.truncate(REV_DIGITS);
    hex
}
