//! Strict parser of the Prometheus text format 0.0.4.
//!
//! A page is taken whole or refused with the line that is wrong, as Prometheus does. Timestamps in
//! the page are refused: no program of this stack writes them.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::store::{Labels, NAME};

/// A page that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {reason}")]
pub(crate) struct BadPage {
    line: usize,
    reason: String,
}

/// One sample line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample<'a> {
    /// The series exactly as written: name and braces; equal text means an equal series.
    pub(crate) series: &'a str,
    pub(crate) value: f64,
}

/// What the page says about a family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) help: String,
}

/// A parsed page.
#[derive(Debug, Default)]
pub(crate) struct Page<'a> {
    pub(crate) samples: Vec<Sample<'a>>,
    pub(crate) families: BTreeMap<String, Family>,
}

/// Parses a whole page.
pub(crate) fn parse(text: &str) -> Result<Page<'_>, BadPage> {
    let mut page = Page::default();
    for (index, line) in text.lines().enumerate() {
        let line_number = index + 1;
        let fail = |reason: String| BadPage { line: line_number, reason };
        let trimmed = line.trim_matches([' ', '\t']);
        if trimmed.is_empty() {
            continue;
        }
        if let Some(comment) = trimmed.strip_prefix('#') {
            comment_line(comment, &mut page.families).map_err(fail)?;
        } else {
            page.samples.push(sample_line(trimmed).map_err(fail)?);
        }
    }
    Ok(page)
}

fn comment_line(comment: &str, families: &mut BTreeMap<String, Family>) -> Result<(), String> {
    let mut words = comment.trim_start().splitn(3, [' ', '\t']);
    let (keyword, name) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let rest = words.next().unwrap_or("").trim();
    if keyword != "HELP" && keyword != "TYPE" {
        return Ok(());
    }
    if !is_metric_name(name) {
        return Err(format!("invalid metric name {name:?}"));
    }
    let unknown = || Family { kind: "unknown".to_owned(), help: String::new() };
    let family = families.entry(name.to_owned()).or_insert_with(unknown);
    if keyword == "HELP" {
        family.help = rest.replace("\\n", "\n").replace("\\\\", "\\");
        return Ok(());
    }
    match rest {
        "counter" | "gauge" | "histogram" | "summary" | "untyped" => {
            family.kind = rest.to_owned();
            Ok(())
        }
        other => Err(format!("unknown type {other:?}")),
    }
}

fn sample_line(line: &str) -> Result<Sample<'_>, String> {
    let name_end = line.find(['{', ' ', '\t']).ok_or("a sample needs a value")?;
    if !is_metric_name(&line[..name_end]) {
        return Err(format!("invalid metric name {:?}", &line[..name_end]));
    }
    let series_end = match line.as_bytes()[name_end] {
        b'{' => name_end + braces_end(&line[name_end..])?,
        _ => name_end,
    };
    let mut fields = line[series_end..].split_ascii_whitespace();
    let value = number(fields.next().ok_or("a sample needs a value")?)?;
    if fields.next().is_some() {
        return Err("timestamps are not accepted".to_owned());
    }
    Ok(Sample { series: &line[..series_end], value })
}

/// Length of the label braces at the start of `text`, quotes respected.
fn braces_end(text: &str) -> Result<usize, String> {
    let (mut quoted, mut escaped) = (false, false);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return Ok(index + 1),
            _ => {}
        }
    }
    Err("label braces are not closed".to_owned())
}

fn number(text: &str) -> Result<f64, String> {
    match text {
        "+Inf" | "Inf" => Ok(f64::INFINITY),
        "-Inf" => Ok(f64::NEG_INFINITY),
        "NaN" => Ok(f64::NAN),
        other => other.parse().map_err(|_| format!("invalid value {other:?}")),
    }
}

fn is_metric_name(name: &str) -> bool {
    is_label_name(&name.replace(':', "_"))
}

