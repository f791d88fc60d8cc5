use super::*;
use crate::store::{Bounds, Labels, Matcher, NAME};

const FILE: &str = r#"
groups:
  - name: test
    interval: 15s
    rules:
      - record: job:x:sum
        expr: sum by (job) (x)
        labels: {kind: recorded}
      - alert: High
        expr: job:x:sum > 5
        for: 10s
        keep_firing_for: 10s
        labels: {severity: page, job_copy: "{{ $labels.job }}", gone: "{{ $labels.none }}"}
        annotations:
          summary: "{{ $labels.job }} is at {{ $value }} ({{ $value | humanizePercentage }})"
      - alert: Broken
        expr: x * on (nothing) x
  - name: other
    limit: 1
    query_offset: 2s
    rules:
      - {record: limited, expr: x}
      - {alert: Same, expr: x, labels: {job: one}}
      - {record: same, expr: x, labels: {job: one}}
      - {record: text, expr: '"a"'}
      - {alert: TooMany, expr: x}
      - {record: late, expr: 'time()'}
"#;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    Labels::new(pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())))
}

fn rules() -> Rules {
    Rules::parse(&[("test.yml", FILE)]).expect("valid rules")
}

fn value(store: &Store, name: &str, now: i64) -> Vec<(String, f64)> {
    let found = store.select(&[Matcher::equal(NAME, name.to_owned())], now, now);
    found.into_iter().map(|s| (s.labels.to_string(), s.samples[0].1)).collect()
}

fn rule(rules: &Rules, group: usize, index: usize) -> Value {
    rules.groups_json(&Filter::default())["groups"][group]["rules"][index].clone()
}

/// Evaluates at `second` with job `a` at `level` and job `b` at 0.
fn turn(rules: &Rules, store: &Store, second: i64, level: f64) -> Value {
    for (job, level) in [("a", level), ("b", 0.0)] {
        store.append_labels(&labels(&[(NAME, "x"), ("job", job)]), second * 1000, level);
    }
    rules.evaluate(store, second * 1000 + 1);
    rule(rules, 0, 1)
}

#[test]
fn an_alert_waits_fires_stays_and_ends() {
    let (store, rules) = (Store::new(Bounds::default()), rules());
    assert_eq!(rule(&rules, 0, 1)["health"], "unknown");
    assert_eq!(rule(&rules, 0, 1)["lastEvaluation"], "0001-01-01T00:00:00Z");
    for (second, level, expected) in
        [(0, 1.0, "inactive"), (5, 6.0, "pending"), (10, 7.0, "pending"), (15, 8.0, "firing")]
    {
        assert_eq!(turn(&rules, &store, second, level)["state"], expected, "at {second}");
    }
    let recorded = value(&store, "job:x:sum", 15_001);
    assert_eq!(recorded[0], ("job:x:sum{job=\"a\", kind=\"recorded\"}".to_owned(), 8.0));
    let alerts = &rule(&rules, 0, 1)["alerts"];
    assert_eq!(alerts[0]["labels"]["job_copy"], "a");
    assert_eq!(alerts[0]["annotations"]["summary"], "a is at 8 (800%)");
    assert_eq!(alerts[0]["activeAt"], "1970-01-01T00:00:05.001Z");
    assert_eq!(alerts[0]["value"], "8e+00");
    let series = value(&store, "ALERTS", 15_001);
    assert!(series.iter().any(|(l, v)| l.contains("alertstate=\"firing\"") && *v == 1.0));
    let pending = series.iter().find(|(l, _)| l.contains("pending")).expect("ended series");
    assert!(crate::store::is_stale(pending.1), "the pending series must end");
    assert_eq!(value(&store, "ALERTS_FOR_STATE", 15_001)[0].1, 5.0);

    // It is kept for 10 s from the first time that it is not there.
    assert_eq!(turn(&rules, &store, 20, 0.0)["state"], "firing");
    assert_eq!(rule(&rules, 0, 1)["alerts"][0]["keepFiringSince"], "1970-01-01T00:00:20.001Z");
    assert_eq!(turn(&rules, &store, 25, 0.0)["state"], "firing");
    assert_eq!(rules.alerts_json().len(), 1);
    assert_eq!(turn(&rules, &store, 30, 0.0)["state"], "inactive");
    assert_eq!(rules.alerts_json(), [Value::Null; 0]);
    assert!(value(&store, "ALERTS", 30_001).iter().all(|(_, v)| crate::store::is_stale(*v)));
}

#[test]
fn a_resolved_alert_is_remembered_for_15_minutes() {
    let (store, rules) = (Store::new(Bounds::default()), rules());
    for (second, level) in [(0, 9.0), (10, 9.0), (20, 1.0), (30, 1.0)] {
        turn(&rules, &store, second, level);
    }
    let resolved = rules.resolved_json();
    assert_eq!(resolved.len(), 1);
    assert_eq!(resolved[0]["state"], "inactive");
    assert_eq!(resolved[0]["resolvedAt"], "1970-01-01T00:00:30.001Z");
    turn(&rules, &store, 30 + 900, 1.0);
    assert_eq!(rules.resolved_json().len(), 1);
    turn(&rules, &store, 31 + 900, 1.0);
    assert_eq!(rules.resolved_json().len(), 0);
    // One that comes back waits again.
    for (second, level) in [(1000, 9.0), (1010, 9.0), (1020, 1.0), (1030, 1.0)] {
        turn(&rules, &store, second, level);
    }
    let again = turn(&rules, &store, 1040, 9.0);
    assert_eq!((&again["state"], rules.resolved_json().len()), (&Value::from("pending"), 0));
}

