//! How two workers find out that they may, and can, work together.
//!
//! ```text
//!   decode                              prefill
//!     Hello   version, nonce       ->
//!                                  <-   Welcome  version, nonce, proof
//!     Proof   proof, name, shape   ->
//!                                  <-   Ready    link, bound, shape
//! ```
//!
//! Either side may say `Refused` instead of the next step. Who does not know the secret learns
//! nothing but the version and whether there is a secret.

use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::PROTOCOL;
use crate::codec::REASON_MAX;
use crate::message::Message;
use crate::observe::Side;
use crate::room::Random;
use crate::shape::{Mismatch, Shape};

/// First message on every connection, decode -> prefill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// [`PROTOCOL`](crate::PROTOCOL) of the sender.
    pub protocol: u16,
    /// Whether it has a shared secret.
    pub secret: bool,
    /// 32 random bytes.
    pub nonce: [u8; 32],
    /// `None`: a new peer's control connection. Otherwise the [`Ready::link`] of the peer for
    /// which this is one more data connection.
    pub joins: Option<[u8; 16]>,
}

/// The answer, prefill -> decode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// [`PROTOCOL`](crate::PROTOCOL) of the sender.
    pub protocol: u16,
    /// 32 random bytes.
    pub nonce: [u8; 32],
    /// That it knows the secret; zeros without one.
    pub proof: [u8; 32],
}

/// Decode -> prefill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// That it knows the secret; zeros without one.
    pub proof: [u8; 32],
    /// How the decode worker calls itself, `HOST:PORT`; looked up in the prefill worker's
    /// configuration, shown nowhere else. At most 256 bytes.
    pub name: String,
    /// What it has.
    pub shape: Shape,
}

/// The last step, prefill -> decode: offers may come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// Names the peer for further data connections; random.
    pub link: [u8; 16],
    /// Most rooms that may be open at a time.
    pub rooms_max: u32,
    /// What the prefill worker has.
    pub shape: Shape,
}

/// Why not; the connection closes after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// For a human, with both values of what does not fit; at most 1 KiB.
    pub reason: String,
}

/// What a worker brings to a handshake.
#[derive(Clone)]
pub struct Terms {
    /// What both sides know and nobody else does; `None`: anybody who can connect may.
    pub secret: Option<Arc<[u8]>>,
    /// What it has.
    pub shape: Shape,
    /// How it calls itself, `HOST:PORT`; only the decode worker's is sent. At most 256 bytes.
    pub name: String,
}

/// The secret is not shown.
impl fmt::Debug for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terms").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Why a handshake came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// Different software.
    #[error("protocol version: this worker has {ours}, the peer has {theirs}")]
    Protocol {
        /// Ours.
        ours: u16,
        /// The peer's.
        theirs: u16,
    },
    /// One of the two has a secret.
    #[error("secret: the prefill worker has {}, the decode worker has {}; give \
        --pd-secret-file with the same content to both", one(*prefill), one(*decode))]
    Secret {
        /// Whether the prefill worker has one.
        prefill: bool,
        /// Whether the decode worker has one.
        decode: bool,
    },
    /// The peer does not know our secret.
    #[error(
        "secret: the peer has another one; give --pd-secret-file with the same content to \
        both"
    )]
    Proof,
    /// Another model or another layout.
    #[error(transparent)]
    Shape(#[from] Mismatch),
    /// A data connection for a peer that is not there.
    #[error("there is no peer whose connection this could join")]
    NoPeer,
    /// The peer refused; this is its reason.
    #[error("{0}")]
    Refused(String),
    /// Something else than the next step.
    #[error("{found} came where {due} was due")]
    Step {
        /// What came.
        found: &'static str,
        /// What was due.
        due: &'static str,
    },
}

const fn one(has: bool) -> &'static str {
    if has { "one" } else { "none" }
}

impl HandshakeError {
    /// What to tell the peer before the connection closes; nothing where the peer said it.
    #[must_use]
    pub fn answer(&self) -> Option<Message> {
        if matches!(self, Self::Refused(_)) {
            return None;
        }
        let mut reason = self.to_string();
        let end =
            (0..=REASON_MAX.min(reason.len())).rev().find(|end| reason.is_char_boundary(*end));
        reason.truncate(end.unwrap_or(0));
        Some(Message::Refused(Refused { reason }))
    }
}

/// One side's proof that it knows the secret, for exactly this handshake.
fn mac(secret: &[u8], side: Side, hello: &Hello, nonce: &[u8; 32]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("any length is a key");
    mac.update(b"sightline transfer");
    mac.update(&PROTOCOL.to_le_bytes());
    // Without it, a proof could be sent back as one's own.
    mac.update(side.label().as_bytes());
    mac.update(&hello.nonce);
    mac.update(nonce);
    mac.update(&hello.joins.unwrap_or_default());
    mac
}

fn prove(terms: &Terms, side: Side, hello: &Hello, nonce: &[u8; 32]) -> [u8; 32] {
    let Some(secret) = &terms.secret else { return [0; 32] };
    mac(secret, side, hello, nonce).finalize().into_bytes().into()
}

/// Takes the same time wherever the proof is wrong.
fn check(
    terms: &Terms,
    side: Side,
    hello: &Hello,
    nonce: &[u8; 32],
    proof: &[u8; 32],
) -> Result<(), HandshakeError> {
    let Some(secret) = &terms.secret else { return Ok(()) };
    mac(secret, side, hello, nonce).verify_slice(proof).map_err(|_| HandshakeError::Proof)
}

