//! Requests to answers: paths, methods, passwords.

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, ORIGIN, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::OwnedSemaphorePermit;

use super::auth::Verdict;
use super::{Door, Peer};
use crate::gpu::NotReleased;

pub(super) type Answer = Response<Full<Bytes>>;

const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const JSON: &str = "application/json";

const INDEX: &str = "sightline-exporter\n\n\
    /metrics   what is known of this node, for Prometheus\n\
    /health    whether it is fit to serve, and why not (JSON; 200 or 503)\n\
    /readyz    the same\n\
    /startupz  whether every collector has tried once\n\
    /livez     whether this program works\n\
    POST /-/release  let go of the cards, so that they can be reset\n";

/// What is handed out as it was painted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Page {
    Index,
    Metrics,
    Health,
    Live,
    Startup,
}

/// What a path is, once it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    Painted(Page),
    Release,
}

impl Route {
    fn of(path: &str) -> Option<Self> {
        Some(match path {
            "/" => Self::Painted(Page::Index),
            "/metrics" => Self::Painted(Page::Metrics),
            "/health" | "/readyz" => Self::Painted(Page::Health),
            "/livez" => Self::Painted(Page::Live),
            "/startupz" => Self::Painted(Page::Startup),
            "/-/release" => Self::Release,
            _ => return None,
        })
    }

    const fn allows(self) -> &'static str {
        match self {
            Self::Painted(_) => "GET, HEAD",
            Self::Release => "POST",
        }
    }

    fn is_allowed(self, method: &Method) -> bool {
        self.allows().split(", ").any(|allowed| allowed == method.as_str())
    }
}

/// The answer, and the permit to hold until it has left.
pub(super) async fn answer<B>(
    door: &Door,
    peer: Peer,
    request: &Request<B>,
) -> (Answer, Option<OwnedSemaphorePermit>) {
    let web = door.web.get();
    let headers = request.headers();
    let (mut answer, permit) = match admit(door, peer, headers).await {
        Err(refusal) => (refusal, None),
        Ok(known) => match route(request) {
            Err(wrong) => (*wrong, None),
            // It takes its time, and is short: it waits beside those that are counted.
            Ok(Route::Release) => (release(door, peer, known, headers).await, None),
            Ok(Route::Painted(page)) => match Arc::clone(&door.answers).try_acquire_owned() {
                Err(_) => (busy("Too many requests at a time."), None),
                Ok(permit) => (painted(door, page), Some(permit)),
            },
        },
    };
    for (name, value) in &web.headers {
        answer.headers_mut().insert(name, value.clone());
    }
    (answer, permit)
}

/// Lets in who may come in; says whether it is known who that is.
async fn admit(door: &Door, peer: Peer, headers: &HeaderMap) -> Result<bool, Answer> {
    let web = door.web.get();
    if web.users.is_empty() {
        return Ok(peer.certified);
    }
    let Some((user, password)) = headers.get(AUTHORIZATION).and_then(credentials) else {
        return Err(who_are_you());
    };
    match door.checker.check(&web.users, &user, &password).await {
        Verdict::Yes => Ok(true),
        Verdict::No => Err(who_are_you()),
        Verdict::Busy => Err(busy("Too many passwords to check.")),
    }
}

/// Name and password of `Basic` credentials.
fn credentials(value: &HeaderValue) -> Option<(String, Vec<u8>)> {
    let (scheme, encoded) = value.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let user = String::from_utf8(decoded[..colon].to_vec()).ok()?;
    Some((user, decoded[colon + 1..].to_vec()))
}

fn route<B>(request: &Request<B>) -> Result<Route, Box<Answer>> {
    let Some(route) = Route::of(request.uri().path()) else {
        return Err(Box::new(plain(StatusCode::NOT_FOUND, "There is no such page; see /.\n")));
    };
    if !route.is_allowed(request.method()) {
        let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "Not this method.\n");
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static(route.allows()));
        return Err(Box::new(answer));
    }
    Ok(route)
}

fn painted(door: &Door, page: Page) -> Answer {
    let painted = door.board.get();
    match page {
        Page::Index => plain(StatusCode::OK, INDEX),
        Page::Metrics => full(StatusCode::OK, METRICS, painted.metrics.clone()),
        Page::Health => {
            let good = StatusCode::OK;
            let status = if painted.healthy { good } else { StatusCode::SERVICE_UNAVAILABLE };
            full(status, JSON, painted.health.clone())
        }
        Page::Live => plain(StatusCode::OK, "alive\n"),
        Page::Startup if painted.started => plain(StatusCode::OK, "started\n"),
        Page::Startup => plain(StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
    }
}

/// For those on this host, and those who are known. Answers when the cards are free.
async fn release(door: &Door, peer: Peer, known: bool, headers: &HeaderMap) -> Answer {
    if !known && !is_loopback(peer.address.ip()) {
        let reason = "Only from this host, or with a password or certificate.\n";
        return plain(StatusCode::FORBIDDEN, reason);
    }
    // A page that a browser on this host shows must not be able to do this.
    if headers.contains_key(ORIGIN) {
        return plain(StatusCode::FORBIDDEN, "Not from within a browser.\n");
    }
    let error = match (door.release)().await {
        Ok(time) => {
            tracing::warn!(peer = %peer.address, ?time, "The cards are released on request.");
            let body = serde_json::json!({"released": true, "seconds": time.as_secs_f64()});
            return full(StatusCode::OK, JSON, Bytes::from(body.to_string()));
        }
        Err(error) => error,
    };
    tracing::warn!(peer = %peer.address, %error, "The cards cannot be released.");
    let status = match error {
        NotReleased::Impossible(_) => StatusCode::CONFLICT,
        NotReleased::Held(_) => StatusCode::SERVICE_UNAVAILABLE,
        NotReleased::Late(_) => StatusCode::GATEWAY_TIMEOUT,
    };
    let body = serde_json::json!({"released": false, "reason": error.to_string()});
    full(status, JSON, Bytes::from(body.to_string()))
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

fn who_are_you() -> Answer {
    let mut answer = plain(StatusCode::UNAUTHORIZED, "Unauthorized\n");
    let realm = HeaderValue::from_static("Basic realm=\"sightline-exporter\"");
    answer.headers_mut().insert(WWW_AUTHENTICATE, realm);
    answer
}

fn busy(reason: &'static str) -> Answer {
    let mut answer =
        full(StatusCode::SERVICE_UNAVAILABLE, TEXT, Bytes::from_static(reason.as_bytes()));
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

fn plain(status: StatusCode, text: &'static str) -> Answer {
    full(status, TEXT, Bytes::from_static(text.as_bytes()))
}

fn full(status: StatusCode, kind: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

#[cfg(test)]
pub(in crate::http) mod tests;
