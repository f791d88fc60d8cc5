use super::*;
use crate::store::{Bounds, NAME, STALE};

/// A store with one sample per second of each series: `f(series, second)` from 0 to 600 s.
fn store() -> Store {
    let store = Store::new(Bounds::default());
    let add = |name: &str, pairs: &[(&str, &str)], f: &dyn Fn(i64) -> Option<f64>| {
        let own = [(NAME, name)];
        let labels = own.iter().chain(pairs).map(|(n, v)| ((*n).into(), (*v).into()));
        let labels = Labels::new(labels);
        for second in 0..=600 {
            if let Some(value) = f(second) {
                store.append_labels(&labels, second * 1000, value);
            }
        }
    };
    add("c_total", &[("job", "a"), ("i", "1")], &|s| Some(s as f64));
    add("c_total", &[("job", "a"), ("i", "2")], &|s| Some(2.0 * s as f64));
    add("c_total", &[("job", "b"), ("i", "1")], &|s| Some((s % 100) as f64));
    add("g", &[("job", "a")], &|s| Some(if s % 2 == 0 { 1.0 } else { 3.0 }));
    add("g", &[("job", "b")], &|s| (s <= 300).then_some(if s == 300 { STALE } else { 5.0 }));
    add("limit", &[("job", "a"), ("unit", "x")], &|_| Some(10.0));
    for (le, share) in [("0.1", 0.0), ("0.5", 2.0), ("1", 3.0), ("+Inf", 4.0)] {
        add("h_bucket", &[("job", "a"), ("le", le)], &|s| Some(share * s as f64));
    }
    add("n", &[], &|s| Some(if s < 300 { f64::NAN } else { -2.0 }));
    store
}

