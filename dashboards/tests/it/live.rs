//! `live` against the real Prometheus.

use crate::Scratch;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use tests::prometheus::{Pages, Prometheus};

/// One process that works, one of another job that cannot be scraped.
fn page(_path: &str, scrape: u64) -> Option<String> {
    let mut page = String::new();
    for (name, kind, value) in [
        ("a_build_info{version=\"1\"}", "gauge", 1.0),
        ("a_requests_total{code=\"200\"}", "counter", 7.0 * scrape as f64),
        ("a_requests_total{code=\"500\"}", "counter", 0.0),
        ("a_depth{queue=\"x\"}", "gauge", 3.0),
        ("a_idle_sum", "counter", 0.0),
        ("a_idle_count", "counter", 0.0),
    ] {
        let family = name.split('{').next().unwrap_or_default();
        if !page.contains(&format!("# TYPE {family} ")) {
            page.push_str(&format!("# TYPE {family} {kind}\n"));
        }
        page.push_str(&format!("{name} {value}\n"));
    }
    Some(page)
}

fn start() -> Result<(Pages, Prometheus)> {
    let pages = Pages::start(page)?;
    let config = format!(
        "global: {{scrape_interval: 1s}}\n\
         scrape_configs:\n\
         - job_name: a\n  static_configs: [{{targets: [\"{}\"]}}]\n\
         - job_name: gone\n  static_configs: [{{targets: [\"127.0.0.1:1\"]}}]\n",
        pages.address,
    );
    let prometheus = Prometheus::start("live", &config, &[])?;
    prometheus.until("count_over_time(a_depth[1m]) > 3")?;
    Ok((pages, prometheus))
}

/// Panels by name, with the query, the text for nothing, and the verdict that is expected.
const PANELS: &[(&str, &str, Option<&str>, &str)] = &[
    (
        "works",
        "sum by (code) (rate(a_requests_total{job=~\"$job\"}[$__rate_interval]))",
        None,
        "ok",
    ),
    (
        "no errors",
        "rate(a_requests_total{code=\"500\"}[$__rate_interval]) > 0",
        Some("none"),
        "quiet",
    ),
    ("no text", "rate(a_requests_total{code=\"500\"}[$__rate_interval]) > 0", None, "empty"),
    ("idle", "rate(a_idle_sum[1m]) / rate(a_idle_count[1m])", None, "nan"),
    ("no name", "a_misspelt{job=~\"$job\"}", Some("none"), "empty"),
    ("no such value", "a_requests_total{code=\"404\"} > 0", Some("none"), "empty"),
    ("no such label", "a_depth{queue=\"x\",role=\"p\"}", Some("none"), "empty"),
    ("no join", "a_depth * on (code) a_requests_total > 0", Some("none"), "empty"),
    ("no alert", "ALERTS{alertstate=\"firing\"}", None, "waived"),
    ("wrong", "sum(", None, "error"),
    ("of a job", "a_depth{job=\"$gone\"}", Some("none"), "empty"),
];

fn dashboard() -> Value {
    let panel = |(id, (title, expr, no_value, _)): (usize, &(&str, &str, Option<&str>, &str))| {
        let defaults = no_value.map_or_else(|| json!({}), |text| json!({"noValue": text}));
        json!({
            "id": id + 1, "title": title, "type": "timeseries",
            "fieldConfig": {"defaults": defaults},
            "targets": [{"refId": "A", "expr": expr}],
        })
    };
    let variable = |name: &str, query: &str| {
        let all = name == "job";
        json!({"name": name, "type": "query", "query": query, "includeAll": all})
    };
    json!({
        "uid": "theirs",
        "templating": {"list": [
            variable("job", "label_values(a_build_info, job)"),
            variable("gone", "label_values(a_build_info{job=\"gone\"}, job)"),
        ]},
        "panels": PANELS.iter().enumerate().map(panel).collect::<Vec<_>>(),
    })
}

