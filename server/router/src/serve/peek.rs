//! What the router needs of a request's body, read in one pass without building a tree.
//!
//! The body itself goes to the worker as it came. What is wrong with it is the worker's to say,
//! who knows every field; here only the fields that decide where it goes are read.

use std::borrow::Cow;
use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

/// Nesting beyond this is no prompt. Skipping it takes no stack.
const DEPTH_MAX: usize = 64;

/// Divides the parts of a prompt, so that no two prompts with different parts are one text.
const DIVIDER: u8 = 0x1f;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Peek {
    /// The model asked for.
    pub(crate) model: Option<String>,
    /// Whether the answer is to be a stream.
    pub(crate) stream: bool,
    /// Whose cached prefixes may be used: the tenant that the body names, with its salt.
    pub(crate) tenant: Option<String>,
    /// The prompt, with tools in front and all parts in the order they are written; four bytes for
    /// each token of a prompt of tokens.
    pub(crate) prompt: Vec<u8>,
}

/// Reads a body.
///
/// # Errors
/// The body is no JSON object.
pub(crate) fn peek(body: &[u8]) -> Result<Peek, serde_json::Error> {
    let Fields { mut peek, tools, prompt } = serde_json::from_slice(body)?;
    // Templates put tools in front of everything else.
    peek.prompt = tools.0;
    if peek.prompt.is_empty() {
        peek.prompt = prompt.0;
    } else {
        peek.prompt.extend_from_slice(&prompt.0);
    }
    Ok(peek)
}

#[derive(Default)]
struct Fields {
    peek: Peek,
    tools: Text,
    prompt: Text,
}

/// Text of a value.
#[derive(Default)]
struct Text(Vec<u8>);

impl Text {
    fn add(&mut self, part: &[u8]) {
        self.0.extend_from_slice(part);
        self.0.push(DIVIDER);
    }

    /// A number is a token: as much text as four letters.
    fn add_token(&mut self, token: u64) {
        self.0.extend_from_slice(&(token as u32).to_be_bytes());
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Fields::default();
                while let Some(key) = map.next_key_seed(Key)? {
                    fields.read(&key, &mut map)?;
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Object)
    }
}

impl Fields {
    /// Reads the value of one key; values of a wrong type are the worker's to refuse.
    fn read<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "model" => self.peek.model = map.next_value::<Loose>()?.text(),
            "stream" => self.peek.stream = matches!(map.next_value()?, Loose::Switch(true)),
            "user" | "cache_salt" => {
                if let Some(text) = map.next_value::<Loose>()?.text() {
                    let tenant = self.peek.tenant.get_or_insert_default();
                    tenant.push_str(&text);
                    tenant.push('\u{1f}');
                }
            }
            "prompt" | "messages" | "input" => {
                map.next_value_seed(Into { text: &mut self.prompt, depth: 0 })?;
            }
            "tools" | "functions" => {
                map.next_value_seed(Into { text: &mut self.tools, depth: 0 })?;
            }
            _ => {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// A key, borrowed where it has no escapes.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        struct Name;
        impl<'de> Visitor<'de> for Name {
            type Value = Cow<'de, str>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(text))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(text.to_owned()))
            }
        }
        deserializer.deserialize_str(Name)
    }
}

/// A scalar, or something else.
enum Loose {
    Text(String),
    Switch(bool),
    Other,
}

impl Loose {
    fn text(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text),
            Self::Switch(_) | Self::Other => None,
        }
    }
}

impl<'de> Deserialize<'de> for Loose {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Loose;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_str<E>(self, text: &str) -> Result<Loose, E> {
                Ok(Loose::Text(text.to_owned()))
            }

            fn visit_u64<E>(self, _: u64) -> Result<Loose, E> {
                Ok(Loose::Other)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Loose, E> {
                Ok(Loose::Other)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Loose, E> {
                Ok(Loose::Other)
            }

            fn visit_bool<E>(self, switch: bool) -> Result<Loose, E> {
                Ok(Loose::Switch(switch))
            }

            fn visit_unit<E>(self) -> Result<Loose, E> {
                Ok(Loose::Other)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Loose, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Loose::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Loose, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Loose::Other)
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// Adds all text of a value to a text, in the order it is written.
struct Into<'a> {
    text: &'a mut Text,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Into<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.depth > DEPTH_MAX {
            return IgnoredAny::deserialize(deserializer).map(drop);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Into<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.text.add(text.as_bytes());
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.text.add_token(number);
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.text.add_token(number.unsigned_abs());
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.text.add_token(number.to_bits());
        Ok(())
    }

    fn visit_bool<E>(self, switch: bool) -> Result<(), E> {
        self.text.add_token(u64::from(switch));
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Into { text, depth } = self;
        while list.next_element_seed(Into { text: &mut *text, depth: depth + 1 })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Into { text, depth } = self;
        while map.next_key_seed(Key)?.is_some() {
            map.next_value_seed(Into { text: &mut *text, depth: depth + 1 })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str) -> Peek {
        peek(body.as_bytes()).expect(body)
    }

    fn text(peek: &Peek) -> String {
        let text: Vec<u8> =
            peek.prompt.iter().map(|b| if *b == DIVIDER { b'|' } else { *b }).collect();
        String::from_utf8(text).expect("UTF-8")
    }

    #[test]
    fn a_chat_is_its_parts_in_order() {
        let found =
            of(r#"{"messages":[{"role":"user","content":[{"type":"text","text":"Hi \u00e9"}]}],
                "tools":[{"type":"function","function":{"name":"f"}}],
                "model":"m","stream":true,"max_completion_tokens":7,"temperature":0.5,
                "stop":["a"],"user":"ann","response_format":{"type":"json_object"}}"#);
        assert_eq!(found.model.as_deref(), Some("m"));
        assert!(found.stream);
        assert_eq!(text(&found), "function|f|user|text|Hi é|");
        assert_eq!(found.tenant.as_deref(), Some("ann\u{1f}"));
    }

    #[test]
    fn prompts_of_text_and_of_tokens() {
        let found = of(r#"{"model":"m","prompt":"Once upon"}"#);
        assert_eq!(text(&found), "Once upon|");
        assert!(!found.stream);
        let found = of(r#"{"prompt":[1,2,300]}"#);
        assert_eq!(found.prompt, [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 1, 44]);
        assert_eq!(found.model, None);
    }

    #[test]
    fn wrong_types_are_left_to_the_worker() {
        let found = of(r#"{"model":7,"stream":"yes","prompt":null,"user":{}}"#);
        assert_eq!(found, Peek::default());
        let found = of(r#"{"model":["a"],"stream":{},"max_tokens":1e9}"#);
        assert_eq!(found, Peek::default());
        assert!(peek(b"[1]").is_err());
        assert!(peek(b"{\"model\":").is_err());
        assert!(peek(br#"{"prompt":"\ud83d"}"#).is_err(), "no text");
        let deep = format!(r#"{{"prompt":{}{}}}"#, "[".repeat(100), "]".repeat(100));
        assert!(of(&deep).prompt.is_empty());
        let deeper = format!(r#"{{"prompt":{}{}}}"#, "[".repeat(500), "]".repeat(500));
        assert!(of(&deeper).prompt.is_empty(), "skipped without going down");
    }
}
