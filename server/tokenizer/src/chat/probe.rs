//! What a chat template does with tools, found out by rendering conversations made for it.
//!
//! Reading the template's source would not tell: a name may be mentioned and never printed.

use serde_json::{Value, json};

use super::{ChatTemplate, RenderOptions};

/// The form of the arguments of past calls that a template expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arguments {
    /// An object, which the template prints as JSON.
    Object,
    /// The text of the object.
    Text,
}

const NAME: &str = "probe_of_tools";

/// Whether the name of a tool gets into the prompt.
pub(super) fn shows_tools(template: &ChatTemplate) -> bool {
    let parameters = json!({"type": "object", "properties": {"key": {"type": "string"}}});
    let function = json!({"name": NAME, "description": "A tool.", "parameters": parameters});
    let options = RenderOptions {
        add_generation_prompt: true,
        tools: Some(json!([{"type": "function", "function": function}])),
        ..RenderOptions::default()
    };
    let user = json!({"role": "user", "content": "Hello"});
    let text = template.render(&[user], &options);
    text.is_ok_and(|text| text.contains(NAME))
}

/// The form in which the arguments of a call come out as JSON.
pub(super) fn arguments(template: &ChatTemplate) -> Arguments {
    let shows = |arguments: &Value| {
        // Some templates insist on identifiers of nine letters and digits.
        let function = json!({"name": NAME, "arguments": arguments});
        let call = json!({"id": "probe1234", "type": "function", "function": function});
        let turns = [
            json!({"role": "user", "content": "Hello"}),
            json!({"role": "assistant", "content": null, "tool_calls": [call]}),
            json!({"role": "tool", "tool_call_id": "probe1234", "name": NAME, "content": "1"}),
        ];
        let text = template.render(&turns, &RenderOptions::default());
        text.is_ok_and(|text| text.contains("\"probe_key\"") && text.contains("\"probe_value\""))
    };
    let object = json!({"probe_key": "probe_value"});
    if !shows(&object) && shows(&Value::from(object.to_string())) {
        Arguments::Text
    } else {
        Arguments::Object
    }
}
