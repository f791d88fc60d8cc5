//! JSON schemas: bounds, faults named by their path, and what is made of one before it is compiled.

mod check;
mod prepare;

pub(crate) use check::check;
pub(crate) use prepare::{alone, parts, prepared};

/// The most schemas inside one, itself included.
pub const MAX_SCHEMAS: usize = 4096;
/// The deepest nesting of schemas.
pub const MAX_SCHEMA_DEPTH: usize = 64;
/// The most regular expressions of one schema, in `pattern` and `patternProperties`.
pub const MAX_SCHEMA_PATTERNS: usize = 64;
/// The largest value of keywords that repeat something.
const MAX_COUNT: u64 = 1 << 20;
/// The largest bound of a number, either way: beyond it, not every whole number has a double.
const MAX_BOUND: f64 = 1e15;
/// The smallest `multipleOf`: below it the parser's arithmetic overflows.
const MIN_STEP: f64 = 1e-6;
/// The most parts that are compiled alone in search of a fault.
pub(crate) const MAX_BLAMED: usize = 64;

/// Keywords whose value is a schema.
const ONE: &[&str] = &["additionalItems", "additionalProperties"];
/// Keywords whose value is an array of schemas.
const MANY: &[&str] = &["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords whose value is an object of schemas.
const NAMED: &[&str] = &["$defs", "definitions", "patternProperties", "properties"];
/// Keywords that restrict and cannot be enforced while an answer is written.
const UNENFORCED: &[&str] = &[
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];
