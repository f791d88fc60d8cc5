//! The engine as the rest of the server sees it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use admission::AdmissionController;
use kv_cache::{Namespace, PoolSet};
use transfer::News;
use types::{RequestId, Time, TokenId};

use crate::curve::{CurveSnapshot, Estimator, Follower};
use crate::event::AbortReason;
use crate::mailbox::Mailbox;
use crate::stats::EngineSnapshot;
use crate::submission::Submission;

/// Why a submission was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// With these, too many submissions would have come in during one step.
    #[error("more than {limit} requests came in during one step, which is the limit; try again")]
    Busy {
        /// `EngineConfig::max_submissions`.
        limit: usize,
    },
    /// It could never run to its end, whatever else runs.
    #[error(
        "the prompt has {prompt_tokens} tokens and up to {max_tokens} were asked for, \
         but a request may have {limit} in all"
    )]
    TooLong {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Most tokens to generate.
        max_tokens: usize,
        /// The limit of context and KV pool on both together.
        limit: usize,
    },
    /// A field is outside its documented range.
    #[error("{0}")]
    Invalid(&'static str),
    /// A live request has the same id.
    #[error("a request with this id is running")]
    Duplicate,
    /// The engine has drained or was shut down.
    #[error("the server is draining and takes no new requests")]
    Draining,
    /// The engine has failed.
    #[error("the engine has failed and takes no new requests")]
    Unhealthy,
}

/// Submissions that were refused together; their sinks hear nothing.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct SubmitRefused {
    /// What was not accepted.
    pub submissions: Vec<Submission>,
    /// Why: the first reason found.
    pub error: SubmitError,
}

/// What handles and the engine's thread share beside the mailbox.
#[derive(Debug)]
pub(crate) struct Shared {
    snapshot: Mutex<EngineSnapshot>,
    pub(crate) max_request_tokens: usize,
    pub(crate) vocab: usize,
    /// Longest time that a request may wait, in nanoseconds; 0 is no limit.
    queue_timeout: AtomicU64,
}

impl Shared {
    pub(crate) fn new(snapshot: EngineSnapshot, max_request_tokens: usize, vocab: usize) -> Self {
        let queue_timeout = AtomicU64::new(0);
        Self { snapshot: Mutex::new(snapshot), max_request_tokens, vocab, queue_timeout }
    }

    /// Longest time that a request may wait to start; `None` is no limit.
    pub(crate) fn queue_timeout(&self) -> Option<Duration> {
        let nanos = self.queue_timeout.load(Ordering::Relaxed);
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }

    pub(crate) fn set_queue_timeout(&self, limit: Option<Duration>) {
        // 584 years are as good as no limit.
        let nanos = limit.map_or(0, |limit| u64::try_from(limit.as_nanos()).unwrap_or(0));
        self.queue_timeout.store(nanos, Ordering::Relaxed);
    }

    /// The snapshot; never held across a step.
    pub(crate) fn snapshot(&self) -> MutexGuard<'_, EngineSnapshot> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the engine when the last handle is gone.
#[derive(Debug)]
struct Owner {
    mailbox: Arc<Mailbox>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.mailbox.shutdown();
    }
}

/// Talks to the engine. Cheap to clone; no method waits for a step. When the last clone is
/// dropped, the engine shuts down.
#[derive(Debug, Clone)]
pub struct Handle {
    owner: Arc<Owner>,
    shared: Arc<Shared>,
    admission: Arc<AdmissionController>,
    pools: PoolSet,
    estimator: Option<Estimator>,
}

impl Handle {
    pub(crate) fn new(
        mailbox: Arc<Mailbox>,
        shared: Arc<Shared>,
        admission: Arc<AdmissionController>,
        pools: PoolSet,
    ) -> Self {
        Self { owner: Arc::new(Owner { mailbox }), shared, admission, pools, estimator: None }
    }

    /// The same with an estimator of hit ratios.
    pub(crate) fn with_estimator(self, estimator: Option<Estimator>) -> Self {
        Self { estimator, ..self }
    }

    /// What a request of `prompt` carries through the engine for the hit-ratio curve; `None` where
    /// none is drawn.
    #[must_use]
    pub fn follow(&self, namespace: &Namespace, prompt: &[TokenId]) -> Option<Follower> {
        self.estimator.as_ref().map(|estimator| estimator.follow(namespace, prompt))
    }

    /// The hit-ratio curve now; `None` where none is drawn.
    #[must_use]
    pub fn curve(&self) -> Option<CurveSnapshot> {
        self.estimator.as_ref().map(Estimator::snapshot)
    }

    /// Hands a request over. From here on its sink hears exactly one end.
    ///
    /// # Errors
    /// [`SubmitRefused`] gives the submission back, its permit included.
    pub fn submit(&self, submission: Submission) -> Result<(), SubmitRefused> {
        self.submit_all(vec![submission])
    }

