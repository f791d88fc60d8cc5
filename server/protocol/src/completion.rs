//! Requests to `/v1/completions`.

use serde::Deserialize;

use crate::Limits;
use crate::error::ApiError;
use crate::generation::{Generation, MAX_CHOICES, RawGeneration, alternatives};
use crate::parse::{Int, parse};
use crate::prompt::{self, Prompt, RawPrompt};

/// OpenAI's default length of a completion.
const DEFAULT_MAX_TOKENS: usize = 16;

/// A checked request. Each prompt is answered [`Generation::n`] times; the answers are numbered
/// prompt by prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionParams {
    /// The model's name as sent; whether it is served is for the caller to check.
    pub model: String,
    /// At least one; with `n`, at most [`MAX_CHOICES`] answers.
    pub prompts: Vec<Prompt>,
    /// Sampling, stopping, streaming.
    pub generation: Generation,
    /// The answer begins with the prompt's text; with log-probabilities, with those of its tokens
    /// too.
    pub echo: bool,
}

#[derive(Deserialize)]
struct RawCompletion {
    model: String,
    prompt: RawPrompt,
    echo: Option<bool>,
    logprobs: Option<Int>,
    suffix: Option<String>,
}

impl CompletionParams {
    /// Parses and checks a request body.
    pub fn parse(body: &[u8], limits: &Limits) -> Result<Self, ApiError> {
        let raw: RawCompletion = parse(body)?;
        // The fields in common are read in a second pass: flattening them into one struct would
        // lose the paths of errors.
        let mut generation: RawGeneration = parse(body)?;
        let echo = raw.echo.unwrap_or(false);
        if echo {
            generation.allow_empty_answer();
        }
        let logprobs = raw.logprobs.map(|count| alternatives("logprobs", count)).transpose()?;
        let generation = generation.check(limits, Some(DEFAULT_MAX_TOKENS), logprobs)?;
        let prompts = prompt::check(raw.prompt, limits)?;
        let choices = prompts.len().saturating_mul(generation.n);
        if choices > MAX_CHOICES {
            let message = format!(
                "prompt: {} prompts with n = {} are {choices} answers; at most {MAX_CHOICES}",
                prompts.len(),
                generation.n
            );
            return Err(ApiError::invalid("prompt", message));
        }
        if raw.suffix.is_some_and(|suffix| !suffix.is_empty()) {
            let why = "inserting text is not supported; put what comes before into prompt";
            return Err(ApiError::unsupported("suffix", why));
        }
        Ok(Self { model: raw.model, prompts, generation, echo })
    }
}