fn is_label_name(name: &str) -> bool {
    !name.is_empty()
        && !name.as_bytes()[0].is_ascii_digit()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The labels of a series as written in a page, `__name__` among them.
pub(crate) fn series_labels(series: &str) -> Result<Vec<(String, String)>, String> {
    let (name, rest) = series.split_once('{').unwrap_or((series, "}"));
    let mut pairs = vec![(NAME.to_owned(), name.to_owned())];
    let mut rest = rest.strip_suffix('}').ok_or("label braces are not closed")?.trim_start();
    while !rest.is_empty() {
        let (label, after) = rest.split_once('=').ok_or("a label needs a value")?;
        let label = label.trim();
        if !is_label_name(label) {
            return Err(format!("invalid label name {label:?}"));
        }
        if pairs.iter().any(|(known, _)| known == label) {
            return Err(format!("label {label:?} occurs twice"));
        }
        let quoted = after.trim_start().strip_prefix('"').ok_or("label values are quoted")?;
        let (value, after) = unquote(quoted)?;
        pairs.push((label.to_owned(), value));
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(next) => next.trim_start(),
            None if after.is_empty() => after,
            None => return Err("labels are separated by commas".to_owned()),
        };
    }
    Ok(pairs)
}

/// Reads up to the closing quote: the value, and the text behind it.
fn unquote(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((index, c)) = chars.next() {
        match c {
            '"' => return Ok((value, &text[index + 1..])),
            '\\' => match chars.next().map(|(_, c)| c) {
                Some('n') => value.push('\n'),
                Some(c @ ('\\' | '"')) => value.push(c),
                _ => return Err("unknown escape in a label value".to_owned()),
            },
            other => value.push(other),
        }
    }
    Err("a label value is not closed".to_owned())
}

/// The identity of a scraped series: its own labels and those of its target.
///
/// A label of the target wins; the series' own is kept as `exported_NAME`, as in Prometheus.
pub(crate) fn with_target(own: Vec<(String, String)>, target: &[(String, String)]) -> Labels {
    let renamed = own.into_iter().map(|(name, value)| {
        let taken = target.iter().any(|(label, _)| *label == name);
        (if taken { format!("exported_{name}") } else { name }, value)
    });
    Labels::new(renamed.chain(target.iter().cloned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP a_total Things, with a \\\\ and\\na break.\n# TYPE a_total counter\n\
        a_total{x=\"1\",y=\"with \\\"quotes\\\", } and = signs\"} 3\n\n# a remark\n\
        a_total 4.5e3\nb{le=\"+Inf\",} +Inf\nb{} NaN\n";

    #[test]
    fn a_page_is_parsed() {
        let page = parse(PAGE).expect("valid page");
        let values: Vec<f64> = page.samples.iter().map(|s| s.value).collect();
        assert_eq!(values[..3], [3.0, 4500.0, f64::INFINITY]);
        assert!(values[3].is_nan());
        assert_eq!(page.families["a_total"].kind, "counter");
        assert_eq!(page.families["a_total"].help, "Things, with a \\ and\na break.");
        let labels = series_labels(page.samples[0].series).expect("valid labels");
        assert_eq!(labels[2].1, "with \"quotes\", } and = signs");
        assert_eq!(series_labels(page.samples[2].series).expect("valid labels").len(), 2);
        assert_eq!(series_labels(page.samples[3].series).expect("valid labels").len(), 1);
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (page, reason) in [
            ("ok 1\nbad", "line 2: a sample needs a value"),
            ("a x", "line 1: invalid value \"x\""),
            ("a 1 1700000000", "line 1: timestamps are not accepted"),
            ("a{x=\"1\" 1", "line 1: label braces are not closed"),
            ("0a 1", "line 1: invalid metric name \"0a\""),
            ("# TYPE a thing", "line 1: unknown type \"thing\""),
        ] {
            let error = parse(page).expect_err(page);
            assert_eq!(error.to_string(), reason);
        }
        for series in ["a{x=1}", "a{x=\"1\"y=\"2\"}", "a{x=\"1\",x=\"2\"}", "a{x=\"\\q\"}", "a{x}"]
        {
            assert!(series_labels(series).is_err(), "{series}");
        }
    }

    #[test]
    fn the_label_of_the_target_wins() {
        let own = series_labels("m{job=\"mine\",a=\"1\"}").expect("valid labels");
        let target = [("job".to_owned(), "theirs".to_owned())];
        let labels = with_target(own, &target);
        assert_eq!(labels.to_string(), "m{a=\"1\", exported_job=\"mine\", job=\"theirs\"}");
    }
}
