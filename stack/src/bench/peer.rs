//! The server under test, asked before and after the load: its models, how it tokenizes, what it
//! counts.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, StatusCode};
use serde_json::{Value, json};
use tokio::time::{Instant, interval};

use super::compare::Counters;
use super::text::{FILLER, Source, Vocabulary, WORDS};
use super::wire::{self, Chunk};
use super::workload::Endpoint;
use crate::http;

/// For a question that computes nothing.
const ASK_MAX: Duration = Duration::from_secs(10);
/// For a request of one token that measures the tokenizer.
const PROBE_MAX: Duration = Duration::from_secs(120);
const BYTES_MAX: usize = 64 << 20;
/// A word is counted this often at once, so that what comes before a text weighs nothing.
const REPEATS: usize = 8;
/// Words of the two requests that measure a server without `/tokenize`.
const PROBE_WORDS: [u64; 2] = [16, 96];
/// After the load, the server may need this long to notice who left.
const SETTLE_MAX: Duration = Duration::from_secs(10);
const SETTLE_EVERY: Duration = Duration::from_millis(50);

/// An address such as `http://127.0.0.1:8000/prefix`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    /// Host and port, as the Host header names them.
    pub(crate) authority: String,
    /// Path without a slash at its end; empty for none.
    pub(crate) path: String,
}

impl BaseUrl {
    /// The same without a last `/v1`, which many write because other clients want it.
    pub(crate) fn without_version(mut self) -> Self {
        if let Some(shorter) = self.path.strip_suffix("/v1") {
            self.path.truncate(shorter.len());
        }
        self
    }
}

impl std::str::FromStr for BaseUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rest = match text.split_once("://") {
            Some(("http", rest)) => rest,
            Some(("https", _)) => {
                return Err("TLS is not spoken; name the server's own http:// address".to_owned());
            }
            Some((scheme, _)) => {
                return Err(format!("no scheme {scheme:?}; write http://HOST:PORT"));
            }
            None => text,
        };
        let (host, path) = rest.split_once('/').map_or((rest, ""), |(host, path)| (host, path));
        let valid = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
        if host.is_empty() || !host.chars().all(valid) {
            return Err(format!("{text:?} names no host; write http://HOST:PORT"));
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let authority = if has_port { host.to_owned() } else { format!("{host}:80") };
        let path = path.trim_end_matches('/');
        let path = if path.is_empty() { String::new() } else { format!("/{path}") };
        Ok(Self { authority, path })
    }
}

impl std::fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

/// Why a server cannot be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    #[error("{url}: no address: {source}")]
    Resolve { url: String, source: std::io::Error },
    #[error("{url} does not answer: {reason}")]
    Silent { url: String, reason: String },
    #[error("{url}/v1/models answered {status}: {message}")]
    Models { url: String, status: StatusCode, message: String },
    #[error("{url} serves no model; name one with --model")]
    NoModel { url: String },
    #[error("a header is not valid: {0}")]
    Header(String),
}

/// A server and what every request to it carries.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) url: BaseUrl,
    pub(crate) headers: HeaderMap,
}

