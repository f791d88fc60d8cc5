//! Dashboards of API version `dashboard.grafana.app/v2`, as a resource with name and spec.
//!
//! Panels are elements with names, and places are a tree of their own; options and field settings
//! of each kind are those of Classic. Reading refuses unknown fields and unknown words. What the
//! server owns (`status`, versions, times, who changed it) is not modelled and cannot be written.

mod panel;
mod variable;

use super::classic::{LinkType, VariableQuery};
pub use panel::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
pub use variable::*;

/// The API version of everything this crate writes in this format.
pub const API_VERSION: &str = "dashboard.grafana.app/v2";

/// The version of the data source's query schema; Grafana's own resources say the same.
pub const QUERY_VERSION: &str = "v0";

/// Words that stand in `kind`: each has a type of its own, so that no node can carry another's.
macro_rules! kinds {
    ($($name:ident)+) => {$(
        #[doc = concat!("The word `", stringify!($name), "`.")]
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name {
            #[doc = concat!("`", stringify!($name), "`.")]
            #[default]
            $name,
        }
    )+};
}

kinds! {
    Dashboard AnnotationQuery Panel QueryGroup PanelQuery DataQuery VizConfig Transformation
    RowsLayout RowsLayoutRow GridLayout GridLayoutItem ElementReference
}

/// A node: its kind and what that kind has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node<K, S> {
    /// Word for the kind.
    pub kind: K,
    /// Content.
    pub spec: S,
}

impl<K: Default, S> Node<K, S> {
    /// A node of this kind.
    pub fn new(spec: S) -> Self {
        Self { kind: K::default(), spec }
    }
}

/// A whole dashboard as the API takes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resource {
    /// Always [`API_VERSION`].
    pub api_version: String,
    /// Always `Dashboard`.
    pub kind: Dashboard,
    /// Name.
    pub metadata: Metadata,
    /// Content.
    pub spec: Spec,
}

/// What the resource is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    /// The uid of the Classic form.
    pub name: String,
}

/// The content of a dashboard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spec {
    /// Shown name.
    pub title: String,
    /// What the dashboard answers.
    pub description: String,
    /// Tags for search; one of them carries the content revision.
    pub tags: Vec<String>,
    /// False: a generated dashboard is changed at its source.
    pub editable: bool,
    /// Sharing of the cross-hair.
    pub cursor_sync: CursorSync,
    /// Whether all panels load at once.
    pub preload: bool,
    /// Range and refresh.
    pub time_settings: TimeSettings,
    /// Variables, in the order in which they depend on each other.
    pub variables: Vec<Variable>,
    /// Annotation queries, the built-in one first.
    pub annotations: Vec<Node<AnnotationQuery, AnnotationSpec>>,
    /// Links at the top.
    pub links: Vec<Link>,
    /// Panels by their slug.
    pub elements: BTreeMap<String, Node<Panel, PanelSpec>>,
    /// Sections with the places of the panels.
    pub layout: Node<RowsLayout, Rows>,
}

/// Sharing of the cross-hair between panels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CursorSync {
    /// None.
    Off,
    /// The line.
    Crosshair,
    /// The line and the tooltip.
    Tooltip,
}

/// Range and refresh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TimeSettings {
    /// Time zone of the axes; `browser`.
    pub timezone: String,
    /// Start of the range that is shown at first.
    pub from: String,
    /// Its end.
    pub to: String,
    /// Automatic refresh, as `10s`.
    pub auto_refresh: String,
    /// Refreshes to choose from.
    pub auto_refresh_intervals: Vec<String>,
    /// Whether the range cannot be chosen.
    pub hide_timepicker: bool,
    /// First month of the fiscal year; 0.
    pub fiscal_year_start_month: u8,
}

/// One annotation query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AnnotationSpec {
    /// Name of the switch.
    pub name: String,
    /// Whether it is on at first.
    pub enable: bool,
    /// Whether its switch is hidden.
    pub hide: bool,
    /// Colour of the markers.
    pub icon_color: String,
    /// True on the entry that Grafana itself owns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub built_in: Option<bool>,
    /// The query.
    pub query: Query<AnnotationSource>,
    /// What the Prometheus data source keeps beside the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub legacy_options: Option<MarkerTexts>,
}

/// The query of an annotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AnnotationSource {
    /// Markers where an expression has a value.
    Prometheus(MarkerQuery),
    /// Grafana's own annotations.
    BuiltIn(BuiltInAnnotations),
}

/// Markers where an expression has a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MarkerQuery {
    /// `PromQL`.
    pub expr: String,
    /// Resolution.
    pub interval: String,
    /// Name of the query.
    pub ref_id: String,
}

/// Grafana's own annotations of a dashboard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BuiltInAnnotations {
    /// Most markers.
    pub limit: u32,
    /// Whether one of the tags is enough.
    pub match_any: bool,
    /// Tags to filter by.
    pub tags: Vec<String>,
    /// `dashboard`: those of this dashboard.
    #[serde(rename = "type")]
    pub kind: String,
}

/// Heading and text of a marker, with `{{label}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MarkerTexts {
    /// Heading.
    pub title_format: String,
    /// Text.
    pub text_format: String,
}

/// A link at the top of a dashboard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Link {
    /// Shown text.
    pub title: String,
    /// A URL, or dashboards by tag.
    #[serde(rename = "type")]
    pub kind: LinkType,
    /// Icon name.
    pub icon: String,
    /// Text on hover.
    pub tooltip: String,
    /// Target.
    pub url: String,
    /// Tags; empty for a plain link.
    pub tags: Vec<String>,
    /// Whether to fold into a menu.
    pub as_dropdown: bool,
    /// Whether to open a new tab.
    pub target_blank: bool,
    /// Whether the variables go along.
    pub include_vars: bool,
    /// Whether the time range goes along.
    pub keep_time: bool,
}

/// A query, whatever asks it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Query<S> {
    /// Always `DataQuery`.
    pub kind: DataQuery,
    /// Data source plugin.
    pub group: String,
    /// Always [`QUERY_VERSION`].
    pub version: String,
    /// Data source.
    pub datasource: Source,
    /// What is asked.
    pub spec: S,
}

/// A data source by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Uid or `${variable}`.
    pub name: String,
}

#[cfg(test)]
mod tests;
