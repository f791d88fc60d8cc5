//! Classic dashboards, schema version 42: the form that file provisioning takes.
//!
//! Field order is struct order and is part of the canonical bytes. Reading refuses unknown fields
//! and unknown enum values, so a typo cannot pass for an option. Fields that the server owns (`id`
//! of a dashboard, `version`, `iteration`, `gnetId`, `pluginVersion`) are not modelled: they cannot
//! be written by accident.

mod barchart;
mod field;
mod heatmap;
mod options;
mod panel;
mod variable;

pub use barchart::*;
pub use field::*;
pub use heatmap::*;
pub use options::*;
pub use panel::*;
use serde::{Deserialize, Serialize};
pub use variable::*;

/// The schema version of everything this crate writes.
pub const SCHEMA_VERSION: u32 = 42;

/// A whole dashboard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Dashboard {
    /// Stable address, `/d/<uid>`.
    pub uid: String,
    /// Shown name; unique in its folder.
    pub title: String,
    /// What the dashboard answers.
    pub description: String,
    /// Tags for search; one of them carries the content revision.
    pub tags: Vec<String>,
    /// Time zone of the axes; `browser`.
    pub timezone: String,
    /// False: a provisioned dashboard is changed at its source.
    pub editable: bool,
    /// Sharing of the cross-hair: 0 off, 1 line, 2 line and tooltip.
    pub graph_tooltip: u8,
    /// First month of the fiscal year; 0.
    pub fiscal_year_start_month: u8,
    /// Whether all panels load at once.
    pub preload: bool,
    /// Automatic refresh, as `10s`.
    pub refresh: String,
    /// Always [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Shown range at first.
    pub time: TimeRange,
    /// Variables.
    pub templating: Templating,
    /// Annotation queries, the built-in one first.
    pub annotations: Annotations,
    /// Links at the top.
    pub links: Vec<Link>,
    /// Rows and panels, in reading order.
    pub panels: Vec<Panel>,
}

/// A relative time range, as `now-1h` to `now`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeRange {
    /// Start.
    pub from: String,
    /// End.
    pub to: String,
}

/// The list of variables.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Templating {
    /// In the order in which they depend on each other.
    pub list: Vec<Variable>,
}

/// The list of annotation queries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Annotations {
    /// The built-in query comes first.
    pub list: Vec<Annotation>,
}

/// One annotation query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Annotation {
    /// 1 on the entry that Grafana itself owns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub built_in: Option<u8>,
    /// Where the query runs.
    pub datasource: DataSourceRef,
    /// Whether it is on at first.
    pub enable: bool,
    /// Whether its switch is hidden.
    pub hide: bool,
    /// Colour of the markers.
    pub icon_color: String,
    /// Name of the switch.
    pub name: String,
    /// `dashboard` on the built-in entry.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// `PromQL`; a marker where it has a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expr: Option<String>,
    /// Resolution of the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Heading of a marker, with `{{label}}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title_format: Option<String>,
    /// Text of a marker, with `{{label}}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_format: Option<String>,
    /// Labels shown as tags, comma separated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag_keys: Option<String>,
}

/// A link of a dashboard or of a panel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Link {
    /// `link` here; Grafana also knows lists of dashboards by tag.
    #[serde(rename = "type")]
    pub kind: LinkType,
    /// Shown text.
    pub title: String,
    /// Target, relative to the root of Grafana or absolute.
    pub url: String,
    /// Icon name.
    pub icon: String,
    /// Text on hover.
    pub tooltip: String,
    /// Tags; empty for a plain link.
    pub tags: Vec<String>,
    /// Whether to fold into a menu.
    pub as_dropdown: bool,
    /// Whether the variables go along.
    pub include_vars: bool,
    /// Whether the time range goes along.
    pub keep_time: bool,
    /// Whether to open a new tab.
    pub target_blank: bool,
}

/// What a link leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkType {
    /// A URL.
    Link,
    /// All dashboards with the given tags.
    Dashboards,
}

/// The address of a data source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSourceRef {
    /// Plugin, as `prometheus`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Fixed uid or a `${variable}`.
    pub uid: String,
}

#[cfg(test)]
mod tests;
