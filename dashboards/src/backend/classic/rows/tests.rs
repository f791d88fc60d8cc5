use super::*;
use crate::build::{bar_chart, table};
use metric_catalog::def::Label;
use metric_catalog::labels::{Instance, Queue};
use metric_catalog::promql::{max, sum};
use metric_catalog::server;

fn names(transformations: &[Transformation]) -> Vec<&'static str> {
    let name = |one: &Transformation| match one {
        Transformation::Organize(_) => "organize",
        Transformation::Merge(_) => "merge",
        Transformation::ConvertFieldType(_) => "convert",
        Transformation::SortBy(_) => "sort",
        Transformation::GroupingToMatrix(_) => "matrix",
    };
    transformations.iter().map(name).collect()
}

#[test]
fn values_of_several_queries_are_columns_with_their_unit_and_colour() {
    let panel: ir::Panel = table("t", &[("instance", "Instance")])
        .title("T")
        .describe("T.")
        .unit(Unit::Count)
        .query(max(server::RUNNING_REQUESTS).by(Instance::KEY), "Running")
        .query(max(server::QUEUE_OLDEST_REQUEST_AGE).by(Instance::KEY), "Oldest")
        .query(max(server::METRICS_SERIES).by(Instance::KEY), "")
        .judge("Oldest", ir::Color::Text, &[(60.0, ir::Color::Red)])
        .sorted_by("Oldest", true)
        .into();
    let Kind::Table(columns) = &panel.kind else { panic!("a table") };
    let made = table_of(&panel, columns);
    assert_eq!(names(&made), ["merge", "organize"]);
    let Transformation::Organize(options) = &made[1] else { panic!("names of columns") };
    assert_eq!(options.rename_by_name["Value #B"], "Oldest");
    assert_eq!(options.index_by_name["Value #B"], 2);
    assert!(options.exclude_by_name["Value #C"] && options.exclude_by_name["Time"]);
    let columns: Vec<Override> = overrides(&panel).collect();
    assert_eq!(columns.len(), 2, "one for each column that is shown");
    assert_eq!(columns[1].matcher, Matcher::ByName("Oldest".to_owned()));
    assert_eq!(columns[1].properties[0], Property::Unit("s".to_owned()));
    assert!(matches!(&columns[1].properties[1], Property::Thresholds(t) if t.steps.len() == 2));
    let options = table_options(panel.sorted.as_ref());
    assert_eq!(
        (options.sort_by[0].display_name.as_str(), options.sort_by[0].desc),
        ("Oldest", true)
    );
}

fn table_of(panel: &ir::Panel, columns: &[ir::Column]) -> Vec<Transformation> {
    super::table(panel, columns)
}

#[test]
fn texts_that_are_numbers_are_ordered_as_such() {
    let panel: ir::Panel = table("t", &[("queue", "Queue")])
        .title("T")
        .describe("T.")
        .unit(Unit::Ratio)
        .query(max(server::QUEUE_REQUESTS).by(Queue::KEY), "Requests")
        .numbers("queue")
        .into();
    let Kind::Table(columns) = &panel.kind else { panic!("a table") };
    assert_eq!(names(&table_of(&panel, columns)), ["convert", "organize"]);
    let first = overrides(&panel).next().expect("one for the numbers");
    assert_eq!(first.matcher, Matcher::ByName("Queue".to_owned()));
    assert_eq!(first.properties, [Property::Unit("none".to_owned())]);
}

#[test]
fn bars_stand_at_a_label_and_are_split_by_another() {
    let chart = || bar_chart("b", "queue").title("B").describe("B.").unit(Unit::Requests);
    let queues = sum(server::QUEUE_REQUESTS);
    let one: ir::Panel = chart().query(queues.clone().by(Queue::KEY), "waiting").numeric().into();
    let Kind::BarChart(options) = &one.kind else { panic!("a bar chart") };
    assert_eq!(names(&bars(&one, options)), ["convert", "sort", "convert", "organize"]);
    assert_eq!(bar_chart_options(options).x_field.as_deref(), Some("queue"));
    let two = chart().query(queues.by((Queue::KEY, Instance::KEY)), "");
    let two: ir::Panel = two.split_by("instance").stacked(Stack::Percent).lying().into();
    let Kind::BarChart(options) = &two.kind else { panic!("a bar chart") };
    assert_eq!(names(&bars(&two, options)), ["matrix"]);
    let written = bar_chart_options(options);
    assert_eq!((written.stacking, written.x_field), (StackingMode::Percent, None));
    assert_eq!(written.orientation, Orientation::Horizontal);
}

fn bar_chart_options(options: &ir::BarChart) -> BarChartOptions {
    super::bar_chart(options)
}
