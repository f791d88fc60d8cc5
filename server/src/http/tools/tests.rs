//! Golden conversations, rendered through small templates in the style of each family.

use protocol::{ChatParams, Limits};
use serde_json::{Value, json};
use tokenizer::{RenderOptions, SpecialTokens, ToolFormat};

use super::*;

const HERMES: &str = include_str!("templates/hermes.jinja");

const LLAMA: &str = include_str!("templates/llama.jinja");

const MISTRAL: &str = include_str!("templates/mistral.jinja");

/// Takes the arguments as text and insists on content that is none beside calls.
const DEEPSEEK: &str = include_str!("templates/deepseek.jinja");

const PLAIN: &str = "{% for m in messages %}{{ '[' + m.role + ']' + m.content }}{% endfor %}";

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::new(source, &SpecialTokens::default()).expect("the template parses")
}

/// A conversation with a call in its past, and what it says about tools now.
fn params(fields: Value) -> ChatParams {
    let function = json!({"name": "add", "description": "Adds.", "parameters": {
        "type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "integer"}}}});
    let call = json!({"id": "call_0123456789abcdef", "type": "function", "function": {
        "name": "add", "arguments": "{\"b\": 1, \"a\": [2]}"}});
    let mut body = json!({
        "model": "m",
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "content": "3", "tool_call_id": "call_0123456789abcdef"},
            {"role": "user", "content": "Again"},
        ],
        "tools": [{"type": "function", "function": function}],
    });
    for (name, value) in fields.as_object().expect("an object") {
        body[name] = value.clone();
    }
    let limits = Limits { vocab: 512, max_context: 4096 };
    ChatParams::parse(body.to_string().as_bytes(), &limits).expect("valid")
}

fn render(source: &str, params: ChatParams) -> Result<String, ApiError> {
    let template = template(source);
    let ChatParams { mut messages, tools, .. } = params;
    let plan = plan(&template, &tools, ToolCallParser::Auto)?;
    adapt(&mut messages, &template, &tools, plan);
    let options = RenderOptions {
        tools: definitions(&tools, plan),
        add_generation_prompt: true,
        ..RenderOptions::default()
    };
    Ok(template.render(&messages, &options).expect("renders"))
}

const TOOL: &str = "{\"type\": \"function\", \"function\": {\"name\": \"add\", \
    \"description\": \"Adds.\", \"parameters\": {\"type\": \"object\", \"properties\": \
    {\"b\": {\"type\": \"integer\"}, \"a\": {\"type\": \"integer\"}}}}}";

#[test]
fn hermes() {
    let text = render(HERMES, params(json!({}))).expect("fine");
    let expect = format!(
        "<|im_start|>system\nTools:\n{TOOL}\n<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n\
         <|im_start|>assistant\n<tool_call>\n{{\"name\": \"add\", \"arguments\": \
         {{\"b\": 1, \"a\": [2]}}}}\n</tool_call><|im_end|>\n\
         <|im_start|>user\n<tool_response>3</tool_response><|im_end|>\n\
         <|im_start|>user\nAgain<|im_end|>\n<|im_start|>assistant\n"
    );
    assert_eq!(text, expect);
    let none = render(HERMES, params(json!({"tool_choice": "none"}))).expect("fine");
    assert!(!none.contains("Tools:") && none.contains("<tool_call>"), "{none}");
}

#[test]
fn llama() {
    let text = render(LLAMA, params(json!({}))).expect("fine");
    let expect = format!(
        "<|start_header_id|>user<|end_header_id|>Hi<|eot_id|>\
         <|start_header_id|>assistant<|end_header_id|>{{\"name\": \"add\", \"parameters\": \
         {{\"b\": 1, \"a\": [2]}}}}<|eot_id|><|start_header_id|>ipython<|end_header_id|>3<|eot_id|>\
         <|start_header_id|>user<|end_header_id|>{TOOL}Again<|eot_id|>"
    );
    assert_eq!(text, expect);
}

#[test]
fn mistral_gets_identifiers_of_nine_characters() {
    let text = render(MISTRAL, params(json!({}))).expect("fine");
    let (before, after) = text.split_once("\"id\": \"").expect("an identifier");
    assert!(before.ends_with("{\"name\": \"add\", \"arguments\": {\"b\": 1, \"a\": [2]}, "));
    let id = &after[..9];
    assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
    assert!(after.contains(&format!("\"call_id\": \"{id}\"")), "both are the same: {text}");
    assert!(
        after.ends_with(&format!("[AVAILABLE_TOOLS][{TOOL}][/AVAILABLE_TOOLS][INST]Again[/INST]"))
    );
    let mut own = "abcdef123".to_owned();
    shorten(&mut own);
    assert_eq!(own, "abcdef123");
}

#[test]
fn deepseek_gets_arguments_as_text() {
    let template = template(DEEPSEEK);
    assert_eq!(template.arguments(), Arguments::Text);
    assert_eq!(template.tool_format(), Some(ToolFormat::DeepseekV3));
    let text = render(DEEPSEEK, params(json!({}))).expect("fine");
    assert!(text.contains("add\n```json\n{\"b\":1,\"a\":[2]}\n```<out>3"), "{text}");
    assert!(text.ends_with("user: Again### add"), "{text}");
}

#[test]
fn a_template_without_tools_takes_forced_calls_only() {
    let refused = render(PLAIN, params(json!({}))).expect_err("refused");
    assert_eq!((refused.status, refused.param.as_deref()), (400, Some("tools")));
    assert!(refused.message.contains("has no place for tools"), "{refused}");
    let text = render(PLAIN, params(json!({"tool_choice": "required"}))).expect("fine");
    let expect = "[system]You can call these functions, described in JSON:\n\
        {\"name\":\"add\",\"description\":\"Adds.\",\"parameters\":{\"type\":\"object\",\
        \"properties\":{\"b\":{\"type\":\"integer\"},\"a\":{\"type\":\"integer\"}}}}\n\
        Answer with nothing but a call, written like this:\n\
        <tool_call>\n{\"name\": \"NAME\", \"arguments\": {ARGUMENTS}}\n</tool_call>\
        [user]Hi[assistant]<tool_call>\n{\"name\": \"add\", \"arguments\": {\"b\":1,\"a\":[2]}}\n\
        </tool_call>[tool]3[user]Again";
    assert_eq!(text, expect);
    let none = render(PLAIN, params(json!({"tool_choice": "none"}))).expect("fine");
    assert!(none.starts_with("[user]Hi[assistant]<tool_call>"), "{none}");
    let system =
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]);
    let forced = json!({"tool_choice": "required", "messages": system});
    let text = render(PLAIN, params(forced)).expect("fine");
    assert!(text.starts_with("[system]Be brief.\n\nYou can call"), "{text}");
}

