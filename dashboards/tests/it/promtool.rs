//! A second opinion on every expression: promtool, with each wrapped as a recording rule.

use crate::{Scratch, root, tools_are_mandatory};
use dashboards::variables::fill_in;
use metric_catalog::engines::Engine;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

/// Every query of panels and annotations in the committed dashboards, with its place.
fn expressions() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let folder = root().join("dashboards/generated");
    let engines = Engine::ALL.iter().map(|engine| folder.join(engine.as_str()));
    let entries = std::iter::once(folder.clone()).chain(engines).flat_map(|folder| {
        fs::read_dir(folder).expect("generated").map(|entry| entry.expect("an entry").path())
    });
    for path in entries.filter(|path| path.is_file()) {
        let text = fs::read_to_string(&path).expect("a dashboard");
        let json: Value = serde_json::from_str(&text).expect("JSON");
        collect(&json, json["uid"].as_str().expect("a uid"), &mut found);
    }
    found
}

fn collect(value: &Value, place: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            let title = fields.get("title").and_then(Value::as_str).unwrap_or_default();
            let place =
                if title.is_empty() { place.to_owned() } else { format!("{place}/{title}") };
            if let Some(expr) = fields.get("expr").and_then(Value::as_str) {
                found.push((place.clone(), expr.to_owned()));
            }
            fields.values().for_each(|child| collect(child, &place, found));
        }
        Value::Array(list) => list.iter().for_each(|child| collect(child, place, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn promtool_takes_every_expression() {
    let expressions = expressions();
    assert!(expressions.len() > 100, "{} expressions", expressions.len());
    let mut rules = String::from("groups:\n  - name: panels\n    rules:\n");
    for (index, (place, expr)) in expressions.iter().enumerate() {
        // A JSON string is a YAML string.
        let expr = Value::String(fill_in(expr));
        writeln!(
            rules,
            "      # {place}\n      - record: panel:{index}:value\n        expr: {expr}"
        )
        .expect("writing to a String cannot fail");
    }
    let scratch = Scratch::new("promtool");
    let path = scratch.0.join("panels.yml");
    fs::write(&path, rules).expect("writable");
    match Command::new("promtool").args(["check", "rules"]).arg(&path).output() {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{errors}");
        }
        Err(error) => {
            assert!(!tools_are_mandatory(), "promtool: {error}");
            println!("SKIP promtool is not installed (apt-get install prometheus): {error}");
        }
    }
}
