//! What Prometheus' own tools say of what is made here: the page, the rules, their scenarios, the
//! configuration, and whom Alertmanager tells.
//!
//! Without `promtool`, `amtool` or Alertmanager the tests say so and pass; with `CI=1` in the
//! environment they fail.

#![expect(clippy::print_stdout, reason = "says what was skipped and how much was tested")]

mod alertmanager;
#[cfg(feature = "lint")]
mod change;
#[cfg(feature = "lint")]
mod mutants;
mod scenarios;
mod stories;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use metric_catalog::alerts;

#[expect(clippy::disallowed_methods, reason = "a switch of these tests only")]
fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| !value.is_empty() && value != "0")
}

/// A program, or none where it is not installed.
fn tool(name: &'static str) -> Option<Command> {
    if Command::new(name).arg("--version").output().is_ok() {
        return Some(Command::new(name));
    }
    assert!(!in_ci(), "{name} is missing: install Debian's prometheus and prometheus-alertmanager");
    println!("SKIP: {name} is not installed");
    None
}

fn promtool() -> Option<Command> {
    tool("promtool")
}

fn assert_success(what: &str, output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{what}:\n{}\n{}", text(&output.stdout), text(&output.stderr));
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// An empty folder below the target folder.
fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if path.exists() {
        std::fs::remove_dir_all(&path).expect("the last run's folder can go");
    }
    std::fs::create_dir_all(&path).expect("the target folder can be written");
    path
}

#[cfg(feature = "install")]
#[test]
fn page_passes_the_linter() {
    use metric_catalog::install::Registry;
    use metric_catalog::labels::{Format, Kernel, Op, Role};
    use metric_catalog::server;

    if promtool().is_none() {
        return;
    }
    let registry = Registry::new(Role::Unified, "some/model").expect("the catalog can be exported");
    let kernel = (Op::new("qkv"), Format::new("q4_1"), Kernel::new("avx2"));
    registry.gauge(server::KERNEL_INFO, kernel).set(1.0);
    registry.histogram(server::INTER_TOKEN_LATENCY, ()).record(0.02);
    lint_page(&registry.render());
}

/// One series of each family of a node exporter.
#[test]
fn page_of_a_node_passes_the_linter() {
    use std::fmt::Write;

    use metric_catalog::def::Values;

    if promtool().is_none() {
        return;
    }
    let mut page = String::new();
    for info in metric_catalog::node::ALL {
        let (name, kind) = (info.name, info.kind.as_str());
        let labels = info.labels.iter().map(|label| match label.values {
            Values::Closed(values) => format!("{}=\"{}\"", label.name, values[0]),
            Values::Open { .. } => format!("{}=\"0\"", label.name),
        });
        let labels = labels.collect::<Vec<_>>().join(",");
        let help = format!("# HELP {name} {}\n# TYPE {name} {kind}\n", info.help);
        writeln!(page, "{help}{name}{{{labels}}} 1").expect("writing to a String cannot fail");
    }
    lint_page(&page);
}

fn lint_page(page: &str) {
    use std::io::Write;

    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(page.as_bytes()).expect("promtool reads its input");
    drop(input);
    let output = child.wait_with_output().expect("promtool ends");
    assert_success("promtool check metrics", &output);
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn rules_and_configuration_load() {
    let Some(mut promtool) = promtool() else { return };
    let config = folder().join("prometheus.yml");
    let output = promtool.args(["check", "config"]).arg(config).output().expect("promtool runs");
    assert_success("promtool check config", &output);
    let text = String::from_utf8_lossy(&output.stdout);
    let rules: usize =
        alerts::groups().iter().map(|group| group.recordings.len() + group.alerts.len()).sum();
    assert!(text.contains(&format!("SUCCESS: {rules} rules found")), "{text}");
}

/// The scrape configuration and the rules speak of the same jobs.
#[test]
fn jobs_are_those_of_the_rules() {
    let text = std::fs::read_to_string(folder().join("prometheus.yml")).expect("it is there");
    let jobs: Vec<_> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- job_name: sightline-"))
        .collect();
    let roles: Vec<_> =
        metric_catalog::labels::Role::ALL.iter().map(|role| role.as_str()).collect();
    let exporter = alerts::NODE_JOB.strip_prefix("sightline-").expect("named like the others");
    assert_eq!(jobs, [roles.as_slice(), &[exporter]].concat());
    for role in roles {
        let inside = |text: &str| text.split(['(', '|', ')']).any(|part| part == role);
        assert!(inside(alerts::SERVING_JOBS), "{role}");
    }
    let settings = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    for line in settings {
        assert!(!line.contains("engine_role:") && !line.contains("model_name:"), "{line}");
    }
    let example = folder().join("targets/pair.yml.example");
    let example = std::fs::read_to_string(example).expect("it is there");
    for job in &jobs {
        assert!(text.contains(&format!("- files: [\"targets/{job}*.yml\"]")), "{job}");
    }
    for role in &jobs[1..jobs.len() - 1] {
        let targets =
            format!("# {role}.yml\n- targets: [\"{role}-0:8000\"]\n  labels: {{cluster: ");
        assert!(example.contains(&targets), "{role}");
    }
    let of_hosts = std::fs::read_to_string(folder().join("targets/node.yml.example"));
    let of_hosts = of_hosts.expect("it is there");
    let target = format!("- targets: [\"host-0:{}\"]\n", metric_catalog::node::PORT);
    assert!(of_hosts.contains(&target), "{of_hosts}");
}