/// The decode worker's side of a handshake; it speaks first.
#[derive(Debug)]
pub struct Dial {
    terms: Terms,
    hello: Hello,
    /// Whether the peer has proved itself: what is due is `Ready`.
    welcomed: bool,
}

/// What the decode worker does next.
#[derive(Debug, PartialEq, Eq)]
pub enum DialStep {
    /// Send this and wait.
    Send(Message),
    /// Connected: open the decoder with the payloads of our own shape.
    Done(Ready),
}

impl Dial {
    /// A new connection, and what to send on it. `joins` is that of [`Hello::joins`].
    pub fn start(
        terms: &Terms,
        joins: Option<[u8; 16]>,
        random: &mut dyn Random,
    ) -> (Self, Message) {
        let mut nonce = [0; 32];
        random.fill(&mut nonce);
        let secret = terms.secret.is_some();
        let hello = Hello { protocol: PROTOCOL, secret, nonce, joins };
        let dial = Self { terms: terms.clone(), hello: hello.clone(), welcomed: false };
        (dial, Message::Hello(hello))
    }

    /// The peer said something. Do not call it again after `Done` or an error.
    ///
    /// # Errors
    /// Why the two do not work together; tell the peer [`HandshakeError::answer`].
    pub fn on_message(&mut self, message: Message) -> Result<DialStep, HandshakeError> {
        let due = if self.welcomed { "ready" } else { "welcome" };
        match (message, self.welcomed) {
            (Message::Refused(refused), _) => Err(HandshakeError::Refused(refused.reason)),
            (Message::Welcome(welcome), false) => {
                if welcome.protocol != PROTOCOL {
                    let theirs = welcome.protocol;
                    return Err(HandshakeError::Protocol { ours: PROTOCOL, theirs });
                }
                check(&self.terms, Side::Send, &self.hello, &welcome.nonce, &welcome.proof)?;
                self.welcomed = true;
                let proof = prove(&self.terms, Side::Recv, &self.hello, &welcome.nonce);
                let Terms { name, shape, .. } = self.terms.clone();
                Ok(DialStep::Send(Message::Proof(Proof { proof, name, shape })))
            }
            (Message::Ready(ready), true) => {
                Shape::fit(&ready.shape, &self.terms.shape)?;
                Ok(DialStep::Done(ready))
            }
            (other, _) => Err(HandshakeError::Step { found: other.name(), due }),
        }
    }
}

/// The prefill worker's side of a handshake.
#[derive(Debug)]
pub struct Greet {
    terms: Terms,
    rooms_max: u32,
    /// The peer's greeting and our nonce, once they were exchanged.
    greeted: Option<(Hello, [u8; 32])>,
}

/// What the prefill worker does next.
#[derive(Debug, PartialEq, Eq)]
pub enum GreetStep {
    /// Send this and wait.
    Send(Message),
    /// The peer may. Where `joins` names a peer that is connected (or nobody), send `ready` and
    /// open the decoder; otherwise refuse with [`HandshakeError::NoPeer`].
    Done {
        /// The last message.
        ready: Ready,
        /// For which peer this is one more connection; `None` for a new one.
        joins: Option<[u8; 16]>,
        /// How the peer calls itself.
        name: String,
    },
}

impl Greet {
    /// Of a connection that came in. `rooms_max` is told to the peer.
    #[must_use]
    pub fn new(terms: &Terms, rooms_max: u32) -> Self {
        Self { terms: terms.clone(), rooms_max, greeted: None }
    }

    /// The peer said something. Do not call it again after `Done` or an error.
    ///
    /// # Errors
    /// Why the two do not work together; tell the peer [`HandshakeError::answer`].
    pub fn on_message(
        &mut self,
        message: Message,
        random: &mut dyn Random,
    ) -> Result<GreetStep, HandshakeError> {
        match (message, self.greeted.take()) {
            (Message::Refused(refused), _) => Err(HandshakeError::Refused(refused.reason)),
            (Message::Hello(hello), None) => self.hello(hello, random),
            (Message::Proof(proof), Some((hello, nonce))) => {
                check(&self.terms, Side::Recv, &hello, &nonce, &proof.proof)?;
                Shape::fit(&self.terms.shape, &proof.shape)?;
                let mut link = [0; 16];
                random.fill(&mut link);
                let link = hello.joins.unwrap_or(link);
                let (rooms_max, shape) = (self.rooms_max, self.terms.shape.clone());
                let ready = Ready { link, rooms_max, shape };
                Ok(GreetStep::Done { ready, joins: hello.joins, name: proof.name })
            }
            (other, greeted) => {
                let due = if greeted.is_some() { "proof" } else { "hello" };
                Err(HandshakeError::Step { found: other.name(), due })
            }
        }
    }

    fn hello(
        &mut self,
        hello: Hello,
        random: &mut dyn Random,
    ) -> Result<GreetStep, HandshakeError> {
        if hello.protocol != PROTOCOL {
            let theirs = hello.protocol;
            return Err(HandshakeError::Protocol { ours: PROTOCOL, theirs });
        }
        let own = self.terms.secret.is_some();
        if hello.secret != own {
            return Err(HandshakeError::Secret { prefill: own, decode: hello.secret });
        }
        let mut nonce = [0; 32];
        random.fill(&mut nonce);
        let proof = prove(&self.terms, Side::Send, &hello, &nonce);
        self.greeted = Some((hello, nonce));
        Ok(GreetStep::Send(Message::Welcome(Welcome { protocol: PROTOCOL, nonce, proof })))
    }
}

#[cfg(test)]
mod tests;
