use super::*;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    Labels::new(pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())))
}

fn one(name: &str) -> [Matcher; 1] {
    [Matcher::equal(NAME, name.to_owned())]
}

#[test]
fn samples_come_back_bit_for_bit() {
    let store = Store::new(Bounds::default());
    let metric = labels(&[(NAME, "m"), ("a", "1")]);
    let values = [0.0, 1.0, 1.0, -1.5, f64::NAN, STALE, f64::INFINITY, 1e-300, 3.0];
    let mut expected = Vec::new();
    for step in 0..2_000_i64 {
        let time = 1_700_000_000_000 + step * 1000 + step % 7;
        let value = if step % 3 == 0 { step as f64 / 8.0 } else { values[(step % 9) as usize] };
        store.append_labels(&metric, time, value);
        expected.push((time, value.to_bits()));
    }
    let found = store.select(&one("m"), 0, i64::MAX);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].labels, metric);
    let bits: Vec<_> = found[0].samples.iter().map(|(t, v)| (*t, v.to_bits())).collect();
    assert_eq!(bits, expected);
}

#[test]
fn ranges_include_both_ends() {
    let store = Store::new(Bounds::default());
    let metric = labels(&[(NAME, "m")]);
    for time in [1000, 2000, 3000] {
        store.append_labels(&metric, time, 1.0);
    }
    assert_eq!(store.select(&one("m"), 2000, 3000)[0].samples.len(), 2);
    assert!(store.select(&one("m"), 3001, 9000).is_empty());
}

#[test]
fn old_samples_and_their_series_are_dropped() {
    let bounds = Bounds { retention_ms: 60_000, ..Bounds::default() };
    let store = Store::new(bounds);
    store.append_labels(&labels(&[(NAME, "old")]), 0, 1.0);
    let metric = labels(&[(NAME, "m")]);
    for step in 0..3_600 {
        store.append_labels(&metric, step * 1000, step as f64);
    }
    let totals = store.totals();
    assert_eq!(totals.series, 1);
    assert!(store.label_sets(&one("old"), 0, i64::MAX).is_empty());
    let kept = store.select(&one("m"), 0, i64::MAX)[0].samples.len();
    assert!((60..=60 + 240 + 10).contains(&kept), "kept {kept}");
}

#[test]
fn the_byte_bound_holds() {
    let bounds = Bounds { bytes_max: 200_000, ..Bounds::default() };
    let store = Store::new(bounds);
    for step in 0..7_000_i64 {
        for series in ["a", "b", "c", "d"] {
            let value = (step * 7919 % 1000) as f64 * 0.001;
            store.append_labels(&labels(&[(NAME, "m"), ("s", series)]), step * 1000, value);
        }
        assert!(store.totals().bytes <= 210_000, "at {step}: {}", store.totals().bytes);
    }
    let newest = store.select(&one("m"), 6_999_000, i64::MAX);
    assert_eq!(newest.len(), 4, "the newest samples must survive");
}

#[test]
fn series_beyond_the_bound_are_refused_and_counted() {
    let store = Store::new(Bounds { series_max: 1, ..Bounds::default() });
    assert!(store.series(&labels(&[(NAME, "a")])).is_some());
    assert!(store.series(&labels(&[(NAME, "b")])).is_none());
    assert_eq!(store.totals().refused, 1);
}

#[test]
fn labels_count_and_cannot_fill_the_store() {
    let store = Store::new(Bounds { bytes_max: 100_000, ..Bounds::default() });
    let long = "x".repeat(1000);
    for series in 0..100 {
        let metric = labels(&[(NAME, "m"), ("long", &format!("{series}{long}"))]);
        store.append_labels(&metric, 1000, 1.0);
    }
    let totals = store.totals();
    assert!(totals.refused > 70 && totals.series > 10, "{totals:?}");
    assert!(totals.bytes <= 100_000 && totals.bytes > totals.series * 1000, "{totals:?}");
    // What retention takes gives its room back.
    store.append_labels(&labels(&[(NAME, "n")]), 9_000_000_000, 1.0);
    assert_eq!(store.totals().series, 1);
    assert!(store.totals().bytes < 1000, "{:?}", store.totals());
}

#[test]
fn what_is_held_can_be_summed_up() {
    let store = Store::new(Bounds::default());
    for (name, job) in [("a", "x"), ("b", "x"), ("b", "y")] {
        store.append_labels(&labels(&[(NAME, name), ("job", job)]), 5000, 1.0);
    }
    let summary = store.summary(1);
    assert_eq!((summary.series, summary.chunks, summary.label_pairs), (3, 3, 4));
    assert_eq!((summary.oldest_ms, summary.newest_ms), (5000, 5000));
    assert_eq!(summary.by_metric, [("b".to_owned(), 2)]);
    assert_eq!(summary.by_label, [(NAME.to_owned(), 2)]);
    assert!(store.select_at_most(&one("b"), 0, 9000, 1).is_none());
    assert_eq!(store.select_at_most(&one("b"), 0, 9000, 2).map(|found| found.len()), Some(2));
}

#[test]
fn samples_out_of_order_are_refused() {
    let store = Store::new(Bounds::default());
    let metric = labels(&[(NAME, "m")]);
    store.append_labels(&metric, 2000, 1.0);
    store.append_labels(&metric, 2000, 2.0);
    store.append_labels(&metric, 1000, 3.0);
    assert_eq!(store.totals().refused, 2);
    assert_eq!(store.select(&one("m"), 0, 9000)[0].samples, [(2000, 1.0)]);
}

#[test]
fn matchers_are_anchored_and_treat_absence_as_empty() {
    let set = labels(&[(NAME, "m"), ("pool", "kv")]);
    let check = |label: &str, op, value: &str| {
        Matcher::new(label.to_owned(), op, value.to_owned()).expect("valid").accepts(&set)
    };
    assert!(check("pool", MatchOp::Regex, "k.|other"));
    assert!(!check("pool", MatchOp::Regex, "k"));
    assert!(check("pool", MatchOp::NotRegex, "k"));
    assert!(check("absent", MatchOp::Equal, ""));
    assert!(check("absent", MatchOp::Regex, ".*"));
    assert!(!check("absent", MatchOp::Regex, ".+"));
    assert!(check("absent", MatchOp::NotEqual, "x"));
    assert!(Matcher::new("a".into(), MatchOp::Regex, "(".into()).is_err());
}

#[test]
fn a_static_histogram_costs_about_two_bytes_a_sample() {
    let store = Store::new(Bounds::default());
    let metric = labels(&[(NAME, "m")]);
    for step in 0..7_200 {
        store.append_labels(&metric, step * 1000, 42.0);
    }
    let bytes = store.totals().bytes;
    assert!(bytes < 7_200 * 3, "{bytes} bytes for 7,200 samples");
}
