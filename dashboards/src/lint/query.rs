//! Lints of queries: parses each expression and walks its tree against the catalog.
//!
//! Names, labels and kinds are checked by the catalog itself; what a board adds is here: scope,
//! windows, legends, guards, and the age of the Prometheus that must understand it.

mod cardinality;
mod shape;

use super::{Lint, Sink};
use crate::ir::{Panel, VariableSource};
use crate::output::Board;
use metric_catalog::promql::lint::{Problem, check_parsed};
use metric_catalog::target::Target;
use promql_parser::parser::{self, Expr, VectorSelector};
use shape::Shape;
use std::collections::{BTreeMap, BTreeSet};

/// A window that nobody would write, so that `$__rate_interval` can be told from a fixed one.
const MARKER: &str = "7919s";
const MARKER_SECONDS: u64 = 7919;

/// Functions of Prometheus 2.42, the oldest that is promised.
const FUNCTIONS: &[&str] = &[
    "abs",
    "absent",
    "absent_over_time",
    "avg_over_time",
    "ceil",
    "changes",
    "clamp",
    "clamp_max",
    "clamp_min",
    "count_over_time",
    "day_of_month",
    "day_of_week",
    "day_of_year",
    "days_in_month",
    "delta",
    "deriv",
    "exp",
    "floor",
    "histogram_quantile",
    "hour",
    "idelta",
    "increase",
    "irate",
    "label_join",
    "label_replace",
    "last_over_time",
    "ln",
    "log10",
    "log2",
    "max_over_time",
    "min_over_time",
    "minute",
    "month",
    "predict_linear",
    "present_over_time",
    "quantile_over_time",
    "rate",
    "resets",
    "round",
    "scalar",
    "sgn",
    "sort",
    "sort_desc",
    "sqrt",
    "stddev_over_time",
    "stdvar_over_time",
    "sum_over_time",
    "time",
    "timestamp",
    "vector",
    "year",
];

/// Aggregations of Prometheus 2.42.
const AGGREGATIONS: &[&str] = &[
    "sum",
    "avg",
    "min",
    "max",
    "count",
    "group",
    "stddev",
    "stdvar",
    "topk",
    "bottomk",
    "quantile",
    "count_values",
];

/// Functions whose window should follow the step of a panel.
const OF_RATES: &[&str] = &["rate", "irate", "increase"];

/// Labels that only `ALERTS` has.
const OF_ALERTS: &[&str] = &["alertname", "alertstate", "severity"];

/// Runs all of them. An expression that stands on several panels is parsed once.
pub(super) fn run(boards: &[Board], sink: &mut Sink) {
    let mut parsed: BTreeMap<(Target, &str), Parsed> = BTreeMap::new();
    for board in boards {
        let (target, uid) = (board.target, &*board.ir.uid);
        let scope = &*scope_of(board);
        for (_, panel) in board.ir.panels() {
            let mut series = 0;
            for query in &panel.queries {
                let mut place = Place { uid, panel: &panel.slug, scope, sink };
                let parsed = parsed
                    .entry((target, query.expr.as_str()))
                    .or_insert_with(|| Parsed::of(target, &query.expr));
                place.problems(parsed);
                if let Some(expr) = &parsed.expr {
                    windows(expr, "", &mut place);
                    legend(expr, &parsed.shape, &query.legend, panel, &mut place);
                    series += cardinality::of(expr, &parsed.shape, panel);
                }
            }
            if series > cardinality::SERIES_MAX {
                let (message, slug) = (cardinality::message(series), &panel.slug);
                sink.push(Lint::L12, uid, slug, message);
            }
        }
        for annotation in &board.ir.annotations {
            let mut place = Place { uid, panel: "", scope, sink };
            let parsed = parsed
                .entry((target, annotation.expr.as_str()))
                .or_insert_with(|| Parsed::of(target, &annotation.expr));
            place.problems(parsed);
            if let (Some(_), Shape::Vector(Some(labels))) = (&parsed.expr, &parsed.shape) {
                let text = format!("{} {}", annotation.title, annotation.text);
                missing_labels(&text, labels, &mut place);
            }
        }
    }
}

/// Labels that can be chosen at the top of a dashboard.
fn scope_of(board: &Board) -> Vec<&str> {
    let variables = board.ir.variables.iter();
    let label = variables.filter_map(|variable| match &variable.source {
        VariableSource::Label { label, .. } => Some(label.as_str()),
        VariableSource::Datasource(_) => None,
    });
    label.collect()
}

/// Where something was found, and where it goes.
struct Place<'a> {
    uid: &'a str,
    panel: &'a str,
    /// Labels that can be chosen at the top of the dashboard.
    scope: &'a [&'a str],
    sink: &'a mut Sink,
}

