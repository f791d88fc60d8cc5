//! The running router: an HTTP proxy around the core, and what keeps the core informed.
//!
//! It listens on nothing by itself: whoever starts it serves [`api`] and [`admin`], and runs
//! [`Gateway::run`]. All work of a request happens on the task of its client's connection, which
//! also drives the connection to the worker. The lock around the core is held for one decision at
//! a time and never while anything is waited for.

mod address;
mod admin;
mod body;
pub mod discovery;
mod error;
mod headers;
mod hold;
mod listing;
mod models;
mod peek;
mod poll;
mod proxy;
mod relay;
mod settings;
mod sse;
pub mod telemetry;
mod trip;
mod upstream;
mod watch;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method as Verb, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use metric_catalog::install::Registry;
use metric_catalog::labels::{Method, Route as Path};
use protocol::ApiError;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use types::{Clock, Time};

pub use address::AddressError;
pub use settings::{Objectives, Settings};
pub use upstream::Patience;

use crate::request::{Failure, Leg, Missing, Refusal, Request as Asked, Route, Verdict};
use crate::worker::{Event, EventKind, WorkerName};
use crate::{Attempt, Core};
use telemetry::{HttpRecord, Telemetry};
use upstream::Upstream;

/// What all parts of a running router share.
#[derive(Debug)]
pub struct Gateway {
    settings: RwLock<Arc<Settings>>,
    clock: Clock,
    core: Mutex<Core>,
    /// Tells those who wait that something has happened to a worker.
    woken: Notify,
    /// The name of this router, as a worker would be called.
    own: OnceLock<WorkerName>,
    /// Additions to the list of workers, and removals, for whoever keeps it.
    orders: listing::Orders,
    /// The ways to the workers that are listed.
    ways: RwLock<HashMap<WorkerName, Arc<Upstream>>>,
    names: headers::Names,
    telemetry: Telemetry,
    discovered: Mutex<watch::Discovered>,
    /// Cancelled when no new requests are taken.
    draining: CancellationToken,
    /// Cancelled when what is still open is given up.
    cut: CancellationToken,
    /// Requests that are being answered.
    open: TaskTracker,
    /// Whether workers of a model were ever missing, so that it is said once.
    was_ready: Mutex<Option<bool>>,
}

impl Gateway {
    /// A router that knows no worker yet.
    #[must_use]
    pub fn new(settings: Settings, registry: &Registry, clock: Clock) -> Arc<Self> {
        let names = headers::Names::default();
        Arc::new(Self {
            core: Mutex::new(Core::new(settings.core.clone(), names.random())),
            ways: RwLock::default(),
            names,
            telemetry: Telemetry::new(registry, &settings, clock),
            discovered: Mutex::default(),
            draining: CancellationToken::new(),
            cut: CancellationToken::new(),
            open: TaskTracker::new(),
            was_ready: Mutex::new(None),
            woken: Notify::new(),
            own: OnceLock::new(),
            orders: listing::Orders::default(),
            settings: RwLock::new(Arc::new(settings)),
            clock,
        })
    }

    /// This router listens there: it is none of its own workers. A second call changes nothing.
    pub fn listens(&self, address: std::net::SocketAddr) {
        drop(self.own.set(WorkerName::new(address.to_string())));
    }

