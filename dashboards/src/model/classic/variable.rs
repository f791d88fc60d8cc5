//! Variables of a Classic dashboard.

use super::DataSourceRef;
use serde::{Deserialize, Serialize};

/// A variable at the top of a dashboard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Variable {
    /// A choice between data sources of one kind.
    Datasource(DatasourceVariable),
    /// Values read from the data source.
    Query(QueryVariable),
}

impl Variable {
    /// The name after the `$`.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Datasource(variable) => &variable.name,
            Self::Query(variable) => &variable.name,
        }
    }
}

/// A choice between data sources of one plugin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DatasourceVariable {
    /// The name after the `$`.
    pub name: String,
    /// Shown name.
    pub label: String,
    /// What it selects.
    pub description: String,
    /// The plugin, as `prometheus`.
    pub query: String,
    /// Filter on data source names; empty for all.
    pub regex: String,
    /// 0 shows label and choice.
    pub hide: u8,
    /// 1: when the dashboard loads.
    pub refresh: u8,
    /// Whether several can be chosen.
    pub multi: bool,
    /// Whether all can be chosen.
    pub include_all: bool,
    /// The fixed uid of the provisioned data source, so that the first load works.
    pub current: Choice,
}

/// A chosen value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// Shown name.
    pub text: String,
    /// Value.
    pub value: String,
}

/// Values read from the data source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QueryVariable {
    /// The name after the `$`.
    pub name: String,
    /// Shown name.
    pub label: String,
    /// What it selects.
    pub description: String,
    /// Where the query runs.
    pub datasource: DataSourceRef,
    /// The query.
    pub query: VariableQuery,
    /// Filter on values; empty for all.
    pub regex: String,
    /// 0 shows label and choice.
    pub hide: u8,
    /// 2: whenever the time range changes.
    pub refresh: u8,
    /// Order of the values; 1 alphabetical, 7 natural.
    pub sort: u8,
    /// Whether several can be chosen.
    pub multi: bool,
    /// Whether all can be chosen.
    pub include_all: bool,
    /// The regular expression that All stands for.
    pub all_value: String,
}

/// The query of a variable, in the form that the Prometheus data source keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VariableQuery {
    /// `label_values(selector, label)`.
    pub query: String,
    /// Name of the query in Grafana's cache.
    pub ref_id: String,
}
