//! The seams to the engine, to the server and to whatever carries the bytes.

use std::time::Duration;

use memory_pool::LayerProgress;
use types::{PageId, PoolId, RequestId};

use crate::OFFER_TOKENS_MAX;
use crate::codec::{NAMESPACE_MAX, TEXT_MAX};
use crate::failure::Failure;
use crate::message::{CachedTokens, Offer, Rejected, RemoteTimes};
use crate::observe::LinkSnapshot;
use crate::room::{PeerName, Room};

/// What a link tells the engine, by request. Each comes at most once but for `Passed`, and but for
/// a failure that is told again (see [`News::Failed`]); `Arrived`, `Delivered` and `Failed` exclude
/// each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// Decode: the peer computes the first chunk.
    Started,
    /// Decode: the first bytes are in their pages.
    FirstByte,
    /// Decode: every byte of every page that was landed is there and checked; the link does not
    /// touch the pages any more.
    Arrived(RemoteTimes),
    /// Prefill: the decode worker has pages for everything behind the first `skip_tokens` tokens.
    Wanted {
        /// Whole pages.
        skip_tokens: usize,
    },
    /// Prefill: every chunk up to this fence has been read out of its pages once. A frame that
    /// arrives broken is read again, so the pages stay until `Delivered` or `Settled`.
    Passed(u64),
    /// Prefill: the decode worker has everything; the link does not touch the pages any more.
    Delivered,
    /// Either side: it is over without success. Pages are let go at `Settled`, not before.
    ///
    /// A failure before [`Landing::land`] is told once more when that is called, `Settled` too: the
    /// request may not have been known before.
    Failed(Failure),
    /// Either side, after `Failed` or an `abandon` (once for both): nobody reads or writes the
    /// pages any more. Also where no page was named yet.
    Settled,
}

/// Pages of a pool into which a transfer goes: consecutive ones of the sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LandPages {
    /// The pool.
    pub pool: PoolId,
    /// The index in the sequence of the first.
    pub first_index: usize,
    /// The pages, in the order of the sequence.
    pub pages: Vec<PageId>,
}

/// Decode: one accepted transfer in the hands of the engine. Its methods do not block and call
/// nobody back. Dropping it before the end is `abandon(LocalAbort)`, but
/// that nothing follows where its success is on its way to the engine already.
pub trait Landing: Send {
    /// The rows of the first `tokens` tokens but for the first `skip_tokens` ones (whole pages)
    /// are to come into these pages. Called at most once. From here to `Arrived` or `Settled` the
    /// pages belong to the link.
    fn land(&mut self, tokens: usize, skip_tokens: usize, pages: Vec<LandPages>);

    /// The request is over; `Settled` follows, also where `Arrived` or `Failed` is on its way to
    /// the engine already.
    fn abandon(&mut self, why: Failure);
}

/// Pages to send once they are computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Ascending per transfer; comes back in [`News::Passed`].
    pub fence: u64,
    /// Pool, index in the sequence, page: the pages to send, none twice per transfer, none of the
    /// first `skip_tokens` tokens. May be empty. The rows in them do not change any more.
    pub pages: Vec<(PoolId, usize, PageId)>,
    /// The forward pass that fills them; `None` where it is over. A pass that fails fails the
    /// transfer.
    pub progress: Option<LayerProgress>,
    /// Whether it is the last one.
    pub last: bool,
    /// What came from caches; that of the last chunk is told to the decode worker.
    pub cached: CachedTokens,
}

/// Prefill: one accepted transfer in the hands of the engine. Its methods do not block and call
/// nobody back. Dropping it before the end is `abandon(LocalAbort)`, but
/// that nothing follows where its success is on its way to the engine already.
pub trait Sending: Send {
    /// Sends pages; called in the order of the sequence, not before [`News::Wanted`]. The first
    /// call says that the prefill has started, so it comes with the first chunk that runs, even
    /// where no page is whole yet. From here to `Delivered` or `Settled` the pages stay.
    fn chunk(&mut self, chunk: Chunk);

    /// The request is over; `Settled` follows, also where `Delivered` or `Failed` is on its way to
    /// the engine already.
    fn abandon(&mut self, why: Failure);
}

/// Prefill: the server's answer to an offer that it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// The request under which the engine knows it: where [`News`] go.
    pub request: RequestId,
    /// How long the work before it takes.
    pub drain: Duration,
}

