//! Routers, in front of workers that answer and of such that do not.

use super::worker::Worker;
use super::*;

/// Each policy, by its name on the command line.
const POLICIES: [&str; 5] =
    ["cache_aware", "least_pending_tokens", "power_of_two", "round_robin", "prefix_hash"];
const PATH: &str = "/v1/completions";

/// A router in front of `workers`, which it has found to be ready.
pub(crate) fn start(workers: &[&str], flags: &[&str]) -> Result<Server> {
    let workers = workers.join(",");
    let router = Server::router(&[&["--worker", &workers][..], flags].concat())?;
    let listed = workers.split(',').count() as f64;
    until(&router, "its workers are up", |page| {
        page.sum("sightline_router_worker_up", &[]) == listed
    })?;
    Ok(router)
}

/// Drives what only a router has.
pub(crate) fn all() -> Result<Vec<Page>> {
    let mut pages = vec![answers()?, nobody()?, connects()?];
    for (prompt, status, reason) in [
        ("status 429", 429, "rejected"),
        ("status 500", 500, "error"),
        ("close", 502, "broken"),
        ("hang", 504, "timeout"),
    ] {
        pages.push(again(prompt, status, reason)?);
    }
    for policy in POLICIES {
        pages.push(chooses(policy)?);
    }
    Ok(pages)
}

fn ask(router: &Server, prompt: &str, stream: bool) -> Result<u16> {
    Ok(http::post(&router.api, PATH, &completion(prompt, 2, stream))?.status)
}

/// Asks until the worker's own answer comes: after a fault, or a refusal, it is left alone for a
/// moment.
fn insist(router: &Server, prompt: &str, status: u16) -> Result<()> {
    for _ in 0..TRIES {
        let answer = http::post(&router.api, PATH, &completion(prompt, 2, true))?;
        let of_router = ["no_worker", "cooling"].iter().any(|code| {
            answer.text().is_ok_and(|text| text.contains(&format!("\"code\":\"{code}\"")))
        });
        if !of_router {
            assert_eq!(answer.status, status, "{prompt}: {}", answer.text()?);
            return Ok(());
        }
    }
    anyhow::bail!("no worker is asked for {prompt}")
}

fn routed(page: &Page, outcome: &str) -> f64 {
    page.sum("sightline_router_requests_total", &[("outcome", outcome)])
}

fn retried(page: &Page, reason: &str) -> f64 {
    page.sum("sightline_router_retries_total", &[("reason", reason)])
}

/// Everything that a worker can answer, or leave unanswered, and what operators ask a router.
fn answers() -> Result<Page> {
    let workers = [Worker::start()?, Worker::start()?];
    let router = start(&[&workers[0].url, &workers[1].url], &[])?;
    for stream in [false, true] {
        assert_eq!(ask(&router, "hello", stream)?, 200);
    }
    for status in [400, 403, 404, 405, 408, 412, 413, 415, 428, 499] {
        assert_eq!(ask(&router, &format!("status {status}"), false)?, status);
    }
    let gone = send(&router, PATH, &completion("hang", 2, true))?;
    until(&router, "it is asked", |page| {
        page.sum("sightline_router_worker_active_requests", &[]) == 1.0
    })?;
    drop(gone);
    until(&router, "it is given up", |page| routed(page, "client_gone") == 1.0)?;
    operators(&router, &workers[0])?;
    for status in [429, 503, 500, 502, 504] {
        insist(&router, &format!("status {status}"), status)?;
    }
    insist(&router, "close", 502)?;
    // Its head has been sent when it breaks off.
    insist(&router, "cut", 200)?;
    until(&router, "all of it is counted", |page| {
        let outcomes = ["ok", "upstream_rejected", "upstream_error"];
        outcomes.iter().all(|outcome| routed(page, outcome) > 0.0)
    })
}

