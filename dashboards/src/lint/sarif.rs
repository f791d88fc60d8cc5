//! Reports as SARIF 2.1.0, the form in which code hosts and editors read findings.
//!
//! A finding lies in the generated file, at the line of its panel; a waived one is a result that is
//! suppressed in the source, with the waiver's reason.

use super::{Finding, Lint, Report};
use crate::output::Board;
use crate::write::canonical_json;
use serde::Serialize;

/// The version of the form.
const VERSION: &str = "2.1.0";

/// Where findings about the whole set are shown.
const OF_ALL: &str = crate::manifest::PATH;

#[derive(Serialize)]
struct Log<'a> {
    #[serde(rename = "$schema")]
    schema: &'a str,
    version: &'a str,
    runs: [Run<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Run<'a> {
    tool: Tool<'a>,
    column_kind: &'a str,
    results: Vec<Outcome<'a>>,
}

#[derive(Serialize)]
struct Tool<'a> {
    driver: Driver<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Driver<'a> {
    name: &'a str,
    semantic_version: &'a str,
    rules: Vec<Rule<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Rule<'a> {
    id: &'a str,
    short_description: Text<'a>,
    default_configuration: Configuration,
}

#[derive(Serialize)]
struct Configuration {
    level: &'static str,
}

#[derive(Serialize)]
struct Text<'a> {
    text: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome<'a> {
    rule_id: &'a str,
    rule_index: usize,
    level: &'static str,
    message: Text<'a>,
    locations: [Location; 1],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    suppressions: Vec<Suppression<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    physical_location: Physical,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    logical_locations: Vec<Logical>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Physical {
    artifact_location: Uri,
    region: Region,
}

#[derive(Serialize)]
struct Uri {
    uri: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Region {
    start_line: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Logical {
    fully_qualified_name: String,
    kind: &'static str,
}

#[derive(Serialize)]
struct Suppression<'a> {
    kind: &'static str,
    justification: &'a str,
}

/// The report as SARIF.
#[must_use]
pub fn sarif(report: &Report, boards: &[Board]) -> String {
    let rule = |lint: &Lint| Rule {
        id: lint.code(),
        short_description: Text { text: lint.title() },
        default_configuration: Configuration { level: level(*lint) },
    };
    let found = report.findings.iter().map(|finding| outcome(finding, None, boards));
    let waived = report.waived.iter();
    let waived = waived.map(|w| outcome(&w.finding, Some(w.reason.as_str()), boards));
    let driver = Driver {
        name: "sightline-dashboards",
        semantic_version: env!("CARGO_PKG_VERSION"),
        rules: Lint::ALL.iter().map(rule).collect(),
    };
    let run = Run {
        tool: Tool { driver },
        column_kind: "unicodeCodePoints",
        results: found.chain(waived).collect(),
    };
    let schema = "https://json.schemastore.org/sarif-2.1.0.json";
    canonical_json(&Log { schema, version: VERSION, runs: [run] })
}

const fn level(lint: Lint) -> &'static str {
    if lint.warns() { "warning" } else { "error" }
}

fn outcome<'a>(finding: &'a Finding, waiver: Option<&'a str>, boards: &[Board]) -> Outcome<'a> {
    let index = Lint::ALL.iter().position(|lint| lint.code() == finding.code);
    let index = index.expect("findings have the codes of lints");
    let suppression = |justification| Suppression { kind: "inSource", justification };
    Outcome {
        rule_id: finding.code,
        rule_index: index,
        level: level(Lint::ALL[index]),
        message: Text { text: &finding.message },
        locations: [location(finding, boards)],
        suppressions: waiver.map(suppression).into_iter().collect(),
    }
}

fn location(finding: &Finding, boards: &[Board]) -> Location {
    let board = boards.iter().find(|board| board.ir.uid == finding.dashboard);
    let (uri, line) = board.map_or_else(
        || (OF_ALL.to_owned(), 1),
        |board| (board.path(), line_of(board, &finding.panel)),
    );
    let named = [&finding.dashboard, &finding.panel].map(String::as_str);
    let name = named.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
    let logical = Logical { fully_qualified_name: name, kind: "object" };
    Location {
        physical_location: Physical {
            artifact_location: Uri { uri },
            region: Region { start_line: line },
        },
        logical_locations: Some(logical)
            .filter(|logical| !logical.fully_qualified_name.is_empty())
            .into_iter()
            .collect(),
    }
}

/// The line, from 1, on which a panel says its id; 1 for what is about the whole dashboard.
fn line_of(board: &Board, slug: &str) -> usize {
    let slugs = board.slugs();
    let id = slugs.iter().find(|(_, other)| *other == slug).map(|(id, _)| id);
    let Some(id) = id else { return 1 };
    // Only panels and rows have a number as id; transformations and overrides have words.
    let line = format!("\"id\": {id},");
    board.json.lines().position(|text| text.trim() == line).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests;