#[test]
fn errors_are_those_of_prometheus() {
    let (store, rules) = (Store::new(Bounds::default()), rules());
    for job in ["a", "b"] {
        store.append_labels(&labels(&[(NAME, "x"), ("job", job)]), 1000, 1.0);
    }
    let told = rules.evaluate(&store, 3000);
    assert_eq!(told.len(), 6, "{told:#?}");
    assert!(told[0].starts_with("rule Broken of group test: "), "{}", told[0]);
    for (group, index, part) in [
        (0, 2, "duplicate series"),
        (1, 0, "exceeded limit of 1 with 2 series"),
        (1, 1, "same labelset after applying alert labels"),
        (1, 2, "same labelset after applying rule labels"),
        (1, 3, "rule result is not a vector or scalar"),
        (1, 4, "exceeded limit of 1 with 2 alerts"),
    ] {
        let rule = rule(&rules, group, index);
        assert_eq!(rule["health"], "err", "{rule}");
        assert!(rule["lastError"].as_str().is_some_and(|e| e.contains(part)), "{part}: {rule}");
    }
    assert_eq!(rule(&rules, 0, 0)["health"], "ok");
    assert_eq!(rule(&rules, 1, 4)["alerts"], json!([]));
    assert_eq!(value(&store, "late", 1000), [("late".to_owned(), 1.0)], "the offset");
    assert_eq!(rules.evaluate(&store, 4000), [""; 0], "an error that stays is told once");
}

#[test]
fn the_filter_takes_what_is_asked_for() {
    let rules = rules();
    let names = |filter: Filter| {
        let data = rules.groups_json(&filter);
        let groups = data["groups"].as_array().expect("groups").iter();
        let rules = groups.flat_map(|g| g["rules"].as_array().expect("rules").iter());
        rules.map(|r| r["name"].as_str().unwrap_or("").to_owned()).collect::<Vec<_>>().join(" ")
    };
    let list = |name: &str| vec![name.to_owned()];
    let all = Filter::default;
    assert_eq!(names(Filter { no_recording: true, ..all() }), "High Broken Same TooMany");
    assert_eq!(names(Filter { no_alerting: true, rules: list("same"), ..all() }), "same");
    assert_eq!(names(Filter { groups: list("test"), ..all() }), "job:x:sum High Broken");
    assert_eq!(names(Filter { files: list("other.yml"), ..all() }), "");
    let matchers = |text: &str| vec![crate::promql::parse_selector(text).expect("valid")];
    assert_eq!(names(Filter { matchers: matchers("{severity=\"page\"}"), ..all() }), "High");
    assert_eq!(names(Filter { matchers: matchers("{job=\"one\"}"), ..all() }), "Same same");
    let groups = rules.groups_json(&Filter { no_alerts: true, ..all() });
    assert_eq!(groups["groups"][0]["rules"][1]["alerts"], Value::Null);
    assert_eq!(groups["groups"][0]["interval"], 15);
    assert_eq!(groups["groups"][1]["interval"], 15);
}

#[test]
fn a_bad_file_is_named() {
    for (text, part) in [
        ("groups: 3", "rule file bad.yml: "),
        ("groups: [{rules: []}]", "a group needs a name"),
        ("groups: [{name: g}, {name: g}]", "group name \"g\" is repeated"),
        ("groups: [{name: g, intervall: 5s}]", "intervall"),
        ("groups: [{name: g, interval: soon}]", "group \"g\", interval: \"soon\" is not"),
        ("groups: [{name: g, rules: [{record: r, expr: 'sum('}]}]", "rule \"r\": could not parse"),
        ("groups: [{name: g, rules: [{record: r}]}]", "rule 1, \"r\": field 'expr' must be set"),
        ("groups: [{name: g, rules: [{expr: x}]}]", "one of 'record' or 'alert' must be set"),
        ("groups: [{name: g, rules: [{record: r, alert: A, expr: x}]}]", "only one of"),
        ("groups: [{name: g, rules: [{record: r, expr: x, for: 5m}]}]", "invalid field 'for'"),
        ("groups: [{name: g, rules: [{record: 'r-1', expr: x}]}]", "recording rule name: r-1"),
        ("groups: [{name: g, rules: [{alert: A, expr: x, labels: {a-b: c}}]}]", "label name: a-b"),
        (
            "groups: [{name: g, rules: [{alert: A, expr: x, annotations: {s: '{{ foo 1 }}'}}]}]",
            "rule 1, \"A\": annotation \"s\": function \"foo\" not defined",
        ),
    ] {
        let error = Rules::parse(&[("bad.yml", text)]).err().expect(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}
