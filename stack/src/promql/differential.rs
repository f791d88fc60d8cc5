//! The same questions to this engine and to a real Prometheus, over the same samples.
//!
//! Asked are all expressions of the generated boards and rules of all targets, and a list that
//! covers the language. The rules are evaluated here first, so that what they record is there as
//! well. Times lie between samples, where window edges of all Prometheus versions agree. A second
//! test compares the other parts of the API.
//!
//! `SIGHTLINE_DIFFERENTIAL=N` asks at N times and over N ranges in place of two and one, and for
//! ten times as many steps.

mod api;
mod language;
mod remote;
mod samples;

use std::collections::{BTreeMap, BTreeSet};

use dashboards::client::address::form;
use serde_json::Value;

use super::*;
use crate::prometheus::{Folder, Prometheus, missing};
use crate::rules::{Filter, Rules};
use crate::store::{Bounds, NAME};
use language::LANGUAGE;
use samples::{COUNT, FROM_MS, INTERVAL_MS};

/// Answers may differ by this share of the larger value: sums are made in another order.
const TOLERANCE: f64 = 1e-9;

/// Milliseconds between two evaluations of the rules, less than what a selector looks back.
const RULES_EVERY_MS: i64 = 240_125;

/// Of a hundred expressions, so many must have given something.
const ANSWERED_PERCENT: usize = 95;

/// What the built-in variables of a board stand for; all others for everything.
fn value_of(name: &str, board: &Value) -> String {
    match name {
        "__rate_interval" => "1m".to_owned(),
        "__interval" => "15s".to_owned(),
        "__range" => "15m".to_owned(),
        "__range_s" => "900".to_owned(),
        _ => {
            let listed = board["templating"]["list"].as_array().into_iter().flatten();
            let variable = listed.into_iter().find(|variable| variable["name"] == name);
            match variable {
                Some(variable) if variable["type"] == "custom" => {
                    let query = variable["query"].as_str().unwrap_or_default();
                    query.split(',').next().unwrap_or_default().trim().to_owned()
                }
                Some(_) | None => ".*".to_owned(),
            }
        }
    }
}

/// An expression of a board with its variables filled in.
fn filled(text: &str, board: &Value) -> String {
    let pattern = r"\$\{([A-Za-z_]\w*)(?::\w+)?\}|\[\[(\w+)\]\]|\$([A-Za-z_]\w*)";
    let pattern = regex::Regex::new(pattern).expect("a pattern");
    let value = |found: &regex::Captures<'_>| {
        let name = (1..=3).find_map(|group| found.get(group)).expect("one of them");
        value_of(name.as_str(), board)
    };
    pattern.replace_all(text, value).into_owned()
}

