//! Every two flags about what is kept, together: they work, or one line says what would, and it
//! does.

use super::{GIB, host, resolved_of};
use crate::config::{Class, Finding, Findings, Resolved};

const ON: &str = "--enable-hierarchical-cache";

/// Flags of the tier with values that work, alone and with others.
const TIER: [(&str, &str); 10] = [
    ("--hicache-ratio", "3"),
    ("--hicache-size", "0.2"),
    ("--hicache-budget", "200MB"),
    ("--hicache-target", "130MB"),
    ("--hicache-write-policy", "write_through_selective"),
    ("--hicache-mem-layout", "layer_first"),
    ("--hicache-load-back-threshold", "20"),
    ("--hicache-numa", "0"),
    ("--hicache-huge-pages", "2MiB"),
    ("--hicache-lock-memory", "on"),
];

/// Others about what is kept.
const OTHERS: [(&str, &str); 7] = [
    ("--swa-retention", "tail"),
    ("--hit-curve", "off"),
    ("--hit-curve-max-pages", "5000"),
    ("--prefix-cache", "off"),
    ("--tp-size", "2"),
    ("--page-tokens", "32"),
    ("--max-context", "512"),
];

const SIZES: [&str; 3] = ["--hicache-ratio", "--hicache-size", "--hicache-budget"];

/// Flags and values, of which a later one replaces an earlier one.
#[derive(Clone, Debug)]
struct Line {
    model: &'static str,
    flags: Vec<(String, String)>,
}

impl Line {
    /// A model with a window, and pools of a known size.
    fn new() -> Self {
        let mut line = Self { model: "fake:window=100", flags: Vec::new() };
        line.set("--kv-pool-bytes 64MiB");
        line.set("--prefill-chunk 64");
        line
    }

    fn set(&mut self, flag: &str) -> &mut Self {
        let (flag, value) = flag.split_once([' ', '=']).unwrap_or((flag, ""));
        self.clear(flag);
        // The tier has one size.
        if SIZES.contains(&flag) {
            SIZES.iter().for_each(|other| self.clear(other));
        }
        self.flags.push((flag.to_owned(), value.to_owned()));
        self
    }

    fn clear(&mut self, flag: &str) {
        self.flags.retain(|(own, _)| own != flag);
    }

    /// As [`set`](Self::set), whatever the line says already.
    fn add(&mut self, (flag, value): (&str, &str)) -> &mut Self {
        self.flags.push((flag.to_owned(), value.to_owned()));
        self
    }

    /// Does what a finding says.
    fn follow(&mut self, fix: &str) {
        if let Some(flag) = fix.strip_prefix("no ") {
            self.clear(flag);
            return;
        }
        let ends = [", ", " (", " alone", " instead"];
        let end = ends.iter().filter_map(|end| fix.find(end)).min().unwrap_or(fix.len());
        let words: Vec<&str> = fix[..end].split(' ').collect();
        let mut words = words.as_slice();
        while let [flag, rest @ ..] = words {
            assert!(flag.starts_with("--"), "{fix:?} begins with a flag");
            let value = rest.first().filter(|word| !word.starts_with("--"));
            self.set(&value.map_or((*flag).to_owned(), |value| format!("{flag} {value}")));
            words = &rest[usize::from(value.is_some())..];
        }
    }

    fn resolve(&self) -> Result<Resolved, Findings> {
        let flag = |(flag, value): &(String, String)| match value.as_str() {
            "" => flag.clone(),
            // A bare word behind a switch would be an argument of its own.
            value if flag.starts_with("--enable") || flag.ends_with("-memory") => {
                format!("{flag}={value}")
            }
            value => format!("{flag} {value}"),
        };
        let flags: Vec<String> = self.flags.iter().map(flag).collect();
        resolved_of(self.model, &flags.join(" "), host(8 * GIB))
    }

    /// What is found, errors and advice.
    fn findings(&self) -> Vec<Finding> {
        match self.resolve() {
            Ok(resolved) => resolved.advice.iter().cloned().collect(),
            Err(found) => found.iter().cloned().collect(),
        }
    }
}

