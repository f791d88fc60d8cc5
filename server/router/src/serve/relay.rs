//! An answer on its way from a worker to a client, as it comes.
//!
//! Bytes are passed on where they lie; what is learnt about them goes to a [`Follower`]. Nothing is
//! read from the worker that the client has not room for. A stream of events that cannot go on ends
//! with an event that says why; any other answer ends with its connection.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use protocol::ApiError;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::serve::sse;
use crate::serve::upstream::{AnswerBody, cause};

/// How the passing on of an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// All of it was passed on.
    Complete,
    /// The worker broke it off.
    Cut(String),
    /// The worker sent nothing for too long.
    Idle(Duration),
    /// This router stops.
    Draining,
    /// The client left.
    ClientGone,
}

/// Learns what passes.
pub(crate) trait Follower: Send + Unpin {
    /// A part of the answer goes to the client now.
    fn part(&mut self, part: &[u8]);
    /// Nothing more comes; called once.
    fn end(&mut self, end: End);
    /// What the client of a broken stream is told.
    fn explain(&self, end: &End) -> ApiError;
}

/// An answer that could not be passed on whole.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Broken(String);

/// The body of an answer, for a client.
pub(crate) struct Relay<F: Follower> {
    body: AnswerBody,
    /// Read before the head was passed on.
    first: Option<Bytes>,
    follower: F,
    /// Whether it is a stream of events.
    events: bool,
    /// Whether what was passed on ends where an event ends.
    boundary: bool,
    /// Whether the stream said that it is complete.
    done: bool,
    ended: bool,
    idle: Duration,
    /// Since when nothing came that the client has room for.
    waiting: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<F: Follower> Relay<F> {
    /// Passes on `first`, then the rest of `body`. `cut` ends it.
    pub(crate) fn new(
        body: AnswerBody,
        first: Option<Bytes>,
        follower: F,
        events: bool,
        idle: Duration,
        cut: CancellationToken,
    ) -> Self {
        let cut = Box::pin(cut.cancelled_owned());
        let (waiting, timer) = (None, None);
        let (boundary, done, ended) = (true, false, false);
        Self { body, first, follower, events, boundary, done, ended, idle, waiting, timer, cut }
    }

    fn finish(&mut self, end: End) {
        if !self.ended {
            self.ended = true;
            self.follower.end(end);
        }
    }

    /// `part` is passed on now.
    fn pass(&mut self, part: Bytes) -> Frame<Bytes> {
        self.waiting = None;
        self.follower.part(&part);
        if self.events {
            self.boundary = sse::is_boundary(&part);
            self.done = sse::is_done(&part);
        } else if self.body.is_end() {
            // Whoever knows the length does not ask for what follows the last byte.
            self.finish(End::Complete);
        }
        Frame::data(part)
    }

    /// Why it cannot go on, while nothing comes.
    fn poll_limits(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        if self.cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready(End::Draining);
        }
        let idle = self.idle;
        let since = *self.waiting.get_or_insert_with(Instant::now);
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(idle)));
        // Set anew only when it runs out, so that a part costs no timer.
        while timer.as_mut().poll(cx).is_ready() {
            let left = idle.saturating_sub(since.elapsed());
            if left.is_zero() {
                return Poll::Ready(End::Idle(idle));
            }
            timer.as_mut().reset(Instant::now() + left);
        }
        Poll::Pending
    }

    /// The last thing a client gets of an answer that cannot go on.
    fn broken(&mut self, end: End) -> Option<Result<Frame<Bytes>, Broken>> {
        if self.done {
            self.finish(End::Complete);
            return None;
        }
        let error = self.follower.explain(&end);
        self.finish(end);
        if self.events {
            let event = sse::error_event(&error.body(), self.boundary);
            Some(Ok(Frame::data(Bytes::from(event))))
        } else {
            Some(Err(Broken(error.message)))
        }
    }
}

impl<F: Follower> Body for Relay<F> {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(Ok(this.pass(first))));
        }
        let end = match this.body.poll_part(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let frame = match frame.into_data() {
                    Ok(part) => this.pass(part),
                    Err(trailers) => trailers,
                };
                return Poll::Ready(Some(Ok(frame)));
            }
            Poll::Ready(None) => {
                this.finish(End::Complete);
                return Poll::Ready(None);
            }
            Poll::Ready(Some(Err(error))) => End::Cut(cause(&error)),
            Poll::Pending => match this.poll_limits(cx) {
                Poll::Ready(end) => end,
                Poll::Pending => return Poll::Pending,
            },
        };
        Poll::Ready(this.broken(end))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.body.size_hint();
        match (self.events, rest.exact(), &self.first) {
            // An event about an error may follow.
            (true, ..) | (false, None, _) => SizeHint::default(),
            (false, Some(rest), first) => {
                SizeHint::with_exact(rest + first.as_ref().map_or(0, |first| first.len() as u64))
            }
        }
    }
}

impl<F: Follower> Drop for Relay<F> {
    fn drop(&mut self) {
        self.finish(End::ClientGone);
    }
}

/// Reads the first part of a body; `None` for an empty one.
pub(crate) async fn first_part(body: &mut AnswerBody) -> Result<Option<Bytes>, hyper::Error> {
    loop {
        let part = std::future::poll_fn(|cx| body.poll_part(cx)).await;
        match part.transpose()?.map(Frame::into_data) {
            None => return Ok(None),
            Some(Ok(part)) if !part.is_empty() => return Ok(Some(part)),
            Some(_) => {}
        }
    }
}
