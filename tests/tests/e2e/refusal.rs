//! A refusal is an answer of the front door: it does not wait for the engine, whose step may take
//! as long as it likes.

use crate::eventually;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use tests::cluster::Server;
use tests::http;

/// A prompt of 40,000 tokens is computed in one step, and that takes minutes; until then its tokens
/// count, and another such prompt is too much.
const STUCK: &[&str] = &[
    "--model",
    "fake:step=1ms,prefill-token=5ms,context=65536",
    "--served-model-name",
    "m",
    "--max-batch-tokens",
    "40000",
    "--prefill-chunk",
    "40000",
    "--max-queued-tokens",
    "50000",
    "--ttft-objective",
    "0s",
    "--kv-pool-bytes",
    "128MiB",
];

fn body(letter: &str) -> String {
    json!({"model": "m", "prompt": letter.repeat(40_000), "max_tokens": 1, "stream": true})
        .to_string()
}

fn running(server: &Server) -> Result<f64> {
    Ok(server.metrics()?.sum("sightline_running_requests", &[]))
}

/// Asks `door` while `engine` is in the middle of a step.
fn is_refused_during_a_step(door: &Server, engine: &Server) -> Result<()> {
    let turns = || -> Result<f64> {
        Ok(engine.metrics()?.sum("sightline_scheduler_iterations_total", &[]))
    };
    let idle = turns()?;
    let api = door.api.clone();
    std::thread::spawn(move || {
        // It is cut off when the server ends.
        drop(http::open(&api, "POST", "/v1/completions", Some(body("x").as_bytes())));
    });
    eventually("it is being computed", || Ok(running(engine)? == 1.0))?;
    let before = turns()?;
    let refused = http::request(&door.api, "POST", "/v1/completions", Some(body("z").as_bytes()))?;
    ensure!(refused.status == 429, "status {}", refused.status);
    let retry_after = refused.header("retry-after").context("a refusal says when to come back")?;
    ensure!(retry_after.parse::<u64>()? > 0, "Retry-After {retry_after}");
    let after = turns()?;
    ensure!(before == after, "a step ended meanwhile: {idle}, {before}, {after}");
    let why = [("reason", "queue_tokens_full")];
    ensure!(engine.metrics()?.sum("sightline_requests_rejected_total", &why) == 1.0);
    Ok(())
}

#[test]
fn a_refusal_does_not_wait_for_a_step_of_the_engine() -> Result<()> {
    let unified = Server::start(STUCK)?;
    is_refused_during_a_step(&unified, &unified)?;
    drop(unified);
    let prefill = Server::start(&[STUCK, &["--role", "prefill", "--transfer-port", "0"]].concat())?;
    let transfer = prefill.transfer.as_deref().context("a prefill worker has a link")?;
    let (_, port) = transfer.rsplit_once(':').context("an address")?;
    let peer = format!("{}@{port}", prefill.api.trim_start_matches("http://"));
    let decode = Server::start(&[STUCK, &["--role", "decode", "--prefill-peer", &peer]].concat())?;
    eventually("the pair is linked", || {
        Ok(http::get(&decode.api, "/readyz").is_ok_and(|answer| answer.status == 200))
    })?;
    is_refused_during_a_step(&decode, &prefill)
}
