//! Prefill and decode apart, behind a router, with a real model: they answer as one server does,
//! token for token, whatever happens to a process or to the network between them; and afterwards
//! nothing is left of what failed.

mod answers;
mod faults;
mod kills;
mod network;
mod storm;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;
use tests::cluster::Server;
use tests::http::{self, Response};
use tests::scrape::Page;
use types::{Clock, Time};

use network::Network;

/// No test waits longer for anything.
const PATIENCE: Duration = Duration::from_secs(180);
const PATH: &str = "/v1/completions";

/// Asks again and again until it holds.
fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let clock = Clock::start();
    while !holds().with_context(|| format!("while waiting until {what}"))? {
        ensure!(clock.now().since(Time::ZERO) < PATIENCE, "in vain until {what}");
        // Who answers needs the cores as well.
        std::thread::park_timeout(Duration::from_millis(10));
    }
    Ok(())
}

/// Small steps, so that a prompt of a few hundred tokens is many frames.
const WORKER: &[&str] = &[
    "--served-model-name",
    "m",
    "--threads",
    "1",
    "--max-batch-tokens",
    "64",
    "--kv-pool-bytes",
    "32MiB",
    "--log-level",
    "error",
];

/// The little model with a context so long that no machine comes to its end while a test acts.
fn model() -> Result<&'static str> {
    static FOLDER: OnceLock<Result<String, String>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| long_context().map_err(|error| format!("{error:#}")));
    folder.as_deref().map_err(|error| anyhow!("a model with a long context: {error}"))
}

fn long_context() -> Result<String> {
    let model = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/models/tiny-llama"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("long-llama");
    std::fs::create_dir_all(&folder)?;
    let text = std::fs::read_to_string(model.join("config.json"))?;
    let mut config: Value = serde_json::from_str(&text)?;
    config["max_position_embeddings"] = json!(32_768);
    // Each whole at once: another run may be reading it.
    let fresh = folder.join(format!("fresh.{}", std::process::id()));
    for name in
        ["generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    {
        symlink(model.join(name), &fresh)?;
        std::fs::rename(&fresh, folder.join(name))?;
    }
    std::fs::write(&fresh, config.to_string())?;
    std::fs::rename(&fresh, folder.join("config.json"))?;
    Ok(folder.display().to_string())
}

/// A worker with these flags beside those that all have.
fn worker(flags: &[&[&str]]) -> Result<Server> {
    Server::start(&[WORKER, &["--model", model()?], &flags.concat()].concat())
}

/// Prefill and decode workers, each pair with a network between them, and a router.
struct Set {
    prefills: Vec<Server>,
    networks: Vec<Network>,
    decodes: Vec<Server>,
    router: Server,
    /// Pages for so many tokens are free where nothing is left of any request.
    free: u64,
}

impl Set {
    fn start(prefills: usize, decodes: usize, seed: u64) -> Result<Self> {
        let prefills = (0..prefills).map(|_| prefill(&["--transfer-port", "0"]));
        let prefills = prefills.collect::<Result<Vec<_>>>()?;
        let network = |prefill: &Server| {
            Network::to(prefill.transfer.as_deref().context("it has a link")?, seed)
        };
        let networks = prefills.iter().map(network).collect::<Result<Vec<_>>>()?;
        let decodes = (0..decodes).map(|at| decode(at, &prefills, &networks, &[]));
        let decodes = decodes.collect::<Result<Vec<_>>>()?;
        let router = router(&prefills, &decodes, &[])?;
        let free = load(&prefills[0], "/free_tokens")?;
        let set = Self { prefills, networks, decodes, router, free };
        set.whole()?;
        Ok(set)
    }

    fn workers(&self) -> impl Iterator<Item = &Server> {
        self.prefills.iter().chain(&self.decodes)
    }

    /// Until every link is up, and the router knows every worker as ready.
    fn whole(&self) -> Result<()> {
        for decode in &self.decodes {
            until("every link is up", || {
                Ok(decode.metrics()?.sum("sightline_pd_peer_up", &[]) == self.prefills.len() as f64)
            })?;
        }
        let workers = self.workers().count() as f64;
        until("the router knows all workers", || {
            let page = self.router.metrics()?;
            // One that is half open is closed by the next request.
            let open = page.sum("sightline_router_circuit_state", &[("state", "open")]);
            Ok(page.sum("sightline_router_worker_up", &[]) == workers && open == 0.0)
        })
    }

    /// Until nothing is left of any request: no place in a queue, no page, no transfer.
    fn idle(&self) -> Result<()> {
        for worker in self.workers() {
            until(&format!("nothing is left at {}", worker.name()), || {
                let page = worker.metrics()?;
                let left = [
                    "sightline_running_requests",
                    "sightline_queue_requests",
                    "sightline_kv_transfers_active",
                    "sightline_kv_transfer_held_bytes",
                ];
                let left: f64 = left.iter().map(|name| page.sum(name, &[])).sum();
                Ok(left == 0.0 && load(worker, "/free_tokens")? == self.free)
            })?;
        }
        until("nothing is left at the router", || {
            let page = self.router.metrics()?;
            Ok(page.sum("sightline_router_worker_active_requests", &[]) == 0.0)
        })
    }

