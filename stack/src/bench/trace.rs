//! Request traces: arrival times, lengths and shared prefixes without text.
//!
//! One JSON object a line, in arrival order: `t` milliseconds since the first, `in` prompt tokens,
//! `out` answer tokens, and `p`, runs of ids of full prompt pages as `[start, count, ...]`. An id
//! names the whole prefix up to the end of its page, so equal ids mean equal prefixes. Files
//! without `p` hold arrivals and lengths only.

use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

/// Longer files are refused: they would not fit beside what they are replayed against.
const REQUESTS_MAX: usize = 2_000_000;

/// The first two bytes of a file that is compressed with gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// What is wrong with a trace.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum BadTrace {
    #[error("line {line}: {reason}")]
    Line { line: usize, reason: String },
    #[error("the trace holds no request")]
    Empty,
    #[error(
        "the trace is compressed; unpack it on the way: zcat FILE.gz | sightline bench --trace -"
    )]
    Gzip,
    #[error("the trace is not UTF-8 text")]
    NotText,
    #[error(
        "the trace does not tell its page size; say it with --trace-page-tokens \
         (its pages fit sizes from {low} to {high})"
    )]
    PageSize { low: u64, high: u64 },
    #[error("pages of {page} tokens do not fit line {line}: {reason}")]
    WrongPageSize { page: u64, line: usize, reason: String },
    #[error("more than {REQUESTS_MAX} requests")]
    TooLong,
}

/// One request of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) at: Duration,
    pub(crate) prompt: u64,
    pub(crate) output: u64,
    /// Pages from the front of the prompt, as (first id, how many).
    pub(crate) runs: Vec<(u64, u64)>,
}

impl Entry {
    /// The ids of all full pages, in order.
    pub(crate) fn pages(&self) -> impl Iterator<Item = u64> + '_ {
        self.runs.iter().flat_map(|(start, count)| *start..start + count)
    }

    fn page_count(&self) -> u64 {
        self.runs.iter().map(|(_, count)| count).sum()
    }
}

/// The latest arrival that a trace may have: 30 days.
const SPAN_MAX: Duration = Duration::from_secs(30 * 86_400);

/// The longest prompt or answer that a trace may name.
const TOKENS_MAX: u64 = 10_000_000;

/// A trace that makes sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trace {
    pub(crate) entries: Vec<Entry>,
    /// Tokens of a page; 0 when no request names pages.
    pub(crate) page_tokens: u64,
}

#[derive(Deserialize)]
struct Line {
    t: f64,
    #[serde(rename = "in")]
    prompt: u64,
    out: u64,
    #[serde(default)]
    p: Option<Vec<u64>>,
}

/// Reads a trace. `page_tokens` wins over `name`, which may hold it as `_p256`; without either it
/// is inferred where only one power of two fits.
pub(crate) fn parse(bytes: &[u8], name: &str, page_tokens: Option<u64>) -> Result<Trace, BadTrace> {
    if bytes.starts_with(&GZIP) {
        return Err(BadTrace::Gzip);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| BadTrace::NotText)?;
    let mut entries: Vec<Entry> = Vec::new();
    let mut arrivals_only = true;
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let fail = |reason: String| BadTrace::Line { line: at + 1, reason };
        let raw: Line = serde_json::from_str(line).map_err(|error| fail(error.to_string()))?;
        arrivals_only &= raw.p.is_none();
        let entry = entry(raw).map_err(fail)?;
        if entries.last().is_some_and(|last| last.at > entry.at) {
            return Err(fail("arrivals go backwards".to_owned()));
        }
        if entries.len() == REQUESTS_MAX {
            return Err(BadTrace::TooLong);
        }
        entries.push(entry);
    }
    if entries.is_empty() {
        return Err(BadTrace::Empty);
    }
    if arrivals_only {
        return Ok(Trace { entries, page_tokens: 0 });
    }
    let page = page_tokens.or_else(|| page_in_name(name));
    let page_tokens = match page {
        Some(page) => check(&entries, page)?,
        None => infer(&entries)?,
    };
    Ok(Trace { entries, page_tokens })
}

