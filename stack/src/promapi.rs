//! The Prometheus query API, version 1, over the embedded store.
//!
//! Paths, parameters, JSON shapes and error bodies are Prometheus', so that Grafana, promtool and
//! scripts work against the console port. Administration, remote write and federation are absent.
//! Every question is bounded: in its own size, in time, in what it reads and in what it answers;
//! an error names the bound.

mod error;
mod format;
mod params;
mod read;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clock::now_ms;
use crate::promql::Budget;
use crate::rules::Rules;
use crate::scrape::Knowledge;
use crate::store::Store;
pub(crate) use error::ApiError;
pub(crate) use format::rfc3339;
#[cfg(test)]
pub(crate) use format::value as sample_value;
#[cfg(test)]
pub(crate) use format::{answer as answer_json, matrix as matrix_json};
pub(crate) use params::Params;
pub(crate) use read::Window;

/// Queries evaluated at once; the others wait their turn.
pub(crate) const CONCURRENT_QUERIES: usize = 2;

/// Queries that wait for their turn; more are refused.
const WAITING_QUERIES: usize = 64;

/// The longest time from the arrival of a query to its answer; `timeout` asks for less.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of the form or the batch of a request.
pub(crate) const FORM_BYTES_MAX: usize = 1 << 20;

/// Queries in one batch of the console.
pub(crate) const BATCH_MAX: usize = 500;

/// Bytes of the answer to a batch; queries beyond it get an error in their place.
pub(crate) const BATCH_BYTES_MAX: usize = 64 << 20;

/// What the handlers read.
pub(crate) struct Api {
    pub(crate) store: Arc<Store>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) knowledge: Arc<Knowledge>,
    pub(crate) started_ms: i64,
    turns: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Api {
    pub(crate) fn new(store: Arc<Store>, rules: Arc<Rules>, knowledge: Arc<Knowledge>) -> Self {
        let turns = Arc::new(Semaphore::new(CONCURRENT_QUERIES));
        let waiting = Arc::new(Semaphore::new(WAITING_QUERIES));
        Self { store, rules, knowledge, started_ms: now_ms(), turns, waiting }
    }

    /// Waits for a turn, unless too many wait already.
    async fn turn(&self, limit: Duration) -> Result<OwnedSemaphorePermit, ApiError> {
        let turns = Arc::clone(&self.turns);
        if let Ok(turn) = Arc::clone(&turns).try_acquire_owned() {
            return Ok(turn);
        }
        let Ok(_place) = self.waiting.try_acquire() else {
            return Err(ApiError::unavailable(format!(
                "{WAITING_QUERIES} queries wait for their turn already; ask again in a moment, or \
                 ask for less at once"
            )));
        };
        match tokio::time::timeout(limit, turns.acquire_owned()).await {
            Ok(turn) => turn.map_err(|_| ApiError::unavailable("the console ends")),
            Err(_) => Err(ApiError::timeout("query timed out in query queue", limit)),
        }
    }
}

/// The data of an answer as JSON, and what is to be known of it.
#[derive(Debug)]
pub(crate) struct Reply {
    data: String,
    warnings: Vec<String>,
}

impl From<String> for Reply {
    fn from(data: String) -> Self {
        Self { data, warnings: Vec::new() }
    }
}

impl Reply {
    /// An answer of which `limit` has cut something away.
    fn cut(data: String, cut: bool) -> Self {
        let warning = || "results truncated due to limit".to_owned();
        Self { data, warnings: cut.then(warning).into_iter().collect() }
    }

