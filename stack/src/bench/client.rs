//! The load's HTTP client: HTTP/1.1, kept-alive connections, answers read as they come.
//!
//! It opens as many connections as requests are in flight, and keeps the idle ones for a moment,
//! as clients in the field do. No TLS: a generator belongs next to the server, behind what ends it.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::drive::Target;
use super::record::{Ended, Failure, Refusal, Seen};
use super::sse::Parser;
use super::wire::{self, Chunk};
use super::workload::Ask;

/// Servers close idle connections after a few seconds; ours are younger.
const IDLE_MAX: Duration = Duration::from_secs(2);
/// A whole answer beyond this is not read further.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Of an error's body, no more is of interest.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// What a stream says at its end.
const DONE: &[u8] = b"[DONE]";

/// A connection that carries one request at a time; closed when dropped.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    idle_since: Instant,
    _driver: AbortOnDropHandle<()>,
}

/// Sends requests to one server.
pub(crate) struct Client {
    address: SocketAddr,
    /// What comes before `/v1`.
    prefix: String,
    headers: HeaderMap,
    idle: Mutex<Vec<Connection>>,
}

impl Client {
    /// A client of the server at `address`, which `host` names; nothing is connected yet.
    pub(crate) fn new(
        address: SocketAddr,
        host: HeaderValue,
        prefix: String,
        mut headers: HeaderMap,
    ) -> Self {
        headers.insert(HOST, host);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Self { address, prefix, headers, idle: Mutex::new(Vec::new()) }
    }

    /// Closes the connections that are kept: each takes one of the server's places.
    pub(crate) fn rest(&self) {
        self.idle.lock().expect("no holder panics").clear();
    }

    fn request(&self, ask: &Ask) -> Result<Request<Full<Bytes>>, Failure> {
        let mut request = Request::post(format!("{}{}", self.prefix, ask.path))
            .body(Full::new(ask.body.clone()))
            .map_err(|error| Failure::NotUnderstood(error.to_string()))?;
        *request.headers_mut() = self.headers.clone();
        Ok(request)
    }

    /// A young idle connection, if there is one.
    fn idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().expect("no holder panics");
        // The youngest is last: when it is too old, all are.
        let connection = idle.pop().filter(|found| found.idle_since.elapsed() < IDLE_MAX);
        if connection.is_none() {
            idle.clear();
        }
        connection.filter(|connection| !connection.sender.is_closed())
    }

    #[expect(clippy::disallowed_methods, reason = "the driver task is owned by the connection")]
    async fn connect(&self) -> Result<Connection, Failure> {
        let fail = |error: std::io::Error| Failure::Connect(error.to_string());
        let stream = TcpStream::connect(self.address).await.map_err(fail)?;
        stream.set_nodelay(true).map_err(fail)?;
        let (sender, driver) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
        let driver = tokio::spawn(async move {
            // An error here is also the error of the request or of its body.
            drop(driver.await);
        });
        let _driver = AbortOnDropHandle::new(driver);
        Ok(Connection { sender, idle_since: Instant::now(), _driver })
    }

    /// Sends the request; on a new connection when the idle one turns out to be closed.
    async fn send(&self, ask: &Ask) -> Result<(Connection, Response<Incoming>), Failure> {
        let mut request = self.request(ask)?;
        if let Some(mut connection) = self.idle()
            && connection.sender.ready().await.is_ok()
        {
            match connection.sender.try_send_request(request).await {
                Ok(response) => return Ok((connection, response)),
                // Not a byte was sent: the server has not seen the request.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(broken(error.error())),
                },
            }
        }
        let mut connection = self.connect().await?;
        match connection.sender.send_request(request).await {
            Ok(response) => Ok((connection, response)),
            Err(error) => Err(broken(&error)),
        }
    }

    /// The answer was read whole: the connection may carry another.
    fn keep(&self, mut connection: Connection) {
        connection.idle_since = Instant::now();
        self.idle.lock().expect("no holder panics").push(connection);
    }

    /// Reads a refusal or another error to its end.
    async fn refused(&self, connection: Connection, response: Response<Incoming>) -> Ended {
        let status = response.status().as_u16();
        let header = response.headers().get(RETRY_AFTER);
        let retry_after = header.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let body = Limited::new(response.into_body(), ERROR_BYTES_MAX).collect().await;
        let body = match body {
            Ok(body) => {
                self.keep(connection);
                body.to_bytes()
            }
            // The status is what counts.
            Err(_) => Bytes::new(),
        };
        let reason = wire::reason(&body);
        if matches!(status, 429 | 503) {
            return Ended::Refused(Refusal { status, reason, retry_after });
        }
        Ended::Failed(Failure::Status { status, reason, message: wire::message(&body) })
    }
}

fn broken(error: &hyper::Error) -> Failure {
    Failure::Broken(error.to_string())
}

