//! The incident replayed: fifteen large prompts at once on a prefill rate of a few thousand tokens
//! a second. Then they waited for minutes; now the door says when to come back.

use crate::{eventually, stream};
use anyhow::Result;
use std::sync::Mutex;
use tests::cluster::Server;
use tests::http;

/// One token a byte, 300 microseconds a token: 3,333 tokens/s, the rate of the incident.
const MODEL: &str = "fake:step=1ms,prefill-token=300us,context=32768";
/// Half of the incident's average prompt, so that the test takes seconds: 2.25 s of prefill each.
const PROMPT_TOKENS: usize = 7_500;
/// The objective for the first token: three prompts of work fit.
const OBJECTIVE: &str = "8s";

#[derive(Debug, PartialEq)]
enum Answer {
    Served,
    Refused { retry_after: u64 },
}

#[test]
fn large_prompts_are_refused_at_the_door_and_nothing_is_lost() -> Result<()> {
    let server = Server::start(&[
        "--model",
        MODEL,
        "--ttft-objective",
        OBJECTIVE,
        "--max-batch-tokens",
        "1024",
        "--kv-pool-bytes",
        "64MiB",
    ])?;
    let answers = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for client in 0..15 {
            let (server, answers) = (&server, &answers);
            scope.spawn(move || {
                let answer = large_prompt(server, client).expect("a served or a refused request");
                answers.lock().expect("no client panicked").push(answer);
            });
        }
    });
    let answers = answers.into_inner()?;
    let served = answers.iter().filter(|answer| **answer == Answer::Served).count();
    assert!(served >= 3, "the objective has room for three: {answers:?}");
    assert!(served < 15, "nothing was refused: {answers:?}");
    for answer in &answers {
        if let Answer::Refused { retry_after } = answer {
            assert!((1..=60).contains(retry_after), "Retry-After {retry_after}");
        }
    }
    let page = server.metrics()?;
    let refused = page.sum("sightline_requests_rejected_total", &[]);
    assert_eq!(refused as usize, 15 - served, "each refusal is counted once");
    let for_work = ["queue_tokens_full", "drain_time"]
        .map(|reason| page.sum("sightline_requests_rejected_total", &[("reason", reason)]));
    assert_eq!(for_work.iter().sum::<f64>(), refused, "refused for tokens, not for their number");
    eventually("the queue is empty and every page is free", || {
        let page = server.metrics()?;
        let used = page.sum("sightline_kv_pool_used_slots", &[("state", "active")]);
        Ok(page.sum("sightline_queue_requests", &[]) + used == 0.0)
    })
}

fn large_prompt(server: &Server, client: usize) -> Result<Answer> {
    let prompt = format!("{client:05}{}", "x".repeat(PROMPT_TOKENS - 5));
    let mut answer = stream(server, &prompt, 4)?;
    if answer.status == 429 {
        assert!(
            !answer.headers.iter().any(|(_, value)| value.contains("event-stream")),
            "refused before the stream began"
        );
        let value = answer.headers.iter().find(|(name, _)| name == "retry-after");
        let (_, value) = value.expect("a refusal says when to come back");
        return Ok(Answer::Refused { retry_after: value.parse()? });
    }
    assert_eq!(answer.status, 200);
    let mut last = String::new();
    while let Some(event) = answer.event()? {
        last = event;
    }
    assert_eq!(last, "[DONE]", "an accepted request is answered whole");
    Ok(Answer::Served)
}

#[test]
fn clients_that_give_up_leave_nothing_behind() -> Result<()> {
    let server = Server::start(&["--model", MODEL, "--max-running-requests", "2"])?;
    let prompt = "y".repeat(2_000);
    let streams: Vec<_> = (0..6)
        .map(|_| {
            let (server, prompt) = (&server, &prompt);
            // The head comes with the first token, so the ones that wait need a thread each.
            let body = serde_json::json!({"model": "fake", "prompt": prompt, "max_tokens": 4000,
                "ignore_eos": true, "stream": true});
            send_only(&server.api, &body.to_string())
        })
        .collect::<Result<_>>()?;
    eventually("two run and four wait", || {
        let page = server.metrics()?;
        let running = page.sum("sightline_running_requests", &[]);
        let waiting = page.sum("sightline_queue_requests", &[("queue", "waiting")]);
        Ok(running == 2.0 && waiting == 4.0)
    })?;
    drop(streams);
    eventually("all are gone, counted as the clients' doing", || {
        let page = server.metrics()?;
        let gone = page.sum("sightline_requests_aborted_total", &[("initiator", "client")]);
        let left = ["sightline_running_requests", "sightline_queue_requests"]
            .map(|name| page.sum(name, &[]));
        Ok(gone == 6.0
            && left == [0.0, 0.0]
            && page.sum("sightline_kv_pool_used_slots", &[("state", "active")]) == 0.0)
    })?;
    let finished = server.metrics()?.sum("sightline_requests_finished_total", &[]);
    assert_eq!(finished, 6.0, "admitted = finished + running + queued");
    assert_eq!(http::get(&server.api, "/health")?.status, 200);
    Ok(())
}

/// Sends a request and keeps the connection without reading from it.
fn send_only(base: &str, body: &str) -> Result<std::net::TcpStream> {
    use std::io::Write;
    let host = base.trim_start_matches("http://");
    let mut socket = std::net::TcpStream::connect(host)?;
    let head = "POST /v1/completions HTTP/1.1\r\nHost: test\r\nContent-Type: application/json";
    write!(socket, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    Ok(socket)
}
