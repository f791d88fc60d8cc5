//! A server's life: answers, drains, says why it does not start.

use crate::{eventually, model_name, stream};
use anyhow::Result;
use serde_json::json;
use std::process::Command;
use tests::cluster::{Server, server_binary};
use tests::{fixture_model, http};

/// SIGTERM.
const TERM: i32 = 15;

#[test]
fn a_checkpoint_answers_and_the_page_counts_it() -> Result<()> {
    let model = fixture_model("tiny-qwen3");
    let server = Server::start(&["--model", &model.to_string_lossy()])?;
    let body = json!({
        "model": model_name(&server)?,
        "messages": [{"role": "user", "content": "What does the harbour office keep?"}],
        "max_tokens": 12,
        "temperature": 0,
    });
    let answer = http::post(&server.api, "/v1/chat/completions", &body)?;
    assert_eq!(answer.status, 200, "{:?}", answer.text());
    let answer = answer.json()?;
    let generated = answer["usage"]["completion_tokens"].as_f64().unwrap_or_default();
    assert!(generated >= 1.0, "{answer}");
    let page = server.metrics()?;
    assert_eq!(page.sum("sightline_generation_tokens_total", &[]), generated);
    let prompt = answer["usage"]["prompt_tokens"].as_f64().unwrap_or_default();
    assert_eq!(page.sum("sightline_prompt_tokens_total", &[]), prompt);
    for path in ["/livez", "/readyz", "/startupz", "/health"] {
        assert_eq!(http::get(&server.probes, path)?.status, 200, "{path} of the probes");
        assert_eq!(http::get(&server.api, path)?.status, 200, "{path} of the API");
    }
    Ok(())
}

#[test]
fn sigterm_finishes_what_runs_and_exits_0() -> Result<()> {
    let mut server = Server::start(&["--model", "fake:step=20ms"])?;
    let mut running = stream(&server, "hello", 40)?;
    assert_eq!(running.status, 200);
    server.signal(TERM)?;
    eventually("not ready while it drains", || {
        Ok(http::get(&server.probes, "/readyz")?.status == 503)
    })?;
    let mut events = Vec::new();
    while let Some(event) = running.event()? {
        events.push(event);
    }
    assert_eq!(events.last().map(String::as_str), Some("[DONE]"), "the stream was cut");
    assert_eq!(server.wait()?.code(), Some(0));
    Ok(())
}

#[test]
fn a_setting_that_cannot_work_is_refused_before_anything_is_loaded() -> Result<()> {
    let model = fixture_model("tiny-llama");
    let refused = |flag: &str, value: &str| -> Result<(Option<i32>, String)> {
        let output = Command::new(server_binary())
            .args(["serve", "--model", &model.to_string_lossy(), "--port", "0", flag, value])
            .output()?;
        Ok((output.status.code(), String::from_utf8(output.stderr)?))
    };
    for (flag, value, code) in [
        ("--max-context", "999999", 78),
        ("--page-tokens", "0", 78),
        ("--kv-pool-bytes", "900TiB", 69),
        ("--max-runing-requests", "4", 64),
    ] {
        let (status, message) = refused(flag, value)?;
        assert_eq!(status, Some(code), "{flag} {value}: {message}");
        assert!(message.contains(flag), "{flag} {value}: {message}");
    }
    Ok(())
}
