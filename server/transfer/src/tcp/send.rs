//! Prefill: frames from pages into one data connection.

use super::hub::Hub;
use super::receive::IDLE;
use super::stream::Stream;
use super::wire::{Wire, WireError};
use crate::{FrameBytes, FrameJob, PeerId, PrefillPort};
use std::io::{self, IoSlice};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

/// Small frames are written together up to this many bytes, so that a layer of a short prompt is
/// not a system call per page.
const TOGETHER_BYTES: usize = 256 << 10;
/// Frames that are written together.
const TOGETHER: usize = 8;
/// Pieces that are handed to the system at once; it takes no more than 1024.
const PIECES: usize = 512;

/// Sends until the connection fails.
pub(super) async fn send(hub: Arc<Hub<PrefillPort>>, peer: PeerId, wire: Wire) -> WireError {
    let mut stream = wire.stream;
    loop {
        let mut batch = match next(&hub, peer, &mut stream).await {
            Ok(batch) => batch,
            Err(error) => return error,
        };
        let written = if batch.is_empty() {
            write_idle(&mut stream).await
        } else {
            write(&mut stream, &batch).await
        };
        if let Err(error) = written {
            return error.into();
        }
        for held in &mut batch {
            held.sent = true;
        }
        // Dropped together: one thing for the end to look at after the other, and no write between.
    }
}

/// Waits for something to send; nothing, where that takes long.
async fn next<'a>(
    hub: &'a Arc<Hub<PrefillPort>>,
    peer: PeerId,
    stream: &mut Stream,
) -> Result<Vec<Held<'a>>, WireError> {
    // Well before the other side, whose limits are the same, thinks that the connection is dead.
    let idle_at = Instant::now() + hub.limits.heartbeat / 2;
    loop {
        let ready = hub.wake.frames.notified();
        tokio::pin!(ready);
        // What becomes ready after the look below is not missed.
        ready.as_mut().enable();
        let batch = take(hub, peer);
        if !batch.is_empty() {
            return Ok(batch);
        }
        let mut unexpected = [0; 1];
        tokio::select! {
            () = ready => {}
            () = tokio::time::sleep_until(idle_at) => return Ok(batch),
            read = stream.read(&mut unexpected) => return Err(match read {
                Ok(0) => WireError::Closed,
                Ok(_) => WireError::Misplaced("something came on a connection for frames"),
                Err(error) => error.into(),
            }),
        }
    }
}

fn take(hub: &Arc<Hub<PrefillPort>>, peer: PeerId) -> Vec<Held<'_>> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    while batch.len() < TOGETHER && bytes < TOGETHER_BYTES {
        let Some(job) = hub.port.next_frame(peer) else { break };
        bytes += job.bytes();
        let loaded = job.load(&*hub.pages);
        batch.push(Held { hub, job: Some(job), loaded: Some(loaded), sent: false });
    }
    // Looking for frames may have told how far a transfer has come.
    hub.pump();
    batch
}

async fn write_idle(stream: &mut Stream) -> io::Result<()> {
    stream.write_all(&IDLE.encode()).await?;
    stream.flush().await
}

async fn write(stream: &mut Stream, batch: &[Held<'_>]) -> io::Result<()> {
    let mut pieces = Vec::new();
    for loaded in batch.iter().filter_map(|held| held.loaded.as_ref()) {
        pieces.push(&loaded.head[..]);
        pieces.extend(loaded.payload.iter().map(|bytes| &bytes[..]));
    }
    write_pieces(stream, &pieces).await?;
    stream.flush().await
}

/// Writes every byte of every piece.
async fn write_pieces(to: &mut (impl AsyncWrite + Unpin), pieces: &[&[u8]]) -> io::Result<()> {
    for some in pieces.chunks(PIECES) {
        let mut slices: Vec<IoSlice<'_>> = some.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut slices = &mut slices[..];
        // Empty ones at the front are skipped.
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            let count = to.write_vectored(slices).await?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut slices, count);
        }
    }
    Ok(())
}

/// A frame that is being sent; its pages stay until this is dropped.
struct Held<'a> {
    hub: &'a Arc<Hub<PrefillPort>>,
    job: Option<FrameJob>,
    loaded: Option<FrameBytes>,
    sent: bool,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.loaded = None;
        if let Some(job) = self.job.take() {
            self.hub.port.with(|end, now| end.frame_ends(now, job, self.sent));
            self.hub.pump();
            self.hub.wake.frames.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    /// Takes at most so many bytes at a time.
    struct Narrow(usize, Vec<u8>);

    impl AsyncWrite for Narrow {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            from: &[u8],
        ) -> Poll<io::Result<usize>> {
            let this = self.get_mut();
            let count = from.len().min(this.0);
            this.1.extend_from_slice(&from[..count]);
            Poll::Ready(Ok(count))
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            from: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let this = self.get_mut();
            let before = this.1.len();
            for slice in from {
                let left = this.0 - (this.1.len() - before);
                this.1.extend_from_slice(&slice[..slice.len().min(left)]);
            }
            Poll::Ready(Ok(this.1.len() - before))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn every_byte_is_written_once_however_little_the_socket_takes() {
        let pieces: Vec<Vec<u8>> = (0..1300_usize).map(|at| vec![at as u8; at % 5]).collect();
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        for width in [1, 3, 64, 10_000] {
            let mut narrow = Narrow(width, Vec::new());
            write_pieces(&mut narrow, &pieces).await.unwrap();
            assert!(narrow.1 == pieces.concat(), "{width} bytes at a time");
        }
        assert!(write_pieces(&mut Narrow(0, Vec::new()), &[b"x"]).await.is_err());
        write_pieces(&mut Narrow(0, Vec::new()), &[b"", b""]).await.unwrap();
    }
}
