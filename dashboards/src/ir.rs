//! A dashboard as we think of it: sections of lines of panels, each with queries.
//!
//! Neutral towards Grafana's formats: no ids, no grid positions, no JSON. Back ends turn it into a
//! format; `layout` and `ids` give the places and numbers that a format needs. `build` is the only
//! way to make a panel, and does not let one out without title, description and unit.

use crate::lint::Waiver;
use metric_catalog::def::Unit;

/// A dashboard.
#[derive(Debug, Clone)]
pub struct Dashboard {
    /// Readable slug, at most 40 characters of `[a-z0-9-]`, with the product's prefix.
    pub uid: String,
    /// Shown name.
    pub title: String,
    /// What it answers.
    pub description: String,
    /// First shown range, as `now-1h`.
    pub from: String,
    /// Refresh, in seconds; at least the scrape interval.
    pub refresh_seconds: u32,
    /// Variables, in the order in which they depend on each other.
    pub variables: Vec<Variable>,
    /// Annotation queries besides the built-in one.
    pub annotations: Vec<Annotation>,
    /// Uids of the dashboards to link to.
    pub related: Vec<String>,
    /// Uids of dashboards that this one was split from: panels that came from there keep their ids.
    pub split_from: Vec<String>,
    /// Sections, from top to bottom.
    pub sections: Vec<Section>,
}

impl Dashboard {
    /// All panels with their section, in reading order.
    pub fn panels(&self) -> impl Iterator<Item = (&Section, &Panel)> {
        self.sections.iter().flat_map(|section| {
            section.lines.iter().flat_map(move |line| line.panels.iter().map(move |p| (section, p)))
        })
    }
}

/// A heading with lines of panels below it.
#[derive(Debug, Clone)]
pub struct Section {
    /// Stable name; the row's id hangs on it.
    pub slug: String,
    /// Heading.
    pub title: String,
    /// Whether it is folded at first.
    pub collapsed: bool,
    /// Lines, from top to bottom.
    pub lines: Vec<Line>,
}

/// Panels side by side, all of one height.
#[derive(Debug, Clone)]
pub struct Line {
    /// Height in grid rows of 30 pixels.
    pub height: u32,
    /// Panels, from left to right.
    pub panels: Vec<Panel>,
}

/// A panel.
#[derive(Debug, Clone)]
pub struct Panel {
    /// Stable name within the dashboard, `[a-z0-9-]`; the panel's id hangs on it.
    pub slug: String,
    /// Earlier slugs, so that a rename keeps the id.
    pub renamed_from: Vec<String>,
    /// Heading.
    pub title: String,
    /// What it shows and what to do about it.
    pub description: String,
    /// Unit of its values; none on texts.
    pub unit: Option<Unit>,
    /// Width.
    pub width: Width,
    /// Kind and what only that kind has.
    pub kind: Kind,
    /// Queries; A, B, ... in this order.
    pub queries: Vec<Query>,
    /// Thresholds, lowest first.
    pub thresholds: Vec<Threshold>,
    /// Colour below the first threshold.
    pub base_color: Color,
    /// Whether the axis goes below 0.
    pub signed: bool,
    /// Upper end of the axis, where the unit does not say.
    pub max: Option<f64>,
    /// Digits after the point; automatic without.
    pub decimals: Option<u8>,
    /// Text in place of no value.
    pub no_value: Option<String>,
    /// Values shown as words.
    pub mappings: Vec<Mapping>,
    /// Series drawn as a dashed line, by exact legend or by /regular expression/.
    pub dashed: Vec<String>,
    /// Series with a fixed colour, by exact legend.
    pub colors: Vec<(String, Color)>,
    /// Alerts that this panel explains, by name.
    pub alerts: Vec<String>,
    /// Uids of the dashboards that say more about what it shows.
    pub details: Vec<String>,
    /// Where a series of it leads to.
    pub series_link: Option<SeriesLink>,
    /// How columns of values of a table are judged.
    pub cells: Vec<Cell>,
    /// Columns of a table, by label, whose texts are numbers, and are ordered as such.
    pub numbers: Vec<String>,
    /// Order of the lines of a table.
    pub sorted: Option<Sorted>,
    /// Lints that do not apply, with the reason.
    pub waivers: Vec<Waiver>,
}

/// Width of a panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// So many of the 24 columns.
    Span(u32),
    /// An equal share of what the others leave.
    Fill,
}

/// Kind of a panel.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// One large value.
    Stat(Stat),
    /// A value on a dial.
    Gauge,
    /// Values as bars.
    BarGauge,
    /// Lines over time.
    TimeSeries(TimeSeries),
    /// Histogram buckets over time.
    Heatmap,
    /// Rows and columns.
    Table(Vec<Column>),
    /// Bars for the values of a label, at one moment.
    BarChart(BarChart),
    /// States over time.
    StateTimeline,
    /// Markdown.
    Text(String),
}

