//! What a bench reads of the answers of an OpenAI-compatible server, and nothing else.
//!
//! Text is borrowed from the event it came in, so that a token costs no allocation.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A whole answer or a piece of a streamed one; of its choices the first.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Chunk<'a> {
    #[serde(borrow, default, rename = "choices", deserialize_with = "first")]
    choice: Option<Choice<'a>>,
    #[serde(default)]
    pub(crate) usage: Option<Usage>,
    #[serde(default)]
    pub(crate) error: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    delta: Option<Message<'a>>,
    #[serde(borrow, default)]
    message: Option<Message<'a>>,
}

#[derive(Debug, Default, Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Text<'a>,
    #[serde(borrow, default)]
    reasoning_content: Text<'a>,
    #[serde(borrow, default)]
    reasoning: Text<'a>,
    #[serde(default)]
    tool_calls: Option<Value>,
}

/// What the server says that a request cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Usage {
    #[serde(default)]
    pub(crate) prompt_tokens: u64,
    #[serde(default)]
    pub(crate) completion_tokens: u64,
    #[serde(default)]
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
struct PromptDetails {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

impl Usage {
    #[cfg(test)]
    pub(crate) const fn new(prompt_tokens: u64, completion_tokens: u64, cached: u64) -> Self {
        let details = PromptDetails { cached_tokens: Some(cached) };
        Self { prompt_tokens, completion_tokens, prompt_tokens_details: Some(details) }
    }

    /// Prompt tokens that came out of a cache; `None` where the server does not tell.
    pub(crate) fn cached_tokens(&self) -> Option<u64> {
        self.prompt_tokens_details?.cached_tokens
    }
}

impl Chunk<'_> {
    /// Reads one JSON object.
    pub(crate) fn parse(data: &[u8]) -> Result<Chunk<'_>, serde_json::Error> {
        serde_json::from_slice(data)
    }

    /// The text in it: of a completion, a message or a delta; reasoning where there is no other.
    pub(crate) fn text(&self) -> &str {
        let Some(choice) = &self.choice else { return "" };
        let message = choice.delta.as_ref().or(choice.message.as_ref());
        let Some(message) = message else { return choice.text.as_str() };
        [&message.content, &message.reasoning_content, &message.reasoning]
            .into_iter()
            .map(Text::as_str)
            .find(|text| !text.is_empty())
            .unwrap_or("")
    }

    /// Whether something was generated: text, or a call of a tool.
    pub(crate) fn has_output(&self) -> bool {
        let calls = |choice: &Choice<'_>| {
            let message = choice.delta.as_ref().or(choice.message.as_ref());
            let calls = message.and_then(|message| message.tool_calls.as_ref()?.as_array());
            calls.is_some_and(|calls| !calls.is_empty())
        };
        !self.text().is_empty() || self.choice.as_ref().is_some_and(calls)
    }
}

/// Why a server refuses, from the body of its answer: its code, else its type.
pub(crate) fn reason(body: &[u8]) -> String {
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return String::new() };
    error_reason(body.get("error").unwrap_or(&body))
}

/// The code of an error, else its type, else nothing. At most 64 characters, on one line.
pub(crate) fn error_reason(error: &Value) -> String {
    let text = ["code", "type"].iter().find_map(|key| match &error[*key] {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => None,
    });
    let text = text.unwrap_or_default();
    text.chars().filter(|c| !c.is_control()).take(64).collect()
}

/// The message of an error body, shortened for a line.
pub(crate) fn message(body: &[u8]) -> String {
    let json = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let error = json.get("error").unwrap_or(&json);
    let text = error["message"].as_str().or(error.as_str()).map(str::to_owned);
    let text = text.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

/// Text that is borrowed where JSON allows it; null reads as empty.
#[derive(Debug, Default)]
struct Text<'a>(Cow<'a, str>);

impl Text<'_> {
    fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text or null")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_unit<E>(self) -> Result<Text<'de>, E> {
                Ok(Text::default())
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// The first element of a list, the others unread; null reads as an empty list.
fn first<'de: 'a, 'a, D: Deserializer<'de>>(list: D) -> Result<Option<Choice<'a>>, D::Error> {
    struct Reader;
    impl<'de> Visitor<'de> for Reader {
        type Value = Option<Choice<'de>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list or null")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let choice = list.next_element()?;
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok(choice)
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
    }
    list.deserialize_any(Reader)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Chunk<'_> {
        Chunk::parse(text.as_bytes()).expect(text)
    }

    #[test]
    fn pieces_of_all_shapes_are_read() {
        for (json, text, output) in [
            (r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#, "", false),
            (r#"{"choices":[{"delta":{"content":"gr\u00fcn"}}]}"#, "grün", true),
            (r#"{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}"#, "a", true),
            (r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":null}"#, "", false),
            (r#"{"choices":[{"text":" x","finish_reason":"length"}]}"#, " x", true),
            (r#"{"choices":[{"text":"y","finish_reason":null}]}"#, "y", true),
            (r#"{"choices":[{"message":{"content":"whole"}}]}"#, "whole", true),
            (r#"{"choices":[{"delta":{"reasoning_content":"hm"}}]}"#, "hm", true),
            (r#"{"choices":[{"delta":{"content":null,"tool_calls":[{}]}}]}"#, "", true),
            (r#"{"choices":[]}"#, "", false),
            (r#"{"choices":null}"#, "", false),
        ] {
            let chunk = parse(json);
            assert_eq!((chunk.text(), chunk.has_output()), (text, output), "{json}");
        }
    }

    #[test]
    fn usage_tells_what_was_cached_or_does_not() {
        let usage = |json| parse(json).usage.expect("there");
        let cached = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,
            "prompt_tokens_details":{"cached_tokens":8}}}"#;
        assert_eq!(usage(cached), Usage::new(9, 4, 8));
        assert_eq!(usage(cached).cached_tokens(), Some(8));
        assert_eq!(usage(r#"{"usage":{"prompt_tokens":9}}"#).cached_tokens(), None);
        let null = r#"{"usage":{"prompt_tokens":9,"prompt_tokens_details":null}}"#;
        assert_eq!(usage(null).cached_tokens(), None);
    }

    #[test]
    fn refusals_name_their_reason() {
        for (body, expect) in [
            (
                r#"{"error":{"message":"m","type":"t","code":"queue_requests_full"}}"#,
                "queue_requests_full",
            ),
            (r#"{"error":{"message":"m","type":"overloaded","code":429}}"#, "overloaded"),
            (
                r#"{"object":"error","message":"m","type":"BadRequestError","code":400}"#,
                "BadRequestError",
            ),
            (r#"{"error":"busy"}"#, ""),
            ("<html>", ""),
        ] {
            assert_eq!(reason(body.as_bytes()), expect, "{body}");
        }
        assert_eq!(message(br#"{"error":{"message":"too\nlong"}}"#), "toolong");
        assert_eq!(message(br#"{"error":"busy"}"#), "busy");
        assert_eq!(message(b"Bad Gateway"), "Bad Gateway");
    }
}
