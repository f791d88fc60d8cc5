//! Prefill and decode apart: what the server adds to the engine and to the transfer.
//!
//! A client's request has one HTTP leg, to the decode worker. That one offers the prompt to a
//! prefill worker ([`offer`]), whose front door for offers ([`door`]) decides as the one for
//! requests does. [`identity`] is what both must have in common.
//!
//! It knows no bytes of KV and no states of a transfer: those are the transfer's and the engine's.

pub mod door;
pub mod identity;
pub mod offer;
pub(crate) mod start;

use std::net::SocketAddr;
use std::sync::Arc;

use admission::{RejectReason, Rejected};
use transfer::tcp::{DecodeClient, PrefillServer};
use transfer::{LinkSnapshot, Rejected as WireRejected};

pub use offer::{Offering, PairFailure};

/// Beyond the reasons of admission: the prompt is longer than the prefill worker can compute.
const TOO_LONG: u8 = 100;
/// And: it is none that the prefill worker's model could compute.
const INVALID: u8 = 101;

/// What a worker of a pair talks to its peers by.
pub enum Link {
    /// A prefill worker's: it listens.
    Prefill(PrefillServer),
    /// A decode worker's: it dials.
    Decode(Offering, Arc<DecodeClient>),
}

impl Link {
    /// What is open now.
    #[must_use]
    pub fn snapshot(&self) -> LinkSnapshot {
        match self {
            Self::Prefill(server) => server.snapshot(),
            Self::Decode(offering, _) => offering.snapshot(),
        }
    }

    /// Where it listens, if it does.
    #[must_use]
    pub const fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Prefill(server) => Some(server.address()),
            Self::Decode(..) => None,
        }
    }

    /// Closes everything; what is under way has failed then, on both sides.
    pub async fn shut_down(&self) {
        match self {
            Self::Prefill(server) => server.shut_down().await,
            Self::Decode(_, client) => client.shut_down().await,
        }
    }
}

/// A refusal as it goes over the wire.
fn to_wire(refusal: &Rejected) -> WireRejected {
    let index = RejectReason::ALL.iter().position(|reason| *reason == refusal.reason);
    WireRejected {
        reason: index.and_then(|index| u8::try_from(index).ok()).expect("all are in the list"),
        retry_after: refusal.retry_after,
        value: refusal.value,
        limit: refusal.limit,
    }
}

/// A refusal that came over the wire; `None` where it is none of admission's.
fn from_wire(refusal: &WireRejected) -> Option<Rejected> {
    let reason = *RejectReason::ALL.get(usize::from(refusal.reason))?;
    let WireRejected { retry_after, value, limit, .. } = *refusal;
    Some(Rejected { reason, retry_after, value, limit })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_refusal_comes_over_the_wire() {
        let retry_after = Duration::from_secs(7);
        for reason in RejectReason::ALL {
            let refusal = Rejected { reason, retry_after, value: 3, limit: 2 };
            assert_eq!(from_wire(&to_wire(&refusal)), Some(refusal));
            assert_ne!(to_wire(&refusal).reason, TOO_LONG);
        }
        for reason in [TOO_LONG, INVALID] {
            let odd = WireRejected { reason, retry_after, value: 3, limit: 2 };
            assert_eq!(from_wire(&odd), None);
        }
    }
}
