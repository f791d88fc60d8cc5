//! Servers that are driven until every counter has moved.

pub(crate) mod pair;
pub(crate) mod router;
mod tier;
mod worker;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use tests::cluster::Server;
use tests::http;
use tests::scrape::Page;

/// A bound on polling; each try asks the server something.
const TRIES: usize = 20_000;

/// All of them, one after the other; the pages at the end of each.
pub(crate) fn all() -> Result<Vec<Page>> {
    let mut pages = vec![everyday()?, overload()?, slow()?, pressure()?, failure()?];
    pages.extend(bounds()?);
    pages.extend([ranks()?, patience()?, cache()?, windows()?, call()?]);
    pages.extend(curve()?);
    pages.extend([tier::prompts_come_again()?, tier::too_many_backups()?]);
    pages.extend(tier::a_store_behind_it()?);
    pages.push(ending("0s", 1)?);
    pages.push(ending("60s", 2)?);
    Ok(pages)
}

fn completion(prompt: &str, tokens: usize, stream: bool) -> Value {
    json!({
        "model": "fake", "prompt": prompt, "max_tokens": tokens, "ignore_eos": true,
        "temperature": 0, "stream": stream
    })
}

/// The same with a priority.
fn ranked(prompt: &str, tokens: usize, priority: i64) -> Value {
    let mut body = completion(prompt, tokens, true);
    body["priority"] = priority.into();
    body
}

/// Sends a request and leaves the answer on the socket.
fn send(server: &Server, path: &str, body: &Value) -> Result<TcpStream> {
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let mut socket = TcpStream::connect(server.api.trim_start_matches("http://"))?;
    socket.write_all((head + &body).as_bytes())?;
    Ok(socket)
}

fn complete(server: &Server, prompt: &str, tokens: usize) -> Result<TcpStream> {
    send(server, "/v1/completions", &completion(prompt, tokens, true))
}

/// Scrapes until `holds`.
fn until(server: &Server, what: &str, holds: impl Fn(&Page) -> bool) -> Result<Page> {
    for _ in 0..TRIES {
        let page = server.metrics()?;
        if holds(&page) {
            return Ok(page);
        }
    }
    anyhow::bail!("never came true: {what}")
}

fn running(page: &Page) -> f64 {
    page.sum("sightline_running_requests", &[])
}

fn waiting(page: &Page) -> f64 {
    page.sum("sightline_queue_requests", &[("queue", "waiting")])
}

/// Requests that reached the engine and wait there: admitted, not ended, not running.
fn aborted(page: &Page, stage: &str) -> f64 {
    page.sum("sightline_requests_aborted_total", &[("stage", stage)])
}

fn idle(server: &Server) -> Result<Page> {
    until(server, "idle", |page| running(page) + waiting(page) == 0.0)
}

/// Every route, method and status that needs no special server; ends by stop and by length.
fn everyday() -> Result<Page> {
    let flags = "--max-body-bytes 64KiB --body-timeout 200ms --max-context 2000";
    let model = ["--model", "fake:step=0ms,eos-per-mille=100"];
    let args: Vec<&str> = model.into_iter().chain(flags.split_whitespace()).collect();
    let server = Server::start(&args)?;
    let api = &server.api;
    let chat = json!({"model": "fake", "messages": [{"role": "user", "content": "Hello"}]});
    assert_eq!(http::post(api, "/v1/chat/completions", &chat)?.status, 200);
    for stream in [false, true] {
        let body = completion("a", 20, stream);
        assert_eq!(http::post(api, "/v1/completions", &body)?.status, 200);
    }
    http::post(api, "/tokenize", &json!({"prompt": "a"}))?;
    http::post(api, "/detokenize", &json!({"tokens": [97]}))?;
    for path in [
        "/v1/models",
        "/v1/models/fake",
        "/v1/models/other",
        "/version",
        "/internal/plan",
        "/health",
        "/internal/load",
        "/admin/config",
    ] {
        http::get(api, path)?;
    }
    settings(api)?;
    for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "FOO1"] {
        http::request(api, method, "/nothing", None)?;
        http::request(api, method, "/v1/completions", Some(b"{}"))?;
    }
    let mut head = TcpStream::connect(api.trim_start_matches("http://"))?;
    head.write_all(b"HEAD /version HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")?;
    head.read_to_end(&mut Vec::new())?;
    assert_eq!(http::request(api, "POST", "/tokenize", None)?.status, 415);
    let large = vec![b' '; 70_000];
    assert_eq!(http::request(api, "POST", "/tokenize", Some(&large))?.status, 413);
    let mut slow = TcpStream::connect(api.trim_start_matches("http://"))?;
    slow.write_all(
        b"POST /tokenize HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
          content-length: 10\r\n\r\n{",
    )?;
    let mut answer = String::new();
    slow.read_to_string(&mut answer)?;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    idle(&server)
}

