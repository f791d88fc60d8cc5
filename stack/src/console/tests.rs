use std::collections::BTreeSet;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use serde_json::Value;
use tower::ServiceExt;

use super::*;
use crate::rules::Rules;
use crate::store::{Bounds, Store};

fn console() -> Router {
    let rules = Arc::new(Rules::parse(&rule_files()).expect("generated rules parse"));
    let store = Arc::new(Store::new(Bounds::default()));
    let api = Arc::new(Api::new(store, rules, Arc::default()));
    routes(api, Guard::new([127, 0, 0, 1].into(), &[]))
}

/// Asks for a path with these headers.
pub(super) fn ask(routes: Router, path: &str, headers: &[(&str, &str)]) -> Response<Vec<u8>> {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::empty()).expect("valid");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let response = routes.oneshot(request).await.expect("routes do not fail");
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, 16 << 20).await.expect("a body");
        Response::from_parts(parts, body.to_vec())
    })
}

fn text(response: &Response<Vec<u8>>) -> &str {
    std::str::from_utf8(response.body()).expect("UTF-8")
}

#[test]
fn the_generated_rules_are_usable() {
    let rules = Rules::parse(&rule_files()).expect("generated rules parse");
    let groups = rules.groups_json(&crate::rules::Filter::default());
    let empty = groups["groups"].as_array().is_none_or(Vec::is_empty);
    assert!(!empty, "no rules are embedded");
}

#[test]
fn every_file_that_the_page_names_is_embedded() {
    for file in assets::FILES {
        if !file.name.ends_with(".js") && !file.name.ends_with(".html") {
            continue;
        }
        let bytes = file.inflated();
        let text = std::str::from_utf8(&bytes).expect("web files are UTF-8");
        for quoted in text.split('"').filter(|q| q.starts_with('/') && !q.contains(' ')) {
            if [".js", ".css", ".svg"].iter().any(|ending| quoted.ends_with(ending)) {
                let known = assets::find(quoted.trim_start_matches('/')).is_some();
                assert!(known, "{} names {quoted}, which is not embedded", file.name);
            }
        }
    }
}

#[test]
fn one_answer_holds_what_a_page_needs_first() {
    let answer = ask(console(), "/console/api/start?board=sightline-queue", &[]);
    let body: Value = serde_json::from_slice(answer.body()).expect("JSON");
    let data = &body["data"];
    assert_eq!((&body["status"], &data["mode"]), (&"success".into(), &"store".into()));
    assert_eq!(data["board"]["uid"], "sightline-queue");
    assert!(data["boards"].as_array().is_some_and(|boards| boards.len() >= 6), "{data}");
    assert_eq!(data["retention"], 7200.0);
    for path in ["/console/api/start", "/console/api/start?board=none"] {
        let body: Value = serde_json::from_slice(ask(console(), path, &[]).body()).expect("JSON");
        assert_eq!(body["data"]["board"], Value::Null);
    }
}

#[test]
fn a_page_names_all_scripts_and_its_board_at_once() {
    let page = ask(console(), "/d/sightline-queue", &[]);
    let html = text(&page);
    assert!(html.contains("href=\"/console/api/start?board=sightline-queue\" as=\"fetch\""));
    for script in assets::FILES.iter().filter(|file| file.name.ends_with(".js")) {
        assert!(html.contains(&format!("modulepreload\" href=\"/{}\"", script.name)));
    }
    // What an address says is not written into a page.
    let strange = ask(console(), "/d/%22%3E%3Cscript%3E/x", &[]);
    assert_eq!(strange.status(), 200);
    assert!(text(&strange).contains("href=\"/console/api/start\" as"));
    assert!(!text(&strange).contains("><script>"));
}

#[test]
fn nothing_in_a_page_runs_but_files() {
    for path in ["/", "/alerts", "/runbook", links::RUNBOOK] {
        let page = ask(console(), path, &[]);
        let policy = page.headers()["content-security-policy"].to_str().expect("ASCII");
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        let html = text(&page);
        assert!(!html.contains("<style") && !html.contains(" style="), "{path}");
        let scripts: BTreeSet<&str> = html.split("<script").skip(1).collect();
        assert!(scripts.iter().all(|script| script.contains(" src=\"/")), "{path}: {scripts:?}");
    }
}

