//! The outermost layer: every request gets an id, a record in the metrics, and a log line.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use metric_catalog::labels::{Method, Route};
use tracing::Instrument;
use types::Time;

use super::Api;
use crate::telemetry::http::{FinalStatus, HttpRecord};

/// The header that names a request, in both directions.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longer names are replaced by our own.
const REQUEST_ID_MAX: usize = 128;

/// What handlers learn about their request.
#[derive(Debug, Clone)]
pub(super) struct Arrival {
    /// When its head was read.
    pub at: Time,
    /// Where a handler writes an outcome that differs from the status line.
    pub status: FinalStatus,
    /// Its name.
    pub id: HeaderValue,
}

impl Arrival {
    /// For a request that came by without the layer; its outcome goes nowhere.
    #[must_use]
    pub(super) fn now(at: Time) -> Self {
        Self { at, status: FinalStatus::default(), id: HeaderValue::from_static("") }
    }
}

/// Wraps the handling of one request.
pub(super) async fn record(
    State(api): State<Arc<Api>>,
    mut request: Request,
    next: Next,
) -> Response {
    let at = api.clock.now();
    let route = Route::of_path(request.uri().path());
    let method = Method::from_name(request.method().as_str());
    let record = api.http.begin(route, method, at);
    let id = request_id(request.headers()).unwrap_or_else(|| api.new_request_id());
    request.extensions_mut().insert(Arrival { at, status: record.status(), id: id.clone() });
    let span = tracing::info_span!("request", request_id = id.to_str().unwrap_or_default());
    let mut response = next.run(request).instrument(span.clone()).await;
    record.status().set(response.status().as_u16());
    span.in_scope(|| {
        tracing::debug!(
            route = route.as_str(),
            status = response.status().as_u16(),
            "A request was answered."
        );
    });
    response.headers_mut().insert(REQUEST_ID, id);
    response.map(|body| Body::new(Recorded { body, _record: record }))
}

/// The client's own name for the request, where it is one that can be logged.
fn request_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let id = headers.get(&REQUEST_ID)?;
    let sane = !id.is_empty() && id.len() <= REQUEST_ID_MAX && id.to_str().is_ok();
    sane.then(|| id.clone())
}

/// A body that keeps its request's record alive until it is sent or given up.
struct Recorded {
    body: Body,
    _record: HttpRecord,
}

impl HttpBody for Recorded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
