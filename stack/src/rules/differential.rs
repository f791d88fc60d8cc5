//! The same rules over the same samples here and in Prometheus' own rule engine.
//!
//! `promtool test rules` runs that engine in virtual time. Each scenario is evaluated here step by
//! step; what comes out (every sample of `ALERTS`, `ALERTS_FOR_STATE` and the recorded series, and
//! the labels and annotations of what fires) becomes the expectation of a promtool test, which must
//! pass. A scenario in which a rule fails here must fail there, with the same message at the same
//! time. Intervals are such that no sample lies on the edge of a window: Prometheus 2 includes that
//! edge, this engine and Prometheus 3 do not.
//!
//! `SIGHTLINE_RULES_SEED=N` runs the random scenario of one seed and keeps its files;
//! `SIGHTLINE_RULES_SEEDS=N` runs the first N of them, and all recorded scenarios instead of some.

mod random;
mod recorded;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};

use super::*;
use crate::promql::{Answer, Query};
use crate::store::{Bounds, Labels, STALE};

/// Evaluations and samples are at multiples of this.
const UNIT_MS: i64 = 1001;

/// A sample as promtool's notation has it: a number, nothing, or the end of the series.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Point {
    Value(f64),
    Gap,
    Stale,
}

struct Scenario {
    name: String,
    /// Rule files as (name, text).
    files: Vec<(String, String)>,
    series: Vec<(Labels, Vec<Point>)>,
    interval_ms: i64,
    every_ms: i64,
    evaluations: i64,
}

/// What came out here: a promtool test without its input.
#[derive(Default)]
struct Expected {
    expressions: Vec<Value>,
    alerts: Vec<Value>,
    /// The errors of the first evaluation that had some, as promtool words them.
    errors: Vec<String>,
    samples: usize,
    firing: usize,
}

