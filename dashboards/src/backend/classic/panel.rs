//! Panels of the Classic back end: one function for each kind.

use super::{datasource, rows};
use crate::ir::{self, Color, Kind, Stack, Stat};
use crate::links;
use crate::model::Number;
use crate::model::classic::*;
use crate::unit::{axis_min, grafana_id};
use std::collections::BTreeMap;

/// Turns a panel into its JSON struct.
pub(super) fn render(
    uid: &str,
    panel: &ir::Panel,
    grid: GridPos,
    id: u32,
    title_of: &dyn Fn(&str) -> Option<String>,
) -> Panel {
    let place = Place { uid, panel, grid, id, title_of };
    match &panel.kind {
        Kind::Stat(options) => Panel::Stat(viz(place, NoCustom {}, stat(*options))),
        Kind::Gauge => Panel::Gauge(viz(place, NoCustom {}, gauge())),
        Kind::BarGauge => Panel::BarGauge(viz(place, NoCustom {}, bar_gauge())),
        Kind::TimeSeries(options) => {
            let custom = time_series_custom(panel, *options);
            Panel::TimeSeries(viz(place, custom, time_series(panel)))
        }
        Kind::Heatmap => Panel::Heatmap(viz(place, heatmap_custom(), heatmap(panel))),
        Kind::Table(columns) => {
            let (align, cell_options) = (TableAlign::Auto, CellOptions::Auto);
            let custom = TableCustom { align, cell_options, inspect: false };
            let mut table = viz(place, custom, rows::table_options(panel.sorted.as_ref()));
            table.transformations = rows::table(panel, columns);
            Panel::Table(table)
        }
        Kind::BarChart(options) => {
            let mut chart = viz(place, rows::bar_chart_custom(), rows::bar_chart(options));
            chart.transformations = rows::bars(panel, options);
            Panel::BarChart(chart)
        }
        Kind::StateTimeline => {
            let custom = StateTimelineCustom { fill_opacity: 70, line_width: 0 };
            Panel::StateTimeline(viz(place, custom, state_timeline()))
        }
        Kind::Text(markdown) => {
            let options = TextOptions { content: markdown.clone(), mode: TextMode::Markdown };
            Panel::Text(viz(place, NoCustom {}, options))
        }
    }
}

/// A panel with what was decided about it elsewhere.
#[derive(Clone, Copy)]
struct Place<'a> {
    uid: &'a str,
    panel: &'a ir::Panel,
    grid: GridPos,
    id: u32,
    /// Titles of dashboards by uid.
    title_of: &'a dyn Fn(&str) -> Option<String>,
}

/// What all kinds share.
fn viz<O, C>(place: Place<'_>, custom: C, options: O) -> Viz<O, C> {
    let Place { panel, grid, id, .. } = place;
    let has_queries = !panel.queries.is_empty();
    Viz {
        id,
        title: panel.title.clone(),
        description: panel.description.clone(),
        grid_pos: grid,
        datasource: has_queries.then(datasource),
        links: panel_links(place),
        targets: panel.queries.iter().enumerate().map(|(n, q)| target(panel, n, q)).collect(),
        transformations: Vec::new(),
        field_config: field_config(panel, custom),
        options,
    }
}

/// From a panel to its alerts, to the runbook sections of those, and to the boards that say more.
fn panel_links(place: Place<'_>) -> Vec<Link> {
    let Place { uid, panel, title_of, .. } = place;
    let named = panel.alerts.iter().filter_map(|name| links::alert(name));
    let mut found = Vec::new();
    let mut anchors: Vec<&str> = Vec::new();
    for alert in links::alerts_of(uid, &panel.slug).chain(named) {
        let url = links::alert_list(alert.name);
        if found.iter().any(|link: &Link| link.url == url) {
            continue;
        }
        found.push(link(format!("Alert: {}", alert.name), url, "bell", false));
        if !anchors.contains(&alert.runbook) {
            anchors.push(alert.runbook);
        }
    }
    for anchor in anchors {
        found.push(link(format!("Runbook: {anchor}"), links::runbook(anchor), "doc", false));
    }
    for board in &panel.details {
        let title = title_of(board).unwrap_or_else(|| board.clone());
        found.push(link(title, links::board_like_this(board), "dashboard", true));
    }
    found
}

