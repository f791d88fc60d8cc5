//! A dashboard as its Classic JSON has it, as far as its queries go: ours, or anybody's.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::backend::classic::ALL_VALUE;

/// A dashboard.
#[derive(Debug, Clone, PartialEq)]
pub struct Board {
    /// Uid, else the title.
    pub uid: String,
    /// Variables, in the order in which they depend on each other.
    pub variables: Vec<Variable>,
    /// Panels that query, in reading order.
    pub panels: Vec<Panel>,
    /// Queries of annotations, with their names.
    pub annotations: Vec<(String, String)>,
}

/// A variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Name after the `$`.
    pub name: String,
    /// What stands for it.
    pub value: Source,
}

/// Where the text comes from that stands for a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// This text.
    Fixed(String),
    /// Values of `label` over the series that `selector` (with variables) matches.
    Values {
        /// Vector selector; empty for all series.
        selector: String,
        /// Label.
        label: String,
        /// Text for All; none where one value is chosen at a time.
        all: Option<All>,
    },
}

/// What All is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum All {
    /// This text.
    Text(String),
    /// Every value, as alternatives of a regular expression.
    Alternatives,
}

/// A panel.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// Slug, else the title.
    pub name: String,
    /// Text that it shows in place of no value.
    pub no_value: Option<String>,
    /// Queries.
    pub targets: Vec<Target>,
}

/// A query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Letter.
    pub ref_id: String,
    /// `PromQL` with variables.
    pub expr: String,
    /// Whether it asks for one instant, not for a range.
    pub instant: bool,
}

impl Board {
    /// Reads a dashboard. `slugs` names panels by id; others go by their title.
    ///
    /// # Errors
    /// It is no dashboard in Classic form: one sentence.
    pub fn read(json: &Value, slugs: &BTreeMap<u32, String>) -> Result<Self, String> {
        let text = |key: &str| json[key].as_str().map(str::to_owned);
        if json.get("spec").is_some() {
            return Err("it is in the form v2; give the Classic form".to_owned());
        }
        let Some(list) = json["panels"].as_array() else {
            return Err("it has no list of panels: it is no dashboard".to_owned());
        };
        let mut panels = Vec::new();
        for panel in list {
            let inner = panel["panels"].as_array().map(Vec::as_slice).unwrap_or_default();
            let all = std::iter::once(panel).chain(inner);
            panels.extend(all.map(|one| read_panel(one, slugs)).filter(|p| !p.targets.is_empty()));
        }
        let entries = |value: &'_ Value| value["list"].as_array().cloned().unwrap_or_default();
        let annotation = |one: &Value| {
            let word = |key: &str| one[key].as_str().map(str::to_owned);
            Some((word("name")?, word("expr").filter(|expr| !expr.is_empty())?))
        };
        Ok(Self {
            uid: text("uid").or_else(|| text("title")).unwrap_or_default(),
            variables: entries(&json["templating"]).iter().filter_map(read_variable).collect(),
            panels,
            annotations: entries(&json["annotations"]).iter().filter_map(annotation).collect(),
        })
    }
}

fn read_panel(panel: &Value, slugs: &BTreeMap<u32, String>) -> Panel {
    let id = panel["id"].as_u64().and_then(|id| u32::try_from(id).ok());
    let slug = id.and_then(|id| slugs.get(&id).cloned());
    let title = panel["title"].as_str().unwrap_or("(no title)").to_owned();
    let no_value = panel["fieldConfig"]["defaults"]["noValue"].as_str().map(str::to_owned);
    let target = |target: &Value| {
        let expr = target["expr"].as_str().filter(|expr| !expr.trim().is_empty())?;
        Some(Target {
            ref_id: target["refId"].as_str().unwrap_or("?").to_owned(),
            expr: expr.to_owned(),
            instant: target["instant"] == true && target["range"] != true,
        })
    };
    let targets = panel["targets"].as_array().map(Vec::as_slice).unwrap_or_default();
    let targets = targets.iter().filter(|target| target["hide"] != true).filter_map(target);
    Panel { name: slug.unwrap_or(title), no_value, targets: targets.collect() }
}

