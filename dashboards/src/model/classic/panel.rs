//! Panels of a Classic dashboard: the part that all kinds share.

use super::{
    BarChartCustom, BarChartOptions, BarGaugeOptions, DataLink, DataSourceRef, FieldConfigSource,
    GaugeOptions, HeatmapCustom, HeatmapOptions, Link, NoCustom, StatOptions, StateTimelineCustom,
    StateTimelineOptions, TableCustom, TableOptions, TextOptions, TimeSeriesCustom,
    TimeSeriesOptions,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A row or a panel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Panel {
    /// The heading of a section.
    Row(RowPanel),
    /// One large value, or a few.
    Stat(Viz<StatOptions, NoCustom>),
    /// A value on a dial.
    Gauge(Viz<GaugeOptions, NoCustom>),
    /// Values as bars.
    BarGauge(Viz<BarGaugeOptions, NoCustom>),
    /// Lines over time.
    TimeSeries(Viz<TimeSeriesOptions, TimeSeriesCustom>),
    /// Histogram buckets over time.
    Heatmap(Viz<HeatmapOptions, HeatmapCustom>),
    /// Rows and columns.
    Table(Viz<TableOptions, TableCustom>),
    /// Bars for the values of a label.
    BarChart(Viz<BarChartOptions, BarChartCustom>),
    /// States over time.
    #[serde(rename = "state-timeline")]
    StateTimeline(Viz<StateTimelineOptions, StateTimelineCustom>),
    /// Markdown.
    Text(Viz<TextOptions, NoCustom>),
}

/// The fields that lints and the semantic diff read from any panel.
#[derive(Debug, Clone, Copy)]
pub struct Common<'a> {
    /// Panel id.
    pub id: u32,
    /// Kind, as Grafana names it.
    pub kind: &'static str,
    /// Title.
    pub title: &'a str,
    /// Description; empty on rows.
    pub description: &'a str,
    /// Place.
    pub grid: GridPos,
    /// Queries; empty on rows and texts.
    pub targets: &'a [Target],
    /// Unit; none on rows and texts.
    pub unit: Option<&'a str>,
    /// Data source; none on rows and texts.
    pub datasource: Option<&'a DataSourceRef>,
    /// Links.
    pub links: &'a [Link],
    /// Links of its series.
    pub data_links: &'a [DataLink],
}

impl Panel {
    /// The shared fields, whatever the kind.
    #[must_use]
    pub fn common(&self) -> Common<'_> {
        match self {
            Self::Row(row) => Common {
                id: row.id,
                kind: "row",
                title: &row.title,
                description: "",
                grid: row.grid_pos,
                targets: &[],
                unit: None,
                datasource: None,
                links: &[],
                data_links: &[],
            },
            Self::Stat(viz) => viz.common("stat"),
            Self::Gauge(viz) => viz.common("gauge"),
            Self::BarGauge(viz) => viz.common("bargauge"),
            Self::TimeSeries(viz) => viz.common("timeseries"),
            Self::Heatmap(viz) => viz.common("heatmap"),
            Self::Table(viz) => viz.common("table"),
            Self::BarChart(viz) => viz.common("barchart"),
            Self::StateTimeline(viz) => viz.common("state-timeline"),
            Self::Text(viz) => viz.common("text"),
        }
    }

    /// Hands over every data source that the panel names, for a change; those of the children of a
    /// folded row too.
    pub fn for_each_source(&mut self, change: &mut dyn FnMut(&mut DataSourceRef)) {
        match self {
            Self::Row(row) => {
                row.panels.iter_mut().for_each(|child| child.for_each_source(change));
            }
            Self::Stat(viz) => viz.for_each_source(change),
            Self::Gauge(viz) => viz.for_each_source(change),
            Self::BarGauge(viz) => viz.for_each_source(change),
            Self::TimeSeries(viz) => viz.for_each_source(change),
            Self::Heatmap(viz) => viz.for_each_source(change),
            Self::Table(viz) => viz.for_each_source(change),
            Self::BarChart(viz) => viz.for_each_source(change),
            Self::StateTimeline(viz) => viz.for_each_source(change),
            Self::Text(viz) => viz.for_each_source(change),
        }
    }

    /// The children of a collapsed row; none otherwise.
    #[must_use]
    pub fn children(&self) -> &[Self] {
        match self {
            Self::Row(row) => &row.panels,
            Self::Stat(_)
            | Self::Gauge(_)
            | Self::BarGauge(_)
            | Self::TimeSeries(_)
            | Self::Heatmap(_)
            | Self::Table(_)
            | Self::BarChart(_)
            | Self::StateTimeline(_)
            | Self::Text(_) => &[],
        }
    }
}

