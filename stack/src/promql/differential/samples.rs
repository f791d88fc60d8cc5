//! Samples that bring the generated expressions to life: every metric that one of them names, with
//! the labels of its declaration and the values that are asked for, through phases of calm, load,
//! large numbers and failure; with counters that start anew, gaps, and series that end and return.

use std::collections::{BTreeMap, BTreeSet};

use metric_catalog::def::{Info, Kind, Label, Source, Values};
use metric_catalog::target::Target;

use crate::promql::ast::{Expr, Selector};
use crate::promql::{Query, parse_duration};
use crate::store::{Labels, MatchOp, Matcher, NAME, STALE, Store};

/// Milliseconds of the first sample: off the grid of all queries.
pub(super) const FROM_MS: i64 = 1_700_000_000_250;

/// Milliseconds between two samples of a series.
pub(super) const INTERVAL_MS: i64 = 15_000;

/// Samples of a series: an hour less a little, which is what remote write takes in any order.
pub(super) const COUNT: i64 = 236;

/// Samples of a phase.
const PHASE: i64 = COUNT / 4;

/// Series of one metric at most, a histogram counted as one.
const SETS_MAX: usize = 24;

/// What is asked of one metric.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// For each label the values that a matcher would take.
    labels: BTreeMap<String, BTreeSet<String>>,
    /// For each selector a value of each label that it restricts; empty for none.
    together: BTreeSet<Vec<(String, String)>>,
}

/// What is asked of each metric.
pub(super) type Wanted = BTreeMap<String, Asked>;

/// The metrics that the expressions name.
pub(super) fn wanted(queries: &BTreeSet<String>) -> Wanted {
    let mut out = Wanted::new();
    for query in queries {
        let expr = Query::parse(query).unwrap_or_else(|e| panic!("{query}: {e}")).expr;
        selectors(&expr, &mut |selector| {
            let name = selector.matchers.iter().find(|m| m.label == NAME).and_then(Matcher::exact);
            let Some(name) = name else { return };
            let asked = out.entry(name.to_owned()).or_default();
            let mut together = Vec::new();
            for matcher in selector.matchers.iter().filter(|m| m.label != NAME) {
                let values = taken(matcher);
                let first = match matcher.exact() {
                    Some(value) => Some(value.to_owned()),
                    None => values.first().cloned(),
                };
                together.extend(first.map(|value| (matcher.label.clone(), value)));
                asked.labels.entry(matcher.label.clone()).or_default().extend(values);
            }
            asked.together.insert(together);
        });
    }
    out
}

/// Values that the matcher takes, as far as its text gives some.
fn taken(matcher: &Matcher) -> Vec<String> {
    if let MatchOp::NotEqual | MatchOp::NotRegex = matcher.op() {
        return Vec::new();
    }
    let literal = |text: &str| {
        let text = text.replace(".+", "x").replace(".*", "x").replace("[0-9]", "1");
        text.replace(['\\', '(', ')', '^', '$', '?', '+'], "")
    };
    let pattern = matcher.pattern();
    let anything = |text: &str| [".*", ".+"].contains(&text);
    let parts = pattern.split(['|', '(', ')']).filter(|part| !anything(part));
    let whole = (!pattern.contains('|') && !anything(pattern)).then(|| literal(pattern));
    let exact = matcher.exact().map(str::to_owned);
    let candidates = parts.map(literal).chain(whole).chain(exact);
    candidates.filter(|value| !value.is_empty() && matcher.matches(value)).take(4).collect()
}

fn selectors(expr: &Expr, visit: &mut impl FnMut(&Selector)) {
    match expr {
        Expr::Number(_) | Expr::String(_) => {}
        Expr::Selector(selector) | Expr::Range { selector, .. } => visit(selector),
        Expr::Subquery(subquery) => selectors(&subquery.expr, visit),
        Expr::Negate(inner) => selectors(inner, visit),
        Expr::Binary(node) => {
            selectors(&node.left, visit);
            selectors(&node.right, visit);
        }
        Expr::Aggregate(node) => selectors(&node.expr, visit),
        Expr::Call(call) => call.args.iter().for_each(|arg| selectors(arg, visit)),
    }
}

/// A metric with all that its series need.
struct Family {
    name: String,
    kind: Kind,
    /// Upper bounds as texts, `+Inf` included; empty unless it is a histogram.
    bounds: Vec<String>,
    /// Labels with their values, the first of each being the usual one.
    labels: BTreeMap<String, Vec<String>>,
    /// Values that occur together.
    together: BTreeSet<Vec<(String, String)>>,
}

