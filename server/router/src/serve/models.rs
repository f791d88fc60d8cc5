//! `/v1/models`: all models that workers serve, from what they have said, whoever of them is up.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use protocol::ApiError;
use serde_json::{Value, json};

use super::Gateway;
use super::error::{self, Failed};

fn card(name: &str, created: u64) -> Value {
    json!({"id": name, "object": "model", "created": created, "owned_by": "sightline"})
}

/// All of them.
pub(super) async fn list(State(gateway): State<Arc<Gateway>>) -> Response {
    let created = gateway.clock.unix_seconds(types::Time::ZERO) as u64;
    let models = gateway.core().models();
    let data: Vec<Value> = models.iter().map(|name| card(name, created)).collect();
    error::json(StatusCode::OK, &json!({"object": "list", "data": data}))
}

/// One of them.
pub(super) async fn one(
    State(gateway): State<Arc<Gateway>>,
    Path(model): Path<String>,
) -> Response {
    let created = gateway.clock.unix_seconds(types::Time::ZERO) as u64;
    if gateway.core().models().iter().any(|name| **name == *model) {
        error::json(StatusCode::OK, &card(&model, created))
    } else {
        Failed::from(ApiError::unknown_model(&model)).into_response()
    }
}