/// A link of a panel; to another board in the same tab, to all else in a new one.
fn link(title: String, url: String, icon: &str, board: bool) -> Link {
    Link {
        kind: LinkType::Link,
        title,
        url,
        icon: icon.to_owned(),
        tooltip: String::new(),
        tags: Vec::new(),
        as_dropdown: false,
        include_vars: board,
        keep_time: board,
        target_blank: !board,
    }
}

fn target(panel: &ir::Panel, index: usize, query: &ir::Query) -> Target {
    let (format, instant) = match &panel.kind {
        Kind::Heatmap => (TargetFormat::Heatmap, false),
        Kind::Table(_) | Kind::BarChart(_) => (TargetFormat::Table, true),
        Kind::BarGauge | Kind::Gauge => (TargetFormat::TimeSeries, true),
        Kind::Stat(Stat { plain, .. }) => (TargetFormat::TimeSeries, *plain),
        Kind::TimeSeries(_) | Kind::StateTimeline | Kind::Text(_) => {
            (TargetFormat::TimeSeries, false)
        }
    };
    Target {
        ref_id: ref_id(index),
        datasource: datasource(),
        editor_mode: EditorMode::Code,
        expr: query.expr.clone(),
        format,
        legend_format: query.legend.clone(),
        instant,
        range: !instant,
    }
}

/// A, B, ... Z, then A1, B1, ...
pub(super) fn ref_id(index: usize) -> String {
    const LETTERS: &[u8; 26] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let letter = char::from(LETTERS[index % LETTERS.len()]);
    match index / LETTERS.len() {
        0 => letter.to_string(),
        round => format!("{letter}{round}"),
    }
}

fn field_config<C>(panel: &ir::Panel, custom: C) -> FieldConfigSource<C> {
    let steps = steps(panel.base_color, &panel.thresholds);
    let text = matches!(panel.kind, Kind::Text(_));
    let defaults = FieldConfig {
        unit: panel.unit.map(|unit| grafana_id(unit).to_owned()),
        decimals: panel.decimals,
        min: panel.unit.and_then(axis_min).filter(|_| !panel.signed).map(Number::from),
        max: panel.max.map(Number::from),
        links: panel.series_link.iter().map(series_link).collect(),
        no_value: panel.no_value.clone(),
        color: (!text).then(|| FieldColor { mode: color_mode(panel), fixed_color: None }),
        mappings: mappings(&panel.mappings),
        thresholds: (!text).then_some(Thresholds { mode: ThresholdsMode::Absolute, steps }),
        custom,
    };
    FieldConfigSource { defaults, overrides: overrides(panel) }
}

pub(super) fn steps(base: Color, thresholds: &[ir::Threshold]) -> Vec<ThresholdStep> {
    std::iter::once(ThresholdStep { color: base.name().to_owned(), value: None })
        .chain(thresholds.iter().map(|threshold| ThresholdStep {
            color: threshold.color.name().to_owned(),
            value: Some(threshold.value.into()),
        }))
        .collect()
}

fn series_link(link: &ir::SeriesLink) -> DataLink {
    let ir::SeriesLink { board, label } = link;
    DataLink {
        title: format!("Compare ${{__field.labels.{label}}} with its peers"),
        url: links::board_of_series(board, label),
        target_blank: false,
    }
}