    /// It is whole, and answers as a server that was never part of anything.
    fn works(&self, unified: &Server) -> Result<()> {
        self.whole()?;
        for number in 0..3 {
            let body = prompt(9000 + number);
            let answer = http::post(&self.router.api, PATH, &body)?;
            ensure!(answer.status == 200, "{}: {}", answer.status, answer.text()?);
            ensure!(choices(&answer)? == expected(unified, &body)?, "{body}");
        }
        self.idle()
    }

    /// The sum of a metric over all prefill workers, and over all decode workers.
    fn sums(&self, name: &str, labels: &[(&str, &str)]) -> Result<[f64; 2]> {
        let sum = |servers: &[Server]| {
            let pages = servers.iter().map(Server::metrics).collect::<Result<Vec<Page>>>()?;
            anyhow::Ok(pages.iter().map(|page| page.sum(name, labels)).sum())
        };
        Ok([sum(&self.prefills)?, sum(&self.decodes)?])
    }

    /// Transfers that failed for this reason, as prefill and as decode workers count them.
    fn failed(&self, reason: &str) -> Result<[f64; 2]> {
        self.sums("sightline_kv_transfer_errors_total", &[("reason", reason)])
    }

    /// Transfers that ended like this, as prefill and as decode workers count them.
    fn ended(&self, result: &str) -> Result<[f64; 2]> {
        self.sums("sightline_kv_transfers_total", &[("result", result)])
    }
}

/// A unified worker to compare with.
fn unified() -> Result<Server> {
    worker(&[])
}

fn prefill(flags: &[&str]) -> Result<Server> {
    let peers = ["--role", "prefill", "--decode-peer", "127.0.0.1:7100,127.0.0.1:7101"];
    worker(&[&peers, flags])
}

/// The decode worker of this number, which reaches each prefill worker through its network.
fn decode(
    number: usize,
    prefills: &[Server],
    networks: &[Network],
    flags: &[&str],
) -> Result<Server> {
    let peers = prefills.iter().zip(networks);
    let peers: Vec<_> = peers.map(|(one, net)| format!("{}@{}", one.name(), net.port)).collect();
    let (peers, own) = (peers.join(","), format!("127.0.0.1:710{number}"));
    let role = ["--role", "decode", "--prefill-peer", &peers, "--advertise", &own];
    worker(&[&role, flags])
}

fn router(prefills: &[Server], decodes: &[Server], flags: &[&str]) -> Result<Server> {
    let urls = |of: &[Server]| of.iter().map(|one| one.api.clone()).collect::<Vec<_>>().join(",");
    let (prefills, decodes) = (urls(prefills), urls(decodes));
    let workers = ["--prefill", &prefills, "--decode", &decodes];
    let own = ["--policy", "round_robin", "--poll-interval", "100ms", "--log-level", "error"];
    // Who cannot be answered hears of it at once.
    let now = ["--hold-time", "0s"];
    Server::router(&[&workers[..], &own, &now, flags].concat())
}

fn load(server: &Server, pointer: &str) -> Result<u64> {
    let load = http::get(&server.api, "/internal/load")?.json()?;
    load.pointer(pointer).and_then(Value::as_u64).with_context(|| format!("{pointer} of {load}"))
}

/// A prompt of some hundred tokens that shares no page with that of another number.
fn prompt(number: u64) -> Value {
    let text = "the harbour office keeps a ledger of ships, of crews and of storms; ".repeat(6);
    json!({
        "model": "m", "prompt": format!("{number}: {text}"), "max_tokens": 12, "seed": number,
        "temperature": 0.8, "ignore_eos": true
    })
}

/// What was answered, without names and times.
fn choices(answer: &Response) -> Result<Value> {
    Ok(answer.json()?["choices"].clone())
}

/// What one server answers.
fn expected(unified: &Server, body: &Value) -> Result<Value> {
    let answer = http::post(&unified.api, PATH, body)?;
    ensure!(answer.status == 200, "{}: {}", answer.status, answer.text()?);
    choices(&answer)
}

/// An error that says which reason it has, and which worker it was.
fn explains(answer: &Response, status: u16, code: &str) -> Result<()> {
    let body = answer.json()?;
    let error = &body["error"];
    ensure!(answer.status == status && error["code"] == code, "{}: {body}", answer.status);
    let message = error["message"].as_str().unwrap_or_default();
    ensure!(message.contains("127.0.0.1:"), "it names a worker: {body}");
    Ok(())
}
