//! Columns as wide as what is in them.

/// Where the text of a column stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// The rows as lines, two blanks between columns at least. Cells without a column are left out,
/// missing ones are empty.
#[must_use]
pub(super) fn lines(sides: &[Side], rows: &[Vec<String>]) -> String {
    const GAP: &str = "  ";
    let letters = |text: &str| text.chars().count();
    let widest = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| letters(cell)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..sides.len()).map(widest).collect();
    let mut page = String::new();
    for row in rows {
        let cells = sides.iter().zip(&widths).enumerate().map(|(column, (side, width))| {
            let cell = row.get(column).map_or("", String::as_str);
            match side {
                Side::Left => format!("{cell:<width$}"),
                Side::Right => format!("{cell:>width$}"),
            }
        });
        page.push_str(cells.collect::<Vec<_>>().join(GAP).trim_end());
        page.push('\n');
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        let rows = [row(&["name", "size", ""]), row(&["a long näme", "1", "x"]), row(&["b"])];
        assert_eq!(
            lines(&[Side::Left, Side::Right, Side::Right], &rows),
            "name         size\n\
             a long näme     1  x\n\
             b\n"
        );
        assert_eq!(lines(&[], &rows), "\n\n\n");
    }
}
