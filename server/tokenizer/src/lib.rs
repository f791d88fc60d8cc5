//! Text to tokens and back: loading of tokenizers, encoding, streaming decode, stop strings,
//! chat templates, tool calls.
//!
//! What it does not do: it knows no wire format and no request limits, reads no clock (a chat
//! template that asks for the date gets the time its caller passes), starts no thread and keeps
//! no request state besides [`StreamDecoder`], [`StopMatcher`] and [`ToolCallParser`], which their
//! owner drives.
#![forbid(unsafe_code)]

mod chat;
mod error;
mod gguf;
mod hf;
mod least;
mod pieces;
mod stop;
mod stream;
mod tokenizer;
mod tools;

pub use chat::{Arguments, ChatTemplate, RenderOptions};
pub use error::{LoadError, TemplateError, TokenizerError};
pub use gguf::{GgufVocab, SUPPORTED_MODELS, SUPPORTED_PRE};
pub use stop::StopMatcher;
pub use stream::StreamDecoder;
pub use tokenizer::{SpecialToken, SpecialTokens, Tokenizer};
pub use tools::{Part, ToolCall, ToolCallParser, ToolFormat, ToolFrame};
