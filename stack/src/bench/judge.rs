//! Objectives that each request is judged by, and conditions that a whole run must meet.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use server::cli::Span;

use super::record::Record;
use super::tally::{Tally, Times};

/// What an answer must not exceed; nothing where not set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Objectives {
    /// From the planned arrival to the first token.
    pub(crate) ttft: Option<Duration>,
    /// Mean time per token after the first.
    pub(crate) itl: Option<Duration>,
    /// From the planned arrival to the end.
    pub(crate) e2e: Option<Duration>,
}

impl Objectives {
    /// Which of ttft, itl, e2e a complete answer missed. What was not measured (of answers that
    /// are not streamed, or too short) is not missed.
    pub(crate) fn missed(&self, record: &Record) -> [bool; 3] {
        let over = |time: Option<Duration>, limit: Option<Duration>| {
            time.zip(limit).is_some_and(|(time, limit)| time > limit)
        };
        [
            over(record.ttft(), self.ttft),
            over(record.tpot(), self.itl),
            over(Some(record.e2e()), self.e2e),
        ]
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl FromStr for Objectives {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut objectives = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, limit) = part.split_once('=').ok_or_else(|| format!("{part:?} has no ="))?;
            let slot = match name.trim() {
                "ttft" => &mut objectives.ttft,
                "itl" => &mut objectives.itl,
                "e2e" => &mut objectives.e2e,
                other => return Err(format!("no objective {other:?}; there are ttft, itl, e2e")),
            };
            *slot = Some(limit.trim().parse::<Span>()?.0);
        }
        if objectives.is_empty() {
            return Err("name at least one: ttft=2s,itl=100ms,e2e=30s".to_owned());
        }
        Ok(objectives)
    }
}

