//! Forms that are wrong, and forms that are hostile: refused in bounded time, with a path.

use serde_json::{Value, json};

use super::compiler;
use crate::{CompileError, MAX_SCHEMA_DEPTH, MAX_SCHEMAS, Source};

fn refused(schema: &Value) -> CompileError {
    match compiler().compile(&Source::Schema(schema), "s") {
        Ok(_) => panic!("{schema} compiles"),
        Err(error) => error,
    }
}

#[test]
fn faults_have_a_path_and_a_reason() {
    let check = |schema: Value, path: &str, words: &str| {
        let error = refused(&schema);
        assert_eq!(error.path, path, "{error}");
        assert!(error.reason.contains(words), "{error}");
    };
    let inside = |schema: Value| json!({"type": "object", "properties": {"a b": schema}});
    let path = "s.properties[\"a b\"]";
    check(inside(json!(5)), path, "expected an object or a boolean, found 5");
    check(inside(json!({"type": "text"})), &format!("{path}.type"), "\"text\" is not one of array");
    check(inside(json!({"type": []})), &format!("{path}.type"), "[] is not one of");
    check(inside(json!({"minimum": "3"})), &format!("{path}.minimum"), "expected a number");
    check(inside(json!({"maxLength": -1})), &format!("{path}.maxLength"), "at least 0");
    check(inside(json!({"enum": []})), &format!("{path}.enum"), "at least one value");
    check(inside(json!({"required": "a"})), &format!("{path}.required"), "array of strings");
    check(inside(json!({"multipleOf": 0})), &format!("{path}.multipleOf"), "above 0");
    check(inside(json!({"multipleOf": 1e-9})), &format!("{path}.multipleOf"), "not between");
    check(inside(json!({"maximum": 1e20})), &format!("{path}.maximum"), "beyond 1e15");
    check(json!({"anyOf": []}), "s.anyOf", "at least one schema");
    check(json!({"anyOf": [true, {"not": {}}]}), "s.anyOf[1].not", "cannot be enforced");
    check(json!({"properties": []}), "s.properties", "an object of schemas");
    check(json!({"$ref": "#/$defs/x"}), "s.$ref", "leads to no schema");
    check(json!({"$ref": "http://x.org/y"}), "s.$ref", "not inside this schema");
    check(json!({"minItems": 3, "maxItems": 2}), "s.minItems", "3 is more than maxItems, 2");
    // These are found by compiling parts alone.
    check(
        json!({"type": "object", "properties": {
            "fine": {"type": "string"}, "list": {"type": "array", "items": {"pattern": "a("}}}}),
        "s.properties.list.items",
        "invalid regular expression: unclosed group",
    );
    check(
        json!({"$defs": {"Mail": {"type": "string", "format": "no-such"}},
            "type": "object", "properties": {"m": {"$ref": "#/$defs/Mail"}}, "required": ["m"]}),
        "s.$defs.Mail",
        "Unknown format: no-such",
    );
    check(json!(false), "s", "");
}

#[test]
fn other_forms_are_refused_too() {
    let check = |source: Source<'_>, words: &str| match compiler().compile(&source, "f") {
        Ok(_) => panic!("{source:?} compiles"),
        Err(error) => assert!(error.path == "f" && error.reason.contains(words), "{error}"),
    };
    check(Source::Regex("a("), "invalid regular expression");
    check(Source::Lark("start: missing"), "missing");
    check(Source::Lark("nothing"), "");
    check(Source::Lark("start: start"), "");
}

#[test]
fn hostile_forms_end_soon() {
    let deep = |levels: usize| {
        (0..levels)
            .fold(json!({"type": "null"}), |inner, _| json!({"type": "array", "items": inner}))
    };
    let error = refused(&deep(MAX_SCHEMA_DEPTH + 1));
    assert!(error.reason.contains("nested deeper than 64"), "{error}");
    let wide: Vec<Value> = (0..=MAX_SCHEMAS).map(|n| json!({"const": n})).collect();
    let error = refused(&json!({"anyOf": wide}));
    assert!(error.reason.contains("more than 4096 schemas"), "{error}");
    let all: Vec<Value> =
        (0..9).map(|n| json!({"pattern": format!("(a|b)*{n}.{{1,60}}")})).collect();
    let patterns: serde_json::Map<String, Value> =
        (0..60).map(|n| (format!("^(x|y)*{n}.*z{{1,30}}"), json!({}))).collect();
    let chain: serde_json::Map<String, Value> = (0..40)
        .map(|n| {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            (format!("d{n}"), json!({"anyOf": [next, next, {"type": "array", "items": next}]}))
        })
        .chain([("d40".to_owned(), json!({"type": "null"}))])
        .collect();
    let hostile = [
        deep(MAX_SCHEMA_DEPTH),
        json!({"type": "string", "allOf": all}),
        json!({"type": "object", "patternProperties": patterns}),
        json!({"$defs": chain, "$ref": "#/$defs/d0"}),
        json!({"type": "string", "minLength": 1_000_000, "maxLength": 1_000_000}),
        json!({"type": "array", "items": {"type": "string", "maxLength": 50_000},
            "minItems": 1_000_000}),
        json!({"type": "string", "pattern": "((a{1,900}){1,900}){1,900}"}),
        json!({"type": "string", "pattern": format!("{}a{}", "(".repeat(5000), ")".repeat(5000))}),
        json!({"type": "number", "multipleOf": 1e-6, "minimum": -1e15, "maximum": 1e15}),
    ];
    // Whether they compile or are refused does not matter: the test ends.
    for schema in hostile {
        let outcome = compiler().compile(&Source::Schema(&schema), "s");
        let fine = outcome.map_or_else(|error| error.path.starts_with('s'), |_| true);
        assert!(fine, "{schema}");
    }
}
