//! Which of the series that an expression selects exist, and if not, what is in the way: the name,
//! or one of the conditions.

use std::collections::BTreeMap;

use crate::client::{ClientError, Prometheus, duration};
use crate::selectors::{Matcher, Selector};

/// Values of a label that a message names.
const SHOWN: usize = 5;

/// Whether series that a selector asks for exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence {
    /// So many do.
    There(u64),
    /// No series has the name.
    NoName,
    /// Some have the name, but none meets the conditions.
    NoMatch(Vec<Excluding>),
}

/// A condition that excludes every series of the name, by itself or together with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excluding {
    /// The condition.
    pub matcher: Matcher,
    /// Values that the label has on series of the name; empty where it is on none.
    pub values: Vec<String>,
}

impl Presence {
    /// Whether there are any.
    #[must_use]
    pub const fn is_there(&self) -> bool {
        matches!(self, Self::There(_))
    }

    /// What is missing, as a sentence without its end; none where nothing is.
    #[must_use]
    pub fn missing(&self, selector: &Selector) -> Option<String> {
        match self {
            Self::There(_) => None,
            Self::NoName => Some(format!("there is no {}", shown_name(selector))),
            Self::NoMatch(excluding) => {
                let one = |found: &Excluding| {
                    let label = &found.matcher.label;
                    let has = match &found.values[..] {
                        [] => format!("it has no label {label}"),
                        values => format!("{label} is {}", listed(values)),
                    };
                    format!("{} ({has})", found.matcher)
                };
                let conditions: Vec<String> = excluding.iter().map(one).collect();
                let name = shown_name(selector);
                Some(format!("there is {name}, but none with {}", conditions.join(" and ")))
            }
        }
    }
}

fn shown_name(selector: &Selector) -> String {
    if selector.name.is_empty() { selector.to_string() } else { selector.name.clone() }
}

/// The first few values.
#[must_use]
pub fn listed(values: &[String]) -> String {
    let shown = values.iter().take(SHOWN).map(|value| format!("{value:?}"));
    let more = if values.len() > SHOWN { ", ..." } else { "" };
    format!("{}{more}", shown.collect::<Vec<_>>().join(", "))
}

/// Looks series up, each selector once.
#[derive(Debug)]
pub struct Presences<'a> {
    prometheus: &'a Prometheus,
    /// Unix seconds at which is looked.
    at: f64,
    known: BTreeMap<(String, u64), Presence>,
}

impl<'a> Presences<'a> {
    /// Looks at `at` (Unix seconds) and before.
    #[must_use]
    pub fn new(prometheus: &'a Prometheus, at: f64) -> Self {
        Self { prometheus, at, known: BTreeMap::new() }
    }

    /// Whether there are series in the last `window` seconds.
    ///
    /// # Errors
    /// The server does not answer or refuses the selector.
    pub async fn of(&mut self, selector: &Selector, window: f64) -> Result<Presence, ClientError> {
        let key = (selector.to_string(), window.to_bits());
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let presence = self.look(selector, window).await?;
        self.known.insert(key, presence.clone());
        Ok(presence)
    }

    async fn look(&self, selector: &Selector, window: f64) -> Result<Presence, ClientError> {
        let count = self.count(selector, window).await?;
        if count > 0 {
            return Ok(Presence::There(count));
        }
        let name = Selector { name: selector.name.clone(), matchers: Vec::new() };
        if selector.name.is_empty() || self.count(&name, window).await? == 0 {
            return Ok(Presence::NoName);
        }
        let conditions = || selector.matchers.iter().filter(|one| !takes_all(one));
        let mut alone = Vec::new();
        for matcher in conditions() {
            let one = Selector { matchers: vec![matcher.clone()], ..name.clone() };
            if self.count(&one, window).await? == 0 {
                alone.push(matcher);
            }
        }
        // Each is met by some series, but no series meets them all.
        let excluding = if alone.is_empty() { conditions().collect() } else { alone };
        let mut found = Vec::new();
        for matcher in excluding {
            let (start, matchers) = (self.at - window, [selector.name.as_str()]);
            let values = self.prometheus.label_values(&matcher.label, &matchers, start, self.at);
            found.push(Excluding { matcher: matcher.clone(), values: values.await? });
        }
        Ok(Presence::NoMatch(found))
    }

    async fn count(&self, selector: &Selector, window: f64) -> Result<u64, ClientError> {
        let window = duration::write(window);
        let expr = format!("count(last_over_time({selector}[{window}]))");
        let samples = self.prometheus.query(&expr, Some(self.at)).await?;
        Ok(samples.first().map_or(0, |sample| sample.value as u64))
    }
}

/// Whether the condition holds of every series.
fn takes_all(matcher: &Matcher) -> bool {
    matcher.op == "=~" && matches!(matcher.value.get(1..matcher.value.len() - 1), Some(".*"))
}
