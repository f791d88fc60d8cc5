//! Which series an expression reads, found by scanning its text: fast, and without a parser.
//!
//! Exact for the expressions that the catalog builds. The lints use a real parser.

use metric_catalog::def::{Info, Kind};
use metric_catalog::engines;
use metric_catalog::promql::recorded;
use metric_catalog::target::Target;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// Series that Prometheus itself writes.
const OF_PROMETHEUS: &[&str] = &[
    "up",
    "scrape_duration_seconds",
    "scrape_samples_scraped",
    "scrape_series_added",
    "ALERTS",
    "ALERTS_FOR_STATE",
];

/// What a name stands for.
#[derive(Debug, Clone, Copy)]
pub enum Series {
    /// A declared metric, ours or another engine's, by any of its series.
    Metric(&'static Info),
    /// A series that a rule or Prometheus itself makes.
    Made(&'static str),
}

impl Series {
    /// Its name; of a histogram that of the declaration, without `_bucket`, `_sum` and `_count`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Metric(info) => info.name,
            Self::Made(name) => name,
        }
    }
}

/// Every name that can stand in an expression.
static KNOWN: LazyLock<BTreeMap<String, Series>> = LazyLock::new(|| {
    let recorded = Target::ALL.iter().flat_map(|target| recorded::of(*target));
    let made = OF_PROMETHEUS.iter().copied().chain(recorded.map(|made| made.name));
    let mut known: BTreeMap<String, Series> =
        made.map(|name| (name.to_owned(), Series::Made(name))).collect();
    for info in metric_catalog::all().chain(engines::all()) {
        match info.kind {
            Kind::Counter | Kind::Gauge => {
                known.insert(info.name.to_owned(), Series::Metric(info));
            }
            Kind::Histogram => {
                for end in ["_bucket", "_sum", "_count"] {
                    known.insert(format!("{}{end}", info.name), Series::Metric(info));
                }
            }
        }
    }
    known
});

/// The metric that has a series of this name.
#[must_use]
pub fn metric_of(series: &str) -> Option<&'static Info> {
    match KNOWN.get(series)? {
        Series::Metric(info) => Some(info),
        Series::Made(_) => None,
    }
}

/// The declared metrics and made series that an expression reads, each once, by name.
#[must_use]
pub fn series_in(expr: &str) -> Vec<Series> {
    let found = words(expr).into_iter().filter_map(|word| KNOWN.get(word).copied());
    let by_name: BTreeMap<&str, Series> = found.map(|series| (series.name(), series)).collect();
    by_name.into_values().collect()
}

/// Their names.
#[must_use]
pub fn names_in(expr: &str) -> BTreeSet<&'static str> {
    series_in(expr).into_iter().map(Series::name).collect()
}

/// Series that an expression reads and nothing declares. Needs the parser: none is found without
/// feature `lint`.
#[must_use]
#[cfg_attr(not(feature = "lint"), expect(unused_variables, reason = "nothing reads it then"))]
pub fn unknown_in(expr: &str) -> Vec<String> {
    #[cfg(feature = "lint")]
    let names = metric_catalog::promql::lint::metrics(expr);
    #[cfg(not(feature = "lint"))]
    let names: Vec<String> = Vec::new();
    let declared = |name: &String| KNOWN.values().any(|series| series.name() == name);
    names.into_iter().filter(|name| !KNOWN.contains_key(name) && !declared(name)).collect()
}

/// Identifiers outside of quotes and braces.
fn words(expr: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let (mut start, mut quote, mut depth) = (None, None, 0_usize);
    let mut escaped = false;
    for (at, char) in expr.char_indices().chain([(expr.len(), ' ')]) {
        if let Some(open) = quote {
            if char == open && !escaped {
                quote = None;
            }
            escaped = char == '\\' && !escaped;
            continue;
        }
        let inside = char.is_ascii_alphanumeric() || char == '_' || char == ':';
        if inside {
            start.get_or_insert(at);
            continue;
        }
        if let Some(begin) = start.take()
            && depth == 0
        {
            words.push(&expr[begin..at]);
        }
        match char {
            '"' | '\'' | '`' => quote = Some(char),
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_outside_of_quotes_and_braces() {
        let expr = concat!(
            "histogram_quantile(0.9, sum by (le) (rate(",
            "sightline_time_to_first_token_seconds_bucket",
            r#"{job=~"sightline_queue_requests",sightline_queue_requests="\"}"}[5m]"#,
            "))) + instance:x:y > up",
        );
        let found: Vec<&str> = names_in(expr).into_iter().collect();
        assert_eq!(found, ["sightline_time_to_first_token_seconds", "up"]);
    }
}
