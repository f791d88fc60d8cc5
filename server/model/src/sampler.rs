//! From a row of logits to a token.
//!
//! A sampler belongs to one request and owns its randomness, so that what runs beside the request
//! never changes its tokens. The order of operations is part of what the parameters mean:
//!
//! 1. Log-probabilities, where asked for, are of the row as the model gave it.
//! 2. `repetition_penalty` on every token of the prompt and the answer: positive logits are
//!    divided by it, others multiplied.
//! 3. `presence_penalty`, and `frequency_penalty` times the count, are subtracted for tokens of the
//!    answer.
//! 4. `logit_bias` is added.
//! 5. The constraint's mask; then, up to `min_tokens`, the stop tokens are taken out. Where the
//!    constraint leaves nothing but stop tokens, they stay in.
//! 6. Greedy: the likeliest token, the lowest of equals. Otherwise temperature, then `top_k`, then
//!    `top_p` of what is left, then `min_p` relative to the likeliest, then one draw.
//!
//! Work: greedy without 1 to 5 is a pass over the row. Steps 2 to 5 copy the row once. `top_k` and
//! `min_p` take one more pass and weigh only what they keep; `top_p` (and a draw among all tokens)
//! weighs the row and sorts no more than the nucleus needs. Memory is kept from token to token.
//!
//! Stop strings and the length are not here.

mod constraint;
mod history;
mod random;
mod score;
mod select;

use kernels::{all_finite, argmax};
use types::TokenId;

use crate::runner::RunError;
pub use constraint::{Constraint, ConstraintError, TokenMask};
use history::History;
use random::SplitMix;
pub use score::Scorer;
use select::Draw;

/// Below this a temperature means greedy: dividing by it would only overflow.
const MIN_TEMPERATURE: f32 = 1e-5;

/// How to choose the next token. `Default` is greedy without log-probabilities, with everything
/// else off. A value that is not a finite number turns its parameter off.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingParams {
    /// Divides the logits; zero (or anything not above 1e-5) means greedy.
    pub temperature: f32,
    /// Only the k most likely tokens take part; 0 means all.
    pub top_k: u32,
    /// Only the fewest most likely tokens whose probabilities reach this take part. Anything
    /// outside `0.0..1.0` means all; the most likely token always takes part.
    pub top_p: f32,
    /// Only tokens at least this many times as probable as the most likely one take part; 0 means
    /// all. Above 1 counts as 1.
    pub min_p: f32,
    /// Makes tokens of the prompt and the answer less likely above 1, more likely below; 1 (or
    /// anything not above 0) is off.
    pub repetition_penalty: f32,
    /// Subtracted from the logit of every token of the answer.
    pub presence_penalty: f32,
    /// Subtracted from the logit of every token of the answer, as often as it occurs there.
    pub frequency_penalty: f32,
    /// Added to the logits of these tokens; those past the vocabulary are ignored.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Stop tokens are not chosen before the answer has this many tokens.
    pub min_tokens: usize,
    /// Start of the random numbers; `None` takes the seed that the caller of [`Sampler::new`]
    /// gives.
    pub seed: Option<u64>,
    /// Wanted log-probabilities: of the chosen token and of this many most likely ones.
    pub logprobs: Option<u8>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            min_tokens: 0,
            seed: None,
            logprobs: None,
        }
    }
}

impl SamplingParams {
    /// Whether the most likely token is always chosen, after penalties, biases and masks.
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        self.temperature.is_nan() || self.temperature <= MIN_TEMPERATURE || self.top_k == 1
    }

    /// Whether the repetition penalty changes anything.
    fn repeats(&self) -> bool {
        self.repetition_penalty > 0.0 && self.repetition_penalty != 1.0
    }

    /// Whether any penalty looks at the tokens of the answer.
    fn penalises(&self) -> bool {
        self.repeats() || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    /// With everything that is not a number turned off.
    fn sound(mut self) -> Self {
        let finite = |value: f32, off: f32| if value.is_finite() { value } else { off };
        self.top_p = finite(self.top_p, 1.0);
        self.min_p = finite(self.min_p, 0.0).min(1.0);
        self.repetition_penalty = finite(self.repetition_penalty, 1.0);
        self.presence_penalty = finite(self.presence_penalty, 0.0);
        self.frequency_penalty = finite(self.frequency_penalty, 0.0);
        self.logit_bias.retain(|(_, bias)| bias.is_finite());
        self
    }
}

/// A chosen token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampled {
    /// The token.
    pub token: TokenId,
    /// The natural logarithm of its probability in the model's own distribution, where
    /// [`SamplingParams::logprobs`] asked.
    pub logprob: Option<f32>,
}

/// Draws the tokens of one request.
pub struct Sampler {
    params: SamplingParams,
    vocab: usize,
    /// Sorted, distinct, in the vocabulary.
    stop_tokens: Vec<TokenId>,
    constraint: Option<Box<dyn Constraint>>,
    history: History,
    random: SplitMix,
    /// Tokens chosen so far.
    chosen: usize,
    /// Reused: the row after penalties, biases and masks.
    shaped: Vec<f32>,
    draw: Draw,
    scorer: Scorer,
}

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampler")
            .field("params", &self.params)
            .field("constrained", &self.constraint.is_some())
            .field("chosen", &self.chosen)
            .finish_non_exhaustive()
    }
}

