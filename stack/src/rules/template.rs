//! The part of Prometheus' templates that rules use: `{{ $labels.x }}`, `{{ $value }}` and a chain
//! of number formats. What it does not know it leaves as written, so that the mistake shows.

use crate::promapi::sample_value;
use crate::store::Labels;

/// Replaces the placeholders of `text`.
pub(super) fn expand(text: &str, labels: &Labels, value: f64) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        out.push_str(before);
        let Some((inside, behind)) = after.split_once("}}") else {
            out.push_str("{{");
            rest = after;
            continue;
        };
        match placeholder(inside.trim_matches(['-', ' ']), labels, value) {
            Some(replaced) => out.push_str(&replaced),
            None => {
                out.push_str("{{");
                out.push_str(inside);
                out.push_str("}}");
            }
        }
        rest = behind;
    }
    out.push_str(rest);
    out
}

fn placeholder(inside: &str, labels: &Labels, value: f64) -> Option<String> {
    let mut parts = inside.split('|').map(str::trim);
    let first = parts.next()?;
    if let Some(name) = first.strip_prefix("$labels.") {
        return parts.next().is_none().then(|| labels.get(name).unwrap_or("").to_owned());
    }
    if first != "$value" {
        return None;
    }
    match parts.next() {
        None => Some(sample_value(value)),
        Some(format) if parts.next().is_none() => number(format, value),
        Some(_) => None,
    }
}

fn number(format: &str, value: f64) -> Option<String> {
    if !value.is_finite() {
        return Some(sample_value(value));
    }
    match format {
        "humanize" => Some(humanize(value, 1000.0, &["", "k", "M", "G", "T", "P", "E"])),
        "humanize1024" => Some(humanize(value, 1024.0, &["", "ki", "Mi", "Gi", "Ti", "Pi", "Ei"])),
        "humanizePercentage" => Some(format!("{}%", significant(value * 100.0))),
        "humanizeDuration" => Some(duration(value)),
        other => {
            let pattern = other.strip_prefix("printf \"%.")?.strip_suffix("f\"")?;
            let digits: usize = pattern.parse().ok().filter(|digits| *digits <= 12)?;
            Some(format!("{value:.digits$}"))
        }
    }
}

/// Four significant digits, without trailing zeros.
fn significant(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = (3 - value.abs().log10().floor() as i32).clamp(0, 12);
    let text = format!("{value:.*}", digits.unsigned_abs() as usize);
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

fn humanize(value: f64, base: f64, prefixes: &[&str]) -> String {
    let mut scaled = value;
    let mut index = 0;
    while scaled.abs() >= base && index + 1 < prefixes.len() {
        scaled /= base;
        index += 1;
    }
    format!("{}{}", significant(scaled), prefixes[index])
}

fn duration(value: f64) -> String {
    let sign = if value < 0.0 { "-" } else { "" };
    let seconds = value.abs();
    if seconds < 1.0 {
        return if seconds == 0.0 {
            "0s".to_owned()
        } else {
            format!("{sign}{}ms", significant(seconds * 1000.0))
        };
    }
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
        format!("{sign}{}s", significant(seconds))
    }
}
