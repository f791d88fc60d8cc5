//! The generated rules over the series of their own scenarios.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Point, Scenario, UNIT_MS};
use crate::promql::parse_selector;
use crate::store::{Labels, Matcher};

const EVERY_MS: i64 = 29 * UNIT_MS;

#[derive(Debug, Deserialize)]
struct File {
    tests: Vec<Test>,
}

#[derive(Debug, Deserialize)]
struct Test {
    interval: String,
    input_series: Vec<Series>,
}

#[derive(Debug, Deserialize)]
struct Series {
    series: String,
    values: String,
}

/// One for each scenario of the alerts of all targets, re-timed so that no sample meets the edge
/// of a window. Those of another engine than ours lie in a folder of its name, its rules in a file
/// of that name.
pub(super) fn scenarios() -> impl Iterator<Item = Scenario> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../prometheus/rules/tests");
    files(&folder).into_iter().flat_map(|(target, path)| {
        let text = std::fs::read_to_string(&path).expect("scenarios are text");
        let file: File = serde_saphyr::from_str(&text).expect("scenarios are YAML");
        let stem = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        let name = target.iter().chain([&stem]).cloned().collect::<Vec<_>>().join("-");
        let rules = rules_of(target.as_deref());
        let named = file.tests.into_iter().enumerate();
        named.map(move |(index, test)| scenario(format!("{name}-{index}"), &test, rules.clone()))
    })
}

/// Files of scenarios with the target that they are of; none for ours.
fn files(folder: &Path) -> Vec<(Option<String>, PathBuf)> {
    let list = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).expect("there are scenarios");
        let paths = entries.map(|entry| entry.expect("the folder can be read").path());
        paths.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    };
    let is_yaml = |path: &PathBuf| path.extension().is_some_and(|end| end == "yml");
    let mut found = Vec::new();
    for path in list(folder) {
        if path.is_dir() {
            let target = path.file_name().expect("a folder has a name").to_string_lossy();
            let own = list(&path).into_iter().filter(is_yaml);
            found.extend(own.map(|path| (Some(target.clone().into_owned()), path)));
        } else if is_yaml(&path) {
            found.push((None, path));
        }
    }
    found
}

/// The rule files of a target as (name, text).
fn rules_of(target: Option<&str>) -> Vec<(String, String)> {
    let files = match target {
        None => crate::console::rule_files(),
        Some(target) => {
            let name = format!("{target}.yml");
            let all = crate::console::all_rule_files().into_iter();
            all.filter(|(file, _)| *file == name).collect()
        }
    };
    assert!(!files.is_empty(), "{target:?} has no rules");
    files.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
}

fn scenario(name: String, test: &Test, files: Vec<(String, String)>) -> Scenario {
    let seconds = crate::promql::parse_duration(&test.interval).expect("an interval") / 1000;
    let interval_ms = seconds * UNIT_MS;
    let series: Vec<(Labels, Vec<Point>)> =
        test.input_series.iter().map(|s| (labels(&s.series), points(&s.values))).collect();
    let longest = series.iter().map(|(_, points)| points.len()).max().unwrap_or(0);
    let longest = i64::try_from(longest).expect("few samples");
    Scenario {
        name,
        files,
        series,
        interval_ms,
        every_ms: EVERY_MS,
        evaluations: longest * interval_ms / EVERY_MS + 1,
    }
}

fn labels(series: &str) -> Labels {
    let matchers = parse_selector(series).unwrap_or_else(|e| panic!("{series}: {e}"));
    let pair = |m: &Matcher| (m.label.clone(), m.exact().expect("an equality").to_owned());
    Labels::new(matchers.iter().map(pair))
}

/// Promtool's short notation: `a+bxn`, `a-bxn`, `axn` (n more values each), `_xn` (n gaps).
fn points(text: &str) -> Vec<Point> {
    let mut out = Vec::new();
    for word in text.split_whitespace() {
        let (base, more) = word.rsplit_once('x').unwrap_or((word, "0"));
        let more: usize = more.parse().unwrap_or_else(|_| panic!("{word}"));
        match base {
            "_" => out.extend(std::iter::repeat_n(Point::Gap, more.max(1))),
            "stale" => out.push(Point::Stale),
            _ => {
                let sign = base[1..].find(['+', '-']).map(|at| at + 1);
                let (start, step) = sign.map_or((base, "0"), |at| base.split_at(at));
                let number = |text: &str| -> f64 {
                    text.trim_start_matches('+').parse().unwrap_or_else(|_| panic!("{word}"))
                };
                let (start, step) = (number(start), number(step));
                out.extend((0..=more).map(|i| Point::Value(start + step * i as f64)));
            }
        }
    }
    out
}
