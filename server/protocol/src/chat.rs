//! Requests to `/v1/chat/completions`.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::Limits;
use crate::error::ApiError;
use crate::generation::{Generation, RawGeneration, alternatives};
use crate::message::{self, ChatMessage, RawMessage};
use crate::parse::{Int, Object, parse};

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
    tools: Option<Vec<IgnoredAny>>,
    tool_choice: Option<Value>,
    functions: Option<Vec<IgnoredAny>>,
    function_call: Option<Value>,
    response_format: Option<Map<String, Value>>,
}

impl ChatParams {
    /// Parses and checks a request body.
    pub fn parse(body: &[u8], limits: &Limits) -> Result<Self, ApiError> {
        let raw: RawChat = parse(body)?;
        // A second pass, as for completions.
        let generation: RawGeneration = parse(body)?;
        raw.refuse_later_features()?;
        let logprobs = raw.logprobs()?;
        let generation = generation.check(limits, None, logprobs)?;
        Ok(Self {
            model: raw.model,
            messages: message::check(raw.messages)?,
            generation,
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

    /// A tool or a format that is asked for and silently ignored would be a wrong answer.
    fn refuse_later_features(&self) -> Result<(), ApiError> {
        let refuse = |name: &str, why: &str| Err(ApiError::unsupported(name, why));
        let any = |list: &Option<Vec<IgnoredAny>>| list.as_ref().is_some_and(|l| !l.is_empty());
        let calls = [
            (
                "tools",
                any(&self.tools),
                "tool_choice",
                self.tool_choice.as_ref().map(Value::as_str),
            ),
            (
                "functions",
                any(&self.functions),
                "function_call",
                self.function_call.as_ref().map(Value::as_str),
            ),
        ];
        for (list, present, name, choice) in calls {
            match choice {
                Some(Some("none")) => {}
                None | Some(Some("auto")) if !present => {}
                None | Some(Some("auto")) => {
                    return refuse(list, "tool calls are not supported yet");
                }
                Some(_) => return refuse(name, "only none is supported yet"),
            }
        }
        if let Some(format) = &self.response_format {
            match format.get("type").and_then(Value::as_str) {
                Some("text") => {}
                Some(_) => return refuse("response_format", "only type text is supported yet"),
                None => {
                    let message = "response_format.type: this field is required";
                    return Err(ApiError::invalid("response_format.type", message));
                }
            }
        }
        if self.chat_template.is_some() {
            return refuse("chat_template", "the model's own template is used");
        }
        if self.continue_final_message == Some(true) {
            return refuse("continue_final_message", "this is not supported yet");
        }
        Ok(())
    }
}