fn instant(query: &str, second: i64) -> String {
    let answer = Query::parse(query).and_then(|q| q.instant(&store(), second * 1000));
    match answer {
        Ok(Answer::Scalar(value)) => format!("{value}"),
        Ok(Answer::String(text)) => text,
        Ok(Answer::Vector(series)) => {
            let lines: Vec<String> = series.iter().map(|(l, v)| format!("{l} {v}")).collect();
            lines.join("; ")
        }
        Ok(Answer::Matrix(series)) => format!("{} series", series.len()),
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn selectors_look_back_and_respect_end_marks() {
    assert_eq!(instant("g{job=\"a\"}", 601), "g{job=\"a\"} 1");
    assert_eq!(instant("g", 400), "g{job=\"a\"} 1", "the other series ended at 300");
    assert_eq!(instant("g{job=\"b\"}", 299), "g{job=\"b\"} 5");
    assert_eq!(instant("g{job=\"a\"}", 899), "g{job=\"a\"} 1", "599 + 300 is open on the left");
    assert_eq!(instant("g{job=\"a\"}", 900), "");
    assert_eq!(instant("g{job=\"b\"} offset 101s", 400), "g{job=\"b\"} 5");
    assert_eq!(instant("g{job=\"b\"} @ 100", 400), "g{job=\"b\"} 5");
    assert_eq!(instant("{__name__=~\"lim.*\"}", 10), "limit{job=\"a\", unit=\"x\"} 10");
}

#[test]
fn rates_are_extrapolated_and_survive_resets() {
    assert_eq!(instant("rate(c_total{i=\"2\"}[1m])", 300), "{i=\"2\", job=\"a\"} 2");
    assert_eq!(
        instant("increase(c_total{job=\"b\"}[100s])", 250),
        "{i=\"1\", job=\"b\"} 98.98989898989899"
    );
    assert_eq!(instant("irate(c_total{i=\"2\"}[1m])", 300), "{i=\"2\", job=\"a\"} 2");
    assert_eq!(instant("delta(limit[1m])", 300), "{job=\"a\", unit=\"x\"} 0");
    assert_eq!(instant("resets(c_total{job=\"b\"}[5m])", 500), "{i=\"1\", job=\"b\"} 3");
    assert_eq!(instant("deriv(c_total{i=\"2\"}[1m])", 300), "{i=\"2\", job=\"a\"} 2");
    assert_eq!(
        instant("predict_linear(c_total{i=\"2\"}[1m], 10)", 300),
        "{i=\"2\", job=\"a\"} 620"
    );
    assert_eq!(instant("rate(g{job=\"b\"}[1s])", 100), "", "one sample has no rate");
}

#[test]
fn windows_are_open_on_the_left() {
    assert_eq!(instant("count_over_time(g{job=\"a\"}[10s])", 100), "{job=\"a\"} 10");
    assert_eq!(instant("sum_over_time(g{job=\"a\"}[2s])", 100), "{job=\"a\"} 4");
    assert_eq!(instant("last_over_time(g{job=\"b\"}[2m])", 310), "g{job=\"b\"} 5");
    assert_eq!(instant("max_over_time(g{job=\"a\"}[1m])", 100), "{job=\"a\"} 3");
    assert_eq!(instant("quantile_over_time(0.5, g{job=\"a\"}[4s])", 100), "{job=\"a\"} 2");
    assert_eq!(instant("changes(g{job=\"a\"}[4s])", 100), "{job=\"a\"} 3");
    assert_eq!(instant("g{job=\"a\"}[1m]", 100), "1 series");
}

#[test]
fn aggregations_group_by_label() {
    assert_eq!(instant("sum by (job) (c_total)", 100), "{job=\"a\"} 300; {job=\"b\"} 0");
    assert_eq!(instant("sum(c_total) without (i)", 100), "{job=\"a\"} 300; {job=\"b\"} 0");
    assert_eq!(instant("avg(c_total)", 100), "{} 100");
    assert_eq!(instant("count by (i) (c_total)", 1), "{i=\"1\"} 2; {i=\"2\"} 1");
    let top = "c_total{i=\"2\", job=\"a\"} 200; c_total{i=\"1\", job=\"a\"} 100";
    assert_eq!(instant("topk(2, c_total)", 100), top);
    assert_eq!(instant("bottomk(1, c_total)", 100), "c_total{i=\"1\", job=\"b\"} 0");
    assert_eq!(instant("quantile(0.5, c_total)", 100), "{} 100");
    assert_eq!(instant("stdvar(c_total{job=\"a\"})", 100), "{} 2500");
    assert_eq!(instant("max(n)", 100), "{} NaN");
    let counted = "{v=\"10\"} 1";
    assert_eq!(instant("count_values(\"v\", limit)", 100), counted);
    assert_eq!(instant("sum(absent_metric)", 100), "");
    assert_eq!(instant("sum by (__name__) (limit)", 100), "limit 10");
}

#[test]
fn operators_match_labels_and_drop_names() {
    assert_eq!(instant("1 + 2 * 3 ^ 2 ^ 0", 0), "7");
    assert_eq!(instant("-2 ^ 2", 0), "-4");
    assert_eq!(instant("(1 > bool 2) + 10 % 3", 0), "1");
    assert_eq!(instant("limit / 4", 9), "{job=\"a\", unit=\"x\"} 2.5");
    assert_eq!(instant("limit > 4", 9), "limit{job=\"a\", unit=\"x\"} 10");
    assert_eq!(instant("4 < limit", 9), "limit{job=\"a\", unit=\"x\"} 10");
    assert_eq!(instant("limit > bool 40", 9), "{job=\"a\", unit=\"x\"} 0");
    assert_eq!(instant("sum(c_total) / on() sum(limit)", 100), "{} 30");
    let ratio = "c_total / on (job) group_left (unit) limit";
    let expected = "{i=\"1\", job=\"a\", unit=\"x\"} 10; {i=\"2\", job=\"a\", unit=\"x\"} 20";
    assert_eq!(instant(ratio, 100), expected);
    assert_eq!(instant("g and on (job) limit", 100), "g{job=\"a\"} 1");
    assert_eq!(instant("g unless on (job) limit", 100), "g{job=\"b\"} 5");
    assert_eq!(instant("limit or vector(1)", 100), "limit{job=\"a\", unit=\"x\"} 10; {} 1");
    assert_eq!(instant("absent_metric or vector(0)", 100), "{} 0");
    assert_eq!(instant("g == ignoring (job, unit) limit", 400), "");
    assert_eq!(instant("-limit", 100), "{job=\"a\", unit=\"x\"} -10");
    let many = "c_total * on (job) limit";
    assert!(instant(many, 9).starts_with("error: multiple matches for labels"));
    let duplicate = "limit * on (job) group_left () c_total";
    assert!(instant(duplicate, 9).starts_with("error: found duplicate series"));
    let same = "{__name__=~\"c_total|limit\", job=\"a\"} * 0 + ignoring (i, unit) limit";
    assert!(instant(same, 9).starts_with("error:"));
}

#[test]
fn functions_of_values_and_labels() {
    assert_eq!(instant("histogram_quantile(0.5, rate(h_bucket[1m]))", 300), "{job=\"a\"} 0.5");
    assert_eq!(instant("histogram_quantile(0.75, h_bucket)", 300), "{job=\"a\"} 1");
    assert_eq!(instant("histogram_quantile(0.99, h_bucket)", 300), "{job=\"a\"} 1");
    assert_eq!(instant("histogram_quantile(0.9, h_bucket)", 0), "{job=\"a\"} NaN");
    assert_eq!(instant("clamp_max(limit, 3)", 1), "{job=\"a\", unit=\"x\"} 3");
    assert_eq!(instant("clamp(limit, 20, 30)", 1), "{job=\"a\", unit=\"x\"} 20");
    assert_eq!(instant("round(limit / 7, 0.5)", 1), "{job=\"a\", unit=\"x\"} 1.5");
    assert_eq!(instant("absent(absent_metric{a=\"1\",b=~\"x\"})", 1), "{a=\"1\"} 1");
    assert_eq!(instant("absent(limit)", 1), "");
    assert_eq!(instant("absent_over_time(g{job=\"b\"}[1m])", 400), "{job=\"b\"} 1");
    assert_eq!(instant("scalar(limit) + time()", 5), "15");
    assert_eq!(instant("scalar(c_total)", 5), "NaN");
    assert_eq!(instant("timestamp(g{job=\"a\"})", 601), "{job=\"a\"} 600");
    let replaced = "label_replace(limit, \"k\", \"$1-y\", \"unit\", \"(.*)\")";
    assert_eq!(instant(replaced, 1), "limit{job=\"a\", k=\"x-y\", unit=\"x\"} 10");
    let joined = "label_join(limit, \"k\", \"/\", \"job\", \"unit\")";
    assert_eq!(instant(joined, 1), "limit{job=\"a\", k=\"a/x\", unit=\"x\"} 10");
    assert_eq!(instant("vector(1) * hour(vector(3661)) + minute(vector(3661))", 1), "{} 2");
    assert_eq!(instant("day_of_week(vector(0)) + day_of_month(vector(951782400))", 1), "{} 33");
    assert_eq!(instant("sort_desc(c_total{job=\"a\"})", 9).find("i=\"2\""), Some(8));
    assert_eq!(instant("\"text\"", 1), "text");
}

#[test]
fn subqueries_step_on_multiples() {
    assert_eq!(
        instant("max_over_time(rate(c_total{i=\"2\"}[1m])[5m:10s])", 400),
        "{i=\"2\", job=\"a\"} 2"
    );
    assert_eq!(instant("count_over_time(limit[1m:10s])", 95), "{job=\"a\", unit=\"x\"} 6");
    assert_eq!(instant("sum_over_time(vector(1)[30s:10s])", 95), "{} 3");
}

#[test]
fn ranges_have_gaps_where_there_is_nothing() {
    let query = Query::parse("g{job=\"b\"} + 1").expect("valid");
    let series =
        query.range(&store(), 280_000, 320_000, 10_000, &Budget::default()).expect("answer");
    assert_eq!(series[0].points, [(280_000, 6.0), (290_000, 6.0)]);
    let query = Query::parse("1").expect("valid");
    let series = query.range(&store(), 0, 20_000, 10_000, &Budget::default()).expect("answer");
    assert_eq!(series[0].points, [(0, 1.0), (10_000, 1.0), (20_000, 1.0)]);
    let query = Query::parse("g @ end()").expect("valid");
    let series = query.range(&store(), 0, 20_000, 10_000, &Budget::default()).expect("answer");
    assert_eq!(series.iter().map(|s| s.points.len()).sum::<usize>(), 6);
    assert!(
        Query::parse("g[1m]").expect("valid").range(&store(), 0, 1, 1, &Budget::default()).is_err()
    );
}

#[test]
fn bad_queries_are_explained_with_their_place() {
    for (query, message) in [
        ("", "1:1: parse error: no expression found in input"),
        ("sum(", "1:5: parse error: unexpected end of input"),
        ("foo{a=1}", "1:7: parse error: label matching expects a string"),
        (
            "rate(foo)",
            "1:1: parse error: expected type range vector in call to function \
                       \"rate\", got instant vector",
        ),
        ("nofunc(foo)", "1:1: parse error: unknown function with name \"nofunc\""),
        ("foo +\n  $", "2:3: parse error: unexpected character: '$'"),
        ("1 > 2", "1:3: parse error: comparisons between scalars must use BOOL modifier"),
        ("foo and 1", "1:5: parse error: set operators not allowed in binary scalar expression"),
        (
            "{a=\"\"}",
            "1:7: parse error: vector selector must contain at least one non-empty \
                      matcher",
        ),
        ("foo[5x]", "1:5: parse error: bad number or duration syntax"),
        ("\"a", "1:1: parse error: unterminated quoted string"),
        (
            "topk(foo)",
            "1:5: parse error: wrong number of arguments for aggregate expression \
                       provided, expected 2, got 1",
        ),
        ("foo{a=~\"(\"}", "1:8: parse error: invalid regular expression \"(\""),
    ] {
        let error = Query::parse(query).expect_err(query).to_string();
        let first = error.lines().next().unwrap_or("").trim_end_matches(':');
        assert!(first.starts_with(message), "{query}: {error}");
    }
}

#[test]
fn hostile_queries_end_in_an_error() {
    let deep = format!("{}1{}", "(".repeat(10_000), ")".repeat(10_000));
    let long = format!("1{}", "+1".repeat(10_000));
    let minus = format!("{}1", "-".repeat(10_000));
    for query in [deep, long, minus, "1".repeat(100_000)] {
        assert!(Query::parse(&query).is_err());
    }
}

#[test]
fn what_a_query_may_use_is_bounded() {
    let within = |samples_max: usize, text: &str| {
        let budget = Budget { samples_max, ..Budget::default() };
        let query = Query::parse(text).expect("valid");
        query.range(&store(), 0, 600_000, 10_000, &budget).map(|_| ())
    };
    for text in [
        "c_total",
        "rate(c_total[5m])",
        "c_total + c_total",
        "sum(c_total) by (job)",
        "max_over_time(c_total[5m:1s])",
        "count_values(\"v\", c_total)",
    ] {
        assert_eq!(within(usize::MAX, text), Ok(()), "{text}");
        let error = within(100, text).expect_err(text).to_string();
        assert!(error.contains("more than 100 read") && error.contains("longer step"), "{error}");
    }
    let budget = Budget::default();
    budget.stop();
    let query = Query::parse("sum(rate(c_total[1m]))").expect("valid");
    let stopped = query.range(&store(), 0, 1000, 1000, &budget);
    assert_eq!(stopped.expect_err("stopped"), QueryError::Stopped);
}

#[test]
fn label_values_do_not_grow_without_end() {
    let mut text = "limit".to_owned();
    for _ in 0..20 {
        text = format!("label_join({text}, \"unit\", \"\", \"unit\", \"unit\")");
    }
    let error = Query::parse(&text).expect("valid").instant(&store(), 1000).expect_err("too long");
    assert!(error.to_string().contains("a label value of 32768 bytes"), "{error}");
}

#[test]
fn numbers_durations_and_strings_have_many_forms() {
    assert_eq!(instant("0x1F + 1e2 + .5 + Inf * 0 > bool 0", 0), "0");
    assert_eq!(instant("0x1F + 1e2 + .5", 0), "131.5");
    assert_eq!(parse_duration("1h30m"), Some(5_400_000));
    assert_eq!(parse_duration("500ms"), Some(500));
    assert_eq!(parse_duration("5"), None);
    assert_eq!(parse_duration("1m1h"), None);
    assert_eq!(instant("'a\\'b' # remark", 0), "a'b");
    assert_eq!(instant("`a\\b`", 0), "a\\b");
    assert_eq!(instant("\"\\u00e9\\x41\"", 0), "éA");
}