/// Waits for something no longer than patience lasts.
async fn patient<F: Future>(patience: Option<Instant>, future: F) -> Option<F::Output> {
    match patience {
        None => Some(future.await),
        Some(at) => timeout_at(at, future).await.ok(),
    }
}

impl Target for Client {
    async fn exchange(&self, ask: &Ask, patience: Option<Instant>, seen: &mut Seen) -> Ended {
        let (connection, response) = match patient(patience, self.send(ask)).await {
            None => return Ended::GaveUp,
            Some(Err(failure)) => return Ended::Failed(failure),
            Some(Ok(answered)) => answered,
        };
        let status = response.status();
        seen.status = Some(status.as_u16());
        if !status.is_success() {
            return self.refused(connection, response).await;
        }
        let body = response.into_body();
        let ended = if ask.stream {
            stream(body, ask, patience, seen).await
        } else {
            whole(body, ask, patience, seen).await
        };
        match ended {
            Ok(()) => {
                self.keep(connection);
                Ended::Complete
            }
            Err(ended) => ended,
        }
    }
}

/// Reads an answer that comes at once.
async fn whole(
    body: Incoming,
    ask: &Ask,
    patience: Option<Instant>,
    seen: &mut Seen,
) -> Result<(), Ended> {
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect();
    let body = patient(patience, body).await.ok_or(Ended::GaveUp)?;
    let fail = |error: &dyn std::fmt::Display| Failure::Broken(error.to_string());
    let body = body.map_err(|error| Ended::Failed(fail(&error)))?.to_bytes();
    let chunk = Chunk::parse(&body).map_err(|error| not_understood(&error, &body))?;
    take(chunk, ask, seen)
}

fn not_understood(error: &serde_json::Error, data: &[u8]) -> Ended {
    let start = String::from_utf8_lossy(&data[..data.len().min(80)]).into_owned();
    Ended::Failed(Failure::NotUnderstood(format!("{error} in {start:?}")))
}

fn take(chunk: Chunk<'_>, ask: &Ask, seen: &mut Seen) -> Result<(), Ended> {
    if let Some(error) = &chunk.error {
        let reason = wire::error_reason(error);
        return Err(Ended::Failed(Failure::Stream { reason }));
    }
    if chunk.usage.is_some() {
        seen.usage = chunk.usage;
    }
    if ask.keep_text {
        seen.text.push_str(chunk.text());
    }
    Ok(())
}

/// Reads a stream of events to its end, or until the client leaves.
async fn stream(
    mut body: Incoming,
    ask: &Ask,
    patience: Option<Instant>,
    seen: &mut Seen,
) -> Result<(), Ended> {
    let mut parser = Parser::default();
    let mut reading = Reading { ask, seen, now: Instant::now(), done: false, ended: None };
    loop {
        let waits = patience.filter(|_| reading.seen.first.is_none());
        let frame = patient(waits, body.frame()).await.ok_or(Ended::GaveUp)?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| Ended::Failed(broken(&error)))?;
        let Some(data) = frame.data_ref() else { continue };
        reading.now = Instant::now();
        let fed = parser.feed(data, |event| reading.event(event));
        reading.check(fed.map(|_| ()))?;
    }
    let fed = parser.finish(|event| reading.event(event));
    reading.check(fed)?;
    if reading.done { Ok(()) } else { Err(Ended::Failed(Failure::Cut)) }
}

/// What happens with the events of a stream.
struct Reading<'a> {
    ask: &'a Ask,
    seen: &'a mut Seen,
    /// When the piece at hand came.
    now: Instant,
    /// The stream said that it is over.
    done: bool,
    ended: Option<Ended>,
}

impl Reading<'_> {
    fn event(&mut self, data: &[u8]) -> ControlFlow<()> {
        if data == DONE {
            self.done = true;
            return ControlFlow::Continue(());
        }
        match self.chunk(data) {
            Ok(()) => ControlFlow::Continue(()),
            Err(ended) => {
                self.ended = Some(ended);
                ControlFlow::Break(())
            }
        }
    }

    fn chunk(&mut self, data: &[u8]) -> Result<(), Ended> {
        let chunk = Chunk::parse(data).map_err(|error| not_understood(&error, data))?;
        let output = chunk.has_output();
        take(chunk, self.ask, self.seen)?;
        if output {
            self.seen.event(self.now);
            if self.ask.leave_after.is_some_and(|events| self.seen.events >= events) {
                return Err(Ended::Left);
            }
        }
        Ok(())
    }

    fn check(&mut self, fed: Result<(), super::sse::TooLong>) -> Result<(), Ended> {
        fed.map_err(|error| Ended::Failed(Failure::NotUnderstood(error.to_string())))?;
        self.ended.take().map_or(Ok(()), Err)
    }
}