impl Place<'_> {
    fn found(&mut self, lint: Lint, message: impl Into<String>) {
        self.sink.push(lint, self.uid, self.panel, message);
    }

    /// What is wrong with an expression wherever it stands, and what is wrong with it here.
    fn problems(&mut self, parsed: &Parsed) {
        for (lint, message) in &parsed.problems {
            self.found(*lint, message.clone());
        }
        if let Some(expr) = &parsed.expr {
            scope(expr, self);
        }
    }
}

/// An expression, and what is wrong with it wherever it stands.
struct Parsed {
    /// The tree, with a marked window for `$__rate_interval`; none where it does not parse.
    expr: Option<Expr>,
    shape: Shape,
    problems: Vec<(Lint, String)>,
}

impl Parsed {
    fn of(target: Target, text: &str) -> Self {
        // A variable stands for any value, so its pattern need not be compiled: that is most of the
        // time that parsing takes.
        let text = text
            .replace("$__rate_interval", MARKER)
            .replace("$__interval", "1m")
            .replace("$__range", "1h")
            .replace("=~\"$", "=\"$");
        let expr = match parser::parse(&text) {
            Ok(expr) => expr,
            Err(reason) => {
                let syntax = Problem::Syntax(reason).to_string();
                let problems = vec![(Lint::L01, syntax)];
                return Self { expr: None, shape: Shape::Vector(None), problems };
            }
        };
        let of_alerts = text.contains("ALERTS");
        let mut problems = Vec::new();
        for problem in check_parsed(target, &expr) {
            let grouped_by_alert = match &problem {
                Problem::Grouping(label) => of_alerts && OF_ALERTS.contains(&label.as_str()),
                Problem::Syntax(_)
                | Problem::Series(_)
                | Problem::Nameless
                | Problem::Label { .. }
                | Problem::Value { .. }
                | Problem::Function { .. }
                | Problem::RawCounter(_) => false,
            };
            if !grouped_by_alert {
                problems.push((lint_of(&problem), problem.to_string()));
            }
        }
        age(&expr, &mut problems);
        guards(&expr, &mut problems);
        let shape = shape::of(&expr);
        problems.extend(shape.problems);
        Self { expr: Some(expr), shape: shape.shape, problems }
    }
}

const fn lint_of(problem: &Problem) -> Lint {
    match problem {
        Problem::Syntax(_) | Problem::Series(_) | Problem::Nameless => Lint::L01,
        Problem::Label { .. } | Problem::Value { .. } | Problem::Grouping(_) => Lint::L02,
        Problem::Function { .. } | Problem::RawCounter(_) => Lint::L03,
    }
}

/// Operands of an expression.
fn children(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::Aggregate(aggregate) => {
            std::iter::once(&*aggregate.expr).chain(aggregate.param.as_deref()).collect()
        }
        Expr::Unary(unary) => vec![&unary.expr],
        Expr::Binary(binary) => vec![&binary.lhs, &binary.rhs],
        Expr::Paren(paren) => vec![&paren.expr],
        Expr::Subquery(subquery) => vec![&subquery.expr],
        Expr::Call(call) => call.args.args.iter().map(|argument| &**argument).collect(),
        Expr::NumberLiteral(_)
        | Expr::StringLiteral(_)
        | Expr::VectorSelector(_)
        | Expr::MatrixSelector(_)
        | Expr::Extension(_) => Vec::new(),
    }
}

/// The selector of an expression that is one.
const fn selector(expr: &Expr) -> Option<&VectorSelector> {
    match expr {
        Expr::VectorSelector(selector) => Some(selector),
        Expr::MatrixSelector(matrix) => Some(&matrix.vs),
        Expr::Aggregate(_)
        | Expr::Unary(_)
        | Expr::Binary(_)
        | Expr::Paren(_)
        | Expr::Subquery(_)
        | Expr::NumberLiteral(_)
        | Expr::StringLiteral(_)
        | Expr::Call(_)
        | Expr::Extension(_) => None,
    }
}

/// L16: nothing that Prometheus 2.42 does not know.
fn age(expr: &Expr, found: &mut Vec<(Lint, String)>) {
    if let Expr::Call(call) = expr
        && !FUNCTIONS.contains(&call.func.name)
    {
        found.push((Lint::L16, format!("{}() is newer than Prometheus 2.42", call.func.name)));
    }
    if let Expr::Aggregate(aggregate) = expr
        && !AGGREGATIONS.contains(&aggregate.op.to_string().as_str())
    {
        found.push((Lint::L16, format!("{} is newer than Prometheus 2.42", aggregate.op)));
    }
    children(expr).into_iter().for_each(|child| age(child, found));
}

/// L19: a denominator is a number, a comparison or a `clamp_min`.
fn guards(expr: &Expr, found: &mut Vec<(Lint, String)>) {
    if let Expr::Binary(binary) = expr
        && binary.op.to_string() == "/"
        && !guarded(&binary.rhs)
    {
        found.push((Lint::L19, format!("{} can be 0", binary.rhs)));
    }
    children(expr).into_iter().for_each(|child| guards(child, found));
}

