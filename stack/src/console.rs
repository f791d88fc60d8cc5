//! The web console: static files and the generated boards, embedded in the program.
//!
//! The pages read only this server: no file comes from elsewhere, which the content policy
//! enforces. The console draws; it computes nothing that the query API does not answer.

mod runbook;

use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use serde_json::{Value, json};

use crate::promapi::{self, Api};

mod embedded {
    //! Written by the build script.
    include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
}

/// Scripts and styles from here only; pictures may be inline.
const POLICY: &str = "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

/// A generated board, as the console lists it.
#[derive(Debug)]
struct Board {
    uid: String,
    title: String,
    description: String,
    tags: Value,
    json: &'static [u8],
}

/// The embedded rule files as (name, text).
pub(crate) fn rule_files() -> Vec<(&'static str, &'static str)> {
    embedded::RULES
        .iter()
        .filter_map(|(name, bytes)| Some((*name, std::str::from_utf8(bytes).ok()?)))
        .collect()
}

/// The texts of the embedded dashboards.
#[cfg(test)]
pub(crate) fn board_texts() -> Vec<&'static [u8]> {
    boards().into_iter().map(|board| board.json).collect()
}

/// The embedded dashboards; files of the folder that are no dashboards are skipped.
fn boards() -> Vec<Board> {
    let board = |(_, bytes): &(&str, &'static [u8])| {
        let json: Value = serde_json::from_slice(bytes).ok()?;
        json.get("panels")?;
        let text = |key: &str| json.get(key).and_then(Value::as_str).map(str::to_owned);
        Some(Board {
            uid: text("uid")?,
            title: text("title")?,
            description: text("description").unwrap_or_default(),
            tags: json.get("tags").cloned().unwrap_or_default(),
            json: bytes,
        })
    };
    embedded::BOARDS.iter().filter_map(board).collect()
}

/// The whole console with the query API beside it.
pub(crate) fn routes(api: Arc<Api>) -> Router {
    let boards = Arc::new(boards());
    let listed: Vec<Value> = boards
        .iter()
        .map(|b| {
            json!({
                "uid": b.uid, "title": b.title, "description": b.description, "tags": b.tags,
            })
        })
        .collect();
    let listed = Value::from(listed).to_string();
    let one = move |Path(uid): Path<String>| {
        let found = boards.iter().find(|board| board.uid == uid).map(|board| board.json);
        async move {
            match found {
                Some(json) => file("board.json", json),
                None => plain(StatusCode::NOT_FOUND, "no such board\n"),
            }
        }
    };
    promapi::routes(api)
        .route("/console/api/boards", get(async move || file("boards.json", listed.into_bytes())))
        .route("/console/api/boards/{uid}", get(one))
        .route("/", get(page))
        .route("/d/{uid}", get(page))
        .route("/d/{uid}/{slug}", get(page))
        .route("/alerts", get(page))
        .route(runbook::PATH, get(async || file("runbook.html", runbook::html())))
        .route("/graph", get(async || Redirect::temporary("/")))
        .route("/-/healthy", get(async || plain(StatusCode::OK, "The console is healthy.\n")))
        .route("/-/ready", get(async || plain(StatusCode::OK, "The console is ready.\n")))
        .fallback(asset)
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    (status, text).into_response()
}

/// Every address of a view answers the same page; its script reads the address.
async fn page() -> Response {
    found("index.html")
}

async fn asset(uri: Uri) -> Response {
    found(uri.path().trim_start_matches('/'))
}

fn found(path: &str) -> Response {
    match embedded::WEB.iter().find(|(name, _)| *name == path) {
        Some((name, bytes)) => file(name, *bytes),
        None => plain(StatusCode::NOT_FOUND, "not found\n"),
    }
}

fn file(name: &str, body: impl Into<axum::body::Body>) -> Response {
    let kind = match name.rsplit('.').next().unwrap_or("") {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "json" => "application/json",
        _ => "text/plain; charset=utf-8",
    };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        // A new build has new files under the same names.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    (headers, body.into()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Rules;

    #[test]
    fn the_generated_rules_are_usable() {
        let rules = Rules::parse(&rule_files()).expect("generated rules parse");
        let groups = rules.groups_json(&crate::rules::Filter::default());
        let empty = groups["groups"].as_array().is_none_or(Vec::is_empty);
        assert!(!empty, "no rules are embedded");
    }

    #[test]
    fn every_board_is_listed_once() {
        let boards = boards();
        assert!(!boards.is_empty(), "no boards are embedded");
        let mut uids: Vec<&str> = boards.iter().map(|b| b.uid.as_str()).collect();
        uids.sort_unstable();
        uids.dedup();
        assert_eq!(uids.len(), boards.len());
    }

    #[test]
    fn every_file_that_the_page_names_is_embedded() {
        for (name, bytes) in embedded::WEB {
            if !name.ends_with(".js") && !name.ends_with(".html") {
                continue;
            }
            let text = std::str::from_utf8(bytes).expect("web files are UTF-8");
            for quoted in text.split('"').filter(|q| q.starts_with('/') && !q.contains(' ')) {
                let file = quoted.trim_start_matches('/');
                if [".js", ".css", ".svg"].iter().any(|ending| file.ends_with(ending)) {
                    let known = embedded::WEB.iter().any(|(known, _)| *known == file);
                    assert!(known, "{name} names {quoted}, which is not embedded");
                }
            }
        }
    }
}
