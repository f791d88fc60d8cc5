//! Grafana variables inside texts: finding them and filling them in.

use metric_catalog::promql::Scope;

/// Labels that every query restricts to what is chosen at the top of a dashboard of processes.
pub const SCOPE: &[&str] = &["cluster", "job", "engine_role", "model_name", "instance"];

/// The same for a dashboard of processes whose KV pools can be chosen, too.
pub const POOLS: &[&str] = &["cluster", "job", "engine_role", "model_name", "instance", "pool"];

/// The same for a dashboard of everything that is scraped, whoever it is.
pub const TARGETS: &[&str] = &["cluster", "job", "instance"];

/// The same for a dashboard of hosts: what exporters say of them has no model, and they are scraped
/// under another job and address than the processes.
pub const HOSTS: &[&str] = &["cluster", "node"];

/// The conditions of a query: `label=~"$label"`, for those of the labels that the series has.
#[must_use]
pub fn scope(labels: &[&'static str]) -> Scope {
    Scope::variables(labels)
}

/// Range that stands in for `$__rate_interval` where an expression must parse.
pub const SAMPLE_RANGE: &str = "5m";

/// Names of the variables that a text mentions, as `$name`, `${name}`, `${name:format}` or
/// `[[name]]`; also inside quotes. In order, with repeats.
#[must_use]
pub fn references(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let _replaced = replace(text, &mut |name| {
        names.push(name.to_owned());
        String::new()
    });
    names
}

/// Whether Grafana itself fills in the variable.
#[must_use]
pub fn is_built_in(name: &str) -> bool {
    matches!(
        name,
        "__rate_interval"
            | "__interval"
            | "__interval_ms"
            | "__range"
            | "__range_s"
            | "__range_ms"
            | "__from"
            | "__to"
            | "__dashboard"
            | "__url_time_range"
            | "__all_variables"
            | "__field"
    )
}

/// The expression with every variable filled in, so that it parses.
#[must_use]
pub fn fill_in(expr: &str) -> String {
    replace(expr, &mut |name| {
        let range = matches!(name, "__rate_interval" | "__interval" | "__range");
        if range { SAMPLE_RANGE.to_owned() } else { "x".to_owned() }
    })
}

/// The text with each variable replaced by what `value` gives for its name.
#[must_use]
pub fn interpolate(text: &str, value: &mut dyn FnMut(&str) -> String) -> String {
    replace(text, value)
}

/// Replaces each variable by what `value` gives for its name.
fn replace(text: &str, value: &mut dyn FnMut(&str) -> String) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['$', '[']) {
        result.push_str(&rest[..at]);
        rest = &rest[at..];
        match parse(rest) {
            Some((name, length)) => {
                result.push_str(&value(name));
                rest = &rest[length..];
            }
            None => {
                result.push_str(&rest[..1]);
                rest = &rest[1..];
            }
        }
    }
    result.push_str(rest);
    result
}

/// The variable that a text starts with: its name and the length of the whole mention.
fn parse(text: &str) -> Option<(&str, usize)> {
    if let Some(inner) = text.strip_prefix("${") {
        let end = inner.find('}')?;
        let name = inner[..end].split([':', '.']).next()?;
        return is_name(name).then_some((name, end + 3));
    }
    if let Some(inner) = text.strip_prefix("[[") {
        let end = inner.find("]]")?;
        let name = inner[..end].split(':').next()?;
        return is_name(name).then_some((name, end + 4));
    }
    let inner = text.strip_prefix('$')?;
    let end = inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inner.len());
    let name = &inner[..end];
    // `$1` is a capture of label_replace.
    is_name(name).then_some((name, end + 1))
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_found() {
        let text = r#"rate(x{job=~"$job",a="${b:regex}",c="[[d]]",e="$1"}[$__rate_interval])[5m:]"#;
        assert_eq!(references(text), ["job", "b", "d", "__rate_interval"]);
        let filled = r#"rate(x{job=~"x",a="x",c="x",e="$1"}[5m])[5m:]"#;
        assert_eq!(fill_in(text), filled);
    }
}
