//! What holds for every answer of the console: who may ask, what a browser may do with it, and
//! that large answers travel compressed.

use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;

use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::assets::takes_gzip;

/// Everything comes from this server, nothing is inline but pictures.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      img-src 'self' data:; connect-src 'self'; font-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];

/// Answers shorter than this go as they are.
const PACKED_FROM: u64 = 4096;

/// The names under which a console answers.
///
/// A page of another site can make its own name point to this machine and then read what answers
/// here; the browser still sends that name. On a loopback address the console therefore answers
/// to loopback addresses, `localhost` and the names it was told. On other addresses it cannot know
/// its names, and checks them only where it was told some.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    loopback: bool,
    names: Vec<String>,
}

impl Guard {
    /// For a console that listens on `address`; `names` are further hosts without ports.
    pub(crate) fn new(address: IpAddr, names: &[String]) -> Self {
        let names = names.iter().map(|name| name.trim_end_matches('.').to_ascii_lowercase());
        Self { loopback: address.is_loopback(), names: names.collect() }
    }

    /// Whether a request to `host` (with or without a port) is answered.
    fn takes(&self, host: &str) -> bool {
        if !self.loopback && self.names.is_empty() {
            return true;
        }
        let host = without_port(host).trim_end_matches('.').to_ascii_lowercase();
        if self.names.contains(&host) {
            return true;
        }
        match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(address) => address.is_loopback() || !self.loopback,
            Err(_) => host == "localhost" || host.ends_with(".localhost"),
        }
    }
}

/// The host of `host:port`; an IPv6 address stays in its brackets.
fn without_port(host: &str) -> &str {
    match (host.rfind(']'), host.rfind(':')) {
        (Some(end), Some(colon)) if colon < end => host,
        (_, Some(colon)) => &host[..colon],
        (_, None) => host,
    }
}

/// The layer around all routes.
pub(super) async fn around(
    State(guard): State<Arc<Guard>>,
    request: Request,
    next: Next,
) -> Response {
    let asked = request.headers().get_all(header::HOST).iter();
    let asked = asked.map(|host| host.to_str().unwrap_or("?").to_owned());
    let asked = asked.chain(request.uri().authority().map(|host| host.as_str().to_owned()));
    if let Some(strange) = asked.into_iter().find(|host| !guard.takes(host)) {
        return finished(refusal(&strange));
    }
    let packs = takes_gzip(request.headers());
    let response = next.run(request).await;
    finished(if packs { packed(response).await } else { response })
}

fn refusal(host: &str) -> Response {
    let host: String = host.chars().filter(|c| !c.is_control()).take(100).collect();
    let name = without_port(&host);
    let text = format!(
        "This console does not answer to the name {name}: another site could have made that name \
         point here. Open it as localhost or 127.0.0.1, or start it with --allowed-host {name}.\n"
    );
    (StatusCode::MISDIRECTED_REQUEST, text).into_response()
}

fn finished(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn is_text(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/json") || kind.starts_with("text/"))
}

/// The answer compressed, when it is a long text that is not yet.
async fn packed(response: Response) -> Response {
    let length = response.body().size_hint().exact();
    let Some(length) = length.filter(|length| *length >= PACKED_FROM) else { return response };
    let headers = response.headers();
    if headers.contains_key(header::CONTENT_ENCODING) || !is_text(headers) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(bytes) = to_bytes(body, usize::try_from(length).unwrap_or(usize::MAX)).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let work = {
        let bytes = bytes.clone();
        move || {
            let mut encoder =
                GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::fast());
            encoder.write_all(&bytes).and_then(|()| encoder.finish())
        }
    };
    // What fails here would fail for want of memory: the answer goes as it is.
    let Ok(Ok(small)) = tokio::task::spawn_blocking(work).await else {
        return Response::from_parts(parts, Body::from(bytes));
    };
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(small))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(address: &str, names: &[&str]) -> Guard {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Guard::new(address.parse().expect("an address"), &names)
    }

    #[test]
    fn on_loopback_only_its_own_names_are_answered() {
        let local = guard("127.0.0.1", &[]);
        for host in [
            "127.0.0.1:8088",
            "127.9.9.9",
            "[::1]:8088",
            "[::1]",
            "localhost",
            "LOCALHOST:1",
            "localhost.",
            "a.localhost:80",
        ] {
            assert!(local.takes(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8088",
            "192.168.0.1",
            "localhost.evil.example",
            "",
            "127.0.0.1.evil.example",
            "[::2]:8088",
            "0.0.0.0:8088",
            "notlocalhost",
        ] {
            assert!(!local.takes(host), "{host}");
        }
    }

    #[test]
    fn names_can_be_added() {
        let named = guard("::1", &["Board.Example."]);
        assert!(named.takes("board.example:443") && named.takes("localhost:8088"));
        assert!(!named.takes("sub.board.example"));
    }

    #[test]
    fn elsewhere_names_are_checked_when_some_are_given() {
        assert!(guard("0.0.0.0", &[]).takes("anything.example"));
        let named = guard("0.0.0.0", &["board.example"]);
        assert!(named.takes("board.example") && named.takes("10.0.0.7:8088"));
        assert!(!named.takes("evil.example"));
    }
}
