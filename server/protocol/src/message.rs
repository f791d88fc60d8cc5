//! Messages of a conversation, as sent and as a chat template sees them.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
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
    /// The text; parts are joined without anything between them. `None`, which templates see as
    /// none, for an assistant's turn of nothing but calls.
    pub content: Option<String>,
    /// The author's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The calls that an assistant's turn made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<PastCall>,
    /// Which call a tool's turn answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

impl ChatMessage {
    /// A system message.
    #[must_use]
    pub const fn system(text: String) -> Self {
        Self {
            role: Role::System.name(),
            content: Some(text),
            name: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
        }
    }
}

/// A call that was made; serializes to the object that chat templates read.
#[derive(Debug, Clone, PartialEq)]
pub struct PastCall {
    /// What the tool's turn refers to.
    pub id: Option<String>,
    /// The function.
    pub name: String,
    /// An object; the text itself where the model had written something else.
    pub arguments: Value,
}

impl Serialize for PastCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Function<'a> {
            name: &'a str,
            arguments: &'a Value,
        }
        let mut map = serializer.serialize_map(None)?;
        if let Some(id) = &self.id {
            map.serialize_entry("id", id)?;
        }
        map.serialize_entry("type", "function")?;
        let function = Function { name: &self.name, arguments: &self.arguments };
        map.serialize_entry("function", &function)?;
        map.end()
    }
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
    tool_calls: Option<Vec<Object<RawCall>>>,
    tool_call_id: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct RawCall {
    id: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    function: Object<RawFunction>,
}

#[derive(Debug, Clone, Deserialize)]
struct RawFunction {
    name: String,
    arguments: Option<Value>,
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
    let checked = messages.into_iter().enumerate();
    let mut checked: Vec<ChatMessage> =
        checked.map(|(at, Object(message))| message.check(at)).collect::<Result<_, _>>()?;
    name_tools(&mut checked);
    Ok(checked)
}

/// Some templates print the name of the function before its result; clients send only the call's
/// identifier.
fn name_tools(messages: &mut [ChatMessage]) {
    let mut made: BTreeMap<String, String> = BTreeMap::new();
    for message in messages {
        for call in &message.tool_calls {
            if let Some(id) = &call.id {
                made.insert(id.clone(), call.name.clone());
            }
        }
        if message.role == Role::Tool.name() && message.name.is_none() {
            let id = message.tool_call_id.as_ref();
            message.name = id.and_then(|id| made.get(id)).cloned();
        }
    }
}

impl RawMessage {
    fn check(self, at: usize) -> Result<ChatMessage, ApiError> {
        let path = format!("messages[{at}].content");
        let calls = self.tool_calls.unwrap_or_default().into_iter().enumerate();
        let tool_calls: Vec<PastCall> = calls
            .map(|(call, Object(raw))| raw.check(&format!("messages[{at}].tool_calls[{call}]")))
            .collect::<Result<_, _>>()?;
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
            content: (tool_calls.is_empty() || !content.is_empty()).then_some(content),
            name: self.name,
            tool_calls,
            tool_call_id: self.tool_call_id,
        })
    }
}

impl RawCall {
    fn check(self, path: &str) -> Result<PastCall, ApiError> {
        if self.kind.is_some_and(|kind| kind != "function") {
            let path = format!("{path}.type");
            return Err(ApiError::unsupported(&path, "only calls of type function are supported"));
        }
        let Object(RawFunction { name, arguments }) = self.function;
        let arguments = match arguments {
            None | Some(Value::Null) => Value::Object(serde_json::Map::new()),
            Some(Value::String(text)) if text.trim().is_empty() => {
                Value::Object(serde_json::Map::new())
            }
            Some(Value::String(text)) => match serde_json::from_str(&text) {
                Ok(Value::Object(object)) => Value::Object(object),
                Ok(_) | Err(_) => Value::String(text),
            },
            Some(Value::Object(object)) => Value::Object(object),
            Some(_) => {
                let path = format!("{path}.function.arguments");
                let message = format!("{path}: expected the text of a JSON object");
                return Err(ApiError::invalid(path, message));
            }
        };
        Ok(PastCall { id: self.id, name, arguments })
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
