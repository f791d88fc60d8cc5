use serde::Deserialize;

use super::{Float, Int, Object, parse};
use crate::error::ApiError;

#[derive(Debug, Deserialize)]
struct Sample {
    name: String,
    count: Option<Int>,
    ratio: Option<Float>,
    flag: Option<bool>,
    inner: Option<Vec<Object<Inner>>>,
}

#[derive(Debug, Deserialize)]
struct Inner {
    size: Int,
}

fn sample(body: &str) -> Result<Sample, ApiError> {
    parse(body.as_bytes())
}

fn error(body: &str) -> ApiError {
    let error = sample(body).expect_err("is refused");
    assert_eq!((error.status, error.kind), (400, "invalid_request_error"));
    error
}

#[track_caller]
fn check(body: &str, param: Option<&str>, message: &str) {
    let error = error(body);
    assert_eq!((error.param.as_deref(), error.message.as_str()), (param, message), "{body}");
}

#[test]
fn unknown_fields_are_ignored_and_null_is_absent() {
    let body = r#" {"name": "x", "count": null, "ratio": null, "flag": null, "inner": null,
        "other": {"deep": [1, "two", {"three": 3}]}, "count2": "many"} "#;
    let parsed = sample(body).expect("parses");
    assert_eq!(parsed.name, "x");
    assert!(parsed.count.is_none() && parsed.ratio.is_none() && parsed.flag.is_none());
    assert!(parsed.inner.is_none());
    let parsed = sample(r#"{"name": "x", "inner": [{"size": 3}]}"#).expect("parses");
    assert_eq!(parsed.inner.map(|inner| inner[0].0.size), Some(Int(3)));
}

#[test]
fn numbers_of_any_spelling_are_taken_where_they_fit() {
    let parse = |count: &str| {
        sample(&format!(r#"{{"name": "x", "count": {count}, "ratio": {count}}}"#)).map(|parsed| {
            let Int(count) = parsed.count.expect("present");
            let Float(ratio) = parsed.ratio.expect("present");
            (count, ratio)
        })
    };
    assert_eq!(parse("16"), Ok((16, 16.0)));
    assert_eq!(parse("-16"), Ok((-16, -16.0)));
    assert_eq!(parse("16.0"), Ok((16, 16.0)));
    assert_eq!(parse("1.6e1"), Ok((16, 16.0)));
    assert_eq!(parse("9223372036854775807"), Ok((i64::MAX, 9_223_372_036_854_775_807.0)));
}

#[test]
fn wrong_types_are_named_with_their_path() {
    let path = Some("inner[1].size");
    let message = "inner[1].size: expected an integer, found string \"big\"";
    check(r#"{"name": "x", "inner": [{"size": 1}, {"size": "big"}]}"#, path, message);
    let message = "name: expected a string, found number 5";
    check(r#"{"name": 5}"#, Some("name"), message);
    check(r#"{"name": null}"#, Some("name"), "name: expected a string, found null");
    let message = "name: expected a string, found an object";
    check(r#"{"name": {"a": 1}}"#, Some("name"), message);
    check(r#"{"name": [1]}"#, Some("name"), "name: expected a string, found an array");
    let message = "flag: expected a boolean, found string \"yes\"";
    check(r#"{"name": "x", "flag": "yes"}"#, Some("flag"), message);
    let message = "count: expected an integer, found number 1.5";
    check(r#"{"name": "x", "count": 1.5}"#, Some("count"), message);
    let message = "ratio: expected a number, found boolean `true`";
    check(r#"{"name": "x", "ratio": true}"#, Some("ratio"), message);
    let message = "inner: expected an array, found an object";
    check(r#"{"name": "x", "inner": {}}"#, Some("inner"), message);
    let message = "inner[0]: expected an object, found an array";
    check(r#"{"name": "x", "inner": [[1]]}"#, Some("inner[0]"), message);
    check("{}", Some("name"), "name: this field is required");
    let message = "inner[0].size: this field is required";
    check(r#"{"name": "x", "inner": [{}]}"#, Some("inner[0].size"), message);
}

#[test]
fn huge_numbers_are_clean_errors() {
    let message = "count: expected a 64-bit integer, found number 9223372036854775808";
    check(r#"{"name": "x", "count": 9223372036854775808}"#, Some("count"), message);
    for number in ["1e400", "-1e400", &"9".repeat(400), "NaN", "Infinity", "-", "0x10", "1e"] {
        let body = format!(r#"{{"name": "x", "ratio": {number}}}"#);
        let error = error(&body);
        assert!(error.message.starts_with("the body is not valid JSON"), "{error}");
        assert!(error.message.len() < 200, "{error}");
    }
    let body = format!(r#"{{"name": "x", "count": {}}}"#, "9".repeat(300));
    assert!(error(&body).message.len() < 200);
}

#[test]
fn what_is_no_json_object_is_refused() {
    check("", None, "the body is empty; expected a JSON object");
    check(" \n", None, "the body is empty; expected a JSON object");
    check("[1,2]", None, "the body must be a JSON object: expected an object, found an array");
    check("null", None, "the body must be a JSON object: expected an object, found null");
    let found = "the body must be a JSON object: expected an object, found string \"x\"";
    check("\"x\"", None, found);
    for body in [
        "{",
        "{\"name\": \"x\"",
        "{\"name\": \"x\"} extra",
        "{\"name\": \"x\"}{}",
        "{'name': 'x'}",
        "{\"name\": \"\\ud83d\"}",
        "{\"name\": \"\\ud83dx\"}",
        "{\"name\": \"\\u12\"}",
        "{\"name\": \"a\u{1}b\"}",
        "\u{feff}{\"name\": \"x\"}",
    ] {
        let error = error(body);
        assert_eq!(error.code, Some("invalid_json"), "{body:?}: {error}");
        assert!(error.message.starts_with("the body is not valid JSON"), "{body:?}: {error}");
    }
    let invalid_utf8 = parse::<Sample>(b"{\"name\": \"\xff\xfe\"}").expect_err("is refused");
    assert_eq!(invalid_utf8.status, 400);
    assert_eq!(sample("{\"name\": \"a\\u0000b\"}").expect("parses").name, "a\0b");
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let deep = |open: &str, close: &str| {
        let nested = format!("{}{}", open.repeat(200_000), close.repeat(200_000));
        sample(&format!(r#"{{"name": "x", "inner": {nested}}}"#)).expect_err("is refused")
    };
    assert_eq!(deep("[", "]").status, 400);
    assert_eq!(deep(r#"[{"size":"#, "}]").status, 400);
    // Unknown fields are skipped without recursion.
    let nested = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    assert!(sample(&format!(r#"{{"name": "x", "other": {nested}}}"#)).is_ok());
}

#[test]
fn long_values_are_shortened_in_messages() {
    let body = format!(r#"{{"name": "x", "flag": "{}"}}"#, "long ".repeat(10_000));
    let message = error(&body).message;
    assert!(message.len() < 200 && message.ends_with("..."), "{message}");
}
