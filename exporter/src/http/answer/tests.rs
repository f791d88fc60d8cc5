use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use tokio::sync::Semaphore;

use super::*;
use crate::http::auth::Checker;
use crate::http::web_config::WebConfig;
use crate::http::{InForce, Release};
use crate::paint::{Board, Painted};

fn releasing(
    result: impl Fn() -> Result<Duration, NotReleased> + Send + Sync + 'static,
) -> Release {
    Arc::new(move || Box::pin(std::future::ready(result())))
}

/// A door with these bounds, behind which the node is `healthy`.
pub(in crate::http) fn door(healthy: bool, answers: usize, page: &str) -> Door {
    let board = Board::default();
    board.set(Painted {
        metrics: Bytes::from(page.to_owned()),
        health: Bytes::from_static(b"{}"),
        healthy,
        started: healthy,
    });
    let release = releasing(|| Ok(Duration::from_secs(60)));
    Door {
        board,
        web: InForce::default(),
        checker: Checker::start().expect("the thread starts"),
        release,
        answers: Arc::new(Semaphore::new(answers)),
        connections: 4,
        timeout: Duration::from_secs(10),
    }
}

pub(in crate::http) fn near() -> Peer {
    Peer { address: "127.0.0.1:1".parse().expect("an address"), certified: false }
}

fn far(certified: bool) -> Peer {
    Peer { address: "192.0.2.1:1".parse().expect("an address"), certified }
}

fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut builder = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(()).expect("a request")
}

fn ask(door: &Door, peer: Peer, request: &Request<()>) -> Answer {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(answer(door, peer, request)).0
}

fn status(door: &Door, peer: Peer, method: &str, path: &str, headers: &[(&str, &str)]) -> u16 {
    ask(door, peer, &request(method, path, headers)).status().as_u16()
}

fn body(answer: Answer) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let bytes = runtime.block_on(answer.into_body().collect()).expect("it is whole").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[test]
fn paths_and_methods() {
    let door = door(true, 1, "page 1\n");
    for (method, path, expected) in [
        ("GET", "/", 200),
        ("GET", "/metrics", 200),
        ("HEAD", "/metrics", 200),
        ("GET", "/metrics?x=1", 200),
        ("POST", "/metrics", 405),
        ("GET", "/health", 200),
        ("GET", "/readyz", 200),
        ("GET", "/livez", 200),
        ("GET", "/startupz", 200),
        ("GET", "/-/release", 405),
        ("GET", "/metrics/", 404),
        ("GET", "/nothing", 404),
        ("DELETE", "/nothing", 404),
    ] {
        assert_eq!(status(&door, near(), method, path, &[]), expected, "{method} {path}");
    }
    let page = ask(&door, near(), &request("GET", "/metrics", &[]));
    assert_eq!(page.headers()[CONTENT_TYPE], METRICS);
    assert_eq!(body(page), "page 1\n");
    let wrong = ask(&door, near(), &request("PUT", "/health", &[]));
    assert_eq!(wrong.headers()[ALLOW], "GET, HEAD");
}

#[test]
fn a_node_that_is_not_fit_is_told_by_the_status() {
    let door = door(false, 1, "");
    for path in ["/health", "/readyz", "/startupz"] {
        assert_eq!(status(&door, near(), "GET", path, &[]), 503, "{path}");
    }
    assert_eq!(status(&door, near(), "GET", "/livez", &[]), 200);
}

#[test]
fn more_than_the_bound_is_told_to_come_again() {
    let door = door(true, 1, "");
    let held = Arc::clone(&door.answers).try_acquire_owned().expect("one is free");
    let refused = ask(&door, near(), &request("GET", "/metrics", &[]));
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()[RETRY_AFTER], "1");
    drop(held);
    assert_eq!(status(&door, near(), "GET", "/metrics", &[]), 200);
}

#[test]
fn passwords_keep_others_out_of_everything() {
    let door = door(true, 1, "");
    let hash = bcrypt::hash("one", 4).expect("hashes");
    let headers = vec![(hyper::header::X_FRAME_OPTIONS, HeaderValue::from_static("deny"))];
    let users = [("anna".to_owned(), hash)].into();
    door.web.set(WebConfig { users, headers, ..WebConfig::default() });
    let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
    let right = basic("anna:one");
    for path in ["/metrics", "/health", "/livez", "/nothing", "/"] {
        let refused = ask(&door, near(), &request("GET", path, &[]));
        assert_eq!(refused.status(), 401, "{path}");
        assert!(refused.headers()[WWW_AUTHENTICATE].to_str().expect("text").contains("Basic"));
        assert_eq!(refused.headers()["x-frame-options"], "deny");
        assert_ne!(status(&door, near(), "GET", path, &[("authorization", &right)]), 401);
    }
    for wrong in [
        basic("anna:two"),
        basic("anna"),
        basic(":"),
        basic("bob:one"),
        "Basic ?".to_owned(),
        "Bearer one".to_owned(),
        right.replace("Basic ", ""),
    ] {
        let got = status(&door, near(), "GET", "/metrics", &[("authorization", &wrong)]);
        assert_eq!(got, 401, "{wrong}");
    }
    let lower = right.replace("Basic", "basic");
    assert_eq!(status(&door, near(), "GET", "/metrics", &[("authorization", &lower)]), 200);
}

#[test]
fn cards_are_released_for_this_host_and_for_who_is_known() {
    let mut door = door(true, 1, "");
    let post = |door: &Door, peer, headers: &[(&str, &str)]| {
        status(door, peer, "POST", "/-/release", headers)
    };
    assert_eq!(post(&door, near(), &[]), 200);
    assert_eq!(post(&door, far(false), &[]), 403);
    assert_eq!(post(&door, far(true), &[]), 200);
    assert_eq!(post(&door, near(), &[("origin", "http://evil.example")]), 403);
    let answer = ask(&door, near(), &request("POST", "/-/release", &[]));
    assert!(body(answer).contains("60"));
    let held = |why: &str| why.to_owned();
    for (error, code) in [
        (NotReleased::Impossible(held("no card is read")), 409),
        (NotReleased::Held(held("process 7 is stuck")), 503),
        (NotReleased::Late(held("process 7 has not ended")), 504),
    ] {
        let reason = error.to_string();
        door.release = releasing(move || Err(error.clone()));
        let answer = ask(&door, near(), &request("POST", "/-/release", &[]));
        assert_eq!(answer.status(), code);
        let told: serde_json::Value = serde_json::from_str(&body(answer)).expect("JSON");
        assert_eq!(told, serde_json::json!({"released": false, "reason": reason}));
    }
}

#[test]
fn who_waits_for_the_cards_keeps_nobody_from_the_page() {
    let mut door = door(true, 1, "");
    door.release = Arc::new(|| Box::pin(std::future::pending()));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let asked = request("POST", "/-/release", &[]);
        let mut waits = std::pin::pin!(answer(&door, near(), &asked));
        tokio::select! {
            biased;
            _ = waits.as_mut() => panic!("the cards are not free"),
            () = std::future::ready(()) => {}
        }
        let (page, _) = answer(&door, near(), &request("GET", "/metrics", &[])).await;
        assert_eq!(page.status(), 200);
    });
}
