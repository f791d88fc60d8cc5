//! Prefill and decode workers as processes: they answer like one, and outlive each other.

use serde_json::{Value, json};

use super::process::{Connection, Server, get, post, until};

const TINY: &str = "--model ../tests/fixtures/models/tiny-llama --served-model-name m --threads 1";
/// A prompt of 900 tokens is computed in about a second.
const SLOW: &str = "--model fake:step=1ms,prefill-token=1ms --served-model-name m \
                    --max-batch-tokens 64 --prefix-cache off";

fn prefill(flags: &str, port: &str) -> Server {
    Server::start(&format!("{flags} --role prefill --transfer-port {port}"))
}

/// A decode worker of `peer`, ready.
fn decode(flags: &str, peer: &Server) -> Server {
    let port = peer.transfer.as_deref().and_then(|address| address.rsplit_once(':'));
    let (_, port) = port.expect("a prefill worker tells its port");
    let peer = format!("--role decode --prefill-peer {}@{port}", peer.api);
    let server = Server::start(&format!("{flags} {peer}"));
    until("the pair is ready", || get(&server.api, "/readyz").status == 200);
    server
}

fn load(server: &Server) -> Value {
    serde_json::from_str(&get(&server.api, "/internal/load").body).expect("JSON")
}

/// Nothing is left of any request: no place in a queue, no page.
fn until_idle(server: &Server, free: u64) {
    until("nothing is left", || {
        let load = load(server);
        load["queued"]["requests"] == 0
            && load["running"] == 0
            && load["free_tokens"].as_u64() == Some(free)
    });
}

fn free(server: &Server) -> u64 {
    load(server)["free_tokens"].as_u64().expect("a number")
}

fn long(tokens: usize) -> Value {
    json!({"model": "m", "prompt": "x".repeat(900), "max_tokens": tokens, "ignore_eos": true})
}

/// Sends a request whose answer is read later.
fn begin(server: &Server, body: &Value) -> Connection {
    let mut connection = Connection::open(&server.api);
    connection.send("POST", "/v1/completions", &body.to_string());
    connection
}

#[test]
fn processes_answer_like_one_and_stop_cleanly() {
    let unified = Server::start(TINY);
    let mut prefill = prefill(TINY, "0");
    let mut decode = decode(TINY, &prefill);
    let text = "The harbour office keeps a ledger of ships, of crews and of storms. ".repeat(3);
    for temperature in [0.0, 1.2] {
        let body = json!({
            "model": "m", "prompt": text, "max_tokens": 24, "seed": 11, "logprobs": 1,
            "temperature": temperature
        });
        let [expected, answer] = [&unified, &decode]
            .map(|server| post(&server.api, "/v1/completions", &body)["choices"].clone());
        assert_eq!(answer, expected, "{body}");
    }
    for server in [&mut decode, &mut prefill] {
        server.signal("TERM");
        assert_eq!(server.exit_code(), Some(0));
    }
}

#[test]
fn a_prefill_worker_that_is_killed_costs_its_requests_and_no_more() {
    let mut first = prefill(SLOW, "0");
    let (_, port) = first.transfer.as_deref().and_then(|at| at.rsplit_once(':')).expect("a port");
    let port = port.to_owned();
    let decode = decode(SLOW, &first);
    let all = free(&decode);
    let mut waiting = begin(&decode, &long(2));
    until("it is computed", || load(&first)["running"] == 1);
    first.signal("KILL");
    first.exit_code();
    let answer = waiting.answer();
    assert_eq!(answer.status, 502, "{}", answer.body);
    assert!(answer.body.contains("peer_gone"), "{}", answer.body);
    assert!(answer.body.contains(&first.api), "{}", answer.body);
    assert!(answer.head.contains("x-sightline-retryable: 1"), "{}", answer.head);
    assert!(answer.head.contains("x-sightline-cause: prefill"), "{}", answer.head);
    until_idle(&decode, all);
    until("it is missed", || get(&decode.probes, "/readyz").status == 503);
    let second = prefill(SLOW, &port);
    until("it is found again", || get(&decode.probes, "/readyz").status == 200);
    let all = free(&second);
    let answer = post(&decode.api, "/v1/completions", &long(2));
    assert_eq!(answer["usage"]["completion_tokens"], 2, "{answer}");
    until_idle(&second, all);
}

#[test]
fn a_decode_worker_that_is_killed_leaves_nothing_at_the_prefill_worker() {
    let prefill = prefill(SLOW, "0");
    let all = free(&prefill);
    let mut first = decode(SLOW, &prefill);
    let asked: Vec<_> = (0..3).map(|_| begin(&first, &long(2))).collect();
    until("one is computed, others wait", || load(&prefill)["running"].as_u64() > Some(0));
    first.signal("KILL");
    first.exit_code();
    drop(asked);
    until_idle(&prefill, all);
    let second = decode(SLOW, &prefill);
    let answer = post(&second.api, "/v1/completions", &long(2));
    assert_eq!(answer["usage"]["completion_tokens"], 2, "{answer}");
    until_idle(&prefill, all);
}
