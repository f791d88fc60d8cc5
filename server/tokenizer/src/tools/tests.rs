use proptest::prelude::*;

use super::{Part, ToolCall, ToolCallParser, ToolFormat, deepseek};

fn names() -> Vec<String> {
    ["get_weather", "add"].map(str::to_owned).to_vec()
}

fn call(name: &str, arguments: &str) -> Part {
    Part::Call(ToolCall { name: name.to_owned(), arguments: arguments.to_owned() })
}

fn text(text: &str) -> Part {
    Part::Text(text.to_owned())
}

/// Texts next to each other joined, as a reader sees them.
fn joined(parts: Vec<Part>) -> Vec<Part> {
    let mut out: Vec<Part> = Vec::new();
    for part in parts {
        match (out.last_mut(), part) {
            (Some(Part::Text(before)), Part::Text(more)) => before.push_str(&more),
            (_, part) => out.push(part),
        }
    }
    out
}

fn parse(format: ToolFormat, pieces: &[&str]) -> Vec<Part> {
    let mut parser = ToolCallParser::new(format, names());
    let mut parts = Vec::new();
    for piece in pieces {
        parts.extend(parser.push(piece));
    }
    parts.extend(parser.finish());
    joined(parts)
}

#[test]
fn hermes_calls_and_the_text_before_them() {
    let source = "Let me look.\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": \
        {\"city\": \"K\u{f6}ln }</tool_call> {\"}}\n</tool_call>\n<tool_call>{\"arguments\": {}, \
        \"name\": \"other\"}</tool_call>\n";
    let expect = [
        text("Let me look."),
        call("get_weather", "{\"city\": \"K\u{f6}ln }</tool_call> {\"}"),
        call("other", "{}"),
    ];
    assert_eq!(parse(ToolFormat::Hermes, &[source]), expect);
}

#[test]
fn malformed_calls_are_text() {
    for source in [
        "<tool_call>{\"name\": \"add\"}</tool_call>",
        "<tool_call>{\"name\": \"add\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": tru}}</tool_call> and on",
        "<tool_call>{\"name\": \"add\", \"arguments\": {}} </tool_cal",
        "<tool_call>\nadd(1, 2)\n</tool_call>",
        "<tool_call",
        " a <b> <<tool_",
        "\n",
    ] {
        assert_eq!(parse(ToolFormat::Hermes, &[source]), [text(source)], "{source}");
    }
    let source = "<tool_call>oops <tool_call>{\"name\":\"add\",\"arguments\":\"{\\\"a\\\":1}\"}\
        </tool_call> then";
    let expect = [text("<tool_call>oops"), call("add", "{\"a\":1}"), text(" then")];
    assert_eq!(parse(ToolFormat::Hermes, &[source]), expect);
}

#[test]
fn text_is_held_back_only_while_it_may_be_a_call() {
    let mut parser = ToolCallParser::new(ToolFormat::Hermes, names());
    assert_eq!(parser.push("a <"), [text("a")]);
    assert_eq!(parser.push("b"), [text(" <b")]);
    assert_eq!(parser.push("<tool_"), []);
    assert_eq!(parser.push("box> and <tool_call>{"), [text("<tool_box> and")]);
    assert_eq!(parser.push("x"), [text(" <tool_call>{x")]);
    assert_eq!(parser.push("\n<tool_call>{\"name\":\"add\",\"arguments\":{}}"), []);
    assert_eq!(parser.push("</tool_call>"), [call("add", "{}")]);
    assert_eq!(parser.push(" "), []);
    assert_eq!(parser.finish(), []);
}

#[test]
fn llama_writes_bare_objects() {
    let llama = |source: &str| parse(ToolFormat::Llama, &[source]);
    let two = "{\"name\": \"add\", \"parameters\": {\"a\": 1}}; \
        {\"name\": \"get_weather\", \"parameters\": {}}<|x|>";
    assert_eq!(llama(two), [call("add", "{\"a\": 1}"), call("get_weather", "{}"), text("<|x|>")]);
    let tagged = "<|python_tag|>{\"name\": \"new\", \"arguments\": {}}";
    assert_eq!(llama(tagged), [call("new", "{}")]);
    for source in [
        "{\"name\": \"no_such_tool\", \"parameters\": {}}",
        "{\"answer\": {\"name\": \"add\"}}",
        "Sure: {\"name\": \"add\", \"parameters\": {}}",
        "<|python_tag|>print(1)",
    ] {
        assert_eq!(llama(source), [text(source)], "{source}");
    }
}

#[test]
fn mistral_writes_a_list_or_names() {
    let list = "[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": [1, 2]}}, \
        {\"name\": \"get_weather\", \"arguments\": {}, \"id\": \"abcdefghi\"}]";
    let expect = [call("add", "{\"a\": [1, 2]}"), call("get_weather", "{}")];
    assert_eq!(parse(ToolFormat::Mistral, &[list]), expect);
    let named = "ok[TOOL_CALLS]add[ARGS]{\"a\": [1, 2]}\
        [TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{}[TOOL_CALLS]add{}";
    let expect =
        [text("ok"), call("add", "{\"a\": [1, 2]}"), call("get_weather", "{}"), call("add", "{}")];
    assert_eq!(parse(ToolFormat::MistralArgs, &[named]), expect);
    for source in ["[TOOL_CALLS][]", "[TOOL_CALLS]add[ARGS][1]", "[1, 2]", "[TOOL_CALLS]"] {
        assert_eq!(parse(ToolFormat::Mistral, &[source]), [text(source)], "{source}");
    }
}