/// What only a stat has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stat {
    /// Whether the colour fills the panel.
    pub background: bool,
    /// Whether there is no sparkline.
    pub plain: bool,
    /// Whether each series' name is written.
    pub names: bool,
}

/// What only a time series has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeSeries {
    /// How the series are put on top of each other.
    pub stack: Stack,
    /// Whether values hold until the next one.
    pub steps: bool,
    /// Whether the axis is logarithmic.
    pub log: bool,
    /// Whether thresholds are drawn as lines.
    pub lines: bool,
}

/// What only a bar chart has. It has one query, whose labels say where its values stand; the legend
/// of the query names the bars where there is one at each place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BarChart {
    /// Label whose values stand along the axis.
    pub along: String,
    /// Label whose values are the bars at one place; none for one bar.
    pub split: Option<String>,
    /// How the bars at one place are put on top of each other.
    pub stack: Stack,
    /// Whether bars lie.
    pub horizontal: bool,
    /// Whether the values of `along` are numbers, and stand in their order.
    pub numeric: bool,
}

/// Stacking of time series and bars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stack {
    /// Not at all.
    #[default]
    Off,
    /// Summed.
    Sum,
    /// Shares of the sum.
    Percent,
}

/// A column of a table: a label of the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Label name.
    pub label: String,
    /// Heading.
    pub title: String,
}

/// How one column of values of a table is judged.
#[derive(Debug, Clone)]
pub struct Cell {
    /// The column: legend of its query.
    pub column: String,
    /// Colour below the first threshold.
    pub base_color: Color,
    /// Thresholds, lowest first, in the unit of the query.
    pub thresholds: Vec<Threshold>,
    /// Values shown as words.
    pub mappings: Vec<Mapping>,
}

/// Order of the lines of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sorted {
    /// Heading of the column.
    pub column: String,
    /// Largest first.
    pub descending: bool,
}

/// Where a series leads to: a dashboard with one of its labels chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesLink {
    /// Uid of the dashboard.
    pub board: String,
    /// Label, and variable of that name.
    pub label: String,
}

/// A query.
#[derive(Debug, Clone)]
pub struct Query {
    /// `PromQL` with variables.
    pub expr: String,
    /// Legend, with `{{label}}`; on a table the heading of the column of its values, which is not
    /// shown without.
    pub legend: String,
    /// Unit of the result, as the catalog derives it.
    pub unit: Unit,
}

/// From `value` on, `color` holds.
#[derive(Debug, Clone)]
pub struct Threshold {
    /// Lower edge, in the panel's unit.
    pub value: f64,
    /// Colour.
    pub color: Color,
}

/// A value shown as a word.
#[derive(Debug, Clone)]
pub struct Mapping {
    /// Exact value.
    pub value: i64,
    /// Word.
    pub text: String,
    /// Colour.
    pub color: Color,
}

/// Colours with a meaning. The names are Grafana's, so that they follow its theme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Color {
    /// Good.
    Green,
    /// Look at it.
    Yellow,
    /// A warning fires.
    Orange,
    /// A page fires.
    Red,
    /// Neutral.
    Blue,
    /// Neutral, second.
    Purple,
    /// Text colour: no judgement.
    Text,
}

impl Color {
    /// Grafana's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Green => "green",
            Self::Yellow => "yellow",
            Self::Orange => "orange",
            Self::Red => "red",
            Self::Blue => "blue",
            Self::Purple => "purple",
            Self::Text => "text",
        }
    }
}

/// A variable.
#[derive(Debug, Clone)]
pub struct Variable {
    /// Name after the `$`.
    pub name: String,
    /// Shown name.
    pub label: String,
    /// What it selects.
    pub description: String,
    /// Where its values come from.
    pub source: VariableSource,
}

/// Where the values of a variable come from.
#[derive(Debug, Clone)]
pub enum VariableSource {
    /// Prometheus data sources; the given uid at first.
    Datasource(String),
    /// Values of a label: selector and label. Several values and All can be chosen.
    Label {
        /// Vector selector.
        selector: String,
        /// Label name.
        label: String,
    },
}

/// A Prometheus annotation query.
#[derive(Debug, Clone)]
pub struct Annotation {
    /// Name of its switch.
    pub name: String,
    /// Whether it is on at first.
    pub enabled: bool,
    /// Colour of the markers.
    pub color: Color,
    /// `PromQL`; a marker where it has a value.
    pub expr: String,
    /// Heading of a marker, with `{{label}}`.
    pub title: String,
    /// Text of a marker, with `{{label}}`.
    pub text: String,
}
