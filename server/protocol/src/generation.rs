//! What the completion and chat endpoints have in common: sampling, stopping, streaming.

mod raw;

use types::{Priority, TokenId};

use crate::Limits;
use crate::error::ApiError;
pub(crate) use raw::{RawGeneration, alternatives};

/// The most answers of one request, over all prompts.
pub const MAX_CHOICES: usize = 128;
/// The most alternatives per token.
pub const MAX_LOGPROBS: u8 = 20;
/// The most stop strings of one request.
pub const MAX_STOPS: usize = 16;
/// The longest stop string.
pub const MAX_STOP_BYTES: usize = 1024;
/// Most entries of `stop_token_ids`: every token of every step is compared with them.
pub const MAX_STOP_TOKENS: usize = 1024;

/// Most entries of `logit_bias`: each of them is added in every step.
pub const MAX_LOGIT_BIAS: usize = 1024;
/// The longest name of a tenant, in a header or in `user`.
pub const MAX_USER_BYTES: usize = 256;
/// The longest `cache_salt`.
pub const MAX_SALT_BYTES: usize = 1024;
/// Most log-probabilities of prompts in one request: prompt tokens times one more than the
/// alternatives, over all answers.
pub const MAX_PROMPT_LOGPROBS: usize = 1 << 18;

/// Checked parameters of generation.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// 0 is greedy; at most 2. Default 1.
    pub temperature: f32,
    /// Sample from this many most likely tokens; 0 is off.
    pub top_k: u32,
    /// Sample from the most likely tokens that hold this probability; above 0, at most 1.
    pub top_p: f32,
    /// Sample from tokens at least this many times as probable as the most likely one; 0 is off.
    pub min_p: f32,
    /// Divides the logits of tokens of prompt and answer; 1 is off; above 0, at most 10.
    pub repetition_penalty: f32,
    /// Subtracted from the logits of tokens of the answer; -2 to 2.
    pub presence_penalty: f32,
    /// Subtracted from them once per occurrence; -2 to 2.
    pub frequency_penalty: f32,
    /// Added to the logits of these tokens, each in the vocabulary; -100 to 100.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Makes sampling repeatable.
    pub seed: Option<u64>,
    /// The most tokens to generate, where the client said so; at least 1, or 0 where nothing but
    /// the prompt is wanted back.
    pub max_tokens: Option<usize>,
    /// The most tokens to generate, where the client did not say; `None`: what the context holds.
    pub max_tokens_default: Option<usize>,
    /// No end token and no stop string ends the answer before it has this many tokens.
    pub min_tokens: usize,
    /// Answers per prompt, at least 1.
    pub n: usize,
    /// Strings that end the answer, none empty.
    pub stop: Vec<String>,
    /// Tokens that end the answer besides the model's own.
    pub stop_token_ids: Vec<TokenId>,
    /// The model's own end tokens do not end the answer.
    pub ignore_eos: bool,
    /// Log-probabilities asked for, with so many alternatives per token.
    pub logprobs: Option<u8>,
    /// Answer with server-sent events.
    pub stream: bool,
    /// End the stream with a chunk of usage.
    pub include_usage: bool,
    /// How much the request matters against others.
    pub priority: Priority,
    /// Who the client says it asks for; names the tenant where no header does.
    pub user: Option<String>,
    /// Only requests with the same salt share what is cached of their prompts.
    pub cache_salt: Option<String>,
}

impl Generation {
    /// The seed of one of the answers, counted over all prompts: with a seed, each answer has
    /// its own, and the first has the one that was sent.
    #[must_use]
    pub fn seed_of(&self, choice: usize) -> Option<u64> {
        self.seed.map(|seed| seed.wrapping_add(choice as u64))
    }

    /// How many tokens may be generated after a prompt of `prompt_tokens`: what was asked for,
    /// which must fit the context, or else the default, but no less than `min_tokens`, cut to what
    /// fits. 0 only where 0 was asked for.
    pub fn budget(&self, prompt_tokens: usize, limits: &Limits) -> Result<usize, ApiError> {
        if prompt_tokens == 0 {
            return Err(ApiError::invalid("prompt", "The prompt has no tokens."));
        }
        let most = limits.max_context;
        let wanted = self.max_tokens.unwrap_or(1);
        let total = prompt_tokens.saturating_add(wanted);
        if total > most {
            return Err(ApiError::context_length(format!(
                "This model's maximum context length is {most} tokens. However, you requested \
                 {total} tokens ({prompt_tokens} in the prompt, {wanted} in the completion). \
                 Please reduce the length of the prompt or of the completion."
            )));
        }
        let room = most - prompt_tokens;
        let default = self.max_tokens_default.unwrap_or(room).max(self.min_tokens);
        Ok(self.max_tokens.unwrap_or_else(|| room.min(default)))
    }
}
