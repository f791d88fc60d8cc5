//! `doctor` against the real Prometheus that scrapes pages made from what is known of each engine.

use crate::Scratch;
use anyhow::{Context, Result, ensure};
use metric_catalog::engines::Engine;
use metric_catalog::engines::synth::{Hole, Process};
use serde_json::Value;
use std::process::{Command, Output};
use tests::prometheus::{Pages, Prometheus};

/// A scraped process: what it is, and the label `cluster` of its jobs.
struct Scraped {
    process: Process,
    /// Name of the jobs; `-loads` is added for the second page.
    job: &'static str,
    labels: &'static str,
}

fn scraped(engine: Engine, version: &str, role: &str) -> Scraped {
    let job = engine.as_str();
    let labels = match engine {
        Engine::Sglang => "{cluster: c1, node: h1}",
        Engine::Vllm => "{cluster: c1, node: h1, engine_role: unified}",
    };
    Scraped { process: Process::new(engine, version, role), job, labels }
}

/// A Prometheus that scrapes the processes, and what they are scraped from.
fn cluster(name: &str, all: Vec<Scraped>) -> Result<(Vec<Pages>, Prometheus)> {
    let mut config = "global: {scrape_interval: 1s}\nscrape_configs:\n".to_owned();
    let mut pages = Vec::new();
    for Scraped { process, job, labels } in all {
        let loads = process.engine == Engine::Sglang;
        let of = process.clone();
        let served = Pages::start(move |path, scrape| {
            let job = if path.starts_with("/v1/loads") { "loads" } else { "metrics" };
            of.page(job, 100.0 + 10.0 * scrape as f64)
        })?;
        let target =
            format!("static_configs: [{{targets: [\"{}\"], labels: {labels}}}]\n", served.address,);
        config.push_str(&format!("- job_name: {job}\n  {target}"));
        if loads && !process.holes.contains(&Hole::Job("loads".to_owned())) {
            config.push_str(&format!(
                "- job_name: {job}-loads\n  metrics_path: /v1/loads\n  \
                 params: {{format: [prometheus]}}\n  {target}"
            ));
        }
        pages.push(served);
    }
    let prometheus = Prometheus::start(name, &config, &[])?;
    // Every target was scraped, twice.
    prometheus.until("min(count_over_time(up[1m])) > 1")?;
    Ok((pages, prometheus))
}

fn doctor(prometheus: &str, args: &[&str]) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sightline-dashboards"));
    Ok(command.args(["doctor", "--prometheus", prometheus]).args(args).output()?)
}

