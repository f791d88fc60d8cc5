//! Places panels on Grafana's grid of 24 columns. The only writer of grid positions.
//!
//! Sections become a heading of height 1 and lines below it. Each line fills the whole width, so
//! there is no gap and nothing can overlap; a line that does not fit is an error, never a wrap.
//! Knows shapes only: no panel, no JSON.

use crate::ir::{Section, Width};
use crate::model::classic::GridPos;

/// Columns of the grid.
pub const COLUMNS: u32 = 24;

/// Shape of a section: its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Whether it is folded.
    pub collapsed: bool,
    /// Lines, from top to bottom.
    pub lines: Vec<LineShape>,
}

/// Shape of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineShape {
    /// Height of all its panels.
    pub height: u32,
    /// Widths, from left to right.
    pub widths: Vec<Width>,
}

impl From<&Section> for Shape {
    fn from(section: &Section) -> Self {
        let line = |line: &crate::ir::Line| LineShape {
            height: line.height,
            widths: line.panels.iter().map(|panel| panel.width).collect(),
        };
        Self { collapsed: section.collapsed, lines: section.lines.iter().map(line).collect() }
    }
}

/// Places of a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The heading.
    pub row: GridPos,
    /// The panels, line by line.
    pub panels: Vec<GridPos>,
}

/// Why a dashboard cannot be laid out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// A line without panels would be a gap.
    #[error("section {section}, line {line}: no panels")]
    EmptyLine {
        /// Index of the section.
        section: usize,
        /// Index of the line.
        line: usize,
    },
    /// A panel or a line without extent.
    #[error("section {section}, line {line}: a height or width of 0")]
    NoExtent {
        /// Index of the section.
        section: usize,
        /// Index of the line.
        line: usize,
    },
    /// More columns than there are.
    #[error("section {section}, line {line}: needs {needed} of {COLUMNS} columns")]
    TooWide {
        /// Index of the section.
        section: usize,
        /// Index of the line.
        line: usize,
        /// Columns needed, one for each panel that fills.
        needed: u32,
    },
}

/// Places all sections below each other.
///
/// The children of a collapsed section get the places that they have once it is opened; the
/// sections after it start right below its heading.
pub fn place(sections: &[Shape]) -> Result<Vec<Placed>, LayoutError> {
    let mut y = 0;
    let mut placed = Vec::with_capacity(sections.len());
    for (index, section) in sections.iter().enumerate() {
        let row = GridPos { h: 1, w: COLUMNS, x: 0, y };
        let mut below = y + 1;
        let mut panels = Vec::new();
        for (line_index, line) in section.lines.iter().enumerate() {
            let widths = widths(line, index, line_index)?;
            let mut x = 0;
            for w in widths {
                panels.push(GridPos { h: line.height, w, x, y: below });
                x += w;
            }
            below += line.height;
        }
        y = if section.collapsed { y + 1 } else { below };
        placed.push(Placed { row, panels });
    }
    Ok(placed)
}

/// Widths of one line; they always add up to the whole grid.
fn widths(line: &LineShape, section: usize, index: usize) -> Result<Vec<u32>, LayoutError> {
    if line.widths.is_empty() {
        return Err(LayoutError::EmptyLine { section, line: index });
    }
    if line.height == 0 || line.widths.contains(&Width::Span(0)) {
        return Err(LayoutError::NoExtent { section, line: index });
    }
    let (mut fixed, mut fills) = (0_u32, 0_u32);
    for width in &line.widths {
        match width {
            Width::Span(columns) => fixed = fixed.saturating_add(*columns),
            Width::Fill => fills += 1,
        }
    }
    let needed = fixed.saturating_add(fills);
    if needed > COLUMNS {
        return Err(LayoutError::TooWide { section, line: index, needed });
    }
    let rest = COLUMNS - fixed;
    let share = rest.checked_div(fills).unwrap_or(0);
    // What division leaves goes to the first ones, a column each.
    let mut wider = rest.checked_rem(fills).unwrap_or(0);
    let mut widths: Vec<u32> = (line.widths.iter())
        .map(|width| match width {
            Width::Span(columns) => *columns,
            Width::Fill if wider > 0 => {
                wider -= 1;
                share + 1
            }
            Width::Fill => share,
        })
        .collect();
    // A line without one that fills may be too short: the last panel takes the rest.
    let used: u32 = widths.iter().sum();
    if let Some(last) = widths.last_mut() {
        *last += COLUMNS - used;
    }
    Ok(widths)
}

#[cfg(test)]
mod tests;
