//! A small S3 service on a loopback port: objects of one bucket in memory, path-style addresses,
//! GET, PUT, HEAD, DELETE and paged listings, and a look at who signed.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) const BUCKET: &str = "pages";
/// Keys in one answer to a listing: few, so that listings have several.
const LIST_KEYS: usize = 2;

type Objects = BTreeMap<String, Bytes>;

/// What the service knows and saw.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) objects: Objects,
    /// Method and whether it was a listing, in order.
    pub(crate) requests: Vec<(Method, bool)>,
    /// Answers 503 to so many requests from now on.
    pub(crate) unavailable: usize,
}

/// The service; it ends with this.
pub(crate) struct FakeS3 {
    pub(crate) endpoint: String,
    pub(crate) seen: Arc<Mutex<Seen>>,
    stop: CancellationToken,
}

impl Drop for FakeS3 {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl FakeS3 {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
        let (seen, stop) = (Arc::<Mutex<Seen>>::default(), CancellationToken::new());
        let tasks = TaskTracker::new();
        let (stopped, all) = (stop.clone(), Arc::clone(&seen));
        let connections = tasks.clone();
        tasks.spawn(stopped.clone().run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let seen = Arc::clone(&all);
                let service = service_fn(move |request| answer(Arc::clone(&seen), request));
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                let stop = stopped.clone();
                connections.spawn(async move {
                    // A client that goes away is no concern of the service.
                    drop(stop.run_until_cancelled(connection).await);
                });
            }
        }));
        Self { endpoint, seen, stop }
    }
}

async fn answer(
    seen: Arc<Mutex<Seen>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let query = parts.uri.query().unwrap_or("");
    let listing = query.contains("list-type=2");
    let mut seen = seen.lock().expect("no test panics while it holds this");
    seen.requests.push((parts.method.clone(), listing));
    if seen.unavailable > 0 {
        seen.unavailable -= 1;
        return Ok(error(StatusCode::SERVICE_UNAVAILABLE, "SlowDown"));
    }
    let signed = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
    let by = "AWS4-HMAC-SHA256 Credential=an-id/";
    if !signed.is_some_and(|text| text.starts_with(by) && text.contains("/eu-test-1/s3/")) {
        return Ok(error(StatusCode::FORBIDDEN, "InvalidAccessKeyId"));
    }
    let path = decode(parts.uri.path());
    let Some(key) = path.strip_prefix(&format!("/{BUCKET}")) else {
        return Ok(error(StatusCode::NOT_FOUND, "NoSuchBucket"));
    };
    let key = key.trim_start_matches('/').to_owned();
    Ok(match parts.method {
        Method::PUT => {
            seen.objects.insert(key, body);
            respond(StatusCode::OK, Bytes::new())
        }
        Method::GET if listing => list(&seen.objects, query),
        Method::GET | Method::HEAD => match seen.objects.get(&key) {
            Some(object) => respond(StatusCode::OK, object.clone()),
            None => error(StatusCode::NOT_FOUND, "NoSuchKey"),
        },
        Method::DELETE => {
            seen.objects.remove(&key);
            respond(StatusCode::NO_CONTENT, Bytes::new())
        }
        _ => error(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
    })
}

fn list(objects: &Objects, query: &str) -> Response<Full<Bytes>> {
    let value = |name: &str| {
        let pair = query.split('&').filter_map(|pair| pair.split_once('='));
        pair.into_iter().find(|(key, _)| *key == name).map(|(_, value)| decode(value))
    };
    assert_eq!(value("delimiter").unwrap_or_default(), "", "a recursive listing");
    let prefix = value("prefix").unwrap_or_default();
    let after = value("continuation-token").unwrap_or_default();
    let matching = objects.iter().filter(|(key, _)| key.starts_with(&prefix) && **key > after);
    let keys: Vec<_> = matching.collect();
    let shown = &keys[..keys.len().min(LIST_KEYS)];
    let mut xml = String::from("<?xml version=\"1.0\"?><ListBucketResult>");
    for (key, object) in shown {
        let (length, day) = (object.len(), object.first().copied().unwrap_or(0) % 28 + 1);
        xml += &format!(
            "<Contents><Key>{key}</Key><LastModified>2026-01-{day:02}T00:00:00.000Z</LastModified>\
             <ETag>\"e\"</ETag><Size>{length}</Size></Contents>"
        );
    }
    let more = shown.len() < keys.len();
    xml += &format!("<IsTruncated>{more}</IsTruncated><KeyCount>{}</KeyCount>", shown.len());
    if let (true, Some((last, _))) = (more, shown.last()) {
        xml += &format!("<NextContinuationToken>{last}</NextContinuationToken>");
    }
    xml += "</ListBucketResult>";
    respond(StatusCode::OK, xml.into())
}

fn respond(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    let response = Response::builder()
        .status(status)
        .header("etag", "\"e\"")
        .header("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT");
    response.body(Full::new(body)).expect("valid headers")
}

fn error(status: StatusCode, code: &str) -> Response<Full<Bytes>> {
    let xml = format!("<Error><Code>{code}</Code><Message>no</Message></Error>");
    respond(status, xml.into())
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte == b'%' {
            let digits = std::str::from_utf8(&rest[..2]).expect("ASCII");
            bytes.push(u8::from_str_radix(digits, 16).expect("hexadecimal"));
            rest = &rest[2..];
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).expect("UTF-8")
}
