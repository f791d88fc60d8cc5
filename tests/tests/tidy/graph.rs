//! Rules over `cargo metadata`: dependency direction, licences, number of crates.

use crate::{read, report};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// Who may import whom inside the workspace. The table in ARCHITECTURE.md is checked against this.
/// `tests` may import anything and is left out.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("kernels", &[]),
    ("metric-catalog", &[]),
    ("node-info", &[]),
    ("program", &[]),
    ("admission", &["types"]),
    ("kv-cache", &["types"]),
    ("kv-store", &["types"]),
    ("memory-pool", &["kernels", "types"]),
    ("model", &["kernels", "memory-pool", "types"]),
    ("transfer", &["memory-pool", "types"]),
    ("engine", &["admission", "kv-cache", "memory-pool", "model", "transfer", "types"]),
    ("tokenizer", &["types"]),
    ("protocol", &["types"]),
    ("grammar", &["model", "tokenizer", "types"]),
    ("router", &["admission", "metric-catalog", "protocol", "types"]),
    (
        "server",
        &[
            "admission",
            "engine",
            "grammar",
            "kernels",
            "kv-cache",
            "kv-store",
            "memory-pool",
            "metric-catalog",
            "model",
            "node-info",
            "program",
            "protocol",
            "router",
            "tokenizer",
            "transfer",
            "types",
        ],
    ),
    ("dashboards", &["metric-catalog"]),
    ("nvml-worker", &[]),
    ("exporter", &["metric-catalog", "node-info", "nvml-worker", "program"]),
    ("fake-node", &[]),
    ("fake-nvml", &[]),
    ("stack", &["dashboards", "exporter", "metric-catalog", "program", "server"]),
];

/// Licences under which a dependency may be used without further thought.
const PERMISSIVE: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// More than this needs a decision record: the serving binary's normal closure, and the whole lock.
const SERVER_CRATES_MAX: usize = 275;
const LOCKED_CRATES_MAX: usize = 450;

fn metadata() -> &'static Value {
    static METADATA: OnceLock<Value> = OnceLock::new();
    METADATA.get_or_init(|| {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version", "1", "--locked", "--offline"])
            .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
            .current_dir(tests::root())
            .output()
            .expect("cargo starts, as it started this test");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "cargo metadata: {error}");
        serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
    })
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn workspace_packages() -> Vec<&'static Value> {
    let members: BTreeSet<&str> =
        list(metadata(), "workspace_members").iter().filter_map(Value::as_str).collect();
    list(metadata(), "packages").iter().filter(|p| members.contains(text(p, "id"))).collect()
}

#[test]
fn imports_go_only_where_the_table_allows() {
    let table: BTreeMap<&str, &[&str]> = MAY_IMPORT.iter().copied().collect();
    let ours: BTreeSet<&str> = workspace_packages().iter().map(|p| text(p, "name")).collect();
    let mut findings = Vec::new();
    for package in workspace_packages() {
        let name = text(package, "name");
        if name == "tests" {
            continue;
        }
        let Some(allowed) = table.get(name) else {
            findings.push(format!("{name}: not in the table; say what it may import"));
            continue;
        };
        // Development dependencies may point anywhere: they never ship.
        let shipped = list(package, "dependencies").iter().filter(|d| text(d, "kind") != "dev");
        for import in shipped.map(|d| text(d, "name")).filter(|d| ours.contains(d)) {
            if !allowed.contains(&import) {
                findings.push(format!("{name} imports {import}, which the table does not allow"));
            }
        }
    }
    report("imports between the crates", &findings);
}

#[test]
fn the_table_in_the_architecture_document_is_this_one() {
    let document = read(Path::new("ARCHITECTURE.md"));
    let mut findings = Vec::new();
    for (name, imports) in MAY_IMPORT {
        let cell = if imports.is_empty() { "-".to_owned() } else { imports.join(", ") };
        let row = format!("| {name} | {cell} |");
        if !document.contains(&row) {
            findings.push(format!("ARCHITECTURE.md lacks the row: {row}"));
        }
    }
    report("the import table in ARCHITECTURE.md", &findings);
}

#[test]
fn dependencies_have_permissive_licences() {
    let mut findings = Vec::new();
    for package in list(metadata(), "packages") {
        let licence = text(package, "license");
        // "A OR B" needs one permissive side; "A AND B" needs all. `/` is an old spelling of OR.
        let permissive = licence.replace('/', " OR ").split(" OR ").any(|side| {
            let side = side.trim().trim_matches(['(', ')']);
            side.split(" AND ").all(|part| {
                let part = part.trim().trim_matches(['(', ')']);
                PERMISSIVE.contains(&part)
            })
        });
        if !permissive {
            findings.push(format!("{} has licence {licence:?}", text(package, "name")));
        }
    }
    report("licences of the dependencies", &findings);
}

#[test]
fn the_number_of_crates_stays_in_its_budget() {
    let lock = read(Path::new("Cargo.lock")).matches("[[package]]").count();
    let server = closure("server").len();
    let mut findings = Vec::new();
    if lock > LOCKED_CRATES_MAX {
        findings.push(format!("Cargo.lock holds {lock} crates, more than {LOCKED_CRATES_MAX}"));
    }
    if server > SERVER_CRATES_MAX {
        findings.push(format!("server needs {server} crates, more than {SERVER_CRATES_MAX}"));
    }
    report("number of crates (more needs a decision record)", &findings);
}

/// Ids of everything that ships with a package: normal dependencies, followed to the end.
fn closure(package: &str) -> BTreeSet<&'static str> {
    let nodes: BTreeMap<&str, &Value> =
        list(&metadata()["resolve"], "nodes").iter().map(|n| (text(n, "id"), n)).collect();
    let start = workspace_packages().into_iter().find(|p| text(p, "name") == package);
    let mut seen = BTreeSet::new();
    let mut open = vec![text(start.expect("the package exists"), "id")];
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        for dependency in list(nodes[id], "deps") {
            let normal = list(dependency, "dep_kinds").iter().any(|kind| kind["kind"].is_null());
            if normal {
                open.push(text(dependency, "pkg"));
            }
        }
    }
    seen
}
