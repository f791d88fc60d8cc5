//! Sums over requests: counts, percentiles, goodput.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::compare::Ours;
use super::judge::Objectives;
use super::record::{Ended, Failure, Record, Refusal};

/// Longest time that is told apart from longer ones.
const TIME_MAX: Duration = Duration::from_secs(3_600);
/// Decimal digits of a percentile that are exact.
const DIGITS: u8 = 3;
/// Different refusals or errors that are told apart; the rest is counted together.
const KINDS_MAX: usize = 32;
const OTHER: &str = "other kinds";

/// Percentiles of times, to a thousandth of their value; the largest is exact.
#[derive(Debug, Clone)]
pub(crate) struct Times {
    micros: Histogram<u32>,
    sum: Duration,
    max: Duration,
}

impl Default for Times {
    fn default() -> Self {
        let micros = Histogram::new_with_bounds(1, TIME_MAX.as_micros() as u64, DIGITS)
            .expect("the bounds and digits are constants that fit each other");
        Self { micros, sum: Duration::ZERO, max: Duration::ZERO }
    }
}

impl Times {
    pub(crate) fn record(&mut self, time: Duration) {
        self.micros.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        self.sum += time;
        self.max = self.max.max(time);
    }

    pub(crate) fn count(&self) -> u64 {
        self.micros.len()
    }

    pub(crate) fn max(&self) -> Duration {
        self.max
    }

    pub(crate) fn mean(&self) -> Duration {
        if self.count() == 0 { Duration::ZERO } else { self.sum.div_f64(self.count() as f64) }
    }

    /// The smallest recorded time that `quantile` of all do not exceed; zero without any.
    pub(crate) fn quantile(&self, quantile: f64) -> Duration {
        let micros = Duration::from_micros(self.micros.value_at_quantile(quantile));
        if quantile >= 1.0 { self.max } else { micros.min(self.max) }
    }
}

/// Refusals of one status and reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) count: u64,
    /// Shortest and longest Retry-After, in seconds.
    pub(crate) retry_after: Option<(u64, u64)>,
}

/// Errors of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Errors {
    pub(crate) count: u64,
    /// What the first of them said.
    pub(crate) example: String,
}

/// Everything that is told about a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(crate) objectives: Objectives,
    /// Requests planned before this are not measured.
    pub(crate) warmup: Duration,
    /// Not measured.
    pub(crate) warmed: u64,
    pub(crate) offered: u64,
    pub(crate) completed: u64,
    pub(crate) left: u64,
    pub(crate) gave_up: u64,
    /// Requests that were refused in the end.
    pub(crate) refused: u64,
    pub(crate) failed: u64,
    pub(crate) unfinished: u64,
    /// Attempts beyond the first.
    pub(crate) retries: u64,
    /// Each attempt that was refused, by status and reason.
    pub(crate) refusals: BTreeMap<(u16, String), Refused>,
    pub(crate) errors: BTreeMap<String, Errors>,
    pub(crate) good: u64,
    /// Complete answers that missed an objective: ttft, itl, e2e.
    pub(crate) missed: [u64; 3],
    pub(crate) ttft: Times,
    pub(crate) itl: Times,
    pub(crate) tpot: Times,
    pub(crate) e2e: Times,
    pub(crate) lag: Times,
    /// From planned arrival to a refusal.
    pub(crate) refusal: Times,
    pub(crate) prompt_tokens: u64,
    pub(crate) output_tokens: u64,
    /// Complete answers whose usage was told, and of those the ones that tell cached tokens.
    pub(crate) with_usage: u64,
    pub(crate) with_cached: u64,
    pub(crate) cached_tokens: u64,
    /// Prompts whose length was planned and told: how many, tokens meant, tokens told.
    pub(crate) lengths: (u64, u64, u64),
    /// Events with text; fewer than tokens where events hold several.
    pub(crate) events: u64,
    /// The last end of a measured request.
    pub(crate) end: Duration,
    /// All requests, warm-up included, for the comparison with the server.
    pub(crate) ours: Ours,
}

impl Tally {
    pub(crate) fn new(objectives: Objectives, warmup: Duration) -> Self {
        Self { objectives, warmup, ..Self::default() }
    }

    /// From the end of the warm-up to the end of the last measured request.
    pub(crate) fn measured(&self) -> Duration {
        self.end.saturating_sub(self.warmup)
    }

