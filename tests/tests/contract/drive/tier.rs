//! Servers with a host tier.

use super::*;
use metric_catalog::labels::Tier;

const ON: [&str; 2] = ["--enable-hierarchical-cache", "--hicache-ratio"];

/// Prompts that need more pages than the device has, one after the other and again: they are found
/// on the host, until that is full, too.
pub(super) fn prompts_come_again() -> Result<Page> {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/models/tiny-llama");
    let server =
        Server::start(&["--model", model, "--kv-pool-bytes", "128KiB", ON[0], ON[1], "2"])?;
    let mut ask = |letter: char| -> Result<()> {
        let mut body = completion(&format!("{letter} ").repeat(60), 1, false);
        body["model"] = "tiny-llama".into();
        assert_eq!(http::post(&server.api, "/v1/completions", &body)?.status, 200);
        Ok(())
    };
    // 5 pages on the device and 10 on the host; each prompt fills 3.
    "abab".chars().try_for_each(&mut ask)?;
    let host = &[("source", "host")];
    let found = until(&server, "pages come from the host", |page| {
        page.sum("sightline_prompt_tokens_total", host) > 0.0
            && page.sum("sightline_hicache_transfer_bytes_total", &[("direction", "load")]) > 0.0
    })?;
    let loaded = found.sum("sightline_kv_pool_hit_slots_total", &[("tier", "host")]);
    assert_eq!(loaded * 16.0, found.sum("sightline_prompt_tokens_total", host), "whole pages");
    "abcdefg".chars().try_for_each(&mut ask)?;
    let evicted = &[("tier", "host"), ("reason", "capacity")];
    let page = until(&server, "the host is full, too", |page| {
        page.sum("sightline_kv_pool_evicted_slots_total", evicted) > 0.0
    })?;
    nothing_exceeds_its_capacity(&page);
    let copies = page.sum("sightline_hicache_transfer_busy_seconds_total", &[]);
    assert!(copies > 0.0, "copies take time");
    let on_nodes = page.sum("sightline_host_pool_numa_bytes", &[]);
    let mirrored = page.sum("sightline_kv_pool_capacity_bytes", &[("tier", "host")]);
    assert!(on_nodes == 0.0 || on_nodes >= mirrored, "{on_nodes} of {mirrored} bytes");
    assert!(page.sum("sightline_startup_phase_seconds", &[("phase", "host_pools")]) > 0.0);
    Ok(page)
}

fn nothing_exceeds_its_capacity(page: &Page) {
    for tier in Tier::ALL {
        for unit in ["bytes", "slots"] {
            let tier = &[("tier", tier.as_str())];
            let used = page.sum(&format!("sightline_kv_pool_used_{unit}"), tier);
            let capacity = page.sum(&format!("sightline_kv_pool_capacity_{unit}"), tier);
            assert!(used > 0.0 && used <= capacity, "{used} of {capacity} {unit}, {tier:?}");
        }
    }
}

/// More prompts end in one step than copies may wait.
pub(super) fn too_many_backups() -> Result<Page> {
    const AT_ONCE: usize = 100;
    let server = Server::start(&[
        "--model",
        "fake:step=0ms,prefill-token=1ms",
        "--max-running-requests",
        "128",
        "--max-queued-requests",
        "128",
        "--max-batch-tokens",
        "4096",
        "--prefill-chunk",
        "4096",
        "--ttft-objective",
        "0s",
        ON[0],
        ON[1],
        "2",
    ])?;
    // One step of seconds, and all others come together in the next.
    let first = complete(&server, &"a".repeat(3000), 1)?;
    until(&server, "it runs", |page| running(page) == 1.0)?;
    let prompts = (0..AT_ONCE).map(|n| format!("{n:03}{}", "x".repeat(17)));
    let all: Vec<TcpStream> =
        prompts.map(|prompt| complete(&server, &prompt, 1)).collect::<Result<_>>()?;
    until(&server, "all wait", |page| waiting(page) == AT_ONCE as f64)?;
    let page = until(&server, "some get no copy", |page| {
        let full = &[("reason", "queue_full")];
        page.sum("sightline_hicache_transfer_failures_total", full) > 0.0
    })?;
    drop((first, all));
    Ok(page)
}

/// What a server leaves in its store, the next one finds.
pub(super) fn a_store_behind_it() -> Result<[Page; 2]> {
    let folder = std::env::temp_dir().join(format!("contract-store-{}", std::process::id()));
    let url = format!("file://{}", folder.display());
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/models/tiny-llama");
    let args = ["--model", model, ON[0], "--kv-store", &url, "--kv-store-prefetch"];
    let args = [&args[..], &["wait_complete"]].concat();
    let mut body = completion(&"a ".repeat(60), 1, false);
    body["model"] = "tiny-llama".into();
    let first = Server::start(&args)?;
    assert_eq!(http::post(&first.api, "/v1/completions", &body)?.status, 200);
    let left = until(&first, "its pages are in the store", |page| {
        page.sum("sightline_kv_store_writes_total", &[("result", "written")]) == 3.0
    })?;
    drop(first);
    let second = Server::start(&args)?;
    assert_eq!(http::post(&second.api, "/v1/completions", &body)?.status, 200);
    let found = until(&second, "they come from there", |page| {
        page.sum("sightline_prompt_tokens_total", &[("source", "storage")]) == 48.0
    })?;
    assert_eq!(found.sum("sightline_kv_store_reads_total", &[("result", "hit")]), 3.0);
    let [held, limit] =
        ["held", "limit"].map(|what| found.sum(&format!("sightline_kv_store_{what}_bytes"), &[]));
    assert!(held > 0.0 && held <= limit, "{held} of {limit} bytes");
    std::fs::remove_dir_all(&folder)?;
    Ok([left, found])
}
