//! The console over a Prometheus elsewhere: read-only questions are passed on, bounded.
//!
//! Only what the pages ask for has a route, only parameters that are known travel, and only with
//! GET or as a form. Answers travel back as they are; what is no answer of a Prometheus becomes an
//! error in its format that says what would work.

mod ask;
mod batch;
mod found;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, RawQuery, State};
use axum::response::Response;
use axum::routing::{any, get, post};
use dashboards::client::{Access, Bounds, ClientError, Prometheus};
use tokio::sync::{Mutex, Semaphore};

use super::Facts;
use crate::promapi::{self, ApiError, FORM_BYTES_MAX, Params, respond};
use crate::promql::{is_label_name, parse_selector};
use found::Found;

/// Questions that are with the other server at once; the others wait their turn.
const CONCURRENT: usize = 8;

/// Questions that wait for their turn; more are refused.
const WAITING: usize = 128;

/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// Where a Prometheus is and how it is asked.
#[derive(Debug)]
pub(super) struct Options<'a> {
    pub(super) url: &'a str,
    pub(super) access: Access,
    pub(super) timeout: Duration,
    /// Whose boards are shown; none: whose metrics there are.
    pub(super) targets: Vec<&'static str>,
    /// Seconds between two scrapes; none: what the targets there say.
    pub(super) scrape_interval: Option<f64>,
}

/// A Prometheus elsewhere.
#[derive(Debug)]
pub(super) struct Upstream {
    prometheus: Prometheus,
    timeout: Duration,
    turns: Semaphore,
    waiting: Semaphore,
    targets: Vec<&'static str>,
    scrape_interval: Option<f64>,
    found: Mutex<Option<Found>>,
}

impl Upstream {
    /// Reads the files of credentials; connects to nothing yet.
    pub(super) fn new(options: Options<'_>) -> Result<Self, ClientError> {
        let bounds = Bounds { timeout: options.timeout, bytes_max: ANSWER_BYTES_MAX };
        Ok(Self {
            prometheus: Prometheus::with(options.url, &options.access, bounds)?,
            timeout: options.timeout,
            turns: Semaphore::new(CONCURRENT),
            waiting: Semaphore::new(WAITING),
            targets: options.targets,
            scrape_interval: options.scrape_interval,
            found: Mutex::default(),
        })
    }

    /// Where it is, without credentials.
    pub(super) fn address(&self) -> String {
        self.prometheus.address().to_string()
    }

    pub(super) async fn facts(&self) -> Facts {
        let found = self.found().await;
        let interval = self.scrape_interval.unwrap_or(found.scrape_interval);
        Facts {
            version: env!("CARGO_PKG_VERSION"),
            mode: "upstream",
            source: Some(self.address()),
            targets: if self.targets.is_empty() { found.targets } else { self.targets.clone() },
            scrape_interval: interval,
            rate_interval: interval,
            retention: None,
            problem: found.problem,
        }
    }
}

type Shared = State<Arc<Upstream>>;

/// A question that is passed on.
struct Route {
    path: &'static str,
    /// The parameters that travel.
    parameters: &'static [&'static str],
    /// Long questions travel as a form.
    form: bool,
    check: fn(&Params) -> Result<(), ApiError>,
}

const SELECTING: &[&str] = &["match[]", "start", "end", "limit"];

const ROUTES: [Route; 9] = [
    Route {
        path: "/api/v1/query",
        parameters: &["query", "time", "limit", "lookback_delta"],
        form: true,
        check: ask::instant,
    },
    Route {
        path: "/api/v1/query_range",
        parameters: &["query", "start", "end", "step", "limit", "lookback_delta"],
        form: true,
        check: ask::range,
    },
    Route { path: "/api/v1/labels", parameters: SELECTING, form: true, check: ask::selection },
    Route { path: "/api/v1/series", parameters: SELECTING, form: true, check: ask::selection },
    Route {
        path: "/api/v1/metadata",
        parameters: &["metric", "limit", "limit_per_metric"],
        form: false,
        check: ask::nothing,
    },
    Route {
        path: "/api/v1/rules",
        parameters: &["type", "rule_name[]", "rule_group[]", "file[]", "match[]", "exclude_alerts"],
        form: false,
        check: ask::nothing,
    },
    Route { path: "/api/v1/alerts", parameters: &[], form: false, check: ask::nothing },
    Route {
        path: "/api/v1/targets",
        parameters: &["state", "scrapePool"],
        form: false,
        check: ask::nothing,
    },
    Route { path: "/api/v1/status/buildinfo", parameters: &[], form: false, check: ask::nothing },
];

fn endpoint(route: &'static Route) -> axum::routing::MethodRouter<Arc<Upstream>> {
    let handle = async move |State(upstream): Shared,
                             RawQuery(query): RawQuery,
                             body: Result<Bytes, BytesRejection>| {
        let answer = async {
            let params = promapi::parameters(query.as_deref(), body)?;
            (route.check)(&params)?;
            upstream.pass(route.path, &params, route.parameters, route.form).await
        };
        answered(answer.await)
    };
    let handler = get(handle);
    if route.form { handler.post(handle) } else { handler }
}

async fn label_values(
    State(upstream): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let answer = async {
        if !is_label_name(&name) {
            return Err(ApiError::bad(format!("invalid label name: {name:?}")));
        }
        let params = Params::parse(query.as_deref(), b"").map_err(ApiError::bad)?;
        ask::selection(&params)?;
        let path = format!("/api/v1/label/{name}/values");
        upstream.pass(&path, &params, SELECTING, false).await
    };
    answered(answer.await)
}

async fn batched(State(upstream): Shared, body: Result<Bytes, BytesRejection>) -> Response {
    match promapi::batch_of(body) {
        Ok(queries) => respond(Ok(batch::run(&upstream, queries).await)),
        Err(error) => respond(Err(error)),
    }
}

/// What ended a while ago, a Prometheus tells nobody.
async fn resolved() -> Response {
    respond(Ok(r#"{"alerts":[]}"#.to_owned().into()))
}

async fn unknown(uri: axum::http::Uri) -> Response {
    respond(Err(ApiError::not_found(uri.path())))
}

fn answered(answer: Result<ask::Passed, ApiError>) -> Response {
    match answer {
        Ok(passed) => passed.into_response(),
        Err(error) => respond(Err(error)),
    }
}

/// The routes that the pages read, answered by the other server.
pub(super) fn routes(upstream: Arc<Upstream>) -> Router {
    let passed = ROUTES
        .iter()
        .fold(Router::new(), |routes, route| routes.route(route.path, endpoint(route)));
    passed
        .route("/api/v1/label/{name}/values", get(label_values))
        .route("/api/{*rest}", any(unknown))
        .route("/console/api/batch", post(batched))
        .route("/console/api/resolved", get(resolved))
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .with_state(upstream)
}

/// Refuses what is no series selector, before it travels.
fn selector(text: &str) -> Result<(), ApiError> {
    let wrong = |error| ApiError::bad(format!("invalid parameter \"match[]\": {error}"));
    parse_selector(text).map(|_| ()).map_err(wrong)
}
