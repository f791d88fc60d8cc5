use super::*;
use crate::store::{Bounds, Matcher};

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
        labels: {severity: page, job_copy: "{{ $labels.job }}"}
        annotations:
          summary: "{{ $labels.job }} is at {{ $value }} ({{ $value | humanizePercentage }})"
      - alert: Broken
        expr: x * on (nothing) x
"#;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    Labels::new(pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())))
}

fn value(store: &Store, name: &str, now: i64) -> Vec<(String, f64)> {
    let found = store.select(&[Matcher::equal(NAME, name.to_owned())], now, now);
    found.into_iter().map(|s| (s.labels.to_string(), s.samples[0].1)).collect()
}

#[test]
fn an_alert_waits_fires_and_ends() {
    let store = Store::new(Bounds::default());
    let rules = Rules::parse(&[("test.yml", FILE)]).expect("valid rules");
    let x = labels(&[(NAME, "x"), ("job", "a")]);
    let y = labels(&[(NAME, "x"), ("job", "b")]);
    let state = |rules: &Rules| {
        let groups = rules.groups_json(true, true);
        groups["groups"][0]["rules"][1]["state"].as_str().unwrap_or("").to_owned()
    };
    for (now, level, expected) in
        [(0, 1.0, "inactive"), (5, 6.0, "pending"), (10, 7.0, "pending"), (15, 8.0, "firing")]
    {
        store.append_labels(&x, now * 1000, level);
        store.append_labels(&y, now * 1000, 0.0);
        rules.evaluate(&store, now * 1000 + 1);
        assert_eq!(state(&rules), expected, "at {now}");
    }
    let recorded = value(&store, "job:x:sum", 15_001);
    assert_eq!(recorded[0], ("job:x:sum{job=\"a\", kind=\"recorded\"}".to_owned(), 8.0));
    let alerts = rules.alerts_json();
    assert_eq!(alerts.len(), 1);
    assert_eq!(alerts[0]["labels"]["job_copy"], "a");
    assert_eq!(alerts[0]["annotations"]["summary"], "a is at 8 (800%)");
    assert_eq!(alerts[0]["activeAt"], "1970-01-01T00:00:05.001Z");
    let series = value(&store, "ALERTS", 15_001);
    assert!(series.iter().any(|(l, v)| l.contains("alertstate=\"firing\"") && *v == 1.0));
    let pending = series.iter().find(|(l, _)| l.contains("pending")).expect("ended series");
    assert!(crate::store::is_stale(pending.1), "the pending series must end");

    store.append_labels(&x, 20_000, 0.0);
    rules.evaluate(&store, 20_001);
    assert_eq!(state(&rules), "inactive");
    assert!(value(&store, "ALERTS", 20_001).iter().all(|(_, v)| crate::store::is_stale(*v)));
}

#[test]
fn a_failing_rule_reports_its_error() {
    let store = Store::new(Bounds::default());
    let rules = Rules::parse(&[("test.yml", FILE)]).expect("valid rules");
    for job in ["a", "b"] {
        store.append_labels(&labels(&[(NAME, "x"), ("job", job)]), 1000, 1.0);
    }
    rules.evaluate(&store, 1001);
    let groups = rules.groups_json(true, true);
    let broken = &groups["groups"][0]["rules"][2];
    assert_eq!(broken["health"], "err");
    assert!(broken["lastError"].as_str().is_some_and(|e| e.contains("duplicate series")));
    assert_eq!(groups["groups"][0]["rules"][0]["health"], "ok");
    let alerts_only = rules.groups_json(true, false);
    assert_eq!(alerts_only["groups"][0]["rules"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_bad_file_is_named() {
    let bad = [("a.yml", "groups: [{name: g, rules: [{record: r, expr: 'sum('}]}]")];
    let error = Rules::parse(&bad).err().expect("an error").to_string();
    assert!(error.starts_with("rule file a.yml: group g: sum("), "{error}");
    assert!(Rules::parse(&[("b.yml", "groups: 3")]).is_err());
}

#[test]
fn templates_format_numbers_like_prometheus() {
    let expand = |text: &str, value: f64| template::expand(text, &labels(&[("a", "b")]), value);
    assert_eq!(expand("{{ $labels.a }}-{{$labels.none}}-{{ $value }}", 1.5), "b--1.5");
    assert_eq!(expand("{{ $value | humanize }}", 1234567.0), "1.235M");
    assert_eq!(expand("{{ $value | humanize1024 }}B", 1536.0), "1.5kiB");
    assert_eq!(expand("{{ $value | humanizePercentage }}", 0.1234), "12.34%");
    assert_eq!(expand("{{ $value | humanizeDuration }}", 3661.0), "1h 1m 1s");
    assert_eq!(expand("{{ $value | humanizeDuration }}", 0.25), "250ms");
    assert_eq!(
        expand("{{ $value | printf \"%.2f\" }}", 2.0),
        "{{ $value | printf \"%.2f\" }}x"
            .trim_end_matches('x')
            .replace("{{ $value | printf \"%.2f\" }}", "2.00")
    );
    assert_eq!(expand("{{ unknown }} {{", 1.0), "{{ unknown }} {{");
}
