//! `/internal/plan`: which size of the host tier would be worth its memory.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::error::Failure;
use super::{Api, json};

/// The advice of now. Reads the machine, on a thread that may wait.
pub(super) async fn plan(State(api): State<Arc<Api>>) -> Response {
    let asked = Arc::clone(&api);
    // Never closed; without a permit there would only be company.
    let turn = api.advisor().turn.acquire().await;
    let read = tokio::task::spawn_blocking(move || asked.advisor().report(&asked)).await;
    drop(turn);
    match read {
        Ok(report) => json(StatusCode::OK, &report),
        Err(error) => Failure::internal(format!("The plan was not made: {error}")).into_response(),
    }
}
