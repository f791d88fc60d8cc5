//! The text of tool calls: the formats that model families write them in, and their parser.
//!
//! A format is known by its markers. Nothing here knows a wire format, runs a tool, or judges
//! arguments against a schema.

mod json;
mod parser;
mod pattern;

pub use parser::{Part, ToolCall, ToolCallParser};

/// How a model family writes tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolFormat {
    /// `<tool_call>{"name": .., "arguments": {..}}</tool_call>`: Hermes, Qwen 2.5 and 3.
    Hermes,
    /// `{"name": .., "parameters": {..}}` as the whole answer, several separated by `;`: Llama 3.
    Llama,
    /// `[TOOL_CALLS][{"name": .., "arguments": {..}}, ..]`: Mistral up to 2024.
    Mistral,
    /// `[TOOL_CALLS]name[ARGS]{..}`: Mistral since 2025.
    MistralArgs,
    /// Calls with the arguments in a fenced block: DeepSeek V3 and R1.
    DeepseekV3,
    /// The same markers without fences: DeepSeek V3.1.
    DeepseekV31,
}

impl ToolFormat {
    /// Every format, in declaration order.
    pub const ALL: [Self; 6] = [
        Self::Hermes,
        Self::Llama,
        Self::Mistral,
        Self::MistralArgs,
        Self::DeepseekV3,
        Self::DeepseekV31,
    ];

    /// Its name in options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hermes => "hermes",
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::MistralArgs => "mistral-args",
            Self::DeepseekV3 => "deepseek-v3",
            Self::DeepseekV31 => "deepseek-v3.1",
        }
    }

    /// The format that the source of a chat template writes past calls in; `None` where it is
    /// none of these. Formats that share a marker but fill it otherwise (XML parameters inside
    /// `<tool_call>`, as some coding models have) are not taken for one of these.
    #[must_use]
    pub fn of_template(source: &str) -> Option<Self> {
        let has = |text: &str| source.contains(text);
        if has(deepseek::CALLS) {
            return Some(if has("```json") { Self::DeepseekV3 } else { Self::DeepseekV31 });
        }
        if has(MISTRAL) {
            return Some(if has(MISTRAL_ARGS) { Self::MistralArgs } else { Self::Mistral });
        }
        if has(HERMES) && has("arguments") && !has("<function=") && !has("<arg_key>") {
            return Some(Self::Hermes);
        }
        let llama = has("<|start_header_id|>") && (has(PYTHON_TAG) || has("\"parameters\""));
        llama.then_some(Self::Llama)
    }

    /// The texts that the parser has to see, even where they are tokens that are not shown.
    #[must_use]
    pub const fn markers(self) -> &'static [&'static str] {
        match self {
            Self::Hermes => &[HERMES, HERMES_END],
            Self::Llama => &[PYTHON_TAG],
            Self::Mistral | Self::MistralArgs => &[MISTRAL, MISTRAL_ARGS, MISTRAL_ID],
            Self::DeepseekV3 | Self::DeepseekV31 => &[
                deepseek::CALLS,
                deepseek::CALL,
                deepseek::SEP,
                deepseek::CALL_END,
                deepseek::CALLS_END,
            ],
        }
    }

    /// What stands around the name and the arguments of calls, in order.
    #[must_use]
    pub const fn frame(self) -> ToolFrame {
        match self {
            Self::Hermes => ToolFrame {
                open: "",
                before: "<tool_call>\n{\"name\": \"",
                between: "\", \"arguments\": ",
                after: "}\n</tool_call>",
                separator: "\n",
                close: "",
            },
            Self::Llama => ToolFrame {
                open: "",
                before: "{\"name\": \"",
                between: "\", \"parameters\": ",
                after: "}",
                separator: "; ",
                close: "",
            },
            Self::Mistral => ToolFrame {
                open: "[TOOL_CALLS][",
                before: "{\"name\": \"",
                between: "\", \"arguments\": ",
                after: "}",
                separator: ", ",
                close: "]",
            },
            Self::MistralArgs => ToolFrame {
                open: "",
                before: MISTRAL,
                between: MISTRAL_ARGS,
                after: "",
                separator: "",
                close: "",
            },
            Self::DeepseekV3 => ToolFrame {
                open: deepseek::CALLS,
                before: deepseek::FUNCTION,
                between: "\n```json\n",
                after: deepseek::FENCED_END,
                separator: "\n",
                close: deepseek::CALLS_END,
            },
            Self::DeepseekV31 => ToolFrame {
                open: deepseek::CALLS,
                before: deepseek::CALL,
                between: deepseek::SEP,
                after: deepseek::CALL_END,
                separator: "",
                close: deepseek::CALLS_END,
            },
        }
    }
}

/// The texts around the parts of calls: `open`, then for each call `before` NAME `between`
/// ARGUMENTS `after`, with `separator` between calls, then `close`. The arguments are JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the type's own sentence says what each is")]
pub struct ToolFrame {
    pub open: &'static str,
    pub before: &'static str,
    pub between: &'static str,
    pub after: &'static str,
    pub separator: &'static str,
    pub close: &'static str,
}

pub(crate) const HERMES: &str = "<tool_call>";
pub(crate) const HERMES_END: &str = "</tool_call>";
pub(crate) const PYTHON_TAG: &str = "<|python_tag|>";
pub(crate) const MISTRAL: &str = "[TOOL_CALLS]";
pub(crate) const MISTRAL_ARGS: &str = "[ARGS]";
pub(crate) const MISTRAL_ID: &str = "[CALL_ID]";

/// DeepSeek's markers are written with U+FF5C and U+2581.
pub(crate) mod deepseek {
    pub(crate) const CALLS: &str = "<\u{ff5c}tool\u{2581}calls\u{2581}begin\u{ff5c}>";
    pub(crate) const CALL: &str = "<\u{ff5c}tool\u{2581}call\u{2581}begin\u{ff5c}>";
    pub(crate) const SEP: &str = "<\u{ff5c}tool\u{2581}sep\u{ff5c}>";
    pub(crate) const CALL_END: &str = "<\u{ff5c}tool\u{2581}call\u{2581}end\u{ff5c}>";
    pub(crate) const CALLS_END: &str = "<\u{ff5c}tool\u{2581}calls\u{2581}end\u{ff5c}>";
    /// A call's beginning with its kind, of which there is one.
    pub(crate) const FUNCTION: &str =
        "<\u{ff5c}tool\u{2581}call\u{2581}begin\u{ff5c}>function<\u{ff5c}tool\u{2581}sep\u{ff5c}>";
    pub(crate) const FENCED_END: &str = "\n```<\u{ff5c}tool\u{2581}call\u{2581}end\u{ff5c}>";
}

#[cfg(test)]
mod tests;
