//! What the front door hands to the engine.

use std::sync::Arc;

use admission::QueuePermit;
use kv_cache::Namespace;
use model::{Constraint, SamplingParams};
use transfer::{Landing, Sending};
use types::{RequestId, Time, TokenId};

use crate::curve::Follower;
use crate::output::Sink;

/// A request on its way into the engine.
pub struct Submission {
    /// Its name; unique among all requests of the process.
    pub id: RequestId,
    /// Its place in the queue, charged with the prompt's tokens.
    pub permit: QueuePermit,
    /// At least one token, each below the model's vocabulary.
    pub prompt: Vec<TokenId>,
    /// Whose it is, for fair shares; `None` is one tenant, that of everybody without a name.
    pub tenant: Option<Arc<str>>,
    /// With whom it may share cached pages.
    pub namespace: Namespace,
    /// Whether its sink wants the log-probability of every token of the prompt.
    pub prompt_logprobs: bool,
    /// How its tokens are chosen.
    pub sampling: SamplingParams,
    /// What the answer must look like, where it must look like something; then `stop_tokens` must
    /// not be empty, or it could not end.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Most tokens to generate; 0: it ends once the prompt is computed.
    pub max_tokens: usize,
    /// Tokens that end the answer; empty to ignore them.
    pub stop_tokens: Vec<TokenId>,
    /// What the hit-ratio curve learns of it, where one is drawn.
    pub follower: Option<Follower>,
    /// Decode: the KV of all but the last token of the prompt, which then has two at least, comes
    /// from a prefill worker; without `prompt_logprobs`.
    pub remote: Option<Box<dyn Landing>>,
    /// Prefill: the KV of the prompt, which is all that a decode worker wants but its last token,
    /// goes to that worker. With `max_tokens` 0, without `prompt_logprobs` and `remote`.
    pub send: Option<Box<dyn Sending>>,
    /// Takes its tokens and its end.
    pub sink: Box<dyn Sink>,
    /// Whether its client reads a stream; passed through to the values about it.
    pub streaming: bool,
    /// When this process accepted it.
    pub arrived: Time,
    /// When its prompt was tokens.
    pub tokenized: Time,
}

impl std::fmt::Debug for Submission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Submission")
            .field("id", &self.id)
            .field("prompt", &self.prompt.len())
            .field("max_tokens", &self.max_tokens)
            .finish_non_exhaustive()
    }
}
