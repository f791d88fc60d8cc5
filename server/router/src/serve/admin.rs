//! What operators and Prometheus see: the metrics page, what is known of each worker, and the
//! draining of one.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use metric_catalog::labels::EngineState;
use protocol::ApiError;
use serde_json::{Value, json};
use types::Time;

use super::error::{self, Failed};
use super::telemetry::{Seen, label};
use super::{Gateway, address};
use crate::worker::{CircuitState, DrainBy, Event, Source, WorkerName};
use crate::{NoSuchWorker, WorkerView};

/// The text format that is written.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A name in logs and reports.
pub(super) const fn circuit(state: CircuitState) -> &'static str {
    match state {
        CircuitState::Closed => "closed",
        CircuitState::Open => "open",
        CircuitState::HalfOpen => "half_open",
    }
}

/// The metrics page.
pub(super) async fn metrics(
    State(gateway): State<Arc<Gateway>>,
    RawQuery(query): RawQuery,
) -> Response {
    gateway.set_gauges();
    let page = gateway.telemetry.registry.render();
    let names = query.as_deref().map(wanted).unwrap_or_default();
    let page = if names.is_empty() { page } else { metric_catalog::install::filter(&page, &names) };
    ([(header::CONTENT_TYPE, TEXT_FORMAT)], page).into_response()
}

/// The families asked for by `name[]=...`, as Prometheus' own clients do.
fn wanted(query: &str) -> Vec<&str> {
    let of = |pair| str::strip_prefix(pair, "name[]=").or(pair.strip_prefix("name%5B%5D="));
    query.split('&').filter_map(of).collect()
}

/// What runs here.
pub(super) async fn version(State(gateway): State<Arc<Gateway>>) -> Response {
    let policy = gateway.settings().core.policy.as_str();
    let body = json!({"version": env!("CARGO_PKG_VERSION"), "role": "router", "policy": policy});
    error::json(StatusCode::OK, &body)
}

impl Gateway {
    /// Gauges cannot freeze: they are set right before a page is rendered.
    fn set_gauges(&self) {
        let now = self.clock.now();
        let core = self.core();
        let (views, declared, held) = (core.workers(now), core.declared(), core.held());
        // No lock is taken under another: whoever asks for workers takes them the other way round.
        drop(core);
        let discovered = self.discovered();
        for (source, look) in &discovered.sources {
            let good = look.good.map_or(0.0, |good| self.clock.unix_seconds(good));
            self.telemetry.listed(*source, good);
        }
        drop(discovered);
        self.telemetry.set_held(held);
        let seen = |view: &WorkerView| Seen {
            name: view.name.clone(),
            up: view.up,
            circuit: view.circuit,
            active: view.own.requests,
            pending: view.pending_tokens,
            report_age: view.report_age,
        };
        let seen: Vec<Seen> = views.iter().map(seen).collect();
        self.telemetry.workers.set(&seen, self.uptime());
        let ready = self.readiness().is_ok();
        let state = match (self.is_draining(), ready) {
            (true, _) => EngineState::Draining,
            (false, true) => EngineState::Ready,
            (false, false) => EngineState::Loading,
        };
        self.telemetry.models.each(|name, model| {
            model.state(state);
            for role in metric_catalog::labels::WorkerRole::ALL {
                let of = declared.iter().filter(|one| {
                    let named = one.model.as_deref().unwrap_or(super::telemetry::OTHER);
                    label(one.role) == *role && named == name
                });
                model.declare(*role, of.map(|one| one.workers).sum());
            }
        });
    }
}

/// What is known of all workers.
pub(super) async fn workers(State(gateway): State<Arc<Gateway>>) -> Response {
    let now = gateway.clock.now();
    let (views, held) = {
        let core = gateway.core();
        (core.workers(now), core.held())
    };
    let workers: Vec<Value> = views.iter().map(|view| gateway.told(view)).collect();
    let sources = gateway.sources(now);
    let missing = gateway.readiness().err().map(|missing| missing.to_string());
    let body = json!({
        "policy": gateway.settings().core.policy.as_str(), "ready": missing.is_none(),
        "missing": missing, "in_flight": gateway.in_flight(),
        "held": {"requests": held.requests, "tokens": held.tokens},
        "workers": workers, "sources": sources,
    });
    error::json(StatusCode::OK, &body)
}

impl Gateway {
    /// How each source of workers fares.
    fn sources(&self, now: Time) -> Vec<Value> {
        let discovered = self.discovered();
        let source = |source: &Source| {
            let look = discovered.sources.get(source)?;
            let age = look.good.map(|good| now.since(good).as_secs_f64());
            Some(json!({
                "source": source.as_str(), "listed": look.listed, "age_seconds": age,
                "failures": look.failures, "error": look.error,
            }))
        };
        Source::ALL.iter().filter_map(source).collect()
    }

    pub(super) fn told(&self, view: &WorkerView) -> Value {
        let idle = self.idle_connections(&view.name);
        let models: Vec<&str> = view.models.iter().map(|model| &**model).collect();
        json!({
            "worker": view.name.as_str(), "role": view.role.as_str(),
            "state": view.state.as_str(), "reason": view.reason, "up": view.up,
            "circuit": circuit(view.circuit), "models": models,
            "active_requests": view.own.requests, "pending_tokens": view.pending_tokens,
            "backlog_seconds": view.backlog_seconds,
            "report_age_seconds": view.report_age.map(|age| age.as_secs_f64()),
            "cooling_seconds": view.cooling.map(|time| time.as_secs_f64()),
            "idle_connections": idle, "share": view.share,
            "sources": view.sources.iter().map(|source| source.as_str()).collect::<Vec<_>>(),
        })
    }
}

/// No new requests go to a worker until that is taken back.
pub(super) async fn drain(
    State(gateway): State<Arc<Gateway>>,
    Path(worker): Path<String>,
) -> Response {
    let now = gateway.clock.now();
    let told = named(&worker).map(|name| gateway.core().drain(&name, DrainBy::Operator, now));
    report(&gateway, &worker, told)
}

/// Requests go to a worker again.
pub(super) async fn undrain(
    State(gateway): State<Arc<Gateway>>,
    Path(worker): Path<String>,
) -> Response {
    let now = gateway.clock.now();
    let told = named(&worker).map(|name| gateway.core().undrain(&name, DrainBy::Operator, now));
    report(&gateway, &worker, told)
}

pub(super) fn named(worker: &str) -> Result<WorkerName, ApiError> {
    let parsed = address::parse(worker).map(|(name, _)| name);
    parsed.map_err(|error| {
        let message = format!("There is no worker {worker:?}: {error}.");
        ApiError { message, ..ApiError::unknown_path(worker) }
    })
}

fn report(
    gateway: &Gateway,
    worker: &str,
    told: Result<Result<Vec<Event>, NoSuchWorker>, ApiError>,
) -> Response {
    let events = match told {
        Ok(Ok(events)) => events,
        Ok(Err(error)) => {
            let message = format!("{error}; GET /internal/workers lists them.");
            let error = ApiError { message, ..ApiError::unknown_path(worker) };
            return Failed::from(error).into_response();
        }
        Err(error) => return Failed::from(error).into_response(),
    };
    gateway.log(&events);
    let now = gateway.clock.now();
    let views = gateway.core().workers(now);
    let view = views.iter().find(|view| view.name.as_str().eq_ignore_ascii_case(worker));
    error::json(StatusCode::OK, &view.map(|view| gateway.told(view)))
}