/// The heading of a section. Children of an open row follow it as siblings; only a collapsed row
/// holds them itself, else they are not drawn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RowPanel {
    /// Stable id, unique in the dashboard, never 0.
    pub id: u32,
    /// Heading.
    pub title: String,
    /// Place; 24 wide, 1 high.
    pub grid_pos: GridPos,
    /// Whether the children are folded away.
    pub collapsed: bool,
    /// The children, only when collapsed.
    pub panels: Vec<Panel>,
}

/// A panel of any kind, with the options `O` of the kind and its per-field options `C`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Viz<O, C> {
    /// Stable id, unique in the dashboard, never 0.
    pub id: u32,
    /// Heading.
    pub title: String,
    /// What it shows and what to do about it; Markdown.
    pub description: String,
    /// Place on 24 columns.
    pub grid_pos: GridPos,
    /// Where its queries run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datasource: Option<DataSourceRef>,
    /// Links in its menu.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// Queries.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<Target>,
    /// Changes of the result before it is drawn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transformations: Vec<Transformation>,
    /// Units, thresholds and colours.
    pub field_config: FieldConfigSource<C>,
    /// Options of the kind.
    pub options: O,
}

impl<O, C> Viz<O, C> {
    fn for_each_source(&mut self, change: &mut dyn FnMut(&mut DataSourceRef)) {
        let targets = self.targets.iter_mut().map(|target| &mut target.datasource);
        self.datasource.iter_mut().chain(targets).for_each(change);
    }

    fn common(&self, kind: &'static str) -> Common<'_> {
        Common {
            id: self.id,
            kind,
            title: &self.title,
            description: &self.description,
            grid: self.grid_pos,
            targets: &self.targets,
            unit: self.field_config.defaults.unit.as_deref(),
            datasource: self.datasource.as_ref(),
            links: &self.links,
            data_links: &self.field_config.defaults.links,
        }
    }
}

/// A place on the grid of 24 columns; rows of the grid are 30 pixels high.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GridPos {
    /// Height.
    pub h: u32,
    /// Width, 1 to 24.
    pub w: u32,
    /// Left edge, 0 to 23.
    pub x: u32,
    /// Upper edge.
    pub y: u32,
}

/// A Prometheus query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Target {
    /// Name within the panel: A, B, ...
    pub ref_id: String,
    /// Where the query runs.
    pub datasource: DataSourceRef,
    /// Text editor instead of the builder.
    pub editor_mode: EditorMode,
    /// `PromQL` with variables.
    pub expr: String,
    /// Shape of the result.
    pub format: TargetFormat,
    /// Legend, with `{{label}}`.
    pub legend_format: String,
    /// Whether to ask for one instant.
    pub instant: bool,
    /// Whether to ask for a range.
    pub range: bool,
}

/// How Grafana opens a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EditorMode {
    /// As text.
    Code,
    /// In the query builder.
    Builder,
}

/// Shape of a query's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetFormat {
    /// One field per series.
    TimeSeries,
    /// One row per sample, labels as columns.
    Table,
    /// Buckets by `le`.
    Heatmap,
}

/// A change of the result before it is drawn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "id", content = "options", rename_all = "camelCase")]
pub enum Transformation {
    /// Drops, orders and renames columns.
    Organize(OrganizeOptions),
    /// Puts lines of several queries together whose labels are equal.
    Merge(MergeOptions),
    /// Makes texts of numbers, or numbers of texts.
    ConvertFieldType(ConvertOptions),
    /// Orders lines.
    SortBy(SortByOptions),
    /// Makes a column of each value of a column.
    GroupingToMatrix(MatrixOptions),
}

/// The `merge` transformation has no options.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MergeOptions {}

/// Options of the `convertFieldType` transformation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvertOptions {
    /// Columns and what becomes of them.
    pub conversions: Vec<Conversion>,
    /// Empty.
    pub fields: BTreeMap<String, String>,
}

/// A column that becomes another kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Conversion {
    /// Kind that it becomes.
    pub destination_type: FieldType,
    /// Column.
    pub target_field: String,
}

/// Kind of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldType {
    /// A number.
    Number,
    /// A text.
    String,
}

/// Options of the `sortBy` transformation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SortByOptions {
    /// Empty.
    pub fields: BTreeMap<String, String>,
    /// Columns to order by.
    pub sort: Vec<SortField>,
}

/// A column that lines are ordered by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SortField {
    /// Largest first.
    pub desc: bool,
    /// Column.
    pub field: String,
}

/// Options of the `groupingToMatrix` transformation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MatrixOptions {
    /// Column whose values become columns.
    pub column_field: String,
    /// What stands where there is no value: `null`.
    pub empty_value: String,
    /// Column whose values become lines.
    pub row_field: String,
    /// Column of the values.
    pub value_field: String,
}

/// Options of the `organize` transformation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OrganizeOptions {
    /// Columns to drop.
    pub exclude_by_name: BTreeMap<String, bool>,
    /// Order of the columns.
    pub index_by_name: BTreeMap<String, u32>,
    /// New names of columns.
    pub rename_by_name: BTreeMap<String, String>,
}
