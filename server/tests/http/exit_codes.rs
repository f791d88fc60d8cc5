//! Every exit code that one process alone can come to, and what it says before.

use super::process::{Connection, Server, binary, completion, get, run};

fn check(args: &str, code: i32, says: &[&str]) {
    let output = run(args);
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(output.status.code(), Some(code), "{args}: {text}");
    for part in says {
        assert!(text.contains(part), "{args}: {part:?} is not in {text}");
    }
}

#[test]
fn a_wrong_command_line_is_64_and_suggests_the_nearest_flag() {
    check("serve --modell fake", 64, &["--modell", "--model"]);
    check("serve --model fake --kv-pool-bytes 512", 64, &["need a unit", "512MiB"]);
    check("serve --model fake --ttft-objective 30", 64, &["need", "30s"]);
    check("serf", 64, &["serve"]);
    check("serve", 64, &["--model"]);
    check("--help", 0, &["serve", "plan", "health"]);
    check("--version", 0, &["sightline-server"]);
}

#[test]
fn an_impossible_configuration_is_78_before_anything_is_loaded() {
    check("serve --model /nowhere", 78, &["--model /nowhere", "no such file"]);
    check("serve --model fake --page-tokens 0", 78, &["--page-tokens 0", "--page-tokens 16"]);
    let most = usize::MAX;
    for flag in ["max-running-requests", "max-batch-tokens", "max-connections", "max-unsent-tokens"]
    {
        let fix = format!("try --{flag} 1048576");
        check(&format!("plan --model fake --{flag} {most}"), 78, &["CFG007", &fix]);
    }
    check("serve --model fake:speed=1", 78, &["no option", "step"]);
    check("plan --model fake --max-context 99999", 78, &["--max-context 4096", "plan: 1 error"]);
    check("serve --config /nowhere.toml", 78, &["/nowhere.toml"]);
}

#[test]
fn a_host_that_is_too_small_is_69() {
    check("serve --model fake --kv-pool-bytes 4096TiB", 69, &["--kv-pool-bytes", "are left"]);
    check("plan --model fake --kv-pool-bytes 4096TiB", 69, &["MEM002"]);
}

#[test]
fn a_port_in_use_is_75() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("an address").port();
    let flags = format!("--model fake --port {port} --probe-port 0");
    check(&format!("serve {flags}"), 75, &["another process", "--port 0"]);
    check(&format!("plan {flags}"), 75, &["NET003"]);
    let flags = format!("--model fake --port 0 --probe-port {port}");
    check(&format!("serve {flags}"), 75, &["--probe-port"]);
}

#[test]
fn a_plan_prints_every_value_as_a_table_or_as_json() {
    let flags = "--model fake --port 0 --max-queued-tokens 0 --threads 3";
    check(&format!("plan {flags}"), 0, &["plan: valid", "no limit", "KV pool", "usable"]);
    let output = run(&format!("plan {flags} --format json"));
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(plan["valid"], true);
    assert_eq!(plan["resolved"]["values"]["threads"], "3");
    assert!(plan["resolved"]["pools"][0]["pages"].as_u64().is_some_and(|pages| pages > 0));
    let total = plan["resolved"]["memory"]["total_bytes"].as_u64().expect("a sum");
    let rows = plan["resolved"]["memory"]["rows"].as_array().expect("rows").iter();
    assert_eq!(rows.filter_map(|row| row["bytes"].as_u64()).sum::<u64>(), total);
}

#[test]
fn environment_and_file_set_flags_and_the_command_line_wins() {
    let path = std::env::temp_dir().join(format!("sightline-flags-{}.toml", std::process::id()));
    std::fs::write(&path, "model = \"fake\"\nport = 0\nthreads = 5\npage-tokens = 32\n")
        .expect("the temporary folder is writable");
    let output = binary()
        .args(["plan", "--format", "json", "--threads", "6", "--config"])
        .arg(&path)
        .env("SIGHTLINE_MAX_QUEUED_REQUESTS", "7")
        .output()
        .expect("the binary starts");
    drop(std::fs::remove_file(&path));
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let values = &plan["resolved"]["values"];
    assert_eq!(values["threads"], "6");
    assert_eq!(values["page-tokens"], "32");
    assert_eq!(values["max-queued-requests"], "7");
}

#[test]
fn metrics_prints_the_catalog() {
    check("metrics", 0, &["sightline_queue_requests", "process_cpu_seconds_total", "| gauge |"]);
}

#[test]
fn a_signal_drains_and_the_end_is_0() {
    let mut server = Server::start("--model fake:step=2ms");
    let mut stream = Connection::open(&server.api);
    stream.send("POST", "/v1/completions", &completion(300, true));
    assert_eq!(stream.head().0, 200);
    server.signal("TERM");
    let rest = stream.rest();
    assert!(rest.contains("[DONE]"), "the stream was finished");
    assert_eq!(server.exit_code(), Some(0));
}

#[test]
fn the_deadline_and_a_second_signal_cut_with_an_error_event_and_the_end_is_0() {
    let mut server = Server::start("--model fake:step=2ms,context=100000 --drain-deadline 50ms");
    let mut stream = Connection::open(&server.api);
    stream.send("POST", "/v1/completions", &completion(90_000, true));
    assert_eq!(stream.head().0, 200);
    server.signal("INT");
    let rest = stream.rest();
    assert!(rest.contains("server_draining") && !rest.contains("[DONE]"));
    assert_eq!(server.exit_code(), Some(0));

    let mut server = Server::start("--model fake:step=2ms,context=100000");
    let mut stream = Connection::open(&server.api);
    stream.send("POST", "/v1/completions", &completion(90_000, true));
    assert_eq!(stream.head().0, 200);
    server.signal("TERM");
    while get(&server.probes, "/readyz").status == 200 {}
    server.signal("TERM");
    assert!(stream.rest().contains("server_draining"));
    assert_eq!(server.exit_code(), Some(0));
}

#[test]
fn a_failed_engine_ends_in_70() {
    let mut server = Server::start("--model fake:step=0ms,fail-at=4");
    let mut connection = Connection::open(&server.api);
    connection.send("POST", "/v1/completions", &completion(50, false));
    assert_eq!(connection.answer().status, 500);
    while get(&server.probes, "/livez").status == 200 {}
    assert_eq!(get(&server.probes, "/readyz").status, 503);
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(70));
}

#[test]
fn an_engine_that_fails_while_it_drains_ends_in_70() {
    let mut server = Server::start("--model fake:step=5ms,fail-at=400");
    let mut stream = Connection::open(&server.api);
    stream.send("POST", "/v1/completions", &completion(1000, true));
    assert_eq!(stream.head().0, 200);
    server.signal("TERM");
    assert!(stream.rest().contains("internal_error"));
    assert_eq!(server.exit_code(), Some(70));
}

#[test]
fn health_asks_a_server() {
    let server = Server::start("--model fake");
    check(&format!("health --address {}", server.probes), 0, &["ready"]);
    check(&format!("health --address {}", server.api), 0, &["ready"]);
    let gone = server.probes.clone();
    drop(server);
    check(&format!("health --address {gone} --timeout 500ms"), 75, &[&gone]);
}
