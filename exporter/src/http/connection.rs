//! One connection: HTTP/1.1 over a stream that gives up on clients that do not read.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

use super::answer::answer;
use super::{Door, Peer};
use crate::slot::Stop;

/// How long a connection may lie open between requests: longer than any scrape interval in use.
const IDLE: Duration = Duration::from_secs(120);

/// A request has no body here; its head fits in this.
const HEAD_BYTES: usize = 16 << 10;

/// What a connection is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// A request, or a part of its head, may come.
    Reading,
    /// One came; the answer is being found.
    Asked,
    /// It was found; not all of it has left.
    Answering,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Held until the answer has left.
    _permit: Option<OwnedSemaphorePermit>,
}

/// What is known of a connection beside its stream.
#[derive(Debug)]
pub(super) struct Link {
    state: Mutex<State>,
    /// Makes room for another.
    pub(super) evicted: CancellationToken,
}

impl Default for Link {
    fn default() -> Self {
        let state = Mutex::new(State { phase: Phase::Reading, _permit: None });
        Self { state, evicted: CancellationToken::new() }
    }
}

impl Link {
    /// Whether nobody waits for an answer.
    pub(super) fn is_idle(&self) -> bool {
        self.phase() == Phase::Reading
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn phase(&self) -> Phase {
        self.state().phase
    }

    pub(super) fn enter(&self, phase: Phase, permit: Option<OwnedSemaphorePermit>) {
        *self.state() = State { phase, _permit: permit };
    }
}

/// Answers what comes over `stream`, until the client leaves, is too slow or is evicted. After
/// `stop`, and when the connection is `outdated`, an answer on its way is the last.
pub(super) async fn serve<S>(
    stream: S,
    door: Arc<Door>,
    peer: Peer,
    link: Arc<Link>,
    stop: Stop,
    outdated: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let timeout = door.timeout;
    let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
        let (door, link) = (Arc::clone(&door), Arc::clone(&link));
        async move {
            link.enter(Phase::Asked, None);
            let (answer, permit) = answer(&door, peer, &request).await;
            link.enter(Phase::Answering, permit);
            Ok::<_, io::Error>(answer)
        }
    });
    let paced = Paced { stream, link: Arc::clone(&link), timeout, clock: None };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(paced), service);
    tokio::pin!(connection);
    let mut last = false;
    let ended = loop {
        tokio::select! {
            ended = connection.as_mut() => break ended,
            () = link.evicted.cancelled() => break Ok(()),
            () = stop.stopped(), if !last => {}
            () = outdated.cancelled(), if !last => {}
        }
        connection.as_mut().graceful_shutdown();
        last = true;
    };
    link.enter(Phase::Reading, None);
    if let Err(error) = ended {
        tracing::debug!(peer = %peer.address, %error, "A connection ended early.");
    }
}

/// A stream whose client has `timeout` to send the rest of a head it has begun, and to take in an
/// answer.
struct Paced<S> {
    stream: S,
    link: Arc<Link>,
    timeout: Duration,
    /// Runs while it is the client's turn; for the phase that it was started in.
    clock: Option<(Phase, Pin<Box<Sleep>>)>,
}

impl<S: Unpin> Paced<S> {
    /// The clock of this phase; starts one where none runs.
    fn clock(&mut self, phase: Phase) -> &mut Pin<Box<Sleep>> {
        let timeout = self.timeout;
        if self.clock.as_ref().is_some_and(|(of, _)| *of != phase) {
            self.clock = None;
        }
        let new = || (phase, Box::pin(tokio::time::sleep(timeout)));
        &mut self.clock.get_or_insert_with(new).1
    }

    /// Pending until the client moves or its time is up.
    fn wait<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let phase = self.link.phase();
        self.clock(phase).as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let reading = self.link.phase() == Phase::Reading;
        match read {
            Poll::Ready(Ok(())) if reading && buffer.filled().len() > before => {
                self.clock(Phase::Reading);
                read
            }
            Poll::Pending if reading && self.clock.is_some() => self.wait(context),
            Poll::Ready(_) | Poll::Pending => read,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(context, bytes) {
            Poll::Pending => self.wait(context),
            ready @ Poll::Ready(_) => ready,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Pending => self.wait(context),
            Poll::Ready(flushed) => {
                if self.link.phase() == Phase::Answering {
                    self.link.enter(Phase::Reading, None);
                    self.clock = None;
                }
                Poll::Ready(flushed)
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_shutdown(context) {
            Poll::Pending => self.wait(context),
            ready @ Poll::Ready(_) => ready,
        }
    }
}

#[cfg(test)]
mod tests;
