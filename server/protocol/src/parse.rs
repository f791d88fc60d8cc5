//! From bytes to a request: JSON errors as 4xx with the field's path and plain words.
//!
//! Values are not judged here beyond their type. Nesting is limited by the parser to 128 levels.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, de};

use crate::error::ApiError;

/// Parses a request body. Unknown fields are ignored and null means absent.
///
/// A value of the wrong type is an error with the field's path in `param` and in the message, as
/// in `messages[0].content: expected a string or an array of text parts, found number 5`.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let Some(&first) = body.iter().find(|byte| !byte.is_ascii_whitespace()) else {
        return Err(ApiError::malformed("the body is empty; expected a JSON object"));
    };
    let mut json = serde_json::Deserializer::from_slice(body);
    let parsed: Object<T> = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        describe(&path, first, error.inner())
    })?;
    json.end().map_err(|error| {
        ApiError::malformed(format!("the body is not valid JSON: {}", plain(&error)))
    })?;
    Ok(parsed.0)
}

fn describe(path: &str, first: u8, error: &serde_json::Error) -> ApiError {
    if error.classify() != serde_json::error::Category::Data {
        let place = if path == "." { String::new() } else { format!(" at {path}") };
        return ApiError::malformed(format!("the body is not valid JSON{place}: {error}"));
    }
    let message = plain(error);
    if let Some(field) = message.strip_prefix("missing field `") {
        let name = field.trim_end_matches('`');
        let path = if path == "." { name.to_owned() } else { format!("{path}.{name}") };
        let message = format!("{path}: this field is required");
        return ApiError::invalid(path, message);
    }
    if path == "." && first != b'{' {
        return ApiError::malformed(format!("the body must be a JSON object: {message}"));
    }
    if path == "." {
        return ApiError::malformed(message);
    }
    ApiError::invalid(path, format!("{path}: {message}"))
}

/// The error without the parser's position, in our words for wrong types.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(before, _)| before);
    let wrong = ["invalid type: ", "invalid value: "];
    let Some(rest) = wrong.iter().find_map(|prefix| text.strip_prefix(prefix)) else {
        return text.to_owned();
    };
    match rest.rsplit_once(", expected ") {
        Some((found, expected)) => {
            let expected = match expected {
                "a map" => "an object",
                "a sequence" => "an array",
                other => other,
            };
            format!("expected {expected}, found {}", found_words(found))
        }
        None => text.to_owned(),
    }
}

/// The parser's description of a value in the words of JSON, shortened.
fn found_words(found: &str) -> String {
    const LONGEST: usize = 60;
    let short = |text: &str| {
        let cut: String = text.chars().take(LONGEST).collect();
        if cut.len() < text.len() { format!("{cut}...") } else { cut }
    };
    let found = found.trim();
    let inner = |prefix: &str| found.strip_prefix(prefix).map(|rest| rest.trim_matches('`'));
    let number = inner("integer ").or_else(|| inner("floating point "));
    match (number, found) {
        (Some(number), _) => format!("number {}", short(number)),
        (None, "map") => "an object".to_owned(),
        (None, "sequence") => "an array".to_owned(),
        (None, "null" | "unit value" | "Option value") => "null".to_owned(),
        (None, other) => short(other),
    }
}

/// A value that only a JSON object gives: the derived implementations would also take an array
/// with the fields in order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OnlyMap<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for OnlyMap<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(OnlyMap(PhantomData))
    }
}

/// A whole number within 64 bits. `16.0` is taken as 16, as other servers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Int(pub(crate) i64);

impl<'de> Deserialize<'de> for Int {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IntVisitor;
        impl Visitor<'_> for IntVisitor {
            type Value = Int;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer")
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Int, E> {
                Ok(Int(value))
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<Int, E> {
                i64::try_from(value).map(Int).map_err(|_| {
                    E::invalid_value(de::Unexpected::Unsigned(value), &"a 64-bit integer")
                })
            }
            fn visit_f64<E: Error>(self, value: f64) -> Result<Int, E> {
                const EXACT: f64 = 9_007_199_254_740_992.0;
                if value.fract() == 0.0 && value.abs() <= EXACT {
                    return Ok(Int(value as i64));
                }
                Err(E::invalid_type(de::Unexpected::Float(value), &self))
            }
        }
        deserializer.deserialize_any(IntVisitor)
    }
}

/// A finite number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Float(pub(crate) f64);

impl<'de> Deserialize<'de> for Float {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FloatVisitor;
        impl Visitor<'_> for FloatVisitor {
            type Value = Float;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Float, E> {
                Ok(Float(value as f64))
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<Float, E> {
                Ok(Float(value as f64))
            }
            fn visit_f64<E: Error>(self, value: f64) -> Result<Float, E> {
                Ok(Float(value))
            }
        }
        deserializer.deserialize_any(FloatVisitor)
    }
}

#[cfg(test)]
mod tests;
