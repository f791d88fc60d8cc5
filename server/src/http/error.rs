//! The one mapping from what went wrong to a status line, a body in OpenAI's form, and headers.

use std::time::Duration;

use admission::Rejected;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::{AbortReason, Outcome, RequestError};
use protocol::ApiError;

/// When to come back to a server that is starting or stopping.
const RETRY_SOON: u64 = 5;

/// Why a request is not answered.
#[derive(Debug, Clone)]
pub enum Failure {
    /// Admission refused it.
    Refused(Rejected),
    /// Anything else.
    Api(Box<ApiError>),
}

impl From<Rejected> for Failure {
    fn from(refusal: Rejected) -> Self {
        Self::Refused(refusal)
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self::Api(Box::new(error))
    }
}

impl Failure {
    /// The model is not loaded yet.
    #[must_use]
    pub fn loading() -> Self {
        let message = "The model is still being loaded.".to_owned();
        ApiError::unavailable("loading", message, RETRY_SOON).into()
    }

    /// The server stopped before the answer was complete.
    #[must_use]
    pub fn draining() -> Self {
        let message = "The server stopped before the answer was complete.".to_owned();
        ApiError::unavailable("server_draining", message, RETRY_SOON).into()
    }

    /// The request ran longer than is allowed.
    #[must_use]
    pub fn running_timeout() -> Self {
        let message = "The answer took longer than this server allows (--request-timeout). \
                       Ask for fewer tokens with max_tokens."
            .to_owned();
        ApiError::unavailable("running_timeout", message, RETRY_SOON).into()
    }

    /// A defect of the server.
    pub fn internal(message: impl Into<String>) -> Self {
        ApiError::internal(message).into()
    }

    /// The body did not arrive in time.
    #[must_use]
    pub fn body_timeout(limit: Duration) -> Self {
        let message = format!("The body did not arrive within {} s.", limit.as_secs());
        let error = ApiError::malformed(message);
        ApiError { status: 408, code: Some("body_timeout"), ..error }.into()
    }

    /// The body is encoded.
    #[must_use]
    pub fn encoded(encoding: &str) -> Self {
        let message = format!("Content-Encoding {encoding:?} is not supported: send it as it is.");
        ApiError { message, ..ApiError::media_type("") }.into()
    }

    /// What to tell about an outcome that is not a regular end.
    #[must_use]
    pub fn of_outcome(outcome: &Outcome) -> Option<Self> {
        match outcome {
            Outcome::Stop | Outcome::Length => None,
            Outcome::Aborted(abort) => Some(match abort.reason {
                AbortReason::DrainDeadline | AbortReason::Shutdown => Self::draining(),
                AbortReason::RunningTimeout => Self::running_timeout(),
                AbortReason::PeerAbort => {
                    let message = "The decode worker gave the request up.".to_owned();
                    ApiError::unavailable("peer_abort", message, RETRY_SOON).into()
                }
                AbortReason::SlowClient | AbortReason::ClientGone => {
                    let message = "The answer was given up because it was not read.".to_owned();
                    ApiError::unavailable("slow_client", message, RETRY_SOON).into()
                }
            }),
            Outcome::Rejected(refusal) => Some((*refusal).into()),
            Outcome::Error(error) => Some(match error {
                RequestError::Model(_) | RequestError::Engine(_) | RequestError::Sink => {
                    Self::internal(format!("The answer could not be computed: {error}."))
                }
                RequestError::Transfer(why) => {
                    let message = format!("The prompt was computed elsewhere, and {error}.");
                    ApiError::unavailable(why.label(), message, RETRY_SOON).into()
                }
            }),
        }
    }

    /// As the wire format tells it.
    #[must_use]
    pub fn to_api(&self) -> ApiError {
        match self {
            Self::Api(error) => (**error).clone(),
            Self::Refused(refusal) => {
                let (code, retry_after) = (refusal.reason.as_str(), refusal.retry_after.as_secs());
                if refusal.reason.is_overload() {
                    ApiError::overloaded(code, refusal.to_string(), retry_after)
                } else {
                    ApiError::unavailable(code, refusal.to_string(), retry_after)
                }
            }
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let error = self.to_api();
        let status = StatusCode::from_u16(error.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = super::json(status, &error.body());
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
