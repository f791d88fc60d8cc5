//! The rendered page: order, scale, filter.
//!
//! The exporter writes families and series in the order of its hash maps and counts whole numbers
//! only. Here the page gets a fixed order, and time counters their seconds. It does not parse
//! values and never drops a sample.

use std::collections::HashSet;
use std::fmt::Write;
use std::sync::LazyLock;

/// Names of the counters that the exporter holds in nanoseconds.
static TIME: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    crate::all().filter(|info| super::is_time(info)).map(|info| info.name).collect()
});

/// The lines of one family.
struct Family<'a> {
    name: &'a str,
    header: Vec<&'a str>,
    histogram: bool,
    /// The text of each series: one line, or all of a histogram.
    series: Vec<&'a str>,
}

/// The families of a page: `# HELP` and `# TYPE` lines followed by samples.
fn families(page: &str) -> Vec<Family<'_>> {
    let mut found: Vec<Family<'_>> = Vec::new();
    let (mut start, mut end) = (0, 0);
    for line in page.split_inclusive('\n') {
        end += line.len();
        if let Some(header) = line.strip_prefix("# ") {
            let name = header.split(' ').nth(1).unwrap_or_default();
            if found.last().is_none_or(|family| family.name != name) {
                let (header, series) = (Vec::new(), Vec::new());
                found.push(Family { name, header, histogram: false, series });
            }
            if let Some(family) = found.last_mut() {
                family.header.push(line);
                family.histogram = line.ends_with(" histogram\n");
            }
            start = end;
        } else if line == "\n" {
            start = end;
        } else if let Some(family) = found.last_mut() {
            // The exporter ends a histogram with its count.
            let suffix = line.strip_prefix(family.name).unwrap_or_default();
            if !family.histogram || suffix.starts_with("_count") {
                family.series.push(&page[start..end]);
                start = end;
            }
        }
    }
    found
}

/// Labels as text, for `tidy`.
pub(super) fn constants(labels: &[(&str, &str)]) -> String {
    let escape = |value: &str| value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', "\\n");
    let texts: Vec<_> =
        labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
    texts.join(",")
}

/// Orders families by name and series by label text, keeps the buckets of a series in their order,
/// puts the constant labels first, and writes time counters in seconds. Also says how many samples
/// there are.
pub(super) fn tidy(page: &str, constants: &str) -> (String, usize) {
    let mut families = families(page);
    families.sort_unstable_by_key(|family| family.name);
    let mut out = String::with_capacity(page.len() * 2);
    let mut samples = 0;
    for mut family in families {
        family.header.iter().for_each(|line| out.push_str(line));
        // Lines of one family differ first in their labels: a histogram starts with the same edge.
        family.series.sort_unstable();
        let time = TIME.contains(family.name);
        for line in family.series.iter().flat_map(|text| text.lines()) {
            push_sample(&mut out, line, constants, time);
            samples += 1;
        }
    }
    (out, samples)
}

/// One sample line with the constant labels in front of its own.
fn push_sample(out: &mut String, line: &str, constants: &str, time: bool) {
    let name = line.bytes().position(|b| b == b'{' || b == b' ').unwrap_or(line.len());
    let (name, rest) = line.split_at(name);
    out.push_str(name);
    out.push('{');
    out.push_str(constants);
    let rest = match rest.strip_prefix('{') {
        Some(own) => {
            out.push(',');
            own
        }
        None => {
            out.push('}');
            rest
        }
    };
    match rest.rsplit_once(' ') {
        Some((labels, value)) if time => push_seconds(out, labels, value),
        Some(_) | None => out.push_str(rest),
    }
    out.push('\n');
}

/// The end of a line whose value is in nanoseconds.
fn push_seconds(out: &mut String, labels: &str, value: &str) {
    let nanoseconds: u64 = value.parse().unwrap_or_default();
    let (whole, rest) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    write!(out, "{labels} {whole}").expect("writing to a String cannot fail");
    if rest != 0 {
        let digits = format!("{rest:09}");
        out.push('.');
        out.push_str(digits.trim_end_matches('0'));
    }
}

/// The families of a tidied page that are named, for `/metrics?name[]=...`; unknown names select
/// nothing. With no name at all the page is returned as it is.
pub fn filter(page: &str, names: &[&str]) -> String {
    if names.is_empty() {
        return page.to_owned();
    }
    let mut out = String::new();
    let mut keep = false;
    for line in page.split_inclusive('\n') {
        if let Some(header) = line.strip_prefix("# ") {
            let name = header.split(' ').nth(1).unwrap_or_default();
            keep = names.contains(&name.trim_end());
        }
        if keep {
            out.push_str(line);
        }
    }
    out
}
