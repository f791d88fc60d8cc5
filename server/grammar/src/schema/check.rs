//! Judges a schema before it is compiled.

use serde_json::{Map, Value};

use super::{
    MANY, MAX_BOUND, MAX_COUNT, MAX_SCHEMA_DEPTH, MAX_SCHEMA_PATTERNS, MAX_SCHEMAS, MIN_STEP,
    NAMED, ONE, UNENFORCED,
};
use crate::CompileError;

type Checked = Result<(), CompileError>;

/// Finds the first fault of `schema`, which errors call `path`. With `lenient`, keywords that
/// cannot be enforced are no fault.
pub(crate) fn check(schema: &Value, path: &str, lenient: bool) -> Checked {
    let mut judge = Judge { root: schema, path, lenient, schemas: 0, patterns: 0 };
    judge.schema(schema, path, 0)
}

struct Judge<'a> {
    root: &'a Value,
    /// What errors call the whole.
    path: &'a str,
    lenient: bool,
    schemas: usize,
    patterns: usize,
}

fn fault<T>(path: &str, reason: impl Into<String>) -> Result<T, CompileError> {
    Err(CompileError::new(path, reason))
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    let cut: String = text.chars().take(60).collect();
    if cut.len() < text.len() { format!("{cut}...") } else { cut }
}

/// The path of a key: names of properties may hold anything.
fn key(path: &str, name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '$');
    if !name.is_empty() && name.chars().all(plain) {
        return format!("{path}.{name}");
    }
    let name: String = name.chars().take(60).collect();
    format!("{path}[{}]", Value::from(name))
}

