//! The bench's own counts against the counters of the server, before and after a run.
//!
//! What the bench cannot know is a range: a client that left cannot tell whether the server had
//! finished by then. A counter outside of its range means that somebody else used the server, that
//! it restarted, or that one of the two counts wrong.

use std::collections::{BTreeMap, BTreeSet};

use metric_catalog::labels::{Outcome, PromptSource, RejectReason};
use metric_catalog::server as catalog;

use super::record::{Ended, Failure, Record, Refusal};
use crate::exposition::{self, BadPage};

/// Refusals that come after a request was admitted.
const AFTER_ADMISSION: [&str; 2] =
    [RejectReason::AFTER_ADMISSION[0].as_str(), RejectReason::AFTER_ADMISSION[1].as_str()];
/// Outcomes of requests that ended as they should.
const REGULAR: [&str; 3] =
    [Outcome::Stop.as_str(), Outcome::Length.as_str(), Outcome::ToolCall.as_str()];
/// The reason that faulty requests are counted under.
const INVALID: &str = RejectReason::Invalid.as_str();

/// The counters of one or several pages, by name and by the value of the label that matters.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Counters {
    sums: BTreeMap<(&'static str, String), f64>,
    /// Requests that wait or run now.
    pub(crate) busy: f64,
}

/// The sample of each counter, and the label whose values are kept apart.
fn wanted() -> [(&'static str, &'static str, &'static str); 8] {
    [
        (catalog::REQUESTS_ADMITTED.name(), "", ""),
        (catalog::REQUESTS_REJECTED.name(), "", "reason"),
        (catalog::REQUESTS_FINISHED.name(), "", "outcome"),
        (catalog::REQUESTS_ABORTED.name(), "", "initiator"),
        (catalog::REQUEST_PROMPT_TOKENS.name(), "_sum", ""),
        (catalog::PROMPT_TOKENS.name(), "", "source"),
        (catalog::GENERATION_TOKENS.name(), "", ""),
        (catalog::TIME_TO_FIRST_TOKEN.name(), "_count", ""),
    ]
}

impl Counters {
    /// Reads pages; `None` where none of them is of a server with these counters.
    pub(crate) fn read(pages: &[String]) -> Result<Option<Self>, BadPage> {
        let mut counters = Self::default();
        for text in pages {
            for sample in exposition::parse(text)?.samples {
                counters.add(sample.series, sample.value);
            }
        }
        let known =
            wanted().iter().all(|(name, ..)| counters.sums.keys().any(|(known, _)| known == name));
        Ok(known.then_some(counters))
    }

    fn add(&mut self, series: &str, value: f64) {
        let name = series.split('{').next().unwrap_or(series);
        let gauges = [catalog::QUEUE_REQUESTS.name(), catalog::RUNNING_REQUESTS.name()];
        if gauges.contains(&name) {
            self.busy += value;
            return;
        }
        let found = wanted().into_iter().find(|(metric, suffix, _)| {
            name.strip_prefix(metric).is_some_and(|rest| rest == *suffix)
        });
        let Some((metric, _, label)) = found else { return };
        let labels = exposition::series_labels(series).unwrap_or_default();
        let kept = labels.into_iter().find(|(name, _)| name == label).map(|(_, value)| value);
        *self.sums.entry((metric, kept.unwrap_or_default())).or_default() += value;
    }

    /// The sum over the label values that are wanted.
    fn sum(&self, name: &str, wanted: impl Fn(&str) -> bool) -> f64 {
        let of_name = self.sums.iter().filter(|((known, kept), _)| *known == name && wanted(kept));
        of_name.map(|(_, value)| value).sum()
    }

    fn kept<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let of_name = self.sums.keys().filter(move |(known, _)| *known == name);
        of_name.map(|(_, kept)| kept.as_str())
    }
}

/// What the bench is sure of, and what may have happened beyond it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ours {
    /// Attempts that were answered with any status.
    answered: u64,
    admitted: u64,
    /// Refusals by reason; `None` where the server gave none that counts.
    rejected: BTreeMap<String, u64>,
    completed: u64,
    /// Admitted, and over before they were complete: here, that is; the server may have finished.
    broken_off: u64,
    /// Attempts that may have reached the server or not.
    unknown: u64,
    first_tokens: u64,
    /// Admitted, but whether there was a first token is not known.
    perhaps_first: u64,
    prompt_tokens: u64,
    output_tokens: u64,
    cached_tokens: u64,
    /// Admitted requests whose tokens are not all known.
    untold: u64,
    /// Complete answers that do not tell what was cached.
    cached_untold: u64,
}

impl Ours {
    pub(crate) fn add(&mut self, record: &Record) {
        for refusal in &record.refusals {
            self.add_refusal(refusal);
        }
        match &record.ended {
            Ended::Refused(_) => {}
            Ended::Complete => {
                self.add_admitted(record);
                self.completed += 1;
            }
            Ended::Left | Ended::GaveUp | Ended::Unfinished => self.add_broken_off(record),
            Ended::Failed(failure) => match failure {
                Failure::Connect(_) => {}
                Failure::Status { status: 500.., .. } => self.unknown += 1,
                Failure::Status { .. } => {
                    self.answered += 1;
                    *self.rejected.entry(INVALID.to_owned()).or_default() += 1;
                }
                Failure::Broken(_)
                | Failure::Cut
                | Failure::Stream { .. }
                | Failure::NotUnderstood(_)
                | Failure::Timeout => self.add_broken_off(record),
            },
        }
    }

