//! Connections to one worker: opened when needed, kept while they are good, driven by whoever
//! uses them.
//!
//! A connection has no task of its own. The task that waits for an answer also moves the bytes
//! of its connection, so that a chunk costs one wake-up and crosses no channel between threads.
//! Dropping an answer before its end closes the connection, which is how a worker learns that
//! nobody wants the rest.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Connections kept for later, for each worker. More are closed after use.
const IDLE_MAX: usize = 256;

/// A connection unused for so long is closed. Shorter than the time after which servers do it,
/// so that they rarely close one that is just being used.
const IDLE_TIME: Duration = Duration::from_secs(30);

/// Largest part of an answer that is read at once, and largest head.
const READ_MAX: usize = 64 * 1024;

/// Why a worker gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// It takes no connection.
    #[error("no connection: {0}")]
    Connect(std::io::Error),
    /// It did not take the connection in time.
    #[error("no connection within {} ms", .0.as_millis())]
    ConnectTimeout(Duration),
    /// It took the request and did not begin to answer in time.
    #[error("no answer within {} ms", .0.as_millis())]
    FirstByteTimeout(Duration),
    /// It closed the connection, or said something that is no answer.
    #[error("{}", cause(.0))]
    Broken(hyper::Error),
    /// It closed the connection instead of answering.
    #[error("the connection was closed before an answer")]
    Closed,
}

/// An error of the protocol with what is behind it, which alone says what happened.
pub(crate) fn cause(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

/// How long parts of an exchange may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Until the worker takes a connection.
    pub connect: Duration,
    /// From the request to the first byte of the answer.
    pub first_byte: Duration,
    /// Between two parts of an answer, while the client reads.
    pub idle: Duration,
}

/// The way to one worker.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// `HOST:PORT`, for the system and for the header `host`.
    address: Arc<str>,
    /// The newest last; that is the first to be used again.
    idle: Mutex<Vec<Idle>>,
    /// Cancelled when what is open there is given up.
    cut: CancellationToken,
}

struct Idle {
    link: Box<Link>,
    since: Instant,
}

impl fmt::Debug for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idle").field("since", &self.since).finish_non_exhaustive()
    }
}

/// A request whose body may be sent more than once.
pub(crate) type Outgoing = Request<Full<Bytes>>;

/// A connection and the handle that gives it requests.
struct Link {
    sender: SendRequest<Full<Bytes>>,
    connection: Connection<TokioIo<TcpStream>, Full<Bytes>>,
    closed: bool,
}

impl Link {
    async fn open(address: &str) -> Result<Box<Self>, NoAnswer> {
        let stream = TcpStream::connect(address).await.map_err(NoAnswer::Connect)?;
        // Requests are one write; waiting for more would only delay them.
        stream.set_nodelay(true).map_err(NoAnswer::Connect)?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(READ_MAX);
        let shaken = builder.handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(NoAnswer::Broken)?;
        Ok(Box::new(Self { sender, connection, closed: false }))
    }

    /// Moves bytes in both directions as far as they go.
    fn drive(&mut self, cx: &mut Context<'_>) -> Result<(), hyper::Error> {
        if self.closed {
            return Ok(());
        }
        match Pin::new(&mut self.connection).poll(cx) {
            Poll::Pending => Ok(()),
            Poll::Ready(ended) => {
                self.closed = true;
                ended
            }
        }
    }

    /// Whether another request may be sent.
    fn usable(&mut self) -> bool {
        // Nothing is waited for: what a later poll registers takes the place of this waker.
        let driven = self.drive(&mut Context::from_waker(Waker::noop()));
        driven.is_ok() && !self.closed && self.sender.is_ready()
    }

    async fn exchange(&mut self, request: Outgoing) -> Result<Response<Incoming>, NoAnswer> {
        let mut reply = pin!(self.sender.send_request(request));
        poll_fn(|cx| {
            // The reply is asked before and after: what the connection does may complete it.
            if let Poll::Ready(reply) = reply.as_mut().poll(cx) {
                return Poll::Ready(reply.map_err(NoAnswer::Broken));
            }
            let driven = self.drive(cx);
            match (reply.as_mut().poll(cx), driven) {
                (Poll::Ready(reply), _) => Poll::Ready(reply.map_err(NoAnswer::Broken)),
                (Poll::Pending, Err(error)) => Poll::Ready(Err(NoAnswer::Broken(error))),
                (Poll::Pending, Ok(())) if self.closed => Poll::Ready(Err(NoAnswer::Closed)),
                (Poll::Pending, Ok(())) => Poll::Pending,
            }
        })
        .await
    }
}

impl Upstream {
    /// The way to the worker at `address`, `HOST:PORT`. No connection is opened yet;
    /// `cut` ends what is open there.
    #[must_use]
    pub(crate) fn new(address: Arc<str>, cut: CancellationToken) -> Arc<Self> {
        Arc::new(Self { address, idle: Mutex::new(Vec::new()), cut })
    }

