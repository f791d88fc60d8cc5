//! The host tier of a whole process: its memory, its failures, its end.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use types::{Clock, Time};

use super::plan::plan;
use super::process::{Connection, Server, binary, get, post};

const TIER: &str = "--enable-hierarchical-cache";

fn fixture(model: &str) -> String {
    format!("{}/../tests/fixtures/models/{model}", env!("CARGO_MANIFEST_DIR"))
}

/// The line of the log that says what the tier has.
fn facts(log: &[Value]) -> &Value {
    let told = |line: &&Value| line.get("allocated_bytes").is_some();
    log.iter().find(told).expect("the log says what was allocated")
}

/// Serves with these flags and compares what was allocated with what `plan` says; returns its sum.
fn as_planned(model: &str, flags: &str) -> u64 {
    let flags = format!("--model {} {TIER} {flags}", fixture(model));
    let (code, text, json) = plan(&format!("--port 0 --format json {flags}"));
    assert_eq!(code, 0, "{text}");
    let tier = &json["resolved"]["host_tier"];
    let planned = tier["total_bytes"].as_u64().expect("a sum");

    let mut server = Server::logged(&flags);
    let body = json!({"model": model, "prompt": [5, 6, 7], "max_tokens": 2, "temperature": 0});
    post(&server.api, "/v1/completions", &body);
    let mode = json["resolved"]["values"]["hicache-write-policy"].as_str().expect("a policy");
    let page = get(&server.api, "/metrics").body;
    assert!(page.contains(&format!("hicache_mode=\"{mode}\"")), "{mode} is on the page");
    let is = |line: &&str| {
        line.starts_with("sightline_startup_phase_seconds") && line.contains("host_pools")
    };
    let line = page.lines().find(is).expect("a phase of start-up");
    let seconds = line.rsplit_once(' ').and_then(|(_, value)| value.parse::<f64>().ok());
    assert!(seconds.is_some_and(|seconds| seconds > 0.0), "{line}");
    server.signal("TERM");
    let log = server.log();
    assert_eq!(server.exit_code(), Some(0));

    let facts = facts(&log);
    assert_eq!(facts["allocated_bytes"], planned, "{flags}: {facts}");
    assert_eq!(facts["planned_bytes"], planned);
    assert!(facts["mapped_bytes"].as_u64().is_some_and(|mapped| mapped >= planned), "{facts}");
    assert!(facts["seconds"].as_f64().is_some_and(|seconds| seconds >= 0.0), "{facts}");
    let parts = facts["parts"].as_str().expect("parts").split(',').map(|part| {
        let (part, bytes) = part.split_once('=').expect("bytes");
        let (part, rank) = part.rsplit_once('/').expect("a rank");
        (part.to_owned(), rank.to_owned(), bytes.parse::<u64>().expect("a number"))
    });
    let parts: Vec<_> = parts.collect();
    assert_eq!(parts.iter().map(|(_, _, bytes)| bytes).sum::<u64>(), planned, "{facts}");
    // Every mirrored part is there, with the bytes that the plan gives it on each rank.
    for pool in tier["pools"].as_array().expect("pools") {
        for part in pool["parts"].as_array().expect("parts") {
            let name = format!("{}.{}", pool["name"], part["name"]).replace('"', "");
            let of = |rank: &str| {
                let found = parts.iter().find(|(part, of, _)| *part == name && of == rank);
                found.map_or(0, |(_, _, bytes)| *bytes)
            };
            assert_eq!(part["host_bytes"], of("0"), "{name}: {facts}");
        }
    }
    planned
}

#[test]
fn each_way_to_say_how_large_it_is_gets_what_the_plan_says() {
    let pool = "--kv-pool-bytes 1MiB";
    let device = 1_048_576 / 24_576 * 24_576;
    assert_eq!(as_planned("tiny-llama", &format!("{pool} --hicache-ratio 3")), 3 * device);
    let budget = as_planned("tiny-llama", &format!("{pool} --hicache-budget 5MB"));
    assert!(budget <= 5_000_000 && budget > 5_000_000 - 24_576, "{budget}");
    let sized = as_planned("tiny-llama", &format!("{pool} --hicache-size 0.005"));
    assert_eq!(sized, budget);
    // The size is that of each rank, the budget that of all.
    let both = as_planned("tiny-llama", &format!("{pool} --hicache-size 0.005 --tp-size 2"));
    assert!(both > budget + 4_000_000 && both <= 10_000_000, "{both}");
    let both = as_planned("tiny-llama", &format!("{pool} --hicache-budget 5MB --tp-size 2"));
    assert!(both <= 5_000_000, "{both}");
    let flags = "--hicache-write-policy write_through_selective --hicache-mem-layout layer_first \
                 --hicache-load-back-threshold 100 --hicache-numa off --hicache-target 9MB";
    assert_eq!(as_planned("tiny-llama", &format!("{pool} {flags}")), 2 * device);
}

#[test]
fn models_with_several_pools_get_what_the_plan_says_too() {
    let flags = "--kv-pool-bytes 1MiB --max-context 400 --prefill-chunk 64 --hicache-budget 4MB";
    let both = as_planned("tiny-gemma3", flags);
    assert!(both <= 4_000_000 && both > 3_900_000, "{both}");
    let flags = "--kv-pool-bytes 3MiB --max-context 1300 --prefill-chunk 64 --tp-size 2 \
                 --hicache-ratio 3 --hicache-write-policy write_back";
    // What is not mirrored takes nothing on the host.
    let both = as_planned("tiny-deepseek-v4", flags);
    assert!(both > 0 && both < 3 * 3 * 1_048_576, "{both}");
}

