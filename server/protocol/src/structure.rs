//! What the text of an answer must look like: `response_format`, and the fields that other
//! servers have for the same purpose.

use serde::Deserialize;
use serde_json::Value;

use crate::error::ApiError;
use crate::parse::{Object, parse};

/// The longest schema, pattern or grammar, in bytes of its JSON or text.
pub const MAX_STRUCTURE_BYTES: usize = 256 << 10;
/// The most choices of `guided_choice`.
pub const MAX_STRUCTURE_CHOICES: usize = 1024;

/// What an answer must look like, and which field of the request says so.
#[derive(Debug, Clone, PartialEq)]
pub struct Structure {
    /// The path of the field that holds it, for errors about it.
    pub path: String,
    /// The form itself.
    pub form: Form,
}

/// The form of an answer. Bounded in size; whether it makes sense is for its user to check.
#[derive(Debug, Clone, PartialEq)]
pub enum Form {
    /// Any JSON object.
    JsonObject,
    /// JSON that a schema describes.
    Schema(Value),
    /// Text that a regular expression matches as a whole.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// Text that a grammar in Lark's notation describes.
    Grammar(String),
}

/// The fields as sent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Raw {
    response_format: Option<Object<RawFormat>>,
    guided_json: Option<Value>,
    guided_regex: Option<String>,
    guided_choice: Option<Vec<String>>,
    guided_grammar: Option<String>,
    structured_outputs: Option<Object<RawStructured>>,
}

#[derive(Debug, Deserialize)]
struct RawFormat {
    #[serde(rename = "type")]
    kind: String,
    json_schema: Option<Object<RawSchema>>,
}

#[derive(Debug, Deserialize)]
struct RawSchema {
    name: Option<String>,
    schema: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawStructured {
    json: Option<Value>,
    json_object: Option<bool>,
    regex: Option<String>,
    choice: Option<Vec<String>>,
    grammar: Option<String>,
}

impl Structure {
    /// Reads the fields of a request's body; `None` where the answer is free.
    ///
    /// # Errors
    /// 400 that names the field: a wrong type, something too large, or more than one form.
    pub fn parse(body: &[u8]) -> Result<Option<Self>, ApiError> {
        let raw: Raw = parse(body)?;
        let mut found: Vec<Self> = Vec::new();
        let mut add = |path: &str, form: Form| found.push(Self { path: path.to_owned(), form });
        if let Some(Object(format)) = raw.response_format
            && let Some((path, form)) = format.form()?
        {
            add(path, form);
        }
        let all = raw.structured_outputs.map(|Object(all)| all).unwrap_or_default();
        if all.json_object == Some(true) {
            add("structured_outputs.json_object", Form::JsonObject);
        }
        for (path, json) in
            [("guided_json", raw.guided_json), ("structured_outputs.json", all.json)]
        {
            if let Some(json) = json {
                add(path, Form::Schema(schema(path, json)?));
            }
        }
        let regexes = [("guided_regex", raw.guided_regex), ("structured_outputs.regex", all.regex)];
        for (path, regex) in regexes {
            if let Some(regex) = regex {
                add(path, Form::Regex(regex));
            }
        }
        let grammars =
            [("guided_grammar", raw.guided_grammar), ("structured_outputs.grammar", all.grammar)];
        for (path, grammar) in grammars {
            if let Some(grammar) = grammar {
                add(path, Form::Grammar(grammar));
            }
        }
        for (path, choice) in
            [("guided_choice", raw.guided_choice), ("structured_outputs.choice", all.choice)]
        {
            if let Some(choice) = choice {
                add(path, Form::Choice(choice));
            }
        }
        match found.len() {
            0 => Ok(None),
            1 => found.pop().map(Self::check).transpose(),
            _ => {
                let path = &found[1].path;
                let message = format!("{path}: not together with {}", found[0].path);
                Err(ApiError::invalid(path.clone(), message))
            }
        }
    }

    fn check(self) -> Result<Self, ApiError> {
        let invalid = |why: String| {
            let message = format!("{}: {why}", self.path);
            Err(ApiError::invalid(self.path.clone(), message))
        };
        let bytes = match &self.form {
            Form::JsonObject => 0,
            Form::Schema(schema) => schema.to_string().len(),
            Form::Regex(text) | Form::Grammar(text) if text.is_empty() => {
                return invalid("must not be empty".to_owned());
            }
            Form::Regex(text) | Form::Grammar(text) => text.len(),
            Form::Choice(choices) if choices.is_empty() => {
                return invalid("must not be empty".to_owned());
            }
            Form::Choice(choices) if choices.len() > MAX_STRUCTURE_CHOICES => {
                let count = choices.len();
                return invalid(format!("{count} choices are more than {MAX_STRUCTURE_CHOICES}"));
            }
            Form::Choice(choices) => match choices.iter().position(String::is_empty) {
                Some(at) => return invalid(format!("choice {at} is empty")),
                None => choices.iter().map(String::len).sum(),
            },
        };
        if bytes > MAX_STRUCTURE_BYTES {
            return invalid(format!("{bytes} bytes are more than {MAX_STRUCTURE_BYTES}"));
        }
        Ok(self)
    }
}

impl RawFormat {
    fn form(self) -> Result<Option<(&'static str, Form)>, ApiError> {
        const SCHEMA: &str = "response_format.json_schema.schema";
        let required =
            |path: &str| Err(ApiError::invalid(path, format!("{path}: this field is required")));
        match self.kind.as_str() {
            "text" => Ok(None),
            "json_object" => Ok(Some(("response_format", Form::JsonObject))),
            "json_schema" => {
                let Some(Object(described)) = self.json_schema else {
                    return required("response_format.json_schema");
                };
                if described.name.is_none_or(|name| name.is_empty()) {
                    return required("response_format.json_schema.name");
                }
                match described.schema {
                    // OpenAI's schema is optional; without one, any JSON object is fine.
                    None => Ok(Some(("response_format", Form::JsonObject))),
                    Some(json) => Ok(Some((SCHEMA, Form::Schema(schema(SCHEMA, json)?)))),
                }
            }
            other => {
                let shown: String = other.chars().take(40).collect();
                let path = "response_format.type";
                let message =
                    format!("{path}: {shown:?} is not one of text, json_object, json_schema");
                Err(ApiError::invalid(path, message))
            }
        }
    }
}

/// A schema is an object; other servers' clients also send its text.
fn schema(path: &str, json: Value) -> Result<Value, ApiError> {
    let wrong = |found: &str| {
        let message = format!("{path}: expected a JSON schema, found {found}");
        Err(ApiError::invalid(path, message))
    };
    match json {
        Value::Object(_) | Value::Bool(_) => Ok(json),
        Value::String(text) => match serde_json::from_str(&text) {
            Ok(Value::Object(object)) => Ok(Value::Object(object)),
            Ok(_) => wrong("the text of something else"),
            Err(error) => wrong(&format!("text that is not JSON ({error})")),
        },
        Value::Array(_) => wrong("an array"),
        Value::Number(_) => wrong("a number"),
        Value::Null => wrong("null"),
    }
}
