//! Durations as Prometheus writes them: `5s`, `1m30s`, `1h`, `250ms`.

use std::time::Duration;

/// Unit and its milliseconds, longest first.
const UNITS: [(&str, u64); 7] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
    ("w", 604_800_000),
    ("y", 31_536_000_000),
];

/// Reads a duration.
///
/// # Errors
/// One sentence that says what would work.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration; write for example 15s, 5m or 1h30m");
    let (mut rest, mut millis) = (text, 0_u64);
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let count: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        let after = &rest[digits..];
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (_, factor) =
            UNITS.iter().find(|(name, _)| *name == &after[..end]).ok_or_else(wrong)?;
        let part = count.checked_mul(*factor).ok_or_else(wrong)?;
        millis = millis.checked_add(part).ok_or_else(wrong)?;
        rest = &after[end..];
    }
    Ok(Duration::from_millis(millis))
}

/// Writes seconds, rounded to milliseconds, as `PromQL` reads them in a range.
#[must_use]
pub fn write(seconds: f64) -> String {
    let millis = (seconds * 1_000.0).round().max(1.0) as u64;
    if millis.is_multiple_of(1_000) {
        format!("{}s", millis / 1_000)
    } else {
        format!("{millis}ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for (text, millis) in [("5s", 5_000), ("1m30s", 90_000), ("250ms", 250), ("3h", 10_800_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)));
        }
        for text in ["", "5", "s", "5 s", "1.5h", "5x", "99999999999999999999s", "9999999999999y"] {
            let error = parse(text).expect_err(text);
            assert!(error.contains("15s"), "{error}");
        }
        assert_eq!(write(60.0), "60s");
        assert_eq!(write(1.25), "1250ms");
        assert_eq!(write(0.0), "1ms");
    }
}
