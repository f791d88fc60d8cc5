//! Decode: frames from one data connection into pages.

use super::hub::Hub;
use super::wire::{Wire, WireError};
use crate::{DecodePort, FRAME_HEADER_BYTES, FrameHeader, PeerId, Room, Writing};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Read at a time while it is not known how long the next frame is: small frames come many at once.
const AHEAD_BYTES: usize = 64 << 10;

/// Receives until the connection fails. Takes memory for two of the largest frames' headers and one
/// payload, whatever comes.
pub(super) async fn receive(hub: Arc<Hub<DecodePort>>, peer: PeerId, wire: Wire) -> WireError {
    let mut frames = Frames::new(wire.stream, hub.payload_max, hub.limits.silence());
    loop {
        if let Err(error) = frame(&hub, peer, &mut frames).await {
            return error;
        }
    }
}

async fn frame(
    hub: &Arc<Hub<DecodePort>>,
    peer: PeerId,
    frames: &mut Frames<impl AsyncRead + Unpin>,
) -> Result<(), WireError> {
    let header = frames.header().await?;
    if header == IDLE {
        return Ok(());
    }
    // From here its pages are this task's, until `Held` gives them back: also where the task ends
    // inside of this function.
    let writing = hub.port.with(|end, now| end.frame_begins(now, peer, &header));
    if writing.is_none() {
        // It may have been a violation.
        hub.pump();
    }
    let mut held = Held { hub, writing, intact: false };
    let payload = frames.payload(&header).await?;
    if let Some(writing) = &held.writing
        && header.intact(payload)
    {
        writing.write(payload, &*hub.pages);
        held.intact = true;
    }
    Ok(())
}

/// What a sender that has nothing to send says now and then, so that a connection which takes
/// everything and delivers nothing is noticed: an empty frame for nobody.
pub(super) const IDLE: FrameHeader = FrameHeader {
    length: 0,
    room: Room(0),
    seq: 0,
    rank: 0,
    part: 0,
    first_layer: 0,
    layers: 0,
    first_page: 0,
    pages: 0,
    checksum: 0,
};

/// A frame that is being received.
struct Held<'a> {
    hub: &'a Arc<Hub<DecodePort>>,
    /// `None`: the frame is for nobody.
    writing: Option<Writing>,
    intact: bool,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(writing) = self.writing.take() {
            self.hub.port.with(|end, now| end.frame_ends(now, writing, self.intact));
            self.hub.pump();
        }
    }
}

/// Takes frames out of a stream of bytes. A payload is where the system put it, in one piece.
struct Frames<R> {
    from: R,
    payload_max: usize,
    /// How long nothing may come.
    silence: Duration,
    buffer: Box<[u8]>,
    /// What was read and not taken.
    start: usize,
    end: usize,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    fn new(from: R, payload_max: usize, silence: Duration) -> Self {
        // One more header: the read that ends a payload may bring the next one along.
        let bytes = (2 * FRAME_HEADER_BYTES + payload_max).max(AHEAD_BYTES);
        Self { from, payload_max, silence, buffer: vec![0; bytes].into(), start: 0, end: 0 }
    }

    async fn header(&mut self) -> Result<FrameHeader, WireError> {
        self.fill(FRAME_HEADER_BYTES, AHEAD_BYTES).await?;
        let head = self.buffer[self.start..].first_chunk().expect("as many were read");
        let header = FrameHeader::decode(head, self.payload_max)?;
        self.start += FRAME_HEADER_BYTES;
        Ok(header)
    }

    async fn payload(&mut self, header: &FrameHeader) -> Result<&[u8], WireError> {
        let length = header.length as usize;
        self.fill(length, length + FRAME_HEADER_BYTES).await?;
        self.start += length;
        Ok(&self.buffer[self.start - length..self.start])
    }

    /// Reads until there are at least `least` bytes; asks for at most `most` in all.
    async fn fill(&mut self, least: usize, most: usize) -> Result<(), WireError> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start + most > self.buffer.len() && self.start + least > self.end {
            // Little is moved: never more was read ahead than `AHEAD_BYTES`.
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        while self.end - self.start < least {
            let until = (self.start + most).min(self.buffer.len());
            let read = self.from.read(&mut self.buffer[self.end..until]);
            let count = tokio::time::timeout(self.silence, read)
                .await
                .map_err(|_| WireError::Silent(self.silence))??;
            if count == 0 {
                return Err(WireError::Closed);
            }
            self.end += count;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload_checksum;
    use crate::tcp::tests::random::Random;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use tokio::io::ReadBuf;

    /// Gives bytes in portions a seed decides.
    struct Portions {
        bytes: Vec<u8>,
        at: usize,
        random: Random,
    }

    impl AsyncRead for Portions {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            to: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            let this = self.get_mut();
            let most = 1 << this.random.below(18);
            let portion = 1 + this.random.below(most) as usize;
            let end = (this.at + portion.min(to.remaining())).min(this.bytes.len());
            to.put_slice(&this.bytes[this.at..end]);
            this.at = end;
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn frames_come_out_as_they_went_in_whatever_the_portions() {
        const PAYLOAD_MAX: usize = 200_000;
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let mut bytes = Vec::new();
            let mut sent = Vec::new();
            for seq in 0..40 {
                let most = [100, 5_000, PAYLOAD_MAX as u64][random.below(3) as usize];
                let length = 1 + random.below(most) as usize;
                let payload: Vec<u8> = (0..length).map(|at| (at as u32 * 7 + seq) as u8).collect();
                let header = FrameHeader {
                    length: length as u32,
                    room: Room(random.next().into()),
                    seq,
                    rank: 0,
                    part: 0,
                    first_layer: 0,
                    layers: 1,
                    first_page: 0,
                    pages: 1,
                    checksum: payload_checksum([&payload[..]]),
                };
                bytes.extend_from_slice(&header.encode());
                bytes.extend_from_slice(&payload);
                sent.push((header, payload));
            }
            let portions = Portions { bytes, at: 0, random };
            let mut frames = Frames::new(portions, PAYLOAD_MAX, Duration::from_secs(60));
            for (header, payload) in &sent {
                assert_eq!(frames.header().await.unwrap(), *header, "seed {seed}");
                assert!(frames.payload(header).await.unwrap() == payload, "seed {seed}");
            }
            assert!(matches!(frames.header().await, Err(WireError::Closed)), "seed {seed}");
        }
    }
}
