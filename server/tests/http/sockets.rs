//! What only real connections show.

use super::process::{Connection, Server, completion, get};

/// The sum of a metric over all its series.
fn metric(host: &str, name: &str) -> f64 {
    sum(host, name, "")
}

/// The sum over the series of `name` that have `label`.
fn sum(host: &str, name: &str, label: &str) -> f64 {
    let page = get(host, "/metrics").body;
    let of_name = |line: &&str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
            && line.contains(label)
    };
    let value = |line: &str| line.rsplit_once(' ').and_then(|(_, v)| v.parse::<f64>().ok());
    page.lines().filter(of_name).filter_map(value).sum()
}

fn idle(host: &str) {
    while metric(host, "sightline_running_requests") + metric(host, "sightline_queue_requests")
        > 0.0
    {}
}

#[test]
fn a_connection_survives_refusals() {
    let server = Server::start("--model fake:step=0ms");
    let mut connection = Connection::open(&server.api);
    for _ in 0..3 {
        connection.send("POST", "/v1/completions", "{\"model\":\"fake\",\"prompt\":[]}");
        assert_eq!(connection.answer().status, 400);
        connection.send("GET", "/v1/nothing", "");
        assert_eq!(connection.answer().status, 404);
        connection.send("FOO1", "/v1/models", "");
        assert_eq!(connection.answer().status, 405);
        connection.send("POST", "/v1/completions", &completion(2, false));
        assert_eq!(connection.answer().status, 200);
    }
}

#[test]
fn a_huge_body_is_refused_unread_and_the_connection_closes() {
    let server = Server::start("--model fake:step=0ms --max-body-bytes 64KiB");
    let mut connection = Connection::open(&server.api);
    let head = "POST /v1/completions HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
                content-length: 1000000000\r\n\r\n";
    connection.write(head.as_bytes()).expect("the server reads");
    let answer = connection.answer();
    assert_eq!(answer.status, 413);
    assert!(answer.head.contains("connection: close"), "{}", answer.head);
    assert_eq!(connection.rest(), "");
    assert_eq!(get(&server.api, "/version").status, 200);
}

#[test]
fn clients_that_leave_free_everything() {
    let server = Server::start("--model fake:step=2ms,context=100000 --max-running-requests 1");
    let mut streaming = Connection::open(&server.api);
    streaming.send("POST", "/v1/completions", &completion(90_000, true));
    assert_eq!(streaming.head().0, 200);
    let mut waiting = Connection::open(&server.api);
    waiting.send("POST", "/v1/completions", &completion(90_000, false));
    while metric(&server.api, "sightline_queue_requests") == 0.0 {}
    drop(waiting);
    while metric(&server.api, "sightline_queue_requests") > 0.0 {}
    assert_eq!(metric(&server.api, "sightline_running_requests"), 1.0);
    assert!(streaming.line().ends_with("\r\n"));
    drop(streaming);
    idle(&server.api);
    let mut whole = Connection::open(&server.api);
    whole.send("POST", "/v1/completions", &completion(90_000, false));
    while metric(&server.api, "sightline_running_requests") == 0.0 {}
    drop(whole);
    idle(&server.api);
    // Bytes behind the request, read or not, do not hide that the client left.
    for further in ["\r\n".to_owned(), "GET /version HTTP/1.1\r\n".repeat(1000)] {
        let mut eager = Connection::open(&server.api);
        eager.send("POST", "/v1/completions", &completion(90_000, false));
        eager.write(further.as_bytes()).expect("the server reads");
        while metric(&server.api, "sightline_running_requests") == 0.0 {}
        drop(eager);
        idle(&server.api);
    }
    assert_eq!(sum(&server.api, "sightline_kv_pool_used_slots", "state=\"active\""), 0.0);
    assert!(metric(&server.api, "sightline_generation_tokens_total") < 90_000.0);
}

#[test]
fn probes_answer_while_every_thread_of_the_api_and_the_engine_is_busy() {
    let flags = "--model fake:step=2s --http-threads 1 --max-connections 1";
    let server = Server::start(flags);
    let mut connection = Connection::open(&server.api);
    connection.send("POST", "/v1/completions", &completion(1, false));
    // The API takes one connection and that is busy; the probes have their own.
    for probe in ["/livez", "/readyz", "/startupz", "/health"] {
        let answer = get(&server.probes, probe);
        assert_eq!((answer.status, answer.body.trim()), (200, "{\"state\":\"ready\"}"), "{probe}");
    }
    assert_eq!(get(&server.probes, "/metrics").status, 404);
    assert_eq!(connection.answer().status, 200);
}

#[test]
fn a_scrape_does_not_wait_for_a_forward_pass() {
    let server = Server::start("--model fake:step=3s");
    let mut connection = Connection::open(&server.api);
    connection.send("POST", "/v1/completions", &completion(1, false));
    while metric(&server.api, "sightline_running_requests") == 0.0 {}
    assert_eq!(metric(&server.api, "sightline_generation_tokens_total"), 0.0, "it still computes");
    assert_eq!(connection.answer().status, 200);
}

#[test]
fn metrics_can_be_switched_off() {
    let server = Server::start("--model fake:step=0ms --metrics off");
    let mut connection = Connection::open(&server.api);
    connection.send("POST", "/v1/completions", &completion(5, false));
    assert_eq!(connection.answer().status, 200);
    let page = get(&server.api, "/metrics");
    assert_eq!((page.status, page.body.as_str()), (200, ""));
}
