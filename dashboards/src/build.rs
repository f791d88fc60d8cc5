//! Builds dashboards. A panel without title, description and unit does not compile:
//!
//! ```compile_fail,E0277
//! use dashboards::build::{line, stat};
//! let wrong = line(4, vec![stat("up").into()]);
//! ```
//!
//! This is the same with all three:
//!
//! ```
//! use dashboards::build::{line, stat};
//! use metric_catalog::def::Unit;
//! let panel = stat("up").title("Up").describe("Look at the log.").unit(Unit::Count);
//! let right = line(4, vec![panel.into()]);
//! ```

pub mod pools;

use crate::ir::{
    BarChart, Cell, Color, Column, Kind, Line, Mapping, Panel, Query, Section, Sorted, Stack, Stat,
    Threshold, TimeSeries, Width,
};
use crate::lint::{Lint, Waiver};
use crate::variables::{HOSTS, SCOPE, scope};
use metric_catalog::def::Unit;
use metric_catalog::promql::Expr;
use std::marker::PhantomData;

/// A mandatory part that is there.
#[derive(Debug, Clone, Copy)]
pub enum Set {}

/// A mandatory part that is still missing.
#[derive(Debug, Clone, Copy)]
pub enum Missing {}

/// A panel in the making; `T`, `D`, `U` say whether title, description and unit are there.
#[derive(Debug, Clone)]
pub struct Draft<T, D, U> {
    panel: Panel,
    /// Labels that its queries are restricted by.
    scope: &'static [&'static str],
    state: PhantomData<(T, D, U)>,
}

/// A draft that lacks all three.
pub type Blank = Draft<Missing, Missing, Missing>;

impl From<Draft<Set, Set, Set>> for Panel {
    fn from(draft: Draft<Set, Set, Set>) -> Self {
        draft.panel
    }
}

fn draft<U>(slug: &str, kind: Kind) -> Draft<Missing, Missing, U> {
    let panel = Panel {
        slug: slug.to_owned(),
        renamed_from: Vec::new(),
        title: String::new(),
        description: String::new(),
        unit: None,
        width: Width::Fill,
        kind,
        queries: Vec::new(),
        thresholds: Vec::new(),
        base_color: Color::Green,
        signed: false,
        max: None,
        decimals: None,
        no_value: None,
        mappings: Vec::new(),
        dashed: Vec::new(),
        colors: Vec::new(),
        alerts: Vec::new(),
        details: Vec::new(),
        series_link: None,
        cells: Vec::new(),
        numbers: Vec::new(),
        sorted: None,
        waivers: Vec::new(),
    };
    Draft { panel, scope: SCOPE, state: PhantomData }
}

/// One large value with a sparkline.
#[must_use]
pub fn stat(slug: &str) -> Blank {
    draft(slug, Kind::Stat(Stat::default()))
}

/// A value on a dial.
#[must_use]
pub fn gauge(slug: &str) -> Blank {
    draft(slug, Kind::Gauge)
}

/// Values as bars.
#[must_use]
pub fn bar_gauge(slug: &str) -> Blank {
    draft(slug, Kind::BarGauge)
}

/// Lines over time.
#[must_use]
pub fn time_series(slug: &str) -> Blank {
    draft(slug, Kind::TimeSeries(TimeSeries::default()))
}

/// Buckets of a histogram over time; the unit is that of the bucket edges.
#[must_use]
pub fn heatmap(slug: &str) -> Blank {
    draft(slug, Kind::Heatmap)
}

/// A bar for each value of the label `along`, at one moment. It takes one query, which is grouped
/// by that label, and by the label of [`Draft::split_by`].
#[must_use]
pub fn bar_chart(slug: &str, along: &str) -> Blank {
    let options = BarChart {
        along: along.to_owned(),
        split: None,
        stack: Stack::Off,
        horizontal: false,
        numeric: false,
    };
    draft(slug, Kind::BarChart(options))
}

/// States over time; the unit is that of the values behind the words.
#[must_use]
pub fn state_timeline(slug: &str) -> Blank {
    draft(slug, Kind::StateTimeline)
}

/// Labels of the result as columns: label and heading. The values of a query with a legend are a
/// column more, in the unit of the query; the lines of several queries whose labels are equal are
/// one.
#[must_use]
pub fn table(slug: &str, columns: &[(&str, &str)]) -> Blank {
    let column = |&(label, title): &(&str, &str)| Column {
        label: label.to_owned(),
        title: title.to_owned(),
    };
    draft(slug, Kind::Table(columns.iter().map(column).collect()))
}

/// Markdown; has no unit.
#[must_use]
pub fn text(slug: &str, markdown: &str) -> Draft<Missing, Missing, Set> {
    draft(slug, Kind::Text(markdown.to_owned()))
}