#[test]
fn deepseek_wraps_calls_twice() {
    let frame = ToolFormat::DeepseekV3.frame();
    let fenced = |name: &str, arguments: &str| {
        format!("{}{name}{}{arguments}{}", frame.before, frame.between, frame.after)
    };
    let source = format!(
        "Well.{}{}\n{}{} ",
        frame.open,
        fenced("add", "{\"a\": 1}"),
        fenced("new", "{}"),
        frame.close
    );
    let expect = [text("Well."), call("add", "{\"a\": 1}"), call("new", "{}")];
    assert_eq!(parse(ToolFormat::DeepseekV3, &[&source]), expect);
    let (calls, sep) = (deepseek::CALLS, deepseek::SEP);
    let (one, end) = (deepseek::CALL, deepseek::CALL_END);
    let source =
        format!("{calls}{one}add{sep}{{}}{end}{one}new{sep}{{}}{end}{}", deepseek::CALLS_END);
    let expect = [call("add", "{}"), call("new", "{}")];
    assert_eq!(parse(ToolFormat::DeepseekV31, &[&source]), expect);
    let cut = format!("{calls}{one}add{sep}{{");
    assert_eq!(parse(ToolFormat::DeepseekV31, &[&cut]), [text(&cut)]);
}

#[test]
fn what_a_frame_holds_is_parsed_again() {
    for format in ToolFormat::ALL {
        let frame = format.frame();
        let one = |name: &str, arguments: &str| {
            format!("{}{name}{}{arguments}{}", frame.before, frame.between, frame.after)
        };
        let two = [one("add", "{\"a\": \"]}\"}"), one("get_weather", "{}")];
        let source = format!("{}{}{}", frame.open, two.join(frame.separator), frame.close);
        let expect = [call("add", "{\"a\": \"]}\"}"), call("get_weather", "{}")];
        assert_eq!(parse(format, &[&source]), expect, "{}", format.name());
    }
}

#[test]
fn templates_tell_their_format() {
    let check = |source: &str, expect: Option<ToolFormat>| {
        assert_eq!(ToolFormat::of_template(source), expect, "{source}");
    };
    check("<tool_call> {{ call.arguments }} </tool_call>", Some(ToolFormat::Hermes));
    check("<tool_call><function={{ call.name }}> arguments", None);
    check("<|start_header_id|> '\"parameters\": '", Some(ToolFormat::Llama));
    check("<|start_header_id|>{{ message.role }}", None);
    check("[TOOL_CALLS] [", Some(ToolFormat::Mistral));
    check("[TOOL_CALLS]{{ name }}[ARGS]", Some(ToolFormat::MistralArgs));
    check(&format!("{} ```json", deepseek::CALLS), Some(ToolFormat::DeepseekV3));
    check(deepseek::CALLS, Some(ToolFormat::DeepseekV31));
    check("<|im_start|>{{ message.role }}", None);
}

/// Text in which calls, halves of calls and markers are likely.
fn messy() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("<tool_call>".to_owned()),
        Just("</tool_call>".to_owned()),
        Just("{\"name\": \"add\", \"arguments\": {\"a\": 1}}".to_owned()),
        Just("{\"name\":\"add\",\"parameters\":{}}".to_owned()),
        Just("[TOOL_CALLS]".to_owned()),
        Just("add[ARGS]{}".to_owned()),
        Just("<|python_tag|>".to_owned()),
        Just(format!("{}{}add{}{{}}", deepseek::CALLS, deepseek::CALL, deepseek::SEP)),
        Just(deepseek::CALL_END.to_owned()),
        Just(deepseek::FUNCTION.to_owned()),
        "[\\[\\]{}:\",; \n<a\u{e9}\u{ff5c}]{0,4}",
        ".{0,6}",
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn text_of(parts: &[Part]) -> String {
    let text = |part: &Part| match part {
        Part::Text(text) => text.clone(),
        Part::Call(_) => String::new(),
    };
    parts.iter().map(text).collect()
}

proptest! {
    #[test]
    fn cutting_the_text_changes_nothing(source in messy(), format in 0..ToolFormat::ALL.len()) {
        let format = ToolFormat::ALL[format];
        let whole = parse(format, &[&source]);
        for (at, _) in source.char_indices() {
            prop_assert_eq!(&parse(format, &[&source[..at], &source[at..]]), &whole);
        }
        let chars: Vec<String> = source.chars().map(String::from).collect();
        let chars: Vec<&str> = chars.iter().map(String::as_str).collect();
        prop_assert_eq!(&parse(format, &chars), &whole);
    }

    #[test]
    fn no_byte_is_lost(source in messy(), format in 0..ToolFormat::ALL.len()) {
        let parts = parse(ToolFormat::ALL[format], &[&source]);
        let shown = text_of(&parts);
        let calls = parts.iter().filter(|part| matches!(part, Part::Call(_))).count();
        if calls == 0 {
            prop_assert_eq!(shown, source);
        } else {
            // The text is the source without the calls: a subsequence of it.
            let mut rest = source.chars();
            prop_assert!(shown.chars().all(|c| rest.any(|other| other == c)));
            // Names are written by nothing else in these sources.
            let added = source.matches("add").count() - shown.matches("add").count();
            prop_assert_eq!(added, calls);
        }
    }
}
