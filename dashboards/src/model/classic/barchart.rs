//! Options of bar charts.

use super::{
    GradientMode, LegendOptions, Orientation, StackingMode, ThresholdsStyle, TooltipOptions,
    Visibility,
};
use crate::model::Number;
use serde::{Deserialize, Serialize};

/// Options of a bar chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BarChartOptions {
    /// Roundness of the corners, 0 to 0.5.
    pub bar_radius: Number,
    /// Share of its room that a bar takes, 0 to 1.
    pub bar_width: Number,
    /// Whether the whole place lights up under the pointer.
    pub full_highlight: bool,
    /// Share of its room that the bars at one place take, 0 to 1.
    pub group_width: Number,
    /// Legend.
    pub legend: LegendOptions,
    /// Direction of the bars.
    pub orientation: Orientation,
    /// When values are written at the bars.
    pub show_value: Visibility,
    /// Stacking of the bars at one place.
    pub stacking: StackingMode,
    /// Tooltip.
    pub tooltip: TooltipOptions,
    /// Field along the axis; the first text without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x_field: Option<String>,
    /// Characters of a name along the axis.
    pub x_tick_label_max_length: u32,
    /// Turn of the names along the axis, in degrees.
    pub x_tick_label_rotation: i32,
    /// Room between names along the axis; 0 shows all.
    pub x_tick_label_spacing: i32,
}

/// Per-field options of bar charts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BarChartCustom {
    /// Opacity of the bars, 0 to 100.
    pub fill_opacity: u8,
    /// Kind of area.
    pub gradient_mode: GradientMode,
    /// Width of the border in pixels.
    pub line_width: u8,
    /// How thresholds are drawn.
    pub thresholds_style: ThresholdsStyle,
}
