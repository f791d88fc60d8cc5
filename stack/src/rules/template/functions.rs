//! The functions that templates may call.

use std::cmp::Ordering;
use std::fmt;

use regex::Regex;

use super::{Value, go};
use crate::promapi::rfc3339;
use crate::promql::parse_duration;

type Answer = Result<Value, String>;

/// A function with the number of arguments that it takes.
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) least: usize,
    pub(super) most: usize,
    pub(super) call: fn(&[Value]) -> Answer,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

const ANY: usize = usize::MAX;

static FUNCTIONS: &[Function] = &[
    function("humanize", 1, 1, |a| metric(number(a)?, |v| scaled(v, 1000.0, true))),
    function("humanize1024", 1, 1, |a| metric(number(a)?, |v| scaled(v, 1024.0, false))),
    function("humanizeDuration", 1, 1, |a| metric(number(a)?, duration)),
    function("humanizePercentage", 1, 1, |a| {
        text(format!("{}%", go::general(number(a)? * 100.0, Some(4))))
    }),
    function("humanizeTimestamp", 1, 1, |a| timestamp(number(a)?)),
    function("parseDuration", 1, 1, |a| {
        let ms = parse_duration(a[0].text()?);
        let wrong = || format!("not a valid duration string: {:?}", a[0].to_text());
        Ok(Value::Float(ms.ok_or_else(wrong)? as f64 / 1000.0))
    }),
    function("printf", 1, ANY, |a| text(go::printf(a[0].text()?, &a[1..])?)),
    function("print", 0, ANY, |a| text(print(a))),
    function("println", 0, ANY, |a| {
        let words: Vec<String> = a.iter().map(Value::to_text).collect();
        text(words.join(" ") + "\n")
    }),
    function("title", 1, 1, |a| text(title(a[0].text()?))),
    function("toUpper", 1, 1, |a| text(a[0].text()?.to_uppercase())),
    function("toLower", 1, 1, |a| text(a[0].text()?.to_lowercase())),
    function("stripPort", 1, 1, |a| text(strip_port(a[0].text()?).to_owned())),
    function("stripDomain", 1, 1, |a| text(strip_domain(a[0].text()?))),
    function("match", 2, 2, |a| Ok(Value::Bool(regex(a[0].text()?)?.is_match(a[1].text()?)))),
    function("reReplaceAll", 3, 3, |a| {
        let replaced = regex(a[0].text()?)?.replace_all(a[2].text()?, a[1].text()?).into_owned();
        text(replaced)
    }),
    function("len", 1, 1, |a| match &a[0] {
        Value::Text(text) => Ok(Value::Int(i64::try_from(text.len()).unwrap_or(i64::MAX))),
        Value::Labels(labels) => {
            Ok(Value::Int(i64::try_from(labels.iter().count()).unwrap_or(i64::MAX)))
        }
        other @ (Value::Float(_) | Value::Int(_) | Value::Bool(_)) => {
            Err(format!("len of type {}", other.kind()))
        }
    }),
    function("index", 2, 2, |a| match &a[0] {
        Value::Labels(labels) => text(labels.get(a[1].text()?).unwrap_or("").to_owned()),
        other @ (Value::Text(_) | Value::Float(_) | Value::Int(_) | Value::Bool(_)) => {
            Err(format!("can't index item of type {}", other.kind()))
        }
    }),
    function("not", 1, 1, |a| Ok(Value::Bool(!a[0].is_true()))),
    function("and", 1, ANY, |a| {
        Ok(a.iter().find(|v| !v.is_true()).unwrap_or(&a[a.len() - 1]).clone())
    }),
    function("or", 1, ANY, |a| {
        Ok(a.iter().find(|v| v.is_true()).unwrap_or(&a[a.len() - 1]).clone())
    }),
    function("eq", 2, ANY, |a| {
        let same = |other: &Value| Ok(compare(&a[0], other)? == Some(Ordering::Equal));
        let found: Result<Vec<bool>, String> = a[1..].iter().map(same).collect();
        Ok(Value::Bool(found?.contains(&true)))
    }),
    function("ne", 2, 2, |a| ordered(a, |o| o != Some(Ordering::Equal))),
    function("lt", 2, 2, |a| ordered(a, |o| o == Some(Ordering::Less))),
    function("le", 2, 2, |a| ordered(a, |o| o.is_some_and(Ordering::is_le))),
    // Go negates the opposite, which makes these two true for what is not a number.
    function("gt", 2, 2, |a| ordered(a, |o| !o.is_some_and(Ordering::is_le))),
    function("ge", 2, 2, |a| ordered(a, |o| o != Some(Ordering::Less))),
];

const fn function(
    name: &'static str,
    least: usize,
    most: usize,
    call: fn(&[Value]) -> Answer,
) -> Function {
    Function { name, least, most, call }
}

/// The function of that name.
pub(super) fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

impl Value {
    fn text(&self) -> Result<&str, String> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Float(_) | Self::Int(_) | Self::Bool(_) | Self::Labels(_) => {
                Err(format!("wrong type for value; expected string; got {}", self.kind()))
            }
        }
    }
}

fn text(text: String) -> Answer {
    Ok(Value::Text(text))
}

fn regex(pattern: &str) -> Result<Regex, String> {
    Regex::new(pattern).map_err(|_| format!("invalid regular expression {pattern:?}"))
}