/// A request that two workers treat alike: it is sent again once.
fn again(prompt: &str, status: u16, reason: &str) -> Result<Page> {
    let workers = [Worker::start()?, Worker::start()?];
    let router = start(&[&workers[0].url, &workers[1].url], &["--first-byte-timeout", "200ms"])?;
    assert_eq!(ask(&router, prompt, true)?, status);
    let page = router.metrics()?;
    assert_eq!(retried(&page, reason), 1.0, "{prompt}: the other one does the same");
    Ok(page)
}

/// What is known of the workers, and the drain of one.
fn operators(router: &Server, worker: &Worker) -> Result<()> {
    let drain = |worker: &str| format!("/admin/workers/{worker}/drain");
    let name = worker.url.trim_start_matches("http://");
    assert_eq!(http::get(&router.api, "/internal/workers")?.status, 200);
    let api = &router.api;
    assert_eq!(http::request(api, "DELETE", &drain("nobody:1"), None)?.status, 404);
    for (method, up) in [("POST", 1.0), ("DELETE", 2.0)] {
        assert_eq!(http::request(api, method, &drain(name), None)?.status, 200);
        until(router, "one of two is routable, then both", |page| {
            page.sum("sightline_router_worker_up", &[]) == up
        })?;
    }
    let mut socket = TcpStream::connect(api.trim_start_matches("http://"))?;
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\
         origin: http://elsewhere\r\ncontent-length: 0\r\n\r\n",
        drain(name)
    );
    socket.write_all(head.as_bytes())?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    for method in ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "FOO1"] {
        assert_eq!(http::request(api, method, PATH, None)?.status, 405, "{method}");
    }
    Ok(())
}

/// No worker is there: its place is held by a port where nobody listens.
fn nobody() -> Result<Page> {
    let worker = Worker::start()?;
    worker.leave();
    let router = Server::router(&["--worker", &worker.url, "--hold-time", "0s"])?;
    assert_eq!(ask(&router, "hello", false)?, 503);
    router.metrics()
}

/// A worker that is gone before the router has noticed.
fn connects() -> Result<Page> {
    let workers = [Worker::start()?, Worker::start()?];
    let flags = ["--poll-interval", "20s", "--policy", "round_robin"];
    let router = start(&[&workers[0].url, &workers[1].url], &flags)?;
    workers[0].leave();
    for _ in 0..2 {
        assert_eq!(ask(&router, "hello", false)?, 200, "the other one answers");
    }
    let page = router.metrics()?;
    assert!(retried(&page, "connect") > 0.0, "one of them began at the other worker");
    Ok(page)
}

/// Every way in which a policy chooses, and every outcome of a request.
fn chooses(policy: &str) -> Result<Page> {
    let workers = [Worker::start()?, Worker::start()?];
    let flags = ["--policy", policy, "--poll-interval", "50ms"];
    let router = start(&[&workers[0].url, &workers[1].url], &flags)?;
    let long = "the harbour office keeps a ledger of ships ".repeat(200);
    for _ in 0..2 {
        assert_eq!(ask(&router, &long, false)?, 200);
    }
    let branch = |page: &Page, branch| {
        page.sum("sightline_router_decisions_total", &[("policy", policy), ("branch", branch)])
    };
    if matches!(policy, "cache_aware" | "prefix_hash") {
        // The one that has it, or whose it is, has a lot to do: whichever of the two it is.
        for busy in &workers {
            busy.wait(1_000_000);
            let pending = |page: &Page| page.sum("sightline_router_worker_pending_tokens", &[]);
            until(&router, "it is known", |page| pending(page) >= 1e6)?;
            assert_eq!(ask(&router, &long, false)?, 200);
            busy.wait(0);
            until(&router, "that, too", |page| pending(page) < 1e6)?;
        }
        let page = router.metrics()?;
        assert!(branch(&page, "load_guard") > 0.0, "{policy}");
    }
    workers[0].leave();
    until(&router, "one is left", |page| page.sum("sightline_router_worker_up", &[]) == 1.0)?;
    assert_eq!(ask(&router, "hello", false)?, 200);
    until(&router, "there was no other", |page| branch(page, "only") > 0.0)
}
