//! Variables.

use super::{Query, VariableQuery};
use serde::{Deserialize, Serialize};

/// A variable at the top of a dashboard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "spec")]
pub enum Variable {
    /// A choice between data sources of one kind.
    #[serde(rename = "DatasourceVariable")]
    Datasource(DatasourceSpec),
    /// Values read from the data source.
    #[serde(rename = "QueryVariable")]
    Query(QuerySpec),
}

/// A choice between data sources of one plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DatasourceSpec {
    /// The name after the `$`.
    pub name: String,
    /// Shown name.
    pub label: String,
    /// What it selects.
    pub description: String,
    /// The plugin, as `prometheus`.
    pub plugin_id: String,
    /// When the choices are read.
    pub refresh: Refresh,
    /// Filter on names; empty for all.
    pub regex: String,
    /// The first choice.
    pub current: Choice,
    /// Known choices; none, they are read.
    pub options: Vec<Choice>,
    /// Whether several can be chosen.
    pub multi: bool,
    /// Whether all can be chosen.
    pub include_all: bool,
    /// What is shown of it.
    pub hide: Hide,
    /// Whether the choice stays out of the address.
    pub skip_url_sync: bool,
    /// Whether a value can be typed.
    pub allow_custom_value: bool,
}

/// Values read from the data source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QuerySpec {
    /// The name after the `$`.
    pub name: String,
    /// Shown name.
    pub label: String,
    /// What it selects.
    pub description: String,
    /// The query.
    pub query: Query<VariableQuery>,
    /// When the values are read.
    pub refresh: Refresh,
    /// Filter on values; empty for all.
    pub regex: String,
    /// Order of the values.
    pub sort: Sort,
    /// The first choice.
    pub current: Choice,
    /// Known values; none, they are read.
    pub options: Vec<Choice>,
    /// Whether several can be chosen.
    pub multi: bool,
    /// Whether all can be chosen.
    pub include_all: bool,
    /// The regular expression that All stands for.
    pub all_value: String,
    /// What is shown of it.
    pub hide: Hide,
    /// Whether the choice stays out of the address.
    pub skip_url_sync: bool,
    /// Whether a value can be typed.
    pub allow_custom_value: bool,
}

/// A choice: one value, or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// Shown.
    pub text: Words,
    /// Meant.
    pub value: Words,
}

/// One word or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Words {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

/// When values are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Refresh {
    /// Never.
    Never,
    /// When the dashboard loads.
    OnDashboardLoad,
    /// Whenever the time range changes.
    OnTimeRangeChanged,
}

/// What is shown of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Hide {
    /// All of it.
    DontHide,
    /// The choice without its name.
    HideLabel,
    /// Nothing.
    HideVariable,
}

/// Order of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Sort {
    /// As read.
    Disabled,
    /// By alphabet.
    AlphabeticalAsc,
    /// Numbers within words by their value.
    NaturalAsc,
}
