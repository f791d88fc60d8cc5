//! JSON as Prometheus writes it: values are strings, times are numbers of seconds.

use std::fmt::Write;

use crate::promql::{Answer, Point, RangeSeries};
use crate::store::Labels;

/// A JSON string.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A sample value in Prometheus' notation.
#[cfg(test)]
pub(crate) fn value(value: f64) -> String {
    let mut out = String::new();
    push_value(&mut out, value);
    out
}

fn push_value(out: &mut String, value: f64) {
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    } else {
        write!(out, "{value}").expect("writing to a string does not fail");
    }
}

/// Milliseconds as seconds, without a fraction where there is none.
pub(super) fn seconds(ms: i64) -> String {
    (ms as f64 / 1000.0).to_string()
}

fn push_point(out: &mut String, (time, sample): Point) {
    write!(out, "[{},\"", time as f64 / 1000.0).expect("writing to a string does not fail");
    push_value(out, sample);
    out.push_str("\"]");
}

fn point(sample: Point) -> String {
    let mut out = String::new();
    push_point(&mut out, sample);
    out
}

pub(super) fn labels(labels: &Labels) -> String {
    let pairs = labels.iter().map(|(name, value)| format!("{}:{}", quoted(name), quoted(value)));
    format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
}

pub(crate) fn matrix(series: &[RangeSeries]) -> String {
    let points: usize = series.iter().map(|one| one.points.len()).sum();
    let mut out = String::with_capacity(64 + series.len() * 128 + points * 24);
    out.push_str(r#"{"resultType":"matrix","result":["#);
    for (index, one) in series.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        write!(out, r#"{comma}{{"metric":{},"values":["#, labels(&one.labels))
            .expect("writing to a string does not fail");
        for (index, point) in one.points.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            push_point(&mut out, *point);
        }
        out.push_str("]}");
    }
    out.push_str("]}");
    out
}

pub(crate) fn answer(answer: &Answer, time_ms: i64) -> String {
    match answer {
        Answer::Scalar(value) => {
            format!(r#"{{"resultType":"scalar","result":{}}}"#, point((time_ms, *value)))
        }
        Answer::String(text) => {
            let time = seconds(time_ms);
            format!(r#"{{"resultType":"string","result":[{time},{}]}}"#, quoted(text))
        }
        Answer::Vector(series) => {
            let one = |(set, value): &(Labels, f64)| {
                let sample = point((time_ms, *value));
                format!(r#"{{"metric":{},"value":{sample}}}"#, labels(set))
            };
            let all: Vec<String> = series.iter().map(one).collect();
            format!(r#"{{"resultType":"vector","result":[{}]}}"#, all.join(","))
        }
        Answer::Matrix(series) => matrix(series),
    }
}

/// A JSON array of strings.
pub(super) fn strings<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    let items: Vec<String> = items.into_iter().map(quoted).collect();
    format!("[{}]", items.join(","))
}

/// Unix milliseconds as RFC 3339 in UTC, the fraction without zeros at its end.
pub(crate) fn rfc3339(ms: i64) -> String {
    let (seconds, fraction) = (ms.div_euclid(1000), ms.rem_euclid(1000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // The civil calendar, with years that begin in March.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let part = (5 * day_of_year + 2) / 153;
    let (day, month) = (day_of_year - (153 * part + 2) / 5 + 1, (part + 2) % 12 + 1);
    let year = year + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let fraction = match fraction {
        0 => String::new(),
        ms => format!(".{ms:03}").trim_end_matches('0').to_owned(),
    };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}
