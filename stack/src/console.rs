//! The web console: static files and the generated boards, embedded in the program.
//!
//! The pages read only this server: no file comes from elsewhere, which the content policy
//! enforces. Their data is that of the embedded store, or of a Prometheus elsewhere whose answers
//! are passed on ([`upstream`]). The console draws; it computes nothing that the query API does not
//! answer.

mod assets;
mod boards;
mod guard;
pub(crate) mod serve;
#[cfg(test)]
mod tests;
mod upstream;

use std::fmt::Write;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::get;
use dashboards::links;
use serde::Serialize;

use crate::promapi::{self, Api, Params};
use crate::scrape;
use boards::Board;
pub(crate) use guard::Guard;

/// The interval that `$__rate_interval` is built on over the store, in seconds. It scrapes each
/// second, but the few requests of a demo leave windows of a few seconds mostly empty.
const STORE_RATE_INTERVAL: f64 = 5.0;

/// The rule files of this product as (name, text).
pub(crate) fn rule_files() -> Vec<(&'static str, &'static str)> {
    let foreign =
        |name: &str| name.strip_suffix(".yml").is_some_and(|n| boards::FOREIGN.contains(&n));
    assets::RULES.iter().filter(|(name, _)| !foreign(name)).copied().collect()
}

/// The rule files of all targets.
#[cfg(test)]
pub(crate) fn all_rule_files() -> Vec<(&'static str, &'static str)> {
    assets::RULES.to_vec()
}

/// The texts of the dashboards of all targets.
#[cfg(test)]
pub(crate) fn board_texts() -> Vec<Vec<u8>> {
    boards::all().iter().map(|board| board.file.inflated()).collect()
}

/// What the pages are told before anything else.
#[derive(Debug, Clone, Serialize)]
struct Facts {
    /// Of this program.
    version: &'static str,
    /// `store` or `upstream`.
    mode: &'static str,
    /// Address of the Prometheus that answers, without credentials; none for the store.
    source: Option<String>,
    /// Whose boards are shown.
    targets: Vec<&'static str>,
    /// Seconds between two scrapes.
    scrape_interval: f64,
    /// The interval in seconds that `$__rate_interval` is built on.
    rate_interval: f64,
    /// Seconds for which samples are kept, where that is known.
    retention: Option<f64>,
    /// What is wrong with the source, if anything.
    problem: Option<String>,
}

/// Where the data comes from.
enum Source {
    Store(Facts),
    Upstream(Arc<upstream::Upstream>),
}

impl Source {
    async fn facts(&self) -> Facts {
        match self {
            Self::Store(facts) => facts.clone(),
            Self::Upstream(upstream) => upstream.facts().await,
        }
    }
}

/// What the handlers of the pages share.
struct Shared {
    boards: Vec<Board>,
    source: Source,
}

impl Shared {
    fn board(&self, uid: &str) -> Option<&Board> {
        self.boards.iter().find(|board| board.uid == uid)
    }

    fn listed(&self, facts: &Facts) -> Vec<&Board> {
        self.boards.iter().filter(|board| facts.targets.contains(&board.target)).collect()
    }
}

/// The whole console over the embedded store, with the query API beside it.
pub(crate) fn routes(api: Arc<Api>, guard: Guard) -> Router {
    let facts = Facts {
        version: env!("CARGO_PKG_VERSION"),
        mode: "store",
        source: None,
        targets: vec![boards::OWN],
        scrape_interval: scrape::INTERVAL.as_secs_f64(),
        rate_interval: STORE_RATE_INTERVAL,
        retention: Some(api.store.bounds().retention_ms as f64 / 1000.0),
        problem: None,
    };
    with_pages(promapi::routes(api), Source::Store(facts), guard)
}

