//! Classic with an input: what Grafana's import dialog asks about.
//!
//! The data source of everything is `${DS_PROMETHEUS}`, which only that dialog fills in; file
//! provisioning would leave it as it is.

use super::classic::Dashboard;
use serde::Serialize;
use std::collections::BTreeMap;

/// A dashboard for import by hand.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shared {
    /// What the dialog asks.
    #[serde(rename = "__inputs")]
    pub inputs: Vec<Input>,
    /// Library panels; none.
    #[serde(rename = "__elements")]
    pub elements: BTreeMap<String, String>,
    /// What must be installed.
    #[serde(rename = "__requires")]
    pub requires: Vec<Requirement>,
    /// Null: the server gives the number.
    pub id: (),
    /// The dashboard.
    #[serde(flatten)]
    pub dashboard: Dashboard,
}

/// A question of the import dialog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    /// Name between `${` and `}`.
    pub name: String,
    /// Shown.
    pub label: String,
    /// Shown below.
    pub description: String,
    /// `datasource`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The plugin that can answer.
    pub plugin_id: String,
    /// Its name.
    pub plugin_name: String,
}

/// Something that must be installed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Requirement {
    /// What it is.
    #[serde(rename = "type")]
    pub kind: RequirementType,
    /// Plugin id, or `grafana`.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Oldest version; empty for any.
    pub version: String,
}

/// What can be required.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RequirementType {
    /// Grafana itself.
    Grafana,
    /// A data source plugin.
    Datasource,
    /// A panel plugin.
    Panel,
}
