//! The Prometheus query API, version 1, over the embedded store.
//!
//! Paths, parameters, JSON shapes and error bodies are Prometheus', so that Grafana, promtool and
//! scripts work against the console port. Administration, remote write and federation are absent.

mod format;
mod params;
mod read;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::clock::now_ms;
use crate::promql::QueryError;
use crate::rules::Rules;
use crate::scrape::Knowledge;
use crate::store::Store;
#[cfg(test)]
pub(crate) use format::matrix as matrix_json;
pub(crate) use format::rfc3339;
#[cfg(test)]
pub(crate) use format::value as sample_value;
use params::Params;

/// Queries evaluated at once; the others wait their turn.
const CONCURRENT_QUERIES: usize = 2;

/// Queries in one batch of the console.
const BATCH_MAX: usize = 500;

/// What the handlers read.
pub(crate) struct Api {
    pub(crate) store: Arc<Store>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) knowledge: Arc<Knowledge>,
    pub(crate) started_ms: i64,
    turns: Semaphore,
}

impl Api {
    pub(crate) fn new(store: Arc<Store>, rules: Arc<Rules>, knowledge: Arc<Knowledge>) -> Self {
        let turns = Semaphore::new(CONCURRENT_QUERIES);
        Self { store, rules, knowledge, started_ms: now_ms(), turns }
    }
}

/// An error as Prometheus reports it.
#[derive(Debug)]
struct ApiError {
    status: StatusCode,
    kind: &'static str,
    message: String,
}

impl ApiError {
    fn bad(message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, kind: "bad_data", message: message.into() }
    }

    fn internal(message: impl Into<String>) -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self { status, kind: "internal", message: message.into() }
    }

    fn body(&self) -> String {
        let message = format::quoted(&self.message);
        format!(r#"{{"status":"error","errorType":"{}","error":{message}}}"#, self.kind)
    }
}

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> Self {
        let (status, kind) = match &error {
            QueryError::Bad(_) => (StatusCode::BAD_REQUEST, "bad_data"),
            QueryError::Execution(_) => (StatusCode::UNPROCESSABLE_ENTITY, "execution"),
        };
        Self { status, kind, message: error.to_string() }
    }
}

type Answer = Result<String, ApiError>;

/// `data` as the body of a success.
fn success(data: &str) -> String {
    format!(r#"{{"status":"success","data":{data}}}"#)
}

fn respond(answer: Answer) -> Response {
    let (status, body) = match answer {
        Ok(data) => (StatusCode::OK, success(&data)),
        Err(error) => (error.status, error.body()),
    };
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Evaluates off the async threads, a bounded number at a time.
async fn evaluate(api: Arc<Api>, work: impl FnOnce(&Api) -> Answer + Send + 'static) -> Answer {
    let turn = api.turns.acquire().await.map_err(|_| ApiError::internal("shutting down"))?;
    let shared = Arc::clone(&api);
    let answer = tokio::task::spawn_blocking(move || work(&shared)).await;
    drop(turn);
    answer.unwrap_or_else(|_| Err(ApiError::internal("the query engine failed")))
}

type Ask = fn(&Api, &Params) -> Answer;

/// A handler for GET with a query string and POST with a form.
fn endpoint(ask: Ask) -> axum::routing::MethodRouter<Arc<Api>> {
    let handle =
        async move |State(api): State<Arc<Api>>, RawQuery(query): RawQuery, body: Bytes| {
            let answer = match Params::parse(query.as_deref(), &body) {
                Ok(params) => evaluate(api, move |api| ask(api, &params)).await,
                Err(reason) => Err(ApiError::bad(reason)),
            };
            respond(answer)
        };
    get(handle).post(handle)
}

async fn label_values(
    State(api): State<Arc<Api>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    respond(match Params::parse(query.as_deref(), b"") {
        Ok(params) => evaluate(api, move |api| read::label_values(api, &name, &params)).await,
        Err(reason) => Err(ApiError::bad(reason)),
    })
}

/// One query of a batch: at `time`, or from `start` to `end` every `step` (Unix seconds, seconds).
#[derive(Debug, Deserialize)]
struct BatchQuery {
    query: String,
    time: Option<f64>,
    start: Option<f64>,
    end: Option<f64>,
    step: Option<f64>,
}

/// Answers many queries in one exchange: an array of bodies as the single endpoints give them.
async fn batch(State(api): State<Arc<Api>>, body: Bytes) -> Response {
    let queries: Vec<BatchQuery> = match serde_json::from_slice(&body) {
        Ok(queries) => queries,
        Err(error) => return respond(Err(ApiError::bad(error.to_string()))),
    };
    if queries.len() > BATCH_MAX {
        return respond(Err(ApiError::bad(format!("more than {BATCH_MAX} queries"))));
    }
    let answer = evaluate(api, move |api| {
        let one = |query: &BatchQuery| match read::batched(api, query) {
            Ok(data) => success(&data),
            Err(error) => error.body(),
        };
        let bodies: Vec<String> = queries.iter().map(one).collect();
        Ok(format!("[{}]", bodies.join(",")))
    });
    respond(answer.await)
}

/// The routes; every answer is `application/json`.
pub(crate) fn routes(api: Arc<Api>) -> Router {
    Router::new()
        .route("/api/v1/query", endpoint(read::query))
        .route("/api/v1/query_range", endpoint(read::query_range))
        .route("/api/v1/labels", endpoint(read::labels))
        .route("/api/v1/label/{name}/values", get(label_values))
        .route("/api/v1/series", endpoint(read::series))
        .route("/api/v1/rules", endpoint(read::rules))
        .route("/api/v1/alerts", endpoint(read::alerts))
        .route("/api/v1/metadata", endpoint(read::metadata))
        .route("/api/v1/targets", endpoint(read::targets))
        .route("/api/v1/status/buildinfo", endpoint(read::build_info))
        .route("/api/v1/status/runtimeinfo", endpoint(read::runtime_info))
        .route("/console/api/batch", post(batch))
        .route("/console/api/resolved", endpoint(read::resolved))
        .with_state(api)
}
