//! `/tokenize` and `/detokenize`, with the fields that vLLM gave them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use types::TokenId;

use crate::Limits;
use crate::error::ApiError;
use crate::message::{self, ChatMessage, RawMessage};
use crate::parse::{Int, Object, parse};
use crate::prompt;

/// A checked request to `/tokenize`.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenizeParams {
    /// The model's name, where sent.
    pub model: Option<String>,
    /// What to tokenize.
    pub input: TokenizeInput,
    /// Add the tokens that the model puts before every text. Default true for text, false for
    /// messages, whose template holds them already.
    pub add_special_tokens: bool,
    /// Return the text of each token too.
    pub return_token_strs: bool,
}

/// Text, or a conversation to be rendered first.
#[derive(Debug, Clone, PartialEq)]
pub enum TokenizeInput {
    /// `prompt`.
    Text(String),
    /// `messages`.
    Chat {
        /// At least one.
        messages: Vec<ChatMessage>,
        /// End with the beginning of the assistant's turn. Default true.
        add_generation_prompt: bool,
        /// Further variables of the chat template.
        template_kwargs: Map<String, Value>,
    },
}

#[derive(Deserialize)]
struct RawTokenize {
    model: Option<String>,
    prompt: Option<String>,
    messages: Option<Vec<Object<RawMessage>>>,
    add_special_tokens: Option<bool>,
    add_generation_prompt: Option<bool>,
    chat_template_kwargs: Option<Map<String, Value>>,
    return_token_strs: Option<bool>,
}

impl TokenizeParams {
    /// Parses and checks a request body.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let raw: RawTokenize = parse(body)?;
        let input = match (raw.prompt, raw.messages) {
            (Some(text), None) => TokenizeInput::Text(text),
            (None, Some(messages)) => TokenizeInput::Chat {
                messages: message::check(messages)?,
                add_generation_prompt: raw.add_generation_prompt.unwrap_or(true),
                template_kwargs: raw.chat_template_kwargs.unwrap_or_default(),
            },
            (None, None) => {
                return Err(ApiError::invalid("prompt", "prompt or messages is required"));
            }
            (Some(_), Some(_)) => {
                let message = "prompt and messages cannot both be given";
                return Err(ApiError::invalid("prompt", message));
            }
        };
        let is_text = matches!(input, TokenizeInput::Text(_));
        Ok(Self {
            model: raw.model,
            input,
            add_special_tokens: raw.add_special_tokens.unwrap_or(is_text),
            return_token_strs: raw.return_token_strs.unwrap_or(false),
        })
    }
}

/// The answer of `/tokenize`.
#[derive(Debug, Clone, Serialize)]
pub struct TokenizeResponse {
    /// How many tokens.
    pub count: usize,
    /// Prompt and answer together have at most this many tokens.
    pub max_model_len: usize,
    /// The ids.
    pub tokens: Vec<u32>,
    /// The text of each token, where asked for.
    pub token_strs: Option<Vec<String>>,
}

impl TokenizeResponse {
    /// An answer with these tokens.
    #[must_use]
    pub fn new(tokens: &[TokenId], token_strs: Option<Vec<String>>, max_model_len: usize) -> Self {
        let tokens: Vec<u32> = tokens.iter().map(|token| token.0).collect();
        Self { count: tokens.len(), max_model_len, tokens, token_strs }
    }
}

/// A checked request to `/detokenize`.
#[derive(Debug, Clone, PartialEq)]
pub struct DetokenizeParams {
    /// The model's name, where sent.
    pub model: Option<String>,
    /// Ids in the vocabulary.
    pub tokens: Vec<TokenId>,
}

#[derive(Deserialize)]
struct RawDetokenize {
    model: Option<String>,
    tokens: Vec<Int>,
}

impl DetokenizeParams {
    /// Parses and checks a request body.
    pub fn parse(body: &[u8], limits: &Limits) -> Result<Self, ApiError> {
        let raw: RawDetokenize = parse(body)?;
        Ok(Self { model: raw.model, tokens: prompt::tokens(&raw.tokens, "tokens", limits)? })
    }
}

/// The answer of `/detokenize`.
#[derive(Debug, Clone, Serialize)]
pub struct DetokenizeResponse {
    /// The text.
    pub prompt: String,
}
