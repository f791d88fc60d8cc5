//! The node exporter beside a server that runs: what the one says of the other's host tier is what
//! the other says of itself.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tests::cluster::{Server, binary, server_binary};
use tests::scrape::Page;
use tests::{fixture_model, http};

use crate::eventually;

/// Host pools of DeepSeek-V4, the logical one included.
const POOLS: usize = 7;

const FLAGS: [&str; 9] = [
    "--enable-hierarchical-cache",
    "--hicache-ratio",
    "2",
    "--hicache-target",
    "50MB",
    "--kv-pool-bytes",
    "8MB",
    "--tp-size",
    "2",
];

/// A planner's file; goes with the value.
struct Plan(PathBuf);

impl Plan {
    fn write(flags: &[&str]) -> Result<Self> {
        let mut command = Command::new(server_binary());
        let output =
            command.args(["plan", "--port", "0", "--format", "json"]).args(flags).output()?;
        let folder =
            std::env::temp_dir().join(format!("sightline-e2e-plan-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let path = folder.join("plan.json");
        std::fs::write(&path, output.stdout)?;
        Ok(Self(path))
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        let folder = self.0.parent().expect("it lies in one");
        drop(std::fs::remove_dir_all(folder));
    }
}

/// A running `sightline-exporter`; ends with the value.
struct Exporter {
    child: Child,
    url: String,
}

impl Exporter {
    fn start(services: &[String]) -> Result<Self> {
        let mut command = Command::new(binary("exporter", "sightline-exporter"));
        command.args(["--listen", "127.0.0.1:0", "--no-nvml", "--no-kmsg"]);
        for timer in ["probe", "hostcache", "numa", "page"] {
            command.args(["--interval", &format!("{timer}=50ms")]);
        }
        for service in services {
            command.args(["--service", service]);
        }
        let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("stdout is piped")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let ready: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
        let url = ready["address"].as_str().context("an address")?.to_owned();
        Ok(Self { child, url })
    }

    fn metrics(&self) -> Result<Page> {
        let answer = http::get(&self.url, "/metrics")?;
        ensure!(answer.status == 200, "/metrics answered {}", answer.status);
        Page::parse(answer.text()?)
    }

    /// The first page that `good` likes.
    fn page(&self, what: &str, good: impl Fn(&Page) -> bool) -> Result<Page> {
        let mut page = self.metrics()?;
        eventually(what, || {
            page = self.metrics()?;
            Ok(good(&page))
        })?;
        Ok(page)
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn node(name: &str) -> String {
    format!("sightline_node_{name}")
}

#[test]
fn the_exporter_says_of_a_host_tier_what_the_server_says_of_itself() -> Result<()> {
    let model = fixture_model("tiny-deepseek-v4");
    let model = model.to_string_lossy();
    let flags = [&["--model", &*model], &FLAGS[..]].concat();
    let server = Server::start(&flags)?;
    let (api, probes) = (&server.api, &server.probes);
    let service = format!("prefill,metrics={api}/metrics,url={probes}/readyz,target=150GB");
    let told = format!("decode,metrics={api}/metrics");
    let plan = Plan::write(&flags)?;
    let planned = format!("planned,plan={}", plan.0.display());
    let exporter = Exporter::start(&[service, told, planned])?;
    let held = node("hostcache_allocated_bytes");
    let success = node("service_probe_success");
    // The first pages of a server may know the sum only: pools appear with the engine's first news.
    let page = exporter.page("both are known, pool by pool", |page| {
        let pools = page.samples.keys().filter(|(name, _)| *name == held).count();
        let plan = page.sum(&node("hostcache_planned_bytes"), &[("source", "plan")]);
        pools == 2 * POOLS && plan > 0.0 && page.sum(&success, &[]) == 1.0
    })?;
    let own = server.metrics()?;
    let prefill = ("service", "prefill");
    for pool in page.values(&held, "pool") {
        let labels = [("tier", "host"), ("pool", pool.as_str())];
        let expected = own.sum("sightline_kv_pool_capacity_bytes", &labels);
        for family in ["hostcache_allocated_bytes", "hostcache_planned_bytes"] {
            let labels = [prefill, ("pool", pool.as_str()), ("source", "metrics")];
            assert_eq!(page.sum(&node(family), &labels), expected, "{family} of {pool}");
        }
    }
    let total = own.sum("sightline_kv_pool_capacity_bytes", &[("tier", "host")]);
    assert_eq!(page.sum(&held, &[prefill]), total);
    assert_eq!(total, own.sum("sightline_hicache_requested_bytes", &[]));
    let unit = own.sum("sightline_kv_hit_curve_required_bytes", &[("ratio", "1")]);
    assert_eq!(page.sum(&node("hicache_bytes_per_ratio"), &[prefill]), unit);
    // The planner said the same before the server was there; what is held it cannot know.
    let plan = [("service", "planned"), ("source", "plan")];
    assert_eq!(page.sum(&node("hostcache_planned_bytes"), &plan), total);
    assert_eq!(page.sum(&node("hicache_bytes_per_ratio"), &plan[..1]), unit);
    assert_eq!(page.sum(&held, &plan[..1]), 0.0);
    // What the exporter is told rules over what the server was told.
    let target = |service: &str, source: &str| {
        page.sum(&node("hostcache_target_bytes"), &[("service", service), ("source", source)])
    };
    assert_eq!((target("prefill", "config"), target("prefill", "metrics")), (150e9, 0.0));
    assert_eq!((target("decode", "config"), target("decode", "metrics")), (0.0, 50e6));
    of_the_process(&page, &own);
    largest_ratio(&page, total, unit);

    // The server is gone: what it said is not shown any longer, and the service is not well.
    server.signal(9)?;
    let page = exporter.page("it is gone", |page| page.values(&held, "pool").is_empty())?;
    assert_eq!(page.sum(&node("hicache_bytes_per_ratio"), &[prefill]), 0.0);
    exporter.page("its health URL fails", |page| {
        page.sum(&node("service_state"), &[prefill, ("state", "active")]) == 0.0
    })?;
    Ok(())
}

fn of_the_process(page: &Page, own: &Page) {
    let prefill = ("service", "prefill");
    let started = own.sum("process_start_time_seconds", &[]);
    assert_eq!(page.sum(&node("service_start_timestamp_seconds"), &[prefill]), started);
    let active = [prefill, ("state", "active")];
    assert_eq!(page.sum(&node("service_state"), &active), 1.0);
}

/// Where the kernel says what its nodes have, the largest ratio follows from the same page.
fn largest_ratio(page: &Page, total: f64, unit: f64) {
    let rooms = page.values(&node("numa_headroom_bytes"), "numa_node");
    let largest = page.sum(&node("hicache_ratio_max"), &[("service", "prefill")]);
    if rooms.is_empty() {
        assert_eq!(largest, 0.0, "nobody knows what there is room for");
    } else {
        let room = page.sum(&node("numa_headroom_bytes"), &[]);
        let expected = ((total + room) / unit).max(0.0);
        assert!((largest - expected).abs() <= expected * 1e-9, "{largest} is not {expected}");
    }
}
