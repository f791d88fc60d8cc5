//! Reading of request bodies: JSON, of bounded size, in bounded time, in one piece: it may be sent
//! more than once.

use std::time::Duration;

use axum::extract::Request;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use protocol::ApiError;

use super::error::slow_body;

/// The body of `request`, of at most `limit` bytes, arrived within `time`.
///
/// # Errors
/// 415 for another type or an encoding, 413 for a long body (before it is read, where its length
/// is announced), 408 for a slow one, 400 for a broken one.
pub(crate) async fn read(
    request: Request,
    limit: usize,
    time: Duration,
) -> Result<Bytes, ApiError> {
    check_type(request.headers())?;
    let too_large = || ApiError::body_too_large(limit as u64);
    let announced = text(request.headers(), &CONTENT_LENGTH).and_then(|text| text.parse().ok());
    if announced.is_some_and(|length: u64| length > limit as u64) {
        return Err(too_large());
    }
    let body = Limited::new(request.into_body(), limit).collect();
    match tokio::time::timeout(time, body).await {
        Err(_) => Err(slow_body(time)),
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => Err(ApiError::malformed(format!("The body could not be read: {error}."))),
    }
}

fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let kind = text(headers, &CONTENT_TYPE).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        return Err(ApiError::media_type(kind));
    }
    match text(headers, &CONTENT_ENCODING) {
        None | Some("identity") => Ok(()),
        Some(encoding) => {
            let message =
                format!("Content-Encoding {encoding:?} is not supported: send it as it is.");
            Err(ApiError { message, ..ApiError::media_type("") })
        }
    }
}

/// A header as text; bytes that are not are no value that is known here.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}
