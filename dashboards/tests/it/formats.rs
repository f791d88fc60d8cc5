//! The commands that write elsewhere than into the checkout, and those that compare.

use crate::program::{files, stdout};
use crate::{Scratch, root};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sightline-dashboards"))
        .args(args)
        .current_dir(root())
        .output()
        .expect("the binary of this package")
}

fn bundle(scratch: &Scratch, more: &[&str]) {
    let out = scratch.0.to_str().expect("a temporary folder with a plain name");
    let output = run(&[&["generate", "--out", out], more].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn two_processes_write_the_same_bytes_in_every_format() {
    let (one, two) = (Scratch::new("all-one"), Scratch::new("all-two"));
    bundle(&one, &["--flavor", "all"]);
    bundle(&two, &["--flavor", "all"]);
    let written = files(&one.0);
    assert_eq!(written, files(&two.0));
    let count = |prefix: &str| written.keys().filter(|path| path.starts_with(prefix)).count();
    assert!(count("classic/sightline/") >= 6);
    for flavor in ["classic/", "shared/", "v2/"] {
        assert_eq!(count(flavor), count("classic/"), "{flavor}");
    }
    for file in [
        "manifest.json",
        "rules/server.yml",
        "provisioning/dashboards/sightline.yml",
        "provisioning/datasources/sightline.yml",
    ] {
        assert!(written.contains_key(file), "{file}");
    }
    // What goes elsewhere is what the checkout holds.
    let committed = files(&root().join("dashboards/generated"));
    for (path, bytes) in written.iter().filter(|(path, _)| path.starts_with("classic/")) {
        let rest = path.strip_prefix("classic/").expect("filtered");
        let name = rest.strip_prefix("sightline/").unwrap_or(rest);
        assert_eq!(committed.get(name), Some(bytes), "{path}");
    }
    // Nothing to do the second time.
    assert_eq!(
        stdout(&run(&["generate", "--out", one.0.to_str().expect("plain"), "--flavor", "all"])),
        ""
    );
}

#[test]
fn a_compact_dashboard_is_one_line_and_says_the_same() {
    let (pretty, compact) = (Scratch::new("pretty"), Scratch::new("compact"));
    bundle(&pretty, &["--flavor", "all", "--target", "sightline"]);
    bundle(&compact, &["--flavor", "all", "--target", "sightline", "--compact"]);
    let (pretty, compact) = (files(&pretty.0), files(&compact.0));
    assert_eq!(pretty.keys().collect::<Vec<_>>(), compact.keys().collect::<Vec<_>>());
    assert!(!pretty.keys().any(|path| path.contains("/sglang/") || path.contains("/vllm/")));
    for (path, bytes) in compact.iter().filter(|(path, _)| path.contains("/sightline/")) {
        let value = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).expect("JSON");
        assert_eq!(value(bytes), value(&pretty[path]), "{path}");
        assert_eq!(bytes.iter().filter(|&&byte| byte == b'\n').count(), 1, "{path}");
        assert!(bytes.len() * 4 < pretty[path].len() * 3, "{path}");
    }
}

/// Writes the value with a change, compact, so that only the content differs.
fn changed(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut json: Value = serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON");
    change(&mut json);
    fs::write(path, json.to_string()).expect("writable");
}

#[test]
fn diff_speaks_of_panels() {
    let (old, new) = (Scratch::new("diff-old"), Scratch::new("diff-new"));
    for scratch in [&old, &new] {
        bundle(scratch, &["--flavor", "all", "--target", "sightline"]);
    }
    let diff =
        |old: &Path, new: &Path| run(&["diff", &old.to_string_lossy(), &new.to_string_lossy()]);
    let same = diff(&old.0, &new.0);
    assert_eq!((same.status.code(), stdout(&same)), (Some(0), String::new()));
    let file = "classic/sightline/sightline-queue.json";
    changed(&new.0.join(file), |json| {
        let panels = json["panels"].as_array_mut().expect("panels");
        let panel = panels.iter_mut().find(|panel| panel["title"] == "Queue depth").expect("it");
        panel["fieldConfig"]["defaults"]["unit"] = "ms".into();
    });
    let line = "sightline-queue: panel queue-depth: unit \"short\" -> \"ms\"\n";
    let one = diff(&old.0.join(file), &new.0.join(file));
    assert_eq!((one.status.code(), stdout(&one)), (Some(1), line.to_owned()));
    changed(&new.0.join("v2/sightline/sightline-queue.json"), |json| {
        let panel = &mut json["spec"]["elements"]["queue-depth"]["spec"];
        panel["vizConfig"]["spec"]["fieldConfig"]["defaults"]["unit"] = "ms".into();
    });
    fs::remove_file(new.0.join("rules/server.yml")).expect("generated");
    fs::write(new.0.join("rules/more.yml"), "groups: []\n").expect("writable");
    let all = stdout(&diff(&old.0, &new.0));
    let lines: Vec<&str> = all.lines().collect();
    assert_eq!(lines.len(), 4, "{all}");
    assert_eq!(lines[0], format!("{file}: {}", line.trim_end()));
    assert_eq!(lines[1], "rules/more.yml: added");
    assert_eq!(lines[2], "rules/server.yml: removed");
    assert_eq!(lines[3], format!("v2/sightline/sightline-queue.json: {}", line.trim_end()));
    // A file is never compared with a folder.
    let wrong = diff(&old.0, &new.0.join(file));
    assert_eq!(wrong.status.code(), Some(70));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("one is a folder"));
}

#[test]
fn rules_and_provisioning_are_printed_or_written() {
    let scratch = Scratch::new("rules");
    let printed = stdout(&run(&["rules", "--target", "sightline"]));
    assert!(printed.starts_with("# server.yml\n") && printed.contains("- alert: "), "{printed}");
    let out = scratch.0.to_str().expect("plain");
    assert!(run(&["rules", "--target", "sightline", "--out", out]).status.success());
    assert!(run(&["provision", "--out", out]).status.success());
    let written = files(&scratch.0);
    let names: Vec<&str> = written.keys().map(String::as_str).collect();
    assert_eq!(names, ["dashboards/sightline.yml", "datasources/sightline.yml", "server.yml"]);
    let committed = fs::read(root().join("prometheus/rules/server.yml")).expect("committed");
    assert_eq!(written["server.yml"], committed);
    assert!(stdout(&run(&["provision"])).contains("uid: prometheus"));
}

#[test]
fn coverage_is_complete() {
    let output = run(&["coverage", "--target", "sightline", "--format", "json"]);
    let report: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(output.status.code(), Some(0), "{report}");
    assert_eq!(report["unread"], serde_json::json!([]));
    assert!(report["by_hand"].as_array().is_some_and(|list| !list.is_empty()));
}

#[test]
fn sarif_goes_to_standard_output() {
    let output = run(&["lint", "--format", "sarif"]);
    let log: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(log["version"], "2.1.0");
    let results = log["runs"][0]["results"].as_array().expect("results");
    assert!(results.iter().all(|result| result["suppressions"][0]["justification"].is_string()));
}
