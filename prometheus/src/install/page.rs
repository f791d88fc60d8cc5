//! The rendered page: order, scale, filter.
//!
//! The exporter writes families and series in the order of its hash maps and counts whole numbers
//! only. Here the page gets a fixed order, and time counters their seconds. It does not parse
//! values and never drops a sample.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::LazyLock;

/// Names of the counters that the exporter holds in nanoseconds.
static TIME: LazyLock<HashMap<&'static str, ()>> = LazyLock::new(|| {
    crate::all().filter(|info| super::is_time(info)).map(|info| (info.name, ())).collect()
});

struct Family<'a> {
    name: &'a str,
    header: &'a str,
    /// Sample lines, without the newline of the last.
    body: &'a str,
}

/// The families of a page: `# HELP` and `# TYPE` lines followed by samples.
fn families(page: &str) -> Vec<Family<'_>> {
    let mut found: Vec<Family<'_>> = Vec::new();
    for block in page.split("\n\n").map(|block| block.trim_matches('\n')) {
        if block.is_empty() {
            continue;
        }
        let header_end = block
            .match_indices('\n')
            .map(|(at, _)| at)
            .find(|at| !block[at + 1..].starts_with('#'))
            .unwrap_or(block.len());
        let (header, body) = block.split_at(header_end);
        let name = header.split(' ').nth(2).unwrap_or_default();
        found.push(Family { name, header, body: body.trim_start_matches('\n') });
    }
    found
}

/// Orders families by name and series by label text, keeps the buckets of a series in their order,
/// and writes time counters in seconds.
pub fn tidy(page: &str) -> String {
    let mut families = families(page);
    families.sort_unstable_by_key(|family| family.name);
    let mut out = String::with_capacity(page.len() + 256);
    for family in families {
        out.push_str(family.header);
        out.push('\n');
        let mut lines: Vec<&str> = family.body.lines().collect();
        if family.header.ends_with(" histogram") {
            lines.sort_by_key(|line| labels_without_le(line));
        } else {
            lines.sort_unstable();
        }
        let time = TIME.contains_key(family.name);
        for line in lines {
            match line.rsplit_once(' ') {
                Some((series, value)) if time => push_seconds(&mut out, series, value),
                _ => out.push_str(line),
            }
            out.push('\n');
        }
    }
    out
}

/// What is equal for all lines of one series of a histogram.
///
/// The exporter writes `le` last.
fn labels_without_le(line: &str) -> &str {
    let labels = line.find('{').map_or("", |at| &line[at + 1..]);
    if labels.starts_with("le=\"") {
        return "";
    }
    let end = labels.find(",le=\"").or_else(|| labels.rfind('}')).unwrap_or(0);
    &labels[..end]
}

fn push_seconds(out: &mut String, series: &str, value: &str) {
    let nanoseconds: u64 = value.parse().unwrap_or_default();
    let (whole, rest) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    // Cannot fail: a String takes everything.
    let _infallible = write!(out, "{series} {whole}");
    if rest != 0 {
        let digits = format!("{rest:09}");
        out.push('.');
        out.push_str(digits.trim_end_matches('0'));
    }
}

/// Samples on a page.
pub(super) fn count_series(page: &str) -> usize {
    page.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count()
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