fn entry(raw: Line) -> Result<Entry, String> {
    let at = Duration::try_from_secs_f64(raw.t / 1000.0)
        .ok()
        .filter(|at| *at <= SPAN_MAX)
        .ok_or_else(|| format!("t is a time in ms within 30 days, not {}", raw.t))?;
    for (name, tokens) in [("in", raw.prompt), ("out", raw.out)] {
        if tokens > TOKENS_MAX {
            return Err(format!("{name} is {tokens} tokens and may be at most {TOKENS_MAX}"));
        }
    }
    let pages = raw.p.unwrap_or_default();
    if !pages.len().is_multiple_of(2) {
        return Err("p holds pairs of start and count".to_owned());
    }
    let runs: Vec<(u64, u64)> = pages.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let within =
        |(start, count): &(u64, u64)| *count <= raw.prompt && start.checked_add(*count).is_some();
    // Each count is at most `TOKENS_MAX`, so the sum of as many as a line can hold fits.
    if !runs.iter().all(within) || runs.iter().map(|run| run.1).sum::<u64>() > raw.prompt {
        return Err(format!("a prompt of {} tokens has not as many pages", raw.prompt));
    }
    Ok(Entry { at, prompt: raw.prompt, output: raw.out, runs })
}

/// `conversation_p512.jsonl` has pages of 512.
fn page_in_name(name: &str) -> Option<u64> {
    let stem = name.rsplit('/').next()?.split('.').next()?;
    stem.rsplit('_').next()?.strip_prefix('p')?.parse().ok()
}

/// Only full pages are listed, and all of them.
fn check(entries: &[Entry], page: u64) -> Result<u64, BadTrace> {
    for (at, entry) in entries.iter().enumerate() {
        let (listed, full) = (entry.page_count(), entry.prompt.checked_div(page));
        if full != Some(listed) {
            let reason = format!("{} tokens, {listed} full pages listed", entry.prompt);
            return Err(BadTrace::WrongPageSize { page, line: at + 1, reason });
        }
    }
    Ok(page)
}

