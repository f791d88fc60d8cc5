//! Requests to `/v1/chat/completions`.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::Limits;
use crate::error::ApiError;
use crate::generation::{Generation, RawGeneration, alternatives};
use crate::message::{self, ChatMessage, RawMessage};
use crate::parse::{Int, Object, parse};
use crate::tools::{RawTools, Tools};

/// A checked request.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatParams {
    /// The model's name as sent; whether it is served is for the caller to check.
    pub model: String,
    /// The conversation, at least one message.
    pub messages: Vec<ChatMessage>,
    /// Sampling, stopping, streaming.
    pub generation: Generation,
    /// Let the prompt end with the beginning of the assistant's turn. Default true.
    pub add_generation_prompt: bool,
    /// What the model may call.
    pub tools: Tools,
    /// Further variables of the chat template (`chat_template_kwargs`).
    pub template_kwargs: Map<String, Value>,
}

#[derive(Deserialize)]
struct RawChat {
    model: String,
    messages: Vec<Object<RawMessage>>,
    logprobs: Option<bool>,
    top_logprobs: Option<Int>,
    add_generation_prompt: Option<bool>,
    continue_final_message: Option<bool>,
    chat_template: Option<IgnoredAny>,
    chat_template_kwargs: Option<Map<String, Value>>,
}

impl ChatParams {
    /// Parses and checks a request body.
    pub fn parse(body: &[u8], limits: &Limits) -> Result<Self, ApiError> {
        let raw: RawChat = parse(body)?;
        // Passes of their own, as for completions.
        let generation: RawGeneration = parse(body)?;
        let tools: RawTools = parse(body)?;
        raw.refuse_later_features()?;
        let logprobs = raw.logprobs()?;
        let generation = generation.check(limits, None, logprobs)?;
        Ok(Self {
            model: raw.model,
            messages: message::check(raw.messages)?,
            generation,
            tools: tools.check()?,
            add_generation_prompt: raw.add_generation_prompt.unwrap_or(true),
            template_kwargs: raw.chat_template_kwargs.unwrap_or_default(),
        })
    }
}

impl RawChat {
    fn logprobs(&self) -> Result<Option<u8>, ApiError> {
        let top = self.top_logprobs.map(|count| alternatives("top_logprobs", count)).transpose()?;
        match (self.logprobs.unwrap_or(false), top) {
            (true, top) => Ok(Some(top.unwrap_or(0))),
            (false, None | Some(0)) => Ok(None),
            (false, Some(_)) => {
                let message = "top_logprobs: only allowed when logprobs is true";
                Err(ApiError::invalid("top_logprobs", message))
            }
        }
    }

    /// A template that is asked for and silently ignored would be a wrong answer.
    fn refuse_later_features(&self) -> Result<(), ApiError> {
        let refuse = |name: &str, why: &str| Err(ApiError::unsupported(name, why));
        if self.chat_template.is_some() {
            return refuse("chat_template", "the model's own template is used");
        }
        if self.continue_final_message == Some(true) {
            return refuse("continue_final_message", "this is not supported");
        }
        Ok(())
    }
}
