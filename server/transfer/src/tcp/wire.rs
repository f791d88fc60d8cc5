//! Messages on one connection, and the handshake at its beginning.

use super::stream::Stream;
use crate::{
    DecodeError, Decoder, Dial, DialStep, Encoder, Failure, Greet, GreetStep, HandshakeError, Item,
    Message, Random, Ready, Refused, Terms,
};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

/// Read at a time, at most.
const READ_BYTES: usize = 16 << 10;

/// Why a connection is of no more use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    /// The system's reason, or that of TLS.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The other side closed it.
    #[error("the peer closed the connection")]
    Closed,
    /// What came is nothing we know.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The two workers do not fit, or one does not trust the other.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The other side did not do its part in time.
    #[error("the peer did not finish the handshake in time")]
    Late,
    /// The handshake of TLS failed.
    #[error("TLS: {0}")]
    Tls(io::Error),
    /// Too many others came since.
    #[error("more than {0} connections were in their handshake at once; this was the oldest")]
    Crowded(usize),
    /// Refused, for a reason that has nothing to do with who it is.
    #[error("{0}")]
    TurnedAway(String),
    /// Nothing came on a connection for frames, not even a sign that the sender has none.
    #[error("a connection for KV was silent for {0:?}")]
    Silent(Duration),
    /// A frame where only messages go, or the other way round.
    #[error("{0}")]
    Misplaced(&'static str),
}

impl WireError {
    /// What transfers fail with that were on this connection.
    pub(crate) fn failure(&self) -> Failure {
        match self {
            Self::Io(_) | Self::Closed | Self::Silent(_) => Failure::PeerGone,
            Self::Decode(error) if error.is_corruption() => Failure::Checksum,
            Self::Decode(_) | Self::Misplaced(_) => Failure::Protocol,
            Self::Handshake(_)
            | Self::Late
            | Self::Tls(_)
            | Self::Crowded(_)
            | Self::TurnedAway(_) => Failure::Connect,
        }
    }
}

/// A connection with the state of its two directions.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) stream: Stream,
    pub(crate) encoder: Encoder,
    pub(crate) decoder: Decoder,
}

impl Wire {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream, encoder: Encoder::new(), decoder: Decoder::new() }
    }

    async fn send(&mut self, message: &Message) -> io::Result<()> {
        let bytes = self.encoder.message(message);
        self.stream.write_all(&bytes).await?;
        self.stream.flush().await
    }

    async fn receive(&mut self) -> Result<Message, WireError> {
        // Small: the messages of a handshake are, and the other side waits for each answer.
        next_message(&mut self.stream, &mut self.decoder, &mut [0; 1024]).await
    }

    /// The listener's part, up to the last message, which the caller sends with
    /// [`ready`](Self::ready) or replaces by a refusal. The peer is told why where it does not fit.
    pub(crate) async fn greet(
        &mut self,
        terms: &Terms,
        rooms_max: u32,
        random: &mut dyn Random,
    ) -> Result<Guest, WireError> {
        let mut greet = Greet::new(terms, rooms_max);
        loop {
            let message = self.receive().await?;
            match greet.on_message(message, random) {
                Ok(GreetStep::Send(message)) => self.send(&message).await?,
                Ok(GreetStep::Done { ready, joins, name }) => {
                    return Ok(Guest { ready, joins, name });
                }
                Err(error) => return Err(self.refuse(error).await),
            }
        }
    }

    /// The last message of the listener.
    pub(crate) async fn ready(
        &mut self,
        ready: Ready,
        payload_max: usize,
    ) -> Result<(), WireError> {
        self.send(&Message::Ready(ready)).await?;
        self.decoder.open(payload_max);
        Ok(())
    }

    /// The dialer's part.
    pub(crate) async fn introduce(
        &mut self,
        terms: &Terms,
        joins: Option<[u8; 16]>,
        random: &mut dyn Random,
        payload_max: usize,
    ) -> Result<Ready, WireError> {
        let (mut dial, first) = Dial::start(terms, joins, random);
        self.send(&first).await?;
        loop {
            let message = self.receive().await?;
            match dial.on_message(message) {
                Ok(DialStep::Send(message)) => self.send(&message).await?,
                Ok(DialStep::Done(ready)) => {
                    self.decoder.open(payload_max);
                    return Ok(ready);
                }
                Err(error) => return Err(self.refuse(error).await),
            }
        }
    }

    /// Tells the peer why, if it does not know; the connection is of no use afterwards.
    pub(crate) async fn refuse(&mut self, error: HandshakeError) -> WireError {
        if let Some(answer) = error.answer() {
            self.close(&answer).await;
        }
        error.into()
    }

    /// Tells the peer that there is no place for it.
    pub(crate) async fn turn_away(&mut self, reason: String) -> WireError {
        self.close(&Message::Refused(Refused { reason: reason.clone() })).await;
        WireError::TurnedAway(reason)
    }

    /// Where the last message does not arrive, the peer sees the connection close.
    async fn close(&mut self, last: &Message) {
        let told = self.send(last).await;
        let closed = self.stream.shutdown().await;
        if let Err(error) = told.and(closed) {
            tracing::debug!(%error, "A refusal did not reach the peer.");
        }
    }
}

/// Who came through the handshake, from the listener's point of view.
#[derive(Debug)]
pub(crate) struct Guest {
    /// To be sent where the peer may.
    pub(crate) ready: Ready,
    /// The peer for which this is one more connection.
    pub(crate) joins: Option<[u8; 16]>,
    /// How it calls itself.
    pub(crate) name: String,
}

/// Reads messages from a connection on which no frames go.
#[derive(Debug)]
pub(crate) struct Reader<R> {
    from: R,
    decoder: Decoder,
    buffer: Box<[u8]>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(crate) fn new(from: R, decoder: Decoder) -> Self {
        Self { from, decoder, buffer: vec![0; READ_BYTES].into() }
    }

    /// The next message. It can be dropped while it waits: what was read is kept.
    pub(crate) async fn next(&mut self) -> Result<Message, WireError> {
        next_message(&mut self.from, &mut self.decoder, &mut self.buffer).await
    }
}

async fn next_message(
    from: &mut (impl AsyncRead + Unpin),
    decoder: &mut Decoder,
    buffer: &mut [u8],
) -> Result<Message, WireError> {
    loop {
        match decoder.take()? {
            Some(Item::Message(message)) => return Ok(message),
            Some(Item::Frame(..)) => {
                return Err(WireError::Misplaced("a frame came on the connection for messages"));
            }
            None => {}
        }
        let count = from.read(buffer).await?;
        if count == 0 {
            return Err(WireError::Closed);
        }
        decoder.feed(&buffer[..count]);
    }
}
