//! What the numbers of a page promise each other, after a mixed load of known size.

use crate::{eventually, stream};
use anyhow::Result;
use std::sync::atomic::{AtomicUsize, Ordering};
use tests::cluster::Server;
use tests::scrape::Page;

const CLIENTS: usize = 12;
const REQUESTS_EACH: usize = 6;

/// What the clients saw.
#[derive(Default)]
struct Seen {
    answered: AtomicUsize,
    refused: AtomicUsize,
    left: AtomicUsize,
}

#[test]
fn the_page_adds_up_after_refusals_and_departures() -> Result<()> {
    let server = Server::start(&[
        "--model",
        "fake:step=2ms,prefill-token=20us",
        "--max-running-requests",
        "3",
        "--max-queued-requests",
        "4",
        "--kv-pool-bytes",
        "8MiB",
    ])?;
    let before = server.metrics()?;
    let seen = Seen::default();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (server, seen) = (&server, &seen);
            scope.spawn(move || {
                for request in 0..REQUESTS_EACH {
                    one(server, seen, client * REQUESTS_EACH + request).expect("an answer");
                    let page = server.metrics().expect("a page at any time");
                    assert!(used_within_capacity(&page), "a pool holds more than it can");
                }
            });
        }
    });
    let finished = |page: &Page| page.sum("sightline_requests_finished_total", &[]);
    let admitted = |page: &Page| page.sum("sightline_requests_admitted_total", &[]);
    eventually("everything admitted has finished and nothing is held", || {
        let page = server.metrics()?;
        let held = ["sightline_queue_requests", "sightline_running_requests"]
            .map(|name| page.sum(name, &[]));
        Ok(finished(&page) == admitted(&page) && held == [0.0, 0.0])
    })?;
    let page = server.metrics()?;
    let count = |seen: &AtomicUsize| seen.load(Ordering::Relaxed) as f64;
    let rejected = page.sum("sightline_requests_rejected_total", &[]);
    assert_eq!(admitted(&page) + rejected, (CLIENTS * REQUESTS_EACH) as f64, "all were offered");
    assert_eq!(rejected, count(&seen.refused), "the clients saw as many refusals");
    assert!(rejected > 0.0 && count(&seen.left) > 0.0, "the load was too light to tell");
    assert_eq!(admitted(&page), count(&seen.answered) + count(&seen.left));
    tokens_add_up(&page);
    stages_fill_the_time(&before, &page);
    Ok(())
}

/// One request of a mix: whole answers, and clients that leave after the first event.
fn one(server: &Server, seen: &Seen, number: usize) -> Result<()> {
    let prompt = format!("{number} {}", "word ".repeat(number % 40));
    let leaves = number % 5 == 4;
    let mut answer = stream(server, &prompt, if leaves { 2_000 } else { 3 + number % 20 })?;
    if answer.status == 429 {
        seen.refused.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    }
    assert_eq!(answer.status, 200);
    if leaves {
        answer.event()?;
        seen.left.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    }
    while answer.event()?.is_some() {}
    seen.answered.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

fn used_within_capacity(page: &Page) -> bool {
    ["slots", "bytes"].iter().all(|unit| {
        let used = page.sum(&format!("sightline_kv_pool_used_{unit}"), &[]);
        used <= page.sum(&format!("sightline_kv_pool_capacity_{unit}"), &[])
    })
}

/// Each admitted request had a first token here, so sums over them are sums over all.
fn tokens_add_up(page: &Page) {
    let sum = |name: &str| page.sum(name, &[]);
    let first_tokens = sum("sightline_time_to_first_token_seconds_count");
    assert_eq!(first_tokens, sum("sightline_requests_admitted_total"));
    let computed = sum("sightline_prompt_tokens_total");
    assert_eq!(computed, sum("sightline_request_prompt_tokens_sum"), "prompts by source");
    let generated = sum("sightline_generation_tokens_total");
    assert_eq!(generated, sum("sightline_request_generated_tokens_sum"), "answers");
    let ttft = sum("sightline_time_to_first_token_seconds_sum");
    let phases = sum("sightline_ttft_phase_seconds_sum");
    assert!((phases - ttft).abs() <= 0.01 * ttft, "phases {phases} s of {ttft} s");
}

/// The stages of the loop are exclusive and leave nothing out.
fn stages_fill_the_time(before: &Page, after: &Page) {
    let passed = |name: &str| after.sum(name, &[]) - before.sum(name, &[]);
    let elapsed = passed("sightline_scheduler_last_iteration_timestamp_seconds");
    let staged = passed("sightline_scheduler_stage_seconds_total");
    assert!((staged - elapsed).abs() <= 0.02 * elapsed + 0.01, "{staged} s of {elapsed} s");
}
