use super::*;
use proptest::prelude::*;

fn line(height: u32, widths: &[Width]) -> LineShape {
    LineShape { height, widths: widths.to_vec() }
}

fn open(lines: Vec<LineShape>) -> Shape {
    Shape { collapsed: false, lines }
}

#[test]
fn lines_fill_the_grid() {
    use Width::{Fill, Span};
    let placed = place(&[
        open(vec![line(4, &[Span(6), Fill, Fill]), line(8, &[Span(12), Span(6)])]),
        open(vec![line(8, &[Fill; 5])]),
    ])
    .expect("fits");
    let widths = |index: usize| placed[index].panels.iter().map(|p| p.w).collect::<Vec<_>>();
    assert_eq!(widths(0), [6, 9, 9, 12, 12]);
    assert_eq!(widths(1), [5, 5, 5, 5, 4]);
    assert_eq!(placed[1].row, GridPos { h: 1, w: 24, x: 0, y: 13 });
    assert_eq!(placed[1].panels[4], GridPos { h: 8, w: 4, x: 20, y: 14 });
}

#[test]
fn a_collapsed_section_takes_one_grid_row() {
    let lines = vec![line(8, &[Width::Fill])];
    let placed =
        place(&[Shape { collapsed: true, lines: lines.clone() }, open(lines)]).expect("ok");
    assert_eq!(placed[0].panels[0].y, 1);
    assert_eq!(placed[1].row.y, 1);
}

#[test]
fn what_does_not_fit_is_refused() {
    use Width::{Fill, Span};
    let error = |lines| place(&[open(lines)]).expect_err("must not fit");
    assert_eq!(error(vec![line(4, &[])]), LayoutError::EmptyLine { section: 0, line: 0 });
    let too_wide = LayoutError::TooWide { section: 0, line: 0, needed: 25 };
    assert_eq!(error(vec![line(4, &[Span(24), Fill])]), too_wide);
    let no_extent = LayoutError::NoExtent { section: 0, line: 1 };
    assert_eq!(error(vec![line(1, &[Fill]), line(0, &[Fill])]), no_extent);
    assert_eq!(error(vec![line(1, &[Fill]), line(1, &[Span(0)])]), no_extent);
}

fn any_line() -> impl Strategy<Value = LineShape> {
    let width = prop_oneof![(1_u32..=12).prop_map(Width::Span), Just(Width::Fill)];
    (1_u32..12, proptest::collection::vec(width, 1..8))
        .prop_map(|(height, widths)| LineShape { height, widths })
}

fn any_sections() -> impl Strategy<Value = Vec<Shape>> {
    let section = (any::<bool>(), proptest::collection::vec(any_line(), 0..5))
        .prop_map(|(collapsed, lines)| Shape { collapsed, lines });
    proptest::collection::vec(section, 1..6)
}

/// How often each cell of a block is covered; every cell must be covered once.
fn assert_tiled(panels: &[GridPos], top: u32, bottom: u32) -> Result<(), TestCaseError> {
    let mut cells = vec![0_u8; ((bottom - top) * COLUMNS) as usize];
    for panel in panels {
        prop_assert!(panel.w >= 1 && panel.h >= 1 && panel.x + panel.w <= COLUMNS);
        prop_assert!(panel.y >= top && panel.y + panel.h <= bottom);
        for y in panel.y..panel.y + panel.h {
            for x in panel.x..panel.x + panel.w {
                cells[((y - top) * COLUMNS + x) as usize] += 1;
            }
        }
    }
    prop_assert!(cells.iter().all(|&count| count == 1), "overlap or gap: {panels:?}");
    Ok(())
}

proptest! {
    #[test]
    fn every_cell_belongs_to_one_panel(sections in any_sections()) {
        let Ok(placed) = place(&sections) else { return Ok(()) };
        prop_assert_eq!(&placed, &place(&sections).expect("same input"), "not deterministic");
        let mut y = 0;
        for (shape, section) in sections.iter().zip(&placed) {
            let height: u32 = shape.lines.iter().map(|line| line.height).sum();
            prop_assert_eq!(section.row, GridPos { h: 1, w: COLUMNS, x: 0, y });
            assert_tiled(&section.panels, y + 1, y + 1 + height)?;
            y += 1 + if shape.collapsed { 0 } else { height };
        }
    }

    #[test]
    fn only_a_line_that_is_too_wide_is_refused(sections in any_sections()) {
        let needed = |line: &LineShape| line.widths.iter().map(|width| match width {
            Width::Span(columns) => *columns,
            Width::Fill => 1,
        }).sum::<u32>();
        let fits = sections.iter().flat_map(|s| &s.lines).all(|line| needed(line) <= COLUMNS);
        prop_assert_eq!(place(&sections).is_ok(), fits);
    }
}
