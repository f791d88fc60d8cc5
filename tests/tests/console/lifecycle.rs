//! How `sightline up` begins and ends.

use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tests::{fixture_model, http};

use crate::up::{Up, command, signal};

/// Runs `up` to its end: exit code and lines of standard error.
fn fails(args: &[&str]) -> Result<(i32, Vec<String>)> {
    let output = command(args).output()?;
    let text = String::from_utf8(output.stderr)?;
    let code = output.status.code().context("`up` was ended by a signal")?;
    Ok((code, text.lines().map(str::to_owned).collect()))
}

fn tiny() -> String {
    fixture_model("tiny-llama").display().to_string()
}

#[test]
fn a_port_in_use_is_one_line_that_says_what_to_do() -> Result<()> {
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let port = taken.local_addr()?.port().to_string();
    for option in ["--console-port", "--port"] {
        let other = if option == "--port" { "--console-port" } else { "--port" };
        let (code, lines) = fails(&["--model", &tiny(), option, &port, other, "0"])?;
        ensure!(code == 75 && lines.len() == 1, "{option}: code {code}: {lines:?}");
        ensure!(lines[0].contains(&port) && lines[0].contains(option), "{lines:?}");
    }
    Ok(())
}

#[test]
fn a_missing_or_broken_model_is_named_before_anything_starts() -> Result<()> {
    let (code, lines) = fails(&["--model", "/no/such/model", "--port", "0"])?;
    ensure!(code == 78 && lines.len() == 1, "code {code}: {lines:?}");
    ensure!(lines[0].contains("/no/such/model") && lines[0].contains("--model"), "{lines:?}");

    let folder = std::env::temp_dir().join(format!("broken-model-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("config.json"), "{ not json")?;
    let path = folder.display().to_string();
    let outcome = fails(&["--model", &path, "--port", "0", "--console-port", "0"]);
    std::fs::remove_dir_all(&folder)?;
    let (code, lines) = outcome?;
    ensure!(code != 0 && lines.len() == 1, "code {code}: {lines:?}");
    ensure!(lines[0].contains("config.json"), "{lines:?}");
    Ok(())
}

#[test]
fn sigterm_drains_and_exits_with_zero() -> Result<()> {
    let up = Up::start(&fixture_model("tiny-llama"), &["--no-demo-load"])?;
    let body = json!({
        "model": "tiny-llama", "prompt": "a", "max_tokens": 60, "ignore_eos": true, "stream": true,
    });
    let body = body.to_string();
    let mut answer = http::open(&up.api, "POST", "/v1/completions", Some(body.as_bytes()))?;
    ensure!(answer.status == 200, "status {}", answer.status);
    let mut text = String::from_utf8(answer.chunk()?.context("a first piece")?)?;
    up.signal("TERM")?;
    while let Some(piece) = answer.chunk()? {
        text += &String::from_utf8(piece)?;
    }
    ensure!(text.contains("[DONE]"), "the running request was cut off: {text}");
    let (status, said) = up.wait()?;
    ensure!(status.code() == Some(0), "{status}: {said}");
    Ok(())
}

#[test]
fn a_second_signal_ends_everything_now() -> Result<()> {
    let up = Up::start(Path::new("fake"), &["--no-demo-load"])?;
    let body = json!({
        "model": "fake", "prompt": "a", "max_tokens": 4000, "ignore_eos": true, "stream": true,
    });
    let body = body.to_string();
    let mut answer = http::open(&up.api, "POST", "/v1/completions", Some(body.as_bytes()))?;
    ensure!(answer.status == 200, "status {}", answer.status);
    ensure!(answer.chunk()?.is_some(), "no first piece");
    up.signal("TERM")?;
    let probe = json!({ "model": "fake", "prompt": "a" });
    // Draining has begun when a new request is refused; then the second signal counts as one.
    let refused = (0..1_000).any(|_| {
        http::post(&up.api, "/v1/completions", &probe).map_or(true, |answer| answer.status == 503)
    });
    ensure!(refused, "the server does not drain");
    up.signal("TERM")?;
    let (status, said) = up.wait()?;
    ensure!(status.code() == Some(130), "{status}: {said}");
    Ok(())
}

/// A connection whose end tells that the server is gone.
fn watch(api: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(api.trim_start_matches("http://"))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    Ok(stream)
}

fn wait_for_end(mut stream: TcpStream) -> Result<()> {
    match stream.read(&mut [0]) {
        Ok(0) => Ok(()),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
        other => anyhow::bail!("the server lives on: {other:?}"),
    }
}

#[test]
fn the_server_does_not_outlive_a_killed_parent() -> Result<()> {
    let up = Up::start(&fixture_model("tiny-llama"), &["--no-demo-load"])?;
    let watched = watch(&up.api)?;
    up.signal("KILL")?;
    wait_for_end(watched)
}

#[test]
fn the_death_of_the_server_ends_up_with_its_cause() -> Result<()> {
    let up = Up::start(&fixture_model("tiny-llama"), &["--no-demo-load"])?;
    let children = up.children()?;
    // The server and, after it, the node exporter.
    ensure!(children.len() == 2, "children: {children:?}");
    signal(children[0], "KILL")?;
    let (status, said) = up.wait()?;
    ensure!(status.code() == Some(70), "{status}: {said}");
    ensure!(said.contains("the server ended (signal: 9"), "{said}");
    Ok(())
}

#[test]
fn the_prometheus_api_answers_with_data_of_the_server() -> Result<()> {
    let up = Up::start(&fixture_model("tiny-llama"), &["--no-demo-load"])?;
    let ask = |path: &str| -> Result<serde_json::Value> {
        Ok(http::get(&up.console, path)?.json()?["data"].clone())
    };
    // The first scrape is a second away: each question waits for the answer to the one before.
    let mut answers = 0;
    for _ in 0..10_000 {
        let up = ask("/api/v1/query?query=sum(up)")?;
        if up["result"][0]["value"][1] == "2" {
            answers += 1;
            break;
        }
    }
    ensure!(answers == 1, "the targets never came up");
    let jobs = ask("/api/v1/label/job/values")?;
    ensure!(jobs == json!(["sightline-node", "sightline-unified"]), "{jobs}");
    let metadata = ask("/api/v1/metadata?metric=sightline_running_requests")?;
    ensure!(metadata["sightline_running_requests"][0]["type"] == "gauge", "{metadata}");
    let rules = ask("/api/v1/rules")?;
    ensure!(rules["groups"].as_array().is_some_and(|g| !g.is_empty()), "{rules}");
    Ok(())
}
