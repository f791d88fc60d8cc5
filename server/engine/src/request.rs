//! One request: its tokens, its pages, and the one state machine that says where it is.

mod link;
mod phase;
mod taken;
mod tell;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use admission::Rank;
use kv_cache::{Claims, Namespace, PageTable, PoolSet};
use model::{Logits, Sampler, Scorer};
use types::{Priority, RequestId, Time, TokenId};

use crate::curve::Follower;
use crate::output::{Finish, RequestError, Sink, Timings, Verdict};
use crate::scores::{Rows, Scores};
use crate::submission::Submission;
use crate::tenants::Slot;

pub(crate) use link::{Inbox, Outbox};
pub(crate) use phase::Phase;
pub(crate) use taken::Taken;
pub(crate) use tell::{SinkPanicked, ask};

/// A request inside the engine.
pub(crate) struct Request {
    pub(crate) id: RequestId,
    /// Its place in the order of service, that of its permit.
    pub(crate) rank: Rank,
    /// How much it matters, without its age.
    pub(crate) priority: Priority,
    pub(crate) tenant: Option<Arc<str>>,
    /// Its tenant among the active ones, where tenants take turns.
    pub(crate) slot: Option<Slot>,
    pub(crate) phase: Phase,
    /// Prompt and answer.
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) table: PageTable,
    pub(crate) namespace: Namespace,
    pub(crate) sampler: Sampler,
    pub(crate) sink: Box<dyn Sink>,
    follower: Option<Follower>,
    pub(crate) timings: Timings,
    prompt_tokens: usize,
    max_tokens: usize,
    stop_tokens: Vec<TokenId>,
    streaming: bool,
    /// Tokens whose KV is in the pages.
    computed: usize,
    /// Tokens whose KV was ever in its pages, computed or taken: what is below is recomputed.
    ever_computed: usize,
    recomputed: usize,
    /// Prompt tokens whose KV was taken from the cache instead of being computed.
    cached: usize,
    /// Prompt tokens whose KV a prefill worker has sent.
    remote_tokens: usize,
    was_looked_up: bool,
    /// Positions whose pages have come from storage for it.
    fetched: Range<usize>,
    preemptions: usize,
    /// The log-probabilities of the prompt, where they are wanted.
    scores: Option<Scores>,
    /// Since when it has been in its present queue.
    queued_since: Time,
    /// Since when it runs, and for how long it ran before it was last retracted.
    running_since: Time,
    ran: Duration,
    /// Where its prompt is computed, until all of it is here.
    inbox: Option<Inbox>,
    /// Where its KV goes.
    outbox: Option<Outbox>,
    /// Its link has told of its end itself.
    told_over: bool,
}

/// What computing a slice meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Computed {
    /// Prompt tokens computed for the first time.
    pub(crate) prompt: usize,
    /// Tokens computed again.
    pub(crate) again: usize,
}

impl Request {
    /// A request that came in, for a model of `vocab` tokens. Times that run backwards are clamped,
    /// so that phases add up.
    pub(crate) fn new(
        submission: Submission,
        table: PageTable,
        vocab: usize,
        seed: u64,
        now: Time,
    ) -> Self {
        let Submission { id, permit, prompt, sampling, max_tokens, stop_tokens, .. } = submission;
        // The id sets two requests without a seed apart.
        let seed = seed ^ id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let constraint = submission.constraint;
        let scores = submission.prompt_logprobs.then(|| Scores::new(sampling.logprobs));
        let sampler = Sampler::new(sampling, &stop_tokens, constraint, &prompt, vocab, seed);
        let tokenized = submission.tokenized.max(submission.arrived);
        let timings = Timings {
            arrived: submission.arrived,
            tokenized,
            scheduled: None,
            first_token: None,
            last_token: None,
            ended: now,
            queued: Duration::ZERO,
            bootstrap: Duration::ZERO,
            remote: None,
        };
        let (remote, send) = (submission.remote, submission.send);
        Self {
            id,
            rank: permit.rank(),
            priority: permit.priority(),
            tenant: submission.tenant,
            slot: None,
            phase: match (&remote, &send) {
                (Some(_), _) => Phase::Prealloc(permit),
                (None, Some(_)) => Phase::Bootstrap(permit),
                (None, None) => Phase::Waiting(permit),
            },
            prompt_tokens: prompt.len(),
            tokens: prompt,
            table,
            namespace: submission.namespace,
            sampler,
            sink: submission.sink,
            follower: submission.follower,
            timings,
            max_tokens,
            stop_tokens,
            streaming: submission.streaming,
            computed: 0,
            ever_computed: 0,
            recomputed: 0,
            cached: 0,
            remote_tokens: 0,
            was_looked_up: false,
            fetched: 0..0,
            preemptions: 0,
            scores,
            queued_since: tokenized,
            running_since: now,
            ran: Duration::ZERO,
            inbox: remote.map(Inbox::new),
            outbox: send.map(Outbox::new),
            told_over: false,
        }
    }

    /// Tokens generated so far.
    pub(crate) const fn generated(&self) -> usize {
        self.tokens.len() - self.prompt_tokens
    }

    /// Tokens in its pages.
    pub(crate) const fn computed(&self) -> usize {
        self.computed
    }

    /// Tokens left to compute before the next one can be chosen.
    pub(crate) const fn uncomputed(&self) -> usize {
        self.tokens.len() - self.computed
    }

    pub(crate) const fn is_decoding(&self) -> bool {
        matches!(self.phase, Phase::Decode)
    }

    pub(crate) const fn streaming(&self) -> bool {
        self.streaming
    }

    /// Since when it has been in its present queue; meaningless while it runs.
    pub(crate) const fn queued_since(&self) -> Time {
        self.queued_since
    }

