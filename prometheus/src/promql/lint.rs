//! Checks of PromQL text against the catalog: what the types of the builders cannot see, and all of
//! what is written by hand.
//!
//! Every series must be declared or recorded, every label in a matcher or a grouping must exist,
//! every value of a closed label must be one of its values or stand in `LATER`, and a function must
//! fit the kind of the series. Nothing is evaluated: a correct query may still find no data.

use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::{self, Expr, LabelModifier, VectorSelector};

use super::recorded::{self, Recorded};
use super::{COMMON, LATER, LATER_LABELS};
use crate::def::{Info, Kind, Source, Values};
use crate::engines::labels::EngineType;
use crate::labels::Role;
use crate::target::Target;

/// What is wrong with an expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It is no PromQL.
    #[error("does not parse: {0}")]
    Syntax(String),
    /// A series that nobody declares or records.
    #[error("no metric and no recording rule is called {0}")]
    Series(String),
    /// A selector without a name.
    #[error("a selector has no metric name")]
    Nameless,
    /// A label that the series lacks.
    #[error("{series} has no label {label}")]
    Label {
        /// The series.
        series: String,
        /// The label.
        label: String,
    },
    /// A value that the label never has.
    #[error("label {label} of {series} is never {value:?}")]
    Value {
        /// The series.
        series: String,
        /// The label.
        label: String,
        /// The value, or the pattern that matches none.
        value: String,
    },
    /// A grouping by a label that nothing has.
    #[error("grouped by {0}, which no series has")]
    Grouping(String),
    /// A function that does not fit.
    #[error("{function} does not fit {series}")]
    Function {
        /// The function.
        function: String,
        /// The series.
        series: String,
    },
    /// A counter used as it is.
    #[error("{0} is a counter and only means something in rate() or increase()")]
    RawCounter(String),
}

/// Series that Prometheus itself makes.
const OF_PROMETHEUS: &[&str] =
    &["up", "scrape_duration_seconds", "scrape_samples_scraped", "scrape_series_added"];
/// Alerts as series; rules give them any label.
const ALERTS: &[&str] = &["ALERTS", "ALERTS_FOR_STATE"];

/// Everything that is wrong with an expression over our own metrics; variables of Grafana may stand
/// for windows and in quotes.
pub fn check(text: &str) -> Vec<Problem> {
    check_for(Target::Sightline, text)
}

/// Everything that is wrong with an expression over the metrics of a target.
pub fn check_for(target: Target, text: &str) -> Vec<Problem> {
    let text = text
        .replace("$__rate_interval", "5m")
        .replace("$__interval", "1m")
        .replace("$__range", "1h");
    match parser::parse(&text) {
        Err(reason) => vec![Problem::Syntax(reason)],
        Ok(expr) => check_parsed(target, &expr),
    }
}

/// The same for an expression that is parsed already; a value with a `$` stands for any.
pub fn check_parsed(target: Target, expr: &Expr) -> Vec<Problem> {
    let mut check = Check { target, problems: Vec::new() };
    check.walk(expr, "");
    check.problems
}

/// Names of all series that an expression selects, suffixes of histograms taken off.
pub fn metrics(text: &str) -> Vec<String> {
    let text = text.replace("$__rate_interval", "5m").replace("$__range", "1h");
    let mut names = Vec::new();
    if let Ok(expr) = parser::parse(&text) {
        collect(&expr, &mut names);
    }
    names.sort_unstable();
    names.dedup();
    names
}

fn collect(expr: &Expr, names: &mut Vec<String>) {
    let mut add = |selector: &VectorSelector| {
        let name = selector.name.clone().unwrap_or_default();
        let mut found = Target::ALL.iter().filter_map(|target| Series::find(*target, &name));
        names.push(match found.next() {
            Some(Series::Metric(info, _)) => info.name.to_owned(),
            Some(Series::Recorded(_) | Series::Target | Series::Alerts) | None => name,
        });
    };
    match expr {
        Expr::VectorSelector(selector) => add(selector),
        Expr::MatrixSelector(selector) => add(&selector.vs),
        Expr::Aggregate(_)
        | Expr::Unary(_)
        | Expr::Binary(_)
        | Expr::Paren(_)
        | Expr::Subquery(_)
        | Expr::NumberLiteral(_)
        | Expr::StringLiteral(_)
        | Expr::Call(_)
        | Expr::Extension(_) => {
            children(expr).into_iter().for_each(|child| collect(child, names));
        }
    }
}

