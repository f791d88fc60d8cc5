//! `/metrics` and `/version`.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::Api;

/// The text format that is written.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics page. Reads snapshots only: it never waits for the engine.
pub(super) async fn metrics(State(api): State<Arc<Api>>, RawQuery(query): RawQuery) -> Response {
    api.gauges.set(&api.snapshot());
    let page = api.registry.render();
    let names = query.as_deref().map(wanted).unwrap_or_default();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let page = if names.is_empty() { page } else { metric_catalog::install::filter(&page, &names) };
    ([(header::CONTENT_TYPE, TEXT_FORMAT)], page).into_response()
}

/// The families asked for by `name[]=...`, as Prometheus' own clients do.
fn wanted(query: &str) -> Vec<String> {
    query
        .split('&')
        .filter_map(|pair| {
            pair.strip_prefix("name[]=").or_else(|| pair.strip_prefix("name%5B%5D="))
        })
        .map(str::to_owned)
        .collect()
}

/// What runs here.
pub(super) async fn version(State(api): State<Arc<Api>>) -> Response {
    let body = json!({"version": env!("CARGO_PKG_VERSION"), "model": api.model_name}).to_string();
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}