fn report(prometheus: &Prometheus, args: &[&str]) -> Result<Value> {
    let output = doctor(&prometheus.url, &[&["--format", "json"], args].concat())?;
    ensure!(output.status.code() == Some(0), "{output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Texts of a list of objects.
fn texts(list: &Value, key: &str) -> Vec<String> {
    let all = list.as_array().into_iter().flatten();
    all.filter_map(|one| one[key].as_str().map(str::to_owned)).collect()
}

/// What is in the way of panels and alerts: steps and what is missing.
fn causes(report: &Value) -> Vec<(String, String)> {
    let verdicts = report["verdicts"].as_array().into_iter().flatten();
    let all = verdicts.flat_map(|verdict| verdict["causes"].as_array().into_iter().flatten());
    let text = |cause: &Value, key: &str| cause[key].as_str().unwrap_or_default().to_owned();
    all.map(|cause| (text(cause, "step"), text(cause, "missing"))).collect()
}

#[test]
fn engines_versions_roles_and_jobs_are_found() -> Result<()> {
    if Prometheus::is_missing() {
        return Ok(());
    }
    let all = vec![
        scraped(Engine::Sglang, "0.5.23", "prefill"),
        scraped(Engine::Sglang, "0.5.23", "decode"),
        scraped(Engine::Vllm, "0.33.0", "unified"),
    ];
    let all = all.into_iter().enumerate().map(|(at, one)| {
        let job = ["sglang-p", "sglang-d", "vllm"][at];
        Scraped { job, ..one }
    });
    let (_pages, prometheus) = cluster("doctor-found", all.collect())?;
    let report = report(&prometheus, &[])?;
    let engines = report["cluster"]["engines"].as_array().context("engines")?;
    ensure!(engines.len() == 2, "{report}");
    let of = |at: usize, key: &str| engines[at][key].clone();
    ensure!(of(0, "target") == "sglang" && of(0, "version") == "0.5.23", "{report}");
    ensure!(of(0, "roles")["prefill"] == 1 && of(0, "roles")["decode"] == 1, "{report}");
    ensure!(of(1, "target") == "vllm" && of(1, "version") == "0.33.0", "{report}");
    ensure!(of(1, "roles")["unified"] == 1, "{report}");
    let whats = texts(&report["findings"], "what").join("; ");
    ensure!(!whats.contains("cluster") && !whats.contains("fail"), "{whats}");
    ensure!(report["next"].as_array().is_some_and(|next| !next.is_empty()), "{report}");
    Ok(())
}

#[test]
fn each_version_complete_has_no_hole_that_a_job_or_a_label_would_fill() -> Result<()> {
    if Prometheus::is_missing() {
        return Ok(());
    }
    for engine in Engine::ALL.iter().copied() {
        for version in &metric_catalog::engines::signals::of(engine).versions {
            let one = scraped(engine, &version.version, "unified");
            let (_pages, prometheus) = cluster("doctor-whole", vec![one])?;
            let report = report(&prometheus, &[])?;
            ensure!(report["cluster"]["engines"][0]["version"] == *version.version, "{report}");
            let whole = causes(&report);
            let fixable = whole.iter().find(|(step, _)| {
                step.contains("scrape job for")
                    || step.contains("target label")
                    || step.contains("start the engine with")
            });
            ensure!(fixable.is_none(), "{engine} {}: {fixable:?}", version.version);
        }
    }
    Ok(())
}

#[test]
fn holes_are_named_with_their_step() -> Result<()> {
    if Prometheus::is_missing() {
        return Ok(());
    }
    let holed = Scraped { labels: "{node: h1}", ..scraped(Engine::Sglang, "0.5.23", "unified") };
    let whole = Process { ranks: 2, ..holed.process.clone() };
    let process = whole
        .without(Hole::Job("loads".to_owned()))
        .without(Hole::Flag("--enable-hierarchical-cache".to_owned()));
    let roleless = Scraped { labels: "{cluster: c}", ..scraped(Engine::Vllm, "0.33.0", "unified") };
    let (_pages, prometheus) =
        cluster("doctor-holes", vec![Scraped { process, ..holed }, roleless])?;
    let scratch = Scratch::new("doctor");
    let folder = scratch.0.to_string_lossy().into_owned();
    let report = report(&prometheus, &["--out", &folder])?;
    let whats = texts(&report["findings"], "what").join("; ");
    for words in ["1 of 1 processes have no label cluster", "series without engine_role", "2 ranks"]
    {
        ensure!(whats.contains(words), "{words}: {whats}");
    }
    if has_boards(&report) {
        let all = causes(&report);
        for words in ["/v1/loads?format=prometheus", "--enable-hierarchical-cache"] {
            ensure!(all.iter().any(|(step, _)| step.contains(words)), "{words}: {all:?}");
        }
    }
    let read = |file: &str| std::fs::read_to_string(scratch.0.join(file)).context(file.to_owned());
    let scrape = read("scrape/sglang.yml")?;
    ensure!(scrape.contains("metrics_path: /v1/loads") && scrape.contains("format: [prometheus]"));
    ensure!(scrape.contains("--enable-metrics"), "{scrape}");
    ensure!(read("scrape/vllm.yml")?.contains("engine_role: unified"));
    let readme = read("README.md")?;
    ensure!(
        readme.contains("push --grafana") && readme.contains("promtool check config"),
        "{readme}"
    );
    let config = format!("global: {{scrape_interval: 5s}}\n{scrape}");
    std::fs::write(scratch.0.join("prometheus.yml"), config)?;
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "config"]).arg(scratch.0.join("prometheus.yml"));
    let checked = promtool.output()?;
    ensure!(checked.status.success(), "{checked:?}");
    Ok(())
}

/// Whether this build has boards for the engines.
fn has_boards(report: &Value) -> bool {
    report["verdicts"].as_array().is_some_and(|all| !all.is_empty())
}

#[test]
fn an_engine_tells_its_version_and_its_missing_flag() -> Result<()> {
    if Prometheus::is_missing() {
        return Ok(());
    }
    let config = "global: {scrape_interval: 1s}\n";
    let prometheus = Prometheus::start("doctor-none", config, &[])?;
    let engine = Pages::start(|path, _| match path {
        "/server_info" => Some(r#"{"version": "0.5.21", "tp_size": 8}"#.to_owned()),
        _ => None,
    })?;
    let url = format!("http://{}", engine.address);
    let output = doctor(&prometheus.url, &["--engine-url", &url, "--format", "json"])?;
    // It answers, and scrapes nothing of ours.
    ensure!(output.status.code() == Some(76), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let seen = &report["cluster"]["asked"][0];
    ensure!(seen["target"] == "sglang" && seen["version"] == "0.5.21", "{seen}");
    let steps = texts(&report["findings"], "step").join("; ");
    ensure!(steps.contains("start it with --enable-metrics"), "{steps}");
    let next = texts(&report["next"], "step");
    ensure!(!next.is_empty() && next.len() <= 3, "{next:?}");
    let text = String::from_utf8(doctor(&prometheus.url, &[])?.stdout)?;
    ensure!(text.contains("next steps\n  1. "), "{text}");
    Ok(())
}

#[test]
fn what_is_wrong_with_the_call_is_told() -> Result<()> {
    for (args, code, words) in [
        (vec!["--prometheus", "http://127.0.0.1:1"], 75, "no connection"),
        (vec!["--prometheus", "x"], 64, "no scheme"),
        (vec!["--prometheus", "http://x", "--window", "0s"], 64, "more than 0"),
        (vec![], 64, "--prometheus URL is missing"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sightline-dashboards"));
        let output = command.arg("doctor").args(&args).output()?;
        let error = String::from_utf8(output.stderr)?;
        ensure!(output.status.code() == Some(code), "{args:?}: {:?} {error}", output.status);
        ensure!(error.contains(words), "{args:?}: {error}");
    }
    Ok(())
}
