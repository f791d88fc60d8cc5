//! Chat templates: Jinja in the dialect that Hugging Face models are published with.
//!
//! Renders a conversation to text. It knows no roles and checks no messages, and reads no clock.

mod functions;
mod probe;

use std::collections::BTreeMap;
use std::error::Error as _;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, Error};
use serde::Serialize;

use crate::error::TemplateError;
use crate::tokenizer::{SpecialToken, SpecialTokens};
use crate::tools::ToolFormat;

pub use probe::Arguments;

const NAME: &str = "chat_template";

/// What a template is rendered with, besides the messages.
#[derive(Debug, Clone, Default)]
pub struct RenderOptions {
    /// Ask for the beginning of the assistant's turn at the end.
    pub add_generation_prompt: bool,
    /// Tool definitions; `None` is passed to the template as none.
    pub tools: Option<serde_json::Value>,
    /// Further variables, such as `enable_thinking`; what is absent is undefined in the template.
    pub kwargs: serde_json::Map<String, serde_json::Value>,
    /// Seconds since 1970, for templates that print the date (in UTC).
    pub now_unix: f64,
}

/// A parsed chat template, ready to be rendered from any thread.
pub struct ChatTemplate {
    env: Environment<'static>,
    special: BTreeMap<&'static str, Value>,
    format: Option<ToolFormat>,
    tools: bool,
    arguments: Arguments,
}

impl ChatTemplate {
    /// Parses a template. The special tokens are its variables `bos_token`, `eos_token`, ...
    pub fn new(source: &str, special: &SpecialTokens) -> Result<Self, TemplateError> {
        let mut env = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|error| TemplateError::Syntax(describe(&error)))?;
        env.set_syntax(syntax);
        env.set_debug(false);
        env.set_auto_escape_callback(|_| AutoEscape::None);
        env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        env.add_filter("tojson", functions::tojson);
        env.add_function("raise_exception", functions::raise_exception);
        env.add_template_owned(NAME, without_generation_tags(source))
            .map_err(|error| TemplateError::Syntax(describe(&error)))?;
        let named = [
            ("bos_token", &special.bos),
            ("eos_token", &special.eos),
            ("pad_token", &special.pad),
            ("unk_token", &special.unk),
        ];
        let text = |token: &SpecialToken| Value::from(token.text.as_str());
        let special = named
            .into_iter()
            .filter_map(|(name, token)| Some((name, token.as_ref().map(text)?)))
            .collect();
        let mut template = Self {
            env,
            special,
            format: ToolFormat::of_template(source),
            tools: false,
            arguments: Arguments::Object,
        };
        template.tools = probe::shows_tools(&template);
        template.arguments = probe::arguments(&template);
        Ok(template)
    }

    /// Whether the prompt shows the model the tools of a request: found out by rendering one.
    #[must_use]
    pub const fn shows_tools(&self) -> bool {
        self.tools
    }

    /// The form in which the template takes the arguments of past calls.
    #[must_use]
    pub const fn arguments(&self) -> Arguments {
        self.arguments
    }

    /// The format in which the template writes calls, where it is a known one.
    #[must_use]
    pub const fn tool_format(&self) -> Option<ToolFormat> {
        self.format
    }

    /// The prompt for a conversation. `messages` serialize to the objects the template walks.
    pub fn render<M: Serialize>(
        &self,
        messages: &[M],
        options: &RenderOptions,
    ) -> Result<String, TemplateError> {
        let mut variables = BTreeMap::new();
        for (name, value) in &self.special {
            variables.insert((*name).to_owned(), value.clone());
        }
        for (name, value) in &options.kwargs {
            variables.insert(name.clone(), Value::from(Serde(value)));
        }
        let now = options.now_unix;
        let strftime = Value::from_function(move |format: &str| functions::strftime(now, format));
        let none = Value::from(());
        let tools = options.tools.as_ref().map_or(none.clone(), |tools| Value::from(Serde(tools)));
        for (name, value) in [
            ("messages", Value::from(Serde(messages))),
            ("tools", tools),
            ("documents", none),
            ("add_generation_prompt", Value::from(options.add_generation_prompt)),
            ("strftime_now", strftime),
        ] {
            variables.insert(name.to_owned(), value);
        }
        self.env
            .get_template(NAME)
            .and_then(|template| template.render(Value::from_pairs(variables)))
            .map_err(|error| render_error(&error))
    }
}

/// A message that the template raised is passed on as it is, without the engine's own words.
fn render_error(error: &Error) -> TemplateError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = error.source();
    while let Some(inner) = cause {
        if let Some(raised) = inner.downcast_ref::<functions::Raised>() {
            return TemplateError::Raised(raised.0.clone());
        }
        cause = inner.source();
    }
    TemplateError::Render(describe(error))
}

fn describe(error: &Error) -> String {
    match (error.detail(), error.line()) {
        (Some(detail), Some(line)) => format!("{}: {detail} (line {line})", error.kind()),
        (Some(detail), None) => format!("{}: {detail}", error.kind()),
        (None, Some(line)) => format!("{} (line {line})", error.kind()),
        (None, None) => error.kind().to_string(),
    }
}

/// Replaces `{% generation %}` blocks, which mark the assistant's text for training, by blocks
/// that are always taken.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(len) = rest[start..].find("%}") else { break };
        let (before, tag) = (&rest[..start], &rest[start + 2..start + len]);
        let word = tag.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        let instead = match word {
            "generation" => Some("if true"),
            "endgeneration" => Some("endif"),
            _ => None,
        };
        out.push_str(before);
        out.push_str("{%");
        match instead {
            Some(instead) => out.push_str(&tag.replace(word, instead)),
            None => out.push_str(tag),
        }
        rest = &rest[start + len..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests;