fn numbers(values: &[Point]) -> String {
    let one = |point: &Point| match point {
        Point::Value(value) => crate::promapi::sample_value(*value).replace("+Inf", "Inf"),
        Point::Gap => "_".to_owned(),
        Point::Stale => "stale".to_owned(),
    };
    values.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// A duration as Go prints it.
fn go_duration(ms: i64) -> String {
    if ms == 0 {
        return "0s".to_owned();
    }
    let seconds = (ms % 60_000) as f64 / 1000.0;
    match (ms / 3_600_000, ms / 60_000 % 60) {
        (0, 0) if ms < 1000 => format!("{ms}ms"),
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m{seconds}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

impl Scenario {
    fn store(&self) -> Store {
        let bounds = Bounds { retention_ms: i64::MAX / 4, ..Bounds::default() };
        let store = Store::new(bounds);
        for (labels, points) in &self.series {
            for (at, point) in points.iter().enumerate() {
                let time = self.interval_ms * i64::try_from(at).expect("few samples");
                match point {
                    Point::Value(value) => store.append_labels(labels, time, *value),
                    Point::Stale => store.append_labels(labels, time, STALE),
                    Point::Gap => {}
                }
            }
        }
        store
    }

    fn rules(&self) -> Rules {
        let files: Vec<(&str, &str)> =
            self.files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        Rules::parse(&files).unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    /// Evaluates step by step, up to the first evaluation with an error.
    fn run(&self) -> Expected {
        let (store, rules) = (self.store(), self.rules());
        let queries = queries(&rules);
        let mut out = Expected::default();
        for turn in 0..self.evaluations {
            let now = turn * self.every_ms;
            rules.evaluate(&store, now);
            out.errors = errors(&rules, now);
            if !out.errors.is_empty() {
                // Promtool evaluates as far as something is expected.
                let time = format!("{now}ms");
                out.expressions.push(json!({ "expr": "vector(1)", "eval_time": time }));
                return out;
            }
            for (text, query) in &queries {
                out.expect_samples(text, query, &store, now);
            }
            out.expect_alerts(&rules, now);
        }
        out
    }

    /// Writes rules and test; the path of the test.
    fn write(&self, expected: &Expected, folder: &Path) -> PathBuf {
        let folder = folder.join(&self.name);
        std::fs::create_dir_all(&folder).expect("the folder is writable");
        let mut groups = Vec::new();
        for (name, text) in &self.files {
            std::fs::write(folder.join(name), text).expect("the folder is writable");
            let parsed = file::parse(text).expect("parsed before");
            groups.extend(parsed.into_iter().map(|group| group.name));
        }
        let series = self.series.iter().map(
            |(labels, points)| json!({ "series": labels.to_string(), "values": numbers(points) }),
        );
        let test = json!({
            "rule_files": self.files.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            "evaluation_interval": format!("{}ms", self.every_ms),
            "group_eval_order": groups,
            "tests": [{
                "interval": format!("{}ms", self.interval_ms),
                "input_series": series.collect::<Vec<_>>(),
                "promql_expr_test": expected.expressions,
                "alert_rule_test": expected.alerts,
            }],
        });
        // JSON is YAML but for numbers that are none.
        let text = test.to_string().replace("\"@+Inf\"", ".inf").replace("\"@-Inf\"", "-.inf");
        let path = folder.join("test.yml");
        std::fs::write(&path, text).expect("the folder is writable");
        path
    }
}

/// The expressions that show everything a rule has written.
fn queries(rules: &Rules) -> Vec<(String, Query)> {
    let mut names = vec!["ALERTS".to_owned(), "ALERTS_FOR_STATE".to_owned()];
    for group in &rules.groups {
        let group = lock(group);
        let records = group.rules.iter().filter(|r| matches!(r.kind, Kind::Record { .. }));
        names.extend(records.map(|rule| rule.name().to_owned()));
    }
    names.sort();
    names.dedup();
    // promtool takes no not-a-number for equal to another: those are left out on both sides. Sums
    // are made in another order there, so the last digits are not compared.
    let rounded = |name| format!("round({name}, 1e-9)");
    let texts = names.iter().map(rounded).map(|value| format!("{value} == {value}"));
    texts.map(|text| (text.clone(), Query::parse(&text).expect("a selector"))).collect()
}

fn errors(rules: &Rules, now: i64) -> Vec<String> {
    let mut out = Vec::new();
    for group in &rules.groups {
        for rule in &lock(group).rules {
            if let Some(error) = &rule.error {
                let time = go_duration(now);
                out.push(format!("rule: {}, time: {time}, err: {error}", rule.name()));
            }
        }
    }
    out
}

impl Expected {
    fn expect_samples(&mut self, text: &str, query: &Query, store: &Store, now: i64) {
        let answer = query.instant(store, now).expect("a comparison with itself");
        let Answer::Vector(elements) = answer else { panic!("{text} is no vector") };
        let samples = elements.iter().map(|(labels, value)| {
            let number = if value.is_finite() {
                Value::from(*value)
            } else {
                Value::from(format!("@{}", crate::promapi::sample_value(*value)))
            };
            json!({ "labels": labels.to_string(), "value": number })
        });
        let samples: Vec<Value> = samples.collect();
        self.samples += samples.len();
        self.expressions.push(json!({
            "expr": text, "eval_time": format!("{now}ms"), "exp_samples": samples,
        }));
    }

    /// Of every alert, also of those that do not fire.
    fn expect_alerts(&mut self, rules: &Rules, now: i64) {
        let mut firing: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for group in &rules.groups {
            for rule in &lock(group).rules {
                let Kind::Alert(alerting) = &rule.kind else { continue };
                let found = firing.entry(alerting.name.clone()).or_default();
                let alerts = alerting.active().filter(|a| a.state == State::Firing);
                found.extend(alerts.map(|alert| {
                    let labels = alert.labels.iter().filter(|(name, _)| *name != "alertname");
                    let labels: Map<String, Value> =
                        labels.map(|(n, v)| (n.to_owned(), v.into())).collect();
                    json!({ "exp_labels": labels, "exp_annotations": alert.annotations })
                }));
            }
        }
        for (name, alerts) in firing {
            self.firing += alerts.len();
            self.alerts.push(json!({
                "alertname": name, "eval_time": format!("{now}ms"), "exp_alerts": alerts,
            }));
        }
    }
}

fn missing() -> bool {
    if Command::new("promtool").arg("--version").output().is_ok() {
        return false;
    }
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "0");
    assert!(!ci, "cannot run in CI: promtool is missing; Debian's prometheus brings it");
    println!("SKIP promtool is missing; Debian's prometheus brings it");
    true
}

/// A folder for one test, empty at its start.
fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("rules-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a folder for temporary files");
    path
}

/// What promtool says of a test: whether it passed, and its output.
fn promtool(test: &Path) -> (bool, String) {
    let output = Command::new("promtool").args(["test", "rules"]).arg(test).output();
    let output = output.expect("promtool starts");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Runs a scenario here and there; what they disagree on.
fn disagreement(scenario: &Scenario, expected: &Expected, folder: &Path) -> Option<String> {
    let test = scenario.write(expected, folder);
    let (passed, said) = promtool(&test);
    let short: String = said.chars().take(1500).collect();
    if expected.errors.is_empty() {
        return (!passed).then(|| format!("{}: promtool disagrees:\n{short}", scenario.name));
    }
    let unsaid = expected.errors.iter().find(|error| !said.contains(error.as_str()));
    unsaid.map(|error| format!("{}: not said by promtool: {error}\n{short}", scenario.name))
}

/// All scenarios must agree; counts of what was compared.
fn all_agree(name: &str, scenarios: impl Iterator<Item = Scenario>, keep: bool) -> [usize; 4] {
    let folder = folder(name);
    let mut wrong = Vec::new();
    let [mut count, mut samples, mut firing, mut failing] = [0; 4];
    for scenario in scenarios {
        let expected = scenario.run();
        count += 1;
        samples += expected.samples;
        firing += expected.firing;
        failing += usize::from(!expected.errors.is_empty());
        wrong.extend(disagreement(&scenario, &expected, &folder));
    }
    if keep {
        println!("kept {}", folder.display());
    } else {
        std::fs::remove_dir_all(&folder).expect("the folder is ours");
    }
    println!(
        "{name}: {count} scenarios ({failing} of them with failing rules), {samples} samples, \
         {firing} firing alerts"
    );
    assert!(wrong.is_empty(), "{} of {count} disagree:\n{}", wrong.len(), wrong.join("\n\n"));
    [count, samples, firing, failing]
}

#[expect(clippy::disallowed_methods, reason = "switches of these tests only")]
fn number_from(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|e| panic!("{name}: {e}")))
}

#[test]
fn random_rules_agree_with_prometheus() {
    if missing() {
        return;
    }
    let one = number_from("SIGHTLINE_RULES_SEED");
    let count = number_from("SIGHTLINE_RULES_SEEDS").unwrap_or(random::SEEDS);
    let seeds = one.map_or(0..count, |seed| seed..seed + 1);
    let scenarios = seeds.map(random::scenario);
    let [_, samples, firing, failing] = all_agree("random", scenarios, one.is_some());
    if one.is_none() {
        assert!(samples > 5000 && firing > 1000, "{samples} samples and {firing} alerts are few");
        assert!(failing > 2, "only {failing} scenarios with failing rules");
    }
}

#[test]
fn the_generated_rules_agree_with_prometheus() {
    if missing() {
        return;
    }
    let every = number_from("SIGHTLINE_RULES_SEEDS").map_or(6, |_| 1);
    let scenarios = recorded::scenarios().step_by(every);
    let [count, samples, firing, failing] = all_agree("recorded", scenarios, false);
    assert!(count >= 10 && samples > 3000 && firing > 200, "too little was compared");
    assert_eq!(failing, 0, "generated rules fail");
}
