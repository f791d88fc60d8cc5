//! Reading of request bodies: JSON, of bounded size, in bounded time.

use std::time::Duration;

use axum::extract::Request;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use protocol::ApiError;

use super::error::Failure;

/// What a body may be.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    /// Its size.
    pub bytes: usize,
    /// The time in which it must arrive: a slow one holds a connection for nothing.
    pub time: Duration,
}

/// The body of `request`, which must call itself JSON and stay within `limits`.
///
/// # Errors
/// 415 for another type or an encoding, 413 for a long body (before it is read, where its length
/// is announced), 408 for a slow one, 400 for a broken one.
pub async fn read(request: Request, limits: BodyLimits) -> Result<Bytes, Failure> {
    let limit = limits.bytes;
    check_type(request.headers())?;
    let announced = text(request.headers(), &CONTENT_LENGTH).and_then(|text| text.parse().ok());
    if announced.is_some_and(|length: u64| length > limit as u64) {
        return Err(too_large(limit));
    }
    let body = Limited::new(request.into_body(), limit).collect();
    match tokio::time::timeout(limits.time, body).await {
        Err(_) => Err(Failure::body_timeout(limits.time)),
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(limit)),
        Ok(Err(error)) => {
            Err(ApiError::malformed(format!("The body could not be read: {error}.")).into())
        }
    }
}

fn check_type(headers: &HeaderMap) -> Result<(), Failure> {
    let kind = text(headers, &CONTENT_TYPE).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        return Err(ApiError::media_type(kind).into());
    }
    match text(headers, &CONTENT_ENCODING) {
        None | Some("identity") => Ok(()),
        Some(encoding) => Err(Failure::encoded(encoding)),
    }
}

/// A header as text; bytes that are not are no value that is known here.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

fn too_large(limit: usize) -> Failure {
    ApiError::body_too_large(limit as u64).into()
}
