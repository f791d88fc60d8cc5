//! A small validator: the part of JSON schema that the tests' schemas use, written from the
//! specification and independent of the compiler.

use serde_json::Value;

/// Whether `value` is what `schema` (inside `root`) describes.
pub(super) fn valid(root: &Value, schema: &Value, value: &Value) -> bool {
    let Some(object) = schema.as_object() else {
        return schema == &Value::Bool(true);
    };
    object.iter().all(|(name, wanted)| keyword(root, schema, name, wanted, value))
}

fn keyword(root: &Value, schema: &Value, name: &str, wanted: &Value, value: &Value) -> bool {
    let all = |schemas: &Value| -> Vec<bool> {
        let schemas = schemas.as_array().expect("an array of schemas");
        schemas.iter().map(|one| valid(root, one, value)).collect()
    };
    match name {
        "type" => match wanted.as_array() {
            Some(kinds) => kinds.iter().any(|kind| is(kind, value)),
            None => is(wanted, value),
        },
        "enum" => wanted.as_array().expect("values").contains(value),
        "const" => wanted == value,
        "anyOf" => all(wanted).contains(&true),
        "oneOf" => all(wanted).into_iter().filter(|valid| *valid).count() == 1,
        "allOf" => !all(wanted).contains(&false),
        "$ref" => {
            let pointer = wanted.as_str().expect("a string").trim_start_matches('#');
            valid(root, root.pointer(pointer).expect("it leads somewhere"), value)
        }
        "properties" => value.as_object().is_none_or(|object| {
            object.iter().all(|(key, one)| wanted.get(key).is_none_or(|s| valid(root, s, one)))
        }),
        "additionalProperties" => value.as_object().is_none_or(|object| {
            let named = |key: &str| schema["properties"].get(key).is_some();
            object.iter().all(|(key, one)| named(key) || valid(root, wanted, one))
        }),
        "required" => value.as_object().is_none_or(|object| {
            let mut names = wanted.as_array().expect("names").iter().filter_map(Value::as_str);
            names.all(|name| object.contains_key(name))
        }),
        "items" => {
            value.as_array().is_none_or(|list| list.iter().all(|one| valid(root, wanted, one)))
        }
        "minItems" => value.as_array().is_none_or(|list| list.len() as u64 >= count(wanted)),
        "maxItems" => value.as_array().is_none_or(|list| list.len() as u64 <= count(wanted)),
        "minLength" => value.as_str().is_none_or(|s| s.chars().count() as u64 >= count(wanted)),
        "maxLength" => value.as_str().is_none_or(|s| s.chars().count() as u64 <= count(wanted)),
        "minimum" => value.as_f64().is_none_or(|x| x >= wanted.as_f64().expect("a number")),
        "maximum" => value.as_f64().is_none_or(|x| x <= wanted.as_f64().expect("a number")),
        "$defs" | "title" | "description" => true,
        other => panic!("the validator does not know {other}"),
    }
}

fn count(value: &Value) -> u64 {
    value.as_u64().expect("a count")
}

fn is(kind: &Value, value: &Value) -> bool {
    match kind.as_str().expect("the name of a type") {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|x| x.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the validator does not know the type {other}"),
    }
}
