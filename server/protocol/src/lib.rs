//! The OpenAI wire format: requests parsed and checked, responses and errors built; and what our
//! own processes say to each other over HTTP ([`internal`]).
//!
//! It serves nothing and knows no HTTP besides status numbers. It does not tokenize, so the
//! context length is checked by [`Generation::budget`] once the prompt's tokens are counted, and
//! it does not know which models are served.
#![forbid(unsafe_code)]

mod absent;
mod chat;
mod completion;
mod error;
mod generation;
pub mod internal;
mod message;
mod models;
mod parse;
mod prompt;
mod response;
mod sse;
mod structure;
mod tokenize;
mod tools;

pub use chat::ChatParams;
pub use completion::CompletionParams;
pub use error::{ApiError, ErrorBody, ErrorDetail};
pub use generation::{
    Generation, MAX_CHOICES, MAX_LOGIT_BIAS, MAX_LOGPROBS, MAX_PROMPT_LOGPROBS, MAX_SALT_BYTES,
    MAX_STOP_BYTES, MAX_STOP_TOKENS, MAX_STOPS, MAX_USER_BYTES,
};
pub use message::{ChatMessage, PastCall};
pub use models::{ModelCard, ModelList};
pub use prompt::Prompt;
pub use response::{
    ChatChoice, ChatChunk, ChatChunkChoice, ChatLogprobs, ChatResponse, ChatTokenLogprob,
    ChatTopLogprob, Completion, CompletionChoice, CompletionLogprobs, Delta, DeltaCall, Envelope,
    FinishReason, PromptTokensDetails, ResponseCall, ResponseFunction, ResponseMessage,
    TopLogprobs, Usage, UsageField,
};
pub use sse::{SSE_DONE, sse_event};
pub use structure::{Form, MAX_STRUCTURE_BYTES, MAX_STRUCTURE_CHOICES, Structure};
pub use tokenize::{
    DetokenizeParams, DetokenizeResponse, TokenizeInput, TokenizeParams, TokenizeResponse,
};
pub use tools::{MAX_TOOL_NAME, MAX_TOOLS, Tool, ToolChoice, Tools};

/// What the checks need to know of the served model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Token ids are below this number.
    pub vocab: usize,
    /// Prompt and answer together have at most this many tokens.
    pub max_context: usize,
}
