//! The load generator and the server count the same: two real processes, one truth.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use tests::cluster::{Server, binary};
use tests::fixture_model;

/// The program that holds the bench, built once a process.
fn sightline() -> &'static Path {
    static BINARY: OnceLock<std::path::PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| binary("stack", "sightline"))
}

/// Runs a bench to its end; its only run as JSON.
fn bench(server: &Server, options: &str) -> Result<Value> {
    let output = Command::new(sightline())
        .args(["bench", "--base-url", &server.api, "--json", "-", "--quiet", "--seed", "11"])
        .args(options.split_whitespace())
        .output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(0), "{:?}: {told}", output.status);
    let results: Value = serde_json::from_slice(&output.stdout).context("no JSON")?;
    assert_eq!(results["lengths_by"], "/tokenize");
    Ok(results["runs"][0].clone())
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// All rows agree; those named are not even vague.
fn agrees(run: &Value, exact: &[&str]) {
    let rows = run["counters"]["rows"].as_array().expect("the server has our counters");
    assert_eq!(run["counters"]["differences"], 0, "{rows:#?}");
    for name in exact {
        let row = rows.iter().find(|row| row["name"] == *name).expect(name);
        assert_eq!(row["bench_min"], row["bench_max"], "{row}");
        assert_eq!(number(&row["bench_min"]), number(&row["server"]), "{row}");
    }
}

#[test]
fn counts_agree_exactly_under_refusals() -> Result<()> {
    let server = Server::start(&[
        "--model",
        "fake:step=4ms",
        "--max-running-requests",
        "2",
        "--max-queued-requests",
        "3",
    ])?;
    let run = bench(
        &server,
        "--endpoint completions --rate 150 --max-requests 120 --prompt-tokens 8..60 \
         --output-tokens 4..12 --burst 12 --burst-every 200ms",
    )?;
    agrees(
        &run,
        &[
            "offered",
            "admitted",
            "rejected",
            "rejected: queue_requests_full",
            "finished",
            "complete",
            "aborted",
            "prompt tokens",
            "generated tokens",
            "first tokens",
        ],
    );
    let of = |key: &str| number(&run["requests"][key]);
    assert!(of("refused") > 0.0 && of("completed") > 0.0, "{run}");
    assert_eq!(of("refused") + of("completed"), 120.0);
    for refusal in run["refusals"].as_array().context("refusals")? {
        assert!(number(&refusal["retry_after_min"]) >= 1.0, "{refusal}");
    }
    // The server is new: its counters are those of the bench, seen by another reader.
    let page = server.metrics()?;
    assert_eq!(page.sum("sightline_requests_admitted_total", &[]), of("completed"));
    assert_eq!(page.sum("sightline_requests_rejected_total", &[]), of("refused"));
    let tokens = number(&run["tokens"]["output"]);
    assert_eq!(page.sum("sightline_generation_tokens_total", &[]), tokens);
    let planned = &run["tokens"]["prompts_planned"];
    assert_eq!(planned["meant"], planned["sent"], "prompts have the length that was asked for");
    Ok(())
}

#[test]
fn clients_that_leave_are_accounted_for() -> Result<()> {
    let server = Server::start(&["--model", "fake:step=3ms"])?;
    let run = bench(
        &server,
        "--endpoint completions --rate 100 --max-requests 60 --prompt-tokens 20 \
         --output-tokens 200 --abort-rate 0.5",
    )?;
    agrees(&run, &["offered", "admitted", "rejected", "finished", "first tokens"]);
    let of = |key: &str| number(&run["requests"][key]);
    assert!(of("left") > 10.0, "{run}");
    assert_eq!(of("left") + of("completed"), 60.0);
    let page = server.metrics()?;
    let aborted = page.sum("sightline_requests_aborted_total", &[("initiator", "client")]);
    assert!(aborted > 0.0 && aborted <= of("left"), "{aborted} of {}", of("left"));
    Ok(())
}

#[test]
fn conversations_with_a_real_tokenizer() -> Result<()> {
    let model = fixture_model("tiny-llama");
    let server = Server::start(&["--model", &model.to_string_lossy()])?;
    let run = bench(
        &server,
        "--concurrency 3 --max-requests 18 --turns 3 --think-time 1ms --prompt-tokens 24..40 \
         --output-tokens 4 --prefix-groups 2 --prefix-tokens 32",
    )?;
    agrees(&run, &["offered", "admitted", "finished", "complete", "generated tokens"]);
    assert_eq!(number(&run["requests"]["completed"]), 18.0);
    let planned = &run["tokens"]["prompts_planned"];
    // First turns only: later ones repeat answers. Three clients share the 18 requests, so up to
    // two conversations are still under way when the last one begins.
    let first = number(&planned["count"]);
    assert!((6.0..=8.0).contains(&first), "{planned}");
    let (meant, sent) = (number(&planned["meant"]), number(&planned["sent"]));
    assert!((sent / meant - 1.0).abs() < 0.05, "{planned}");
    let all = number(&run["tokens"]["prompt"]) / 18.0;
    assert!(all > sent / first, "later turns are longer: {all}");
    Ok(())
}
