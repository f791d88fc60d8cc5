//! Everything that is generated, in memory: `generate` writes it, `check` compares it, `lint`
//! reads it. Touches no file.

use crate::backend::{
    self, Flavor, Placement, PlacementError, ROW_PREFIX, classic as classic_backend, shared, v2,
};
use crate::ids::PanelsLock;
use crate::manifest::{self, Entry};
use crate::model::{self, classic};
use crate::write::{canonical_json, compact_json};
use crate::{boards, ir, provision, rules, targets};
use metric_catalog::target::Target;
use serde::Serialize;
use std::collections::BTreeMap;

/// Folder of the dashboards, from the root of the repository. Grafana reads every `.json` in it.
pub const GENERATED: &str = "dashboards/generated";

/// File of the panel ids, from the root of the repository.
pub const LOCK: &str = "dashboards/panels.lock";

/// A generated file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Path from the root of the repository, with `/`.
    pub path: String,
    /// Content.
    pub text: String,
    /// The target that it is of; none where it is of all.
    pub target: Option<Target>,
}

impl Artifact {
    /// A file of one target.
    pub fn of(target: Target, path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into(), target: Some(target) }
    }

    /// A file that belongs to every target.
    pub fn common(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into(), target: None }
    }

    /// Whether it belongs to one of these targets.
    #[must_use]
    pub fn is_of(&self, targets: &[Target]) -> bool {
        self.target.is_none_or(|target| targets.contains(&target))
    }
}

/// Folder of the dashboards of a target, from the root of the repository: our own lie at the top,
/// an engine's in a folder of its name.
#[must_use]
pub fn folder(target: Target) -> String {
    match target {
        Target::Sightline => GENERATED.to_owned(),
        Target::Engine(_) => format!("{GENERATED}/{target}"),
    }
}

/// A dashboard in all its forms.
#[derive(Debug, Clone)]
pub struct Board {
    /// Whose metrics it reads.
    pub target: Target,
    /// As we think of it.
    pub ir: ir::Dashboard,
    /// Places and ids.
    pub placement: Placement,
    /// As Grafana reads it.
    pub classic: classic::Dashboard,
    /// As it is written.
    pub json: String,
    /// First 12 hex digits of the SHA-256 of the content without the revision itself.
    pub rev: String,
}

impl Board {
    /// Makes all forms of a dashboard. `title_of` gives the titles of related boards.
    pub fn new(
        target: Target,
        ir: ir::Dashboard,
        lock: &mut PanelsLock,
        title_of: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, PlacementError> {
        let placement = backend::assign(&ir, lock)?;
        let mut classic = classic_backend::render(&ir, &placement, title_of);
        let rev = manifest::revision(&canonical_json(&classic));
        classic.tags.push(format!("gen:{rev}"));
        let json = canonical_json(&classic);
        Ok(Self { target, ir, placement, classic, json, rev })
    }

    /// Slugs of rows and panels by id.
    #[must_use]
    pub fn slugs(&self) -> BTreeMap<u32, String> {
        let mut slugs = BTreeMap::new();
        for (section, places) in self.ir.sections.iter().zip(&self.placement.sections) {
            slugs.insert(places.row_id, format!("{ROW_PREFIX}{}", section.slug));
            let panels = section.lines.iter().flat_map(|line| &line.panels);
            for (panel, id) in panels.zip(&places.ids) {
                slugs.insert(*id, panel.slug.clone());
            }
        }
        slugs
    }

    /// Path of the file, from the root of the repository.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}/{}.json", folder(self.target), self.ir.uid)
    }

    /// The dashboard in a format: for people and version control, or on one line.
    #[must_use]
    pub fn text(&self, flavor: Flavor, compact: bool) -> String {
        match (flavor, compact) {
            (Flavor::Classic, false) => self.json.clone(),
            (Flavor::Classic, true) => compact_json(&self.classic),
            (Flavor::Shared, _) => json(&shared::render(&self.classic), compact),
            (Flavor::V2, _) => json(&self.v2(), compact),
        }
    }

    /// As a resource of Grafana's dashboard API.
    #[must_use]
    pub fn v2(&self) -> model::v2::Resource {
        v2::render(&self.ir, &self.placement, &self.classic)
    }
}

fn json<T: Serialize>(value: &T, compact: bool) -> String {
    if compact { compact_json(value) } else { canonical_json(value) }
}

/// All dashboards and every file made from them.
#[derive(Debug, Clone)]
pub struct Output {
    /// Dashboards, by target and uid.
    pub boards: Vec<Board>,
    /// Files, the lock among them, by path.
    pub artifacts: Vec<Artifact>,
    /// The numbers given so far, those of this run among them.
    pub lock: PanelsLock,
}

/// The dashboards of a target, as they are written in Rust.
#[must_use]
pub fn source(target: Target) -> Vec<ir::Dashboard> {
    match target {
        Target::Sightline => boards::all(),
        Target::Engine(engine) => targets::boards(engine),
    }
}

/// Makes everything, for every target, from the numbers given so far.
pub fn all(lock: &PanelsLock) -> Result<Output, PlacementError> {
    let mut lock = lock.clone();
    let sets = Target::ALL.iter().map(|&target| (target, source(target))).collect();
    let boards = render_all(sets, &mut lock)?;
    let mut artifacts: Vec<Artifact> = (boards.iter())
        .map(|board| Artifact::of(board.target, board.path(), board.json.clone()))
        .collect();
    let entries: Vec<Entry> = boards.iter().map(Entry::from).collect();
    artifacts.push(Artifact::common(manifest::PATH, manifest::render(&entries)));
    artifacts.push(Artifact::common(LOCK, lock.to_toml()));
    artifacts.extend(provision::artifacts());
    artifacts.extend(rules::artifacts());
    artifacts.extend(targets::artifacts());
    artifacts.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(Output { boards, artifacts, lock })
}

/// Makes all forms of the given dashboards of our own server.
pub fn render(
    boards: Vec<ir::Dashboard>,
    lock: &mut PanelsLock,
) -> Result<Vec<Board>, PlacementError> {
    render_all(vec![(Target::Sightline, boards)], lock)
}

/// Makes all forms of the given dashboards, which may link to each other across targets.
pub fn render_all(
    sets: Vec<(Target, Vec<ir::Dashboard>)>,
    lock: &mut PanelsLock,
) -> Result<Vec<Board>, PlacementError> {
    let titles: BTreeMap<String, String> = (sets.iter())
        .flat_map(|(_, boards)| boards)
        .map(|board| (board.uid.clone(), board.title.clone()))
        .collect();
    let title_of = |uid: &str| titles.get(uid).cloned();
    let mut rendered = Vec::new();
    for (target, mut boards) in sets {
        boards.sort_by(|a, b| a.uid.cmp(&b.uid));
        for board in boards {
            rendered.push(Board::new(target, board, lock, &title_of)?);
        }
    }
    Ok(rendered)
}