fn guarded(expr: &Expr) -> bool {
    match expr {
        Expr::Paren(paren) => guarded(&paren.expr),
        Expr::NumberLiteral(_) => true,
        Expr::Call(call) => call.func.name == "clamp_min",
        Expr::Binary(binary) => {
            let operator = binary.op.to_string();
            matches!(operator.as_str(), ">" | ">=" | "!=") && !binary.return_bool()
        }
        Expr::Aggregate(_)
        | Expr::Unary(_)
        | Expr::Subquery(_)
        | Expr::StringLiteral(_)
        | Expr::VectorSelector(_)
        | Expr::MatrixSelector(_)
        | Expr::Extension(_) => false,
    }
}

/// L06: every selector is restricted by each label of the scope that its series has.
fn scope(expr: &Expr, place: &mut Place<'_>) {
    if let Some(selector) = selector(expr) {
        let name = selector.name.as_deref().unwrap_or_default();
        // Which labels an alert has is up to the alert, but all keep the cluster.
        let of_alert = name.starts_with("ALERTS");
        let labels = shape::labels_of(name);
        let has = |label: &str| match &labels {
            Some(labels) => labels.contains(label),
            None => of_alert && label == "cluster",
        };
        let alternatives = selector.matchers.or_matchers.iter().flatten();
        let matchers = || selector.matchers.matchers.iter().chain(alternatives.clone());
        for label in place.scope.iter().filter(|label| has(label)) {
            if !matchers().any(|matcher| matcher.name == **label) {
                place.found(Lint::L06, format!("{name} is not restricted by ${label}"));
            }
        }
    }
    children(expr).into_iter().for_each(|child| scope(child, place));
}

/// L05: windows of rates follow the step.
fn windows(expr: &Expr, function: &str, place: &mut Place<'_>) {
    if let Expr::MatrixSelector(matrix) = expr
        && OF_RATES.contains(&function)
        && matrix.range.as_secs() != MARKER_SECONDS
    {
        let name = matrix.vs.name.as_deref().unwrap_or_default();
        let seconds = matrix.range.as_secs();
        place.found(Lint::L05, format!("{function}({name}) has a fixed window of {seconds} s"));
    }
    let function = if let Expr::Call(call) = expr { call.func.name } else { "" };
    children(expr).into_iter().for_each(|child| windows(child, function, place));
}

/// L11: a legend names labels that the result has; one series of several has a name of its own.
fn legend(expr: &Expr, shape: &Shape, legend: &str, panel: &Panel, place: &mut Place<'_>) {
    let Shape::Vector(Some(labels)) = shape else { return };
    match &panel.kind {
        crate::ir::Kind::Table(columns) => {
            for column in columns.iter().filter(|column| !labels.contains(&column.label)) {
                let message = format!("column {} is no label of the result", column.label);
                place.found(Lint::L11, message);
            }
        }
        crate::ir::Kind::BarChart(options) => {
            let named: Vec<&String> =
                std::iter::once(&options.along).chain(&options.split).collect();
            for label in named.iter().filter(|label| !labels.contains(**label)) {
                place.found(Lint::L11, format!("bars by {label}, which is no label of the result"));
            }
            for label in labels.iter().filter(|label| !named.contains(label)) {
                place.found(Lint::L11, format!("several bars differ only in {label}"));
            }
        }
        crate::ir::Kind::Stat(_)
        | crate::ir::Kind::Gauge
        | crate::ir::Kind::BarGauge
        | crate::ir::Kind::TimeSeries(_)
        | crate::ir::Kind::Heatmap
        | crate::ir::Kind::StateTimeline
        | crate::ir::Kind::Text(_) => {
            missing_labels(legend, labels, place);
            ambiguous(expr, legend, labels, place);
        }
    }
}

/// L11: two series never have one name. Names of targets go together: an instance has one job, one
/// role and one model, and boards show one cluster at a time.
fn ambiguous(expr: &Expr, legend: &str, labels: &BTreeSet<String>, place: &mut Place<'_>) {
    const OF_TARGETS: &[&str] =
        &["cluster", "node", "job", "engine_role", "engine_type", "model_name"];
    let names = |label: &str| legend.contains(&format!("{{{{{label}}}}}"));
    if !labels.is_empty() && !legend.contains("{{") {
        place.found(Lint::L11, format!("several series are all called {legend:?}"));
        return;
    }
    for label in labels.iter().filter(|label| !names(label) && !cardinality::is_fixed(expr, label))
    {
        let follows = OF_TARGETS.contains(&label.as_str())
            && (label == "cluster" || names("instance") || (label != "node" && names("node")));
        if !follows {
            place.found(Lint::L11, format!("series called {legend:?} differ only in {label}"));
        }
    }
}

fn missing_labels(text: &str, labels: &BTreeSet<String>, place: &mut Place<'_>) {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("{{") {
        let Some((label, tail)) = after.split_once("}}") else { return };
        if !labels.contains(label.trim()) {
            place.found(Lint::L11, format!("{{{{{label}}}}} is no label of the result"));
        }
        rest = tail;
    }
}
