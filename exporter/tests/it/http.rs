//! What it answers over HTTP, and how it starts and ends.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use crate::harness::{Answer, Exporter, PATIENCE, eventually, run};

#[test]
fn it_answers_and_ends_when_told_to() {
    let mut exporter = Exporter::start(&["--no-nvml"]);
    for (method, path, status) in [
        ("GET", "/", 200),
        ("GET", "/livez", 200),
        ("GET", "/metrics", 200),
        ("HEAD", "/metrics", 200),
        ("POST", "/metrics", 405),
        ("GET", "/-/release", 405),
        ("GET", "/nothing", 404),
    ] {
        let answer = exporter.request(method, path, &[]);
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
        assert_eq!(answer.body.is_empty(), method == "HEAD", "{method} {path}");
    }
    let page = exporter.get("/metrics");
    assert_eq!(page.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    assert!(eventually(|| exporter.get("/startupz").status == 200));
    let health = exporter.get("/health");
    assert_eq!(health.headers["content-type"], "application/json");
    assert_eq!(health.status, if health.json()["healthy"] == true { 200 } else { 503 });
    // The same bytes, unless another verdict was painted in between.
    let same = || exporter.get("/readyz").body == exporter.get("/health").body;
    assert!(eventually(same), "{}", exporter.get("/readyz").body);
    // A request that is being sent is not cut off by the end; one that never comes is.
    let silent = exporter.connect();
    assert_eq!(exporter.stop(), Some(0), "{}", exporter.log());
    drop(silent);
}

#[test]
fn the_page_says_what_it_is_and_how_each_collector_does() {
    let exporter = Exporter::start(&["--no-nvml", "--interval=page=50ms"]);
    let page = exporter.page_where("numbers of memory", |page| {
        page.value("sightline_node_collector_success", &[("collector", "numa")]) == Some(1.0)
    });
    assert_eq!(page.all("sightline_node_build_info", &[]).len(), 1);
    for collector in metric_catalog::labels::Collector::ALL {
        let labels = [("collector", collector.as_str())];
        for family in ["supported", "interval_seconds", "success", "duration_seconds"] {
            let name = format!("sightline_node_collector_{family}");
            assert!(page.value(&name, &labels).is_some(), "{name} {labels:?}");
        }
        let errors = page.all("sightline_node_collector_errors_total", &labels);
        assert_eq!(errors.len(), metric_catalog::labels::CollectorError::ALL.len());
    }
    let off = [("collector", "web_config")];
    assert_eq!(page.value("sightline_node_collector_supported", &off), Some(0.0));
}

#[test]
fn what_cannot_work_ends_with_its_code_and_a_reason() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it is bound").to_string();
    let listen = format!("--listen={address}");
    for (args, code, said) in [
        (&["--listen=9840"][..], 64, "127.0.0.1:9840"),
        (&["--servic=a"], 64, "--service"),
        (&["--service=a", "--service=a"], 78, "twice"),
        (&["--config=/nowhere.toml"], 78, "/nowhere.toml"),
        (&[&listen], 75, "free port"),
        (&["--listen=192.0.2.1:1"], 69, "192.0.2.1:1"),
        (&["--check", "--web.config.file=/nowhere.yml"], 78, "/nowhere.yml"),
        (&["--check", "--service=a"], 0, ""),
        (&["--help"], 0, ""),
    ] {
        let output = run(args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        assert!(text.contains(said), "{args:?}: {text}");
    }
}

#[test]
fn clients_that_say_nothing_do_not_keep_others_out() {
    let exporter = Exporter::start(&["--no-nvml", "--web.max-requests=2"]);
    // More than the bound of connections (2 x 2 + 16), all of them open.
    let mut silent: Vec<_> = (0..40).map(|_| exporter.connect()).collect();
    for stream in &mut silent[..20] {
        // Some were closed to make room; that is what this is about.
        drop(stream.write_all(b"GET /metr"));
    }
    for _ in 0..3 {
        let answer = exporter.get("/metrics");
        assert_eq!(answer.status, 200);
        assert!(answer.took < PATIENCE / 40, "{:?}", answer.took);
    }
    let mut closed = 0;
    for stream in &mut silent {
        stream.set_read_timeout(Some(Duration::from_millis(1))).expect("not zero");
        let still = std::io::ErrorKind::WouldBlock;
        let end = stream.read(&mut [0; 1]).map_or_else(|e| e.kind() != still, |read| read == 0);
        closed += usize::from(end);
    }
    assert!(closed >= 20, "{closed}");
}

#[test]
fn one_connection_serves_many_scrapes() {
    let exporter = Exporter::start(&["--no-nvml"]);
    let mut stream = exporter.connect();
    for _ in 0..3 {
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").expect("it is open");
        let mut bytes = vec![0; 1024];
        let read = stream.read(&mut bytes).expect("it answers");
        let answer = Answer::parse(&bytes[..read]);
        assert_eq!((answer.status, answer.body.as_str()), (200, "alive\n"));
    }
}

#[test]
fn releasing_cards_that_nobody_holds_is_a_conflict() {
    let exporter = Exporter::start(&["--no-nvml"]);
    let answer = exporter.request("POST", "/-/release", &[]);
    assert_eq!((answer.status, &answer.json()["released"]), (409, &false.into()));
    let page = [("Origin", "http://evil.example")];
    assert_eq!(exporter.request("POST", "/-/release", &page).status, 403);
}
