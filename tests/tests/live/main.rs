//! Every panel over the real thing: prefill and decode apart with a host tier, a router and a node
//! exporter, under load, scraped by the real Prometheus with the generated rules. No query of any
//! dashboard fails, and none stays empty but for what this machine does not have.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use tests::cluster::binary;
use tests::prometheus::Prometheus;
use tests::{fixture_model, http, root};

/// Seconds of load that Prometheus sees: rates over a minute have something to look at.
const SECONDS: u32 = 45;

/// Clients that ask at a time.
const CLIENTS: usize = 4;

/// A device too small for what is asked, with a host tier behind it.
const TIER: [&str; 5] =
    ["--enable-hierarchical-cache", "--hicache-ratio", "4", "--kv-pool-bytes", "1MiB"];

/// `sightline up`, ended when dropped.
struct Up {
    child: Child,
    api: String,
    console: String,
}

impl Up {
    fn start() -> Result<Self> {
        let model = fixture_model("tiny-llama");
        let mut child = Command::new(binary("stack", "sightline"))
            .args(["up", "--topology", "pd", "--port", "0", "--console-port", "0", "--model"])
            .arg(model)
            .arg("--")
            .args(TIER)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start sightline up")?;
        let stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
        let mut up = Self { child, api: String::new(), console: String::new() };
        for line in stdout.lines() {
            let line = line?;
            let mut words = line.split_whitespace();
            let url = |url: Option<&str>| url.unwrap_or_default().trim_end_matches('/').to_owned();
            match words.next() {
                Some("console") => up.console = url(words.next()),
                Some("API") => up.api = url(words.next()).trim_end_matches("/v1").to_owned(),
                _ if line.contains("Ctrl-C drains") => return Ok(up),
                _ => {}
            }
        }
        let mut said = String::new();
        up.child.stderr.take().context("stderr is piped")?.read_to_string(&mut said)?;
        anyhow::bail!("`up` ended before it was ready: {said}")
    }

    /// What is scraped of it: the labels of each target.
    fn targets(&self) -> Result<Vec<Value>> {
        for _ in 0..10_000 {
            let answer = http::get(&self.console, "/api/v1/query?query=up")?.json()?;
            let found = answer["data"]["result"].as_array().cloned().unwrap_or_default();
            if found.len() == 4 {
                return Ok(found.into_iter().map(|one| one["metric"].clone()).collect());
            }
        }
        anyhow::bail!("`up` scrapes no four targets")
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // Its children end with it.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The configuration of a Prometheus that scrapes the same under the same labels.
fn config(targets: &[Value]) -> Result<String> {
    let rules = root().join("prometheus/rules/server.yml");
    let mut text = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 2s}}\nrule_files: [{rules:?}]\n\
         scrape_configs:\n"
    );
    for target in targets {
        let label = |name: &str| target[name].as_str().context("a target label");
        writeln!(
            text,
            "- job_name: {}\n  static_configs: [{{targets: [{:?}], \
             labels: {{cluster: {}, node: {}}}}}]",
            label("job")?,
            label("instance")?,
            label("cluster")?,
            label("node")?,
        )?;
    }
    Ok(text)
}

/// Long prompts that share a beginning, some of them streamed, until told to stop.
fn load(api: &str, client: usize, over: &AtomicBool) -> Result<()> {
    let mut turn = 0;
    while !over.load(Ordering::SeqCst) {
        turn += 1;
        let text = "The harbour office keeps a ledger of ships, of crews and of storms. ".repeat(6);
        let prompt = format!("{client} {} {text}", turn % 40);
        let stream = turn % 3 == 0;
        let body = json!({
            "model": "tiny-llama", "prompt": prompt, "max_tokens": 6, "stream": stream,
        });
        let answer = http::post(api, "/v1/completions", &body)?;
        // A full queue says so: that is load, too.
        ensure!(matches!(answer.status, 200 | 429 | 503), "{}: {}", answer.status, answer.text()?);
    }
    Ok(())
}

#[test]
fn no_panel_fails_and_none_is_empty_under_load() -> Result<()> {
    if Prometheus::is_missing() {
        return Ok(());
    }
    let live = binary("dashboards", "sightline-dashboards");
    let up = Up::start()?;
    let prometheus = Prometheus::start("live", &config(&up.targets()?)?, &[])?;
    let over = AtomicBool::new(false);
    let report = std::thread::scope(|scope| -> Result<Value> {
        let (up, over) = (&up, &over);
        let clients: Vec<_> =
            (0..CLIENTS).map(|client| scope.spawn(move || load(&up.api, client, over))).collect();
        let seen = prometheus.until(&format!("min(count_over_time(up[5m])) > {SECONDS}"));
        // The slowest thing to come: prefill was busy for long enough to say how fast it is.
        let known = prometheus.until("instance:sightline_queue_drain_seconds:estimate");
        let output = Command::new(live)
            .args(["live", "--prometheus", &prometheus.url, "--range", "1m", "--format", "json"])
            .output();
        over.store(true, Ordering::SeqCst);
        for client in clients {
            client.join().expect("a client that panicked")?;
        }
        seen?;
        known?;
        let output = output?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_slice(&output.stdout).with_context(|| format!("no report: {error}"))
    })?;
    let rows = report["targets"].as_array().context("rows")?;
    let line = |row: &Value| {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let place = format!("{}/{} {}", text("dashboard"), text("panel"), text("target"));
        format!("{} {place}: {}", text("status"), text("reason"))
    };
    let of =
        |status: &'static str| rows.iter().filter(move |row| row["status"] == status).map(line);
    let faults: Vec<String> = of("error").chain(of("empty")).collect();
    ensure!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    // What needs load had some; what is left is not on this machine.
    let idle: Vec<String> = of("waived").filter(|line| line.contains("put load on it")).collect();
    ensure!(idle.is_empty(), "{}", idle.join("\n"));
    let well = rows.iter().filter(|row| row["status"] == "ok").count();
    ensure!(well > 300, "only {well} of {} queries yield something", rows.len());
    Ok(())
}
