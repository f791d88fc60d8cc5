//! What changed between two dashboards, in the words of a dashboard.
//!
//! Lists are matched by what names their entries (panel id, query, variable), so that a panel that
//! moves is one line and not a hundred. Compares JSON values: the old side may be any JSON.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Longest value that is shown whole.
const SHOWN: usize = 120;

/// Objects whose names say nothing to a reader: those of Classic, and the frame of the resource.
const HIDDEN: &[&str] =
    &["fieldConfig", "defaults", "options", "custom", "spec", "vizConfig", "data", "query"];

/// Every difference as one line, as `sightline-queue: panel queue-depth: unit "s" -> "ms"`.
///
/// `slug_of` names panels by id.
#[must_use]
pub fn dashboards(
    uid: &str,
    old: &Value,
    new: &Value,
    slug_of: &dyn Fn(u64) -> Option<String>,
) -> Vec<String> {
    let mut walk = Walk { slug_of, lines: Vec::new() };
    let (old_panels, new_panels) = (panels(old), panels(new));
    let mut place = vec![uid.to_owned()];
    walk.objects(&mut place, &without_panels(old), &without_panels(new));
    for (id, panel) in &old_panels {
        place.push(walk.panel_name(*id, panel));
        match new_panels.get(id) {
            Some(after) => walk.objects(&mut place, panel, after),
            None => walk.say(&place, "removed"),
        }
        place.pop();
    }
    for (id, panel) in new_panels.iter().filter(|(id, _)| !old_panels.contains_key(id)) {
        place.push(walk.panel_name(*id, panel));
        walk.say(&place, "added");
        place.pop();
    }
    walk.lines
}

/// The uid of a dashboard in any format.
#[must_use]
pub fn uid(board: &Value) -> Option<&str> {
    let name = || board.get("metadata").and_then(|metadata| metadata.get("name"));
    board.get("uid").or_else(name).and_then(Value::as_str)
}

/// Panels by id, those inside folded rows too; positions in the list do not count.
fn panels(board: &Value) -> BTreeMap<u64, Map<String, Value>> {
    let mut found = BTreeMap::new();
    let mut open: Vec<&Value> = board.get("panels").into_iter().collect();
    while let Some(list) = open.pop() {
        for panel in list.as_array().into_iter().flatten().filter_map(Value::as_object) {
            let mut own = panel.clone();
            own.remove("panels");
            open.extend(panel.get("panels"));
            found.insert(panel.get("id").and_then(Value::as_u64).unwrap_or(0), own);
        }
    }
    found
}

fn without_panels(board: &Value) -> Map<String, Value> {
    let mut rest = board.as_object().cloned().unwrap_or_default();
    rest.remove("panels");
    // The revision follows from everything else.
    rest.remove("tags");
    rest
}

struct Walk<'a> {
    slug_of: &'a dyn Fn(u64) -> Option<String>,
    lines: Vec<String>,
}

impl Walk<'_> {
    fn panel_name(&self, id: u64, panel: &Map<String, Value>) -> String {
        let title = || panel.get("title").and_then(Value::as_str).unwrap_or("?").to_owned();
        let name = (self.slug_of)(id).unwrap_or_else(|| format!("{id} ({})", title()));
        format!("panel {name}")
    }

    fn say(&mut self, place: &[String], what: &str) {
        self.lines.push(format!("{}: {what}", place.join(": ")));
    }

    fn objects(
        &mut self,
        place: &mut Vec<String>,
        old: &Map<String, Value>,
        new: &Map<String, Value>,
    ) {
        let added = new.keys().filter(|key| !old.contains_key(*key));
        for key in old.keys().chain(added) {
            self.values(place, key, old.get(key), new.get(key));
        }
    }

    fn values(
        &mut self,
        place: &mut Vec<String>,
        key: &str,
        old: Option<&Value>,
        new: Option<&Value>,
    ) {
        if old == new {
            return;
        }
        match (old, new) {
            (Some(Value::Object(old)), Some(Value::Object(new))) => {
                if key == "elements" {
                    // The resource has panels by name, not by id.
                    let named = |panels: &Map<String, Value>| -> Map<String, Value> {
                        let panels = panels.iter();
                        panels
                            .map(|(slug, panel)| (format!("panel {slug}"), panel.clone()))
                            .collect()
                    };
                    self.objects(place, &named(old), &named(new));
                    return;
                }
                let hidden = HIDDEN.contains(&key);
                if !hidden {
                    place.push(key.to_owned());
                }
                self.objects(place, old, new);
                if !hidden {
                    place.pop();
                }
            }
            (Some(Value::Array(old)), Some(Value::Array(new))) => self.lists(place, key, old, new),
            _ => {
                let change = format!("{key} {} -> {}", shown(old), shown(new));
                self.say(place, &change);
            }
        }
    }

    fn lists(&mut self, place: &mut Vec<String>, key: &str, old: &[Value], new: &[Value]) {
        let (old_named, new_named) = (named(key, old), named(key, new));
        let (Some(old_named), Some(new_named)) = (old_named, new_named) else {
            let whole = |list: &[Value]| shown(Some(&Value::Array(list.to_vec())));
            let change = format!("{key} {} -> {}", whole(old), whole(new));
            self.say(place, &change);
            return;
        };
        let order = |list: &[(String, &Value)]| list.iter().map(|(n, _)| n.clone()).collect();
        let (old_order, new_order): (Vec<String>, Vec<String>) =
            (order(&old_named), order(&new_named));
        let find = |list: &[(String, &Value)], name: &str| {
            list.iter().find(|(other, _)| other == name).map(|(_, value)| (*value).clone())
        };
        for (name, value) in &old_named {
            match find(&new_named, name) {
                Some(after) => self.values(place, name, Some(value), Some(&after)),
                None => self.say(place, &format!("{name} removed")),
            }
        }
        for name in new_order.iter().filter(|name| !old_order.contains(name)) {
            self.say(place, &format!("{name} added"));
        }
        let kept = |list: &[String], other: &[String]| {
            list.iter().filter(|name| other.contains(name)).cloned().collect::<Vec<_>>()
        };
        if kept(&old_order, &new_order) != kept(&new_order, &old_order) {
            self.say(place, &format!("{key} in another order"));
        }
    }
}

