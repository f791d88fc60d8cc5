//! A peer's connections, from the end of their handshake to their loss.

use super::hub::{Hub, Inlet, Port};
use super::options::DATA_CONNECTIONS_MAX;
use super::stream::Stream;
use super::wire::{Reader, Wire, WireError};
use crate::{Encoder, Failure, Message, PeerId, PeerName};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWriteExt, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Messages that are written at once.
const BATCH: usize = 64;

/// Tasks that read messages or carry frames; further connections wait, and in the end close.
const LINES_MAX: usize = 1 + DATA_CONNECTIONS_MAX;

/// For what is not written when this side ends a link, and for the peer to hear of it.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Works one peer's connections until one of them fails, the peer is silent, or everything stops.
/// All of them are closed when it returns, and the end knows.
///
/// Says why it ended. `more` are data connections: those that are there and, on the listening side,
/// those that come.
pub(super) async fn run<P: Port>(
    hub: Arc<Hub<P>>,
    name: PeerName,
    peer: PeerId,
    control: Wire,
    inlet: Inlet,
    mut more: mpsc::Receiver<Wire>,
) -> String {
    let Inlet { messages, close } = inlet;
    let Wire { stream, encoder, decoder } = control;
    let (from, to) = tokio::io::split(stream);
    let mut lines = JoinSet::new();
    lines.spawn(read(Arc::clone(&hub), peer, Reader::new(from, decoder)));
    let mut writer = JoinSet::new();
    writer.spawn(write(to, encoder, messages));
    let ended = loop {
        tokio::select! {
            Some(wire) = more.recv(), if lines.len() < LINES_MAX => {
                lines.spawn(P::frames(Arc::clone(&hub), peer, wire));
            }
            // None of them ends without the loop.
            Some(ended) = lines.join_next() => break Some(ended),
            Some(ended) = writer.join_next() => break Some(ended),
            () = close.cancelled() => break None,
        }
    };
    let failure = match &ended {
        Some(Ok(error)) => error.failure(),
        // A task that panicked.
        Some(Err(_)) => Failure::Internal,
        None if hub.stop.is_cancelled() => Failure::LocalAbort,
        None => Failure::PeerGone,
    };
    // First, so that frames which are cut off below are nobody's any more.
    hub.lost(peer, failure);
    let parting = ended.is_none();
    let reason = match ended {
        Some(Ok(error)) => error.to_string(),
        Some(Err(error)) => error.to_string(),
        None => "it is silent, or not wanted any more".to_owned(),
    };
    if hub.stop.is_cancelled() {
        tracing::debug!(peer = %name, "A link is closed.");
    } else {
        hub.refused(&name, &reason);
    }
    if parting {
        // What was said last still goes out, then the end of it; the peer answers by closing.
        let farewell = async {
            writer.join_next().await;
            lines.join_next().await;
        };
        tokio::time::timeout(LAST_WORDS, farewell).await.ok();
    }
    reason
}

async fn read<P: Port>(
    hub: Arc<Hub<P>>,
    peer: PeerId,
    mut reader: Reader<impl AsyncRead + Unpin>,
) -> WireError {
    loop {
        match reader.next().await {
            Ok(message) => {
                hub.port.on_message(peer, message);
                hub.pump();
                // It may have asked for frames again.
                hub.wake.frames.notify_waiters();
            }
            Err(error) => return error,
        }
    }
}

async fn write(
    mut to: WriteHalf<Stream>,
    mut encoder: Encoder,
    mut messages: mpsc::Receiver<Message>,
) -> WireError {
    let mut batch = Vec::with_capacity(BATCH);
    let mut bytes = Vec::new();
    loop {
        if messages.recv_many(&mut batch, BATCH).await == 0 {
            // Nothing follows. Whether the peer hears that makes no difference any more.
            to.shutdown().await.ok();
            return WireError::Closed;
        }
        for message in batch.drain(..) {
            bytes.extend_from_slice(&encoder.message(&message));
        }
        let written = async {
            to.write_all(&bytes).await?;
            to.flush().await
        };
        if let Err(error) = written.await {
            return error.into();
        }
        bytes.clear();
    }
}
