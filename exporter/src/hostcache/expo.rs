//! Reads the text format of Prometheus: strictly, because a page that is cut or garbled must not
//! become half a truth, and within bounds, because the page is another program's.
//!
//! Only the families that are asked for are kept; every other line is checked all the same.

/// Longest page, in bytes: a hundred times what one of our servers says.
pub const PAGE_MAX: usize = 32 << 20;
/// Longest line, in bytes.
const LINE_MAX: usize = 64 << 10;
/// Most labels of a series.
const LABELS_MAX: usize = 32;
/// Most series that are kept.
const KEPT_MAX: usize = 16_384;

/// A series of a family that was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Name of the series.
    pub name: String,
    /// Labels in the order of the page, unescaped.
    pub labels: Vec<(String, String)>,
    /// Value; may be infinite or no number.
    pub value: f64,
}

impl Sample {
    /// The value of a label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }
}

/// Why a page is refused as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpoError {
    /// It is cut off, or none at all.
    #[error("the page does not end with a line break: it was cut off")]
    Cut,
    /// A line is not of the format.
    #[error("line {line} {reason}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// It is beyond what is read.
    #[error("the page has more than {limit} {what}")]
    TooMuch {
        /// Of what.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
}

/// The series of the families in `wanted`, in the order of the page.
///
/// # Errors
/// Any line is not of the format, the last one is not ended, a series that is kept occurs twice, or
/// a bound is passed.
pub fn parse(text: &str, wanted: &[&str]) -> Result<Vec<Sample>, ExpoError> {
    if text.len() > PAGE_MAX {
        return Err(ExpoError::TooMuch { what: "bytes", limit: PAGE_MAX });
    }
    if !text.ends_with('\n') {
        return Err(ExpoError::Cut);
    }
    let mut kept: Vec<Sample> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let wrong = |reason| ExpoError::Line { line: index + 1, reason };
        if line.len() > LINE_MAX {
            return Err(wrong("is too long"));
        }
        let line = line.trim_matches([' ', '\t']);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let sample = sample(line, wanted).map_err(wrong)?;
        let Some(sample) = sample else { continue };
        if kept.len() == KEPT_MAX {
            return Err(ExpoError::TooMuch { what: "series", limit: KEPT_MAX });
        }
        kept.push(sample);
    }
    let mut keys: Vec<_> = kept.iter().map(|sample| (&sample.name, &sample.labels)).collect();
    keys.sort_unstable();
    let twice = keys.windows(2).any(|pair| pair[0] == pair[1]);
    if twice {
        return Err(ExpoError::Line {
            line: text.lines().count(),
            reason: "ends a page that says a series twice",
        });
    }
    Ok(kept)
}

/// One series; `None` where it is well formed but not wanted.
fn sample(line: &str, wanted: &[&str]) -> Result<Option<Sample>, &'static str> {
    let (name, rest) = word(line, |c| c == b':').ok_or("has no name")?;
    let keep = wanted.contains(&name);
    let mut labels = Vec::new();
    let rest = rest.trim_start_matches([' ', '\t']);
    let rest = match rest.strip_prefix('{') {
        Some(inner) => label_list(inner, keep.then_some(&mut labels))?,
        None => rest,
    };
    let mut words = rest.split_ascii_whitespace();
    let value = words.next().ok_or("has no value")?;
    let value: f64 = value.parse().map_err(|_| "has a value that is no number")?;
    if let Some(time) = words.next() {
        time.parse::<i64>().map_err(|_| "has a time that is no number")?;
    }
    if words.next().is_some() {
        return Err("has something behind its value");
    }
    Ok(keep.then(|| Sample { name: name.to_owned(), labels, value }))
}

/// The labels up to the closing brace, and what follows it.
fn label_list<'a>(
    mut rest: &'a str,
    mut kept: Option<&mut Vec<(String, String)>>,
) -> Result<&'a str, &'static str> {
    for _ in 0..=LABELS_MAX {
        rest = rest.trim_start_matches([' ', '\t']);
        if let Some(after) = rest.strip_prefix('}') {
            return Ok(after);
        }
        let (name, after) = word(rest, |_| false).ok_or("has a label without a name")?;
        let after = after.trim_start_matches([' ', '\t']);
        let after = after.strip_prefix('=').ok_or("has a label without a value")?;
        let after = after.trim_start_matches([' ', '\t']);
        let after = after.strip_prefix('"').ok_or("has a label value without quotes")?;
        let (value, after) = quoted(after, kept.is_some())?;
        if let Some(labels) = kept.as_deref_mut() {
            if labels.iter().any(|(label, _)| label == name) {
                return Err("has a label twice");
            }
            labels.push((name.to_owned(), value));
        }
        let after = after.trim_start_matches([' ', '\t']);
        rest = match after.strip_prefix(',') {
            Some(next) => next,
            None if after.starts_with('}') => after,
            None => return Err("has labels that are not ended"),
        };
    }
    Err("has too many labels")
}