    /// Takes back the charge of what is cached already. It may be gone when the request starts.
    pub(crate) fn note_cached(&mut self, pools: &PoolSet) {
        if self.scores_prompt() {
            return;
        }
        // What is computed elsewhere is no work for this engine.
        let found = match self.inbox {
            Some(_) => self.tokens.len(),
            None => pools.cached_prefix(&self.namespace, &self.tokens).tokens,
        };
        if let Some(permit) = self.phase.permit_mut() {
            permit.refund_cached((found as u64).saturating_sub(permit.cached()));
        }
    }

    /// Of its pages, those that somebody else holds already, so that it needs no room for them.
    pub(crate) fn pages_held_by_others(&self, pools: &PoolSet) -> usize {
        if self.scores_prompt() {
            return 0;
        }
        pools.cached_prefix(&self.namespace, &self.tokens).held_pages
    }

    /// Owes what it has left to compute of its prompt: what was thought to be cached when it came
    /// may have gone, and more may have come.
    fn settle(&mut self) {
        let rest = self.uncomputed() as u64;
        if let Phase::Prefill(Some(debt)) = &mut self.phase {
            debt.correct(rest);
        }
    }

    /// Whether somebody computes in this step what it would compute next. It is then better off
    /// without: it takes the pages in the next step, and this one has tokens for others.
    pub(crate) fn finds_claimed(&mut self, claims: &mut Claims) -> bool {
        !claims.is_empty()
            && !self.scores_prompt()
            && self.table.is_claimed(&self.namespace, &self.tokens, claims)
    }

    /// Announces the pages of a slice of `len` tokens.
    pub(crate) fn claim(&mut self, len: usize, claims: &mut Claims) {
        self.table.claim(&self.namespace, &self.tokens, self.computed + len, claims);
    }

    /// Computed tokens of prompt and answer, as a retraction would lose them.
    pub(crate) fn computed_parts(&self) -> (usize, usize) {
        let input = self.computed.min(self.prompt_tokens);
        (input, self.computed - input)
    }

    /// A slice of `len` tokens ran. Whole pages of a prompt are there for others from now on, those
    /// of an answer when it ends or is interrupted: nobody can ask for them before, and a step that
    /// decodes should not touch the cache.
    pub(crate) fn advance(&mut self, len: usize) -> Computed {
        let computed = self.cover(len);
        self.recomputed += computed.again;
        self.settle();
        if self.is_decoding() {
            self.table.slide(self.computed);
        } else {
            self.publish();
        }
        if self.computed == self.prompt_tokens {
            self.tell_published();
        }
        computed
    }

    /// Leaves what it has computed to others.
    fn publish(&mut self) {
        self.table.publish(&self.namespace, &self.tokens, self.computed);
    }

    /// So many tokens more are in its pages, computed or taken.
    fn cover(&mut self, len: usize) -> Computed {
        let start = self.computed;
        self.computed += len;
        let again = self.ever_computed.min(self.computed).saturating_sub(start);
        let new = start + again..self.computed;
        let prompt = new.end.min(self.prompt_tokens).saturating_sub(new.start);
        self.ever_computed = self.ever_computed.max(self.computed);
        Computed { prompt, again }
    }

    /// Appends a chosen token. Returns the gap to the one before, `None` for the first.
    pub(crate) fn append(&mut self, token: TokenId, now: Time) -> Option<Duration> {
        self.tokens.push(token);
        self.phase = Phase::Decode;
        let gap = self.timings.last_token.map(|last| now.since(last));
        self.timings.last_token = Some(now);
        self.timings.first_token.get_or_insert(now);
        gap
    }

    /// Whether the token just appended is the last one by itself.
    pub(crate) fn finish(&self) -> Option<Finish> {
        let last = self.tokens.last()?;
        if self.stop_tokens.contains(last) {
            Some(Finish::Stop)
        } else if self.generated() >= self.max_tokens {
            Some(Finish::Length)
        } else {
            None
        }
    }

    /// Whether tokens of the prompt still have to be scored. Each of them has to be computed for
    /// that, so such a request takes nothing from what others have computed.
    pub(crate) fn scores_prompt(&self) -> bool {
        self.scores.as_ref().is_some_and(|scores| scores.wants(self.prompt_tokens))
    }

    /// Whether the next token is chosen after a slice of `len` tokens.
    pub(crate) const fn samples_after(&self, len: usize) -> bool {
        len == self.uncomputed() && self.max_tokens > 0
    }

    /// For how many of the last tokens of a slice of `len` the logits are wanted.
    pub(crate) fn logits_wanted(&self, len: usize) -> usize {
        let sampled = usize::from(self.samples_after(len));
        self.scores.as_ref().map_or(sampled, |scores| {
            scores.rows(self.computed, len, self.prompt_tokens).max(sampled)
        })
    }

    /// Whether it has nothing left to do: its prompt is computed, and no answer is wanted.
    pub(crate) const fn ends_with_prompt(&self) -> bool {
        self.max_tokens == 0 && self.uncomputed() == 0
    }

    /// Scores the prompt with the logits that followed the last `rows` computed tokens, of which
    /// the first is row `first`, and tells the sink.
    pub(crate) fn score_prompt(
        &mut self,
        logits: &Logits,
        first: usize,
        rows: usize,
        scorer: &mut Scorer,
    ) -> Result<Verdict, RequestError> {
        let Some(scores) = &mut self.scores else { return Ok(Verdict::Continue) };
        let prompt = &self.tokens[..self.prompt_tokens];
        let rows = Rows { logits, first, start: self.computed - rows, count: rows };
        scores.score(prompt, rows, scorer, &mut *self.sink)
    }
}
