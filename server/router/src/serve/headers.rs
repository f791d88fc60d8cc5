//! Headers on their way through: what a proxy must not pass on, and what it adds.
//!
//! Names of requests and traces are passed on where they are sane and made where they are not.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use protocol::internal::{DRAIN_AWARE_HEADER, PREFILL_HEADER, PROMPT_TOKENS_HEADER};

/// Names a request, in both directions.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Names the prefill worker that the decode worker should use.
pub(crate) const PREFILL: HeaderName = HeaderName::from_static(PREFILL_HEADER);
/// Says to a worker that its 503 while it drains sends the request elsewhere.
pub(crate) const DRAIN_AWARE: HeaderName = HeaderName::from_static(DRAIN_AWARE_HEADER);
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Longer names of requests are replaced by our own.
const REQUEST_ID_MAX: usize = 128;

/// Headers of this project between its own processes: never a client's to set or to see.
const OURS: &str = "x-sightline-";

/// Those that speak of one connection, by RFC 9110 7.6.1 and by old custom.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Takes away what concerns one connection only, with what `connection` itself names.
fn strip_hops(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    let ours = headers.keys().filter(|name| name.as_str().starts_with(OURS));
    let ours: Vec<HeaderName> = ours.cloned().collect();
    for name in &ours {
        headers.remove(name);
    }
}

/// A client's headers as a worker gets them; host, length and what is ours are still to be set.
pub(crate) fn of_request(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    strip_hops(&mut headers);
    headers.remove(HOST);
    headers.remove(CONTENT_LENGTH);
    // The body is here already.
    headers.remove(EXPECT);
    // Events that are compressed cannot be told apart.
    headers.remove(ACCEPT_ENCODING);
    headers
}

/// Tokens of the prompts, where a worker tells them.
pub(crate) fn prompt_tokens(headers: &HeaderMap) -> Option<u64> {
    headers.get(PROMPT_TOKENS_HEADER)?.to_str().ok()?.parse().ok()
}

/// A worker's headers as the client gets them.
pub(crate) fn of_response(headers: &mut HeaderMap) {
    strip_hops(headers);
    headers.remove(REQUEST_ID);
}

/// The client's name for its request, where it is one that can be logged.
pub(crate) fn request_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let id = headers.get(&REQUEST_ID)?;
    let sane = !id.is_empty() && id.len() <= REQUEST_ID_MAX && id.to_str().is_ok();
    sane.then(|| id.clone())
}

/// Makes names that differ from process to process and from request to request.
#[derive(Debug)]
pub(crate) struct Names {
    keys: RandomState,
    nonce: u64,
    next: AtomicU64,
}

impl Default for Names {
    fn default() -> Self {
        // Seeded by the system; only has to be hard to meet twice.
        let keys = RandomState::new();
        Self { nonce: keys.hash_one(0_u64), keys, next: AtomicU64::new(1) }
    }
}

impl Names {
    fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// A number that nobody can foresee.
    pub(crate) fn random(&self) -> u64 {
        let mut hasher = self.keys.build_hasher();
        hasher.write_u64(self.nonce);
        hasher.write_u64(self.next());
        hasher.finish()
    }

    /// A name for a request that came without one.
    pub(crate) fn request_id(&self) -> HeaderValue {
        let text = format!("req-{:016x}-{}", self.nonce, self.next());
        HeaderValue::from_str(&text).expect("letters, digits and dashes")
    }

    /// Leaves a valid `traceparent` as it is, and otherwise begins a trace of our own: not
    /// sampled, for nothing here exports spans, but one name for all logs of the request.
    pub(crate) fn trace(&self, headers: &mut HeaderMap) {
        if headers.get(&TRACEPARENT).is_some_and(is_traceparent) {
            return;
        }
        headers.remove(TRACESTATE);
        // Zero is no name, so one bit is always set.
        let (high, low, span) = (self.random(), self.random() | 1, self.random() | 1);
        let text = format!("00-{high:016x}{low:016x}-{span:016x}-00");
        let value = HeaderValue::from_str(&text).expect("hexadecimal digits and dashes");
        headers.insert(TRACEPARENT, value);
    }
}

/// Whether a value has the form of W3C Trace Context: version, trace, parent, flags.
fn is_traceparent(value: &HeaderValue) -> bool {
    let Ok(text) = value.to_str() else { return false };
    let mut parts = text.split('-');
    let mut part = |length: usize| {
        let part = parts.next().filter(|part| part.len() == length)?;
        let hex = part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        hex.then_some(part)
    };
    let (version, trace, parent, flags) = (part(2), part(32), part(16), part(2));
    let named = |part: Option<&str>| part.is_some_and(|part| part.bytes().any(|b| b != b'0'));
    let version = version.filter(|version| *version != "ff");
    let ends = version.is_some_and(|version| version != "00" || parts.next().is_none());
    ends && named(trace) && named(parent) && flags.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        list.iter().map(pair).collect()
    }

    #[test]
    fn what_concerns_one_connection_stays_behind() {
        let client = headers(&[
            ("host", "router"),
            ("connection", "keep-alive, X-Private"),
            ("x-private", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("expect", "100-continue"),
            ("accept-encoding", "gzip"),
            ("content-length", "3"),
            ("x-sightline-prefill", "10.0.0.1:22"),
            ("authorization", "Bearer key"),
            ("x-tenant-id", "team"),
        ]);
        let passed = of_request(&client);
        let mut names: Vec<_> = passed.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "x-tenant-id"]);
    }

    #[test]
    fn answers_keep_their_length_and_time() {
        let mut answer = headers(&[
            ("content-length", "3"),
            ("retry-after", "7"),
            ("connection", "close"),
            ("x-sightline-retryable", "1"),
            ("x-request-id", "theirs"),
        ]);
        of_response(&mut answer);
        let mut names: Vec<_> = answer.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["content-length", "retry-after"]);
    }

    #[test]
    fn traces_go_on_and_begin() {
        let names = Names::default();
        let of = |value: &'static str| {
            let mut headers = headers(&[("traceparent", value), ("tracestate", "a=b")]);
            names.trace(&mut headers);
            let value = headers.get("traceparent").expect("always one").clone();
            assert!(is_traceparent(&value), "{value:?}");
            (value.to_str().expect("ASCII").to_owned(), headers.contains_key("tracestate"))
        };
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(of(good), (good.to_owned(), true));
        for wrong in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        ] {
            let (made, state) = of(wrong);
            assert_ne!(made, wrong);
            assert!(!state, "the state belongs to the trace that was dropped");
        }
        assert_ne!(of("").0, of("").0);
        let later = "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more";
        assert_eq!(of(later).0, later, "a later version may say more");
    }

    #[test]
    fn requests_keep_sane_names() {
        let of = |value: &'static str| request_id(&headers(&[("x-request-id", value)]));
        assert_eq!(of("abc").expect("sane"), "abc");
        assert_eq!(of(""), None);
        assert_eq!(request_id(&HeaderMap::new()), None);
        let mut long = HeaderMap::new();
        long.insert(REQUEST_ID, HeaderValue::from_str(&"x".repeat(129)).expect("a value"));
        assert_eq!(request_id(&long), None);
        let names = Names::default();
        assert_ne!(names.request_id(), names.request_id());
    }
}