/// The one power of two for which every request lists its full pages.
fn infer(entries: &[Entry]) -> Result<u64, BadTrace> {
    let (mut low, mut high) = (1, u64::MAX);
    for entry in entries {
        let count = entry.page_count();
        // floor(prompt / page) = count
        low = low.max(entry.prompt / (count + 1) + 1);
        high = high.min(entry.prompt.checked_div(count).unwrap_or(u64::MAX));
    }
    let fits = |power: &u64| (low..=high).contains(power);
    let mut powers = (0..40).map(|power| 1_u64 << power).filter(fits);
    match (powers.next(), powers.next()) {
        (Some(page), None) => check(entries, page),
        (Some(_) | None, _) => Err(BadTrace::PageSize { low, high }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> Vec<u8> {
        let root =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/traces");
        std::fs::read(root.join(name)).expect("a fixture of the repository")
    }

    fn tiny(name: &str) -> Trace {
        parse(&fixture(name), name, None).expect(name)
    }

    #[test]
    fn the_fixtures_are_read_whole() {
        for (name, requests, look_ups, distinct) in [
            ("tiny_branches.jsonl", 16, 160, 26),
            ("tiny_long_prompt.jsonl", 4, 40, 10),
            ("tiny_short.jsonl", 6, 6, 2),
        ] {
            let trace = tiny(name);
            let all: Vec<u64> = trace.entries.iter().flat_map(Entry::pages).collect();
            let ids: std::collections::BTreeSet<u64> = all.iter().copied().collect();
            let found = (trace.entries.len(), all.len(), ids.len());
            assert_eq!(found, (requests, look_ups, distinct), "{name}");
            assert_eq!(trace.page_tokens, 256, "{name}");
        }
        let short = tiny("tiny_short.jsonl");
        assert_eq!(short.entries[0].runs, []);
        assert_eq!(short.entries[1].at, Duration::from_secs(1));
        let branch = &tiny("tiny_branches.jsonl").entries[1];
        assert_eq!(branch.pages().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 10, 11, 12, 13]);
    }

    #[test]
    fn a_page_names_one_predecessor() {
        for name in ["tiny_multi_turn.jsonl", "tiny_shift.jsonl", "tiny_hot_prefix.jsonl"] {
            let mut before = std::collections::BTreeMap::new();
            for entry in tiny(name).entries {
                let mut last = None;
                for page in entry.pages() {
                    assert_eq!(*before.entry(page).or_insert(last), last, "{name}: page {page}");
                    last = Some(page);
                }
            }
        }
    }

    #[test]
    fn the_page_size_comes_from_option_name_or_content() {
        let line = br#"{"t":0,"in":1024,"out":1,"p":[0,2]}"#;
        let size = |name: &str, given| parse(line, name, given).map(|trace| trace.page_tokens);
        assert_eq!(size("x.jsonl", None), Ok(512));
        assert_eq!(size("a/b_p400.jsonl", None), Ok(400));
        assert_eq!(size("b_p400.jsonl", Some(350)), Ok(350));
        assert!(matches!(size("b_p256.jsonl", None), Err(BadTrace::WrongPageSize { .. })));
        let unclear = br#"{"t":0,"in":9,"out":1,"p":[]}"#;
        let error = parse(unclear, "-", None).expect_err("any large page fits");
        assert!(error.to_string().contains("--trace-page-tokens"), "{error}");
    }

    #[test]
    fn arrivals_may_come_without_pages() {
        let text = "{\"t\":0,\"in\":48,\"out\":10}\n\n{\"t\":52.5,\"in\":3180,\"out\":8}\n";
        let trace = parse(text.as_bytes(), "arrivals.jsonl", None).expect("valid");
        assert_eq!((trace.page_tokens, trace.entries.len()), (0, 2));
        assert_eq!(trace.entries[1].at, Duration::from_micros(52_500));
    }

    #[test]
    fn figures_beyond_all_bounds_are_refused() {
        for line in [
            r#"{"t":1e300,"in":1,"out":1}"#,
            r#"{"t":0,"in":18446744073709551615,"out":1,"p":[0,18446744073709551615]}"#,
            r#"{"t":0,"in":1,"out":10000001}"#,
            r#"{"t":0,"in":4,"out":1,"p":[0,3,9,3]}"#,
        ] {
            let refused = parse(line.as_bytes(), "x_p1", None);
            assert!(matches!(refused, Err(BadTrace::Line { line: 1, .. })), "{line}: {refused:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, reason) in [
            ("{\"t\":0,\"in\":1,\"out\":1}\nx", "line 2"),
            ("{\"t\":-1,\"in\":1,\"out\":1}", "line 1: t is a time"),
            ("{\"t\":5,\"in\":1,\"out\":1}\n{\"t\":1,\"in\":1,\"out\":1}", "line 2: arrivals go"),
            ("{\"t\":0,\"in\":9,\"out\":1,\"p\":[1]}", "line 1: p holds pairs"),
            ("{\"t\":0,\"in\":9,\"out\":1,\"p\":[1,18446744073709551615]}", "not as many pages"),
            ("{\"t\":0,\"out\":1}", "line 1: missing field `in`"),
            ("\n\n", "no request"),
        ] {
            let error = parse(text.as_bytes(), "-", None).expect_err(text);
            assert!(error.to_string().contains(reason), "{text:?}: {error}");
        }
        assert_eq!(parse(&[0x1f, 0x8b, 8, 0], "a.gz", None), Err(BadTrace::Gzip));
        assert_eq!(parse(&[0xff, 0xfe], "a", None), Err(BadTrace::NotText));
    }
}