    fn add_refusal(&mut self, refusal: &Refusal) {
        // A 503 without a reason may come from anything in between; so may one while loading.
        let ours = [RejectReason::Draining, RejectReason::Unhealthy].map(RejectReason::as_str);
        let counted = refusal.status == 429 || ours.contains(&refusal.reason.as_str());
        if !counted {
            self.unknown += 1;
            return;
        }
        self.answered += 1;
        self.admitted += u64::from(AFTER_ADMISSION.contains(&refusal.reason.as_str()));
        *self.rejected.entry(refusal.reason.clone()).or_default() += 1;
    }

    fn add_broken_off(&mut self, record: &Record) {
        if record.status.is_none() {
            self.unknown += 1;
        } else {
            self.add_admitted(record);
            self.broken_off += 1;
        }
    }

    fn add_admitted(&mut self, record: &Record) {
        self.answered += 1;
        self.admitted += 1;
        let complete = record.ended == Ended::Complete;
        let any_token = record.events > 0 || (complete && record.output_tokens() > 0);
        self.first_tokens += u64::from(any_token);
        self.perhaps_first += u64::from(!any_token);
        self.output_tokens += record.output_tokens();
        match record.usage {
            Some(usage) if complete => {
                self.prompt_tokens += usage.prompt_tokens;
                match usage.cached_tokens() {
                    Some(cached) => self.cached_tokens += cached,
                    None => self.cached_untold += 1,
                }
            }
            Some(_) | None => self.untold += 1,
        }
    }

    fn refused(&self) -> u64 {
        self.rejected.values().sum()
    }
}

/// One number of both sides.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// What the bench counted: at least, and at most where that is known.
    pub(crate) low: u64,
    pub(crate) high: Option<u64>,
    /// What the server counted in the same time.
    pub(crate) server: f64,
}

impl Row {
    pub(crate) fn agrees(&self) -> bool {
        let high = self.high.map_or(f64::INFINITY, |high| high as f64);
        (self.low as f64..=high).contains(&self.server)
    }

    /// Why the two may differ; empty where they agree.
    pub(crate) fn explanation(&self) -> &'static str {
        if self.agrees() {
            ""
        } else if self.server < 0.0 {
            "the server restarted during the run"
        } else if self.server < self.low as f64 {
            "the server counts less: another instance answered, it restarted, or it lost count"
        } else {
            "the server counts more: other clients use it, or it counts twice"
        }
    }
}

/// Compares a run with what the server counted between two readings.
pub(crate) fn compare(ours: &Ours, before: &Counters, after: &Counters) -> Vec<Row> {
    let delta = |name: &str, wanted: &dyn Fn(&str) -> bool| {
        after.sum(name, wanted) - before.sum(name, wanted)
    };
    let all = |_: &str| true;
    let (admitted, rejected) =
        (catalog::REQUESTS_ADMITTED.name(), catalog::REQUESTS_REJECTED.name());
    let finished = catalog::REQUESTS_FINISHED.name();
    let row = |name: &str, low: u64, more: u64, server: f64| Row {
        name: name.to_owned(),
        low,
        high: Some(low + more),
        server,
    };
    let unknown = ours.unknown;
    let evicted: u64 = AFTER_ADMISSION.iter().filter_map(|reason| ours.rejected.get(*reason)).sum();
    let at_door = |reason: &str| !AFTER_ADMISSION.contains(&reason);
    let offered = delta(admitted, &all) + delta(rejected, &at_door);
    let mut rows = vec![
        row("offered", ours.answered, unknown, offered),
        row("admitted", ours.admitted, unknown, delta(admitted, &all)),
        row("rejected", ours.refused(), unknown, delta(rejected, &all)),
    ];
    let reasons: BTreeSet<&str> =
        ours.rejected.keys().map(String::as_str).chain(after.kept(rejected)).collect();
    for reason in reasons {
        let mine = ours.rejected.get(reason).copied().unwrap_or_default();
        let theirs = delta(rejected, &|kept: &str| kept == reason);
        if mine != 0 || theirs != 0.0 {
            rows.push(row(&format!("rejected: {reason}"), mine, unknown, theirs));
        }
    }
    let open = ours.broken_off + unknown;
    let regular = |outcome: &str| REGULAR.contains(&outcome);
    let left_engine = ours.admitted - evicted;
    rows.push(row("finished", left_engine, unknown, delta(finished, &all)));
    rows.push(row("complete", ours.completed, open, delta(finished, &regular)));
    let aborted = delta(catalog::REQUESTS_ABORTED.name(), &all);
    rows.push(row("aborted", 0, open, aborted));
    let untold = ours.untold + unknown;
    let tokens = |name: &str, low: u64, untold: u64, server: f64| Row {
        name: name.to_owned(),
        low,
        high: (untold == 0).then_some(low),
        server,
    };
    let uncached = PromptSource::Computed.as_str();
    let cached = delta(catalog::PROMPT_TOKENS.name(), &|source| source != uncached);
    let charged = delta(catalog::REQUEST_PROMPT_TOKENS.name(), &all);
    rows.push(tokens("prompt tokens", ours.prompt_tokens, untold, charged));
    let cached_untold = untold + ours.cached_untold;
    rows.push(tokens("cached prompt tokens", ours.cached_tokens, cached_untold, cached));
    let generated = delta(catalog::GENERATION_TOKENS.name(), &all);
    rows.push(tokens("generated tokens", ours.output_tokens, untold, generated));
    let firsts = delta(catalog::TIME_TO_FIRST_TOKEN.name(), &all);
    let more = ours.perhaps_first + unknown;
    rows.push(row("first tokens", ours.first_tokens, more, firsts));
    rows
}

#[cfg(test)]
mod tests;