/// Single values and states take the colour of the threshold; lines tell series apart.
fn color_mode(panel: &ir::Panel) -> FieldColorMode {
    match panel.kind {
        Kind::TimeSeries(_) | Kind::Heatmap | Kind::BarChart(_) => FieldColorMode::PaletteClassic,
        Kind::Stat(_)
        | Kind::Gauge
        | Kind::BarGauge
        | Kind::Table(_)
        | Kind::StateTimeline
        | Kind::Text(_) => FieldColorMode::Thresholds,
    }
}

pub(super) fn mappings(mappings: &[ir::Mapping]) -> Vec<ValueMapping> {
    if mappings.is_empty() {
        return Vec::new();
    }
    let mut values = BTreeMap::new();
    for (index, mapping) in (0..).zip(mappings) {
        let color = Some(mapping.color.name().to_owned());
        values.insert(
            mapping.value.to_string(),
            MappedValue { color, index, text: mapping.text.clone() },
        );
    }
    vec![ValueMapping::Value(values)]
}

fn overrides(panel: &ir::Panel) -> Vec<Override> {
    let fixed = |color: Color| {
        let fixed_color = Some(color.name().to_owned());
        Property::Color(FieldColor { mode: FieldColorMode::Fixed, fixed_color })
    };
    let dashed = panel.dashed.iter().map(|legend| Override {
        matcher: if legend.starts_with('/') {
            Matcher::ByRegexp(legend.clone())
        } else {
            Matcher::ByName(legend.clone())
        },
        properties: vec![
            Property::LineStyle(LineStyle { fill: LineFill::Dash, dash: vec![10, 10] }),
            Property::FillOpacity(0),
            fixed(Color::Text),
        ],
    });
    let colored = panel.colors.iter().map(|(legend, color)| Override {
        matcher: Matcher::ByName(legend.clone()),
        properties: vec![fixed(*color)],
    });
    dashed.chain(colored).chain(rows::overrides(panel)).collect()
}

fn reduce() -> ReduceOptions {
    ReduceOptions { calcs: vec![Calc::LastNotNull], fields: String::new(), values: false }
}

fn stat(options: Stat) -> StatOptions {
    StatOptions {
        color_mode: if options.background {
            StatColorMode::Background
        } else {
            StatColorMode::Value
        },
        graph_mode: if options.plain { StatGraphMode::None } else { StatGraphMode::Area },
        justify_mode: StatJustifyMode::Auto,
        orientation: Orientation::Auto,
        percent_change_color_mode: PercentChangeColorMode::Standard,
        reduce_options: reduce(),
        show_percent_change: false,
        text_mode: if options.names { StatTextMode::ValueAndName } else { StatTextMode::Auto },
        wide_layout: true,
    }
}

fn gauge() -> GaugeOptions {
    GaugeOptions {
        bar_shape: BarShape::Flat,
        bar_width_factor: 0.5.into(),
        effects: GaugeEffects {},
        min_viz_height: 75,
        min_viz_width: 75,
        orientation: Orientation::Auto,
        reduce_options: reduce(),
        segment_count: 1,
        segment_spacing: 0.3.into(),
        shape: GaugeShape::Gauge,
        show_threshold_labels: false,
        show_threshold_markers: true,
        sizing: Sizing::Auto,
    }
}

fn bar_gauge() -> BarGaugeOptions {
    BarGaugeOptions {
        display_mode: BarGaugeDisplayMode::Basic,
        legend: LegendOptions {
            calcs: Vec::new(),
            display_mode: LegendDisplayMode::List,
            placement: LegendPlacement::Bottom,
            show_legend: false,
        },
        max_viz_height: 300,
        min_viz_height: 16,
        min_viz_width: 8,
        name_placement: NamePlacement::Auto,
        orientation: Orientation::Horizontal,
        reduce_options: reduce(),
        show_unfilled: true,
        sizing: Sizing::Auto,
        value_mode: BarGaugeValueMode::Color,
    }
}