fn live(prometheus: &str, args: &[&str], path: Option<&Path>) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sightline-dashboards"));
    command.args(["live", "--prometheus", prometheus, "--range", "1m"]).args(args);
    Ok(command.args(path).output()?)
}

#[test]
fn every_verdict_has_its_cause() -> Result<()> {
    if Prometheus::is_missing() {
        return Ok(());
    }
    let (_pages, prometheus) = start()?;
    let scratch = Scratch::new("live");
    let file = scratch.0.join("theirs.json");
    std::fs::write(&file, dashboard().to_string())?;
    let output = live(&prometheus.url, &["--format", "json"], Some(&file))?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(report["scrape_interval_seconds"] == 1.0, "{report}");
    let rows = report["targets"].as_array().context("rows")?;
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let found: BTreeMap<String, (String, String)> = rows
        .iter()
        .map(|row| {
            let name = text(row, if row["panel"] == "" { "target" } else { "panel" });
            (name, (text(row, "status"), text(row, "reason")))
        })
        .collect();
    for (name, _, _, expected) in PANELS {
        ensure!(found[*name].0 == *expected, "{name}: {:?}", found[*name]);
    }
    ensure!(found["$job"].0 == "ok" && found["$gone"].0 == "empty", "{found:?}");
    for (name, words) in [
        ("no errors", "none"),
        ("no name", "there is no a_misspelt"),
        ("no such value", "none with code=\"404\" (code is \"200\", \"500\")"),
        ("no such label", "none with role=\"p\" (it has no label role)"),
        ("no join", "labels do not match"),
        ("no alert", "no alert is pending"),
        ("wrong", "parse error"),
        ("$gone", "none with job=\"gone\" (job is \"a\")"),
    ] {
        ensure!(found[name].1.contains(words), "{name}: {}", found[name].1);
    }
    let text = live(&prometheus.url, &[], Some(&scratch.0))?;
    let text = String::from_utf8(text.stdout)?;
    ensure!(text.contains("EMPTY  theirs/no name A: there is no a_misspelt"), "{text}");
    ensure!(text.contains("1 dashboards, 13 queries"), "{text}");
    Ok(())
}

#[test]
fn a_board_without_faults_is_a_yes_and_a_choice_is_taken() -> Result<()> {
    if Prometheus::is_missing() {
        return Ok(());
    }
    let (_pages, prometheus) = start()?;
    let scratch = Scratch::new("live-well");
    let file = scratch.0.join("well.json");
    let mut board = dashboard();
    for list in ["/panels", "/templating/list"] {
        let list = board.pointer_mut(list).and_then(Value::as_array_mut);
        list.context("a list")?.truncate(1);
    }
    std::fs::write(&file, board.to_string())?;
    let well = live(&prometheus.url, &[], Some(&file))?;
    ensure!(well.status.code() == Some(0), "{well:?}");
    let other = live(&prometheus.url, &["--var", "job=b.c"], Some(&file))?;
    ensure!(other.status.code() == Some(1), "{other:?}");
    let text = String::from_utf8(other.stdout)?;
    ensure!(text.contains(r#"none with job=~"b\\.c" (job is "a")"#), "{text}");
    Ok(())
}

#[test]
fn what_is_wrong_with_the_call_is_told() -> Result<()> {
    for (args, code, words) in [
        (vec!["live"], 64, "--prometheus URL is missing"),
        (vec!["live", "--prometheus", "prom:9090"], 64, "no scheme"),
        (vec!["live", "--prometheus", "http://x", "--at", "soon"], 64, "no time"),
        (vec!["live", "--prometheus", "http://x", "--target", "tgi"], 64, "sglang"),
        (vec!["live", "--prometheus", "http://x", "none.json"], 70, "none.json"),
        (vec!["live", "--prometheus", "http://127.0.0.1:1"], 75, "no connection"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sightline-dashboards"));
        let output = command.args(&args).output()?;
        let error = String::from_utf8(output.stderr)?;
        ensure!(output.status.code() == Some(code), "{args:?}: {:?} {error}", output.status);
        ensure!(error.contains(words), "{args:?}: {error}");
    }
    Ok(())
}