/// Every declared metric, by name: ours and those of the other engines.
fn declared() -> BTreeMap<&'static str, &'static Info> {
    let engines = Target::ALL.iter().filter_map(|target| match target {
        Target::Sightline => None,
        Target::Engine(engine) => Some(engine.families()),
    });
    metric_catalog::all().chain(engines.flatten()).map(|info| (info.name, info)).collect()
}

/// Usual values of labels that targets and processes have.
fn usual(label: &str, info: Option<&Info>) -> Vec<String> {
    let source = info.map(|info| info.source);
    let roles = || -> Vec<String> {
        let own = info.map_or(&[][..], |info| info.roles).iter().map(|role| role.value().into());
        let own: Vec<String> = own.collect();
        if own.is_empty() {
            ["unified", "prefill", "decode"].map(str::to_owned).to_vec()
        } else {
            own
        }
    };
    let texts: &[&str] = match label {
        "cluster" => &["c1"],
        "node" => &["n1", "n2"],
        "instance" => &["i1:8000", "i2:8000"],
        "model_name" => &["m1"],
        "engine_role" | "engine_type" => return roles(),
        "job" => match source {
            Some(Source::Node) => &["sightline-node"],
            Some(Source::Server | Source::Process) => {
                return roles().iter().map(|role| format!("sightline-{role}")).collect();
            }
            Some(Source::Engine(_)) | None => &["engine"],
        },
        _ => &["0", "1"],
    };
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn family(name: &str, mut asked: Asked, info: Option<&Info>) -> Family {
    let mut labels: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let known = ["cluster", "node", "job", "instance", "model_name"];
    let common = info.map_or(&known[..], |info| info.common_labels());
    let own = info.map_or(&[][..], |info| info.labels);
    for label in common.iter().copied().chain(own.iter().map(|label| label.name)) {
        let closed = own.iter().find(|known| known.name == label).map(|known| known.values);
        let values: Vec<String> = match closed {
            Some(Values::Closed(values)) => {
                values.iter().take(3).map(|value| (*value).to_owned()).collect()
            }
            Some(Values::Open { .. }) | None => usual(label, info),
        };
        labels.insert(label.to_owned(), values);
    }
    // A role that does not export it has no series of it, whatever is asked for.
    if info.is_some_and(|info| !info.roles.is_empty()) {
        let roles = usual("engine_role", info);
        let occurs = |value: &String| roles.contains(value);
        asked.labels.entry("engine_role".to_owned()).or_default().retain(occurs);
        let occurs = |(label, value): &(String, String)| label != "engine_role" || occurs(value);
        asked.together.retain(|together| together.iter().all(occurs));
    }
    for (label, values) in asked.labels.iter().filter(|(label, _)| *label != "le") {
        let listed = labels.entry(label.clone()).or_insert_with(|| {
            let is_job = known.contains(&label.as_str());
            if is_job { Vec::new() } else { vec!["other".to_owned()] }
        });
        let new: Vec<String> = values.iter().filter(|v| !listed.contains(v)).cloned().collect();
        // What somebody asks for is the usual case.
        listed.splice(0..0, new);
    }
    labels.retain(|_, values| !values.is_empty());
    let cumulative = ["_total", "_count", "_sum", "_bucket"].iter().any(|end| name.ends_with(end));
    let kind = info.map_or(if cumulative { Kind::Counter } else { Kind::Gauge }, |info| info.kind);
    let (bounds, together) = (bounds(info, kind), asked.together);
    Family { name: name.to_owned(), kind, bounds, labels, together }
}

/// Some of the declared bounds: the first, the last and few between.
fn bounds(info: Option<&Info>, kind: Kind) -> Vec<String> {
    if kind != Kind::Histogram {
        return Vec::new();
    }
    let all = info.map_or(&[][..], |info| info.buckets);
    let every = (all.len() / 4).max(1);
    let kept = all.iter().enumerate().filter(|(at, _)| at % every == 0 || at + 1 == all.len());
    kept.map(|(_, bound)| format!("{bound:?}")).chain(["+Inf".to_owned()]).collect()
}

impl Family {
    /// Label sets: the usual one, each other value in its place, and all together where few.
    fn sets(&self) -> Vec<Labels> {
        let first = |(label, values): (&String, &Vec<String>)| (label.clone(), values[0].clone());
        let base = Labels::new(self.labels.iter().map(first));
        let mut sets = BTreeSet::from([base.clone()]);
        for together in &self.together {
            let with = |set: Labels, (label, value): &(String, String)| set.with(label, value);
            let set = together.iter().filter(|(label, _)| label != "le").fold(base.clone(), with);
            for label in ["instance", "engine_role"] {
                sets.extend(self.values(label).map(|value| set.with(label, value)));
            }
            sets.insert(set);
        }
        // Both instances and roles of everything: most expressions join by them.
        for pair in [["instance", "engine_role"], ["instance", "node"]] {
            for (a, b) in
                self.values(pair[0]).flat_map(|a| self.values(pair[1]).map(move |b| (a, b)))
            {
                sets.insert(base.with(pair[0], a).with(pair[1], b));
            }
        }
        let mut alone: Vec<Labels> = Vec::new();
        for (label, values) in &self.labels {
            alone.extend(values.iter().skip(1).map(|value| base.with(label, value)));
        }
        let product = self.labels.values().map(Vec::len).product::<usize>();
        if product <= SETS_MAX {
            let mut all = vec![base];
            for (label, values) in &self.labels {
                let with =
                    |set: &Labels| values.iter().map(|v| set.with(label, v)).collect::<Vec<_>>();
                all = all.iter().flat_map(with).collect();
            }
            alone = all;
        }
        sets.extend(alone.into_iter().take(SETS_MAX));
        let placed: BTreeSet<Labels> = sets.iter().map(placed).collect();
        placed.into_iter().collect()
    }

    fn values(&self, label: &str) -> impl Iterator<Item = &str> + Clone {
        self.labels.get(label).into_iter().flatten().map(String::as_str)
    }
}

/// A process runs on one host.
fn placed(set: &Labels) -> Labels {
    match (set.get("instance"), set.get("node")) {
        (Some("i2:8000"), Some(_)) => set.with("node", "n2"),
        (Some(_), Some(_)) => set.with("node", "n1"),
        (_, None) | (None, _) => set.clone(),
    }
}

/// Noise between 0 and 1, the same everywhere for the same seed.
fn noise(seed: u64) -> f64 {
    let mut z = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) % 100_000) as f64 / 100_000.0
}

