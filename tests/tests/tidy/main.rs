//! House rules that no compiler checks: who imports whom, lengths, licences, names, unsafe code.
//!
//! Each rule names the file and what to do about it. `cargo tidy` runs just these.

mod graph;
mod sources;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Fails with every finding at once, so that one run shows them all.
fn report(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}\n  {}\n", findings.join("\n  "));
}

/// Files git tracks or would track, with one of the given extensions, relative to the root.
fn files(extensions: &[&str]) -> Vec<PathBuf> {
    let list = std::process::Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(tests::root())
        .output()
        .expect("git is installed where the repository was cloned");
    assert!(list.status.success(), "git ls-files failed");
    let text = String::from_utf8(list.stdout).expect("file names of this repository are UTF-8");
    let wanted = |path: &Path| {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        extensions.contains(&extension) && tests::root().join(path).is_file()
    };
    text.lines().map(PathBuf::from).filter(|path| wanted(path)).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(tests::root().join(path))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_decision_record_has_its_number_once_and_is_listed() {
    let folder = tests::root().join("docs/adr");
    let names: BTreeSet<String> = fs::read_dir(folder)
        .expect("docs/adr exists")
        .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
        .collect();
    let mut findings = Vec::new();
    let index = read(Path::new("ARCHITECTURE.md"));
    for (position, name) in names.iter().enumerate() {
        let expected = format!("{:03}-", position + 1);
        if !name.starts_with(&expected) {
            findings.push(format!("docs/adr/{name}: expected the number {expected}"));
        }
        if !index.contains(name.as_str()) {
            findings.push(format!("docs/adr/{name}: ARCHITECTURE.md does not link it"));
        }
    }
    report("decision records are numbered without gaps and linked", &findings);
}
