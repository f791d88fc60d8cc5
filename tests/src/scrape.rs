//! Reads the Prometheus text format into a map, so that tests never compare text.

use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};

/// Labels of a series, sorted.
pub type Labels = BTreeMap<String, String>;

/// One page of metrics.
#[derive(Debug, Default, Clone)]
pub struct Page {
    /// Family name to its type as the page declares it.
    pub types: BTreeMap<String, String>,
    /// Sample name and labels to value.
    pub samples: BTreeMap<(String, Labels), f64>,
}

impl Page {
    /// Reads a page.
    ///
    /// # Errors
    /// Names the first line that does not follow the format, or a series given twice.
    pub fn parse(text: &str) -> Result<Self> {
        let mut page = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').context("a TYPE line without a type")?;
                page.types.insert(name.to_owned(), kind.to_owned());
            } else if !line.starts_with('#') {
                let (key, value) = sample(line).with_context(|| format!("line {line:?}"))?;
                let twice = page.samples.insert(key, value).is_some();
                ensure!(!twice, "series given twice: {line}");
            }
        }
        Ok(page)
    }

    /// The sum over all series of `name` that carry the given labels.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let matches = |have: &Labels| {
            labels.iter().all(|(key, value)| have.get(*key).is_some_and(|v| v == value))
        };
        let of_name =
            self.samples.iter().filter(|((sample, have), _)| sample == name && matches(have));
        of_name.map(|(_, value)| value).sum()
    }

    /// The values of `label` among the series of `name`.
    #[must_use]
    pub fn values(&self, name: &str, label: &str) -> BTreeSet<String> {
        let of_name = self.samples.keys().filter(|(sample, _)| sample == name);
        of_name.filter_map(|(_, labels)| labels.get(label).cloned()).collect()
    }
}

fn sample(line: &str) -> Result<((String, Labels), f64)> {
    let (series, value) = line.rsplit_once(' ').context("no value")?;
    let value = value.parse().context("not a number")?;
    let (name, rest) = match series.split_once('{') {
        Some((name, rest)) => (name, rest.strip_suffix('}').context("no closing brace")?),
        None => (series, ""),
    };
    let mut labels = Labels::new();
    let mut rest = rest;
    while !rest.is_empty() {
        let (key, after) = rest.split_once("=\"").context("a label without a value")?;
        let (value, tail) = quoted(after)?;
        labels.insert(key.trim_start_matches(',').to_owned(), value);
        rest = tail;
    }
    Ok(((name.to_owned(), labels), value))
}

/// The text up to the closing quote, unescaped, and what follows it.
fn quoted(text: &str) -> Result<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => match chars.next().context("a lone backslash")?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    anyhow::bail!("a label value without its closing quote")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_labels_escapes_and_bare_samples() {
        let page = Page::parse("# TYPE a gauge\na 3\nb{x=\"1,}\\\"\",y=\"q\"} 2.5\n").unwrap();
        assert_eq!(page.sum("a", &[]), 3.0);
        assert_eq!(page.sum("b", &[("y", "q"), ("x", "1,}\"")]), 2.5);
        assert_eq!(page.types["a"], "gauge");
        assert!(Page::parse("a 3\na 4\n").is_err());
        assert!(Page::parse("a{b=\"c} 4\n").is_err());
    }
}