fn hash(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// What a series has at its `at`th sample.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Presence {
    Sample,
    Gap,
    End,
}

/// Some series pause, some end and return, each at times of its own.
fn presence(seed: u64, at: i64) -> Presence {
    let place = 20 + (seed / 7 % (COUNT.cast_unsigned() - 60)).cast_signed();
    match (seed % 10, at - place) {
        // Longer than what instant selectors look back.
        (0, 0..25) => Presence::Gap,
        (1, 0) => Presence::End,
        (1, 1..6) => Presence::Gap,
        // New in the middle of it.
        (3, ..0) if place < COUNT - 50 => Presence::Gap,
        (2, 0) if place > COUNT / 2 => Presence::End,
        (2, 1..) if place > COUNT / 2 => Presence::Gap,
        _ => Presence::Sample,
    }
}

/// A counter at each sample: its speed changes with the phase, some stand still at last, and some
/// start anew.
///
/// It is far from zero, and starts anew at half its value: versions of Prometheus differ in how far
/// they extrapolate a counter whose first sample in a window is near zero.
fn counts(seed: u64) -> Vec<f64> {
    let anew = 30 + (seed / 11 % 150).cast_signed();
    let speed = [1.0, 40.0, 1000.0, if seed.is_multiple_of(2) { 7.0 } else { 0.0 }];
    let mut value = 1e8 + (1e6 * noise(seed)).floor();
    let one = |at: i64| {
        if at == anew && seed.is_multiple_of(3) {
            value = (value / 2.0).floor();
        }
        let phase = usize::try_from((at / PHASE).min(3)).expect("few phases");
        value += (speed[phase] * noise(seed ^ at.cast_unsigned())).round();
        value
    };
    (0..COUNT).map(one).collect()
}

/// The value of a gauge of that name.
fn gauge(name: &str, seed: u64, at: i64) -> f64 {
    let random = noise(seed ^ (at * 6007).cast_unsigned());
    if name.ends_with("_info") {
        1.0
    } else if name.ends_with("timestamp_seconds") {
        // Some never, some a while ago, some soon.
        let now = (FROM_MS + at * INTERVAL_MS) / 1000;
        if seed.is_multiple_of(5) { 0.0 } else { now as f64 + (random * 3000.0).floor() - 1800.0 }
    } else if name.contains("headroom") && at / PHASE == 2 {
        -level(seed, at)
    } else {
        level(seed, at)
    }
}

