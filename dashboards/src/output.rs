//! Everything that is generated, in memory: `generate` writes it, `check` compares it, `lint`
//! reads it. Touches no file.

use crate::backend::{self, Placement, PlacementError, ROW_PREFIX, classic as classic_backend};
use crate::ids::PanelsLock;
use crate::manifest::{self, Entry};
use crate::model::classic;
use crate::write::canonical_json;
use crate::{boards, ir, provision, rules};
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
}

/// A dashboard in all its forms.
#[derive(Debug, Clone)]
pub struct Board {
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
        ir: ir::Dashboard,
        lock: &mut PanelsLock,
        title_of: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, PlacementError> {
        let placement = backend::assign(&ir, lock)?;
        let mut classic = classic_backend::render(&ir, &placement, title_of);
        let rev = manifest::revision(&canonical_json(&classic));
        classic.tags.push(format!("gen:{rev}"));
        let json = canonical_json(&classic);
        Ok(Self { ir, placement, classic, json, rev })
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
        format!("{GENERATED}/{}.json", self.ir.uid)
    }
}

/// All dashboards and every file made from them.
#[derive(Debug, Clone)]
pub struct Output {
    /// Dashboards, by uid.
    pub boards: Vec<Board>,
    /// Files, the lock among them.
    pub artifacts: Vec<Artifact>,
}

/// Makes everything from the boards in this crate and the numbers given so far.
pub fn all(lock: &PanelsLock) -> Result<Output, PlacementError> {
    let mut lock = lock.clone();
    let boards = render(boards::all(), &mut lock)?;
    let mut artifacts: Vec<Artifact> = (boards.iter())
        .map(|board| Artifact { path: board.path(), text: board.json.clone() })
        .collect();
    let entries: Vec<Entry> = boards.iter().map(Entry::from).collect();
    artifacts.push(Artifact { path: manifest::PATH.to_owned(), text: manifest::render(&entries) });
    artifacts.push(Artifact { path: LOCK.to_owned(), text: lock.to_toml() });
    artifacts.extend(provision::artifacts());
    artifacts.extend(rules::artifacts());
    artifacts.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(Output { boards, artifacts })
}

/// Makes all forms of the given dashboards.
pub fn render(
    mut boards: Vec<ir::Dashboard>,
    lock: &mut PanelsLock,
) -> Result<Vec<Board>, PlacementError> {
    boards.sort_by(|a, b| a.uid.cmp(&b.uid));
    let titles: BTreeMap<String, String> =
        boards.iter().map(|board| (board.uid.clone(), board.title.clone())).collect();
    let title_of = |uid: &str| titles.get(uid).cloned();
    boards.into_iter().map(|board| Board::new(board, lock, &title_of)).collect()
}