    /// The body of a success.
    fn body(self) -> String {
        let mut body = format!(r#"{{"status":"success","data":{}"#, self.data);
        if !self.warnings.is_empty() {
            let warnings = format::strings(self.warnings.iter().map(String::as_str));
            body += &format!(r#","warnings":{warnings}"#);
        }
        body + "}"
    }
}

pub(crate) type Answer = Result<Reply, ApiError>;

/// The answer as a response in Prometheus' format.
pub(crate) fn respond(answer: Answer) -> Response {
    let (status, body) = match answer {
        Ok(reply) => (StatusCode::OK, reply.body()),
        Err(error) => (error.status, error.body()),
    };
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Ends an evaluation when nobody waits for it any more.
struct Stopper(Budget);

impl Drop for Stopper {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Evaluates off the async threads, a bounded number at a time and each for a bounded time.
async fn evaluate(
    api: Arc<Api>,
    limit: Duration,
    budget: Budget,
    work: impl FnOnce(&Api, &Budget) -> Answer + Send + 'static,
) -> Answer {
    let begun = tokio::time::Instant::now();
    let turn = api.turn(limit).await?;
    let late = || ApiError::timeout("query timed out in expression evaluation", limit);
    let left = limit.saturating_sub(begun.elapsed());
    if left.is_zero() {
        return Err(late());
    }
    let stopper = Stopper(budget.clone());
    let task = tokio::task::spawn_blocking(move || {
        let answer = work(&api, &budget);
        // The turn ends with the work, not with the wait for it.
        drop(turn);
        answer
    });
    let answer = tokio::time::timeout(left, task).await;
    drop(stopper);
    match answer {
        Ok(answer) => answer.unwrap_or_else(|_| Err(ApiError::internal("the query engine failed"))),
        Err(_) => Err(late()),
    }
}

type Ask = fn(&Api, &Params, &Budget) -> Answer;

async fn answered(api: Arc<Api>, params: Result<Params, ApiError>, ask: Ask) -> Answer {
    let params = params?;
    let limit = params.timeout()?.map_or(TIMEOUT, |asked| asked.min(TIMEOUT));
    let mut budget = Budget::default();
    if let Some(lookback) = params.lookback()? {
        budget.lookback_ms = lookback;
    }
    evaluate(api, limit, budget, move |api, budget| ask(api, &params, budget)).await
}

/// The parameters of a request, or why they cannot be read.
pub(crate) fn parameters(
    query: Option<&str>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Params, ApiError> {
    let body = body.map_err(ApiError::body_not_read)?;
    Params::parse(query, &body).map_err(ApiError::bad)
}

/// A handler for GET with a query string and POST with a form.
fn endpoint(ask: Ask) -> axum::routing::MethodRouter<Arc<Api>> {
    let handle = async move |State(api): State<Arc<Api>>,
                             RawQuery(query): RawQuery,
                             body: Result<Bytes, BytesRejection>| {
        respond(answered(api, parameters(query.as_deref(), body), ask).await)
    };
    get(handle).post(handle)
}

async fn label_values(
    State(api): State<Arc<Api>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let answer = match Params::parse(query.as_deref(), b"") {
        Ok(params) => {
            evaluate(api, TIMEOUT, Budget::default(), move |api, _| {
                read::label_values(api, &name, &params)
            })
            .await
        }
        Err(reason) => Err(ApiError::bad(reason)),
    };
    respond(answer)
}

/// One query of a batch: at `time`, or from `start` to `end` every `step` (Unix seconds, seconds).
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct BatchQuery {
    pub(crate) query: String,
    pub(crate) time: Option<f64>,
    pub(crate) start: Option<f64>,
    pub(crate) end: Option<f64>,
    pub(crate) step: Option<f64>,
}

/// The queries of a batch, not more than there may be.
pub(crate) fn batch_of(body: Result<Bytes, BytesRejection>) -> Result<Vec<BatchQuery>, ApiError> {
    let body = body.map_err(ApiError::body_not_read)?;
    let queries: Vec<BatchQuery> =
        serde_json::from_slice(&body).map_err(|error| ApiError::bad(error.to_string()))?;
    if queries.len() > BATCH_MAX {
        return Err(ApiError::bad(format!(
            "{} queries, more than {BATCH_MAX} in one batch; send the others in a second one",
            queries.len()
        )));
    }
    Ok(queries)
}

/// Bodies of single answers as the data of a batch, the later ones only as far as there is room.
pub(crate) fn batch_reply(bodies: impl IntoIterator<Item = String>) -> Reply {
    let mut data = String::from("[");
    for body in bodies {
        if data.len() > 1 {
            data.push(',');
        }
        if data.len() + body.len() <= BATCH_BYTES_MAX {
            data += &body;
        } else {
            data += &ApiError::too_large(BATCH_BYTES_MAX).body();
        }
    }
    data.push(']');
    data.into()
}

/// Answers many queries in one exchange: an array of bodies as the single endpoints give them.
async fn batch(State(api): State<Arc<Api>>, body: Result<Bytes, BytesRejection>) -> Response {
    let queries = match batch_of(body) {
        Ok(queries) => queries,
        Err(error) => return respond(Err(error)),
    };
    let answer = evaluate(api, TIMEOUT, Budget::default(), move |api, budget| {
        let one = |query: &BatchQuery| match read::batched(api, query, budget) {
            Ok(reply) => reply.body(),
            Err(error) => error.body(),
        };
        Ok(batch_reply(queries.iter().map(one)))
    });
    respond(answer.await)
}

async fn unknown(uri: axum::http::Uri) -> Response {
    respond(Err(ApiError::not_found(uri.path())))
}

/// The routes; every answer is `application/json`.
pub(crate) fn routes(api: Arc<Api>) -> Router {
    Router::new()
        .route("/api/v1/query", endpoint(read::query))
        .route("/api/v1/query_range", endpoint(read::query_range))
        .route("/api/v1/query_exemplars", endpoint(read::exemplars))
        .route("/api/v1/labels", endpoint(read::labels))
        .route("/api/v1/label/{name}/values", get(label_values))
        .route("/api/v1/series", endpoint(read::series))
        .route("/api/v1/rules", endpoint(read::rules))
        .route("/api/v1/alerts", endpoint(read::alerts))
        .route("/api/v1/alertmanagers", endpoint(status::alertmanagers))
        .route("/api/v1/metadata", endpoint(read::metadata))
        .route("/api/v1/targets", endpoint(status::targets))
        .route("/api/v1/status/buildinfo", endpoint(status::build_info))
        .route("/api/v1/status/runtimeinfo", endpoint(status::runtime_info))
        .route("/api/v1/status/flags", endpoint(status::flags))
        .route("/api/v1/status/config", endpoint(status::config))
        .route("/api/v1/status/tsdb", endpoint(status::tsdb))
        .route("/api/{*rest}", any(unknown))
        .route("/console/api/batch", post(batch))
        .route("/console/api/resolved", endpoint(read::resolved))
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .with_state(api)
}
