//! The router's own answers where none comes from a worker: a status, a body in OpenAI's form.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use protocol::ApiError;
use serde::Serialize;

use crate::request::{OverloadReason, Refusal};

/// When to come back to a router that stops.
const RETRY_SOON: u64 = 5;

/// What a client is told instead of an answer.
#[derive(Debug, Clone)]
pub(crate) struct Failed(pub(crate) Box<ApiError>);

impl From<ApiError> for Failed {
    fn from(error: ApiError) -> Self {
        Self(Box::new(error))
    }
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            Refusal::UnknownModel { model, .. } => {
                ApiError { message, ..ApiError::unknown_model(&model) }
            }
            Refusal::NoWorker { retry_after, .. } => {
                ApiError::unavailable("no_worker", message, retry_after.as_secs())
            }
            Refusal::Overloaded { reason: OverloadReason::Closed, retry_after, .. } => {
                let code = OverloadReason::Closed.as_str();
                ApiError::unavailable(code, message, retry_after.as_secs())
            }
            Refusal::Overloaded { reason, retry_after, .. } => {
                ApiError::overloaded(reason.as_str(), message, retry_after.as_secs())
            }
        }
        .into()
    }
}

/// This router stops.
pub(crate) fn draining() -> ApiError {
    let message = "The router stopped before the answer was complete.".to_owned();
    ApiError::unavailable("server_draining", message, RETRY_SOON)
}

/// 502: a worker broke off or gave no answer.
pub(crate) fn bad_gateway(worker: &str, cause: &str) -> ApiError {
    let message = format!("Worker {worker} gave no whole answer: {cause}.");
    ApiError { status: 502, code: Some("bad_gateway"), ..ApiError::internal(message) }
}

/// 504: a worker took too long.
pub(crate) fn gateway_timeout(worker: &str, cause: &str) -> ApiError {
    let message = format!("Worker {worker} took too long: {cause}.");
    ApiError { status: 504, code: Some("gateway_timeout"), ..ApiError::internal(message) }
}

/// A body that did not arrive in time.
pub(crate) fn slow_body(limit: Duration) -> ApiError {
    let message = format!("The body did not arrive within {} s.", limit.as_secs());
    let error = ApiError::malformed(message);
    ApiError { status: 408, code: Some("body_timeout"), ..error }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let error = *self.0;
        let status = StatusCode::from_u16(error.status);
        let mut response = json(status.unwrap_or(StatusCode::BAD_GATEWAY), &error.body());
        let headers = response.headers_mut();
        if let Some(seconds) = error.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        // The rest of such a body is not worth reading.
        if matches!(error.status, 408 | 413) {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// A JSON body.
pub(crate) fn json<T: Serialize>(status: StatusCode, body: &T) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => (status, [(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(error) => {
            tracing::error!(%error, "An answer could not be written as JSON.");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