impl fmt::Display for Objectives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [("ttft", self.ttft), ("itl", self.itl), ("e2e", self.e2e)];
        let mut separator = "";
        for (name, limit) in parts {
            if let Some(limit) = limit {
                write!(f, "{separator}{name} <= {}", Span(limit))?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

/// A condition on a run, such as `goodput>=0.95` or `ttft_p99<=2s`.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    text: String,
    value: Value,
    at_least: bool,
    limit: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Value {
    Goodput,
    Refused,
    Errors,
    RequestsPerSecond,
    TokensPerSecond,
    Differences,
    /// In seconds.
    Time(Timed, f64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Timed {
    Ttft,
    Itl,
    Tpot,
    E2e,
    Lag,
}

impl Value {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "goodput" => Self::Goodput,
            "refused" => Self::Refused,
            "errors" => Self::Errors,
            "requests_per_second" => Self::RequestsPerSecond,
            "tokens_per_second" => Self::TokensPerSecond,
            "differences" => Self::Differences,
            _ => {
                let (time, quantile) = name.rsplit_once('_')?;
                let time = match time {
                    "ttft" => Timed::Ttft,
                    "itl" => Timed::Itl,
                    "tpot" => Timed::Tpot,
                    "e2e" => Timed::E2e,
                    "lag" => Timed::Lag,
                    _ => return None,
                };
                let quantile = match quantile {
                    "p50" => 0.5,
                    "p90" => 0.9,
                    "p95" => 0.95,
                    "p99" => 0.99,
                    "max" => 1.0,
                    _ => return None,
                };
                Self::Time(time, quantile)
            }
        })
    }

    /// The value in a run; `None` where it was not measured.
    fn of(self, tally: &Tally, differences: Option<usize>) -> Option<f64> {
        match self {
            Self::Goodput => (tally.judged() > 0).then(|| tally.goodput()),
            Self::Refused => (tally.offered > 0).then(|| tally.refused_share()),
            Self::Errors => (tally.offered > 0).then(|| tally.failed_share()),
            Self::RequestsPerSecond => Some(tally.per_second(tally.completed)),
            Self::TokensPerSecond => Some(tally.per_second(tally.output_tokens)),
            Self::Differences => differences.map(|count| count as f64),
            Self::Time(time, quantile) => {
                let times: &Times = match time {
                    Timed::Ttft => &tally.ttft,
                    Timed::Itl => &tally.itl,
                    Timed::Tpot => &tally.tpot,
                    Timed::E2e => &tally.e2e,
                    Timed::Lag => &tally.lag,
                };
                (times.count() > 0).then(|| times.quantile(quantile).as_secs_f64())
            }
        }
    }
}

impl Condition {
    /// Says how a run fails the condition; `None` where it meets it.
    ///
    /// `differences` counts the counters that do not agree with the server's; `None` where the
    /// server has none. What was not measured is not met: silence proves nothing.
    pub(crate) fn unmet(&self, tally: &Tally, differences: Option<usize>) -> Option<String> {
        let Some(found) = self.value.of(tally, differences) else {
            return Some(format!("{}: nothing was measured", self.text));
        };
        let met = if self.at_least { found >= self.limit } else { found <= self.limit };
        let found = match self.value {
            Value::Time(..) => format!("{:.1} ms", found * 1e3),
            Value::Goodput
            | Value::Refused
            | Value::Errors
            | Value::RequestsPerSecond
            | Value::TokensPerSecond
            | Value::Differences => format!("{found:.4}"),
        };
        (!met).then(|| format!("{}: it is {found}", self.text))
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("{text:?} is no condition; write goodput>=0.95 or ttft_p99<=2s");
        let (name, limit, at_least) = match (text.split_once(">="), text.split_once("<=")) {
            (Some((name, limit)), _) => (name, limit, true),
            (None, Some((name, limit))) => (name, limit, false),
            (None, None) => return Err(form()),
        };
        let value = Value::parse(name.trim()).ok_or_else(|| {
            format!(
                "no value {:?}; there are goodput, refused, errors, requests_per_second, \
                 tokens_per_second, differences, and ttft, itl, tpot, e2e, lag with _p50, _p90, \
                 _p95, _p99, _max",
                name.trim()
            )
        })?;
        let limit = limit.trim();
        let limit = match value {
            Value::Time(..) => limit.parse::<Span>()?.0.as_secs_f64(),
            Value::Goodput
            | Value::Refused
            | Value::Errors
            | Value::RequestsPerSecond
            | Value::TokensPerSecond
            | Value::Differences => {
                limit.parse().ok().filter(|limit: &f64| limit.is_finite()).ok_or_else(form)?
            }
        };
        Ok(Self { text: text.to_owned(), value, at_least, limit })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tally::tests::{complete, refused};

    #[test]
    fn objectives_are_read_and_told() {
        let all: Objectives = "ttft=2s, itl=100ms,e2e=30s".parse().expect("valid");
        assert_eq!(all.to_string(), "ttft <= 2s, itl <= 100ms, e2e <= 30s");
        for (text, reason) in [
            ("ttft=2", "needs a unit"),
            ("tbt=2s", "there are"),
            ("ttft", "no ="),
            ("", "at least"),
        ] {
            let error = text.parse::<Objectives>().expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn an_answer_is_judged_from_its_planned_arrival() {
        let record = complete(1_000);
        let missed = |text: &str| text.parse::<Objectives>().expect(text).missed(&record);
        assert_eq!(missed("ttft=100ms,itl=10ms,e2e=150ms"), [false; 3]);
        assert_eq!(missed("ttft=99ms,itl=9ms,e2e=149ms"), [true; 3]);
        let whole = Record { first: None, last: None, stream: false, ..record.clone() };
        let objectives: Objectives = "ttft=1ms,itl=1ms".parse().expect("valid");
        assert_eq!(objectives.missed(&whole), [false; 3], "not measured");
    }

    #[test]
    fn conditions_hold_or_say_what_was_found() {
        let mut tally = Tally::default();
        for planned in 0..3 {
            tally.add(&complete(planned));
        }
        tally.add(&refused(0, 1));
        let unmet = |text: &str, differences| {
            text.parse::<Condition>().expect(text).unmet(&tally, differences)
        };
        for met in ["goodput>=0.75", "ttft_p99<=101ms", "errors<=0", "refused <= 0.25"] {
            assert_eq!(unmet(met, None), None, "{met}");
        }
        let found = unmet("goodput>=0.9", None).expect("three of four");
        assert_eq!(found, "goodput>=0.9: it is 0.7500");
        assert!(unmet("ttft_p50<=5ms", None).expect("100 ms").ends_with("it is 100.0 ms"));
        assert!(unmet("differences<=0", None).expect("no counters").contains("nothing"));
        assert_eq!(unmet("differences<=0", Some(0)), None);
        assert!(unmet("differences<=0", Some(2)).is_some());
        assert!("ttft_p98<=1s".parse::<Condition>().expect_err("p98").contains("_p99"));
        assert!("goodput=1".parse::<Condition>().is_err());
        assert!("goodput>=NaN".parse::<Condition>().is_err());
        assert!("ttft_p99<=2".parse::<Condition>().expect_err("bare").contains("unit"));
    }
}
