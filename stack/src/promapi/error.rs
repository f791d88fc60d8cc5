//! Errors as Prometheus reports them: a status, a type and a sentence.

use std::time::Duration;

use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;

use super::{FORM_BYTES_MAX, format};
use crate::promql::QueryError;

/// An error with its status.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    kind: &'static str,
    message: String,
}

impl ApiError {
    const fn new(status: StatusCode, kind: &'static str, message: String) -> Self {
        Self { status, kind, message }
    }

    /// The request is wrong.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_data", message.into())
    }

    /// The query cannot be answered.
    pub(crate) fn execution(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "execution", message.into())
    }

    /// It took longer than `limit`.
    pub(crate) fn timeout(what: &str, limit: Duration) -> Self {
        let message = format!(
            "{what}: no answer within {} s; a shorter range, a longer step or fewer series would \
             work",
            limit.as_secs_f64()
        );
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", message)
    }

    /// Not now.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message.into())
    }

    /// Something on the way to the data is broken.
    pub(crate) fn gateway(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "unavailable", message.into())
    }

    /// A defect.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message.into())
    }

    /// No such part of the API.
    pub(crate) fn not_found(path: &str) -> Self {
        let message = format!(
            "{path} is not part of this API: it answers queries, labels, series, metadata, rules, \
             alerts, targets and status; it changes nothing"
        );
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// The answer has more bytes than are given.
    pub(crate) fn too_large(bytes_max: usize) -> Self {
        Self::execution(format!(
            "the answer is longer than {} MiB; a longer step, a shorter range or an aggregation \
             would work",
            bytes_max >> 20
        ))
    }

    pub(super) fn body_not_read(rejection: BytesRejection) -> Self {
        if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
            let message = format!(
                "the request's body is longer than {FORM_BYTES_MAX} bytes; ask in several requests"
            );
            return Self::new(StatusCode::PAYLOAD_TOO_LARGE, "bad_data", message);
        }
        Self::bad(format!("the request's body was not read: {rejection}"))
    }

    /// The body of the response.
    pub(crate) fn body(&self) -> String {
        let message = format::quoted(&self.message);
        format!(r#"{{"status":"error","errorType":"{}","error":{message}}}"#, self.kind)
    }
}

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Bad(message) => Self::bad(message),
            QueryError::Execution(message) => Self::execution(message),
            // Somebody else has told why: whoever stopped it no longer waits.
            QueryError::Stopped => {
                let message = error.to_string();
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", message)
            }
        }
    }
}

impl From<String> for ApiError {
    fn from(message: String) -> Self {
        Self::bad(message)
    }
}