/// The pages beside `data`, the routes that they read.
fn with_pages(data: Router, source: Source, guard: Guard) -> Router {
    let shared = Arc::new(Shared { boards: boards::all(), source });
    let pages = Router::new()
        .route("/console/api/start", get(start))
        .route("/console/api/boards", get(listed))
        .route("/console/api/boards/{uid}", get(board))
        .route("/", get(page))
        .route("/d/{uid}", get(board_page))
        .route("/d/{uid}/{slug}", get(board_page))
        .route("/alerts", get(page))
        .route("/runbook", get(page))
        .route(links::RUNBOOK, get(page))
        .route("/console/api/runbook", get(runbook))
        .with_state(shared);
    data.merge(pages)
        .route("/graph", get(async || Redirect::temporary("/")))
        .route("/-/healthy", get(async || "The console is healthy.\n"))
        .route("/-/ready", get(async || "The console is ready.\n"))
        .fallback(asset)
        .layer(from_fn_with_state(Arc::new(guard), guard::around))
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    (status, text).into_response()
}

fn json(body: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Facts, the list of boards and, where one is named, that board: all that a page needs at first.
async fn start(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Response {
    #[derive(Serialize)]
    struct Start<'a> {
        #[serde(flatten)]
        facts: &'a Facts,
        boards: Vec<&'a Board>,
    }
    let facts = shared.source.facts().await;
    let start = Start { facts: &facts, boards: shared.listed(&facts) };
    let mut body = String::from(r#"{"status":"success","data":"#);
    body += &serde_json::to_string(&start).expect("strings and numbers are JSON");
    // The board is spliced in as it is written.
    body.pop();
    body += ",\"board\":";
    let params = Params::parse(query.as_deref(), b"").unwrap_or_default();
    match params.get("board").and_then(|uid| shared.board(uid)) {
        Some(board) => body += &String::from_utf8_lossy(&board.file.inflated()),
        None => body += "null",
    }
    body += "}}";
    json(body)
}

async fn listed(State(shared): State<Arc<Shared>>) -> Response {
    let facts = shared.source.facts().await;
    json(serde_json::to_string(&shared.listed(&facts)).expect("strings are JSON"))
}

async fn board(
    State(shared): State<Arc<Shared>>,
    Path(uid): Path<String>,
    headers: HeaderMap,
) -> Response {
    match shared.board(&uid) {
        Some(board) => board.file.answer(&headers),
        None => plain(StatusCode::NOT_FOUND, "no such board\n"),
    }
}

/// The alerts' runbook as it is written; its view makes the page.
async fn runbook(headers: HeaderMap) -> Response {
    assets::find("own/runbook.md").expect("the build script carries it").answer(&headers)
}

/// Every address of a view answers the same page; its script reads the address.
async fn page() -> Response {
    paged("/console/api/start")
}

async fn board_page(
    State(shared): State<Arc<Shared>>,
    Path(path): Path<Vec<(String, String)>>,
) -> Response {
    let uid = path.first().map_or("", |(_, uid)| uid.as_str());
    // What the address names goes into the page only when it is a board's.
    match shared.board(uid) {
        Some(board) => paged(&format!("/console/api/start?board={}", board.uid)),
        None => paged("/console/api/start"),
    }
}

/// The page, which has the browser fetch everything at once: the scripts name one another only as
/// they arrive, and would come one after the other.
fn paged(start: &str) -> Response {
    let page = assets::find("index.html").expect("the build script carries it").inflated();
    let page = String::from_utf8_lossy(&page).into_owned();
    let mut links = format!("<link rel=\"preload\" href=\"{start}\" as=\"fetch\" crossorigin>\n");
    for script in assets::FILES.iter().filter(|file| file.name.ends_with(".js")) {
        writeln!(links, "<link rel=\"modulepreload\" href=\"/{}\">", script.name)
            .expect("writing to a string does not fail");
    }
    ([(header::CACHE_CONTROL, "no-cache")], Html(page.replace("</head>", &(links + "</head>"))))
        .into_response()
}

async fn asset(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    if method != Method::GET && method != Method::HEAD {
        return (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET, HEAD")]).into_response();
    }
    let path = uri.path().trim_start_matches('/');
    match assets::find(path).filter(|file| !file.name.starts_with("own/")) {
        Some(file) => file.answer(&headers),
        None => plain(StatusCode::NOT_FOUND, "not found\n"),
    }
}