    /// Hands over all of these requests, as the choices of one response, or none. From here on
    /// each of their sinks hears exactly one end.
    ///
    /// # Errors
    /// [`SubmitRefused`] gives all submissions back, their permits included. More at once than
    /// [`EngineConfig::max_submissions`](crate::EngineConfig::max_submissions) are never accepted.
    pub fn submit_all(&self, submissions: Vec<Submission>) -> Result<(), SubmitRefused> {
        if let Some(error) = submissions.iter().find_map(|one| self.check(one).err()) {
            return Err(SubmitRefused { submissions, error });
        }
        let refused = |(submissions, error)| SubmitRefused { submissions, error };
        self.owner.mailbox.submit_all(submissions).map_err(refused)
    }

    /// Ends a request within one step, wherever it is; nothing happens when it has ended.
    pub fn abort(&self, id: RequestId, reason: AbortReason) {
        self.owner.mailbox.abort(id, reason);
    }

    /// Ends everything that is here now within one step, as [`abort`](Self::abort) does; what comes
    /// later is taken as ever. Returns how many requests that are.
    pub fn abort_all(&self, reason: AbortReason) -> usize {
        self.owner.mailbox.abort_all(reason)
    }

    /// What a link tells of a request: takes effect within one step. Requests that are not, or no
    /// longer, here are ignored.
    pub fn news(&self, id: RequestId, news: News) {
        self.owner.mailbox.news(id, news);
    }

    /// Refuses new requests at the front door, finishes those that have a permit, aborts what is
    /// left at `deadline`; then the engine's thread ends.
    pub fn drain(&self, deadline: Time) {
        self.admission.set_draining(true);
        self.owner.mailbox.drain(deadline);
    }

    /// Aborts everything; then the engine's thread ends.
    pub fn shutdown(&self) {
        self.admission.set_draining(true);
        self.owner.mailbox.shutdown();
    }

    /// Longest time that a request may wait to start, from the engine's next step on, for those too
    /// that wait already; `None` is no limit.
    pub fn set_queue_timeout(&self, limit: Option<Duration>) {
        self.shared.set_queue_timeout(limit);
        self.owner.mailbox.nudge();
    }

    /// The engine now.
    #[must_use]
    pub fn snapshot(&self) -> EngineSnapshot {
        self.shared.snapshot().clone()
    }

    /// The most tokens, prompt and answer together, that one request may ever have.
    #[must_use]
    pub fn max_request_tokens(&self) -> usize {
        self.shared.max_request_tokens
    }

    /// Tokens of `prompt` that are cached now, for [`QueuePermit::charge_cached`]. Changes nothing;
    /// they may be gone, or more, when the request starts.
    ///
    /// [`QueuePermit::charge_cached`]: admission::QueuePermit::charge_cached
    #[must_use]
    pub fn cached_prefix(&self, namespace: &Namespace, prompt: &[TokenId]) -> usize {
        self.pools.cached_prefix(namespace, prompt).tokens
    }

    /// Of a prompt that begins with `beginning`, the tokens that are cached now, whatever follows;
    /// `None` where that depends on what follows. Only where no pool has a window.
    #[must_use]
    pub fn cached_before(&self, namespace: &Namespace, beginning: &[TokenId]) -> Option<usize> {
        let page = self.pools.specs().first().map_or(1, |spec| spec.page_tokens);
        let whole = beginning.len().saturating_sub(1) / page * page;
        let cached = self.cached_prefix(namespace, beginning);
        (cached < whole || !self.pools.is_enabled()).then_some(cached)
    }

    /// Whether a request of so many tokens, prompt and answer together, can ever run.
    #[must_use]
    pub fn fits(&self, tokens: usize) -> bool {
        tokens <= self.shared.max_request_tokens
    }

    fn check(&self, submission: &Submission) -> Result<(), SubmitError> {
        let Submission { prompt, max_tokens, .. } = submission;
        if prompt.is_empty() {
            return Err(SubmitError::Invalid("the prompt has no tokens"));
        }
        if prompt.iter().any(|token| token.index() >= self.shared.vocab) {
            return Err(SubmitError::Invalid("a token of the prompt is outside the vocabulary"));
        }
        let Submission { remote, send, prompt_logprobs, .. } = submission;
        let elsewhere = remote.is_some() || send.is_some();
        if elsewhere && *prompt_logprobs {
            let what = "a prompt that is scored is computed by the worker that answers";
            return Err(SubmitError::Invalid(what));
        }
        if remote.is_some() && prompt.len() < 2 {
            let what = "a prompt of one token has nothing that could be computed elsewhere";
            return Err(SubmitError::Invalid(what));
        }
        if send.is_some() && (remote.is_some() || *max_tokens > 0) {
            let what = "a prompt is computed for another worker once, and not answered here";
            return Err(SubmitError::Invalid(what));
        }
        if !self.fits(prompt.len().saturating_add(*max_tokens)) {
            return Err(SubmitError::TooLong {
                prompt_tokens: prompt.len(),
                max_tokens: *max_tokens,
                limit: self.shared.max_request_tokens,
            });
        }
        Ok(())
    }
}

impl transfer::NewsSink for Handle {
    fn news(&self, request: RequestId, news: News) {
        Self::news(self, request, news);
    }
}