/// What these two lead to where there is a tier, if anything.
fn expected(a: &str, b: &str) -> Option<&'static str> {
    let has = |flag: &str| a == flag || b == flag;
    if has("--prefix-cache") {
        return Some("HIC004");
    }
    if SIZES.contains(&a) && SIZES.contains(&b) {
        return Some("HIC002");
    }
    (has("--hit-curve") && has("--hit-curve-max-pages")).then_some("CFG010")
}

/// The findings of a line: those expected, of one line each that names flag and value; after each
/// is followed, none of that name is left, and in the end it works.
fn check(line: &Line, expected: &[&str]) {
    let found = line.findings();
    let mut ids: Vec<&str> = found.iter().map(|found| found.id).collect();
    ids.dedup();
    assert_eq!(ids, expected, "{line:?}: {found:?}");
    let mut followed = line.clone();
    for finding in &found {
        let text = finding.to_string();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains(finding.flag) && text.contains(&finding.value), "{text}");
        followed.follow(&finding.fix);
    }
    if let Err(left) = followed.resolve() {
        panic!("{found:?} leads from {line:?} to {followed:?}, which does not work: {left}");
    }
}

#[test]
fn two_flags_work_together_or_one_line_says_what_does() {
    let all: Vec<_> = TIER.iter().chain(&OTHERS).copied().collect();
    for (at, a) in all.iter().enumerate() {
        for b in &all[at + 1..] {
            let mut line = Line::new();
            line.set(ON).add(*a).add(*b);
            let ids: Vec<&str> = expected(a.0, b.0).into_iter().collect();
            check(&line, &ids);
        }
    }
}

#[test]
fn a_flag_of_the_tier_needs_the_tier_whatever_is_beside_it() {
    for a in TIER {
        for b in TIER.iter().chain(&OTHERS).filter(|b| b.0 != a.0) {
            let mut line = Line::new();
            line.add(a).add(*b);
            let found = line.findings();
            let needs = found.iter().find(|found| found.id == "HIC003");
            let needs = needs.unwrap_or_else(|| panic!("{line:?}: {found:?}"));
            assert_eq!(needs.class, Class::Configuration);
            assert!([a.0, b.0].contains(&needs.flag), "{needs}");
            assert!(needs.fix.starts_with(ON), "{needs}");
        }
    }
    for b in OTHERS {
        let mut line = Line::new();
        line.add(b);
        assert!(line.resolve().is_ok(), "{line:?}");
    }
}

#[test]
fn each_value_that_cannot_work_leads_to_one_that_does() {
    let lines = [
        ("--hicache-ratio 0.5", "HIC005"),
        ("--hicache-ratio 1e12", "HIC005"),
        ("--hicache-ratio 1000", "HIC008"),
        ("--hicache-size 0.001", "HIC005"),
        ("--hicache-size 150", "HIC008"),
        ("--hicache-budget 0B", "HIC005"),
        ("--hicache-budget 1MB", "HIC005"),
        ("--hicache-budget 300GB", "HIC008"),
        ("--hicache-target 1MB", "HIC009"),
        ("--hicache-target 300GB", "HIC009"),
        ("--hicache-load-back-threshold 100000", "HIC012"),
        ("--hicache-numa 7", "HIC007"),
        ("--hicache-huge-pages 1GiB", "HIC013"),
        ("--swa-retention tail_every_100", "CFG009"),
        ("--hit-curve-max-pages 0", "CFG001"),
    ];
    for (flag, id) in lines {
        let mut line = Line::new();
        check(line.set(ON).set(flag), &[id]);
    }
    // Without pools of a given size, the size of the tier is to blame as well.
    for (flag, id) in [("--hicache-size 150", "HIC008"), ("--hicache-budget 300GB", "HIC008")] {
        let mut line = Line::new();
        line.set(ON).clear("--kv-pool-bytes");
        check(line.set(flag), &[id]);
    }
    let mut line = Line { model: "fake", ..Line::new() };
    check(line.set("--swa-retention tail"), &["CFG010"]);
    let mut short = Line::new();
    short.set(ON).set("--max-context 64");
    check(short.set("--hicache-load-back-threshold 49"), &["HIC012"]);
    check(short.set("--hicache-load-back-threshold 48"), &[]);
}
