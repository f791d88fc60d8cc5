//! The one mapping from what went wrong to a status line, a body in OpenAI's form, and headers.

use std::time::Duration;

use admission::{RejectReason, Rejected};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::{AbortReason, Outcome, RequestError, SubmitError};
use protocol::ApiError;
use protocol::internal::{CAUSE_HEADER, CAUSE_PREFILL, PREFILL_HEADER};
use transfer::{Failure as TransferFailure, PeerName};

use crate::pd::PairFailure;

/// Beside an error status: another pair of workers may do what this one could not.
const RETRYABLE_HEADER: HeaderName = HeaderName::from_static("x-sightline-retryable");

/// When to come back to a server that is starting or stopping.
const RETRY_SOON: u64 = 5;
/// When to come back after a transfer that failed: another one may work at once.
const RETRY_NOW: u64 = 1;
/// When to come back after a burst that was too large for one step.
const RETRY_BURST: Duration = Duration::from_secs(1);

/// Why a request is not answered.
#[derive(Debug, Clone)]
pub enum Failure {
    /// Admission refused it.
    Refused(Rejected),
    /// The prompt was not computed elsewhere, or its KV did not come.
    Pair(Box<PairFailure>),
    /// Anything else.
    Api(Box<ApiError>),
}

impl From<Rejected> for Failure {
    fn from(refusal: Rejected) -> Self {
        Self::Refused(refusal)
    }
}

impl From<PairFailure> for Failure {
    fn from(failure: PairFailure) -> Self {
        Self::Pair(Box::new(failure))
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

    /// A drain lets nobody in; said as admission says it, since routers know by the reason that
    /// this worker goes away.
    #[must_use]
    pub fn drained() -> Self {
        let retry_after = Duration::from_secs(RETRY_SOON);
        let reason = RejectReason::Draining;
        Self::Refused(Rejected { reason, retry_after, value: 0, limit: 0 })
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

    /// What to tell about an outcome that is not a regular end; `peer` is who computed the prompt,
    /// where that was another worker.
    #[must_use]
    pub fn of_outcome(outcome: &Outcome, peer: Option<&PeerName>) -> Option<Self> {
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
                RequestError::Transfer(failure) => {
                    let peer = peer.cloned().unwrap_or_else(PeerName::other);
                    PairFailure::Failed { peer, failure: *failure }.into()
                }
            }),
        }
    }

    /// As the wire format tells it.
    #[must_use]
    pub fn to_api(&self) -> ApiError {
        match self {
            Self::Api(error) => (**error).clone(),
            Self::Refused(refusal) => refused(refusal, refusal.to_string()),
            Self::Pair(failure) => of_pair(failure),
        }
    }

    /// Whether another pair of workers may do it, and whether the prefill worker is the cause: what
    /// routers are told.
    fn for_routers(&self) -> (bool, bool) {
        match self {
            Self::Api(_) | Self::Refused(_) => (false, false),
            Self::Pair(failure) => match &**failure {
                PairFailure::UnknownPeer { .. }
                | PairFailure::TooLong { .. }
                | PairFailure::Unspeakable { .. } => (false, false),
                PairFailure::NoPeer(_) => (true, true),
                PairFailure::Rejected { .. } => (false, true),
                PairFailure::Failed { failure, .. } => (true, is_prefills(*failure)),
            },
        }
    }
}

fn refused(refusal: &Rejected, message: String) -> ApiError {
    let (code, retry_after) = (refusal.reason.as_str(), refusal.retry_after.as_secs());
    if refusal.reason.is_overload() {
        ApiError::overloaded(code, message, retry_after)
    } else {
        ApiError::unavailable(code, message, retry_after)
    }
}

fn of_pair(failure: &PairFailure) -> ApiError {
    match failure {
        PairFailure::UnknownPeer { .. } => {
            ApiError::invalid(PREFILL_HEADER, format!("{PREFILL_HEADER}: {failure}."))
        }
        PairFailure::NoPeer(_) => {
            ApiError::unavailable("no_prefill_worker", format!("{failure}."), RETRY_SOON)
        }
        PairFailure::Rejected { peer, refusal } => {
            refused(refusal, format!("Prefill worker {peer}: {refusal}"))
        }
        PairFailure::Unspeakable { field, .. } => ApiError::invalid(*field, format!("{failure}.")),
        PairFailure::TooLong { limit, .. } => ApiError::context_length(format!(
            "This model's maximum context length is {limit} tokens as its prefill worker runs it. \
             However, {failure}."
        )),
        PairFailure::Failed { failure: reason, .. } => {
            let error = ApiError::unavailable(reason.label(), format!("{failure}."), RETRY_NOW);
            let status = if is_for_now(*reason) { 503 } else { 502 };
            ApiError { status, kind: "kv_transfer_error", ..error }
        }
    }
}

/// Whether somebody had no time or no room, rather than something broke.
const fn is_for_now(failure: TransferFailure) -> bool {
    match failure {
        TransferFailure::PeerAbort
        | TransferFailure::LocalAbort
        | TransferFailure::BootstrapTimeout
        | TransferFailure::WaitingTimeout
        | TransferFailure::Alloc
        | TransferFailure::RestoreFailed => true,
        TransferFailure::Connect
        | TransferFailure::Checksum
        | TransferFailure::PeerGone
        | TransferFailure::Protocol
        | TransferFailure::Internal => false,
    }
}

/// Whether the prefill worker is behind it, and the decode worker is well.
const fn is_prefills(failure: TransferFailure) -> bool {
    match failure {
        TransferFailure::PeerAbort
        | TransferFailure::WaitingTimeout
        | TransferFailure::Connect
        | TransferFailure::Checksum
        | TransferFailure::PeerGone
        | TransferFailure::Protocol => true,
        TransferFailure::LocalAbort
        | TransferFailure::BootstrapTimeout
        | TransferFailure::Alloc
        | TransferFailure::RestoreFailed
        | TransferFailure::Internal => false,
    }
}

/// The engine closed between admission and hand-over.
pub(crate) fn not_taken(error: &SubmitError) -> Failure {
    let refused = |reason, value: usize| {
        let (value, limit) = (value as u64, value as u64);
        Failure::Refused(Rejected { reason, retry_after: RETRY_BURST, value, limit })
    };
    match error {
        SubmitError::Busy { limit } => refused(RejectReason::QueueRequestsFull, *limit),
        SubmitError::Draining => refused(RejectReason::Draining, 0),
        SubmitError::Unhealthy => refused(RejectReason::Unhealthy, 0),
        SubmitError::TooLong { limit, .. } => {
            let message = format!(
                "This model's maximum context length is {limit} tokens as this server runs it. \
                 However, {error}."
            );
            ApiError::context_length(message).into()
        }
        SubmitError::Invalid(_) => ApiError::invalid("prompt", error.to_string()).into(),
        SubmitError::Duplicate => Failure::internal(error.to_string()),
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
        let (retryable, prefills) = self.for_routers();
        if retryable {
            headers.insert(RETRYABLE_HEADER, HeaderValue::from_static("1"));
        }
        if prefills {
            headers.insert(CAUSE_HEADER, HeaderValue::from_static(CAUSE_PREFILL));
        }
        // The rest of such a body is not worth reading.
        if matches!(error.status, 408 | 413) {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
