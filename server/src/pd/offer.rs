//! Decode: which prefill worker computes a prompt, and whether it will.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use admission::{RejectReason, Rejected};
use tokio::sync::oneshot;
use transfer::{Backend, Failure, LinkSnapshot, NotOffered, Offered, PeerName, Prompt};
use types::RequestId;

use super::{TOO_LONG, from_wire};

/// Why no prefill worker computes a prompt. Nothing of it is left anywhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PairFailure {
    /// A router asks for a prefill worker that this server does not know.
    #[error("{given:?} is no prefill worker of this decode worker; those are {known}")]
    UnknownPeer {
        /// What it asked for.
        given: String,
        /// Those of the configuration.
        known: String,
    },
    /// None of the prefill workers can be reached.
    #[error("no prefill worker can be reached: {0}")]
    NoPeer(String),
    /// The prefill worker refuses.
    #[error("prefill worker {peer}: {refusal}")]
    Rejected {
        /// Which.
        peer: PeerName,
        /// As its admission says it.
        refusal: Rejected,
    },
    /// The prompt is longer than the prefill worker can compute.
    #[error(
        "prefill worker {peer} computes prompts of up to {limit} tokens, and this has {tokens}"
    )]
    TooLong {
        /// Which.
        peer: PeerName,
        /// The prompt's.
        tokens: u64,
        /// Its bound.
        limit: u64,
    },
    /// A part of the request is longer than an offer can say.
    #[error("{field}: {length} are more than the {limit} that can be told a prefill worker")]
    Unspeakable {
        /// Which part.
        field: &'static str,
        /// Its length.
        length: usize,
        /// The bound.
        limit: usize,
    },
    /// The transfer came to nothing.
    #[error("the KV cache did not come from prefill worker {peer}: {failure}")]
    Failed {
        /// Which.
        peer: PeerName,
        /// Why.
        failure: Failure,
    },
}

impl PairFailure {
    /// As admission would refuse it; `None` where the client asks for the impossible.
    #[must_use]
    pub fn refusal(&self) -> Option<Rejected> {
        match self {
            Self::UnknownPeer { .. } | Self::TooLong { .. } | Self::Unspeakable { .. } => None,
            Self::Rejected { refusal, .. } => Some(*refusal),
            Self::NoPeer(_) | Self::Failed { .. } => {
                let (reason, retry_after) = (RejectReason::Unhealthy, RETRY_AFTER);
                Some(Rejected { reason, retry_after, value: 0, limit: 0 })
            }
        }
    }
}

/// A prompt that a prefill worker has accepted.
#[derive(Debug)]
pub struct Taken {
    /// The request that news about it come for.
    pub id: RequestId,
    /// The transfer.
    pub offered: Offered,
}

/// A decode worker's prefill workers.
pub struct Offering {
    backend: Arc<dyn Backend>,
    peers: Vec<PeerName>,
    /// Where equals are begun with: at each in turn.
    turn: AtomicUsize,
}

impl Offering {
    /// Offers to `peers`, the names in the configuration, over `backend`.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>, peers: Vec<PeerName>) -> Self {
        Self { backend, peers, turn: AtomicUsize::new(0) }
    }

    /// What is open now.
    #[must_use]
    pub fn snapshot(&self) -> LinkSnapshot {
        self.backend.snapshot()
    }

    /// The peer of this name.
    ///
    /// # Errors
    /// There is none: nobody makes this server connect to an address of his choice.
    pub fn named(&self, given: &str) -> Result<PeerName, PairFailure> {
        let known = self.peers.iter().find(|peer| peer.as_str().eq_ignore_ascii_case(given));
        known.cloned().ok_or_else(|| PairFailure::UnknownPeer {
            given: given.chars().take(100).collect(),
            known: self.peers.iter().map(PeerName::as_str).collect::<Vec<_>>().join(", "),
        })
    }

    /// Those whose link is up, the one with the fewest transfers first.
    ///
    /// # Errors
    /// None is, and why.
    fn order(&self) -> Result<Vec<PeerName>, PairFailure> {
        let snapshot = self.snapshot();
        let mut up: Vec<_> = snapshot.peers.iter().filter(|peer| peer.up).collect();
        if up.is_empty() {
            let why = |peer: &transfer::PeerSnapshot| {
                let trouble = peer.trouble.as_deref().unwrap_or("there is no connection");
                format!("{}: {trouble}", peer.peer)
            };
            let all: Vec<String> = snapshot.peers.iter().map(why).collect();
            return Err(PairFailure::NoPeer(all.join("; ")));
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % up.len();
        up.rotate_left(turn);
        up.sort_by_key(|peer| peer.waiting + peer.wire);
        Ok(up.into_iter().map(|peer| peer.peer.clone()).collect())
    }

    /// Has `prompts` computed by one prefill worker, all of them or none: by `fixed`, or by the
    /// least loaded that can be reached. `next_id` names each attempt, so that news about one that
    /// failed are not taken for the next one's. Dropping the future gives everything up.
    ///
    /// # Errors
    /// The refusal, or why nobody could be asked.
    pub async fn offer(
        &self,
        fixed: Option<PeerName>,
        prompts: &[Prompt],
        next_id: impl Fn() -> RequestId,
    ) -> Result<(PeerName, Vec<Taken>), PairFailure> {
        let candidates = match fixed {
            Some(peer) => vec![peer],
            None => self.order()?,
        };
        let mut last = PairFailure::NoPeer("none is known".to_owned());
        for peer in candidates {
            match self.offer_to(&peer, prompts, &next_id).await {
                Ok(taken) => return Ok((peer, taken)),
                // It was gone before it had said anything: another one may be there.
                Err(NotOffered::Failed(failure @ (Failure::Connect | Failure::PeerGone))) => {
                    last = PairFailure::Failed { peer, failure };
                }
                Err(NotOffered::Failed(failure)) => {
                    return Err(PairFailure::Failed { peer, failure });
                }
                Err(NotOffered::Rejected(refusal)) => return Err(rejected(peer, &refusal)),
                Err(NotOffered::Invalid { field, length, limit }) => {
                    return Err(PairFailure::Unspeakable { field, length, limit });
                }
            }
        }
        Err(last)
    }

    async fn offer_to(
        &self,
        peer: &PeerName,
        prompts: &[Prompt],
        next_id: &impl Fn() -> RequestId,
    ) -> Result<Vec<Taken>, NotOffered> {
        let ask = |prompt: &Prompt| {
            let id = next_id();
            let (sender, receiver) = oneshot::channel();
            // Where nobody waits any more, what was offered is dropped, which gives it up.
            let answered = Box::new(move |answer| drop(sender.send(answer)));
            self.backend.offer(peer, id, prompt.clone(), answered);
            (id, receiver)
        };
        let asked: Vec<_> = prompts.iter().map(ask).collect();
        let mut taken = Vec::with_capacity(asked.len());
        for (id, answer) in asked {
            let answer = answer.await.unwrap_or(Err(NotOffered::Failed(Failure::Internal)));
            taken.push(Taken { id, offered: answer? });
        }
        Ok(taken)
    }
}

fn rejected(peer: PeerName, refusal: &transfer::Rejected) -> PairFailure {
    match from_wire(refusal) {
        Some(refusal) => PairFailure::Rejected { peer, refusal },
        None if refusal.reason == TOO_LONG => {
            PairFailure::TooLong { peer, tokens: refusal.value, limit: refusal.limit }
        }
        None => PairFailure::Failed { peer, failure: Failure::Protocol },
    }
}

/// When to ask again for what failed: a router has another pair, others have patience.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);
