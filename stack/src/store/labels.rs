//! The identity of a series, and matchers over it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use regex::Regex;

/// The label that holds the metric name.
pub(crate) const NAME: &str = "__name__";

/// A set of labels, sorted by name, without empty values; cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Labels(Arc<[(String, String)]>);

impl Labels {
    /// Builds a set; an empty value means that the label is absent, as in Prometheus.
    pub(crate) fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        let sorted: BTreeMap<String, String> =
            pairs.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        Self(sorted.into_iter().collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let index = self.0.binary_search_by(|(n, _)| n.as_str().cmp(name)).ok()?;
        Some(&self.0[index].1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Bytes held for a series of these labels, its places in the indexes included.
    pub(super) fn size(&self) -> usize {
        /// Two tree nodes, a hash slot and the chunk list, by and large.
        const PLACES: usize = 256;
        let pair =
            |(name, value): &(String, String)| name.len() + value.len() + 2 * size_of::<String>();
        PLACES + self.0.iter().map(pair).sum::<usize>()
    }

    /// The labels for which `keep` is true.
    pub(crate) fn filtered(&self, keep: impl Fn(&str) -> bool) -> Self {
        if self.0.iter().all(|(name, _)| keep(name)) {
            return self.clone();
        }
        Self(self.0.iter().filter(|(name, _)| keep(name)).cloned().collect())
    }

    pub(crate) fn without_name(&self) -> Self {
        self.filtered(|name| name != NAME)
    }

    /// This set with `name` set to `value`; an empty value removes the label.
    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let others = self.0.iter().filter(|(n, _)| n != name).cloned();
        Self::new(others.chain([(name.to_owned(), value.to_owned())]))
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `name{label="value"}`, as Prometheus prints a series.
impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get(NAME).unwrap_or(""))?;
        let mut rest = self.iter().filter(|(name, _)| *name != NAME).peekable();
        if rest.peek().is_none() && self.get(NAME).is_some() {
            return Ok(());
        }
        f.write_str("{")?;
        for (index, (name, value)) in rest.enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{name}={value:?}")?;
        }
        f.write_str("}")
    }
}

/// How a matcher compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatchOp {
    Equal,
    NotEqual,
    Regex,
    NotRegex,
}

/// One condition on a label; a regex is anchored at both ends and compiled once.
#[derive(Debug, Clone)]
pub(crate) struct Matcher {
    pub(crate) label: String,
    op: MatchOp,
    value: String,
    regex: Option<Regex>,
}

impl Matcher {
    /// Errors with a sentence when the pattern is no regular expression.
    pub(crate) fn new(label: String, op: MatchOp, value: String) -> Result<Self, String> {
        let regex = match op {
            MatchOp::Equal | MatchOp::NotEqual => None,
            MatchOp::Regex | MatchOp::NotRegex => Some(anchored(&value)?),
        };
        Ok(Self { label, op, value, regex })
    }

    pub(crate) fn equal(label: &str, value: String) -> Self {
        Self { label: label.to_owned(), op: MatchOp::Equal, value, regex: None }
    }

    /// The value that the label must have, when only one can match.
    pub(crate) fn exact(&self) -> Option<&str> {
        (self.op == MatchOp::Equal).then_some(self.value.as_str())
    }

    /// How it compares.
    #[cfg(test)]
    pub(crate) const fn op(&self) -> MatchOp {
        self.op
    }

    /// What is compared with: a value or a pattern.
    #[cfg(test)]
    pub(crate) fn pattern(&self) -> &str {
        &self.value
    }

    /// Whether `value` (empty when the label is absent) satisfies the matcher.
    pub(crate) fn matches(&self, value: &str) -> bool {
        let by_regex = || self.regex.as_ref().is_some_and(|regex| regex.is_match(value));
        match self.op {
            MatchOp::Equal => value == self.value,
            MatchOp::NotEqual => value != self.value,
            MatchOp::Regex => by_regex(),
            MatchOp::NotRegex => !by_regex(),
        }
    }

    pub(crate) fn accepts(&self, labels: &Labels) -> bool {
        self.matches(labels.get(&self.label).unwrap_or(""))
    }
}

/// Compiles a pattern that must match a whole value.
pub(crate) fn anchored(pattern: &str) -> Result<Regex, String> {
    Regex::new(&format!("^(?s:{pattern})$"))
        .map_err(|e| format!("invalid regular expression {pattern:?}: {e}"))
}