/// The one argument as a number; text is read, as in Prometheus.
fn number(args: &[Value]) -> Result<f64, String> {
    match &args[0] {
        Value::Float(value) => Ok(*value),
        Value::Int(value) => Ok(*value as f64),
        Value::Text(text) => text
            .parse()
            .map_err(|_| format!("strconv.ParseFloat: parsing {text:?}: invalid syntax")),
        other @ (Value::Bool(_) | Value::Labels(_)) => {
            Err(format!("can't convert {} to float", other.kind()))
        }
    }
}

/// Numbers that are none, infinite or zero have no unit prefix.
fn metric(value: f64, format: fn(f64) -> String) -> Answer {
    text(if value.is_finite() { format(value) } else { go::general(value, Some(4)) })
}

fn four(value: f64) -> String {
    go::general(value, Some(4))
}

/// With a prefix for the power of `base`, and for the small ones where `down` says so.
fn scaled(value: f64, base: f64, down: bool) -> String {
    let large = match down {
        true => ["k", "M", "G", "T", "P", "E", "Z", "Y"],
        false => ["ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"],
    };
    if value == 0.0 || (!down && value.abs() <= 1.0) {
        return four(value);
    }
    if value.abs() < 1.0 {
        return small(value);
    }
    let (mut value, mut prefix) = (value, "");
    for next in large {
        if value.abs() < base {
            break;
        }
        prefix = next;
        value /= base;
    }
    four(value) + prefix
}

fn small(mut value: f64) -> String {
    let mut prefix = "";
    for next in ["m", "u", "n", "p", "f", "a", "z", "y"] {
        if value.abs() >= 1.0 {
            break;
        }
        prefix = next;
        value *= 1000.0;
    }
    four(value) + prefix
}

fn duration(value: f64) -> String {
    if value == 0.0 {
        return four(value) + "s";
    }
    let sign = if value < 0.0 { "-" } else { "" };
    if value.abs() < 1.0 {
        return small(value) + "s";
    }
    let seconds = value.abs();
    let whole = seconds as u64;
    let (days, hours) = (whole / 86_400, whole / 3600 % 24);
    let (minutes, left) = (whole / 60 % 60, whole % 60);
    if days > 0 {
        format!("{sign}{days}d {hours}h {minutes}m {left}s")
    } else if hours > 0 {
        format!("{sign}{hours}h {minutes}m {left}s")
    } else if minutes > 0 {
        format!("{sign}{minutes}m {left}s")
    } else {
        format!("{sign}{}s", four(seconds))
    }
}

/// As Go prints a time in UTC.
fn timestamp(value: f64) -> Answer {
    if !value.is_finite() {
        return text(four(value));
    }
    if (value * 1e9).abs() > i64::MAX as f64 {
        return Err(format!(
            "{} cannot be represented as a nanoseconds timestamp since it overflows int64",
            go::general(value, None)
        ));
    }
    let time = rfc3339((value * 1000.0).floor() as i64);
    text(format!("{} +0000 UTC", time.replace('T', " ").trim_end_matches('Z')))
}

/// Blanks only between arguments that are both no text.
fn print(args: &[Value]) -> String {
    let mut out = String::new();
    for (index, value) in args.iter().enumerate() {
        let texts = |v: &Value| matches!(v, Value::Text(_));
        if index > 0 && !texts(value) && !texts(&args[index - 1]) {
            out.push(' ');
        }
        out += &value.to_text();
    }
    out
}

/// The first letter of each word as a capital.
fn title(text: &str) -> String {
    let mut start = true;
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if start && letter.is_alphabetic() {
            out.extend(letter.to_uppercase());
        } else {
            out.push(letter);
        }
        start = !(letter.is_alphanumeric() || letter == '_' || letter == '\'');
    }
    out
}

/// The host of `host:port`; what is no such pair stays.
fn strip_port(text: &str) -> &str {
    let Some((host, port)) = text.rsplit_once(':') else { return text };
    match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(inner) if !inner.contains(['[', ']']) => inner,
        None if !host.contains([':', '[', ']']) && !port.contains(['[', ']']) => host,
        Some(_) | None => text,
    }
}

/// Without what follows the first dot of the host; addresses stay.
fn strip_domain(text: &str) -> String {
    let host = strip_port(text);
    if host.parse::<std::net::IpAddr>().is_ok() {
        return text.to_owned();
    }
    let port = text.strip_prefix(host).filter(|port| port.starts_with(':')).unwrap_or("");
    format!("{}{port}", host.split('.').next().unwrap_or(host))
}

/// The order of two values of one type; `None` for numbers that have none.
fn compare(a: &Value, b: &Value) -> Result<Option<Ordering>, String> {
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => Ok(Some(a.cmp(b))),
        (Value::Float(a), Value::Float(b)) => Ok(a.partial_cmp(b)),
        (Value::Int(a), Value::Int(b)) => Ok(Some(a.cmp(b))),
        (Value::Bool(a), Value::Bool(b)) => Ok(Some(a.cmp(b))),
        (
            Value::Text(_) | Value::Float(_) | Value::Int(_) | Value::Bool(_) | Value::Labels(_),
            _,
        ) => Err("incompatible types for comparison".to_owned()),
    }
}

fn ordered(args: &[Value], test: fn(Option<Ordering>) -> bool) -> Answer {
    Ok(Value::Bool(test(compare(&args[0], &args[1])?)))
}
