//! A worker of the network, and how two of them find out that they fit.

use std::sync::Arc;

use types::Time;

use super::Node;
use super::dice::Dice;
use crate::codec::{Decoder, Encoder, Item};
use crate::failure::Failure;
use crate::handshake::{Dial, DialStep, Greet, GreetStep, HandshakeError, Ready, Terms};
use crate::message::Message;
use crate::port::{Act, DecodePort, PrefillPort};
use crate::room::{PeerId, PeerName};

/// A worker's end.
pub(super) enum Role {
    Decode(Arc<DecodePort>),
    Prefill(Arc<PrefillPort>),
    /// Its process is gone.
    Dead,
}

impl Role {
    pub(super) fn decode(&self) -> Option<&Arc<DecodePort>> {
        match self {
            Self::Decode(port) => Some(port),
            Self::Prefill(_) | Self::Dead => None,
        }
    }

    pub(super) fn prefill(&self) -> Option<&Arc<PrefillPort>> {
        match self {
            Self::Prefill(port) => Some(port),
            Self::Decode(_) | Self::Dead => None,
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        match self {
            Self::Decode(port) => port.with(|end, _| end.deadline()),
            Self::Prefill(port) => port.with(|end, _| end.deadline()),
            Self::Dead => None,
        }
    }

    pub(super) fn tick(&self) {
        match self {
            Self::Decode(port) => port.with(|end, now| end.tick(now)),
            Self::Prefill(port) => port.with(|end, now| end.tick(now)),
            Self::Dead => {}
        }
    }

    pub(super) fn poll(&self) -> Option<Act> {
        match self {
            Self::Decode(port) => port.poll(),
            Self::Prefill(port) => port.poll(),
            Self::Dead => None,
        }
    }

    pub(super) fn lost(&self, peer: PeerId, failure: Failure) {
        match self {
            Self::Decode(port) => port.with(|end, now| end.lost(now, peer, failure)),
            Self::Prefill(port) => port.with(|end, now| end.lost(now, peer, failure)),
            Self::Dead => {}
        }
    }

    pub(super) fn message(&self, peer: PeerId, message: Message) {
        match self {
            Self::Decode(port) => port.with(|end, now| end.on_message(now, peer, message)),
            Self::Prefill(port) => port.with(|end, now| end.on_message(now, peer, message)),
            Self::Dead => {}
        }
    }

    pub(super) fn trouble(&self, name: &PeerName, trouble: Option<String>) {
        match self {
            Self::Decode(port) => port.with(|end, _| end.trouble(name, trouble)),
            Self::Prefill(port) => port.with(|end, _| end.trouble(name, trouble)),
            Self::Dead => {}
        }
    }
}

/// A worker.
pub(super) struct Member {
    pub(super) node: Node,
    pub(super) role: Role,
}

/// A handshake, through the codec.
pub(super) fn shake(
    decode: &Node,
    prefill: &Node,
    dice: &mut Dice,
) -> Result<Ready, HandshakeError> {
    let terms = |node: &Node| Terms {
        secret: node.secret.clone(),
        shape: node.shape.clone(),
        name: node.name.to_string(),
    };
    let rooms_max = u32::try_from(prefill.limits.rooms_max).unwrap_or(u32::MAX);
    let (mut up, mut down) = ((Encoder::new(), Decoder::new()), (Encoder::new(), Decoder::new()));
    let carry = |lane: &mut (Encoder, Decoder), message: &Message| {
        let bytes = lane.0.message(message);
        lane.1.feed(&bytes);
        match lane.1.take() {
            Ok(Some(Item::Message(message))) => message,
            other => unreachable!("{} was written, {other:?} read", message.name()),
        }
    };
    let (mut dial, mut message) = Dial::start(&terms(decode), None, dice);
    let mut greet = Greet::new(&terms(prefill), rooms_max);
    loop {
        let answer = match greet.on_message(carry(&mut up, &message), dice)? {
            GreetStep::Send(answer) => answer,
            GreetStep::Done { ready, .. } => Message::Ready(ready),
        };
        match dial.on_message(carry(&mut down, &answer))? {
            DialStep::Send(next) => message = next,
            DialStep::Done(ready) => return Ok(ready),
        }
    }
}
