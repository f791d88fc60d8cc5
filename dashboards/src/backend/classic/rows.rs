//! Tables and bar charts: what is drawn from lines with a column for each label and each query.

use crate::ir::{self, Kind, Sorted, Stack};
use crate::model::classic::*;
use crate::unit::grafana_id;
use metric_catalog::def::Unit;

/// Columns in their order, then those of the values; the time of the query says nothing.
pub(super) fn table(panel: &ir::Panel, columns: &[ir::Column]) -> Vec<Transformation> {
    let mut transformations = Vec::new();
    if panel.queries.len() > 1 {
        transformations.push(Transformation::Merge(MergeOptions {}));
    }
    for label in &panel.numbers {
        transformations.push(convert(label, FieldType::Number));
    }
    let mut options = OrganizeOptions {
        exclude_by_name: std::iter::once(("Time".to_owned(), true)).collect(),
        index_by_name: (columns.iter().zip(0..)).map(|(c, n)| (c.label.clone(), n)).collect(),
        rename_by_name: columns.iter().map(|c| (c.label.clone(), c.title.clone())).collect(),
    };
    let first = u32::try_from(columns.len()).expect("columns of a table");
    for ((index, query), place) in panel.queries.iter().enumerate().zip(first..) {
        let name = value_column(panel, index);
        if query.legend.is_empty() {
            options.exclude_by_name.insert(name, true);
        } else {
            options.index_by_name.insert(name.clone(), place);
            options.rename_by_name.insert(name, query.legend.clone());
        }
    }
    transformations.push(Transformation::Organize(options));
    transformations
}

fn convert(label: &str, destination_type: FieldType) -> Transformation {
    let conversions = vec![Conversion { destination_type, target_field: label.to_owned() }];
    Transformation::ConvertFieldType(ConvertOptions { conversions, ..Default::default() })
}

/// What Grafana calls the values of a query.
fn value_column(panel: &ir::Panel, index: usize) -> String {
    if panel.queries.len() > 1 {
        format!("Value #{}", super::panel::ref_id(index))
    } else {
        "Value".to_owned()
    }
}

pub(super) fn table_options(sorted: Option<&Sorted>) -> TableOptions {
    let by =
        |sorted: &Sorted| SortBy { desc: sorted.descending, display_name: sorted.column.clone() };
    TableOptions {
        cell_height: CellHeight::Sm,
        frame_index: 0,
        show_header: true,
        sort_by: sorted.map(by).into_iter().collect(),
    }
}

/// Unit, colours and words of the columns of values.
pub(super) fn overrides(panel: &ir::Panel) -> impl Iterator<Item = Override> + '_ {
    let table = matches!(panel.kind, Kind::Table(_));
    let columns = panel.queries.iter().filter(move |query| table && !query.legend.is_empty());
    let numbers = panel.numbers.iter().filter_map(|label| {
        let Kind::Table(columns) = &panel.kind else { return None };
        let column = columns.iter().find(|column| column.label == *label)?;
        // The unit of the panel is that of its values.
        let properties = vec![Property::Unit(grafana_id(Unit::Flag).to_owned())];
        Some(Override { matcher: Matcher::ByName(column.title.clone()), properties })
    });
    let values = columns.map(|query| {
        let mut properties = vec![Property::Unit(grafana_id(query.unit).to_owned())];
        for cell in panel.cells.iter().filter(|cell| cell.column == query.legend) {
            if cell.mappings.is_empty() {
                let steps = super::panel::steps(cell.base_color, &cell.thresholds);
                let thresholds = Thresholds { mode: ThresholdsMode::Absolute, steps };
                properties.push(Property::Thresholds(thresholds));
            } else {
                properties.push(Property::Mappings(super::panel::mappings(&cell.mappings)));
            }
            properties.push(Property::Cell(CellOptions::ColorText));
        }
        Override { matcher: Matcher::ByName(query.legend.clone()), properties }
    });
    numbers.chain(values)
}

/// A line for each place along the axis, a column for each bar at it.
pub(super) fn bars(panel: &ir::Panel, options: &ir::BarChart) -> Vec<Transformation> {
    let mut transformations = Vec::new();
    if options.numeric {
        let sort = vec![SortField { desc: false, field: options.along.clone() }];
        transformations.push(convert(&options.along, FieldType::Number));
        transformations.push(Transformation::SortBy(SortByOptions { sort, ..Default::default() }));
        // A number along the axis would be written in the unit of the bars.
        transformations.push(convert(&options.along, FieldType::String));
    }
    if let Some(split) = &options.split {
        transformations.push(Transformation::GroupingToMatrix(MatrixOptions {
            column_field: split.clone(),
            empty_value: "null".to_owned(),
            row_field: options.along.clone(),
            value_field: "Value".to_owned(),
        }));
    } else {
        let legend = panel.queries.first().map(|query| query.legend.clone()).unwrap_or_default();
        transformations.push(Transformation::Organize(OrganizeOptions {
            exclude_by_name: std::iter::once(("Time".to_owned(), true)).collect(),
            rename_by_name: std::iter::once(("Value".to_owned(), legend)).collect(),
            ..OrganizeOptions::default()
        }));
    }
    transformations
}

pub(super) fn bar_chart(options: &ir::BarChart) -> BarChartOptions {
    let show_legend = options.split.is_some();
    BarChartOptions {
        bar_radius: 0.0.into(),
        bar_width: 0.9.into(),
        full_highlight: false,
        group_width: 0.8.into(),
        legend: LegendOptions {
            calcs: Vec::new(),
            display_mode: LegendDisplayMode::List,
            placement: LegendPlacement::Bottom,
            show_legend,
        },
        orientation: if options.horizontal {
            Orientation::Horizontal
        } else {
            Orientation::Vertical
        },
        show_value: Visibility::Auto,
        stacking: match options.stack {
            Stack::Off => StackingMode::None,
            Stack::Sum => StackingMode::Normal,
            Stack::Percent => StackingMode::Percent,
        },
        tooltip: TooltipOptions { mode: TooltipMode::Multi, sort: TooltipSort::Desc },
        x_field: options.split.is_none().then(|| options.along.clone()),
        x_tick_label_max_length: 32,
        x_tick_label_rotation: 0,
        x_tick_label_spacing: 0,
    }
}

pub(super) const fn bar_chart_custom() -> BarChartCustom {
    BarChartCustom {
        fill_opacity: 80,
        gradient_mode: GradientMode::None,
        line_width: 1,
        thresholds_style: ThresholdsStyle { mode: ThresholdsStyleMode::Off },
    }
}

#[cfg(test)]
mod tests;
