//! Who may use `/admin` and `/internal`: this host, or whoever has the token.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use protocol::ApiError;

use super::Api;
use super::error::Failure;
use crate::config::Secret;

/// The other end of the connection that a request came on.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

/// Lets requests to `/admin` pass that come from this host or with the token. A page in a browser
/// of this host is somebody else: it says where it comes from.
pub(super) async fn admin(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let here = comes_from_here(&request) && !request.headers().contains_key(header::ORIGIN);
    if here || has_token(api.admin_token.as_ref(), request.headers()) {
        return next.run(request).await;
    }
    refusal(api.admin_token.is_some()).into_response()
}

/// The same for `/internal`, which changes nothing and tells little more than `/metrics` does:
/// closed to other hosts only where there is a token.
pub(super) async fn internal(
    State(api): State<Arc<Api>>,
    request: Request,
    next: Next,
) -> Response {
    let open = api.admin_token.is_none() || comes_from_here(&request);
    if open || has_token(api.admin_token.as_ref(), request.headers()) {
        return next.run(request).await;
    }
    refusal(api.admin_token.is_some()).into_response()
}

/// The same for both of a router, which has no model and no engine.
pub(crate) async fn router(
    State(token): State<Option<Secret>>,
    request: Request,
    next: Next,
) -> Response {
    let reads = request.uri().path().starts_with("/internal/");
    let browser = request.headers().contains_key(header::ORIGIN);
    let here = comes_from_here(&request) && (reads || !browser);
    if here || (reads && token.is_none()) || has_token(token.as_ref(), request.headers()) {
        return next.run(request).await;
    }
    refusal(token.is_some()).into_response()
}

/// Where nobody has said who asks, it is nobody of this host.
fn comes_from_here(request: &Request) -> bool {
    let peer = request.extensions().get::<Peer>();
    peer.is_some_and(|Peer(address)| address.ip().to_canonical().is_loopback())
}

fn has_token(token: Option<&Secret>, headers: &HeaderMap) -> bool {
    let Some(token) = token else { return false };
    let sent = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
    let sent = sent.and_then(|value| {
        let (scheme, token) = value.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
    });
    sent.is_some_and(|sent| equal(sent, &token.bytes()))
}

/// Takes as long for equal lengths, whatever the bytes are.
fn equal(a: &[u8], b: &[u8]) -> bool {
    let differing = a.iter().zip(b).fold(0, |differing, (a, b)| differing | (a ^ b));
    a.len() == b.len() && std::hint::black_box(differing) == 0
}

fn refusal(with_token: bool) -> Failure {
    let message = if with_token {
        "From another host this needs `Authorization: Bearer TOKEN` with the token of this \
         server's --admin-token-file."
    } else {
        "This is for callers on the server's own host; others need a token, which a server \
         started with --admin-token-file takes."
    };
    let error = ApiError::malformed(message);
    ApiError { status: 403, code: Some("forbidden"), ..error }.into()
}
