//! Rules and series by chance, the same for the same seed.

use std::fmt::Write;

use super::{Point, Scenario, UNIT_MS};
use crate::store::{Labels, NAME};

/// Seeds of one run of the test.
pub(super) const SEEDS: u64 = 30;

const EVERY_MS: i64 = 14 * UNIT_MS;
const EVALUATIONS: i64 = 60;
const SAMPLE_MS: i64 = 7 * UNIT_MS;

/// Expressions of vectors, also of what other rules have written. Numbers are whole, so that sums
/// do not depend on their order.
const VECTORS: &[&str] = &[
    "m0",
    "m1 > 4",
    "m2 < 6",
    "m0 >= 3 and on (job) m1 > 2",
    "sum by (job) (m0)",
    "max by (inst) (m1) - min by (inst) (m2)",
    "count by (job) (m2 > 3)",
    "m0 unless on (job, inst) m1 > 5",
    "min_over_time(m0[30s]) >= 0 or m1",
    "count_over_time(m1[50s])",
    "changes(m2[2m])",
    "absent(m0{job=\"a\"})",
    "absent(m9{x=\"y\"})",
    "vector(time() % 40 > bool 20) > 0",
    "5",
    "time()",
    "m0 / (m1 - m1)",
    "count by (job) (ALERTS{alertstate=\"firing\"})",
    "count(ALERTS) > 3",
    "ALERTS_FOR_STATE - 1",
    "rec:one",
    "rec:one > 3",
    "rec:two + 1",
    "sum by (job) (rec:two)",
    "label_replace(m1, \"inst\", \"9\", \"inst\", \"1\") > 6",
    "m0{job=\"b\"} > 2 < 8",
];

const LABELS: &[(&str, &str)] = &[
    ("severity", "page"),
    ("team", "{{ $labels.job }}"),
    ("level", "{{ if gt $value 5.0 }}high{{ else }}low{{ end }}"),
    ("none", "{{ $labels.nothing }}"),
    ("inst", "{{ $labels.inst | toUpper }}x"),
    ("job", ""),
    ("alertname", "other"),
];

const ANNOTATIONS: &[(&str, &str)] = &[
    ("summary", "{{ $labels.job }}/{{ $labels.inst }} is {{ $value }}"),
    ("human", "{{ $value | humanize }} {{ $value | humanize1024 }} {{ humanizeDuration $value }}"),
    ("share", "{{ $value | humanizePercentage }} at {{ $value | humanizeTimestamp }}"),
    ("printed", "{{ printf \"%.2f|%6.1f|%-5s|%q|%v\" .Value $value $labels.job \"x\" .Value }}"),
    ("branch", "{{ if eq $labels.job \"a\" \"b\" }}ab{{ else if le $value 3.0 }}low {{- end }} z"),
    ("text", "{{ title $labels.job }} {{ $labels.job | reReplaceAll \"(.)\" \"<$1>\" }}"),
    ("all", "{{ $labels }} {{ print 1 2.5 \"x\" true }} {{ len $labels.job }}"),
    ("empty", "{{ $labels.nothing }}"),
];

/// Splitmix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        let at = self.below(of.len() as u64);
        of[usize::try_from(at).expect("below a length")]
    }
}

pub(super) fn scenario(seed: u64) -> Scenario {
    let mut chance = Chance(seed);
    let mut series = Vec::new();
    for metric in ["m0", "m1", "m2"] {
        for job in ["a", "b", "c"] {
            for inst in ["1", "2"] {
                let pairs = [(NAME, metric), ("job", job), ("inst", inst)];
                let pairs = pairs.map(|(n, v)| (n.to_owned(), v.to_owned()));
                if chance.below(5) > 0 {
                    series.push((Labels::new(pairs), points(&mut chance)));
                }
            }
        }
    }
    let files =
        (0..=chance.below(2)).map(|file| (format!("r{file}.yml"), rules(file, &mut chance)));
    Scenario {
        name: format!("seed-{seed}"),
        files: files.collect(),
        series,
        interval_ms: SAMPLE_MS,
        every_ms: EVERY_MS,
        evaluations: EVALUATIONS,
    }
}

/// Levels that stay for a while, with gaps and ends.
fn points(chance: &mut Chance) -> Vec<Point> {
    let count = usize::try_from(EVALUATIONS * EVERY_MS / SAMPLE_MS).expect("a small number");
    let mut out = Vec::with_capacity(count);
    while out.len() < count {
        let length = 1 + chance.below(25);
        let point = match chance.below(10) {
            0 => Point::Gap,
            1 => Point::Stale,
            2 if chance.below(6) == 0 => Point::Value(f64::NAN),
            _ => Point::Value(chance.below(11) as f64),
        };
        let length = if point == Point::Stale { 1 } else { length };
        out.extend((0..length).map(|_| point));
    }
    out.truncate(count);
    out
}

fn rules(file: u64, chance: &mut Chance) -> String {
    let mut out = String::from("groups:\n");
    for group in 0..=chance.below(2) {
        writeln!(out, "  - name: g{file}{group}").expect("writing to a string");
        if chance.below(16) == 0 {
            writeln!(out, "    limit: {}", 1 + chance.below(6)).expect("writing to a string");
        }
        out.push_str("    rules:\n");
        for rule in 0..2 + chance.below(4) {
            if chance.below(3) == 0 {
                record(&mut out, chance);
            } else {
                alert(&mut out, &format!("A{file}{group}{rule}"), chance);
            }
        }
    }
    out
}

fn record(out: &mut String, chance: &mut Chance) {
    let name = chance.pick(&["rec:one", "rec:two", "rec:three"]);
    // A name that is written twice must differ in its labels, or the samples collide.
    let number = chance.next();
    let expr = json_text(chance.pick(VECTORS));
    writeln!(
        out,
        "      - record: {name}\n        expr: {expr}\n        labels: {{rule: r{number}}}"
    )
    .expect("writing to a string");
}

fn alert(out: &mut String, name: &str, chance: &mut Chance) {
    let expr = json_text(chance.pick(VECTORS));
    writeln!(out, "      - alert: {name}\n        expr: {expr}").expect("writing to a string");
    for field in ["for", "keep_firing_for"] {
        // Often exactly a number of evaluations, where one millisecond decides.
        let turns = chance.below(6) as i64 * EVERY_MS;
        let off = chance.pick(&[0, 0, 0, 1, -1]);
        if turns > 0 && chance.below(3) > 0 {
            writeln!(out, "        {field}: {}ms", turns + off).expect("writing to a string");
        }
    }
    for (title, texts, rarity) in [("labels", LABELS, 7), ("annotations", ANNOTATIONS, 3)] {
        let chosen: Vec<String> = texts
            .iter()
            .filter(|_| chance.below(rarity) == 0)
            .map(|(name, text)| format!("          {name}: {}\n", json_text(text)))
            .collect();
        if !chosen.is_empty() {
            write!(out, "        {title}:\n{}", chosen.concat()).expect("writing to a string");
        }
    }
}

/// A quoted text, as YAML takes it.
fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