/// Entries with their names; none where an entry has no name or a name comes twice.
fn named<'a>(key: &str, list: &'a [Value]) -> Option<Vec<(String, &'a Value)>> {
    let (field, word) = match key {
        "targets" => ("refId", "query"),
        "list" => ("name", "entry"),
        "links" => ("title", "link"),
        _ => return None,
    };
    let mut entries: Vec<(String, &Value)> = Vec::new();
    for entry in list {
        let name = format!("{word} {}", entry.get(field)?.as_str()?);
        if entries.iter().any(|(other, _)| *other == name) {
            return None;
        }
        entries.push((name, entry));
    }
    Some(entries)
}

fn shown(value: Option<&Value>) -> String {
    let text = value.map_or_else(|| "(none)".to_owned(), Value::to_string);
    if text.chars().count() <= SHOWN {
        return text;
    }
    let start: String = text.chars().take(SHOWN).collect();
    format!("{start}...")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn board(panels: Value, rest: Value) -> Value {
        let mut board = rest;
        board["panels"] = panels;
        board
    }

    fn lines(old: &Value, new: &Value) -> Vec<String> {
        let slug = |id| (id == 7).then(|| "queue-depth".to_owned());
        dashboards("sightline-queue", old, new, &slug)
    }

    #[test]
    fn a_changed_unit_is_one_line() {
        let panel = |unit: &str, y: u32| {
            json!([{
                "id": 7,
                "title": "Depth",
                "gridPos": {"h": 8, "w": 12, "x": 0, "y": y},
                "fieldConfig": {"defaults": {"unit": unit}},
                "targets": [{"refId": "A", "expr": "a"}],
            }])
        };
        let old = board(panel("s", 1), json!({"title": "T"}));
        assert_eq!(lines(&old, &old), Vec::<String>::new());
        let new = board(panel("ms", 9), json!({"title": "U"}));
        assert_eq!(
            lines(&old, &new),
            [
                "sightline-queue: title \"T\" -> \"U\"",
                "sightline-queue: panel queue-depth: gridPos: y 1 -> 9",
                "sightline-queue: panel queue-depth: unit \"s\" -> \"ms\"",
            ]
        );
    }

    #[test]
    fn entries_are_matched_by_name() {
        let with = |targets: Value, list: Value| {
            board(json!([{"id": 7, "targets": targets}]), json!({"templating": {"list": list}}))
        };
        let old = with(
            json!([{"refId": "A", "expr": "a"}, {"refId": "B", "expr": "b"}]),
            json!([{"name": "job", "refresh": 1}, {"name": "x"}]),
        );
        let new = with(
            json!([{"refId": "A", "expr": "c"}]),
            json!([{"name": "x"}, {"name": "job", "refresh": 2}, {"name": "y"}]),
        );
        assert_eq!(
            lines(&old, &new),
            [
                "sightline-queue: templating: entry job: refresh 1 -> 2",
                "sightline-queue: templating: entry y added",
                "sightline-queue: templating: list in another order",
                "sightline-queue: panel queue-depth: query A: expr \"a\" -> \"c\"",
                "sightline-queue: panel queue-depth: query B removed",
            ]
        );
    }

    #[test]
    fn panels_come_and_go_also_inside_folded_rows() {
        let old = board(json!([{"id": 1, "panels": [{"id": 7}]}]), json!({}));
        let new = board(json!([{"id": 1, "panels": [{"id": 9, "title": "New"}]}]), json!({}));
        assert_eq!(
            lines(&old, &new),
            [
                "sightline-queue: panel queue-depth: removed",
                "sightline-queue: panel 9 (New): added"
            ]
        );
    }
}