    /// The settings in force.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes settings, from now on. Nothing that is open is touched. Workers, the file of them,
    /// names, tokens and objectives are read at the start only.
    pub fn configure(&self, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.settings.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut settings));
        self.core().configure(settings.core.clone());
        self.telemetry.configure(settings.core.policy, settings.core.hold);
        drop(settings);
        self.woken.notify_waiters();
    }

    /// Whether requests can be answered: for every role that a model needs, a worker has answered
    /// that it is ready.
    ///
    /// # Errors
    /// What is missing.
    pub fn readiness(&self) -> Result<(), Missing> {
        self.core().readiness(self.clock.now())
    }

    /// From now on no new requests are taken.
    pub fn drain(&self) {
        self.draining.cancel();
    }

    /// Gives up what is still open. Streams end with an event that says so.
    pub fn cut(&self) {
        self.cut.cancel();
    }

    /// Requests that are being answered.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.open.len()
    }

    /// Until no request is being answered any more. Call it after [`drain`](Self::drain).
    pub async fn finished(&self) {
        self.open.close();
        self.open.wait().await;
    }

    /// Finds workers and asks how they are, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        watch::run(self, stop).await;
    }

    fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        // The core's own assertions are the only panics under it; its state is whole even then.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a request goes.
    fn route(&self, request: &Asked<'_>, attempt: &mut Attempt) -> Result<Route, Refusal> {
        attempt.look(request);
        let now = self.clock.now();
        self.core().route(request, attempt, now)
    }

    /// An answer has begun.
    fn answered(&self, route: &mut Route) {
        let now = self.clock.now();
        let events = self.core().answered(route, now);
        self.log(&events);
    }

    /// A request failed before an answer had begun.
    fn failed(
        &self,
        route: Route,
        failure: Failure,
        request: &Asked<'_>,
        attempt: &mut Attempt,
    ) -> Verdict {
        let now = self.clock.now();
        let (verdict, events) = self.core().failed(route, failure, request, attempt, now);
        self.log(&events);
        verdict
    }

    /// An answer that had begun could not be ended; nothing can be sent again.
    fn failed_late(&self, route: Route, failure: Failure) {
        let request = Asked { model: "", prompt: &[], namespace: "", repeatable: false };
        drop(self.failed(route, failure, &request, &mut Attempt::default()));
    }

    /// The way to a worker. One that is not listed any more has none of its own; a new one is as
    /// good for the request that still goes there.
    fn upstream(&self, leg: &Leg) -> Arc<Upstream> {
        let ways = self.ways.read().unwrap_or_else(PoisonError::into_inner);
        let known = ways.get(&leg.name).map(Arc::clone);
        known.unwrap_or_else(|| self.new_way(&leg.name))
    }

    /// A way to a worker, whose exchanges end where this router gives up all.
    fn new_way(&self, name: &WorkerName) -> Arc<Upstream> {
        Upstream::new(Arc::from(name.as_str()), self.cut.child_token())
    }

    /// What is kept to a worker leads to a process that has ended.
    fn close_connections(&self, worker: &WorkerName) {
        let ways = self.ways.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(upstream) = ways.get(worker) {
            upstream.close();
        }
    }

    fn idle_connections(&self, worker: &WorkerName) -> usize {
        let ways = self.ways.read().unwrap_or_else(PoisonError::into_inner);
        ways.get(worker).map_or(0, |upstream| upstream.idle())
    }

    /// Says what happened to workers, once each.
    fn log(&self, events: &[Event]) {
        for Event { name, role, kind } in events {
            let (worker, role) = (name, role.as_str());
            match kind {
                EventKind::Joined => tracing::info!(%worker, role, "A worker is listed."),
                EventKind::Left => tracing::info!(%worker, role, "A worker is listed no more."),
                EventKind::Restarted => {
                    self.close_connections(name);
                    tracing::info!(%worker, role, "A worker has restarted.");
                }
                EventKind::State(state, reason) => {
                    let state = state.as_str();
                    tracing::info!(%worker, role, state, %reason, "A worker has another state.");
                }
                EventKind::Circuit(state) => {
                    let state = admin::circuit(*state);
                    tracing::warn!(%worker, role, state, "The breaker of a worker has changed.");
                }
            }
        }
        if !events.is_empty() {
            let models = self.core().models();
            self.telemetry.models.serve(&models);
            self.say_readiness();
            self.woken.notify_waiters();
        }
    }

    /// Says when requests cannot be answered any more, and when they can again. Before all workers
    /// were asked once, nobody knows.
    fn say_readiness(&self) {
        let now = self.readiness();
        if now.is_err() && !self.core().all_polled() {
            return;
        }
        let mut was = self.was_ready.lock().unwrap_or_else(PoisonError::into_inner);
        if was.replace(now.is_ok()) == Some(now.is_ok()) {
            return;
        }
        match now {
            Ok(()) => tracing::info!("Requests can be answered."),
            Err(missing) => tracing::warn!("Requests cannot be answered: {missing}."),
        }
    }

    /// Time since the start, for bookkeeping of names.
    fn uptime(&self) -> Duration {
        self.clock.now().since(Time::ZERO)
    }
}

/// What clients may ask for. `probes` are served beside it.
pub fn api(gateway: &Arc<Gateway>, probes: Router) -> Router {
    let inference = Router::new()
        .route("/v1/completions", post(proxy::forward))
        .route("/v1/chat/completions", post(proxy::forward))
        .route("/tokenize", post(proxy::forward))
        .route("/detokenize", post(proxy::forward))
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(Arc::clone(gateway));
    let others = Router::new()
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*model}", get(models::one))
        .route("/metrics", get(admin::metrics))
        .route("/version", get(admin::version))
        .with_state(Arc::clone(gateway))
        .merge(probes)
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .layer(from_fn_with_state(Arc::clone(gateway), record));
    inference.merge(others)
}

/// What only operators may ask for: whoever serves it guards it, and passes what comes of that
/// through [`recorded`].
pub fn admin(gateway: &Arc<Gateway>) -> Router {
    Router::new()
        .route("/internal/workers", get(admin::workers))
        .route("/admin/workers", post(listing::add))
        .route("/admin/workers/{worker}", delete(listing::remove))
        .route("/admin/workers/{worker}/drain", post(admin::drain).delete(admin::undrain))
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(Arc::clone(gateway))
}

/// Counts the requests to `router`, which no worker sees.
pub fn recorded(gateway: &Arc<Gateway>, router: Router) -> Router {
    router.layer(from_fn_with_state(Arc::clone(gateway), record))
}

/// Requests that no worker sees get an id and a record too.
async fn record(State(gateway): State<Arc<Gateway>>, request: Request, next: Next) -> Response {
    let arrived = gateway.clock.now();
    let id = headers::request_id(request.headers()).unwrap_or_else(|| gateway.names.request_id());
    let path = Path::of_path(request.uri().path());
    let method = Method::from_name(request.method().as_str());
    let http = Arc::clone(&gateway.telemetry.http);
    let mut record = HttpRecord::new(http, gateway.clock, path, method, arrived);
    let mut response = next.run(request).await;
    record.set(response.status().as_u16());
    response.headers_mut().insert(headers::REQUEST_ID, id);
    response
}

async fn not_found(uri: Uri) -> Response {
    error::Failed::from(ApiError::unknown_path(uri.path())).into_response()
}

async fn method_not_allowed(method: Verb, uri: Uri) -> Response {
    error::Failed::from(ApiError::method_not_allowed(method.as_str(), uri.path())).into_response()
}