fn expressions(json: &Value, board: &Value, found: &mut BTreeSet<String>) {
    if let Some(expr) = json.get("expr").and_then(Value::as_str) {
        found.insert(filled(expr, board));
    }
    match json {
        Value::Array(items) => items.iter().for_each(|item| expressions(item, board, found)),
        Value::Object(fields) => fields.values().for_each(|item| expressions(item, board, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn rules() -> Rules {
    Rules::parse(&crate::console::all_rule_files()).expect("generated rules are valid")
}

/// Expressions of all boards and rules.
fn generated(rules: &Rules) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for json in crate::console::board_texts() {
        let board: Value = serde_json::from_slice(&json).expect("boards are JSON");
        expressions(&board, &board, &mut found);
    }
    let groups = rules.groups_json(&Filter::default());
    let rules = groups["groups"].as_array().into_iter().flatten();
    for rule in rules.flat_map(|g| g["rules"].as_array().into_iter().flatten()) {
        found.extend(rule["query"].as_str().map(str::to_owned));
    }
    found
}

/// Names that rules write.
fn recorded(rules: &Rules) -> BTreeSet<String> {
    let groups = rules.groups_json(&Filter { no_alerting: true, ..Filter::default() });
    let groups = groups["groups"].as_array().into_iter().flatten();
    let rules = groups.flat_map(|g| g["rules"].as_array().into_iter().flatten());
    let names = rules.filter_map(|rule| rule["name"].as_str().map(str::to_owned));
    names.chain(["ALERTS".to_owned(), "ALERTS_FOR_STATE".to_owned()]).collect()
}

/// Series that the language is tried on.
fn own_series(store: &Store) {
    let bounds = ["0.1", "0.5", "1", "5", "+Inf"];
    let names =
        [("diff_counter_total", 3), ("diff_gauge", 3), ("diff_gone", 1), ("diff_bucket", 1)];
    for (name, values) in names {
        for a in ["x", "yy", "z"].iter().take(values) {
            for b in ["1", "2"] {
                let pairs = [(NAME, name), ("a", *a), ("b", b)];
                let set = Labels::new(pairs.map(|(n, v)| (n.to_owned(), v.to_owned())));
                if name == "diff_bucket" {
                    for (rank, le) in bounds.iter().enumerate() {
                        samples::own(store, &set.with("le", le), rank);
                    }
                } else {
                    samples::own(store, &set, 1);
                }
            }
        }
    }
}

/// A store with everything, what the rules record among it, and a Prometheus with the same.
async fn both(rules: &Rules, queries: &BTreeSet<String>, folder: &Folder) -> (Store, Prometheus) {
    let bounds = Bounds { series_max: 1 << 20, bytes_max: 1 << 30, ..Bounds::default() };
    let store = Store::new(bounds);
    let mut wanted = samples::wanted(queries);
    let written = recorded(rules);
    wanted.retain(|name, _| !written.contains(name));
    samples::fill(&store, &wanted);
    own_series(&store);
    let (mut time, end) = (FROM_MS + 100_125, FROM_MS + (COUNT - 1) * INTERVAL_MS);
    let mut failing = BTreeSet::new();
    while time < end {
        let errors = rules.evaluate(&store, time);
        failing.extend(errors);
        time += RULES_EVERY_MS;
    }
    failing.iter().for_each(|error| println!("RULE {error}"));
    let everything = store.select(&[], i64::MIN, i64::MAX);
    let samples: usize = everything.iter().map(|one| one.samples.len()).sum();
    println!("{} series with {samples} samples", everything.len());
    let prometheus = Prometheus::start(&folder.0, "global: {}\n").await;
    for body in remote::bodies(&everything) {
        prometheus.write(body).await;
    }
    (store, prometheus)
}

/// One question: an expression at a time, or every step from there to an end (milliseconds).
#[derive(Debug, Clone, Copy)]
enum When {
    At(i64),
    Range(i64, i64, i64),
}

/// Series by their labels, points by their time.
type Comparable = BTreeMap<String, Vec<(i64, f64)>>;

fn comparable(data: &Value) -> Comparable {
    let point = |point: &Value| {
        let time = point[0].as_f64().expect("a time") * 1000.0;
        let value = match point[1].as_str().expect("a value") {
            "+Inf" => f64::INFINITY,
            "-Inf" => f64::NEG_INFINITY,
            text => text.parse().expect("a number"),
        };
        (time.round() as i64, value)
    };
    let result = &data["result"];
    if data["resultType"] == "scalar" {
        return BTreeMap::from([(String::new(), vec![point(result)])]);
    }
    let series = result.as_array().into_iter().flatten().map(|one| {
        let labels = one["metric"].as_object().into_iter().flatten();
        let labels: BTreeMap<_, _> = labels.map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let points = one["values"].as_array().into_iter().flatten().chain(one.get("value"));
        (format!("{labels:?}"), points.map(point).collect())
    });
    series.collect()
}

/// Whether two values are the same but for the order of sums.
fn close(a: f64, b: f64) -> bool {
    a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= TOLERANCE * a.abs().max(b.abs())
}

/// The first thing in which they differ.
fn difference(ours: &Comparable, theirs: &Comparable) -> Option<String> {
    for (labels, points) in theirs {
        let Some(own) = ours.get(labels) else { return Some(format!("ours lacks {labels}")) };
        for (place, theirs) in points.iter().enumerate() {
            match own.get(place) {
                Some(own) if own.0 == theirs.0 && close(own.1, theirs.1) => {}
                own => return Some(format!("{labels}: ours {own:?}, theirs {theirs:?}")),
            }
        }
        if own.len() > points.len() {
            return Some(format!("{labels}: ours goes on with {:?}", own[points.len()]));
        }
    }
    let more = ours.keys().find(|labels| !theirs.contains_key(*labels));
    more.map(|labels| format!("theirs lacks {labels}"))
}

/// Our answer as the API gives it.
fn ours(store: &Store, query: &str, when: When) -> Result<Value, QueryError> {
    let query = Query::parse(query)?;
    let text = match when {
        When::At(time) => crate::promapi::answer_json(&query.instant(store, time)?, time),
        When::Range(start, end, step) => {
            let budget = Budget::default();
            crate::promapi::matrix_json(&query.range(store, start, end, step, &budget)?)
        }
    };
    Ok(serde_json::from_str(&text).expect("our own JSON"))
}

async fn theirs(prometheus: &Prometheus, query: &str, when: When) -> Result<Value, String> {
    let seconds = |ms: i64| (ms as f64 / 1000.0).to_string();
    let (path, pairs) = match when {
        When::At(time) => ("/api/v1/query", vec![("time", seconds(time))]),
        When::Range(start, end, step) => {
            let pairs = [("start", start), ("end", end), ("step", step)];
            ("/api/v1/query_range", pairs.map(|(name, ms)| (name, seconds(ms))).to_vec())
        }
    };
    let mut pairs: Vec<(&str, &str)> = pairs.iter().map(|(n, v)| (*n, v.as_str())).collect();
    pairs.push(("query", query));
    let (_, body) = prometheus.ask(path, form(&pairs)).await;
    match body["status"].as_str() {
        Some("success") => Ok(body["data"].clone()),
        Some(_) | None => Err(body.to_string()),
    }
}

/// The times at which expressions are asked.
fn times() -> Vec<When> {
    let (start, end, step) = samples::window("2m23s");
    let Some(count) = number_from("SIGHTLINE_DIFFERENTIAL") else {
        return vec![When::Range(start, end, step), When::At(start + 1_000_250), When::At(end)];
    };
    let count = count.max(1).cast_signed();
    let at = |turn: i64| start + (end - start) * turn / count + 125 * turn + 7;
    let ranges =
        (0..count).map(|turn| When::Range(start + 1375 * turn, end, step / 10 + 77 * turn));
    ranges.chain((0..=count).map(|turn| When::At(at(turn).min(end)))).collect()
}

#[expect(clippy::disallowed_methods, reason = "a switch of this test only")]
fn number_from(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|e| panic!("{name}: {e}")))
}

/// What came of all questions.
#[derive(Default)]
struct Outcome {
    wrong: Vec<String>,
    empty: Vec<String>,
}

async fn compare(
    store: &Store,
    prometheus: &Prometheus,
    queries: &BTreeSet<String>,
    times: &[When],
) -> Outcome {
    let mut outcome = Outcome::default();
    for query in queries {
        let mut answered = false;
        for when in times {
            let told = match (ours(store, query, *when), theirs(prometheus, query, *when).await) {
                (Ok(ours), Ok(theirs)) => {
                    let (ours, theirs) = (comparable(&ours), comparable(&theirs));
                    answered |= !theirs.is_empty();
                    difference(&ours, &theirs)
                }
                (Err(ours), Err(theirs)) => Some(format!("both fail: {ours}; {theirs}")),
                (Err(ours), Ok(_)) => Some(format!("only ours fails: {ours}")),
                (Ok(_), Err(theirs)) => Some(format!("only theirs fails: {theirs}")),
            };
            if let Some(told) = told {
                outcome.wrong.push(format!("{query}\n  {when:?}: {told}"));
                break;
            }
        }
        if !answered {
            outcome.empty.push(query.clone());
        }
    }
    outcome
}

#[test]
fn this_engine_and_its_api_agree_with_prometheus() {
    if missing() {
        return;
    }
    let rules = rules();
    let generated = generated(&rules);
    assert!(generated.len() > 300, "only {} generated expressions", generated.len());
    let folder = Folder::new("differential");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let (store, prometheus) = both(&rules, &generated, &folder).await;
        let times = times();
        let language = LANGUAGE.iter().map(|query| (*query).to_owned());
        let asked: BTreeSet<String> = generated.iter().cloned().chain(language).collect();
        let outcome = compare(&store, &prometheus, &asked, &times).await;
        let (count, empty) = (asked.len(), outcome.empty.len());
        println!("{count} expressions, {} of them with data, {times:?}", count - empty);
        outcome.empty.iter().for_each(|query| println!("EMPTY {query}"));
        let wrong = &outcome.wrong;
        assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n\n"));
        assert!((count - empty) * 100 >= count * ANSWERED_PERCENT, "{empty} of {count} are empty");
        api::compare(store, &prometheus).await;
    });
}
