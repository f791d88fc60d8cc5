//! Back ends: each turns the neutral `ir` into one format.
//!
//! Classic decides what every panel looks like; `shared` is Classic with an input for the data
//! source, and `v2` puts the same options and field settings into another frame. Places and ids
//! come from [`Placement`], so that all formats agree on them.

pub mod classic;
pub mod shared;
pub mod v2;

use crate::ids::{Claim, LockError, PanelsLock};
use crate::ir::Dashboard;
use crate::layout::{LayoutError, Placed, Shape, place};

/// Prefix of the slugs that the headings of sections have in the lock.
pub const ROW_PREFIX: &str = "row-";

/// A format of a dashboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flavor {
    /// Classic JSON: for file provisioning, and what the checkout holds.
    Classic,
    /// Classic JSON that asks for its data source: for import by hand.
    Shared,
    /// A resource of the dashboard API: for that API and Git Sync. File provisioning refuses it.
    V2,
}

impl Flavor {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Classic, Self::Shared, Self::V2];

    /// Its name, also of its folder.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Shared => "shared",
            Self::V2 => "v2",
        }
    }
}

/// Where everything goes and which number it has; what no back end may decide itself.
#[derive(Debug, Clone)]
pub struct Placement {
    /// One for each section.
    pub sections: Vec<SectionPlacement>,
}

/// Places and ids of one section.
#[derive(Debug, Clone)]
pub struct SectionPlacement {
    /// Id of the heading.
    pub row_id: u32,
    /// Places.
    pub placed: Placed,
    /// Ids of the panels, line by line.
    pub ids: Vec<u32>,
}

/// Why a dashboard cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// Ids.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Places.
    #[error("{uid}: {error}")]
    Layout {
        /// Dashboard.
        uid: String,
        /// Cause.
        error: LayoutError,
    },
}

/// Places the panels of a dashboard and gives them their ids; new ones go into the lock.
pub fn assign(board: &Dashboard, lock: &mut PanelsLock) -> Result<Placement, PlacementError> {
    let shapes: Vec<Shape> = board.sections.iter().map(Shape::from).collect();
    let layout = |error| PlacementError::Layout { uid: board.uid.clone(), error };
    let placed = place(&shapes).map_err(layout)?;
    let rows: Vec<String> =
        board.sections.iter().map(|section| format!("{ROW_PREFIX}{}", section.slug)).collect();
    let mut claims = Vec::new();
    for (section, row) in board.sections.iter().zip(&rows) {
        claims.push(Claim { slug: row, renamed_from: &[] });
        for panel in section.lines.iter().flat_map(|line| &line.panels) {
            claims.push(Claim { slug: &panel.slug, renamed_from: &panel.renamed_from });
        }
    }
    lock.inherit(&board.uid, &board.split_from, &claims);
    let mut ids = lock.assign(&board.uid, &claims)?.into_iter();
    let mut next = || ids.next().expect("one id for each claim");
    let sections = placed
        .into_iter()
        .map(|placed| {
            let row_id = next();
            let ids = placed.panels.iter().map(|_| next()).collect();
            SectionPlacement { row_id, placed, ids }
        })
        .collect();
    Ok(Placement { sections })
}
