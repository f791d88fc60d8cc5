//! Values with units, as on the server's command line: `150GB`, `30s`. A bare number is refused,
//! because half of the readers guess the other unit.

use std::time::Duration;

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

/// A number of bytes, written with a unit.
///
/// # Errors
/// What is wrong with the text and what would work.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    if unit.is_empty() {
        return Err(format!("bytes need a unit, for example {text}GB or {text}GiB"));
    }
    let known = BYTE_UNITS.iter().find(|(name, _)| *name == unit);
    let (_, factor) = known.ok_or_else(|| {
        format!("unknown unit {unit:?}; use B, KB, MB, GB, TB, KiB, MiB, GiB or TiB")
    })?;
    let value = number * *factor as f64;
    // 2^53: above it a float no longer counts single bytes.
    if value < 9_007_199_254_740_992.0 { Ok(value as u64) } else { Err("too large".to_owned()) }
}

/// A length of time, written with a unit.
///
/// # Errors
/// What is wrong with the text and what would work.
pub fn span(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "" => return Err(format!("a time needs a unit, for example {text}s or {text}ms")),
        _ => return Err(format!("unknown unit {unit:?}; use ms, s, m or h")),
    };
    Duration::try_from_secs_f64(number * factor).map_err(|error| error.to_string())
}

fn split(text: &str) -> Result<(f64, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number.parse().map_err(|_| format!("{text:?} does not start with a number"))?;
    Ok((number, unit.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_need_their_unit() {
        assert_eq!(bytes("150GB"), Ok(150_000_000_000));
        assert_eq!(bytes("1.5 GiB"), Ok(3 << 29));
        assert_eq!(span("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(span("1.5m"), Ok(Duration::from_secs(90)));
        for wrong in ["150", "150G", "GB", "-1GB", "99999999TiB", ""] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        for wrong in ["30", "s", "5 days", "99999999999999999999h"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
        assert!(bytes("150").expect_err("no unit").contains("150GB"));
        assert!(span("30").expect_err("no unit").contains("30s"));
    }
}
