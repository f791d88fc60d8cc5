//! The boards over other engines against the real Prometheus, which scrapes pages made from the
//! vocabulary of each version with the emitted scrape jobs.

use crate::root;
use anyhow::{Context, Result, ensure};
use metric_catalog::engines::Engine;
use metric_catalog::engines::scrape::{self, Endpoint};
use metric_catalog::engines::signals::{self, Facts};
use metric_catalog::engines::synth::{Hole, Process};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};
use tests::prometheus::{Pages, Prometheus};

/// Seconds of a process's life between two scrapes of it.
const PACE: f64 = 15.0;

fn serve(process: Process) -> Result<Pages> {
    Pages::start(move |path, scrape| {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let job = match path {
            "/metrics" => "metrics",
            "/v1/loads" if query == "format=prometheus" => "loads",
            _ => return None,
        };
        process.page(job, PACE * scrape as f64)
    })
}

/// A cluster of one process of each role, as that version exposes itself.
fn cluster(engine: Engine, version: &str, hole: Option<&Hole>) -> Result<Vec<(Pages, Endpoint)>> {
    let one = |(seed, role): (u64, &str)| {
        let mut process = Process::new(engine, version, role);
        process.seed = seed;
        process.ranks = 2;
        process.holes.extend(hole.cloned());
        let pages = serve(process)?;
        let endpoint = Endpoint {
            address: pages.address.to_string(),
            cluster: "c".to_owned(),
            node: Some(format!("host-{seed}")),
            role: Some(role.to_owned()),
        };
        Ok((pages, endpoint))
    };
    (1..).zip(["prefill", "decode", "unified"]).map(one).collect()
}

/// What `live` says of the boards of an engine: the lines of its report.
fn live(engine: Engine, version: &str, hole: Option<&Hole>) -> Result<Vec<Value>> {
    let cluster = cluster(engine, version, hole)?;
    let endpoints: Vec<Endpoint> = cluster.iter().map(|(_, endpoint)| endpoint.clone()).collect();
    let jobs = scrape::jobs(engine, &endpoints);
    let config = format!("global: {{scrape_interval: 1s}}\nscrape_configs:\n{jobs}");
    let prometheus = Prometheus::start(&format!("{engine}-{version}"), &config, &[])?;
    let (of_each, series) = match engine {
        Engine::Sglang => ("sglang:num_running_reqs", 6),
        Engine::Vllm => ("vllm:num_requests_running", 3),
    };
    prometheus.until(&format!("count(count_over_time({of_each}[1m]) > 4) == {series}"))?;
    let output = Command::new(env!("CARGO_BIN_EXE_sightline-dashboards"))
        .args(["live", "--prometheus", &prometheus.url, "--range", "1m", "--format", "json"])
        .args(["--target", engine.as_str()])
        .output()?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    Ok(report["targets"].as_array().context("lines of the report")?.clone())
}

/// Names of families in an expression.
fn families<'a>(facts: &'a Facts, expr: &str) -> BTreeSet<&'a str> {
    let words = expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    words.filter_map(|word| facts.family(word)).map(|family| family.name.as_str()).collect()
}

/// Each query of each panel gives data, but for those that read what the version does not have.
fn every_panel_has_data(engine: Engine, version: &str) -> Result<()> {
    let facts = signals::of(engine);
    let rows = live(engine, version, None)?;
    let mut counted = 0;
    for row in &rows {
        let text = |key: &str| row[key].as_str().unwrap_or_default();
        let told = format!("{engine} {version}: {row}");
        match text("status") {
            "ok" => counted += 1,
            // No replica may differ from the others, and no alert is there.
            "quiet" => ensure!(text("panel").starts_with("outliers"), "{told}"),
            "waived" => {
                let outliers = text("panel").starts_with("outliers");
                ensure!(outliers || text("expr").contains("ALERTS"), "{told}");
            }
            _ => {
                let read = families(facts, text("expr"));
                let missing = |name: &&str| {
                    facts.family(name).is_some_and(|family| !facts.has(family, version))
                };
                ensure!(version != facts.newest() && read.iter().any(missing), "{told}");
                ensure!(text("status") == "empty", "{told}");
            }
        }
    }
    ensure!(counted * 10 > rows.len() * 7, "{engine} {version}: {counted} of {}", rows.len());
    Ok(())
}

#[test]
fn every_panel_over_sglang_has_data() -> Result<()> {
    if Prometheus::is_missing() {
        return Ok(());
    }
    for version in &signals::of(Engine::Sglang).versions {
        every_panel_has_data(Engine::Sglang, &version.version)?;
    }
    Ok(())
}

#[test]
fn every_panel_over_vllm_has_data() -> Result<()> {
    if Prometheus::is_missing() {
        return Ok(());
    }
    for version in &signals::of(Engine::Vllm).versions {
        every_panel_has_data(Engine::Vllm, &version.version)?;
    }
    Ok(())
}

/// Without the second scrape job only what needs it is empty.
#[test]
fn a_hole_empties_what_needs_it() -> Result<()> {
    if Prometheus::is_missing() {
        return Ok(());
    }
    let newest = signals::of(Engine::Sglang).newest();
    let rows = live(Engine::Sglang, newest, Some(&Hole::Job("loads".to_owned())))?;
    let is_empty = |row: &&Value| row["status"] == "empty";
    let empty: BTreeSet<&str> =
        rows.iter().filter(is_empty).filter_map(|row| row["panel"].as_str()).collect();
    let expected = ["drain-now", "drain-time", "pending-now", "pending-tokens", "prefill-capacity"];
    ensure!(empty == BTreeSet::from(expected), "{empty:?}");
    Ok(())
}

/// The tool, or none where it is not installed.
fn promtool(args: &[&str]) -> Option<Command> {
    if Command::new("promtool").arg("--version").output().is_err() {
        assert!(!crate::tools_are_mandatory(), "promtool is missing");
        tests::skip("promtool is missing");
        return None;
    }
    let mut command = Command::new("promtool");
    command.args(args);
    Some(command)
}

#[test]
fn examples_of_scrape_jobs_load() -> Result<()> {
    for engine in Engine::ALL {
        let Some(mut promtool) = promtool(&["check", "config", "--syntax-only"]) else {
            return Ok(());
        };
        let path = root().join(format!("prometheus/targets/{engine}.yml.example"));
        let output = promtool.arg(&path).output()?;
        ensure!(output.status.success(), "{engine}: {output:?}");
    }
    Ok(())
}

/// `promtool check metrics` reads the pages; it ends with 3 where it only dislikes names, which are
/// not ours.
#[test]
fn pages_are_in_the_format() -> Result<()> {
    for engine in Engine::ALL {
        let facts = signals::of(*engine);
        for version in &facts.versions {
            for job in facts.jobs.keys() {
                let Some(mut promtool) = promtool(&["check", "metrics"]) else { return Ok(()) };
                let process = Process::new(*engine, &version.version, "prefill");
                let page = process.page(job, 60.0).context("it is served")?;
                let mut child = promtool
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()?;
                let mut input = child.stdin.take().context("piped")?;
                let writer = std::thread::spawn(move || input.write_all(page.as_bytes()));
                let output = child.wait_with_output()?;
                writer.join().expect("the writer does not panic")?;
                let told = format!("{engine} {} {job}: {output:?}", version.version);
                ensure!(matches!(output.status.code(), Some(0 | 3)), "{told}");
                ensure!(!String::from_utf8_lossy(&output.stderr).contains("error while"), "{told}");
            }
        }
    }
    Ok(())
}
