//! HTTP metrics: each request is counted once, when its outcome is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use metric_catalog::install::{CounterHandle, GaugeHandle, HistogramHandle, Registry};
use metric_catalog::labels::{Method, Route, StatusCode};
use metric_catalog::server as catalog;
use types::{Clock, Time};

/// Status that is counted when the client left before the end.
pub const CLIENT_LEFT: u16 = 499;

/// Handles for every combination that the catalog declares, resolved once.
#[derive(Debug)]
pub struct HttpMetrics {
    clock: Clock,
    /// By route, method and status; `None` where the catalog says that it cannot happen.
    requests: Vec<Option<CounterHandle>>,
    duration: Vec<HistogramHandle>,
    in_flight: Vec<GaugeHandle>,
}

impl HttpMetrics {
    /// Handles in `registry`.
    #[must_use]
    pub fn new(registry: &Registry, clock: Clock) -> Arc<Self> {
        let requests = registry.counters(catalog::HTTP_REQUESTS);
        let each = |route: &Route| (*route,);
        let duration = Route::ALL
            .iter()
            .map(|route| registry.histogram(catalog::HTTP_REQUEST_DURATION, each(route)))
            .collect();
        let in_flight = Route::ALL
            .iter()
            .map(|route| registry.gauge(catalog::HTTP_REQUESTS_IN_FLIGHT, each(route)))
            .collect();
        Arc::new(Self { clock, requests, duration, in_flight })
    }

    /// A request has arrived; the record counts it when dropped.
    #[must_use]
    pub fn begin(self: &Arc<Self>, route: Route, method: Method, arrived: Time) -> HttpRecord {
        self.in_flight[route.index()].increment();
        let status = FinalStatus::default();
        HttpRecord { metrics: Arc::clone(self), route, method, arrived, status }
    }

    fn count(&self, route: Route, method: Method, status: u16) {
        let label = StatusCode::from_code(status);
        let place = (route.index() * Method::ALL.len() + method.index()) * StatusCode::ALL.len();
        match &self.requests[place + label.index()] {
            Some(counter) => counter.increment(),
            None => tracing::error!(
                route = route.as_str(),
                method = method.as_str(),
                status,
                "The catalog does not declare this outcome of a request."
            ),
        }
    }
}

/// The status that a request ends with, as far as it is known. 0 until a head was sent.
#[derive(Debug, Clone, Default)]
pub struct FinalStatus(Arc<AtomicU16>);

impl FinalStatus {
    /// From now on this is the outcome, unless something else happens.
    pub fn set(&self, status: u16) {
        self.0.store(status, Ordering::Relaxed);
    }

    fn get(&self) -> u16 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One request being served.
#[derive(Debug)]
pub struct HttpRecord {
    metrics: Arc<HttpMetrics>,
    route: Route,
    method: Method,
    arrived: Time,
    status: FinalStatus,
}

impl HttpRecord {
    /// Where those who learn the outcome write it.
    #[must_use]
    pub fn status(&self) -> FinalStatus {
        self.status.clone()
    }
}

impl Drop for HttpRecord {
    fn drop(&mut self) {
        let metrics = &self.metrics;
        metrics.in_flight[self.route.index()].decrement();
        // Dropped before anybody knew an outcome: the client closed the connection.
        let status = match self.status.get() {
            0 => CLIENT_LEFT,
            status => status,
        };
        metrics.count(self.route, self.method, status);
        let elapsed = metrics.clock.now().since(self.arrived);
        metrics.duration[self.route.index()].record_duration(elapsed);
    }
}