fn children(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::Aggregate(aggregate) => {
            let parameter = aggregate.param.as_deref();
            std::iter::once(&*aggregate.expr).chain(parameter).collect()
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

/// A check on its way through an expression.
struct Check {
    target: Target,
    problems: Vec<Problem>,
}

impl Check {
    /// `function` is the call that the expression is an argument of, if any.
    fn walk(&mut self, expr: &Expr, function: &str) {
        match expr {
            Expr::VectorSelector(selector) => self.selector(selector, function),
            Expr::MatrixSelector(selector) => self.selector(&selector.vs, function),
            Expr::Paren(paren) => self.walk(&paren.expr, function),
            Expr::Call(call) => {
                for argument in &call.args.args {
                    self.walk(argument, call.func.name);
                }
            }
            Expr::Aggregate(aggregate) => {
                if let Some(modifier) = &aggregate.modifier {
                    self.grouping(modifier);
                }
                children(expr).into_iter().for_each(|child| self.walk(child, ""));
            }
            Expr::Binary(binary) => {
                if let Some(matching) = binary.modifier.as_ref().and_then(|m| m.matching.as_ref()) {
                    self.grouping(matching);
                }
                children(expr).into_iter().for_each(|child| self.walk(child, ""));
            }
            Expr::Unary(_)
            | Expr::Subquery(_)
            | Expr::NumberLiteral(_)
            | Expr::StringLiteral(_)
            | Expr::Extension(_) => {
                children(expr).into_iter().for_each(|child| self.walk(child, ""));
            }
        }
    }

    fn selector(&mut self, selector: &VectorSelector, function: &str) {
        let Some(name) = &selector.name else {
            self.problems.push(Problem::Nameless);
            return;
        };
        let Some(series) = Series::find(self.target, name) else {
            self.problems.push(Problem::Series(name.clone()));
            return;
        };
        let of_counters = OF_COUNTERS.contains(&function);
        if of_counters && !series.grows() {
            let (function, series) = (function.to_owned(), name.clone());
            self.problems.push(Problem::Function { function, series });
        } else if series.grows() && !of_counters && !OF_ANY.contains(&function) {
            self.problems.push(Problem::RawCounter(name.clone()));
        }
        let alternatives = selector.matchers.or_matchers.iter().flatten();
        for matcher in selector.matchers.matchers.iter().chain(alternatives) {
            self.matcher(name, series, matcher);
        }
    }

    fn matcher(&mut self, name: &str, series: Series, matcher: &Matcher) {
        let label = matcher.name.as_str();
        if !series.has_label(label) {
            self.problems.push(Problem::Label { series: name.to_owned(), label: label.to_owned() });
            return;
        }
        // A variable of a board stands for values that are there.
        let Some(values) = series.values(label).filter(|_| !matcher.value.contains('$')) else {
            return;
        };
        let mut unknown = |value: &str| {
            let (series, label) = (name.to_owned(), label.to_owned());
            self.problems.push(Problem::Value { series, label, value: value.to_owned() });
        };
        match &matcher.op {
            MatchOp::Equal | MatchOp::NotEqual => {
                if !values.contains(&matcher.value.as_str()) {
                    unknown(&matcher.value);
                }
            }
            MatchOp::Re(pattern) | MatchOp::NotRe(pattern) => {
                if !values.iter().any(|value| pattern.is_match(value)) {
                    unknown(&matcher.value);
                    return;
                }
                let plain =
                    |word: &str| word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
                for word in matcher.value.split('|').filter(|word| !word.is_empty() && plain(word))
                {
                    if !values.contains(&word) {
                        unknown(word);
                    }
                }
            }
        }
    }

    fn grouping(&mut self, modifier: &LabelModifier) {
        for label in &modifier.labels().labels {
            let label = label.as_str();
            let known = MADE.contains(&label)
                || COMMON[..4].contains(&label)
                || match self.target {
                    Target::Sightline => {
                        COMMON.contains(&label)
                            || LATER_LABELS.contains(&label)
                            || crate::all().any(|info| info.label(label).is_some())
                    }
                    Target::Engine(engine) => engine.families().any(|info| {
                        info.common_labels().contains(&label) || info.label(label).is_some()
                    }),
                };
            if !known {
                self.problems.push(Problem::Grouping(label.to_owned()));
            }
        }
    }
}

/// Labels that expressions may be grouped by although no declared series has them.
const MADE: &[&str] = &["le", "limit", "kind"];

#[derive(Debug, Clone, Copy)]
enum Series {
    /// With the suffix that a histogram's series have.
    Metric(&'static Info, &'static str),
    Recorded(&'static Recorded),
    Target,
    Alerts,
}

impl Series {
    fn find(target: Target, name: &str) -> Option<Self> {
        if OF_PROMETHEUS.contains(&name) {
            return Some(Self::Target);
        }
        if ALERTS.contains(&name) {
            return Some(Self::Alerts);
        }
        if let Some(recorded) = recorded::of(target).iter().find(|recorded| recorded.name == name) {
            return Some(Self::Recorded(recorded));
        }
        let matching = |info: &'static Info| match info.kind {
            Kind::Counter | Kind::Gauge => (info.name == name).then_some(Self::Metric(info, "")),
            Kind::Histogram => ["_bucket", "_sum", "_count"]
                .into_iter()
                .find(|suffix| name.strip_suffix(suffix) == Some(info.name))
                .map(|suffix| Self::Metric(info, suffix)),
        };
        match target {
            Target::Sightline => crate::all().find_map(matching),
            Target::Engine(engine) => engine.families().find_map(matching),
        }
    }

    fn has_label(self, label: &str) -> bool {
        match self {
            Self::Metric(info, suffix) => {
                info.common_labels().contains(&label)
                    || (!matches!(info.source, Source::Engine(_)) && LATER_LABELS.contains(&label))
                    || info.label(label).is_some()
                    || (label == "le" && suffix == "_bucket")
            }
            Self::Recorded(recorded) => recorded.labels.contains(&label),
            Self::Target => COMMON[..4].contains(&label),
            Self::Alerts => true,
        }
    }

    /// Values of a label, where they are known.
    fn values(self, label: &str) -> Option<Vec<&'static str>> {
        let declared = if label == "engine_role" {
            Role::ALL.iter().map(|role| role.as_str()).collect()
        } else if label == "engine_type" {
            EngineType::ALL.iter().map(|kind| kind.as_str()).collect()
        } else {
            match self {
                Self::Metric(info, _) => match info.label(label)?.values {
                    Values::Closed(values) => values.to_vec(),
                    Values::Open { .. } => return None,
                },
                Self::Recorded(_) | Self::Target | Self::Alerts => return None,
            }
        };
        let later = LATER.iter().filter(|(name, _)| *name == label).flat_map(|(_, values)| *values);
        Some(declared.into_iter().chain(later.copied()).collect())
    }

    /// Whether the series only grows.
    fn grows(self) -> bool {
        match self {
            Self::Metric(info, suffix) => info.kind == Kind::Counter || !suffix.is_empty(),
            Self::Recorded(_) | Self::Target | Self::Alerts => false,
        }
    }
}

/// Functions that need a series that grows.
const OF_COUNTERS: &[&str] = &["rate", "irate", "increase", "resets"];
/// Functions that make sense on a counter as well.
const OF_ANY: &[&str] = &["last_over_time", "absent", "absent_over_time", "present_over_time"];
