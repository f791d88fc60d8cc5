//! Rules over the source text: lengths, unsafe code, metric names, tests that cannot fail.

use crate::{files, read, report};
use std::path::{Path, PathBuf};

/// A longer file has a natural cut somewhere.
const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
const LINE_COLUMNS_MAX: usize = 100;

/// Packages that may hold unsafe code, each block with its SAFETY sentence.
const UNSAFE_ALLOWED: &[&str] =
    &["exporter/nvml-worker/", "kernels/", "server/memory-pool/", "tests/fake-nvml/"];

fn rust_sources() -> Vec<(PathBuf, String)> {
    files(&["rs"]).into_iter().map(|path| (path.clone(), read(&path))).collect()
}

fn starts_with_any(path: &Path, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| path.starts_with(prefix.trim_end_matches('/')))
}

#[test]
fn files_functions_and_lines_stay_short() {
    let mut findings = Vec::new();
    for (path, text) in rust_sources() {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            findings.push(format!("{}: {lines} lines (max {FILE_LINES_MAX})", path.display()));
        }
        for (at, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            // A link cannot be broken.
            if columns > LINE_COLUMNS_MAX && !line.contains("://") {
                findings.push(format!("{}:{}: {columns} columns", path.display(), at + 1));
            }
        }
        for (name, at, length) in functions(&text) {
            if length > FUNCTION_LINES_MAX {
                findings.push(format!("{}:{at}: fn {name} has {length} lines", path.display()));
            }
        }
    }
    report("lengths", &findings);
}

/// Name, first line and length of each function with a body. Relies on rustfmt: a body that does
/// not end on the line it opens on ends at the first line that is the indentation and a brace.
fn functions(text: &str) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let Some(name) = function_name(code) else { continue };
        let opens = lines[at..].iter().position(|later| later.ends_with(['{', '}', ';']));
        let Some(opens) = opens.filter(|opens| lines[at + opens].ends_with('{')) else { continue };
        let end = format!("{}}}", &line[..line.len() - code.len()]);
        let body = lines[at + opens..].iter().position(|later| **later == end);
        found.push((name, at + 1, opens + body.unwrap_or_default() + 1));
    }
    found
}

fn function_name(code: &str) -> Option<String> {
    let qualifiers = ["pub(crate) ", "pub(super) ", "pub ", "const ", "async ", "unsafe "];
    let mut rest = code;
    while let Some(after) = qualifiers.iter().find_map(|q| rest.strip_prefix(q)) {
        rest = after;
    }
    let name = rest.strip_prefix("fn ")?;
    Some(name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
}

#[test]
fn unsafe_code_lives_in_few_packages_and_says_why_it_is_sound() {
    let mut findings = Vec::new();
    for (path, text) in rust_sources() {
        let library = path.ends_with("src/lib.rs") && !path.starts_with("tests");
        if !starts_with_any(&path, UNSAFE_ALLOWED) {
            if library && !text.contains("#![forbid(unsafe_code)]") {
                findings.push(format!("{}: lacks #![forbid(unsafe_code)]", path.display()));
            }
            continue;
        }
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let code = line.trim_start();
            let block = code.contains("unsafe {") || code.starts_with("unsafe impl");
            if block && !code.starts_with("//") && !explained(&lines[..at]) {
                findings.push(format!("{}:{}: no SAFETY sentence", path.display(), at + 1));
            }
        }
    }
    report("unsafe code", &findings);
}

/// Whether one of the lines above, before a blank line or another block's end, says `SAFETY`.
fn explained(above: &[&str]) -> bool {
    above.iter().rev().take(12).any(|line| line.contains("SAFETY"))
}

#[test]
fn metric_names_are_written_in_the_catalog_only() {
    let mut findings = Vec::new();
    for (path, text) in rust_sources() {
        let free = starts_with_any(&path, &["prometheus/", "tests/"])
            || path.ends_with("tests.rs")
            || path.components().any(|part| part.as_os_str() == "tests");
        if free {
            continue;
        }
        // The tests at the end of a file may spell names out: they look from outside.
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (at, line) in code.lines().enumerate() {
            if line.contains("\"sightline_") && !line.trim_start().starts_with("//") {
                findings.push(format!("{}:{}: use the catalog's const", path.display(), at + 1));
            }
        }
    }
    report("metric names outside of the catalog", &findings);
}

#[test]
fn no_test_is_switched_off_or_sleeps() {
    let mut findings = Vec::new();
    let words = ["#[ignore", "#[should_panic", "thread::sleep(", "time::sleep("];
    for (path, text) in rust_sources() {
        if path.starts_with("tests/tests/tidy") {
            continue;
        }
        let tests_at = text.find("#[cfg(test)]").unwrap_or(text.len());
        let whole =
            path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests");
        let scope = if whole { text.as_str() } else { &text[tests_at..] };
        for word in words.iter().filter(|word| scope.contains(**word)) {
            findings.push(format!("{}: {word}", path.display()));
        }
    }
    report("tests wait for conditions, and all of them run", &findings);
}

#[test]
fn functions_are_measured() {
    let text = "\
trait T {
    fn declared(
        &self,
    );
    fn short() {}
}
impl T for A {
    pub fn long(
        &self,
    ) {
        a();
    }
}
";
    assert_eq!(functions(text), [("long".to_owned(), 8, 5)]);
}
