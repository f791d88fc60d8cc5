//! What the router records: requests as clients see them by model, workers by their names.
//!
//! Handles are resolved once for each model and each worker. Gauges of workers come from one look
//! at the core right before a page is rendered. What requests of a model come to is recorded by
//! values alone, so that clusters in virtual time are recorded by the same code.

mod models;
mod workers;

use std::sync::Arc;

use metric_catalog::install::{CounterHandle, GaugeHandle, HistogramHandle, Registry};
use metric_catalog::labels::{DiscoverySource, Method, Route, StatusCode};
use metric_catalog::{router as ours, server as catalog};
use types::{Clock, Time};

use crate::worker::Source;
use crate::{Held, HoldConfig, PolicyKind};
pub use models::{Finished, Model, Models, OTHER};
pub(crate) use workers::{Seen, Workers, label};

/// Status that is counted when the client left before the end.
pub(crate) const CLIENT_LEFT: u16 = 499;

/// One handle for each value of a closed label, in the order of its index.
fn all<L: metric_catalog::def::Label, T>(make: impl Fn(L) -> T) -> Vec<T> {
    L::all().iter().cloned().map(make).collect()
}

/// Requests as HTTP sees them: of one model, or of none.
#[derive(Debug)]
pub(crate) struct Http {
    /// By route, method and status; `None` where it cannot happen, or not with such a model.
    requests: Vec<Option<CounterHandle>>,
    duration: Vec<HistogramHandle>,
    in_flight: Vec<GaugeHandle>,
}

impl Http {
    /// Handles for the routes that are answered `with_model`, or for the others.
    fn new(registry: &Registry, with_model: bool) -> Self {
        let none = Registry::disabled();
        let of = |route: Route| if is_inference(route) == with_model { registry } else { &none };
        Self {
            requests: registry.counters(catalog::HTTP_REQUESTS),
            duration: all(|route| of(route).histogram(catalog::HTTP_REQUEST_DURATION, (route,))),
            in_flight: all(|route| of(route).gauge(catalog::HTTP_REQUESTS_IN_FLIGHT, (route,))),
        }
    }

    fn count(&self, route: Route, method: Method, status: u16) {
        let label = StatusCode::from_code(status);
        let place = (route.index() * Method::ALL.len() + method.index()) * StatusCode::ALL.len();
        match self.requests.get(place + label.index()) {
            Some(Some(counter)) => counter.increment(),
            Some(None) | None => tracing::error!(
                route = route.as_str(),
                method = method.as_str(),
                status,
                "The catalog does not declare this outcome of a request."
            ),
        }
    }
}

/// Whether requests to a route are for a model.
pub(crate) const fn is_inference(route: Route) -> bool {
    matches!(route, Route::Completions | Route::ChatCompletions)
}

/// One request being answered; counted when dropped.
#[derive(Debug)]
pub(crate) struct HttpRecord {
    http: Arc<Http>,
    clock: Clock,
    route: Route,
    method: Method,
    arrived: Time,
    /// 0 until a head is known.
    status: u16,
}

impl HttpRecord {
    /// A request that arrived at `arrived`.
    pub(crate) fn new(
        http: Arc<Http>,
        clock: Clock,
        route: Route,
        method: Method,
        arrived: Time,
    ) -> Self {
        http.in_flight[route.index()].increment();
        Self { http, clock, route, method, arrived, status: 0 }
    }

    /// It turned out to be of a model: it is recorded there.
    pub(crate) fn of_model(mut self, http: &Arc<Http>) -> Self {
        http.in_flight[self.route.index()].increment();
        self.http.in_flight[self.route.index()].decrement();
        self.http = Arc::clone(http);
        self
    }

    /// From now on this is the outcome, unless something else happens.
    pub(crate) const fn set(&mut self, status: u16) {
        self.status = status;
    }
}

impl Drop for HttpRecord {
    fn drop(&mut self) {
        self.http.in_flight[self.route.index()].decrement();
        // Dropped before anybody knew an outcome: the client closed the connection.
        let status = if self.status == 0 { CLIENT_LEFT } else { self.status };
        self.http.count(self.route, self.method, status);
        let elapsed = self.clock.now().since(self.arrived);
        self.http.duration[self.route.index()].record_duration(elapsed);
    }
}

/// Everything that is recorded.
#[derive(Debug)]
pub(crate) struct Telemetry {
    pub(crate) registry: Registry,
    /// Of requests for no model.
    pub(crate) http: Arc<Http>,
    pub(crate) models: Models,
    pub(crate) workers: Workers,
    /// Looks at lists that gave none, by source.
    not_listed: Vec<CounterHandle>,
    /// When lists were last good, by source.
    listed: Vec<GaugeHandle>,
    held_requests: GaugeHandle,
    held_tokens: GaugeHandle,
    held_limit: GaugeHandle,
}

impl Telemetry {
    /// Handles in `registry`.
    pub(crate) fn new(registry: &Registry, settings: &super::Settings, clock: Clock) -> Self {
        registry.gauge(catalog::READY_TIMESTAMP, ()).set(clock.unix_seconds(clock.now()));
        let telemetry = Self {
            not_listed: all(|source| registry.counter(ours::ROUTER_DISCOVERY_FAILURES, (source,))),
            listed: all(|source| {
                registry.gauge(ours::ROUTER_DISCOVERY_SUCCESS_TIMESTAMP, (source,))
            }),
            held_requests: registry.gauge(ours::ROUTER_HELD_REQUESTS, ()),
            held_tokens: registry.gauge(ours::ROUTER_HELD_TOKENS, ()),
            held_limit: registry.gauge(ours::ROUTER_HELD_REQUESTS_LIMIT, ()),
            registry: registry.clone(),
            http: Arc::new(Http::new(registry, false)),
            models: Models::new(registry, settings.core.policy, settings.objectives),
            workers: Workers::new(registry),
        };
        telemetry.configure(settings.core.policy, settings.core.hold);
        telemetry
    }

    /// Settings have changed.
    pub(crate) fn configure(&self, policy: PolicyKind, hold: HoldConfig) {
        self.models.choose_by(policy);
        let requests = if hold.time.is_zero() { 0 } else { hold.requests };
        self.held_limit.set_count(requests as u64);
    }

    /// What waits for workers to come back.
    pub(crate) fn set_held(&self, held: Held) {
        self.held_requests.set_count(held.requests as u64);
        self.held_tokens.set_count(held.tokens);
    }

    /// A look at a list gave none.
    pub(crate) fn not_listed(&self, source: Source) {
        self.not_listed[discovery(source).index()].increment();
    }

    /// When a list was last good, in Unix seconds; 0 for never.
    pub(crate) fn listed(&self, source: Source, unix: f64) {
        self.listed[discovery(source).index()].set(unix);
    }
}

const fn discovery(source: Source) -> DiscoverySource {
    match source {
        Source::Flags => DiscoverySource::Flags,
        Source::File => DiscoverySource::File,
        Source::Dns => DiscoverySource::Dns,
        Source::Admin => DiscoverySource::Admin,
    }
}
