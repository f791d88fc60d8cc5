//! A host tier behind a device that is too small, with clients that talk at the same time: nobody
//! can tell by the answers, everybody by the numbers.

use crate::model_name;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::process::Command;
use tests::cluster::{Server, server_binary};
use tests::scrape::Page;
use tests::{fixture_model, http};

/// Clients that talk at a time.
const TALKS: usize = 4;
/// Turns of each.
const TURNS: usize = 4;

/// What one turn was answered.
#[derive(Debug, PartialEq)]
struct Turn {
    text: String,
    cached: u64,
}

/// All turns of all clients; each turn says everything that was said before it.
fn talk(server: &Server) -> Result<Vec<Vec<Turn>>> {
    let model = &model_name(server)?;
    std::thread::scope(|scope| {
        let client = |talk| {
            scope
                .spawn(move || (0..TURNS).map(move |turn| say(server, model, talk, turn)).collect())
        };
        let clients: Vec<_> = (0..TALKS).map(client).collect();
        clients.into_iter().map(|client| client.join().expect("a client that panicked")).collect()
    })
}

fn say(server: &Server, model: &str, talk: usize, turn: usize) -> Result<Turn> {
    let said = (0..=turn).map(|turn| {
        let content = format!("{talk}-{turn} {}", "What does the harbour keep? ".repeat(5));
        json!({"role": "user", "content": content})
    });
    let messages: Vec<Value> = said.collect();
    let body = json!({
        "model": model, "messages": messages, "max_tokens": 8, "temperature": 0,
        "ignore_eos": true,
    });
    let answer = http::post(&server.api, "/v1/chat/completions", &body)?;
    assert_eq!(answer.status, 200, "{:?}", answer.text());
    let answer = answer.json()?;
    let text = answer["choices"][0]["message"]["content"].as_str().context("a text")?.to_owned();
    let cached = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
    Ok(Turn { text, cached: cached.as_u64().context("a count")? })
}

fn texts(talks: &[Vec<Turn>]) -> Vec<&str> {
    talks.iter().flatten().map(|turn| turn.text.as_str()).collect()
}

fn cached(talks: &[Vec<Turn>]) -> u64 {
    talks.iter().flatten().map(|turn| turn.cached).sum()
}

/// Bytes of the tier by `plan`, with the flags of a server.
fn planned(flags: &[&str]) -> Result<f64> {
    let output = Command::new(server_binary())
        .args(["plan", "--port", "0", "--format", "json"])
        .args(flags)
        .output()?;
    let plan: Value = serde_json::from_slice(&output.stdout)?;
    plan["resolved"]["host_tier"]["total_bytes"].as_f64().context("a sum")
}

/// Serves `model` with and without a tier.
fn check(model: &str, flags: &[&str]) -> Result<()> {
    let model = fixture_model(model);
    let model = model.to_string_lossy();
    let plain: Vec<&str> = [&["--model", &*model], flags].concat();
    let tiered = [&plain[..], &["--enable-hierarchical-cache", "--hicache-ratio", "6"]].concat();
    let without = talk(&Server::start(&plain)?)?;
    let server = Server::start(&tiered)?;
    // The second time all of it was said before.
    let (with, again) = (talk(&server)?, talk(&server)?);
    assert_eq!(texts(&with), texts(&without), "{flags:?}");
    assert_eq!(texts(&again), texts(&without), "{flags:?}");

    let page = server.metrics()?;
    let source = |source| page.sum("sightline_prompt_tokens_total", &[("source", source)]);
    let (device, host) = (source("device"), source("host"));
    assert!(host > 0.0, "{flags:?}: nothing came from the host");
    let told = cached(&with) + cached(&again);
    assert_eq!(device + host, told as f64, "{flags:?}: what clients were told");
    // Without it nothing is found that nobody said before, and less of that is still there.
    assert!(cached(&again) > cached(&without), "{flags:?}: {with:?} {again:?} {without:?}");
    let loaded = page.sum("sightline_hicache_transfer_bytes_total", &[("direction", "load")]);
    assert!(loaded > 0.0, "{flags:?}");
    let capacity = page.sum("sightline_kv_pool_capacity_bytes", &[("tier", "host")]);
    assert_eq!(capacity, planned(&tiered)?, "{flags:?}");
    used_within_capacity(&page);
    Ok(())
}

fn used_within_capacity(page: &Page) {
    for tier in ["device", "host"] {
        let sum = |what: &str| page.sum(&format!("sightline_kv_pool_{what}"), &[("tier", tier)]);
        let (used, capacity) = (sum("used_slots"), sum("capacity_slots"));
        assert!(used > 0.0 && used <= capacity, "{tier}: {used} of {capacity}");
    }
}

const SMALL: [&str; 6] =
    ["--kv-pool-bytes", "1MiB", "--max-context", "500", "--max-running-requests", "4"];

#[test]
fn talks_that_do_not_fit_the_device_come_back_from_the_host() -> Result<()> {
    check("tiny-llama", &SMALL)
}

#[test]
fn ranks_load_their_own_part() -> Result<()> {
    check("tiny-llama", &[&SMALL[..], &["--tp-size", "2"]].concat())
}