/// A list below; a table with values where there are several named series.
fn time_series(panel: &ir::Panel) -> TimeSeriesOptions {
    let named = panel.queries.len() > 1 || panel.queries.iter().any(|q| q.legend.contains("{{"));
    let (calcs, display_mode) = if named {
        (vec![Calc::LastNotNull, Calc::Max], LegendDisplayMode::Table)
    } else {
        (Vec::new(), LegendDisplayMode::List)
    };
    let placement = LegendPlacement::Bottom;
    let legend = LegendOptions { calcs, display_mode, placement, show_legend: true };
    TimeSeriesOptions { legend, tooltip: tooltip() }
}

const fn tooltip() -> TooltipOptions {
    TooltipOptions { mode: TooltipMode::Multi, sort: TooltipSort::Desc }
}

fn time_series_custom(panel: &ir::Panel, options: ir::TimeSeries) -> TimeSeriesCustom {
    let stacking = match options.stack {
        Stack::Off => StackingMode::None,
        Stack::Sum => StackingMode::Normal,
        Stack::Percent => StackingMode::Percent,
    };
    let lines = options.lines && !panel.thresholds.is_empty();
    TimeSeriesCustom {
        draw_style: DrawStyle::Line,
        line_interpolation: if options.steps {
            LineInterpolation::StepAfter
        } else {
            LineInterpolation::Linear
        },
        line_width: if stacking == StackingMode::None { 2 } else { 1 },
        fill_opacity: if stacking == StackingMode::None { 8 } else { 40 },
        gradient_mode: GradientMode::None,
        show_points: Visibility::Never,
        span_nulls: false,
        stacking: Stacking { group: "A".to_owned(), mode: stacking },
        thresholds_style: ThresholdsStyle {
            mode: if lines { ThresholdsStyleMode::Dashed } else { ThresholdsStyleMode::Off },
        },
        axis_placement: AxisPlacement::Auto,
        scale_distribution: if options.log {
            ScaleDistribution { kind: ScaleType::Log, log: Some(10) }
        } else {
            ScaleDistribution { kind: ScaleType::Linear, log: None }
        },
    }
}

const fn heatmap_custom() -> HeatmapCustom {
    let scale_distribution = ScaleDistribution { kind: ScaleType::Linear, log: None };
    HeatmapCustom { scale_distribution }
}

fn heatmap(panel: &ir::Panel) -> HeatmapOptions {
    let edge = panel.unit.map_or("short", grafana_id).to_owned();
    HeatmapOptions {
        calculate: false,
        cell_gap: 1,
        cell_values: CellValues { unit: "short".to_owned() },
        color: HeatmapColor {
            exponent: 0.5.into(),
            fill: "dark-orange".to_owned(),
            mode: HeatmapColorMode::Scheme,
            reverse: false,
            scale: HeatmapColorScale::Exponential,
            scheme: "Oranges".to_owned(),
            steps: 64,
        },
        exemplars: HeatmapExemplars { color: "rgba(255,0,255,0.7)".to_owned() },
        filter_values: FilterValues { le: 1e-9.into() },
        legend: HeatmapLegend { show: true },
        rows_frame: RowsFrame { layout: "auto".to_owned() },
        show_value: Visibility::Never,
        tooltip: HeatmapTooltip {
            mode: TooltipMode::Single,
            show_color_scale: false,
            y_histogram: true,
        },
        y_axis: HeatmapAxis { axis_placement: AxisPlacement::Left, reverse: false, unit: edge },
    }
}

fn state_timeline() -> StateTimelineOptions {
    StateTimelineOptions {
        align_value: TimelineAlign::Left,
        legend: LegendOptions {
            calcs: Vec::new(),
            display_mode: LegendDisplayMode::List,
            placement: LegendPlacement::Bottom,
            show_legend: true,
        },
        merge_values: true,
        row_height: 0.9.into(),
        show_value: Visibility::Auto,
        tooltip: TooltipOptions { mode: TooltipMode::Single, sort: TooltipSort::None },
    }
}
