//! Tools, their calls, and structured output on the wire.

use protocol::{
    ApiError, ChatParams, Delta, DeltaCall, FinishReason, Form, Limits, MAX_STRUCTURE_BYTES,
    ResponseCall, ResponseMessage, Structure, ToolChoice, Tools,
};
use serde_json::{Value, json};

const LIMITS: Limits = Limits { vocab: 512, max_context: 100 };

fn chat(fields: &Value) -> Result<ChatParams, ApiError> {
    let mut body = json!({"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]});
    for (name, value) in fields.as_object().expect("an object") {
        body[name] = value.clone();
    }
    ChatParams::parse(body.to_string().as_bytes(), &LIMITS)
}

fn tools(fields: &Value) -> Tools {
    chat(fields).expect("valid").tools
}

#[track_caller]
fn refused(error: &ApiError, param: &str, words: &str) {
    assert_eq!(error.status, 400, "{error}");
    assert_eq!(error.param.as_deref(), Some(param), "{error}");
    assert!(error.message.contains(words), "{error:?} lacks {words:?}");
}

fn two() -> Value {
    json!([
        {"type": "function", "function": {
            "name": "get_weather", "description": "Now.", "strict": true,
            "parameters": {"type": "object", "properties": {"z": {}, "a": {"type": "string"}}}}},
        {"type": "function", "function": {"name": "now-2"}}
    ])
}

#[test]
fn tools_and_which_of_them() {
    let offered = tools(&json!({"tools": two()})).offered;
    assert!(offered[0].strict && !offered[1].strict);
    let shape = r#"{"type":"function","function":{"name":"get_weather","description":"Now.","#;
    let text = offered[0].for_template().to_string();
    assert!(text.starts_with(shape), "in the order that models know: {text}");
    assert!(text.contains(r#""properties":{"z":{},"a":"#), "as it was written: {text}");
    let none = json!({"type": "object", "properties": {}});
    assert_eq!(offered[1].for_template()["function"]["parameters"], none);
    for open in [json!({}), json!({"type": ["object", "null"]}), json!({"properties": {"a": {}}})] {
        let tool = json!([{"type": "function", "function": {"name": "f", "parameters": open}}]);
        let offered = tools(&json!({"tools": tool})).offered;
        assert_eq!(offered[0].parameters["type"], "object", "arguments are nothing else");
    }

    let choice = |choice: Value| tools(&json!({"tools": two(), "tool_choice": choice})).choice;
    assert_eq!(choice(Value::Null), ToolChoice::Auto);
    assert_eq!(choice(json!("auto")), ToolChoice::Auto);
    assert_eq!(choice(json!("none")), ToolChoice::None);
    assert_eq!(choice(json!("required")), ToolChoice::Required);
    let named = json!({"type": "function", "function": {"name": "now-2"}});
    assert_eq!(choice(named), ToolChoice::Function("now-2".to_owned()));
    for without in [json!({}), json!({"tools": []}), json!({"tool_choice": "auto", "tools": []})] {
        let tools = tools(&without);
        assert!(tools.choice == ToolChoice::None && tools.parallel && !tools.is_active());
    }
    assert!(!tools(&json!({"tools": two(), "parallel_tool_calls": false})).parallel);
    assert!(tools(&json!({"tools": two(), "tool_choice": "required"})).is_forced());
}

#[test]
fn tools_that_are_none() {
    let check = |fields: Value, param: &str, words: &str| {
        refused(&chat(&fields).expect_err("refused"), param, words);
    };
    let one = |function: Value| json!({"tools": [{"type": "function", "function": function}]});
    check(json!({"tools": [{"type": "web"}]}), "tools[0].type", "use function");
    check(json!({"tools": [{"type": "function"}]}), "tools[0].function", "required");
    check(json!({"tools": ["f"]}), "tools[0]", "expected an object");
    check(one(json!({})), "tools[0].function.name", "required");
    let text = json!({"name": "f", "parameters": {"type": "string"}});
    check(one(text), "tools[0].function.parameters.type", "always an object");
    check(one(json!({"name": "a b"})), "tools[0].function.name", "\"a b\" is not 1 to 64");
    check(one(json!({"name": ""})), "tools[0].function.name", "letters");
    check(one(json!({"name": "x".repeat(65)})), "tools[0].function.name", "64");
    let parameters = "tools[0].function.parameters";
    check(one(json!({"name": "f", "parameters": [1]})), parameters, "expected an object");
    let same = json!({"type": "function", "function": {"name": "f"}});
    check(json!({"tools": [same, same]}), "tools[1].function.name", "twice");
    check(json!({"tools": vec![same; 129]}), "tools", "129 tools are more than 128");

    let choice = |choice: Value| json!({"tools": two(), "tool_choice": choice});
    check(choice(json!("always")), "tool_choice", "\"always\" is not one of none, auto");
    check(choice(json!(5)), "tool_choice", "expected a string or an object");
    check(choice(json!({"type": "function"})), "tool_choice", "\"function\"");
    let named = json!({"type": "function", "function": {"name": "g"}});
    check(choice(named), "tool_choice", "no tool is named \"g\"");
    check(json!({"tool_choice": "required"}), "tool_choice", "when tools are given");
}

#[test]
fn past_calls_reach_the_template_as_objects() {
    let call = |id: &str, arguments: Value| {
        let function = json!({"name": "f", "arguments": arguments});
        json!({"id": id, "type": "function", "function": function})
    };
    let messages = json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": [
            call("1", json!("{\"b\": 1, \"a\": [2]}")), call("2", json!("not json")),
            call("3", json!({"x": null}))]},
        {"role": "tool", "content": "5", "tool_call_id": "1"},
        {"role": "tool", "content": "6", "tool_call_id": "9", "name": "g"},
        {"role": "assistant", "content": "Well.", "tool_calls": [call("4", json!(""))]},
    ]);
    let params = chat(&json!({"messages": messages})).expect("valid");
    let seen = serde_json::to_value(&params.messages).expect("serializes");
    let expect = json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": null, "tool_calls": [
            call("1", json!({"b": 1, "a": [2]})), call("2", json!("not json")),
            call("3", json!({"x": null}))]},
        {"role": "tool", "content": "5", "tool_call_id": "1", "name": "f"},
        {"role": "tool", "content": "6", "tool_call_id": "9", "name": "g"},
        {"role": "assistant", "content": "Well.", "tool_calls": [call("4", json!({}))]},
    ]);
    assert_eq!(seen, expect);
    assert!(seen.to_string().contains(r#"{"b":1,"a":[2]}"#), "in the order of the call");

    let check = |call: Value, param: &str, words: &str| {
        let messages = json!([{"role": "assistant", "tool_calls": [call]}]);
        refused(&chat(&json!({"messages": messages})).expect_err("refused"), param, words);
    };
    let path = "messages[0].tool_calls[0]";
    check(json!({"id": "1"}), &format!("{path}.function"), "required");
    check(call("1", json!(5)), &format!("{path}.function.arguments"), "text of a JSON object");
    check(json!({"type": "x", "function": {"name": "f"}}), &format!("{path}.type"), "function");
}

fn as_json<T: serde::Serialize>(value: &T) -> Value {
    serde_json::to_value(value).expect("serializes")
}

fn structure(fields: &Value) -> Result<Option<Structure>, ApiError> {
    Structure::parse(fields.to_string().as_bytes())
}

#[test]
fn forms_of_answers() {
    let check = |fields: Value, path: &str, form: Form| {
        let found = structure(&fields).expect("valid").expect("a form");
        assert_eq!(found, Structure { path: path.to_owned(), form });
    };
    let schema = json!({"type": "object"});
    let format = |body: Value| json!({"response_format": body});
    let object = format(json!({"type": "json_object"}));
    check(object, "response_format", Form::JsonObject);
    let described = json!({"name": "x", "schema": schema, "strict": true});
    let path = "response_format.json_schema.schema";
    let described = format(json!({"type": "json_schema", "json_schema": described}));
    check(described, path, Form::Schema(schema.clone()));
    check(json!({"guided_json": schema}), "guided_json", Form::Schema(schema.clone()));
    let text = json!({"guided_json": schema.to_string()});
    check(text, "guided_json", Form::Schema(schema));
    check(json!({"guided_regex": "a+"}), "guided_regex", Form::Regex("a+".to_owned()));
    let choices = Form::Choice(vec!["a".to_owned(), "b".to_owned()]);
    check(json!({"guided_choice": ["a", "b"]}), "guided_choice", choices);
    let nested = json!({"structured_outputs": {"grammar": "start: \"a\""}});
    let grammar = Form::Grammar("start: \"a\"".to_owned());
    check(nested, "structured_outputs.grammar", grammar);

    for free in [
        json!({}),
        json!({"response_format": null, "guided_json": null, "structured_outputs": {}}),
        format(json!({"type": "text"})),
    ] {
        assert_eq!(structure(&free), Ok(None));
    }
}

#[test]
fn forms_that_are_none() {
    let check = |fields: Value, param: &str, words: &str| {
        refused(&structure(&fields).expect_err("refused"), param, words);
    };
    let format = |body: Value| json!({"response_format": body});
    check(format(json!({})), "response_format.type", "required");
    check(format(json!("json_object")), "response_format", "expected an object");
    check(format(json!({"type": "xml"})), "response_format.type", "\"xml\" is not one of text");
    let schema = "response_format.json_schema";
    check(format(json!({"type": "json_schema"})), schema, "required");
    let unnamed = format(json!({"type": "json_schema", "json_schema": {"schema": {}}}));
    check(unnamed, "response_format.json_schema.name", "required");
    let wrong = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": 5}});
    check(format(wrong), "response_format.json_schema.schema", "found a number");
    check(json!({"guided_json": "{"}), "guided_json", "not JSON");
    check(json!({"guided_choice": []}), "guided_choice", "empty");
    check(json!({"guided_choice": ["a", ""]}), "guided_choice", "choice 1 is empty");
    check(json!({"guided_choice": vec!["a"; 1025]}), "guided_choice", "more than 1024");
    check(json!({"guided_regex": ""}), "guided_regex", "empty");
    let long = "a".repeat(MAX_STRUCTURE_BYTES + 1);
    check(json!({"guided_grammar": long}), "guided_grammar", "more than");
    let both = json!({"guided_regex": "a", "guided_choice": ["b"]});
    check(both, "guided_choice", "not together with guided_regex");
}

#[test]
fn calls_in_answers() {
    let call = || ResponseCall::new("call_1".to_owned(), "f".to_owned(), "{}".to_owned());
    let expect = json!({
        "role": "assistant", "content": null, "refusal": null,
        "tool_calls": [{
            "id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}
        }]
    });
    assert_eq!(as_json(&ResponseMessage::new(String::new(), vec![call()])), expect);
    let text = ResponseMessage::new(String::new(), Vec::new());
    let expect = json!({"role": "assistant", "content": "", "refusal": null});
    assert_eq!(as_json(&text), expect);
    let delta = Delta::calls(vec![DeltaCall { index: 1, call: call() }]);
    let expect = json!({"tool_calls": [{
        "index": 1, "id": "call_1", "type": "function",
        "function": {"name": "f", "arguments": "{}"}
    }]});
    assert_eq!(as_json(&delta), expect);
    assert_eq!(as_json(&FinishReason::ToolCalls), json!("tool_calls"));
}