impl Sampler {
    /// A sampler of rows of `vocab` logits for a request with this prompt, which `stop_tokens`
    /// end. It starts at `params.seed`, or at `fallback_seed` where there is none.
    #[must_use]
    pub fn new(
        params: SamplingParams,
        stop_tokens: &[TokenId],
        constraint: Option<Box<dyn Constraint>>,
        prompt: &[TokenId],
        vocab: usize,
        fallback_seed: u64,
    ) -> Self {
        let params = params.sound();
        let mut stop_tokens: Vec<TokenId> =
            stop_tokens.iter().copied().filter(|token| token.index() < vocab).collect();
        stop_tokens.sort_unstable();
        stop_tokens.dedup();
        Self {
            random: SplitMix(params.seed.unwrap_or(fallback_seed)),
            history: History::new(&params, prompt, vocab),
            params,
            vocab,
            stop_tokens,
            constraint,
            chosen: 0,
            shaped: Vec::new(),
            draw: Draw::default(),
            scorer: Scorer::default(),
        }
    }

    /// Chooses a token and goes on behind it. Takes exactly one random number unless greedy, so
    /// the n-th token of a request depends on the seed, on n, on its logits and on its own earlier
    /// tokens only.
    ///
    /// # Errors
    /// [`RunError::NonFinite`] where a logit is not finite; [`RunError::Constraint`] where the
    /// constraint fails or leaves no token; [`RunError::Backend`] where the row is not as long as
    /// the vocabulary.
    pub fn sample(&mut self, logits: &[f32]) -> Result<Sampled, RunError> {
        if logits.len() != self.vocab {
            let (found, vocab) = (logits.len(), self.vocab);
            return Err(RunError::Backend(format!("{found} logits of a vocabulary of {vocab}")));
        }
        let best = finite_argmax(logits)?;
        let token = if self.shape(logits)? {
            let best = argmax(&self.shaped).filter(|&best| self.shaped[best].is_finite());
            let best = best.and_then(|best| u32::try_from(best).ok());
            let none = || ConstraintError("no token of the vocabulary is allowed".to_owned());
            let best = best.ok_or_else(none).map_err(RunError::Constraint)?;
            self.choose(None, best)
        } else {
            self.choose(Some(logits), best)
        };
        self.scorer.clear();
        let most = self.params.logprobs;
        let logprob = most.map(|most| self.scorer.score_finite(logits, token, most)).transpose()?;
        self.accept(token)?;
        Ok(Sampled { token, logprob })
    }

    /// The most likely tokens of the last row, where [`SamplingParams::logprobs`] asked, most
    /// likely first; may not hold the chosen one.
    #[must_use]
    pub fn top(&self) -> &[(TokenId, f32)] {
        self.scorer.top()
    }

    /// Writes the row as penalties, biases and masks leave it into `shaped`. `false`: they change
    /// nothing, and `shaped` holds nothing.
    fn shape(&mut self, logits: &[f32]) -> Result<bool, RunError> {
        let stops = &self.stop_tokens;
        let suppress = self.chosen < self.params.min_tokens && !stops.is_empty();
        let ends = |constraint: &dyn Constraint| constraint.is_complete() && !stops.is_empty();
        let (complete, mask) = match &mut self.constraint {
            Some(constraint) if ends(&**constraint) => (true, None),
            Some(constraint) => (false, constraint.mask().map_err(RunError::Constraint)?),
            None => (false, None),
        };
        let sparse = !self.history.is_empty() || !self.params.logit_bias.is_empty();
        if !sparse && !suppress && !complete && mask.is_none() {
            return Ok(false);
        }
        let row = &mut self.shaped;
        row.clear();
        row.extend_from_slice(logits);
        self.history.penalise(row, &self.params);
        for (token, bias) in &self.params.logit_bias {
            if let Some(logit) = row.get_mut(token.index()) {
                *logit += bias;
            }
        }
        if complete {
            // The stop tokens are sorted: what lies between them goes.
            let mut from = 0;
            for stop in stops {
                row[from..stop.index()].fill(f32::NEG_INFINITY);
                from = stop.index() + 1;
            }
            row[from..].fill(f32::NEG_INFINITY);
            return Ok(true);
        }
        if let Some(mask) = mask {
            mask.apply(row);
        }
        let only_stops = |mask: &TokenMask| {
            mask.count() == stops.iter().filter(|stop| mask.allows(**stop)).count()
        };
        if suppress && !mask.is_some_and(only_stops) {
            for stop in stops {
                row[stop.index()] = f32::NEG_INFINITY;
            }
        }
        Ok(true)
    }

    /// Chooses from `row`, or from the shaped row where there is none.
    fn choose(&mut self, row: Option<&[f32]>, best: u32) -> TokenId {
        if self.params.is_greedy() {
            return TokenId(best);
        }
        let uniform = self.random.next_unit();
        let row = row.unwrap_or(&self.shaped);
        TokenId(self.draw.draw(row, best, &self.params, uniform))
    }

    fn accept(&mut self, token: TokenId) -> Result<(), RunError> {
        self.chosen += 1;
        self.history.add(token);
        match &mut self.constraint {
            Some(constraint) if self.stop_tokens.binary_search(&token).is_err() => {
                constraint.accept(token).map_err(RunError::Constraint)
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// The lowest index of the largest logit.
fn finite_argmax(logits: &[f32]) -> Result<u32, RunError> {
    if !all_finite(logits) {
        let (token, value) =
            (0u32..).zip(logits).find(|(_, x)| !x.is_finite()).expect("one was not finite");
        return Err(RunError::NonFinite { token, value: value.to_string() });
    }
    let best = argmax(logits).and_then(|best| u32::try_from(best).ok());
    best.ok_or_else(|| RunError::Backend("no logits to choose from".to_owned()))
}

#[cfg(test)]
mod tests;
