//! Field configuration: units, thresholds, mappings, colours and per-kind drawing options.

use crate::model::Number;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Defaults for all fields of a panel and exceptions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldConfigSource<C> {
    /// For every field.
    pub defaults: FieldConfig<C>,
    /// For some fields.
    #[serde(default = "Vec::new")]
    pub overrides: Vec<Override>,
}

/// How a field is shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FieldConfig<C> {
    /// Unit id, as `s` or `bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Digits after the point; automatic without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decimals: Option<u8>,
    /// Lower end of the axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Number>,
    /// Upper end of the axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Number>,
    /// Links of a series.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<DataLink>,
    /// Text in place of a missing value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_value: Option<String>,
    /// Colour scheme.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub color: Option<FieldColor>,
    /// Values shown as words.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub mappings: Vec<ValueMapping>,
    /// Thresholds, lowest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thresholds: Option<Thresholds>,
    /// Options of the panel's kind.
    pub custom: C,
}

/// A link of a series, which may name its labels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DataLink {
    /// Shown text.
    pub title: String,
    /// Target, relative to the root of Grafana.
    pub url: String,
    /// Whether to open a new tab.
    pub target_blank: bool,
}

/// Exceptions for the fields that a matcher finds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// Which fields.
    pub matcher: Matcher,
    /// What is different.
    pub properties: Vec<Property>,
}

/// Finds fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "id", content = "options")]
pub enum Matcher {
    /// By name.
    #[serde(rename = "byName")]
    ByName(String),
    /// By name, as a regular expression between slashes.
    #[serde(rename = "byRegexp")]
    ByRegexp(String),
    /// All fields of a query.
    #[serde(rename = "byFrameRefID")]
    ByQuery(String),
}

/// One difference from the defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "id", content = "value")]
pub enum Property {
    /// Unit id.
    #[serde(rename = "unit")]
    Unit(String),
    /// Colour.
    #[serde(rename = "color")]
    Color(FieldColor),
    /// Values shown as words.
    #[serde(rename = "mappings")]
    Mappings(Vec<ValueMapping>),
    /// Thresholds.
    #[serde(rename = "thresholds")]
    Thresholds(Thresholds),
    /// Kind of cell of a table.
    #[serde(rename = "custom.cellOptions")]
    Cell(CellOptions),
    /// Dashes of the line.
    #[serde(rename = "custom.lineStyle")]
    LineStyle(LineStyle),
    /// Opacity of the area below the line, 0 to 100.
    #[serde(rename = "custom.fillOpacity")]
    FillOpacity(u8),
    /// Side of the axis.
    #[serde(rename = "custom.axisPlacement")]
    AxisPlacement(AxisPlacement),
}

/// Dashes of a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineStyle {
    /// Kind.
    pub fill: LineFill,
    /// Lengths of dashes and gaps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dash: Vec<u32>,
}

/// Kind of line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LineFill {
    /// Unbroken.
    Solid,
    /// Dashed.
    Dash,
}

/// Colour of a field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FieldColor {
    /// Scheme.
    pub mode: FieldColorMode,
    /// The colour, in mode `fixed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_color: Option<String>,
}

/// Colour scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FieldColorMode {
    /// One colour for each series.
    PaletteClassic,
    /// The colour of the threshold that is passed.
    Thresholds,
    /// One colour.
    Fixed,
}

/// Values shown as words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "options", rename_all = "lowercase")]
pub enum ValueMapping {
    /// By exact value.
    Value(BTreeMap<String, MappedValue>),
}

/// What a value is shown as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MappedValue {
    /// Colour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub color: Option<String>,
    /// Order in the legend.
    pub index: u32,
    /// Text.
    pub text: String,
}

/// Thresholds of a field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thresholds {
    /// Absolute here.
    pub mode: ThresholdsMode,
    /// Lowest first; the first one has no value and is the base.
    pub steps: Vec<ThresholdStep>,
}

/// Scale of thresholds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThresholdsMode {
    /// In the unit of the field.
    Absolute,
    /// In per cent between min and max.
    Percentage,
}

/// From `value` on, `color` holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThresholdStep {
    /// Colour name.
    pub color: String,
    /// Lower edge; null on the base.
    pub value: Option<Number>,
}

/// Per-field options of kinds that have none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoCustom {}

/// Per-field options of time series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TimeSeriesCustom {
    /// Lines, bars or points.
    pub draw_style: DrawStyle,
    /// Shape between two points.
    pub line_interpolation: LineInterpolation,
    /// Width of the line in pixels.
    pub line_width: u8,
    /// Opacity of the area below the line, 0 to 100.
    pub fill_opacity: u8,
    /// Kind of area.
    pub gradient_mode: GradientMode,
    /// When points are drawn.
    pub show_points: Visibility,
    /// Whether a gap is bridged; false, a gap is a fact.
    pub span_nulls: bool,
    /// Stacking.
    pub stacking: Stacking,
    /// How thresholds are drawn.
    pub thresholds_style: ThresholdsStyle,
    /// Side of the axis.
    pub axis_placement: AxisPlacement,
    /// Scale of the axis.
    pub scale_distribution: ScaleDistribution,
}

/// Lines, bars or points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DrawStyle {
    /// A line.
    Line,
    /// Bars.
    Bars,
    /// Points.
    Points,
}

/// Shape between two points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LineInterpolation {
    /// Straight.
    Linear,
    /// Holds the earlier value.
    StepAfter,
}

/// Kind of area below a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GradientMode {
    /// Even.
    None,
    /// Fades downwards.
    Opacity,
}

/// When something is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Visibility {
    /// Never.
    Never,
    /// When there is room.
    Auto,
    /// Always.
    Always,
}

/// Stacking of series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stacking {
    /// Stack that the series belongs to.
    pub group: String,
    /// Kind.
    pub mode: StackingMode,
}

/// Kind of stacking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StackingMode {
    /// Not stacked.
    None,
    /// Summed.
    Normal,
    /// As shares of the sum.
    Percent,
}

/// How thresholds are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThresholdsStyle {
    /// Kind.
    pub mode: ThresholdsStyleMode,
}

/// Kind of threshold drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThresholdsStyleMode {
    /// Not drawn.
    Off,
    /// Lines.
    Line,
    /// Dashed lines.
    Dashed,
}

/// Side of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AxisPlacement {
    /// Left for the first unit, right for the next.
    Auto,
    /// Left.
    Left,
    /// Right.
    Right,
    /// Not drawn.
    Hidden,
}

/// Scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScaleDistribution {
    /// Kind.
    #[serde(rename = "type")]
    pub kind: ScaleType,
    /// Base of the logarithm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<u8>,
}

/// Kind of scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScaleType {
    /// Linear.
    Linear,
    /// Logarithmic.
    Log,
}

/// Per-field options of heatmaps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HeatmapCustom {
    /// Scale of the vertical axis.
    pub scale_distribution: ScaleDistribution,
}

/// Per-field options of tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TableCustom {
    /// Alignment of the cells.
    pub align: TableAlign,
    /// Kind of cell.
    pub cell_options: CellOptions,
    /// Whether a cell can be opened; false.
    pub inspect: bool,
}

/// Alignment of cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TableAlign {
    /// Numbers to the right.
    Auto,
    /// To the left.
    Left,
    /// To the right.
    Right,
}

/// Kind of cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum CellOptions {
    /// Plain text.
    Auto,
    /// Text in the colour of the threshold.
    ColorText,
}

/// Per-field options of state timelines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StateTimelineCustom {
    /// Opacity, 0 to 100.
    pub fill_opacity: u8,
    /// Width of the border in pixels.
    pub line_width: u8,
}
