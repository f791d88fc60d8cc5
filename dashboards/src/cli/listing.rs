//! `list-metrics`: what the catalog declares, and which panels read it.

use super::Format;
use crate::output::Output;
use crate::usage;
use crate::write::canonical_json;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

#[derive(Serialize)]
struct Row {
    name: &'static str,
    kind: &'static str,
    unit: String,
    labels: Vec<&'static str>,
    panels: Vec<String>,
}

/// One line or one object for each metric of the catalog, in its order.
pub(super) fn render(output: &Output, format: Format) -> String {
    let rows = rows(output);
    match format {
        Format::Json => canonical_json(&rows).trim_end().to_owned(),
        Format::Text | Format::Sarif => {
            let mut text = String::new();
            for row in &rows {
                let used = row.panels.first().map_or("-", String::as_str);
                let more = match row.panels.len() {
                    0 | 1 => String::new(),
                    n => format!(" and {} more", n - 1),
                };
                let labels = row.labels.join(",");
                let _infallible =
                    writeln!(text, "{:<58} {:<9} {used}{more} [{labels}]", row.name, row.kind);
            }
            let unused = rows.iter().filter(|row| row.panels.is_empty()).count();
            let _infallible = write!(text, "{} metrics, {unused} on no panel", rows.len());
            text
        }
    }
}

fn rows(output: &Output) -> Vec<Row> {
    let mut readers: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for board in &output.boards {
        for (_, panel) in board.ir.panels() {
            let place = format!("{}/{}", board.ir.uid, panel.slug);
            for name in panel.queries.iter().flat_map(|query| usage::names_in(&query.expr)) {
                let list = readers.entry(name).or_default();
                if list.last() != Some(&place) {
                    list.push(place.clone());
                }
            }
        }
    }
    metric_catalog::all()
        .map(|info| Row {
            name: info.name,
            kind: info.kind.as_str(),
            unit: format!("{:?}", info.unit).to_lowercase(),
            labels: info.labels.iter().map(|label| label.name).collect(),
            panels: readers.get(info.name).cloned().unwrap_or_default(),
        })
        .collect()
}
