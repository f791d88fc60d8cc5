//! The YAML of a Prometheus rule file, held to the rules of `promtool check rules`.

use std::collections::{BTreeMap, HashSet};

use serde::Deserialize;

use super::template::Template;
use crate::promql::parse_duration;
use crate::store::NAME;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    groups: Vec<GroupYaml>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupYaml {
    #[serde(default)]
    name: String,
    interval: Option<String>,
    query_offset: Option<String>,
    #[serde(default)]
    limit: usize,
    #[serde(default)]
    rules: Vec<RuleYaml>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleYaml {
    #[serde(default)]
    record: String,
    #[serde(default)]
    alert: String,
    #[serde(default)]
    expr: String,
    #[serde(rename = "for")]
    hold: Option<String>,
    keep_firing_for: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// A group as read, durations in milliseconds.
pub(super) struct GroupText {
    pub(super) name: String,
    /// `None` where the file leaves it to the program.
    pub(super) interval_ms: Option<i64>,
    pub(super) query_offset_ms: i64,
    /// Most series or active alerts of one rule; 0 for no bound.
    pub(super) limit: usize,
    pub(super) rules: Vec<RuleText>,
}

/// A rule as read.
pub(super) struct RuleText {
    pub(super) kind: KindText,
    pub(super) expr: String,
    /// As written; templates in those of an alert.
    pub(super) labels: BTreeMap<String, String>,
}

pub(super) enum KindText {
    Record { name: String },
    Alert(AlertText),
}

/// What only an alerting rule has, its templates compiled.
pub(super) struct AlertText {
    pub(super) name: String,
    pub(super) hold_ms: i64,
    pub(super) keep_ms: i64,
    pub(super) labels: Vec<(String, Template)>,
    pub(super) annotations: Vec<(String, Template)>,
    /// The annotations as written.
    pub(super) texts: BTreeMap<String, String>,
}

/// Reads a rule file; the error says what is wrong and where.
pub(super) fn parse(text: &str) -> Result<Vec<GroupText>, String> {
    let file: File = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
    let mut names = HashSet::new();
    let mut groups = Vec::with_capacity(file.groups.len());
    for group in file.groups {
        if group.name.is_empty() {
            return Err("a group needs a name".to_owned());
        }
        if !names.insert(group.name.clone()) {
            return Err(format!("group name {:?} is repeated in the same file", group.name));
        }
        let name = group.name.clone();
        groups.push(build(group).map_err(|e| format!("group {name:?}, {e}"))?);
    }
    Ok(groups)
}

fn build(group: GroupYaml) -> Result<GroupText, String> {
    let interval_ms = match group.interval.as_deref().map(|text| duration("interval", Some(text))) {
        Some(ms) => Some(ms?).filter(|ms| *ms > 0),
        None => None,
    };
    let mut rules = Vec::with_capacity(group.rules.len());
    for (index, yaml) in group.rules.into_iter().enumerate() {
        let name = if yaml.alert.is_empty() { yaml.record.clone() } else { yaml.alert.clone() };
        rules.push(rule(yaml).map_err(|e| format!("rule {}, {name:?}: {e}", index + 1))?);
    }
    Ok(GroupText {
        name: group.name,
        interval_ms,
        query_offset_ms: duration("query_offset", group.query_offset.as_deref())?,
        limit: group.limit,
        rules,
    })
}

fn rule(yaml: RuleYaml) -> Result<RuleText, String> {
    let expr = yaml.expr.trim().to_owned();
    if expr.is_empty() {
        return Err("field 'expr' must be set in rule".to_owned());
    }
    for name in yaml.labels.keys() {
        if !is_label_name(name) || name == NAME {
            return Err(format!("invalid label name: {name}"));
        }
    }
    let kind = match (yaml.record.is_empty(), yaml.alert.is_empty()) {
        (true, true) => return Err("one of 'record' or 'alert' must be set".to_owned()),
        (false, false) => return Err("only one of 'record' and 'alert' must be set".to_owned()),
        (false, true) => record(&yaml)?,
        (true, false) => KindText::Alert(alert(&yaml)?),
    };
    Ok(RuleText { kind, expr, labels: yaml.labels })
}

fn record(yaml: &RuleYaml) -> Result<KindText, String> {
    for (field, set) in [
        ("annotations", !yaml.annotations.is_empty()),
        ("for", yaml.hold.is_some()),
        ("keep_firing_for", yaml.keep_firing_for.is_some()),
    ] {
        if set {
            return Err(format!("invalid field '{field}' in recording rule"));
        }
    }
    if !is_label_name(&yaml.record.replace(':', "_")) {
        return Err(format!("invalid recording rule name: {}", yaml.record));
    }
    Ok(KindText::Record { name: yaml.record.clone() })
}

fn alert(yaml: &RuleYaml) -> Result<AlertText, String> {
    let compile = |what: &str, texts: &BTreeMap<String, String>| {
        let one = |(name, text): (&String, &String)| {
            let template = Template::parse(text).map_err(|e| format!("{what} {name:?}: {e}"))?;
            Ok((name.clone(), template))
        };
        texts.iter().map(one).collect::<Result<Vec<_>, String>>()
    };
    for name in yaml.annotations.keys() {
        if !is_label_name(name) {
            return Err(format!("invalid annotation name: {name}"));
        }
    }
    Ok(AlertText {
        name: yaml.alert.clone(),
        hold_ms: duration("for", yaml.hold.as_deref())?,
        keep_ms: duration("keep_firing_for", yaml.keep_firing_for.as_deref())?,
        labels: compile("label", &yaml.labels)?,
        annotations: compile("annotation", &yaml.annotations)?,
        texts: yaml.annotations.clone(),
    })
}

fn is_label_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn duration(field: &str, text: Option<&str>) -> Result<i64, String> {
    match text {
        None | Some("0") => Ok(0),
        Some(text) => parse_duration(text)
            .ok_or_else(|| format!("{field}: {text:?} is not a duration such as 5m or 1h30m")),
    }
}