#[test]
fn the_parser_follows_the_template_or_the_flag() {
    let plan_of = |source: &str, fields: Value, parser| {
        plan(&template(source), &params(fields).tools, parser)
    };
    let auto =
        |source: &str| plan_of(source, json!({}), ToolCallParser::Auto).expect("fine").format;
    assert_eq!(auto(HERMES), Some(ToolFormat::Hermes));
    assert_eq!(auto(LLAMA), Some(ToolFormat::Llama));
    assert_eq!(auto(MISTRAL), Some(ToolFormat::Mistral));
    let unknown = "{{ tools }}{% for m in messages %}{{ m.content }}{% endfor %}";
    assert_eq!(auto(unknown), None);
    let flag = plan_of(unknown, json!({}), ToolCallParser::DeepseekV31).expect("fine");
    assert_eq!(flag.format, Some(ToolFormat::DeepseekV31));
    let off = plan_of(HERMES, json!({}), ToolCallParser::None).expect("fine");
    assert_eq!(off, Plan { format: None, shown: true });
    let required = || json!({"tool_choice": "required"});
    let forced = plan_of(unknown, required(), ToolCallParser::Auto).expect("fine");
    assert_eq!(forced.format, Some(ToolFormat::Hermes));
    let error = plan_of(HERMES, required(), ToolCallParser::None).expect_err("refused");
    assert_eq!(error.param.as_deref(), Some("tool_choice"));
}

#[test]
fn a_forced_call_is_of_what_was_asked_for() {
    let forced = |fields: Value| {
        let params = params(fields);
        let plan = plan(&template(HERMES), &params.tools, ToolCallParser::Auto).expect("fine");
        match forced(&params.tools, plan) {
            Some(Wanted::Calls { tools, many, .. }) => {
                let names = tools.into_iter().map(|(at, tool)| (at, tool.name)).collect();
                Some((names, many))
            }
            Some(Wanted::Form(_)) => panic!("no form was asked for"),
            None => None,
        }
    };
    let two = json!([
        {"type": "function", "function": {"name": "f"}},
        {"type": "function", "function": {"name": "g"}}]);
    assert_eq!(forced(json!({"tools": two})), None);
    let both: Vec<(usize, String)> = vec![(0, "f".to_owned()), (1, "g".to_owned())];
    let required = json!({"tools": two, "tool_choice": "required"});
    assert_eq!(forced(required), Some((both.clone(), true)));
    let one = json!({"tools": two, "tool_choice": "required", "parallel_tool_calls": false});
    assert_eq!(forced(one), Some((both.clone(), false)));
    let named = json!({"type": "function", "function": {"name": "g"}});
    let named = json!({"tools": two, "tool_choice": named});
    assert_eq!(forced(named), Some((both[1..].to_vec(), false)));
}