/// The text up to the closing quote, and what follows it. The text is empty unless `keep`.
fn quoted(text: &str, keep: bool) -> Result<(String, &str), &'static str> {
    let mut value = String::new();
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        let plain = match (escaped, c) {
            (false, '"') => return Ok((value, &text[at + 1..])),
            (false, '\\') => {
                escaped = true;
                continue;
            }
            (false, other) => other,
            (true, 'n') => '\n',
            (true, '"' | '\\') => c,
            (true, _) => return Err("has an unknown escape in a label value"),
        };
        escaped = false;
        if keep {
            value.push(plain);
        }
    }
    Err("has a label value that is not ended")
}

/// A name at the start, and what follows it; `also` says which other bytes may be in it.
fn word(text: &str, also: impl Fn(u8) -> bool) -> Option<(&str, &str)> {
    let of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || also(byte);
    let end = text.bytes().position(|byte| !of_name(byte)).unwrap_or(text.len());
    let starts_well = text.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    (end > 0 && starts_well).then(|| text.split_at(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(text: &str) -> String {
        parse(text, &["a"]).expect_err("a page that is wrong").to_string()
    }

    #[test]
    fn series_asked_for_are_kept_with_their_labels() {
        let page = "# HELP a x\n# TYPE a gauge\n\n\
                    a{x=\"1\",y=\"q\\\"\\\\\\n\"} 2.5\na 3 1700000000000\n\
                    b{z=\"}\"} NaN\na{ x = \"2\" , } +Inf\n";
        let found = parse(page, &["a"]).expect("a page");
        let sample = |labels: &[(&str, &str)], value| Sample {
            name: "a".to_owned(),
            labels: labels.iter().map(|(l, v)| ((*l).to_owned(), (*v).to_owned())).collect(),
            value,
        };
        let both = [("x", "1"), ("y", "q\"\\\n")];
        let expected = [sample(&both, 2.5), sample(&[], 3.0), sample(&[("x", "2")], f64::INFINITY)];
        assert_eq!(found, expected);
        assert_eq!(found[0].label("y"), Some("q\"\\\n"));
        assert_eq!(found[0].label("z"), None);
    }

    #[test]
    fn a_page_with_one_bad_line_is_refused_whole() {
        for (line, why) in [
            ("a", "no value"),
            ("a{", "label without a name"),
            ("a{x} 1", "label without a value"),
            ("a{x=1} 1", "without quotes"),
            ("a{x=\"1} 1", "not ended"),
            ("a{x=\"1\" 1", "not ended"),
            ("a{x=\"\\t\"} 1", "unknown escape"),
            ("a{x=\"1\",x=\"2\"} 1", "twice"),
            ("a 1 2 3", "behind its value"),
            ("a 1 soon", "time"),
            ("a one", "no number"),
            ("1a 1", "no name"),
            ("b{x=\"1\" 2", "not ended"),
            ("<html>", "no name"),
        ] {
            let said = reason(&format!("a{{x=\"0\"}} 1\n{line}\n"));
            assert!(said.contains(why) && said.contains("line 2"), "{line}: {said}");
        }
    }

    #[test]
    fn what_is_cut_off_or_said_twice_is_refused() {
        assert_eq!(parse("a 1\na{x=\"1\"} 12", &["a"]), Err(ExpoError::Cut));
        assert_eq!(parse("", &["a"]), Err(ExpoError::Cut));
        assert!(reason("a 1\na 2\n").contains("twice"));
        // What is not kept is not compared.
        assert_eq!(parse("b 1\nb 2\n", &["a"]), Ok(Vec::new()));
    }

    #[test]
    fn bounds_are_said() {
        let labels: String = (0..=LABELS_MAX).map(|n| format!("l{n}=\"1\",")).collect();
        assert!(reason(&format!("a{{{labels}}} 1\n")).contains("too many labels"));
        let fits: String = (0..LABELS_MAX).map(|n| format!("l{n}=\"1\",")).collect();
        assert_eq!(parse(&format!("a{{{fits}}} 1\n"), &["a"]).expect("a page").len(), 1);
        assert!(reason(&format!("{} 1\n", "b".repeat(LINE_MAX))).contains("too long"));
        let many: String = (0..=KEPT_MAX).map(|n| format!("a{{x=\"{n}\"}} 1\n")).collect();
        assert!(reason(&many).contains("16384 series"));
        assert!(reason(&"\n".repeat(PAGE_MAX + 1)).contains("bytes"));
    }
}
