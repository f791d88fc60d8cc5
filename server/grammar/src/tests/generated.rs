//! Schemas out of a generator: whatever is written to them is valid.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::validate::valid;
use super::{compile, write};
use crate::Source;

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({"type": "null"})),
        Just(json!({"type": "boolean"})),
        (-300i64..300, 0i64..300).prop_map(|(least, more)| {
            json!({"type": "integer", "minimum": least, "maximum": least + more})
        }),
        (-30i64..30, 0i64..30).prop_map(|(least, more)| {
            json!({"type": "number", "minimum": least, "maximum": least + more})
        }),
        (0u64..4, 0u64..6).prop_map(|(least, more)| {
            json!({"type": "string", "minLength": least, "maxLength": least + more})
        }),
        prop::collection::vec("[a-c\u{e9}\u{1f600}\"\\\\ ]{0,3}", 1..4)
            .prop_map(|values| json!({"enum": values})),
        Just(json!({"const": {"k": [1, null, "x"]}})),
        Just(json!({"$ref": "#/$defs/shared"})),
    ]
}

fn schema() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(3, 16, 4, |inner| {
        let named = prop::collection::vec(("[a-z\u{e4}]{1,3}", inner.clone(), any::<bool>()), 0..4);
        prop_oneof![
            (named, any::<bool>()).prop_map(|(properties, open)| object(properties, open)),
            (inner.clone(), 0u64..3, 0u64..3).prop_map(|(items, least, more)| {
                json!({
                    "type": "array", "items": items, "minItems": least, "maxItems": least + more
                })
            }),
            prop::collection::vec(inner, 1..3).prop_map(|any| json!({"anyOf": any})),
        ]
    })
}

fn object(properties: Vec<(String, Value, bool)>, open: bool) -> Value {
    let mut named = Map::new();
    let mut required: Vec<Value> = Vec::new();
    for (name, schema, needed) in properties {
        let new = named.insert(name.clone(), schema).is_none();
        if needed && new {
            required.push(name.into());
        }
    }
    let mut object = json!({"type": "object", "properties": named, "required": required});
    if open {
        object["additionalProperties"] = json!({"type": "integer"});
    }
    object
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_ends_is_valid(schema in schema(), seed in any::<u64>()) {
        let mut root = schema;
        root["$defs"] = json!({"shared": {"type": "string", "maxLength": 3}});
        let grammar = compile(&Source::Schema(&root));
        for seed in [seed, seed ^ 1, seed ^ 2] {
            let Some(text) = write(&grammar, seed, 300) else { continue };
            let value: Value = match serde_json::from_str(&text) {
                Ok(value) => value,
                Err(error) => return Err(TestCaseError::fail(format!("{error}: {text:?}"))),
            };
            prop_assert!(valid(&root, &root, &value), "{} is not {}", text, root);
        }
    }
}
