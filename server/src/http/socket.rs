//! A socket that the protocol reads and writes while somebody else watches for its other end.
//!
//! hyper stops reading while it answers a client that has sent more than the request in hand (the
//! next request, a stray line break), so it would compute a whole answer for a client that left.
//! And it would wait for ever for one that stays and does not read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// Between two looks at a socket that has something to read: there is no event to wait for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Closed when it and all its watchers are dropped.
#[derive(Debug)]
pub(super) struct Socket {
    stream: Arc<TcpStream>,
    /// How long a write may wait for the client to read something.
    patience: Duration,
    /// Runs while a write waits.
    stall: Option<Pin<Box<Sleep>>>,
}

/// Watches for the end of a socket's client.
#[derive(Debug, Clone)]
pub(super) struct Watcher(Arc<TcpStream>);

impl Watcher {
    /// Resolves once the client has closed its side, whatever it had sent before; unless that is
    /// more than the system buffers, which keeps the end of it away.
    pub(super) async fn left(&self) {
        loop {
            match self.0.ready(Interest::READABLE).await {
                Ok(ready) if !ready.is_read_closed() => tokio::time::sleep(LOOK_EVERY).await,
                Ok(_) | Err(_) => return,
            }
        }
    }
}

impl Socket {
    /// A socket whose writes fail once the client has read nothing for `patience`.
    pub(super) fn new(stream: TcpStream, patience: Duration) -> Self {
        Self { stream: Arc::new(stream), patience, stall: None }
    }

    /// Somebody who watches its other end.
    pub(super) fn watcher(&self) -> Watcher {
        Watcher(Arc::clone(&self.stream))
    }

    /// `write` as soon as the socket takes something.
    fn poll_write_with(
        &mut self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.stream.poll_write_ready(cx) {
                Poll::Ready(ready) => ready?,
                Poll::Pending => return self.poll_stalled(cx),
            }
            match write(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => {
                    self.stall = None;
                    return Poll::Ready(written);
                }
            }
        }
    }

    /// An error once the client has read nothing for too long.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let patience = self.patience;
        let stall = self.stall.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(stall.as_mut().poll(cx));
        self.stall = None;
        let seconds = patience.as_secs_f64();
        let message = format!("the client has read nothing for {seconds} s (--write-timeout)");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.stream.try_read(buffer.initialize_unfilled()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|read| buffer.advance(read))),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |stream| stream.try_write_vectored(parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The connection is dropped next, which closes both directions.
        Poll::Ready(Ok(()))
    }
}
