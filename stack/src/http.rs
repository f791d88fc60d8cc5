//! A small HTTP/1.1 client for this machine: one connection per request, bounded in size and time.
//!
//! No redirects, no TLS, no pooling: it talks to the children of this program only.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;

/// Why a request got no usable answer.
#[derive(Debug, Error)]
pub(crate) enum ClientError {
    #[error("no connection to {address}: {source}")]
    Connect { address: String, source: std::io::Error },
    #[error("request failed: {0}")]
    Http(#[from] hyper::Error),
    #[error("invalid request: {0}")]
    Request(#[from] hyper::http::Error),
    #[error("no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    #[error("body not read: {0}")]
    Body(String),
}

/// A response whose body is still to be read; dropping it closes the connection.
pub(crate) struct Open {
    pub(crate) response: Response<Incoming>,
    /// Drives the connection; ends with this value.
    _driver: tokio_util::task::AbortOnDropHandle<()>,
}

/// Sends one request and waits for the head of the answer.
#[expect(clippy::disallowed_methods, reason = "the driver task is owned by the answer")]
pub(crate) async fn open(
    address: &str,
    request: Request<Full<Bytes>>,
) -> Result<Open, ClientError> {
    let connect = |source| ClientError::Connect { address: address.to_owned(), source };
    let stream = TcpStream::connect(address).await.map_err(connect)?;
    stream.set_nodelay(true).map_err(connect)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(async move {
        // An error here is also the error of the request or of its body.
        drop(connection.await);
    });
    let driver = tokio_util::task::AbortOnDropHandle::new(driver);
    let response = sender.send_request(request).await?;
    Ok(Open { response, _driver: driver })
}

/// A GET without a body.
pub(crate) fn get(address: &str, path: &str) -> Result<Request<Full<Bytes>>, ClientError> {
    let request = Request::get(path).header("host", address).body(Full::default())?;
    Ok(request)
}

/// A POST with a JSON body.
pub(crate) fn post(
    address: &str,
    path: &str,
    body: String,
) -> Result<Request<Full<Bytes>>, ClientError> {
    let request = Request::post(path)
        .header("host", address)
        .header("content-type", "application/json")
        .body(Full::from(body))?;
    Ok(request)
}

/// Sends a request and reads the answer whole, up to `bytes_max`, within `limit`.
pub(crate) async fn fetch(
    address: &str,
    request: Request<Full<Bytes>>,
    bytes_max: usize,
    limit: Duration,
) -> Result<(StatusCode, Bytes), ClientError> {
    let exchange = async {
        let answer = open(address, request).await?;
        let status = answer.response.status();
        let body = Limited::new(answer.response.into_body(), bytes_max);
        let body = body.collect().await.map_err(|e| ClientError::Body(e.to_string()))?;
        Ok((status, body.to_bytes()))
    };
    tokio::time::timeout(limit, exchange).await.map_err(|_| ClientError::Timeout(limit))?
}
