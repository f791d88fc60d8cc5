//! Tools of a conversation: how they get into the prompt, and which form their calls have.
//!
//! Templates that show tools to the model get them as they expect them. Others get no tools: there
//! a call can only be forced, and a message of our own tells the model what it calls.

use protocol::{ApiError, ChatMessage, PastCall, Tool, ToolChoice, Tools};
use serde_json::Value;
use tokenizer::{Arguments, ChatTemplate, ToolFormat, ToolFrame};

use crate::cli::ToolCallParser;
use crate::structured::Wanted;

/// What is done about the tools of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    /// How calls are written and found; `None`: calls are not looked for.
    pub format: Option<ToolFormat>,
    /// Whether the template tells the model of the tools.
    pub shown: bool,
}

/// Settles what is done.
///
/// # Errors
/// 400: the model cannot be told of tools, or their calls could not be found in the answer.
pub(super) fn plan(
    template: &ChatTemplate,
    tools: &Tools,
    parser: ToolCallParser,
) -> Result<Plan, ApiError> {
    let shown = template.shows_tools();
    if !tools.is_active() {
        return Ok(Plan { format: None, shown });
    }
    let format = match parser {
        ToolCallParser::Auto => template.tool_format(),
        ToolCallParser::None => None,
        ToolCallParser::Hermes => Some(ToolFormat::Hermes),
        ToolCallParser::Llama => Some(ToolFormat::Llama),
        ToolCallParser::Mistral => Some(ToolFormat::Mistral),
        ToolCallParser::MistralArgs => Some(ToolFormat::MistralArgs),
        ToolCallParser::DeepseekV3 => Some(ToolFormat::DeepseekV3),
        ToolCallParser::DeepseekV31 => Some(ToolFormat::DeepseekV31),
    };
    if !tools.is_forced() {
        if !shown {
            let why = "the model's chat template has no place for tools; tool_choice required or \
                       a named function works, because then the call is forced";
            return Err(ApiError::unsupported("tools", why));
        }
        return Ok(Plan { format, shown });
    }
    if parser == ToolCallParser::None {
        let why = "forced calls need a parser, and --tool-call-parser is none";
        return Err(ApiError::unsupported("tool_choice", why));
    }
    // A forced call is found whatever its form: a model of an unknown family gets the commonest.
    Ok(Plan { format: Some(format.unwrap_or(ToolFormat::Hermes)), shown })
}

/// The tools that may be called, with their places in the request.
fn callable(tools: &Tools) -> Vec<(usize, Tool)> {
    let all = tools.offered.iter().cloned().enumerate();
    match &tools.choice {
        ToolChoice::None => Vec::new(),
        ToolChoice::Auto | ToolChoice::Required => all.collect(),
        ToolChoice::Function(name) => all.filter(|(_, tool)| tool.name == *name).collect(),
    }
}

/// The form of the answer, where a call is forced.
pub(super) fn forced(tools: &Tools, plan: Plan) -> Option<Wanted> {
    let format = plan.format.filter(|_| tools.is_forced())?;
    let many = tools.parallel && tools.choice == ToolChoice::Required;
    Some(Wanted::Calls { format, tools: callable(tools), many })
}

/// The definitions that the template gets.
pub(super) fn definitions(tools: &Tools, plan: Plan) -> Option<Value> {
    let shown = plan.shown && tools.is_active();
    shown.then(|| tools.offered.iter().map(Tool::for_template).collect())
}

/// Makes the messages what the template expects.
pub(super) fn adapt(
    messages: &mut Vec<ChatMessage>,
    template: &ChatTemplate,
    tools: &Tools,
    plan: Plan,
) {
    let format = plan.format.or_else(|| template.tool_format());
    for message in messages.iter_mut() {
        if !plan.shown && !message.tool_calls.is_empty() {
            write_out(message, format.unwrap_or(ToolFormat::Hermes));
        }
        for call in &mut message.tool_calls {
            if template.arguments() == Arguments::Text && !call.arguments.is_string() {
                call.arguments = Value::String(call.arguments.to_string());
            }
        }
        if matches!(format, Some(ToolFormat::Mistral | ToolFormat::MistralArgs)) {
            let calls = message.tool_calls.iter_mut().filter_map(|call| call.id.as_mut());
            calls.chain(message.tool_call_id.as_mut()).for_each(shorten);
        }
    }
    if !plan.shown
        && let Some(Wanted::Calls { format, tools, .. }) = forced(tools, plan)
    {
        instruct(messages, format, &tools);
    }
}

/// A template without tools would drop the calls of the past: they become text.
fn write_out(message: &mut ChatMessage, format: ToolFormat) {
    let calls: Vec<(String, String)> = std::mem::take(&mut message.tool_calls)
        .into_iter()
        .map(|PastCall { name, arguments, .. }| (name, arguments.to_string()))
        .collect();
    let calls = written(format.frame(), &calls);
    message.content = Some(match message.content.take() {
        Some(text) if !text.is_empty() => format!("{text}\n{calls}"),
        Some(_) | None => calls,
    });
}

fn written(frame: ToolFrame, calls: &[(String, String)]) -> String {
    let one = |(name, arguments): &(String, String)| {
        format!("{}{name}{}{arguments}{}", frame.before, frame.between, frame.after)
    };
    let calls: Vec<String> = calls.iter().map(one).collect();
    format!("{}{}{}", frame.open, calls.join(frame.separator), frame.close)
}

/// Tells the model of the tools, in the first system message or in one before all others.
fn instruct(messages: &mut Vec<ChatMessage>, format: ToolFormat, tools: &[(usize, Tool)]) {
    let mut text = "You can call these functions, described in JSON:\n".to_owned();
    for (_, tool) in tools {
        text.push_str(&tool.for_template()["function"].to_string());
        text.push('\n');
    }
    let example = [("NAME".to_owned(), "{ARGUMENTS}".to_owned())];
    text.push_str("Answer with nothing but a call, written like this:\n");
    text.push_str(&written(format.frame(), &example));
    match messages.first_mut() {
        Some(first) if first.role == "system" => {
            let before = first.content.take().unwrap_or_default();
            first.content = Some(format!("{before}\n\n{text}"));
        }
        Some(_) | None => messages.insert(0, ChatMessage::system(text)),
    }
}

/// Mistral's templates refuse identifiers that are not nine letters and digits. Equal ones stay
/// equal.
fn shorten(id: &mut String) {
    const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    if id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return;
    }
    // FNV-1a.
    let mut hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    *id = (0..9)
        .map(|_| {
            let digit = DIGITS[(hash % 32) as usize];
            hash /= 32;
            char::from(digit)
        })
        .collect();
}

#[cfg(test)]
mod tests;