#[test]
fn strangers_get_no_answer_and_every_answer_is_guarded() {
    let answer = ask(console(), "/api/v1/labels", &[("host", "evil.example:8088")]);
    assert_eq!(answer.status(), 421);
    assert!(text(&answer).contains("--allowed-host evil.example"), "{}", text(&answer));
    let forward = ask(console(), "http://evil.example/api/v1/labels", &[("host", "localhost")]);
    assert_eq!(forward.status(), 421, "the address of the request counts as well");
    for path in ["/", "/js/main.js", "/api/v1/labels", "/nothing", "/console/api/boards"] {
        let answer = ask(console(), path, &[("host", "127.0.0.1:8088")]);
        for name in ["x-content-type-options", "x-frame-options", "content-security-policy"] {
            assert!(answer.headers().contains_key(name), "{path}: {name}");
        }
        assert!(answer.headers().contains_key("cache-control"), "{path}");
    }
}

#[test]
fn long_answers_travel_compressed_and_short_ones_as_they_are() {
    use std::io::Read;
    let plain = ask(console(), "/api/v1/rules", &[]);
    assert!(plain.headers().get("content-encoding").is_none());
    let packed = ask(console(), "/api/v1/rules", &[("accept-encoding", "gzip")]);
    assert_eq!(packed.headers()["content-encoding"], "gzip");
    assert_eq!(packed.headers()["vary"], "accept-encoding");
    let mut inflated = Vec::new();
    let mut decoder = flate2::read::GzDecoder::new(packed.body().as_slice());
    decoder.read_to_end(&mut inflated).expect("gzip");
    assert_eq!(&inflated, plain.body());
    assert!(packed.body().len() * 3 < inflated.len());
    let short = ask(console(), "/api/v1/labels", &[("accept-encoding", "gzip")]);
    assert!(short.headers().get("content-encoding").is_none());
}

#[test]
fn a_board_is_sent_once() {
    let path = "/console/api/boards/sightline-overview";
    let first = ask(console(), path, &[("accept-encoding", "gzip")]);
    let tag = first.headers()["etag"].to_str().expect("ASCII").to_owned();
    let again = ask(console(), path, &[("if-none-match", &tag)]);
    assert_eq!((again.status().as_u16(), again.body().len()), (304, 0));
    assert_eq!(ask(console(), "/console/api/boards/none", &[]).status(), 404);
    assert_eq!(ask(console(), "/own/manifest.json", &[]).status(), 404);
}

/// What a first visit moves, so that it does not grow unseen.
#[test]
fn the_first_visit_is_small() {
    let web: usize = assets::FILES
        .iter()
        .filter(|file| !file.name.starts_with("own/") && !file.name.contains("LICENSE"))
        .map(assets::Packed::packed_len)
        .sum();
    let largest = assets::BOARDS.iter().map(assets::Packed::packed_len).max().unwrap_or(0);
    println!("web files {web} bytes, largest board {largest} bytes, compressed");
    assert!(web < 160 << 10 && largest < 40 << 10, "{web} and {largest} bytes");
}

#[test]
fn every_link_of_a_board_ends_at_a_section_of_the_runbook() {
    let answer = ask(console(), "/console/api/runbook", &[]);
    assert_eq!(answer.headers()["content-type"], "text/markdown; charset=utf-8");
    let book = text(&answer);
    let mut found = 0;
    for board in board_texts() {
        let board = std::str::from_utf8(&board).expect("boards are UTF-8");
        for link in board.split('"').filter(|text| text.starts_with(links::RUNBOOK)) {
            let anchor = link.split('#').nth(1).expect("a link to a section");
            assert!(book.contains(&format!("\n## {anchor}\n")), "{link}");
            found += 1;
        }
    }
    assert!(found > 0, "no board links the runbook");
}