impl<D, U> Draft<Missing, D, U> {
    /// Heading.
    #[must_use]
    pub fn title(mut self, title: &str) -> Draft<Set, D, U> {
        title.clone_into(&mut self.panel.title);
        Draft { panel: self.panel, scope: self.scope, state: PhantomData }
    }
}

impl<T, U> Draft<T, Missing, U> {
    /// What it shows and what to do about it.
    #[must_use]
    pub fn describe(mut self, description: &str) -> Draft<T, Set, U> {
        description.clone_into(&mut self.panel.description);
        Draft { panel: self.panel, scope: self.scope, state: PhantomData }
    }
}

impl<T, D> Draft<T, D, Missing> {
    /// Unit of the values.
    #[must_use]
    pub fn unit(mut self, unit: Unit) -> Draft<T, D, Set> {
        self.panel.unit = Some(unit);
        Draft { panel: self.panel, scope: self.scope, state: PhantomData }
    }
}

impl<T, D, U> Draft<T, D, U> {
    /// Restricts the queries that are added from here on to chosen hosts, not processes.
    #[must_use]
    pub const fn of_hosts(self) -> Self {
        self.within(HOSTS)
    }

    /// Restricts the queries that are added from here on by the variables of these labels, for
    /// dashboards whose variables are not those of [`SCOPE`].
    #[must_use]
    pub const fn within(mut self, scope: &'static [&'static str]) -> Self {
        self.scope = scope;
        self
    }

    /// Adds a query with its legend; `{{label}}` stands for a label of the result.
    #[must_use]
    pub fn query(mut self, expr: impl Into<Expr>, legend: &str) -> Self {
        let one = matches!(self.panel.kind, Kind::BarChart(_));
        assert!(
            !one || self.panel.queries.is_empty(),
            "{}: a bar chart has one query",
            self.panel.slug
        );
        let expr: Expr = expr.into();
        let (text, unit) = (expr.render(&scope(self.scope)), expr.unit());
        self.panel.queries.push(Query { expr: text, legend: legend.to_owned(), unit });
        self
    }

    /// So many of the 24 columns instead of an equal share.
    #[must_use]
    pub fn span(mut self, columns: u32) -> Self {
        self.panel.width = Width::Span(columns);
        self
    }

    /// Adds a threshold; lowest first.
    #[must_use]
    pub fn threshold(mut self, value: f64, color: Color) -> Self {
        self.panel.thresholds.push(Threshold { value, color });
        self
    }

    /// Colour below the first threshold; green without.
    #[must_use]
    pub fn base(mut self, color: Color) -> Self {
        self.panel.base_color = color;
        self
    }

    /// Lets the axis go below 0.
    #[must_use]
    pub fn signed(mut self) -> Self {
        self.panel.signed = true;
        self
    }

    /// Upper end of the axis.
    #[must_use]
    pub fn max(mut self, value: f64) -> Self {
        self.panel.max = Some(value);
        self
    }

    /// Digits after the point.
    #[must_use]
    pub fn decimals(mut self, digits: u8) -> Self {
        self.panel.decimals = Some(digits);
        self
    }

    /// Text in place of no value.
    #[must_use]
    pub fn no_value(mut self, text: &str) -> Self {
        self.panel.no_value = Some(text.to_owned());
        self
    }

    /// Shows a value as a word.
    #[must_use]
    pub fn map(mut self, value: i64, text: &str, color: Color) -> Self {
        self.panel.mappings.push(Mapping { value, text: text.to_owned(), color });
        self
    }

    /// Draws the series with this legend as a dashed line: a limit, not a measurement. A legend
    /// between slashes is a regular expression.
    #[must_use]
    pub fn dashed(mut self, legend: &str) -> Self {
        self.panel.dashed.push(legend.to_owned());
        self
    }

    /// Gives the series with this legend a fixed colour.
    #[must_use]
    pub fn color(mut self, legend: &str, color: Color) -> Self {
        self.panel.colors.push((legend.to_owned(), color));
        self
    }

    /// Says that this panel also explains an alert, by name; the alerts whose own panel it is need
    /// not be said.
    #[must_use]
    pub fn alert(mut self, name: &str) -> Self {
        self.panel.alerts.push(name.to_owned());
        self
    }

    /// Links to a dashboard that says more about what the panel shows.
    #[must_use]
    pub fn detail(mut self, uid: &str) -> Self {
        self.panel.details.push(uid.to_owned());
        self
    }

    /// Colours the values of a column of a table, by the legend of its query: `base` below the
    /// first threshold; lowest first.
    #[must_use]
    pub fn judge(mut self, column: &str, base: Color, thresholds: &[(f64, Color)]) -> Self {
        let threshold = |&(value, color): &(f64, Color)| Threshold { value, color };
        self.panel.cells.push(Cell {
            column: column.to_owned(),
            base_color: base,
            thresholds: thresholds.iter().map(threshold).collect(),
            mappings: Vec::new(),
        });
        self
    }

    /// Shows the values of a column of a table as words.
    #[must_use]
    pub fn words(mut self, column: &str, words: &[(i64, &str, Color)]) -> Self {
        let mapping = |&(value, text, color): &(i64, &str, Color)| Mapping {
            value,
            text: text.to_owned(),
            color,
        };
        self.panel.cells.push(Cell {
            column: column.to_owned(),
            base_color: Color::Text,
            thresholds: Vec::new(),
            mappings: words.iter().map(mapping).collect(),
        });
        self
    }

    /// Orders the values of a label in a table as numbers.
    #[must_use]
    pub fn numbers(mut self, label: &str) -> Self {
        self.panel.numbers.push(label.to_owned());
        self
    }

    /// Orders the lines of a table by a column, by its heading.
    #[must_use]
    pub fn sorted_by(mut self, column: &str, descending: bool) -> Self {
        self.panel.sorted = Some(Sorted { column: column.to_owned(), descending });
        self
    }

    /// Keeps the id of a panel that had this slug.
    #[must_use]
    pub fn renamed_from(mut self, slug: &str) -> Self {
        self.panel.renamed_from.push(slug.to_owned());
        self
    }

    /// Waives a lint on this panel. The reason is shown by `lint` and must say why.
    #[must_use]
    pub fn allow(mut self, lint: Lint, reason: &str) -> Self {
        self.panel.waivers.push(Waiver { lint, reason: reason.to_owned() });
        self
    }

    /// Puts the series of a time series, or the bars of a bar chart at one place, on top of each
    /// other.
    #[must_use]
    pub fn stacked(mut self, stack: Stack) -> Self {
        if let Kind::BarChart(options) = &mut self.panel.kind {
            options.stack = stack;
            return self;
        }
        self.time_series(|options| options.stack = stack)
    }

    /// One bar of a bar chart for each value of this label, at each place.
    #[must_use]
    pub fn split_by(self, label: &str) -> Self {
        self.bar_chart(|options| options.split = Some(label.to_owned()))
    }

    /// Lets the bars of a bar chart lie.
    #[must_use]
    pub fn lying(self) -> Self {
        self.bar_chart(|options| options.horizontal = true)
    }

    /// Orders the places of a bar chart as numbers.
    #[must_use]
    pub fn numeric(self) -> Self {
        self.bar_chart(|options| options.numeric = true)
    }

    /// Lets values of a time series hold until the next one.
    #[must_use]
    pub fn steps(self) -> Self {
        self.time_series(|options| options.steps = true)
    }

    /// Makes the axis of a time series logarithmic.
    #[must_use]
    pub fn log_scale(self) -> Self {
        self.time_series(|options| options.log = true)
    }

    /// Draws the thresholds of a time series as lines.
    #[must_use]
    pub fn threshold_lines(self) -> Self {
        self.time_series(|options| options.lines = true)
    }

    /// Lets the colour fill a stat.
    #[must_use]
    pub fn background(self) -> Self {
        self.stat(|options| options.background = true)
    }

    /// Leaves the sparkline of a stat away.
    #[must_use]
    pub fn plain(self) -> Self {
        self.stat(|options| options.plain = true)
    }

    /// Writes the name of each series of a stat.
    #[must_use]
    pub fn names(self) -> Self {
        self.stat(|options| options.names = true)
    }

    fn time_series(mut self, change: impl FnOnce(&mut TimeSeries)) -> Self {
        if let Kind::TimeSeries(options) = &mut self.panel.kind {
            change(options);
        } else {
            panic!("{}: an option of time series on another kind", self.panel.slug);
        }
        self
    }

    fn bar_chart(mut self, change: impl FnOnce(&mut BarChart)) -> Self {
        if let Kind::BarChart(options) = &mut self.panel.kind {
            change(options);
        } else {
            panic!("{}: an option of bar charts on another kind", self.panel.slug);
        }
        self
    }

    fn stat(mut self, change: impl FnOnce(&mut Stat)) -> Self {
        if let Kind::Stat(options) = &mut self.panel.kind {
            change(options);
        } else {
            panic!("{}: an option of stats on another kind", self.panel.slug);
        }
        self
    }
}

/// Panels side by side, `height` grid rows high.
#[must_use]
pub fn line(height: u32, panels: Vec<Panel>) -> Line {
    Line { height, panels }
}

/// A heading with lines below it.
#[must_use]
pub fn section(slug: &str, title: &str, lines: Vec<Line>) -> Section {
    Section { slug: slug.to_owned(), title: title.to_owned(), collapsed: false, lines }
}

/// A section that is folded at first.
#[must_use]
pub fn folded(slug: &str, title: &str, lines: Vec<Line>) -> Section {
    Section { collapsed: true, ..section(slug, title, lines) }
}
