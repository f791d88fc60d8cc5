//! `sightline console` from outside: it starts over a Prometheus that is not there yet, answers,
//! and ends when told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::sightline;

/// Ends the process when a test fails half-way.
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Asks for a path under a name; the whole answer.
fn get(address: &str, host: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers with text");
    answer
}

#[test]
fn a_console_runs_without_its_prometheus_and_says_so() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sightline"));
    command.args(["console", "--prometheus", "http://me:secret@127.0.0.1:1/x", "--target", "vllm"]);
    command.args(["--listen", "127.0.0.1:0"]).stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut guarded = Guarded(child);
    let mut lines = BufReader::new(guarded.0.stdout.take().expect("piped")).lines();
    let mut told = Vec::new();
    while !told.iter().any(|line: &String| line.contains("Ctrl-C stops")) {
        told.push(lines.next().expect("it is not ready yet").expect("text"));
    }
    let address = told.iter().find_map(|line| line.split("http://").nth(1));
    let address = address.expect("an address").trim_end_matches('/').to_owned();
    let page = get(&address, &address, "/d/sightline-overview");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("/js/main.js"), "{page}");
    let start = get(&address, &address, "/console/api/start");
    assert!(start.contains("no connection") && start.contains("\"targets\":[\"vllm\"]"), "{start}");
    let query = get(&address, &address, "/api/v1/query?query=up");
    assert!(query.starts_with("HTTP/1.1 502") && query.contains("\"unavailable\""), "{query}");
    let strange = get(&address, "evil.example", "/");
    assert!(strange.starts_with("HTTP/1.1 421"), "{strange}");
    let pid = guarded.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
    assert_eq!(guarded.0.wait().expect("it ends").code(), Some(0));
    let mut said = String::new();
    let mut stderr = guarded.0.stderr.take().expect("piped");
    stderr.read_to_string(&mut said).expect("text");
    assert!(said.contains("asks again when a page does"), "{said}");
    assert!(!(said + &told.concat() + &start).contains("secret"), "a password is told");
}

#[test]
fn what_cannot_work_ends_it_at_once() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().expect("bound").to_string();
    for (args, code, words) in [
        (&["--prometheus", "prom"][..], 78, "http://HOST:PORT"),
        (&["--prometheus", "http://p", "--listen", &taken], 75, "--listen"),
        (&["--prometheus", "http://p", "--target", "x"], 64, "sglang"),
        (&[], 64, "--prometheus"),
    ] {
        let args = [&["console"], args].concat();
        let output = sightline(&args);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {told}");
        assert!(told.contains(words), "{args:?}: {told}");
    }
}
