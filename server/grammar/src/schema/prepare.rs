//! What is made of a schema before it is compiled, and the parts that it has.

use llguidance::JsonCompileOptions;
use serde_json::{Map, Value};

use super::{MANY, NAMED, ONE};

/// White space between the parts of JSON: nothing, one space, or a line and its indentation. A
/// grammar that allows any amount lets a model that has lost its way write nothing else for ever.
const WHITE_SPACE: &str = r"\x20|\n[\x20\t]{0,32}";

/// The schema as it is compiled. With `lenient`, what cannot be enforced is left out.
///
/// Objects that name their properties get no others unless the schema says so: what nobody asked
/// for helps nobody, and a small model would not stop.
pub(crate) fn prepared(schema: &Value, lenient: bool) -> Value {
    let mut schema = match schema {
        Value::Bool(true) => Value::Object(Map::new()),
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => schema.clone(),
    };
    let open = joins(&schema);
    tidy(&mut schema, !open);
    if schema.is_object() {
        let options = JsonCompileOptions {
            whitespace_pattern: Some(WHITE_SPACE.to_owned()),
            lenient,
            ..JsonCompileOptions::default()
        };
        options.apply_to(&mut schema);
    }
    schema
}

/// Whether schemas are joined somewhere: then a property may be named by another one.
fn joins(schema: &Value) -> bool {
    let here = schema.as_object().is_some_and(|object| {
        let joined = ["allOf", "anyOf", "oneOf", "$ref"];
        let names = object.contains_key("properties");
        names && joined.iter().any(|name| object.contains_key(*name))
            || object.get("allOf").and_then(Value::as_array).is_some_and(|all| all.len() > 1)
    });
    here || parts(schema).iter().any(|(_, part)| joins(part))
}

fn tidy(schema: &mut Value, close: bool) {
    let Some(object) = schema.as_object_mut() else { return };
    // Options of the compiler that only we give.
    object.remove("x-guidance");
    if object.get("uniqueItems") == Some(&Value::Bool(false)) {
        object.remove("uniqueItems");
    }
    let says = ["additionalProperties", "patternProperties", "unevaluatedProperties"];
    if close
        && object.contains_key("properties")
        && !says.iter().any(|name| object.contains_key(*name))
    {
        object.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    for (name, value) in object.iter_mut() {
        let name = name.as_str();
        if ONE.contains(&name) || (name == "items" && !value.is_array()) {
            tidy(value, close);
        } else if MANY.contains(&name) || name == "items" {
            value.as_array_mut().into_iter().flatten().for_each(|one| tidy(one, close));
        } else if NAMED.contains(&name) {
            let named = value.as_object_mut().into_iter().flat_map(Map::values_mut);
            named.for_each(|one| tidy(one, close));
        }
    }
}

/// The schemas directly inside one, and the way to each.
pub(crate) fn parts(schema: &Value) -> Vec<(String, &Value)> {
    let mut parts = Vec::new();
    for (name, value) in schema.as_object().into_iter().flatten() {
        let known = |list: &[&str]| list.contains(&name.as_str());
        match value {
            Value::Array(list) if known(MANY) || name == "items" => {
                let each = list.iter().enumerate();
                parts.extend(each.map(|(at, one)| (format!(".{name}[{at}]"), one)));
            }
            Value::Object(named) if known(NAMED) => {
                parts.extend(named.iter().map(|(key, one)| (format!(".{name}.{key}"), one)));
            }
            one if known(ONE) || name == "items" => parts.push((format!(".{name}"), one)),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => {}
        }
    }
    parts
}

/// A part of `root` as a schema by itself; `None` where it refers to something else in the root
/// than definitions.
pub(crate) fn alone(root: &Value, part: &Value) -> Option<Value> {
    let mut part = part.clone();
    if !refers_to_definitions_only(&part) {
        return None;
    }
    let object = part.as_object_mut()?;
    for name in ["$defs", "definitions"] {
        if let Some(definitions) = root.get(name) {
            object.entry(name).or_insert_with(|| definitions.clone());
        }
    }
    Some(part)
}

fn refers_to_definitions_only(schema: &Value) -> bool {
    let here = match schema.get("$ref").and_then(Value::as_str) {
        Some(to) => to.starts_with("#/$defs/") || to.starts_with("#/definitions/"),
        None => true,
    };
    here && parts(schema).iter().all(|(_, part)| refers_to_definitions_only(part))
}