/// What changes a server, by whom and how it must not be.
fn settings(api: &str) -> Result<()> {
    let send = |method: &str, path: &str, header: &str| -> Result<String> {
        let change = method == "POST" && path == "/admin/config";
        let body = if change { r#"{"ttft-objective": "20s"}"# } else { "{}" };
        let mut socket = TcpStream::connect(api.trim_start_matches("http://"))?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{header}\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        socket.write_all(head.as_bytes())?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        Ok(answer.split(' ').nth(1).unwrap_or_default().to_owned())
    };
    assert_eq!(send("POST", "/admin/config", "")?, "428");
    assert_eq!(send("POST", "/admin/config", "if-match: 4711\r\n")?, "412");
    assert_eq!(send("POST", "/admin/config", "if-match: *\r\n")?, "200");
    assert_eq!(send("POST", "/admin/config", "origin: http://elsewhere\r\n")?, "403");
    assert_eq!(send("POST", "/admin/drain", "")?, "200");
    assert_eq!(send("DELETE", "/admin/drain", "")?, "200");
    Ok(())
}

/// Refusals by count, clients that leave at every stage, objectives that are missed.
fn overload() -> Result<Page> {
    let server = Server::start(&[
        "--model",
        "fake:step=1ms,prefill-token=2ms,context=100000",
        "--max-running-requests",
        "1",
        "--max-queued-requests",
        "1",
        "--max-batch-tokens",
        "8",
        "--ttft-objective",
        "1h",
        "--itl-objective",
        "1us",
        "--e2e-objective",
        "1us",
    ])?;
    assert_eq!(http::post(&server.api, "/v1/completions", &completion("a", 3, false))?.status, 200);
    let decoding = complete(&server, "a", 90_000)?;
    until(&server, "tokens come", |page| {
        running(page) == 1.0 && page.sum("sightline_time_to_first_token_seconds_count", &[]) == 2.0
    })?;
    let queued = complete(&server, "a", 5)?;
    until(&server, "one waits", |page| {
        waiting(page) == 1.0 && page.sum("sightline_requests_admitted_total", &[]) == 3.0
    })?;
    let refused = http::post(&server.api, "/v1/completions", &completion("a", 1, false))?;
    assert_eq!(refused.status, 429);
    drop(queued);
    until(&server, "the queue is empty", |page| aborted(page, "queued") == 1.0)?;
    drop(decoding);
    until(&server, "the slot is free", |page| aborted(page, "decode") == 1.0)?;
    let prefilling = complete(&server, &"a".repeat(5000), 5)?;
    until(&server, "it runs", |page| running(page) == 1.0)?;
    drop(prefilling);
    until(&server, "the prefill is given up", |page| aborted(page, "prefill") == 1.0)?;
    idle(&server)
}

/// Refusals by tokens and by time.
fn bounds() -> Result<Vec<Page>> {
    let mut pages = Vec::new();
    for bound in [["--max-queued-tokens", "1000"], ["--ttft-objective", "1s"]] {
        let mut args = vec![
            "--model",
            "fake:step=1ms,prefill-token=2ms",
            "--max-running-requests",
            "1",
            "--max-batch-tokens",
            "8",
        ];
        args.extend(bound);
        let server = Server::start(&args)?;
        let prompt = "a".repeat(900);
        let first = complete(&server, &prompt, 1)?;
        until(&server, "it runs", |page| running(page) == 1.0)?;
        let refused = http::post(&server.api, "/v1/completions", &completion(&prompt, 1, false))?;
        assert_eq!(refused.status, 429);
        pages.push(server.metrics()?);
        drop(first);
    }
    Ok(pages)
}

/// A client that does not read.
fn slow() -> Result<Page> {
    let args = ["--model", "fake:step=0ms,context=100000", "--max-unsent-tokens", "1"];
    let server = Server::start(&args)?;
    let unread = complete(&server, "a", 90_000)?;
    let slow = &[("reason", "slow_client")];
    let page = until(&server, "it is given up", |page| {
        page.sum("sightline_requests_aborted_total", slow) == 1.0
    })?;
    drop(unread);
    Ok(page)
}

/// Too few pages for two growing answers.
fn pressure() -> Result<Page> {
    let server = Server::start(&[
        "--model",
        "fake:step=2ms",
        "--max-running-requests",
        "2",
        "--max-batch-tokens",
        "2",
        "--kv-pool-bytes",
        "128KiB",
    ])?;
    // Different ones: equal ones would share their pages.
    let prompts = ["aaaa", "bbbb"].into_iter();
    let both: Vec<TcpStream> =
        prompts.map(|prompt| complete(&server, prompt, 180)).collect::<Result<_>>()?;
    let page = until(&server, "both have ended", |page| {
        page.sum("sightline_requests_finished_total", &[("outcome", "length")]) == 2.0
    })?;
    assert!(page.sum("sightline_preemptions_total", &[]) > 0.0, "256 tokens hold no two answers");
    drop(both);
    Ok(page)
}

/// Who matters more: takes a place in the queue, takes a running slot, waits and runs too long.
fn ranks() -> Result<Page> {
    let server = Server::start(&[
        "--model",
        "fake:step=1ms,context=100000",
        "--max-running-requests",
        "1",
        "--max-queued-requests",
        "1",
        "--ttft-objective",
        "0s",
    ])?;
    let path = "/v1/completions";
    let unimportant = send(&server, path, &ranked("a", 90_000, -50))?;
    until(&server, "it runs", |page| running(page) == 1.0)?;
    let waits = send(&server, path, &ranked("a", 90_000, -50))?;
    until(&server, "one waits", |page| {
        waiting(page) == 1.0 && page.sum("sightline_requests_admitted_total", &[]) == 2.0
    })?;
    assert_eq!(http::post(&server.api, path, &ranked("a", 1, -60))?.status, 429);
    let important = send(&server, path, &ranked("a", 90_000, 50))?;
    // The engine counts the one, the connection of the evicted request the other.
    let evicted = [("reason", "priority_evicted"), ("priority", "low")];
    until(&server, "it has taken both places", |page| {
        page.sum("sightline_preemptions_total", &[("reason", "priority")]) == 1.0
            && page.sum("sightline_requests_rejected_total", &evicted) == 1.0
    })?;
    let mut too_many = ranked("a", 1, 7);
    too_many["n"] = 3.into();
    assert_eq!(http::post(&server.api, path, &too_many)?.status, 400);
    drop((unimportant, waits, important));
    idle(&server)
}

/// One that waits too long and one that runs too long.
fn patience() -> Result<Page> {
    let server = Server::start(&[
        "--model",
        "fake:step=1ms,context=100000",
        "--max-running-requests",
        "1",
        "--queue-timeout",
        "100ms",
        "--request-timeout",
        "2s",
    ])?;
    let runs = complete(&server, "a", 90_000)?;
    until(&server, "it runs", |page| running(page) == 1.0)?;
    let refused = http::post(&server.api, "/v1/completions", &completion("a", 1, false))?;
    assert_eq!(refused.status, 429);
    let late = &[("reason", "running_timeout")];
    let page = until(&server, "it is given up", |page| {
        page.sum("sightline_requests_aborted_total", late) == 1.0
    })?;
    drop(runs);
    Ok(page)
}

/// A prompt that was there before, and more prompts than the pool can keep.
fn cache() -> Result<Page> {
    let server = Server::start(&["--model", "fake:step=0ms", "--kv-pool-bytes", "128KiB"])?;
    for _ in 0..2 {
        let body = completion(&"a".repeat(100), 1, false);
        assert_eq!(http::post(&server.api, "/v1/completions", &body)?.status, 200);
    }
    let device = &[("source", "device")];
    let page = until(&server, "pages are used again", |page| {
        page.sum("sightline_prompt_tokens_total", device) > 0.0
    })?;
    let reused = page.sum("sightline_prompt_tokens_total", device);
    assert!(reused < 100.0, "the last token is always computed: {reused}");
    let hits = page.sum("sightline_kv_pool_hit_slots_total", &[]);
    assert_eq!(hits * 16.0, reused, "whole pages");
    for letter in ["b", "c", "d", "e"] {
        let body = completion(&letter.repeat(100), 1, false);
        assert_eq!(http::post(&server.api, "/v1/completions", &body)?.status, 200);
    }
    let evicted = &[("reason", "capacity")];
    until(&server, "16 pages hold no five prompts", |page| {
        page.sum("sightline_kv_pool_evicted_slots_total", evicted) > 0.0
    })
}

/// More prompts than two pools can keep: a page of one goes because that of the other went.
fn windows() -> Result<Page> {
    let args = ["--model", "fake:step=0ms,window=32", "--kv-pool-bytes", "256KiB"];
    let server = Server::start(&args)?;
    for letter in ["a", "b", "c", "d", "e"] {
        let body = completion(&letter.repeat(100), 1, false);
        assert_eq!(http::post(&server.api, "/v1/completions", &body)?.status, 200);
    }
    until(&server, "pages go with others", |page| {
        page.sum("sightline_kv_pool_evicted_slots_total", &[("reason", "pressure")]) > 0.0
    })
}

/// Prompts that come again, in part where a window has passed them; rows that spoil the cache.
fn curve() -> Result<Vec<Page>> {
    let server = Server::start(&["--model", "fake:step=0ms,window=32"])?;
    let shared = "a".repeat(70);
    for prompt in [shared.repeat(2), shared.clone() + &"b".repeat(60), shared.repeat(2)] {
        let body = completion(&prompt, 1, false);
        assert_eq!(http::post(&server.api, "/v1/completions", &body)?.status, 200);
    }
    let seen = until(&server, "all three are seen", |page| {
        page.sum("sightline_kv_hit_curve_lookup_tokens_total", &[]) == 410.0
    })?;
    let device = &[("ratio", "0")];
    let hits = seen.sum("sightline_kv_hit_curve_hit_tokens_total", device);
    let reused = seen.sum("sightline_prompt_tokens_total", &[("source", "device")]);
    assert_eq!(hits, reused, "what was predicted for the device is what it did");
    let lost = seen.sum("sightline_kv_hit_curve_window_loss_tokens_total", device);
    assert_eq!(lost, 64.0, "four pages that the second prompt had in common with the first");
    let spoilt = Server::start(&["--model", "fake:step=0ms,nan-at=40"])?;
    for (tokens, status) in [(1, 200), (100, 500)] {
        let body = completion(&shared, tokens, false);
        assert_eq!(http::post(&spoilt.api, "/v1/completions", &body)?.status, status);
    }
    let flush = &[("reason", "flush")];
    let flushed = until(&spoilt, "cache and curve start again", |page| {
        page.sum("sightline_kv_hit_curve_resets_total", flush) == 1.0
            && page.sum("sightline_kv_pool_evicted_slots_total", flush) > 0.0
    })?;
    Ok(vec![seen, flushed])
}

/// An answer that is a call of a tool.
fn call() -> Result<Page> {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/models/tiny-llama");
    let server = Server::start(&["--model", model])?;
    let tool = json!({"type": "function", "function": {
        "name": "ping", "parameters": {"type": "object", "properties": {}}
    }});
    let body = json!({
        "model": "tiny-llama", "messages": [{"role": "user", "content": "Ping."}],
        "tools": [tool], "tool_choice": "required", "max_tokens": 200
    });
    let answer = http::post(&server.api, "/v1/chat/completions", &body)?;
    assert_eq!(answer.status, 200);
    idle(&server)
}

/// The engine fails under a request; the next is refused.
fn failure() -> Result<Page> {
    let server = Server::start(&["--model", "fake:step=0ms,fail-at=4"])?;
    let body = completion("a", 50, false);
    assert_eq!(http::post(&server.api, "/v1/completions", &body)?.status, 500);
    assert_eq!(http::post(&server.api, "/v1/completions", &body)?.status, 503);
    server.metrics()
}

/// The end of a server, seen by a scrape that began before it: a deadline, or a second signal.
fn ending(deadline: &str, signals: usize) -> Result<Page> {
    let server = Server::start(&[
        "--model",
        "fake:step=1ms,prefill-token=2ms,context=100000",
        "--max-running-requests",
        "2",
        "--max-batch-tokens",
        "8",
        "--ttft-objective",
        "0s",
        "--drain-deadline",
        deadline,
    ])?;
    let decoding = complete(&server, "a", 90_000)?;
    until(&server, "tokens come", |page| {
        page.sum("sightline_time_to_first_token_seconds_count", &[]) == 1.0
    })?;
    let prefilling = complete(&server, &"a".repeat(20_000), 5)?;
    until(&server, "it runs", |page| running(page) == 2.0)?;
    let queued = complete(&server, "a", 5)?;
    until(&server, "one waits", |page| {
        waiting(page) == 1.0 && page.sum("sightline_requests_admitted_total", &[]) == 3.0
    })?;
    let mut scrape = TcpStream::connect(server.api.trim_start_matches("http://"))?;
    scrape.write_all(b"GET /metrics HTTP/1.1\r\nhost: test\r\n")?;
    // The head is in the server's hands when a request that came later has been answered.
    server.metrics()?;
    server.signal(15)?;
    for _ in 1..signals {
        while http::get(&server.api, "/readyz")?.status == 200 {}
        let refused = http::post(&server.api, "/v1/completions", &completion("a", 1, false))?;
        assert_eq!(refused.status, 503);
        server.signal(15)?;
    }
    for mut cut in [decoding, prefilling, queued] {
        // Which of them hears of the end by an event and which by a status does not matter here.
        cut.read_to_end(&mut Vec::new())?;
    }
    scrape.write_all(b"connection: close\r\n\r\n")?;
    let mut answer = String::new();
    scrape.read_to_string(&mut answer)?;
    let (_, page) = answer.split_once("\r\n\r\n").context("no body")?;
    Page::parse(page)
}
