//! Each form, and what it leaves of a model's freedom.

use serde_json::{Value, json};
use tokenizer::ToolCallParser;
use tokenizer::{Part, ToolFormat};

use super::validate::valid;
use super::{accepts, answers, compile, compiler, documents, tokenizer};
use crate::{Calls, Function, Source};

#[test]
fn every_object_is_json() {
    for text in answers(&Source::JsonObject) {
        let value: Value = serde_json::from_str(&text).expect("JSON");
        assert!(value.is_object(), "{text}");
    }
}

#[test]
fn a_schema_as_frameworks_write_them() {
    let schema = json!({
        "$defs": {
            "Colour": {"enum": ["red", "gr\u{fc}n", "\u{65e5}\u{672c}"], "title": "Colour"},
            "Node": {
                "type": "object", "title": "Node",
                "properties": {
                    "value": {"type": "integer", "minimum": -5, "maximum": 120},
                    "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}
                },
                "required": ["value", "next"]
            }
        },
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 5, "description": "short"},
            "colour": {"$ref": "#/$defs/Colour"},
            "tags": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
            "list": {"$ref": "#/$defs/Node"},
            "extra": {"type": ["number", "null"]}
        },
        "required": ["name", "colour", "tags", "list"]
    });
    let documents = documents(&schema);
    for document in &documents {
        assert!(valid(&schema, &schema, document), "{document}");
        let known = schema["properties"].as_object().expect("properties");
        let keys = document.as_object().expect("an object").keys();
        assert!(keys.clone().all(|key| known.contains_key(key)), "no others: {document}");
        assert!(keys.map(String::as_str).next() == Some("name"), "in the schema's order");
    }
    assert!(documents.iter().any(|document| document.get("extra").is_some()));
}

#[test]
fn what_objects_may_hold_besides_is_the_schemas_business() {
    let check = |schema: Value, text: &str, expect: bool| {
        assert_eq!(accepts(&compile(&Source::Schema(&schema)), text), expect, "{schema}: {text}");
    };
    let named = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    check(named.clone(), "{\"a\": 1}", true);
    check(named.clone(), "{}", true);
    check(named.clone(), "{\"b\": 1}", false);
    let mut open = named;
    open["additionalProperties"] = json!(true);
    check(open, "{\"b\": 1}", true);
    check(json!({"type": "object"}), "{\"b\": [1, null]}", true);
    let joined = json!({"allOf": [
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
        {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}
    ]});
    check(joined, "{\"a\": 1, \"b\": 2}", true);
    check(json!(true), "[1, \"x\"]", true);
}

#[test]
fn white_space_has_an_end() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "null"}}});
    let grammar = compile(&Source::Schema(&schema));
    for fine in ["{\"a\":null}", "{ \"a\": null }", "{\n    \"a\": null\n}"] {
        assert!(accepts(&grammar, fine), "{fine:?}");
    }
    for endless in ["{\n\n\n\n", "{    \"a\":null}", " {\"a\":null}"] {
        assert!(!accepts(&grammar, endless), "{endless:?}");
    }
}

#[test]
fn patterns_choices_and_grammars() {
    for text in answers(&Source::Regex("^[a-f]{2,4}(-[0-9]+)?$")) {
        let (letters, number) = text.split_once('-').unwrap_or((&text, "0"));
        assert!((2..=4).contains(&letters.len()), "{text}");
        assert!(letters.bytes().all(|b| (b'a'..=b'f').contains(&b)), "{text}");
        assert!(!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()), "{text}");
    }
    let choices = ["yes".to_owned(), "yes \"please\"\n".to_owned(), "\u{65e5}\u{672c}".to_owned()];
    let written = answers(&Source::Choice(&choices));
    assert!(written.iter().all(|text| choices.contains(text)), "{written:?}");
    assert!(choices.iter().all(|choice| accepts(&compile(&Source::Choice(&choices)), choice)));
    let sum = "start: number (\"+\" number)*\nnumber: /[0-9]{1,3}/\n";
    for text in answers(&Source::Lark(sum)) {
        assert!(text.split('+').all(|part| part.parse::<u16>().is_ok()), "{text}");
    }
}

/// Calls of two functions, one of which refers to definitions of its own.
fn calls(format: ToolFormat, many: bool) -> Vec<Vec<(String, Value)>> {
    let add = json!({
        "$defs": {"Number": {"type": "integer", "minimum": 0, "maximum": 99}},
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/Number"}, "b": {"$ref": "#/$defs/Number"}},
        "required": ["a", "b"]
    });
    let none = json!({"type": "object", "properties": {}});
    let functions = [
        Function { name: "add", parameters: &add, strict: true, place: 0 },
        Function { name: "add-all", parameters: &none, strict: false, place: 1 },
    ];
    let calls = Calls { format, functions: &functions, many };
    let names = vec!["add".to_owned(), "add-all".to_owned()];
    let parse = |text: String| {
        let mut parser = ToolCallParser::new(format, names.clone());
        let mut parts = parser.push(&text);
        parts.extend(parser.finish());
        let call = |part: Part| match part {
            Part::Text(other) => panic!("{other:?} is text in {text:?}"),
            Part::Call(call) => {
                let arguments = serde_json::from_str(&call.arguments).expect("JSON");
                let schema = if call.name == "add" { &add } else { &none };
                assert!(valid(schema, schema, &arguments), "{text:?}");
                (call.name, arguments)
            }
        };
        parts.into_iter().map(call).collect()
    };
    answers(&Source::Calls(&calls)).into_iter().map(parse).collect()
}

#[test]
fn forced_calls_are_calls_in_every_format() {
    for format in ToolFormat::ALL {
        let one = calls(format, false);
        assert!(one.iter().all(|calls| calls.len() == 1), "{}", format.name());
        for name in ["add", "add-all"] {
            assert!(one.iter().flatten().any(|(called, _)| called == name), "{}", format.name());
        }
        let many = calls(format, true);
        assert!(many.iter().all(|calls| !calls.is_empty()));
        assert!(many.iter().any(|calls| calls.len() > 1), "{}", format.name());
    }
}

#[test]
fn what_is_not_strict_is_left_out() {
    let unique = json!({"type": "object", "properties": {
        "a": {"type": "array", "items": {"type": "integer"}, "uniqueItems": true}
    }});
    let function = |strict| Function { name: "f", parameters: &unique, strict, place: 3 };
    let compiled = |function: Function<'_>| {
        let calls = Calls { format: ToolFormat::Hermes, functions: &[function], many: false };
        compiler().compile(&Source::Calls(&calls), "tools").map(drop)
    };
    assert_eq!(compiled(function(false)), Ok(()));
    let error = compiled(function(true)).expect_err("refused");
    assert_eq!(error.path, "tools[3].function.parameters.properties.a.uniqueItems");
}

#[test]
fn the_fixture_has_what_these_tests_need() {
    let tokenizer = tokenizer();
    assert!(tokenizer.is_special(super::STOPS[0]) && tokenizer.is_special(super::STOPS[1]));
}