    /// Cancelled when what is open there is given up.
    pub(crate) const fn cut(&self) -> &CancellationToken {
        &self.cut
    }

    /// Connections that are kept for later.
    #[must_use]
    pub(crate) fn idle(&self) -> usize {
        self.kept().len()
    }

    /// Sends what `request` makes and waits for the head of the answer. A kept connection that
    /// turns out to be closed is replaced by a new one, once.
    ///
    /// # Errors
    /// The worker takes no connection or gives no answer, within the limits.
    pub(crate) async fn send(
        self: &Arc<Self>,
        request: impl Fn() -> Outgoing,
        patience: Patience,
    ) -> Result<Answer, NoAnswer> {
        let limit = patience.first_byte;
        // What may have begun at a worker that is gone since: it must not count as never sent.
        let mut lost = None;
        if let Some(mut link) = self.take() {
            let exchanged = timeout(limit, link.exchange(request())).await;
            match exchanged.map_err(|_| NoAnswer::FirstByteTimeout(limit))? {
                Ok(response) => return Ok(self.answer(link, response)),
                // The worker closed it while it was unused, just now. Nothing was answered.
                Err(error) => {
                    tracing::debug!(%error, "A kept connection was closed.");
                    let unsent = matches!(&error, NoAnswer::Broken(error) if error.is_canceled());
                    lost = (!unsent).then_some(error);
                }
            }
        }
        let opened = timeout(patience.connect, Link::open(&self.address)).await;
        let opened = opened.unwrap_or(Err(NoAnswer::ConnectTimeout(patience.connect)));
        let mut link = opened.map_err(|error| lost.unwrap_or(error))?;
        let exchanged = timeout(limit, link.exchange(request())).await;
        let response = exchanged.map_err(|_| NoAnswer::FirstByteTimeout(limit))??;
        Ok(self.answer(link, response))
    }

    fn answer(self: &Arc<Self>, link: Box<Link>, response: Response<Incoming>) -> Answer {
        let (head, body) = response.into_parts();
        let body = AnswerBody { body, link: Some(link), home: Arc::clone(self) };
        Answer { head, body }
    }

    /// Closes kept connections that the worker has closed or that were not used for a while.
    pub(crate) fn tidy(&self) {
        self.kept().retain_mut(|idle| idle.since.elapsed() < IDLE_TIME && idle.link.usable());
    }

    /// Closes all kept connections.
    pub(crate) fn close(&self) {
        self.kept().clear();
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<Idle>> {
        // Nothing that can panic is done while it is held.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A kept connection that is good.
    fn take(&self) -> Option<Box<Link>> {
        loop {
            let Idle { mut link, since } = self.kept().pop()?;
            if since.elapsed() < IDLE_TIME && link.usable() {
                return Some(link);
            }
        }
    }

    fn keep(&self, mut link: Box<Link>) {
        if !link.usable() {
            return;
        }
        let idle = Idle { link, since: Instant::now() };
        let mut kept = self.kept();
        if kept.len() < IDLE_MAX {
            kept.push(idle);
        }
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        // Whoever knows the length does not ask for what follows the last byte.
        if self.body.is_end_stream() {
            self.end();
        }
    }
}

/// The beginning of an answer, with the rest to come.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Status and headers.
    pub(crate) head: hyper::http::response::Parts,
    /// The rest.
    pub(crate) body: AnswerBody,
}

/// The body of an answer. Its connection is kept for the next request once the end was read, and
/// closed when this is dropped before.
pub(crate) struct AnswerBody {
    body: Incoming,
    link: Option<Box<Link>>,
    home: Arc<Upstream>,
}

impl fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerBody").field("from", &self.home.address).finish_non_exhaustive()
    }
}

impl AnswerBody {
    /// The next part.
    pub(crate) fn poll_part(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut part = Pin::new(&mut self.body).poll_frame(cx);
        if part.is_pending()
            && let Some(link) = &mut self.link
        {
            if let Err(error) = link.drive(cx) {
                // The body is told the same, where it lacks something.
                tracing::debug!(%error, "A connection ended.");
            }
            part = Pin::new(&mut self.body).poll_frame(cx);
        }
        if matches!(part, Poll::Ready(None)) {
            self.end();
        }
        part
    }

    /// The connection may serve the next request.
    fn end(&mut self) {
        if let Some(link) = self.link.take() {
            self.home.keep(link);
        }
    }

    /// How much there is, where the worker said so.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    /// Whether the whole body was read.
    pub(crate) fn is_end(&self) -> bool {
        self.body.is_end_stream()
    }

    /// Reads what is here already and keeps the connection where that is all of it.
    pub(crate) fn discard(mut self) {
        let cx = &mut Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(Ok(_))) = self.poll_part(cx) {}
    }
}