fn read_variable(variable: &Value) -> Option<Variable> {
    let name = variable["name"].as_str()?.to_owned();
    let current = || match &variable["current"]["value"] {
        Value::String(text) => Some(text.clone()),
        Value::Array(list) => Some(list.first()?.as_str()?.to_owned()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    };
    let query = || variable["query"].as_str();
    let first = || Some(query()?.split(',').next()?.trim().to_owned());
    let value = match variable["type"].as_str()? {
        "query" => {
            let text = variable["query"]["query"].as_str().or(query())?;
            let inner = text.trim().strip_prefix("label_values(")?.strip_suffix(')')?;
            // The label comes last; conditions may have commas too.
            let (selector, label) = inner.rsplit_once(',').unwrap_or(("", inner));
            let all = match (variable["includeAll"] == true, variable["allValue"].as_str()) {
                (false, _) => None,
                (true, Some("") | None) => Some(All::Alternatives),
                (true, Some(text)) => Some(All::Text(text.to_owned())),
            };
            let (selector, label) = (selector.trim().to_owned(), label.trim().to_owned());
            Source::Values { selector, label, all }
        }
        "datasource" => Source::Fixed(current().unwrap_or_default()),
        "constant" | "textbox" => Source::Fixed(current().or_else(|| query().map(str::to_owned))?),
        "custom" | "interval" => Source::Fixed(
            current()
                .filter(|value| !value.is_empty() && !value.starts_with('$'))
                .or_else(first)?,
        ),
        _ => Source::Fixed(ALL_VALUE.to_owned()),
    };
    Some(Variable { name, value })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_dashboard_of_somebody_else_is_read() {
        let json = json!({
            "title": "Theirs",
            "templating": {"list": [
                {"name": "ds", "type": "datasource", "query": "prometheus"},
                {"name": "job", "type": "query", "query": "label_values(up{a=\"1\",b=\"2\"}, job)",
                    "includeAll": true},
                {"name": "le", "type": "query", "query": {"query": "label_values(le)"}},
                {"name": "agg", "type": "custom", "query": "avg, sum", "current": {}},
            ]},
            "annotations": {"list": [{"name": "Built in"}, {"name": "Deploys", "expr": "x > 0"}]},
            "panels": [
                {"id": 1, "type": "row", "title": "Row", "panels": [
                    {"id": 7, "title": "In", "targets": [{"refId": "A", "expr": "a"}],
                        "fieldConfig": {"defaults": {"noValue": "none"}}},
                ]},
                {"id": 2, "title": "Out", "targets": [
                    {"refId": "A", "expr": "b", "instant": true},
                    {"refId": "B", "expr": "c", "hide": true},
                    {"refId": "C", "expr": ""},
                ]},
            ],
        });
        let slugs = BTreeMap::from([(7, "inner".to_owned())]);
        let board = Board::read(&json, &slugs).expect("a dashboard");
        assert_eq!(board.uid, "Theirs");
        let names: Vec<_> = board.panels.iter().map(|panel| &*panel.name).collect();
        assert_eq!(names, ["inner", "Out"]);
        assert_eq!(board.panels[0].no_value.as_deref(), Some("none"));
        let [target] = &board.panels[1].targets[..] else { panic!("{board:?}") };
        assert!(target.instant && target.expr == "b");
        assert_eq!(board.annotations, [("Deploys".to_owned(), "x > 0".to_owned())]);
        let values = |selector: &str, label: &str, all| Source::Values {
            selector: selector.to_owned(),
            label: label.to_owned(),
            all,
        };
        let found: Vec<_> = board.variables.into_iter().map(|variable| variable.value).collect();
        assert_eq!(
            found,
            [
                Source::Fixed(String::new()),
                values("up{a=\"1\",b=\"2\"}", "job", Some(All::Alternatives)),
                values("", "le", None),
                Source::Fixed("avg".to_owned()),
            ]
        );
    }

    #[test]
    fn what_is_no_dashboard_says_why() {
        let read = |json| Board::read(&json, &BTreeMap::new()).expect_err("no dashboard");
        assert!(read(json!({"a": 1})).contains("no list of panels"));
        assert!(read(json!({"spec": {}})).contains("v2"));
    }
}