/// Prefill: who decides on offers. Implemented by the server: admission, then the engine.
pub trait Offers: Send + Sync {
    /// Decides at once, without blocking. Where it accepts, `sending` is the engine's; where it
    /// rejects, `sending` is dropped and nothing of the offer is left.
    ///
    /// # Errors
    /// Why not.
    fn offer(
        &self,
        peer: &PeerName,
        offer: Offer,
        sending: Box<dyn Sending>,
    ) -> Result<Accepted, Rejected>;
}

/// Who takes [`News`]: the engine's handle. Called on the link's threads; must not block.
pub trait NewsSink: Send + Sync {
    /// News about `request`. Requests that the engine does not know (any more) are ignored.
    fn news(&self, request: RequestId, news: News);
}

impl<F: Fn(RequestId, News) + Send + Sync> NewsSink for F {
    fn news(&self, request: RequestId, news: News) {
        self(request, news);
    }
}

/// Decode: an offer that the prefill worker took.
pub struct Offered {
    /// The transfer.
    pub room: Room,
    /// For the engine.
    pub landing: Box<dyn Landing>,
    /// How long the work before it takes, by the prefill worker's estimate.
    pub drain: Duration,
}

impl std::fmt::Debug for Offered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offered")
            .field("room", &self.room)
            .field("drain", &self.drain)
            .finish_non_exhaustive()
    }
}

/// Decode: why an offer came to nothing. Nothing of it is left on either side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotOffered {
    /// The prefill worker (or the bound on open rooms) says no: the client's 429.
    #[error("the prefill worker rejected the prompt: value {} of limit {}, retry after {:?}",
        .0.value, .0.limit, .0.retry_after)]
    Rejected(Rejected),
    /// A field of the prompt is longer than it may be: the client's 400.
    #[error("{field} has length {length}, at most {limit} can be sent to a prefill worker")]
    Invalid {
        /// Which one.
        field: &'static str,
        /// How long it is.
        length: usize,
        /// The bound.
        limit: usize,
    },
    /// There was no answer: the client's 502 or 503.
    #[error("the prefill worker could not be asked: {0}")]
    Failed(Failure),
}

/// Decode: takes the answer to an offer, once, on a thread of the link; must not block.
pub type Answered = Box<dyn FnOnce(Result<Offered, NotOffered>) + Send>;

/// Decode: what an offer says, but for the room, which the link makes.
#[derive(Clone, PartialEq, Eq)]
pub struct Prompt {
    /// See [`Offer::request`].
    pub request: String,
    /// See [`Offer::traceparent`].
    pub traceparent: Option<String>,
    /// See [`Offer::tokens`].
    pub tokens: Vec<types::TokenId>,
    /// See [`Offer::namespace`].
    pub namespace: Vec<u8>,
    /// See [`Offer::priority`].
    pub priority: types::Priority,
    /// See [`Offer::tenant`].
    pub tenant: Option<String>,
}

impl std::fmt::Debug for Prompt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prompt")
            .field("request", &self.request)
            .field("tokens", &self.tokens.len())
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

/// The decode worker's side of whatever carries transfers: TCP, a process's own memory, later
/// perhaps remote writes by a network card (see the decision record on transfer).
pub trait Backend: Send + Sync {
    /// Its name in logs: `tcp`, `loopback`.
    fn name(&self) -> &'static str;

    /// Offers a prompt to a peer out of the configuration, for a request whose [`News`] go to the
    /// engine under `request`. `answered` is called exactly once, perhaps before this returns.
    /// Dropping the [`Offered`] it got gives the transfer up.
    fn offer(&self, peer: &PeerName, request: RequestId, prompt: Prompt, answered: Answered);

    /// What is open now, for gauges and for choosing a peer.
    fn snapshot(&self) -> LinkSnapshot;
}

impl Prompt {
    /// Whether it can be sent: every field within its bound, at least one token.
    ///
    /// # Errors
    /// The first field that is not.
    pub fn check(&self) -> Result<(), NotOffered> {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let fields = [
            ("x-request-id", self.request.len(), TEXT_MAX),
            ("traceparent", text(&self.traceparent), TEXT_MAX),
            ("tenant", text(&self.tenant), TEXT_MAX),
            ("namespace", self.namespace.len(), NAMESPACE_MAX),
            ("prompt", self.tokens.len(), OFFER_TOKENS_MAX),
        ];
        for (field, length, limit) in fields {
            if length > limit {
                return Err(NotOffered::Invalid { field, length, limit });
            }
        }
        if self.tokens.is_empty() {
            let limit = OFFER_TOKENS_MAX;
            return Err(NotOffered::Invalid { field: "prompt", length: 0, limit });
        }
        Ok(())
    }
}
