//! What leaves the engine for one request: its tokens, and exactly one end.

use std::time::Duration;

use admission::Rejected;
use transfer::Failure;
use types::{Priority, RequestId, Time, TokenId};

use crate::event::AbortReason;

/// Takes the tokens of one request. Runs on the engine's thread: it must not block, and what it
/// does is paid by every running request.
pub trait Sink: Send {
    /// One generated token, in order. The verdict counts at once: after `Stop`, `Gone` or `Slow`
    /// not one token more is computed for this request.
    ///
    /// A panic in here ends this request with [`RequestError::Sink`] and no other.
    fn token(&mut self, event: &TokenEvent<'_>) -> Verdict;

    /// The log-probability of a token of the prompt, given the tokens before it: of every token but
    /// the first, in order, before the first generated one. Only where
    /// [`Submission::prompt_logprobs`](crate::Submission::prompt_logprobs) asked. Verdict and panic
    /// count as those of [`token`](Self::token), but `Stop` is none here and counts as `Continue`.
    fn prompt_logprob(&mut self, _event: &PromptLogprob<'_>) -> Verdict {
        Verdict::Continue
    }

    /// Whether the answer so far makes calls of tools: only the sink reads text. Asked once, at a
    /// regular end.
    fn called_tools(&self) -> bool {
        false
    }

    /// The end. Called exactly once for every accepted submission, after the request's pages are
    /// free, its end is observed and the snapshot shows it gone.
    fn finish(self: Box<Self>, end: &RequestEnd);
}

/// A generated token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenEvent<'a> {
    /// The token.
    pub token: TokenId,
    /// Its place in the answer, from 0.
    pub index: usize,
    /// Its log-probability, where the request asked for it.
    pub logprob: Option<f32>,
    /// The most likely tokens with theirs, where asked.
    pub top: &'a [(TokenId, f32)],
    /// When the step that made it ended.
    pub now: Time,
    /// Set on the last token: `Stop` means that this is a stop token, whose text is not shown;
    /// `Length` that the answer is full.
    pub finish: Option<Finish>,
}

/// A scored token of the prompt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PromptLogprob<'a> {
    /// The token.
    pub token: TokenId,
    /// Its place in the prompt; at least 1.
    pub index: usize,
    /// The natural logarithm of its probability.
    pub logprob: f32,
    /// The most likely tokens at its place with theirs, as many as `SamplingParams::logprobs`
    /// wants.
    pub top: &'a [(TokenId, f32)],
}

/// What the sink makes of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Continue,
    /// A stop string is complete: end with [`Outcome::Stop`].
    Stop,
    /// The client has left.
    Gone,
    /// The client's channel is full.
    Slow,
}

/// A regular end, as the wire format names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Finish {
    /// A stop token or a stop string.
    Stop,
    /// `max_tokens` tokens were generated.
    Length,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A stop token or a stop string.
    Stop,
    /// `max_tokens` tokens were generated.
    Length,
    /// Given up before completion.
    Aborted(Abort),
    /// Refused while it waited: a better one took its place, or it waited too long. Nothing of it
    /// was computed and its sink heard no token.
    Rejected(Rejected),
    /// Something broke.
    Error(RequestError),
}

/// Where and why a request was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abort {
    /// Where it was.
    pub stage: Stage,
    /// Why; names the initiator too.
    pub reason: AbortReason,
}

/// Where a request is when it is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Waiting for its first chunk, for a slot after its KV has come, or retracted.
    Queued,
    /// Waiting for the pages of the decode worker, on either side.
    Bootstrap,
    /// Its prompt is being computed.
    Prefill,
    /// Its KV is on its way: waited for here, or computed here and not yet received.
    Transfer,
    /// It has generated tokens and is in the running batch.
    Decode,
}

/// Why a request ended with an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The model gave numbers for this request from which no token can be chosen.
    #[error("the model's output is unusable: {0}")]
    Model(String),
    /// The engine failed; every request it had ends like this.
    #[error("the engine failed: {0}")]
    Engine(String),
    /// The request's own sink panicked.
    #[error("the output of this request failed")]
    Sink,
    /// Its KV did not come from the prefill worker, or did not get to the decode worker.
    #[error("the transfer of its KV cache failed: {0}")]
    Transfer(Failure),
}

