//! Options of a heatmap.

use super::{AxisPlacement, TooltipMode, Visibility};
use crate::model::Number;
use serde::{Deserialize, Serialize};

/// Options of a heatmap over ready buckets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HeatmapOptions {
    /// False: the buckets come from the histogram.
    pub calculate: bool,
    /// Gap between cells in pixels.
    pub cell_gap: u8,
    /// Unit of a cell.
    pub cell_values: CellValues,
    /// Colours.
    pub color: HeatmapColor,
    /// Colour of exemplars.
    pub exemplars: HeatmapExemplars,
    /// Cells to leave out.
    pub filter_values: FilterValues,
    /// Legend.
    pub legend: HeatmapLegend,
    /// Meaning of the bucket names.
    pub rows_frame: RowsFrame,
    /// Whether cells have numbers.
    pub show_value: Visibility,
    /// Tooltip.
    pub tooltip: HeatmapTooltip,
    /// Vertical axis.
    pub y_axis: HeatmapAxis,
}

/// Unit of a heatmap cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellValues {
    /// Unit id.
    pub unit: String,
}

/// Colours of a heatmap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeatmapColor {
    /// Exponent of the scale.
    pub exponent: Number,
    /// Colour in mode opacity.
    pub fill: String,
    /// Scheme or opacity.
    pub mode: HeatmapColorMode,
    /// Whether the scheme is turned round.
    pub reverse: bool,
    /// Scale of the counts.
    pub scale: HeatmapColorScale,
    /// Name of the scheme.
    pub scheme: String,
    /// Number of colours.
    pub steps: u8,
}

/// Colour mode of a heatmap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeatmapColorMode {
    /// A scheme.
    Scheme,
    /// One colour.
    Opacity,
}

/// Scale of a heatmap's counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeatmapColorScale {
    /// Powers.
    Exponential,
    /// Linear.
    Linear,
}

/// Colour of exemplars.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeatmapExemplars {
    /// Colour.
    pub color: String,
}

/// Cells that a heatmap leaves out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterValues {
    /// Those at or below this count.
    pub le: Number,
}

/// Legend of a heatmap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeatmapLegend {
    /// Whether it is shown.
    pub show: bool,
}

/// Meaning of the bucket names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowsFrame {
    /// `auto`: the name is the upper edge.
    pub layout: String,
}

/// Tooltip of a heatmap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HeatmapTooltip {
    /// Which cells.
    pub mode: TooltipMode,
    /// Whether the scale of colours is shown.
    pub show_color_scale: bool,
    /// Whether the histogram at that time is shown.
    pub y_histogram: bool,
}

/// Vertical axis of a heatmap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HeatmapAxis {
    /// Side.
    pub axis_placement: AxisPlacement,
    /// Whether it runs downwards.
    pub reverse: bool,
    /// Unit id of the bucket edges.
    pub unit: String,
}
