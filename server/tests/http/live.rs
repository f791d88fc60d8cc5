//! `plan --live`: the advice of a server that runs.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::Value;

use super::process::{Connection, Server, get, run};

/// Exit code and what was printed, complaints included.
fn live(url: &str, flags: &str) -> (i32, String) {
    let output = run(&format!("plan --live {url} {flags}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    (output.status.code().expect("an exit code"), format!("{text}{errors}"))
}

fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

/// The sum of the series of the metrics page that have this name and this label.
fn metric(api: &str, name: &str, label: &str) -> f64 {
    let page = get(api, "/metrics").body;
    let is = |line: &&str| {
        let rest = line.strip_prefix("sightline_kv_hit_curve_").and_then(|l| l.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(label))
    };
    let lines = page.lines().filter(is);
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

#[test]
fn real_traffic_is_worth_what_the_metrics_say() {
    let server = Server::start("--model fake:step=0ms --kv-pool-bytes 512KiB");
    let mut client = Connection::open(&server.api);
    let mut ask = |name: &str| {
        let body = format!(
            "{{\"model\":\"fake\",\"prompt\":\"{name:0<200}\",\"max_tokens\":1,\
             \"ignore_eos\":true}}"
        );
        client.send("POST", "/v1/completions", &body);
        assert_eq!(client.answer().status, 200);
    };
    (0..20).for_each(|name| ask(&format!("filler {name} ")));
    for _ in 0..3 {
        (0..20).for_each(|name| ask(&format!("session {name} ")));
    }
    let metric = |name: &str, label: &str| metric(&server.api, name, label);
    while metric("lookup_tokens_total", "") < 16_000.0 {}
    let (code, text) = live(&format!("http://{}", server.api), "");
    assert_eq!(code, 0, "{text}");
    let hits = |ratio: &str| metric("hit_tokens_total", ratio);
    let found = hits("ratio=\"4\"") - hits("ratio=\"0\"");
    let bytes = metric("required_bytes", "ratio=\"4\"");
    let gain = (100.0 * found / metric("lookup_tokens_total", "")).round();
    let sentence = format!("ratio 4 would give +{gain} % hits for {:.1} MB more on ", bytes / 1e6);
    assert_eq!((gain, bytes), (48.0, 2_097_152.0));
    says(
        &text,
        &[
            &sentence,
            "model fake, no host tier",
            "since its start (",
            "80 requests, 16000 prompt tokens, 0.0 % of them found",
            "room for the tier ",
            "no host tier is in force: 0 % hits expected",
            "advice: too little traffic: 80 requests",
        ],
    );
    let (code, json) = live(&server.api, "--format json");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((code, json["window"]["prompt_tokens"].as_u64()), (0, Some(16_000)));
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
}

/// A server that says `answer` to whoever connects, twice.
fn stub(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(2) {
            let mut stream = stream.expect("a client");
            let mut request = [0; 1024];
            drop(stream.read(&mut request));
            drop(stream.write_all(answer.as_bytes()));
        }
    });
    address
}

#[test]
fn what_is_no_server_of_ours_is_said_with_its_exit_code() {
    let gone = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = gone.local_addr().expect("an address").to_string();
    drop(gone);
    let check = |url: &str, code: i32, parts: &[&str]| {
        let (ended, text) = live(url, "");
        assert_eq!(ended, code, "{url}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        says(&text, parts);
    };
    check(&address, 75, &["LIVE001: --live http://", "cannot be reached", "try the URL"]);
    check(&stub("SSH-2.0-OpenSSH_9.9\r\n"), 76, &["LIVE002", "no Sightline server", "no HTTP"]);
    let page = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
    check(&stub(page), 76, &["LIVE002", "answers 404 to GET /internal/plan"]);
    let other = "HTTP/1.1 200 OK\r\n\r\n{\"version\": \"0.9.1\"}";
    check(&stub(other), 76, &["LIVE002", "no Sightline server"]);
    let old = "HTTP/1.1 200 OK\r\n\r\n{\"version\": \"0.0.7\", \"model\": \"m\"}";
    check(&stub(old), 76, &["LIVE003", "Sightline 0.0.7", "plan --live of that version"]);
    let new = "HTTP/1.1 200 OK\r\n\r\n{\"server\": \"sightline\", \"form\": 2, \
               \"version\": \"9.0.0\"}";
    check(&stub(new), 76, &["LIVE003", "Sightline 9.0.0"]);
    let busy = "HTTP/1.1 503 Service Unavailable\r\n\r\n";
    check(&stub(busy), 75, &["LIVE001", "it answers 503"]);
    check(&stub(""), 76, &["LIVE002"]);
}

#[test]
fn a_url_stands_alone() {
    let usage = |flags: &str, parts: &[&str]| {
        let (code, text) = live(flags, "");
        assert_eq!(code, 64, "{text}");
        says(&text, parts);
    };
    usage("https://a:1", &["TLS", "http://127.0.0.1:8000"]);
    usage("http://a:b", &["\"b\" is no port"]);
    usage("http://a:1 --hicache-ratio 4", &["--live", "--hicache-ratio would change nothing"]);
    usage("http://a:1 --model fake", &["--model would change nothing"]);
    let output = run("plan");
    assert_eq!(output.status.code(), Some(64));
    says(&String::from_utf8_lossy(&output.stderr), &["--model"]);
}