/// The value of a gauge: shares, numbers of things, bytes, and yes or no.
fn level(seed: u64, at: i64) -> f64 {
    let random = noise(seed ^ (at * 7919).cast_unsigned());
    match at / PHASE {
        0 => random,
        1 => (random * 200.0).floor() + (seed % 97) as f64 / 1000.0,
        2 => (random * 4e11).floor() + (seed % 997) as f64,
        _ => f64::from(random < 0.7),
    }
}

/// Appends all series of the metrics that are wanted.
pub(super) fn fill(store: &Store, wanted: &Wanted) {
    let declared = declared();
    let mut families: BTreeMap<&str, Asked> = BTreeMap::new();
    for (name, asked) in wanted {
        let base = ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end));
        let base =
            base.filter(|base| declared.get(base).is_some_and(|i| i.kind == Kind::Histogram));
        let merged = families.entry(base.unwrap_or(name)).or_default();
        for (label, values) in &asked.labels {
            merged.labels.entry(label.clone()).or_default().extend(values.iter().cloned());
        }
        merged.together.extend(asked.together.iter().cloned());
    }
    for (name, asked) in families {
        let family = family(name, asked, declared.get(name).copied());
        for set in family.sets() {
            let seed = hash(&format!("{name}{set}"));
            match family.kind {
                Kind::Gauge => {
                    append(store, &set.with(NAME, name), seed, |at| gauge(name, seed, at));
                }
                Kind::Counter => {
                    let counts = counts(seed);
                    append(store, &set.with(NAME, name), seed, |at| counts[place(at)]);
                }
                Kind::Histogram => histogram(store, &family, &set, seed),
            }
        }
    }
}

fn place(at: i64) -> usize {
    usize::try_from(at).expect("not negative")
}

fn append(store: &Store, labels: &Labels, seed: u64, value: impl Fn(i64) -> f64) {
    let series = store.series(labels).expect("there is room");
    let samples = (0..COUNT).filter_map(|at| {
        let value = match presence(seed, at) {
            Presence::Sample => value(at),
            Presence::Gap => return None,
            Presence::End => STALE,
        };
        Some((series, FROM_MS + at * INTERVAL_MS, value))
    });
    store.append(&samples.collect::<Vec<_>>());
}

/// A series by its name alone, for expressions that cover the language.
pub(super) fn own(store: &Store, labels: &Labels, rank: usize) {
    let seed = hash(&labels.without_name().with("le", "").to_string()) | 7;
    let counts = counts(seed);
    match labels.get(NAME) {
        Some("diff_gauge") => append(store, labels, seed, |at| level(seed, at)),
        Some("diff_gone") => {
            append(store, labels, seed, |at| if at < COUNT / 2 { 7.0 } else { STALE });
        }
        _ => append(store, labels, seed, |at| {
            (counts[place(at)] * (rank as f64 + 1.0) / 5.0).floor()
        }),
    }
}

/// Buckets that grow together; observations become slower from phase to phase.
fn histogram(store: &Store, family: &Family, set: &Labels, seed: u64) {
    let last = family.bounds.len() - 1;
    let counts = counts(seed);
    let total = |at: i64| counts[place(at)];
    for (rank, bound) in family.bounds.iter().enumerate() {
        let labels = set.with(NAME, &format!("{}_bucket", family.name)).with("le", bound);
        append(store, &labels, seed, |at| {
            let share = (rank as f64 + 1.0) / (last as f64 + 1.0);
            // Not the half of the whole: a quantile between two buckets would be left to chance.
            (total(at) * share.powf(1.13 + (seed % 4) as f64 * 0.71)).floor()
        });
    }
    let name = |end: &str| set.with(NAME, &format!("{}{end}", family.name));
    append(store, &name("_count"), seed, total);
    append(store, &name("_sum"), seed, |at| total(at) * 0.37);
}

/// The times of a range query in milliseconds: all phases, off the grid of samples.
pub(super) fn window(step: &str) -> (i64, i64, i64) {
    let step = parse_duration(step).expect("a duration");
    (FROM_MS + 310_250, FROM_MS + (COUNT - 1) * INTERVAL_MS - 100, step)
}
