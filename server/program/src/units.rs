//! Values with units: `512MiB`, `30s`. A bare number of bytes or of time is refused, because
//! half of the readers guess the other unit.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A number of bytes, written with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

const BYTE_UNITS: [(&str, u64); 10] = [
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = split(text)?;
        if unit.is_empty() {
            return Err(format!("bytes need a unit, for example {text}MiB, {text}GiB or {text}GB"));
        }
        let (_, factor) = BYTE_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(|| {
            format!("unknown unit {unit:?}; use B, KB, MB, GB, TB, KiB, MiB, GiB or TiB")
        })?;
        scaled(number, *factor as f64).map(|bytes| Self(bytes as u64))
    }
}

impl fmt::Display for ByteSize {
    /// The shortest form that parses back to the same number of bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |factor: u64| self.0.is_multiple_of(factor) && self.0 > 0;
        let (unit, factor) = BYTE_UNITS
            .iter()
            .filter(|(_, factor)| exact(*factor))
            .max_by_key(|(_, factor)| *factor)
            .unwrap_or(&("B", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

/// A length of time, written with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = split(text)?;
        let factor = match unit {
            "us" => 0.000_001,
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "" => return Err(format!("a time needs a unit, for example {text}s or {text}ms")),
            _ => return Err(format!("unknown unit {unit:?}; use us, ms, s, m, h")),
        };
        let seconds = scaled(number, factor)?;
        Duration::try_from_secs_f64(seconds).map(Self).map_err(|error| error.to_string())
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.subsec_millis() == 0 {
            write!(f, "{}s", self.0.as_secs())
        } else {
            write!(f, "{}ms", self.0.as_millis())
        }
    }
}

/// As [`ByteSize`] reads it: for flags whose value is the number alone.
///
/// # Errors
/// What is wrong with the text and what would work.
pub fn bytes(text: &str) -> Result<u64, String> {
    text.parse().map(|ByteSize(bytes)| bytes)
}

/// As [`Span`] reads it: for flags whose value is the time alone.
///
/// # Errors
/// What is wrong with the text and what would work.
pub fn span(text: &str) -> Result<Duration, String> {
    text.parse().map(|Span(time)| time)
}

/// A whole number of at most `MOST`.
///
/// # Errors
/// What is wrong with the text and what would work.
pub fn count_up_to<const MOST: usize>(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if count <= MOST => Ok(count),
        Ok(_) => Err(format!("at most {MOST}")),
        Err(_) => Err(format!("{text:?} is no whole number, for example {}", MOST.min(2))),
    }
}

fn split(text: &str) -> Result<(f64, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number.parse().map_err(|_| format!("{text:?} does not start with a number"))?;
    Ok((number, unit.trim()))
}

fn scaled(number: f64, factor: f64) -> Result<f64, String> {
    // 2^53: above it a float no longer counts single bytes.
    let value = number * factor;
    if value < 9_007_199_254_740_992.0 { Ok(value) } else { Err("too large".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_and_print_with_their_unit() {
        let check = |text: &str, bytes: u64, printed: &str| {
            let size: ByteSize = text.parse().expect(text);
            assert_eq!(size.0, bytes);
            assert_eq!(size.to_string(), printed);
            assert_eq!(size.to_string().parse::<ByteSize>().expect("prints what it reads"), size);
        };
        check("512MiB", 512 << 20, "512MiB");
        check("1.5 GiB", 3 << 29, "1536MiB");
        check("150GB", 150_000_000_000, "150GB");
        check("0B", 0, "0B");
        for wrong in ["512", "12 parsecs", "MiB", "-1MiB", "99999999TiB", ""] {
            assert!(wrong.parse::<ByteSize>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_need_a_unit_too() {
        let check = |text: &str, millis: u128| {
            assert_eq!(text.parse::<Span>().expect(text).0.as_millis(), millis);
        };
        check("30s", 30_000);
        check("250ms", 250);
        check("1.5m", 90_000);
        check("0s", 0);
        for wrong in ["30", "s", "5 days", "9999999999999999999h"] {
            assert!(wrong.parse::<Span>().is_err(), "{wrong}");
        }
        assert_eq!("90s".parse::<Span>().expect("90s").to_string(), "90s");
        assert_eq!("250ms".parse::<Span>().expect("250ms").to_string(), "250ms");
    }
}