/// `NAME: VALUE` pairs and an API key as headers.
pub(crate) fn headers(pairs: &[String], key: Option<&str>) -> Result<HeaderMap, PeerError> {
    let bad = |text: &str| PeerError::Header(format!("{text:?}; write NAME: VALUE"));
    let mut headers = HeaderMap::new();
    if let Some(key) = key.filter(|key| !key.is_empty()) {
        let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
            .map_err(|_| PeerError::Header("the API key holds unprintable letters".to_owned()))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    for pair in pairs {
        let (name, value) = pair.split_once(':').ok_or_else(|| bad(pair))?;
        let name: HeaderName = name.trim().parse().map_err(|_| bad(pair))?;
        let value: HeaderValue = value.trim().parse().map_err(|_| bad(pair))?;
        headers.append(name, value);
    }
    Ok(headers)
}

impl Peer {
    /// The address to connect to.
    pub(crate) async fn address(&self) -> Result<SocketAddr, PeerError> {
        let fail = |source| PeerError::Resolve { url: self.url.to_string(), source };
        let mut found = tokio::net::lookup_host(&self.url.authority).await.map_err(fail)?;
        let none = || std::io::Error::other("the name has no address");
        found.next().ok_or_else(|| fail(none()))
    }

    fn with_headers(&self, mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
        for (name, value) in &self.headers {
            request.headers_mut().append(name, value.clone());
        }
        request
    }

    async fn get(&self, path: &str) -> Result<(StatusCode, Bytes), http::ClientError> {
        let request = http::get(&self.url.authority, &format!("{}{path}", self.url.path))?;
        http::fetch(&self.url.authority, self.with_headers(request), BYTES_MAX, ASK_MAX).await
    }

    /// A POST whose answer is of status 200.
    async fn post(&self, path: &str, body: &Value, limit: Duration) -> Option<Bytes> {
        let (address, path) = (&self.url.authority, format!("{}{path}", self.url.path));
        let request = http::post(address, &path, body.to_string()).ok()?;
        let answer = http::fetch(address, self.with_headers(request), BYTES_MAX, limit).await;
        answer.ok().filter(|(status, _)| *status == StatusCode::OK).map(|(_, body)| body)
    }

    /// The first model that is served.
    pub(crate) async fn model(&self) -> Result<String, PeerError> {
        let url = self.url.to_string();
        let (status, body) = self
            .get("/v1/models")
            .await
            .map_err(|error| PeerError::Silent { url: url.clone(), reason: error.to_string() })?;
        if status != StatusCode::OK {
            return Err(PeerError::Models { url, status, message: wire::message(&body) });
        }
        let models: Value = serde_json::from_slice(&body).unwrap_or_default();
        let first = models["data"][0]["id"].as_str().map(str::to_owned);
        first.ok_or(PeerError::NoModel { url })
    }

    /// What the words of prompts cost on this server.
    pub(crate) async fn vocabulary(&self, model: &str, endpoint: Endpoint) -> Vocabulary {
        if let Some(measured) = self.tokenized(model, endpoint).await {
            return measured;
        }
        let told = self.told(model, endpoint).await;
        told.unwrap_or_else(|| Vocabulary::average(1.0, 0, Source::Guess))
    }

    /// Word by word.
    async fn tokenized(&self, model: &str, endpoint: Endpoint) -> Option<Vocabulary> {
        let mut costs = [0; WORDS.len()];
        for (cost, word) in costs.iter_mut().zip(WORDS) {
            *cost = self.cost(model, &format!(" {word}")).await?;
        }
        let filler = self.cost(model, FILLER).await?;
        let vocabulary = Vocabulary::measured(costs, filler, 0);
        // A longer text shows what the template, or the beginning of a sequence, adds.
        let mut text = String::new();
        let tokens = 64;
        vocabulary.write(&mut crate::dice::Dice::new(0), tokens, &mut text);
        let question = match endpoint {
            Endpoint::Chat => json!({
                "model": model,
                "messages": [{"role": "user", "content": text}],
                "add_generation_prompt": true,
            }),
            Endpoint::Completions => {
                json!({"model": model, "prompt": text, "content": text,
                    "add_special_tokens": true, "add_special": true})
            }
        };
        // Servers that tokenize no messages leave the template to the usage of answers.
        let whole = self.count(&question).await.unwrap_or(tokens);
        Some(vocabulary.with_overhead(whole.saturating_sub(tokens)))
    }

    async fn cost(&self, model: &str, word: &str) -> Option<u64> {
        let text = word.repeat(REPEATS);
        let question = json!({"model": model, "prompt": text, "content": text,
            "add_special_tokens": false, "add_special": false});
        let tokens = self.count(&question).await?;
        Some((tokens as f64 / REPEATS as f64).round() as u64)
    }

    /// Tokens of a question to `/tokenize`.
    async fn count(&self, question: &Value) -> Option<u64> {
        let body = self.post("/tokenize", question, ASK_MAX).await?;
        let answer: Value = serde_json::from_slice(&body).ok()?;
        let listed = || answer["tokens"].as_array().map(|tokens| tokens.len() as u64);
        answer["count"].as_u64().or_else(listed)
    }

    /// From what two requests for one token were charged.
    async fn told(&self, model: &str, endpoint: Endpoint) -> Option<Vocabulary> {
        let even = Vocabulary::average(1.0, 0, Source::Guess);
        let mut told = [0; PROBE_WORDS.len()];
        for (tokens, words) in told.iter_mut().zip(PROBE_WORDS) {
            let mut text = String::new();
            even.write(&mut crate::dice::Dice::new(words), words, &mut text);
            let mut body = json!({"model": model, "max_tokens": 1});
            match endpoint {
                Endpoint::Chat => body["messages"] = json!([{"role": "user", "content": text}]),
                Endpoint::Completions => body["prompt"] = Value::from(text),
            }
            let answer = self.post(endpoint.path(), &body, PROBE_MAX).await?;
            *tokens = Chunk::parse(&answer).ok()?.usage?.prompt_tokens;
        }
        Vocabulary::from_usage((PROBE_WORDS[0], told[0]), (PROBE_WORDS[1], told[1]))
    }
}

/// Where a server counts.
#[derive(Debug, Clone)]
pub(crate) struct Meters {
    pub(crate) peer: Peer,
    /// Pages of metrics, where they are not below the base URL.
    pub(crate) urls: Vec<BaseUrl>,
}

impl Meters {
    /// The counters now; else why there are none.
    pub(crate) async fn read(&self) -> Result<Counters, String> {
        let mut pages = Vec::new();
        let other = |url: &BaseUrl| {
            let path = if url.path.is_empty() { "/metrics" } else { "" };
            (Peer { url: url.clone(), headers: HeaderMap::new() }, path)
        };
        let from: Vec<(Peer, &str)> = if self.urls.is_empty() {
            vec![(self.peer.clone(), "/metrics")]
        } else {
            self.urls.iter().map(other).collect()
        };
        for (peer, path) in from {
            let url = format!("{}{path}", peer.url);
            let answer = peer.get(path).await.map_err(|error| format!("{url}: {error}"))?;
            let (status, body) = answer;
            if status != StatusCode::OK {
                return Err(format!("{url} answered {status}"));
            }
            let text = String::from_utf8(body.to_vec()).map_err(|_| format!("{url}: no text"))?;
            pages.push(text);
        }
        match Counters::read(&pages) {
            Ok(Some(counters)) => Ok(counters),
            Ok(None) => Err("the server has metrics, but not Sightline's counters".to_owned()),
            Err(error) => Err(format!("the server's metrics cannot be read: {error}")),
        }
    }

    /// The counters once nothing waits or runs any more, or after a bounded time.
    pub(crate) async fn settled(&self) -> Result<Counters, String> {
        let start = Instant::now();
        let mut pause = interval(SETTLE_EVERY);
        loop {
            pause.tick().await;
            let counters = self.read().await?;
            if counters.busy == 0.0 || start.elapsed() > SETTLE_MAX {
                return Ok(counters);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (text, authority, path) in [
            ("http://127.0.0.1:8000", "127.0.0.1:8000", ""),
            ("http://127.0.0.1:8000/", "127.0.0.1:8000", ""),
            ("localhost:8000", "localhost:8000", ""),
            ("http://[::1]:80/a/b/", "[::1]:80", "/a/b"),
            ("http://[::1]", "[::1]:80", ""),
            ("http://host", "host:80", ""),
        ] {
            let url: BaseUrl = text.parse().expect(text);
            assert_eq!((url.authority.as_str(), url.path.as_str()), (authority, path), "{text}");
        }
        let bare: BaseUrl = "http://h:1/api/v1/".parse().expect("valid");
        assert_eq!(bare.without_version().path, "/api");
        for (text, reason) in [
            ("https://x:1", "TLS"),
            ("ftp://x", "http://HOST:PORT"),
            ("http://", "names no host"),
            ("http://a b", "names no host"),
        ] {
            let error = text.parse::<BaseUrl>().expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn headers_are_read_and_the_key_is_kept_secret() {
        let made = headers(&["X-Tenant-Id: a:b".to_owned()], Some("s3cret")).expect("valid");
        assert_eq!(made["x-tenant-id"], "a:b");
        assert_eq!(made[AUTHORIZATION], "Bearer s3cret");
        assert!(!format!("{made:?}").contains("s3cret"));
        assert!(headers(&["no colon".to_owned()], None).is_err());
        assert!(headers(&["bad name: x".to_owned()], None).is_err());
        assert!(headers(&[], Some("")).expect("no key").is_empty());
    }
}
