//! Elements and their places.

use super::{
    ElementReference, GridLayout, GridLayoutItem, Node, PanelQuery, Query, QueryGroup,
    RowsLayoutRow, Transformation, VizConfig,
};
use crate::model::classic::{
    BarChartCustom, BarChartOptions, BarGaugeOptions, ConvertOptions, DataLink, EditorMode,
    FieldConfigSource, GaugeOptions, HeatmapCustom, HeatmapOptions, MatrixOptions, MergeOptions,
    NoCustom, OrganizeOptions, SortByOptions, StatOptions, StateTimelineCustom,
    StateTimelineOptions, TableCustom, TableOptions, TargetFormat, TextOptions, TimeSeriesCustom,
    TimeSeriesOptions,
};
use serde::{Deserialize, Serialize};

/// A panel without its place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PanelSpec {
    /// Stable id, unique in the dashboard, never 0.
    pub id: u32,
    /// Heading.
    pub title: String,
    /// What it shows and what to do about it; Markdown.
    pub description: String,
    /// Links in its menu.
    pub links: Vec<DataLink>,
    /// Queries.
    pub data: Node<QueryGroup, Queries>,
    /// How it is drawn.
    pub viz_config: Viz,
}

/// What a panel asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Queries {
    /// Queries; A, B, ... in this order.
    pub queries: Vec<Node<PanelQuery, PanelQuerySpec>>,
    /// Changes of the result before it is drawn.
    pub transformations: Vec<Change>,
    /// Nothing: range and resolution are the dashboard's.
    pub query_options: QueryOptions,
}

/// Options of all queries of a panel; none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueryOptions {}

/// One query of a panel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PanelQuerySpec {
    /// Name within the panel.
    pub ref_id: String,
    /// Whether its result is not shown.
    pub hidden: bool,
    /// What is asked.
    pub query: Query<Prometheus>,
}

/// A query of the Prometheus data source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Prometheus {
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

/// A change of the result before it is drawn; tagged by `group`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "group", rename_all = "camelCase")]
pub enum Change {
    /// Drops, orders and renames columns.
    Organize(ChangeOf<OrganizeOptions>),
    /// Puts lines of several queries together whose labels are equal.
    Merge(ChangeOf<MergeOptions>),
    /// Makes texts of numbers, or numbers of texts.
    ConvertFieldType(ChangeOf<ConvertOptions>),
    /// Orders lines.
    SortBy(ChangeOf<SortByOptions>),
    /// Makes a column of each value of a column.
    GroupingToMatrix(ChangeOf<MatrixOptions>),
}

/// The rest of a change with options `O`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeOf<O> {
    /// Always `Transformation`.
    pub kind: Transformation,
    /// Options.
    pub spec: ChangeSpec<O>,
}

/// Options of a change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeSpec<O> {
    /// Options.
    pub options: O,
}

/// How a panel is drawn; tagged by `group`, the name of the panel plugin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "group", rename_all = "lowercase")]
pub enum Viz {
    /// One large value, or a few.
    Stat(VizOf<StatOptions, NoCustom>),
    /// A value on a dial.
    Gauge(VizOf<GaugeOptions, NoCustom>),
    /// Values as bars.
    BarGauge(VizOf<BarGaugeOptions, NoCustom>),
    /// Lines over time.
    TimeSeries(VizOf<TimeSeriesOptions, TimeSeriesCustom>),
    /// Histogram buckets over time.
    Heatmap(VizOf<HeatmapOptions, HeatmapCustom>),
    /// Rows and columns.
    Table(VizOf<TableOptions, TableCustom>),
    /// Bars for the values of a label.
    BarChart(VizOf<BarChartOptions, BarChartCustom>),
    /// States over time.
    #[serde(rename = "state-timeline")]
    StateTimeline(VizOf<StateTimelineOptions, StateTimelineCustom>),
    /// Markdown.
    Text(VizOf<TextOptions, NoCustom>),
}

/// The rest of a drawing with the options `O` of its kind and per-field options `C`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VizOf<O, C> {
    /// Always `VizConfig`.
    pub kind: VizConfig,
    /// Version of the plugin; empty for the one that is installed.
    pub version: String,
    /// Options.
    pub spec: VizSpec<O, C>,
}

/// Options of a drawing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VizSpec<O, C> {
    /// Options of the kind.
    pub options: O,
    /// Units, thresholds and colours.
    pub field_config: FieldConfigSource<C>,
}

/// Sections, from top to bottom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    /// Sections.
    pub rows: Vec<Node<RowsLayoutRow, Row>>,
}

/// A section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Heading.
    pub title: String,
    /// Whether it is folded at first.
    pub collapse: bool,
    /// Places of its panels.
    pub layout: Node<GridLayout, Grid>,
}

/// Places on 24 columns, from the top of the section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// Places.
    pub items: Vec<Node<GridLayoutItem, Item>>,
}

/// A place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// Left edge, 0 to 23.
    pub x: u32,
    /// Upper edge, from the top of the section.
    pub y: u32,
    /// Width, 1 to 24.
    pub width: u32,
    /// Height.
    pub height: u32,
    /// What stands there.
    pub element: Element,
}

/// A panel by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Element {
    /// Always `ElementReference`.
    pub kind: ElementReference,
    /// Key in `elements`.
    pub name: String,
}
