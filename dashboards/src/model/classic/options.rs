//! Options of each kind of panel.

use super::Visibility;
use crate::model::Number;
use serde::{Deserialize, Serialize};

/// How a series becomes one value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReduceOptions {
    /// Reducers.
    pub calcs: Vec<Calc>,
    /// Fields; empty for all numbers.
    pub fields: String,
    /// Whether every row is a value.
    pub values: bool,
}

/// A reducer, also for columns of a legend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Calc {
    /// The last value that is a number.
    LastNotNull,
    /// Mean.
    Mean,
    /// Largest.
    Max,
    /// Smallest.
    Min,
    /// Sum.
    Sum,
}

/// Direction of several values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Orientation {
    /// Whatever fits.
    Auto,
    /// Side by side.
    Horizontal,
    /// One below the other.
    Vertical,
}

/// Options of a stat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StatOptions {
    /// What the colour fills.
    pub color_mode: StatColorMode,
    /// Sparkline.
    pub graph_mode: StatGraphMode,
    /// Alignment.
    pub justify_mode: StatJustifyMode,
    /// Direction.
    pub orientation: Orientation,
    /// Which change is good.
    pub percent_change_color_mode: PercentChangeColorMode,
    /// Reducer.
    pub reduce_options: ReduceOptions,
    /// Whether the change over the range is shown.
    pub show_percent_change: bool,
    /// What is written.
    pub text_mode: StatTextMode,
    /// Name and value side by side.
    pub wide_layout: bool,
}

/// What the colour of a stat fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatColorMode {
    /// The number.
    Value,
    /// The panel.
    Background,
    /// Nothing.
    None,
}

/// Sparkline of a stat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatGraphMode {
    /// None.
    None,
    /// An area.
    Area,
}

/// Alignment of a stat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatJustifyMode {
    /// Centred when alone.
    Auto,
    /// Always centred.
    Center,
}

/// Colour of the change of a stat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PercentChangeColorMode {
    /// Up is green.
    Standard,
    /// Up is red.
    Inverted,
}

/// What a stat writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatTextMode {
    /// The name where there are several.
    Auto,
    /// The value only.
    Value,
    /// Name and value.
    ValueAndName,
}

/// Options of a gauge. Those of shape are of Grafana 13; 12 leaves them aside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GaugeOptions {
    /// Ends of the bar.
    pub bar_shape: BarShape,
    /// Width of the bar, 0 to 1.
    pub bar_width_factor: Number,
    /// Decoration; none.
    pub effects: GaugeEffects,
    /// Smallest height of a dial in pixels.
    pub min_viz_height: u32,
    /// Smallest width of a dial in pixels.
    pub min_viz_width: u32,
    /// Direction.
    pub orientation: Orientation,
    /// Reducer.
    pub reduce_options: ReduceOptions,
    /// Parts of the bar; 1 for an unbroken one.
    pub segment_count: u32,
    /// Gap between parts, 0 to 1.
    pub segment_spacing: Number,
    /// Whole circle or part of one.
    pub shape: GaugeShape,
    /// Whether the thresholds are written.
    pub show_threshold_labels: bool,
    /// Whether the thresholds are drawn.
    pub show_threshold_markers: bool,
    /// Whether sizes follow the panel.
    pub sizing: Sizing,
}

/// Ends of a gauge's bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BarShape {
    /// Straight.
    Flat,
    /// Round.
    Rounded,
}

/// Form of a gauge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GaugeShape {
    /// A whole circle.
    Circle,
    /// Open below.
    Gauge,
}

/// Decoration of a gauge; none is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GaugeEffects {}

/// Whether sizes follow the panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sizing {
    /// They do.
    Auto,
    /// They are given.
    Manual,
}

/// Options of a bar gauge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BarGaugeOptions {
    /// Look of the bars.
    pub display_mode: BarGaugeDisplayMode,
    /// Legend.
    pub legend: LegendOptions,
    /// Largest height of a bar in pixels.
    pub max_viz_height: u32,
    /// Smallest height of a bar in pixels.
    pub min_viz_height: u32,
    /// Smallest width of a bar in pixels.
    pub min_viz_width: u32,
    /// Where names are written.
    pub name_placement: NamePlacement,
    /// Direction.
    pub orientation: Orientation,
    /// Reducer.
    pub reduce_options: ReduceOptions,
    /// Whether the empty part is drawn.
    pub show_unfilled: bool,
    /// Whether sizes follow the panel.
    pub sizing: Sizing,
    /// Colour of the number.
    pub value_mode: BarGaugeValueMode,
}

/// Look of bars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BarGaugeDisplayMode {
    /// One colour.
    Basic,
    /// Colours run into each other.
    Gradient,
    /// Blocks.
    Lcd,
}

/// Where names are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NamePlacement {
    /// Whatever fits.
    Auto,
    /// Above the bar.
    Top,
    /// Left of the bar.
    Left,
}

/// Colour of a bar's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BarGaugeValueMode {
    /// That of the bar.
    Color,
    /// That of text.
    Text,
    /// Not written.
    Hidden,
}

/// Options of time series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TimeSeriesOptions {
    /// Legend.
    pub legend: LegendOptions,
    /// Tooltip.
    pub tooltip: TooltipOptions,
}

/// Legend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LegendOptions {
    /// Reducers shown as columns.
    pub calcs: Vec<Calc>,
    /// List or table.
    pub display_mode: LegendDisplayMode,
    /// Place.
    pub placement: LegendPlacement,
    /// Whether it is shown.
    pub show_legend: bool,
}

/// Form of a legend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LegendDisplayMode {
    /// One line.
    List,
    /// One line for each series.
    Table,
}

/// Place of a legend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LegendPlacement {
    /// Below.
    Bottom,
    /// At the right.
    Right,
}

/// Tooltip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TooltipOptions {
    /// Which series.
    pub mode: TooltipMode,
    /// Order of the series.
    pub sort: TooltipSort,
}

/// Series of a tooltip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TooltipMode {
    /// The nearest.
    Single,
    /// All.
    Multi,
    /// None.
    None,
}

/// Order of a tooltip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TooltipSort {
    /// As drawn.
    None,
    /// Largest first.
    Desc,
}

/// Options of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TableOptions {
    /// Height of the cells.
    pub cell_height: CellHeight,
    /// Which frame of several.
    pub frame_index: u32,
    /// Whether the names of columns are shown.
    pub show_header: bool,
    /// Order of the lines.
    pub sort_by: Vec<SortBy>,
}

/// Height of cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CellHeight {
    /// Small.
    Sm,
    /// Medium.
    Md,
}

/// Order by a column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SortBy {
    /// Largest first.
    pub desc: bool,
    /// Column, as shown.
    pub display_name: String,
}

/// Options of a state timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StateTimelineOptions {
    /// Alignment of the text.
    pub align_value: TimelineAlign,
    /// Legend.
    pub legend: LegendOptions,
    /// Whether equal neighbours become one bar.
    pub merge_values: bool,
    /// Share of the height that a bar takes, 0 to 1.
    pub row_height: Number,
    /// When text is written.
    pub show_value: Visibility,
    /// Tooltip.
    pub tooltip: TooltipOptions,
}

/// Alignment of text on a state timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimelineAlign {
    /// Centred.
    Center,
    /// At the left.
    Left,
}

/// Options of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextOptions {
    /// The text.
    pub content: String,
    /// Markdown here.
    pub mode: TextMode,
}

/// Language of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TextMode {
    /// Markdown.
    Markdown,
    /// HTML.
    Html,
}