    /// Something per second of the measured time; 0 where there is none.
    pub(crate) fn per_second(&self, amount: u64) -> f64 {
        let seconds = self.measured().as_secs_f64();
        if seconds > 0.0 { amount as f64 / seconds } else { 0.0 }
    }

    /// Requests that are judged: all but those whose client left, or the bench stopped.
    pub(crate) fn judged(&self) -> u64 {
        self.offered - self.left - self.unfinished
    }

    /// Share of judged requests that were answered within all objectives; 1 without any.
    pub(crate) fn goodput(&self) -> f64 {
        share(self.good, self.judged(), 1.0)
    }

    pub(crate) fn refused_share(&self) -> f64 {
        share(self.refused, self.offered, 0.0)
    }

    pub(crate) fn failed_share(&self) -> f64 {
        share(self.failed, self.offered, 0.0)
    }

    /// Adds a request that is over.
    pub(crate) fn add(&mut self, record: &Record) {
        self.ours.add(record);
        if record.planned < self.warmup {
            self.warmed += 1;
            return;
        }
        self.offered += 1;
        self.end = self.end.max(record.end);
        self.lag.record(record.lag());
        self.add_refusals(record);
        self.add_times(record);
        match &record.ended {
            Ended::Complete => self.add_complete(record),
            Ended::Left => self.left += 1,
            Ended::GaveUp => self.gave_up += 1,
            Ended::Refused(_) => {
                self.refused += 1;
                self.refusal.record(record.e2e());
            }
            Ended::Failed(failure) => {
                self.failed += 1;
                self.add_error(failure);
            }
            Ended::Unfinished => self.unfinished += 1,
        }
    }

    fn add_refusals(&mut self, record: &Record) {
        let last_was_refused = matches!(record.ended, Ended::Refused(_));
        let refused = record.refusals.len() as u64;
        self.retries += refused - u64::from(last_was_refused);
        for Refusal { status, reason, retry_after } in &record.refusals {
            let mut key = (*status, reason.clone());
            if self.refusals.len() >= KINDS_MAX && !self.refusals.contains_key(&key) {
                key.1 = OTHER.to_owned();
            }
            let entry = self.refusals.entry(key).or_default();
            entry.count += 1;
            if let Some(seconds) = *retry_after {
                let (low, high) = entry.retry_after.unwrap_or((seconds, seconds));
                entry.retry_after = Some((low.min(seconds), high.max(seconds)));
            }
        }
    }

    fn add_error(&mut self, failure: &Failure) {
        let mut kind = failure.kind();
        if self.errors.len() >= KINDS_MAX && !self.errors.contains_key(&kind) {
            kind = OTHER.to_owned();
        }
        let entry = self.errors.entry(kind).or_default();
        entry.count += 1;
        if entry.example.is_empty() {
            entry.example = failure.detail().to_owned();
        }
    }

    /// What was seen of answers counts, complete or not: a gap happened even if nobody waited on.
    fn add_times(&mut self, record: &Record) {
        if let Some(ttft) = record.ttft() {
            self.ttft.record(ttft);
        }
        for gap in &record.gaps {
            self.itl.record(Duration::from_micros(u64::from(*gap)));
        }
        self.events += record.events;
    }

    fn add_complete(&mut self, record: &Record) {
        self.completed += 1;
        self.e2e.record(record.e2e());
        if let Some(tpot) = record.tpot() {
            self.tpot.record(tpot);
        }
        self.output_tokens += record.output_tokens();
        if let Some(usage) = record.usage {
            self.with_usage += 1;
            self.prompt_tokens += usage.prompt_tokens;
            if let Some(cached) = usage.cached_tokens() {
                self.with_cached += 1;
                self.cached_tokens += cached;
            }
            if let Some(meant) = record.prompt_tokens {
                let (count, meant_sum, told) = self.lengths;
                self.lengths = (count + 1, meant_sum + meant, told + usage.prompt_tokens);
            }
        }
        let misses = self.objectives.missed(record);
        for (count, missed) in self.missed.iter_mut().zip(misses) {
            *count += u64::from(missed);
        }
        self.good += u64::from(misses == [false; 3]);
    }
}

fn share(part: u64, whole: u64, without: f64) -> f64 {
    if whole == 0 { without } else { part as f64 / whole as f64 }
}

#[cfg(test)]
pub(crate) mod tests;
