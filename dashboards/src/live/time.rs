//! Points in time on a command line: Unix seconds, or RFC 3339.

/// Reads `1767225600` or `2026-01-01T00:00:00Z`, with an offset in place of `Z` if need be, as Unix
/// seconds.
///
/// # Errors
/// One sentence that says what would work.
pub(super) fn parse(text: &str) -> Result<f64, String> {
    let wrong =
        || format!("{text:?} is no time; give Unix seconds, or for example 2026-01-31T12:00:00Z");
    if let Ok(seconds) = text.parse::<f64>() {
        let possible = seconds.is_finite() && (0.0..1e11).contains(&seconds);
        return possible.then_some(seconds).ok_or_else(wrong);
    }
    civil(text).ok_or_else(wrong)
}

fn civil(text: &str) -> Option<f64> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let mut parts = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let zone = time.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = time.split_at(zone);
    let offset = match zone {
        "Z" | "z" => 0,
        _ => {
            let (hours, minutes) = zone[1..].split_once(':')?;
            let minutes = hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?;
            if zone.starts_with('-') { -minutes } else { minutes }
        }
    };
    let mut parts = clock.split(':');
    let (hours, minutes) = (parts.next()?.parse::<i64>().ok()?, parts.next()?.parse::<i64>().ok()?);
    let seconds: f64 = parts.next()?.parse().ok()?;
    let possible = (1970..10_000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hours)
        && (0..60).contains(&minutes)
        && (0.0..61.0).contains(&seconds)
        && parts.next().is_none();
    let whole = days(year, month, day) * 86_400 + hours * 3_600 + (minutes - offset) * 60;
    possible.then_some(whole as f64 + seconds)
}

/// Days since 1970-01-01, by the proleptic Gregorian calendar: years begin in March, so that the
/// leap day is their last.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, seconds) in [
            ("1767225600", 1_767_225_600.0),
            ("1970-01-01T00:00:00Z", 0.0),
            ("2026-01-01T00:00:00Z", 1_767_225_600.0),
            ("2024-02-29T12:30:15.5+02:00", 1_709_202_615.5),
            ("2000-03-01 00:00:00-00:30", 951_870_600.0),
        ] {
            assert_eq!(parse(text), Ok(seconds), "{text}");
        }
        for text in
            ["", "now", "2026-01-01", "2026-13-01T00:00:00Z", "2026-01-01T00:00Z", "-5", "1e99"]
        {
            assert!(parse(text).expect_err(text).contains("2026-01-31"), "{text}");
        }
    }
}
