//! The YAML of a Prometheus rule file.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::promql::parse_duration;

#[derive(Debug, Deserialize)]
struct File {
    #[serde(default)]
    groups: Vec<GroupYaml>,
}

#[derive(Debug, Deserialize)]
struct GroupYaml {
    name: String,
    #[serde(default)]
    rules: Vec<RuleYaml>,
}

#[derive(Debug, Deserialize)]
struct RuleYaml {
    record: Option<String>,
    alert: Option<String>,
    expr: String,
    #[serde(rename = "for")]
    hold: Option<String>,
    keep_firing_for: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// A group as read.
pub(super) struct GroupText {
    pub(super) name: String,
    pub(super) rules: Vec<RuleText>,
}

/// A rule as read, durations in milliseconds.
pub(super) struct RuleText {
    pub(super) record: Option<String>,
    pub(super) alert: Option<String>,
    pub(super) expr: String,
    pub(super) hold_ms: i64,
    pub(super) keep_ms: i64,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
}

/// Reads a rule file; the error says what is wrong and where.
pub(super) fn parse(text: &str) -> Result<Vec<GroupText>, String> {
    let file: File = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
    let rule = |rule: RuleYaml| {
        Ok(RuleText {
            hold_ms: duration(rule.hold.as_deref())?,
            keep_ms: duration(rule.keep_firing_for.as_deref())?,
            record: rule.record,
            alert: rule.alert,
            expr: rule.expr.trim().to_owned(),
            labels: rule.labels,
            annotations: rule.annotations,
        })
    };
    let group = |group: GroupYaml| {
        let rules = group.rules.into_iter().map(rule).collect::<Result<_, String>>()?;
        Ok(GroupText { name: group.name, rules })
    };
    file.groups.into_iter().map(group).collect()
}

fn duration(text: Option<&str>) -> Result<i64, String> {
    match text {
        None => Ok(0),
        Some("0") => Ok(0),
        Some(text) => parse_duration(text).ok_or_else(|| format!("{text:?} is not a duration")),
    }
}
