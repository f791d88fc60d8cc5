//! The grammar of tool calls, in the format of the model's family.

use serde_json::Value;
use tokenizer::{Tokenizer, ToolFormat};

use crate::schema;

/// A function that may be called.
#[derive(Debug, Clone, Copy)]
pub struct Function<'a> {
    /// Its name: letters, digits, underscores and dashes.
    pub name: &'a str,
    /// The schema of its arguments.
    pub parameters: &'a Value,
    /// Whether a keyword that cannot be enforced is an error; else it is left out.
    pub strict: bool,
    /// Its place in the request, for errors.
    pub place: usize,
}

/// Calls of tools, as an answer's whole text.
#[derive(Debug, Clone, Copy)]
pub struct Calls<'a> {
    /// How they are written.
    pub format: ToolFormat,
    /// What may be called; at least one.
    pub functions: &'a [Function<'a>],
    /// Whether there may be more than one call.
    pub many: bool,
}

impl Calls<'_> {
    /// The grammar in Lark's notation. The arguments' schemas stay documents of their own, so that
    /// references inside them mean what they meant.
    pub(crate) fn lark(&self, tokenizer: &Tokenizer) -> String {
        let frame = self.format.frame();
        let text = |text: &str| marked(tokenizer, self.format, text);
        let mut rules = String::new();
        let mut calls: Vec<String> = Vec::new();
        for (index, function) in self.functions.iter().enumerate() {
            let before = text(&format!("{}{}{}", frame.before, function.name, frame.between));
            calls.push(format!("{before} args{index} {}", text(frame.after)));
            let schema = schema::prepared(function.parameters, !function.strict);
            rules.push_str(&format!("args{index}: %json {schema}\n"));
        }
        let more =
            if self.many { format!("({} call)*", text(frame.separator)) } else { String::new() };
        let (open, close) = (text(frame.open), text(frame.close));
        format!("start: {open} call {more} {close}\ncall: {}\n{rules}", calls.join(" | "))
    }
}

/// A text in Lark's notation; markers that are special tokens are named by their id.
fn marked(tokenizer: &Tokenizer, format: ToolFormat, text: &str) -> String {
    let mut out = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let next = format
            .markers()
            .iter()
            .filter_map(|marker| {
                let id = *tokenizer.special_ids(&[marker]).first()?;
                Some((rest.find(marker)?, marker.len(), id))
            })
            .min_by_key(|(at, _, _)| *at);
        let Some((at, len, id)) = next else {
            out.push(quoted(rest));
            break;
        };
        if at > 0 {
            out.push(quoted(&rest[..at]));
        }
        out.push(format!("<[{id}]>"));
        rest = &rest[at + len..];
    }
    out.join(" ")
}

/// A literal in Lark's notation, which escapes as JSON does.
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
