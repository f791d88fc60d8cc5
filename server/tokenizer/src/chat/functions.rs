//! The functions and filters that chat templates expect beside Jinja's own.

use std::fmt;

use minijinja::value::{Kwargs, Value};
use minijinja::{Error, ErrorKind};
use serde::Serialize as _;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// What a template passed to `raise_exception`; found among the causes of a render error.
#[derive(Debug)]
pub(super) struct Raised(pub(super) String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// `raise_exception(message)`: the template refuses the conversation.
pub(super) fn raise_exception(message: &str) -> Result<Value, Error> {
    let raised = Raised(message.to_owned());
    Err(Error::new(ErrorKind::InvalidOperation, "raised by the template").with_source(raised))
}

/// `tojson`: JSON as Python writes it, with spaces after commas and colons and nothing escaped
/// for HTML. Knows the argument `indent`; the other arguments of Python's `json.dumps` that
/// templates pass are accepted where they ask for what is done anyway.
pub(super) fn tojson(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    let _ascii: Option<bool> = kwargs.get("ensure_ascii")?;
    let _sorted: Option<bool> = kwargs.get("sort_keys")?;
    kwargs.assert_all_used()?;
    let mut out = Vec::new();
    let result = match indent {
        Some(width) => {
            let indent = " ".repeat(width.min(32));
            let formatter = PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut out, formatter))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut out, Spaced)),
    };
    result.map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("tojson: {error}")))?;
    Ok(Value::from(String::from_utf8(out).expect("the serializer writes UTF-8")))
}

/// `{"a": [1, 2]}` instead of `{"a":[1,2]}`.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
    ) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// `strftime_now(format)` for the UTC time `unix` seconds after 1970. Conversions that no
/// template is known to use are an error.
pub(super) fn strftime(unix: f64, format: &str) -> Result<String, Error> {
    // Casts of floats saturate; a year beyond 9999 is no date anyone asks for.
    let seconds = unix.clamp(0.0, 253_402_300_799.0) as i64;
    let (day, time) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, date) = civil(day);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    let month_name = MONTHS[usize::try_from(month - 1).expect("months are 1 to 12")];
    let day_name = DAYS[usize::try_from((day + 4) % 7).expect("not negative after 1970")];
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let conversion = chars.next();
        let plain = conversion == Some('-');
        let conversion = if plain { chars.next() } else { conversion };
        let number = |value: i64| if plain { value.to_string() } else { format!("{value:02}") };
        out.push_str(&match conversion {
            Some('Y') => year.to_string(),
            Some('y') => number(year % 100),
            Some('m') => number(month),
            Some('B') => month_name.to_owned(),
            Some('b' | 'h') => month_name[..3].to_owned(),
            Some('d') => number(date),
            Some('e') => format!("{date:2}"),
            Some('A') => day_name.to_owned(),
            Some('a') => day_name[..3].to_owned(),
            Some('H') => number(hour),
            Some('I') => number((hour + 11) % 12 + 1),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            Some('M') => number(minute),
            Some('S') => number(second),
            Some('F') => format!("{year}-{month:02}-{date:02}"),
            Some('T') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('Z') => "UTC".to_owned(),
            Some('%') => "%".to_owned(),
            other => {
                let shown = other.map(String::from).unwrap_or_default();
                let message = format!("strftime_now: %{shown} is not supported");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        });
    }
    Ok(out)
}

/// Year, month and day of the month of a day counted from 1970-01-01 (not before it).
fn civil(day: i64) -> (i64, i64, i64) {
    // Years are counted from March, so that the leap day is the last of its year.
    let day = day + 719_468;
    let era = day / 146_097;
    let of_era = day % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, date)
}
