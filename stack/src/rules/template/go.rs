//! Numbers and verbs as Go's `fmt` writes them.

use std::fmt::Write;

use super::Value;

/// `%.{precision}g`, or the shortest form that reads back (`%v`).
pub(in crate::rules) fn general(value: f64, precision: Option<usize>) -> String {
    if !value.is_finite() {
        return special(value);
    }
    let precision = precision.map(|digits| digits.max(1));
    let scientific = match precision {
        Some(digits) => format!("{value:.*e}", digits - 1),
        None => format!("{value:e}"),
    };
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let mantissa = match mantissa.contains('.') {
        true => mantissa.trim_end_matches('0').trim_end_matches('.'),
        false => mantissa,
    };
    // The shortest form gets an exponent from a million on, others from their precision on.
    let limit = precision.map_or(6, |digits| i32::try_from(digits).unwrap_or(i32::MAX));
    if exponent < -4 || exponent >= limit {
        return with_exponent(mantissa, exponent);
    }
    let digits = mantissa.trim_start_matches('-').replace('.', "").len();
    let digits = i32::try_from(digits).unwrap_or(i32::MAX);
    let decimals = usize::try_from(digits - 1 - exponent).unwrap_or(0);
    format!("{value:.decimals$}")
}

/// The shortest form with an exponent, as the API writes the values of alerts.
pub(in crate::rules) fn exponent(value: f64) -> String {
    if !value.is_finite() {
        return special(value);
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    with_exponent(mantissa, exponent.parse().unwrap_or(0))
}

fn with_exponent(mantissa: &str, exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

fn special(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value > 0.0 {
        "+Inf".to_owned()
    } else {
        "-Inf".to_owned()
    }
}

/// Flags, width and precision of a verb.
#[derive(Debug, Default)]
struct Verb {
    left: bool,
    plus: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
}

/// Longest padding and longest precision of a verb.
const WIDTH_MAX: usize = 200;

/// `fmt.Sprintf` for text, numbers and booleans.
pub(super) fn printf(format: &str, args: &[Value]) -> Result<String, String> {
    let mut out = String::new();
    let mut args = args.iter();
    let mut chars = format.chars().peekable();
    while let Some(next) = chars.next() {
        if next != '%' {
            out.push(next);
            continue;
        }
        let mut verb = Verb::default();
        while let Some(flag) = chars.next_if(|c| matches!(c, '-' | '+' | '0' | ' ' | '#')) {
            match flag {
                '-' => verb.left = true,
                '+' => verb.plus = true,
                '0' => verb.zero = true,
                other => return Err(format!("flag {other:?} of a verb is not supported")),
            }
        }
        let number = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>| {
            let mut sum = 0_usize;
            while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                sum = sum * 10 + digit.to_digit(10).unwrap_or(0) as usize;
                if sum > WIDTH_MAX {
                    return Err(format!("a width above {WIDTH_MAX} is not supported"));
                }
            }
            Ok(sum)
        };
        verb.width = number(&mut chars)?;
        if chars.next_if_eq(&'.').is_some() {
            verb.precision = Some(number(&mut chars)?);
        }
        match chars.next() {
            None => out.push_str("%!(NOVERB)"),
            Some('%') => out.push('%'),
            Some(letter) => match args.next() {
                None => write!(out, "%!{letter}(MISSING)").map_err(|e| e.to_string())?,
                Some(value) => out.push_str(&verb.format(letter, value)),
            },
        }
    }
    Ok(out)
}

impl Verb {
    fn format(&self, letter: char, value: &Value) -> String {
        let digits = self.precision.unwrap_or(6);
        let text = match (letter, value) {
            ('v', Value::Float(number)) | ('g', Value::Float(number)) => {
                general(*number, self.precision)
            }
            ('f' | 'F' | 'e', Value::Float(number)) if !number.is_finite() => special(*number),
            ('f' | 'F', Value::Float(number)) => format!("{number:.digits$}"),
            ('e', Value::Float(number)) => {
                let text = format!("{number:.digits$e}");
                let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
                with_exponent(mantissa, exponent.parse().unwrap_or(0))
            }
            ('d', Value::Int(number)) => number.to_string(),
            ('x', Value::Int(number)) if *number < 0 => format!("-{:x}", number.unsigned_abs()),
            ('x', Value::Int(number)) => format!("{number:x}"),
            ('t', Value::Bool(flag)) => flag.to_string(),
            ('q', Value::Text(text)) => format!("{text:?}"),
            ('s', Value::Text(text)) => match self.precision {
                Some(length) => text.chars().take(length).collect(),
                None => text.clone(),
            },
            ('v', other) => other.to_text(),
            ('s', Value::Labels(_)) => value.to_text(),
            (letter, other) => return format!("%!{letter}({}={})", other.kind(), other.to_text()),
        };
        let number = matches!(value, Value::Float(_) | Value::Int(_));
        let text = match self.plus && number && !text.starts_with(['-', '+']) {
            true => format!("+{text}"),
            false => text,
        };
        let finite = !matches!(value, Value::Float(number) if !number.is_finite());
        self.pad(&text, number, finite)
    }

    fn pad(&self, text: &str, number: bool, finite: bool) -> String {
        let missing = self.width.saturating_sub(text.chars().count());
        if self.left {
            return text.to_owned() + &" ".repeat(missing);
        }
        if !self.zero || !finite {
            return " ".repeat(missing) + text;
        }
        let signed = number && text.starts_with(['-', '+']);
        let (sign, rest) = text.split_at(usize::from(signed));
        format!("{sign}{}{rest}", "0".repeat(missing))
    }
}

impl Value {
    /// The name of its type in Go.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Float(_) => "float64",
            Self::Int(_) => "int",
            Self::Bool(_) => "bool",
            Self::Labels(_) => "map[string]string",
        }
    }
}