#[test]
fn a_model_without_bytes_has_a_tier_without_memory() {
    let mut server = Server::logged(&format!("--model fake {TIER} --kv-pool-bytes 1MiB"));
    let body = json!({"model": "fake", "prompt": "a", "max_tokens": 2});
    post(&server.api, "/v1/completions", &body);
    server.signal("TERM");
    let log = server.log();
    assert_eq!(server.exit_code(), Some(0));
    assert_eq!(facts(&log)["allocated_bytes"], 0);
    assert_eq!(facts(&log)["parts"], "");
}

#[test]
fn memory_that_is_refused_half_way_ends_in_75_with_the_table_and_the_cause() {
    // Two maps: the address space has room for the first and not for the second.
    let flags = format!("--port 0 --probe-port 0 {TIER} --hicache-budget 1500MB");
    let script = "ulimit -v 1600000 && exec \"$0\" serve --model \"$1\" $2";
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_sightline-server"), &fixture("tiny-llama")])
        .arg(format!("--kv-pool-bytes 2MiB {flags}"))
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(75), "{text}");
    let says = [
        "host tier, each rank",
        "1.50",
        "error HIC010: --hicache-budget 1500MB",
        "host memory of kv, rank 0, slab 1 ",
        "Cannot allocate memory",
        "1.53 GiB (ulimit -v)",
        "try --hicache-budget 750MB",
    ];
    for part in says {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert!(output.stdout.is_empty(), "it never was ready");
}

#[test]
fn a_size_per_rank_of_a_model_with_many_pools_is_refused_in_less_than_a_second() {
    let model = fixture("tiny-deepseek-v4");
    let run = |_| {
        let clock = Clock::start();
        let output = binary()
            .args(["serve", "--port", "0", TIER, "--hicache-size", "150", "--model", &model])
            .output()
            .expect("the binary starts");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(78), "{text}");
        assert!(text.contains("HIC001") && text.contains("try --hicache-ratio "), "{text}");
        clock.now().since(Time::ZERO)
    };
    // A busy machine is not the server's fault.
    let fastest = (0..5).map(run).min().expect("five");
    assert!(fastest < Duration::from_secs(1), "{fastest:?}");
}

#[test]
fn a_signal_while_memory_is_taken_ends_at_once_with_0() {
    let mut child = binary()
        .args(["serve", "--port", "0", "--probe-port", "0", "--kv-pool-bytes", "2MiB"])
        .args(["--model", &fixture("tiny-llama"), TIER, "--hicache-budget", "1GB"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let log = BufReader::new(child.stderr.take().expect("standard error is piped"));
    let mut lines = log.lines().map(|line| line.expect("a line"));
    let begun = lines.find(|line| line.contains("Taking the memory of the host tier."));
    assert!(begun.is_some(), "it takes memory");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().expect("kill").success());
    let rest: Vec<String> = lines.collect();
    assert_eq!(child.wait().expect("the process ends").code(), Some(0), "{rest:?}");
    // On a machine that is faster than the signal it serves already and drains.
    let stopped = |line: &String| line.contains("Stopped before") || line.contains("Draining.");
    assert!(rest.iter().any(stopped), "{rest:?}");
}

/// Streams, one for each conversation, that have begun to answer.
fn streams(server: &Server, tokens: usize) -> Vec<Connection> {
    let stream = |talk: u32| {
        let prompt: Vec<u32> = (0..300).map(|at| 5 + (talk * 61 + at * 7) % 200).collect();
        let body = json!({
            "model": "tiny-llama", "prompt": prompt, "max_tokens": tokens, "stream": true,
            "temperature": 0, "ignore_eos": true
        });
        let mut stream = Connection::open(&server.api);
        stream.send("POST", "/v1/completions", &body.to_string());
        assert_eq!(stream.head().0, 200);
        stream
    };
    (0..4).map(stream).collect()
}

/// A server whose conversations do not fit its device, so that pages move both ways all the time.
fn moving() -> Server {
    let model = fixture("tiny-llama");
    let flags = "--kv-pool-bytes 800KiB --max-context 500 --hicache-ratio 8 --threads 1";
    let server = Server::start(&format!("--probe-port 0 --model {model} {TIER} {flags}"));
    for mut stream in streams(&server, 2) {
        while !stream.line().contains("[DONE]") {}
    }
    server
}

#[test]
fn draining_finishes_answers_whose_pages_move_between_the_tiers() {
    let mut server = moving();
    let running = streams(&server, 100);
    server.signal("TERM");
    for mut stream in running {
        let rest = stream.rest();
        assert!(rest.contains("[DONE]"), "{rest}");
    }
    assert_eq!(server.exit_code(), Some(0));
}

#[test]
fn a_second_signal_ends_at_once_while_pages_move_between_the_tiers() {
    let mut server = moving();
    let running = streams(&server, 190);
    server.signal("TERM");
    while get(&server.probes, "/readyz").status == 200 {}
    server.signal("TERM");
    for mut stream in running {
        let rest = stream.rest();
        assert!(rest.contains("server_draining") || rest.contains("[DONE]"), "{rest}");
    }
    assert_eq!(server.exit_code(), Some(0));
}