/// The end of a request: outcome, usage and times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestEnd {
    /// The request.
    pub id: RequestId,
    /// How it ended.
    pub outcome: Outcome,
    /// Whether it ended with [`Outcome::Stop`] and calls of tools, as its sink says.
    pub tool_calls: bool,
    /// How much it mattered; passed through from the submission.
    pub priority: Priority,
    /// Whether its client reads a stream; passed through from the submission.
    pub streaming: bool,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the prompt whose KV was taken from the prefix cache instead of being computed,
    /// when it was first scheduled or from others that computed the same meanwhile.
    pub cached_tokens: usize,
    /// Tokens of the prompt whose KV came from a prefill worker.
    pub remote_tokens: usize,
    /// Tokens generated, a stop token included.
    pub generated_tokens: usize,
    /// Tokens computed more than once, because of preemptions.
    pub recomputed_tokens: usize,
    /// How often it was retracted.
    pub preemptions: usize,
    /// When what happened.
    pub timings: Timings,
}

/// The times of a request, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// Accepted by this process.
    pub arrived: Time,
    /// Its prompt was tokens.
    pub tokenized: Time,
    /// Its first chunk was scheduled.
    pub scheduled: Option<Time>,
    /// Its first token was there.
    pub first_token: Option<Time>,
    /// Its last token was there.
    pub last_token: Option<Time>,
    /// It left the engine.
    pub ended: Time,
    /// Time in the waiting queue, here or at the prefill worker, and in the retracted queue before
    /// the first token (or the end).
    pub queued: Duration,
    /// Time until the decode worker had pages: in the bootstrap queue, or in prealloc.
    pub bootstrap: Duration,
    /// What happened to a prompt that was computed elsewhere.
    pub remote: Option<RemotePhases>,
}

/// The times of a request whose KV came from a prefill worker, by the clock of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemotePhases {
    /// In the prefill worker's batch; 0 before its KV has come.
    pub prefill: Duration,
    /// The rest of the time until its KV was here.
    pub transfer: Duration,
    /// From then on outside of the running batch, retractions before the first token included.
    pub decode_queue: Duration,
}

/// Exclusive parts of the time to the first token; they add up to it exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TtftPhases {
    /// From accept until the prompt was tokens.
    pub tokenize: Duration,
    /// In the waiting queue, and in the retracted queue before the first token. Where the prompt
    /// was computed elsewhere, there, and until the prefill worker said that it has started.
    pub queue: Duration,
    /// Until there were pages for KV from elsewhere.
    pub bootstrap: Duration,
    /// In the running batch; where the prompt was computed elsewhere, there.
    pub prefill: Duration,
    /// From the end of the prefill elsewhere until all of its KV was here.
    pub kv_transfer: Duration,
    /// With all KV here, outside of the running batch.
    pub decode_queue: Duration,
    /// In the running batch, for the last token of a prompt that was computed elsewhere.
    pub first_decode: Duration,
}

impl TtftPhases {
    /// All of them together.
    #[must_use]
    pub fn total(&self) -> Duration {
        let Self { tokenize, queue, bootstrap, prefill, kv_transfer, decode_queue, first_decode } =
            *self;
        tokenize + queue + bootstrap + prefill + kv_transfer + decode_queue + first_decode
    }
}

impl Timings {
    /// From accept to the first token.
    #[must_use]
    pub fn ttft(&self) -> Option<Duration> {
        self.first_token.map(|first| first.since(self.arrived))
    }

    /// The parts of [`ttft`](Self::ttft).
    #[must_use]
    pub fn ttft_phases(&self) -> Option<TtftPhases> {
        let ttft = self.ttft()?;
        let (queue, bootstrap) = (self.queued, self.bootstrap);
        let tokenize = self.tokenized.since(self.arrived);
        let known = TtftPhases { tokenize, queue, bootstrap, ..TtftPhases::default() };
        Some(match self.remote {
            None => TtftPhases { prefill: ttft.saturating_sub(known.total()), ..known },
            Some(RemotePhases { prefill, transfer, decode_queue }) => {
                let known = TtftPhases { prefill, kv_transfer: transfer, decode_queue, ..known };
                TtftPhases { first_decode: ttft.saturating_sub(known.total()), ..known }
            }
        })
    }

    /// From accept to the end.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.ended.since(self.arrived)
    }
}

impl RequestEnd {
    /// The mean gap between output tokens; `None` below two tokens.
    #[must_use]
    pub fn time_per_output_token(&self) -> Option<Duration> {
        let gaps = u32::try_from(self.generated_tokens.checked_sub(1)?).ok()?;
        let span = self.timings.last_token?.since(self.timings.first_token?);
        span.checked_div(gaps)
    }
}

impl From<Finish> for Outcome {
    fn from(finish: Finish) -> Self {
        match finish {
            Finish::Stop => Self::Stop,
            Finish::Length => Self::Length,
        }
    }
}

impl Stage {
    /// Every stage, in declaration order.
    pub const ALL: [Self; 5] =
        [Self::Queued, Self::Bootstrap, Self::Prefill, Self::Transfer, Self::Decode];
}
