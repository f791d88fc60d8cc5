//! Parameters of a request: the query string and a form body together.

use std::time::Duration;

use crate::promql;

/// Decoded name-value pairs in order.
#[derive(Debug, Default)]
pub(crate) struct Params(Vec<(String, String)>);

impl From<Vec<(String, String)>> for Params {
    fn from(pairs: Vec<(String, String)>) -> Self {
        Self(pairs)
    }
}

impl Params {
    /// Decodes both sources; a form body comes first, as in Prometheus.
    pub(crate) fn parse(query: Option<&str>, body: &[u8]) -> Result<Self, String> {
        let body = std::str::from_utf8(body).map_err(|_| "form is not UTF-8".to_owned())?;
        let mut pairs = Vec::new();
        for part in body.split('&').chain(query.unwrap_or("").split('&')) {
            if part.is_empty() {
                continue;
            }
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            pairs.push((decode(name)?, decode(value)?));
        }
        Ok(Self(pairs))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next().filter(|value| !value.is_empty())
    }

    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// A time in Unix milliseconds.
    pub(crate) fn time(&self, name: &str) -> Result<Option<i64>, String> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let wrong =
            || format!("invalid parameter {name:?}: cannot parse {text:?} to a valid timestamp");
        let seconds = match text.parse::<f64>() {
            Ok(seconds) => seconds,
            Err(_) => return rfc3339(text).map(Some).ok_or_else(wrong),
        };
        milliseconds(seconds).map(Some).ok_or_else(wrong)
    }

    /// A duration in milliseconds: seconds, or text such as `15s`.
    fn length(&self, name: &str) -> Result<Option<i64>, String> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let parsed = match text.parse::<f64>() {
            Ok(seconds) => milliseconds(seconds),
            Err(_) => promql::parse_duration(text),
        };
        let wrong =
            || format!("invalid parameter {name:?}: cannot parse {text:?} to a valid duration");
        parsed.map(Some).ok_or_else(wrong)
    }

    /// How long the client waits at most.
    pub(crate) fn timeout(&self) -> Result<Option<Duration>, String> {
        let ms = self.length("timeout")?;
        Ok(ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0))))
    }

    /// How far back an instant selector looks, in milliseconds.
    pub(crate) fn lookback(&self) -> Result<Option<i64>, String> {
        let ms = self.length("lookback_delta")?;
        match ms {
            Some(..=0) => Err("invalid parameter \"lookback_delta\": not above zero".to_owned()),
            ms => Ok(ms),
        }
    }

    /// A positive duration in milliseconds.
    pub(crate) fn duration(&self, name: &str) -> Result<i64, String> {
        let ms = match self.length(name)? {
            Some(ms) => ms,
            None => {
                return Err(format!(
                    "invalid parameter {name:?}: cannot parse \"\" to a valid duration"
                ));
            }
        };
        if ms <= 0 {
            return Err(format!(
                "invalid parameter {name:?}: zero or negative query resolution step widths are \
                 not accepted. Try a positive integer"
            ));
        }
        Ok(ms)
    }

    /// A switch, off when absent; the words are those of Go's `ParseBool`.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, String> {
        match self.get(name) {
            None | Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(false),
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(true),
            Some(text) => {
                Err(format!("invalid parameter {name:?}: cannot parse {text:?} to a valid boolean"))
            }
        }
    }

    pub(crate) fn limit(&self) -> Result<usize, String> {
        match self.get("limit").map(str::parse::<usize>) {
            None | Some(Ok(0)) => Ok(usize::MAX),
            Some(Ok(limit)) => Ok(limit),
            Some(Err(_)) => Err("invalid parameter \"limit\": not a number".to_owned()),
        }
    }
}

/// Seconds to milliseconds; `None` far outside the range of dates.
pub(super) fn milliseconds(seconds: f64) -> Option<i64> {
    let ms = (seconds * 1000.0).round();
    (ms.abs() < 1e15).then_some(ms as i64)
}

fn decode(text: &str) -> Result<String, String> {
    let wrong = || format!("invalid URL escape in {text:?}");
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'+' => out.push(b' '),
            b'%' => {
                let digits = text.get(at + 1..at + 3).ok_or_else(wrong)?;
                out.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
                at += 2;
            }
            byte => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8(out).map_err(|_| wrong())
}

/// `2026-01-31T10:00:00.5Z` or with an offset, in Unix milliseconds.
fn rfc3339(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if !marks.iter().all(|(at, mark)| text.as_bytes().get(*at) == Some(mark)) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let limits =
        [(month, 1..=12), (day, 1..=31), (hour, 0..=23), (minute, 0..=59), (second, 0..=59)];
    if !limits.iter().all(|(value, valid)| valid.contains(value)) {
        return None;
    }
    let zone_at = 19 + text.get(19..)?.find(['Z', '+', '-'])?;
    let fraction: f64 = match text.get(19..zone_at)? {
        "" => 0.0,
        digits => format!("0{digits}").parse().ok()?,
    };
    let offset_minutes = match text.get(zone_at..)? {
        "Z" => 0,
        zone if zone.len() == 6 && zone.get(3..4) == Some(":") => {
            let hours = zone.get(1..3)?.parse::<i64>().ok()?;
            let minutes = hours * 60 + zone.get(4..6)?.parse::<i64>().ok()?;
            if zone.starts_with('-') { -minutes } else { minutes }
        }
        _ => return None,
    };
    let minutes = days_from_civil(year, month, day) * 1440 + hour * 60 + minute - offset_minutes;
    Some((minutes * 60 + second) * 1000 + (fraction * 1000.0).round() as i64)
}

/// Days from 1970-01-01, by counting years from March.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year - era * 400;
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_and_queries_are_decoded() {
        let params =
            Params::parse(Some("query=a%2Bb+c&match[]=x&match%5B%5D=y"), b"time=3").expect("valid");
        assert_eq!(params.get("query"), Some("a+b c"));
        assert_eq!(params.all("match[]").collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!(params.time("time"), Ok(Some(3000)));
        assert!(Params::parse(Some("a=%zz"), b"").is_err());
        assert!(Params::parse(Some("a=%e4"), b"").is_err(), "not UTF-8");
    }

    #[test]
    fn times_and_durations_have_two_forms() {
        let params = Params::parse(
            Some("a=1500.5&b=2026-01-31T10:00:00.25Z&c=2026-01-31T12:00:00%2B02:00&d=x"),
            b"e=1m&f=0.5&g=0",
        )
        .expect("valid");
        assert_eq!(params.time("a"), Ok(Some(1_500_500)));
        assert_eq!(params.time("b"), Ok(Some(1_769_853_600_250)));
        assert_eq!(params.time("c"), Ok(Some(1_769_853_600_000)));
        assert!(params.time("d").is_err());
        for text in ["2026-13-01T10:00:00Z", "2026-01-31T10:00:00+aé:0", "2026-01-31T25:00:00Z"] {
            assert_eq!(rfc3339(text), None, "{text}");
        }
        assert_eq!(params.time("absent"), Ok(None));
        assert_eq!(params.duration("e"), Ok(60_000));
        assert_eq!(params.duration("f"), Ok(500));
        assert!(params.duration("g").is_err());
    }
}
