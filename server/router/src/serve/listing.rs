//! `/admin/workers`: workers that an operator adds and removes while the router runs.
//!
//! What is added so is known to this process only, and gone when it ends; a file of workers is
//! what lasts. A worker is drained before it is removed: it gets nothing new, and what is still
//! open there after the deadline is given up.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Path, RawQuery, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use protocol::ApiError;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::error::{self, Failed};
use super::{Gateway, admin, body, discovery};
use crate::WorkerView;
use crate::worker::{Source, WorkerName, WorkerRole, WorkerSpec};

/// Orders that may wait for whoever keeps the list; more callers wait for their turn.
const ORDERS_MAX: usize = 16;

/// The longest text of one worker.
const BODY_MAX: usize = 64 << 10;

/// How long an operator's few bytes may take.
const BODY_TIME: Duration = Duration::from_secs(30);

/// How long what is open at a worker that is removed may go on, where nothing is said.
const DEADLINE: Duration = Duration::from_secs(60);

/// The longest that may be said.
const DEADLINE_MAX: f64 = 86_400.0;

/// What an operator wants.
#[derive(Debug)]
pub(super) enum Order {
    /// One more worker.
    Add(WorkerSpec, oneshot::Sender<Result<bool, String>>),
    /// One worker less, at the latest after so long.
    Remove(WorkerName, Duration, oneshot::Sender<Result<(), String>>),
    /// A worker that was to be removed has nothing open, or its time is over.
    Gone(WorkerName),
}

/// The way to whoever keeps the list.
#[derive(Debug)]
pub(super) struct Orders {
    sender: mpsc::Sender<Order>,
    receiver: Mutex<Option<mpsc::Receiver<Order>>>,
}

impl Default for Orders {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(ORDERS_MAX);
        Self { sender, receiver: Mutex::new(Some(receiver)) }
    }
}

impl Orders {
    /// The other end, once.
    pub(super) fn take(&self) -> Option<mpsc::Receiver<Order>> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Where orders go.
    pub(super) fn sender(&self) -> mpsc::Sender<Order> {
        self.sender.clone()
    }

    /// Sends an order and waits for what becomes of it.
    async fn send<T>(
        &self,
        order: impl FnOnce(oneshot::Sender<Result<T, String>>) -> Order,
    ) -> Result<T, ApiError> {
        let (answer, told) = oneshot::channel();
        let stopped = || {
            let message = "The router stops and takes no more orders.".to_owned();
            ApiError::unavailable("server_draining", message, 5)
        };
        self.sender.send(order(answer)).await.map_err(|_| stopped())?;
        let told = told.await.map_err(|_| stopped())?;
        told.map_err(|message| ApiError::invalid("worker", message))
    }
}

/// A worker as an operator writes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    url: String,
    role: Option<String>,
    model: Option<String>,
}

/// One more worker: the same fields as in a file of workers.
pub(super) async fn add(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let added = added(&gateway, request).await;
    added.unwrap_or_else(|error| Failed::from(error).into_response())
}

async fn added(gateway: &Gateway, request: Request) -> Result<Response, ApiError> {
    let bytes = body::read(request, BODY_MAX, BODY_TIME).await?;
    let entry: Entry = serde_json::from_slice(&bytes).map_err(|error| {
        let form = "{\"url\": \"http://HOST:PORT\", \"role\": \"unified\"}";
        ApiError::malformed(format!("The body is no worker: {error}; one is {form}."))
    })?;
    let role = match entry.role.as_deref() {
        None => WorkerRole::Unified,
        Some(named) => discovery::role(named).ok_or_else(|| {
            let reason = format!("there is no role {named:?}; use unified, prefill or decode");
            ApiError::invalid("role", reason)
        })?,
    };
    let spec = discovery::spec(&entry.url, role, entry.model.map(Arc::from))
        .map_err(|error| ApiError::invalid("url", format!("{}: {error}", entry.url)))?;
    if gateway.own.get() == Some(&spec.name) {
        let reason = format!("{} is this router itself; give a worker's address", spec.name);
        return Err(ApiError::invalid("url", reason));
    }
    let name = spec.name.clone();
    let new = gateway.orders.send(|answer| Order::Add(spec, answer)).await?;
    let view = gateway.view(&name);
    Ok(error::json(
        StatusCode::OK,
        &json!({
            "added": new, "worker": view.map(|view| gateway.told(&view)),
            "lasts": "until this router ends; a worker that is to stay goes into --workers-file",
        }),
    ))
}

/// One worker less, after what is open there.
pub(super) async fn remove(
    State(gateway): State<Arc<Gateway>>,
    Path(worker): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let removed = removed(&gateway, &worker, query.as_deref()).await;
    removed.unwrap_or_else(|error| Failed::from(error).into_response())
}

async fn removed(
    gateway: &Gateway,
    worker: &str,
    query: Option<&str>,
) -> Result<Response, ApiError> {
    let deadline = deadline(query)?;
    let name = admin::named(worker)?;
    let Some(view) = gateway.view(&name) else {
        let message = format!("There is no worker {name}; GET /internal/workers lists them.");
        return Err(ApiError { message, ..ApiError::unknown_path(worker) });
    };
    gateway.orders.send(|answer| Order::Remove(name.clone(), deadline, answer)).await?;
    let open = gateway.view(&name).map_or(view.own.requests, |view| view.own.requests);
    Ok(error::json(
        StatusCode::OK,
        &json!({
            "worker": name.as_str(), "state": "draining", "active_requests": open,
            "deadline_s": deadline.as_secs_f64(),
        }),
    ))
}

/// `?deadline_s=SECONDS`.
fn deadline(query: Option<&str>) -> Result<Duration, ApiError> {
    let mut deadline = DEADLINE;
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if name != "deadline_s" {
            let reason = format!("{name}: no such field; a removal takes deadline_s");
            return Err(ApiError::invalid(name, reason));
        }
        let seconds = value.parse().ok().filter(|seconds| (0.0..=DEADLINE_MAX).contains(seconds));
        let seconds: f64 = seconds.ok_or_else(|| {
            let reason = format!(
                "{value:?} is no time: deadline_s is a number of seconds from 0 to {DEADLINE_MAX}"
            );
            ApiError::invalid("deadline_s", reason)
        })?;
        deadline = Duration::from_secs_f64(seconds);
    }
    Ok(deadline)
}

/// Why a worker that `view` shows cannot be removed here, where it cannot.
pub(super) fn kept_by(view: &WorkerView) -> Option<String> {
    let name = &view.name;
    let drain = format!("or drain it with POST /admin/workers/{name}/drain");
    view.sources.iter().find_map(|source| match source {
        Source::Flags | Source::Admin => None,
        Source::File => Some(format!(
            "{name} is listed by --workers-file: take it out there, which is seen within a \
             second, {drain}"
        )),
        Source::Dns => Some(format!(
            "{name} is an address of a name of --workers-dns, and would come back: take it out \
             there, {drain}"
        )),
    })
}

impl Gateway {
    /// What is known of one worker.
    pub(super) fn view(&self, name: &WorkerName) -> Option<WorkerView> {
        let views = self.core().workers(self.clock.now());
        views.into_iter().find(|view| view.name == *name)
    }
}
