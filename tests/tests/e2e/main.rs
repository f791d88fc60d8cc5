//! End to end: real processes, real sockets, seen from outside.

mod bench;
mod bench_incident;
mod incident;
mod invariants;
mod lifecycle;
mod node;
mod pd;
mod refusal;
mod tier;

use anyhow::Result;
use serde_json::json;
use tests::cluster::Server;
use tests::http;

/// Polls a condition until it holds. Bounded by tries, each of which asks the server something.
fn eventually(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    const TRIES: usize = 10_000;
    for _ in 0..TRIES {
        if holds()? {
            return Ok(());
        }
        std::thread::yield_now();
    }
    anyhow::bail!("never came true in {TRIES} looks: {what}")
}

/// Opens a streamed completion; the answer's head has been read, its events have not.
fn stream(server: &Server, prompt: &str, max_tokens: usize) -> Result<http::Stream> {
    let body = json!({
        "model": model_name(server)?,
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": true,
        "stream": true,
    });
    http::open(&server.api, "POST", "/v1/completions", Some(body.to_string().as_bytes()))
}

fn model_name(server: &Server) -> Result<String> {
    let models = http::get(&server.api, "/v1/models")?.json()?;
    Ok(models["data"][0]["id"].as_str().unwrap_or_default().to_owned())
}