impl Judge<'_> {
    fn schema(&mut self, schema: &Value, path: &str, depth: usize) -> Checked {
        self.schemas += 1;
        if self.schemas > MAX_SCHEMAS {
            return fault(self.path, format!("more than {MAX_SCHEMAS} schemas inside one"));
        }
        if depth > MAX_SCHEMA_DEPTH {
            return fault(path, format!("nested deeper than {MAX_SCHEMA_DEPTH} schemas"));
        }
        match schema {
            Value::Bool(_) => Ok(()),
            Value::Object(object) => {
                for (name, value) in object {
                    self.keyword(name, value, &key(path, name), depth)?;
                }
                contradictions(object, path)
            }
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                fault(path, format!("expected an object or a boolean, found {}", shown(schema)))
            }
        }
    }

    fn keyword(&mut self, name: &str, value: &Value, path: &str, depth: usize) -> Checked {
        let wrong =
            |expected: &str| fault(path, format!("expected {expected}, found {}", shown(value)));
        match name {
            "items" if value.is_array() => self.list(value, path, depth),
            "items" => self.schema(value, path, depth + 1),
            _ if ONE.contains(&name) => self.schema(value, path, depth + 1),
            _ if MANY.contains(&name) => self.list(value, path, depth),
            _ if NAMED.contains(&name) => match value.as_object() {
                Some(named) => {
                    if name == "patternProperties" {
                        self.patterns(named.len(), path)?;
                    }
                    named
                        .iter()
                        .try_for_each(|(name, one)| self.schema(one, &key(path, name), depth + 1))
                }
                None => wrong("an object of schemas"),
            },
            "type" => kind(value, path),
            "enum" => match value.as_array() {
                Some(values) if !values.is_empty() => Ok(()),
                Some(_) | None => wrong("an array of at least one value"),
            },
            "required" => match value.as_array() {
                Some(names) if names.iter().all(Value::is_string) => Ok(()),
                Some(_) | None => wrong("an array of strings"),
            },
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties"
            | "maxProperties" => match value.as_u64() {
                Some(count) if count <= MAX_COUNT => Ok(()),
                Some(count) => fault(path, format!("{count} is more than {MAX_COUNT}")),
                None => wrong("a whole number of at least 0"),
            },
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum"
                if value.as_f64().is_some_and(|bound| bound.abs() > MAX_BOUND) =>
            {
                fault(path, format!("{} is beyond {MAX_BOUND:e}", shown(value)))
            }
            "minimum" | "maximum" if value.is_number() => Ok(()),
            "minimum" | "maximum" => wrong("a number"),
            // Old drafts have booleans here.
            "exclusiveMinimum" | "exclusiveMaximum" if value.is_number() || value.is_boolean() => {
                Ok(())
            }
            "exclusiveMinimum" | "exclusiveMaximum" => wrong("a number"),
            "multipleOf" => match value.as_f64() {
                Some(step) if (MIN_STEP..=MAX_BOUND).contains(&step) => Ok(()),
                Some(step) if step > 0.0 => {
                    fault(path, format!("{step} is not between {MIN_STEP} and {MAX_BOUND:e}"))
                }
                Some(_) | None => wrong("a number above 0"),
            },
            "pattern" if value.is_string() => self.patterns(1, path),
            "format" | "$schema" if value.is_string() => Ok(()),
            "pattern" | "format" | "$schema" => wrong("a string"),
            "$ref" => self.reference(value, path),
            "uniqueItems" if *value == Value::Bool(false) => Ok(()),
            _ if UNENFORCED.contains(&name) && !self.lenient => {
                fault(path, "this keyword cannot be enforced; leave it out")
            }
            // Annotations, and words that are nobody's: they restrict nothing.
            _ => Ok(()),
        }
    }

    fn list(&mut self, value: &Value, path: &str, depth: usize) -> Checked {
        let Some(schemas) = value.as_array().filter(|schemas| !schemas.is_empty()) else {
            let found = shown(value);
            return fault(path, format!("expected an array of at least one schema, found {found}"));
        };
        let mut schemas = schemas.iter().enumerate();
        schemas.try_for_each(|(at, one)| self.schema(one, &format!("{path}[{at}]"), depth + 1))
    }

    fn patterns(&mut self, more: usize, path: &str) -> Checked {
        self.patterns += more;
        if self.patterns > MAX_SCHEMA_PATTERNS {
            return fault(path, format!("more than {MAX_SCHEMA_PATTERNS} regular expressions"));
        }
        Ok(())
    }

    fn reference(&self, value: &Value, path: &str) -> Checked {
        let Some(reference) = value.as_str() else {
            return fault(path, format!("expected a string, found {}", shown(value)));
        };
        let Some(pointer) = reference.strip_prefix('#') else {
            let why = format!("{} is not inside this schema; only #/... is", shown(value));
            return fault(path, why);
        };
        let pointer = pointer.strip_suffix('/').unwrap_or(pointer);
        if pointer.contains(['~', '%']) {
            return fault(path, "escapes in references are not supported");
        }
        match self.root.pointer(pointer) {
            Some(Value::Object(_) | Value::Bool(_)) => Ok(()),
            Some(_) | None => fault(path, format!("{} leads to no schema", shown(value))),
        }
    }
}

fn kind(value: &Value, path: &str) -> Checked {
    const KINDS: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];
    let known = |value: &Value| value.as_str().is_some_and(|kind| KINDS.contains(&kind));
    let fine = match value.as_array() {
        Some(kinds) => !kinds.is_empty() && kinds.iter().all(known),
        None => known(value),
    };
    if fine {
        return Ok(());
    }
    fault(path, format!("{} is not one of {}", shown(value), KINDS.join(", ")))
}

/// Bounds that leave nothing between them.
fn contradictions(object: &Map<String, Value>, path: &str) -> Checked {
    let number = |name: &str| object.get(name).and_then(Value::as_f64);
    let pairs = [
        ("minimum", "maximum"),
        ("minLength", "maxLength"),
        ("minItems", "maxItems"),
        ("minProperties", "maxProperties"),
    ];
    for (low, high) in pairs {
        if let (Some(least), Some(most)) = (number(low), number(high))
            && least > most
        {
            return fault(&key(path, low), format!("{least} is more than {high}, {most}"));
        }
    }
    Ok(())
}
