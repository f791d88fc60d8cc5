//! Which series an expression reads, found by scanning its text: fast, and without a parser.
//!
//! Exact for the expressions that the catalog builds. The lints use a real parser.

use std::collections::BTreeSet;
use std::sync::LazyLock;

/// Every declared name, ours and those of other engines.
static NAMES: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
    metric_catalog::all().chain(metric_catalog::engines::all()).map(|info| info.name).collect()
});

/// Names in an expression that are declared, ours or another engine's (without `_bucket`, `_sum`
/// and `_count` of a histogram), recorded series, and the series that Prometheus itself writes.
#[must_use]
pub fn series_in(expr: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for word in words(expr) {
        let stem = ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end));
        if let Some(stem) = stem.filter(|stem| NAMES.contains(stem)) {
            found.insert(stem.to_owned());
        } else if word.contains(':') || matches!(word, "up" | "ALERTS") || NAMES.contains(word) {
            found.insert(word.to_owned());
        }
    }
    found
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
        let found: Vec<String> = series_in(expr).into_iter().collect();
        assert_eq!(found, ["instance:x:y", "sightline_time_to_first_token_seconds", "up"]);
    }
}
