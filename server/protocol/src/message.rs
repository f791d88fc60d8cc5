//! Messages of a conversation, as sent and as a chat template sees them.

use std::fmt;

use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::ApiError;
use crate::parse::Object;

/// A checked message; serializes to the object that chat templates read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatMessage {
    /// `system`, `user`, `assistant` or `tool`. OpenAI's `developer` is passed on as `system`:
    /// the models served here were trained with that name for the same place.
    pub role: &'static str,
    /// The text; parts are joined without anything between them.
    pub content: String,
    /// The author's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The calls that an assistant's turn made, as sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Value>,
    /// Which call a tool's turn answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    System,
    Developer,
    User,
    Assistant,
    Tool,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::System | Self::Developer => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct RawMessage {
    role: Role,
    content: Option<Content>,
    name: Option<String>,
    tool_calls: Option<Vec<Value>>,
    tool_call_id: Option<String>,
}

#[derive(Debug, Clone)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Clone, Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ContentVisitor;
        impl<'de> Visitor<'de> for ContentVisitor {
            type Value = Content;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an array of text parts")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Content, E> {
                Ok(Content::Text(text.to_owned()))
            }
            fn visit_string<E: Error>(self, text: String) -> Result<Content, E> {
                Ok(Content::Text(text))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Content, A::Error> {
                let mut parts = Vec::new();
                while let Some(Object(part)) = seq.next_element()? {
                    parts.push(part);
                }
                Ok(Content::Parts(parts))
            }
        }
        deserializer.deserialize_any(ContentVisitor)
    }
}

/// Checks the conversation of a request.
pub(crate) fn check(messages: Vec<Object<RawMessage>>) -> Result<Vec<ChatMessage>, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::invalid("messages", "messages: must not be empty"));
    }
    messages.into_iter().enumerate().map(|(at, Object(message))| message.check(at)).collect()
}

impl RawMessage {
    fn check(self, at: usize) -> Result<ChatMessage, ApiError> {
        let path = format!("messages[{at}].content");
        let content = match self.content {
            Some(Content::Text(text)) => text,
            Some(Content::Parts(parts)) => join(parts, &path)?,
            // An assistant's turn may consist of calls only.
            None if self.role == Role::Assistant => String::new(),
            None => {
                let message = format!("{path}: this field is required");
                return Err(ApiError::invalid(path, message));
            }
        };
        Ok(ChatMessage {
            role: self.role.name(),
            content,
            name: self.name,
            tool_calls: self.tool_calls.filter(|calls| !calls.is_empty()).map(Value::Array),
            tool_call_id: self.tool_call_id,
        })
    }
}

fn join(parts: Vec<Part>, path: &str) -> Result<String, ApiError> {
    let mut text = String::new();
    for (at, part) in parts.into_iter().enumerate() {
        if part.kind != "text" {
            let path = format!("{path}[{at}].type");
            let kind: String = part.kind.chars().take(40).collect();
            let why = format!("parts of type {kind:?} are not supported; use text");
            return Err(ApiError::unsupported(&path, &why));
        }
        let Some(part) = part.text else {
            let path = format!("{path}[{at}].text");
            let message = format!("{path}: this field is required");
            return Err(ApiError::invalid(path, message));
        };
        text.push_str(&part);
    }
    Ok(text)
}
