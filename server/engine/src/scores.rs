//! Log-probabilities of prompts: which rows of logits they need, and how many fit into a step.

use std::panic::{AssertUnwindSafe, catch_unwind};

use model::{Logits, Scorer};
use types::TokenId;

use crate::output::{PromptLogprob, RequestError, Sink, Verdict};

/// Most bytes of logits that a step makes for scoring prompts, over all requests. A vocabulary of
/// 128,000 tokens gets 131 rows of them. One row always fits.
const LOGITS_BYTES: usize = 64 << 20;

/// Most prompt tokens that a step scores.
pub(crate) fn rows_per_step(vocab: usize) -> usize {
    (LOGITS_BYTES / size_of::<f32>() / vocab.max(1)).max(1)
}

/// How far the scoring of one prompt is. It survives retractions: what was told is not told again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scores {
    /// Alternatives per token.
    most: u8,
    /// Positions whose logits have scored the token after them.
    done: usize,
}

/// A row of logits per token: those that followed the tokens from position `start` on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) logits: &'a Logits,
    /// The first row.
    pub(crate) first: usize,
    pub(crate) start: usize,
    pub(crate) count: usize,
}

impl Scores {
    pub(crate) fn new(most: Option<u8>) -> Self {
        Self { most: most.unwrap_or(0), done: 0 }
    }

    /// Whether tokens of a prompt of this length are not scored yet.
    pub(crate) const fn wants(&self, prompt: usize) -> bool {
        self.done + 1 < prompt
    }

    /// For how many of the last tokens of a slice the logits are wanted.
    pub(crate) fn rows(&self, start: usize, len: usize, prompt: usize) -> usize {
        let (from, end) = (start.max(self.done), start + len);
        if from < end.min(prompt.saturating_sub(1)) { end - from } else { 0 }
    }

    /// Scores what `rows` can score and tells the sink, until it wants no more.
    pub(crate) fn score(
        &mut self,
        prompt: &[TokenId],
        rows: Rows<'_>,
        scorer: &mut Scorer,
        sink: &mut dyn Sink,
    ) -> Result<Verdict, RequestError> {
        for at in 0..rows.count {
            let position = rows.start + at;
            let Some(&token) = prompt.get(position + 1) else { break };
            if position < self.done {
                continue;
            }
            let row = rows.logits.row(rows.first + at);
            let scored = scorer.score(row, token, self.most);
            let logprob = scored.map_err(|error| RequestError::Model(error.to_string()))?;
            self.done = position + 1;
            let event = PromptLogprob { token, index: position + 1, logprob, top: scorer.top() };
            let call = AssertUnwindSafe(|| sink.prompt_logprob(&event));
            match catch_unwind(call).map_err(|_| RequestError::Sink)? {
                Verdict::Continue | Verdict::Stop => {}
                verdict @ (Verdict::Gone | Verdict::Slow) => return Ok(verdict),
            }
        }
        Ok(Verdict::Continue)
    }
}
