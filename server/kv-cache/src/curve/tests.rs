//! The curve against exact counts of recorded traces, and against a naive list.

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::trace_fixture::{Request, expected, number, requests};

fn count(value: &Value) -> u64 {
    number(value) as u64
}

/// Page ids are dense; keys of real pages are hashes.
fn keys(request: &Request) -> Vec<u64> {
    let key = |id: &u32| (u64::from(*id) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    request.pages.iter().map(key).collect()
}

fn options(page_tokens: usize, device_pages: usize) -> CurveOptions {
    CurveOptions {
        page_tokens,
        device_pages,
        window: None,
        ratios: vec![0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
        computes_last_token: false,
        max_pages: usize::MAX,
    }
}

/// Hit tokens by ratio, after all requests; `each` sees the curve after each of them.
fn replay(
    requests: &[Request],
    options: CurveOptions,
    mut each: impl FnMut(&Request, &HitCurve),
) -> Vec<(f64, u64)> {
    let mut curve = HitCurve::new(options);
    for request in requests {
        let keys = keys(request);
        curve.lookup(&keys, request.tokens);
        curve.publish(&keys, keys.len());
        each(request, &curve);
    }
    curve.candidates().map(|candidate| (candidate.ratio, candidate.hit_tokens)).collect()
}

fn at(hits: &[(f64, u64)], ratio: &Value) -> u64 {
    let ratio = ratio.as_f64().expect("a ratio");
    hits.iter().find(|(other, _)| *other == ratio).expect("a candidate").1
}

/// What is equal in rows that differ in the ratio alone.
fn group_by<'a>(rows: &'a [Value], keys: &[&str]) -> Vec<Vec<&'a Value>> {
    let mut groups: Vec<Vec<&Value>> = Vec::new();
    for row in rows {
        let same = |group: &&mut Vec<&Value>| keys.iter().all(|key| group[0][key] == row[key]);
        match groups.iter_mut().find(same) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

#[test]
fn every_ratio_hits_as_often_as_a_cache_of_that_size() {
    for (name, trace) in expected() {
        let requests = requests(trace["file"].as_str().expect("a name"));
        let page = count(&trace["page_tokens"]);
        let rows = trace["single_pool"].as_array().expect("rows");
        for rows in group_by(rows, &["device_pages"]) {
            let device = count(&rows[0]["device_pages"]) as usize;
            let hits = replay(&requests, options(page as usize, device), |_, _| {});
            for row in rows {
                let found = at(&hits, &row["ratio"]);
                assert_eq!(found, count(&row["hit_pages"]) * page, "{name} {row}");
            }
        }
    }
}

#[test]
fn counters_over_a_window_are_those_of_its_requests() {
    for (name, trace) in expected() {
        let requests = requests(trace["file"].as_str().expect("a name"));
        let page = count(&trace["page_tokens"]);
        let rows = trace["single_pool_10min"].as_array().expect("rows");
        let device = count(&rows[0]["device_pages"]) as usize;
        let mut by_window = std::collections::BTreeMap::new();
        let mut before = std::collections::BTreeMap::new();
        replay(&requests, options(page as usize, device), |request, curve| {
            let window = by_window
                .entry(request.at / 600_000)
                .or_insert_with(std::collections::BTreeMap::<String, u64>::new);
            for candidate in curve.candidates() {
                let ratio = candidate.ratio.to_string();
                let seen = before.insert(ratio.clone(), candidate.hit_tokens).unwrap_or(0);
                *window.entry(ratio).or_default() += candidate.hit_tokens - seen;
            }
        });
        for row in rows {
            let window = &by_window[&count(&row["window"])];
            for (ratio, pages) in row["hit_pages_by_ratio"].as_object().expect("by ratio") {
                assert_eq!(window[ratio], count(pages) * page, "{name} {row}");
            }
        }
    }
}

#[test]
fn a_window_pool_and_its_retention_count_as_in_a_cache_with_two_pools() {
    for (name, trace) in expected() {
        let requests = requests(trace["file"].as_str().expect("a name"));
        let page = count(&trace["page_tokens"]);
        let rows = trace["two_pool"].as_array().expect("rows");
        for rows in group_by(rows, &["device_pages", "window_ratio", "retention"]) {
            let first = rows[0];
            let device = count(&first["device_pages"]) as usize;
            let share = first["window_ratio"].as_f64().expect("a share");
            let retention = match first["retention"].as_str().expect("a rule") {
                "all" => Retention::All,
                "tail" => Retention::Tail,
                "tail_every_4096" => Retention::TailEvery(4096),
                "tail_branch" => Retention::TailBranch,
                other => panic!("an unknown rule: {other}"),
            };
            let device_pages = (device as f64 * share) as usize;
            let window = Some(CurveWindow { device_pages, retention });
            let options = CurveOptions { window, ..options(page as usize, device) };
            let hits = replay(&requests, options, |_, _| {});
            for row in rows {
                let found = at(&hits, &row["ratio"]);
                assert_eq!(found, count(&row["hit_pages"]) * page, "{name} {row}");
            }
        }
    }
}

/// The list without markers: positions are counted.
#[derive(Default)]
struct Naive {
    /// Most recent first: key, computed.
    pages: Vec<(u64, bool)>,
}

impl Naive {
    fn hits(&self, keys: &[u64], capacity: usize) -> usize {
        let held = |key: &&u64| self.pages.iter().take(capacity).any(|page| *page == (**key, true));
        keys.iter().take_while(held).count()
    }

    fn touch(&mut self, keys: &[u64], computed: bool, most: usize) {
        for key in keys.iter().rev() {
            let found = self.pages.iter().position(|page| page.0 == *key);
            let known = found.is_some_and(|at| self.pages.remove(at).1);
            self.pages.insert(0, (*key, known));
            self.pages.truncate(most);
        }
        for page in self.pages.iter_mut().filter(|page| keys.contains(&page.0)) {
            page.1 |= computed;
        }
    }
}

#[derive(Debug, Clone)]
enum Event {
    Lookup(Vec<u64>),
    Publish(Vec<u64>),
    Abort(Vec<u64>),
    Reset,
}

fn prefix() -> impl Strategy<Value = Vec<u64>> {
    // A page's key tells its place, so that equal keys have equal predecessors.
    (0..6_u64, 0..3_u64, 0..9_usize).prop_map(|(family, branch, len)| {
        (0..len as u64)
            .map(|at| family * 100 + at + if at > 3 { branch * 1000 } else { 0 })
            .collect()
    })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => prefix().prop_map(Event::Lookup),
        5 => prefix().prop_map(Event::Publish),
        2 => prefix().prop_map(Event::Abort),
        1 => Just(Event::Reset),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn markers_answer_as_counted_positions_do(
        events in prop::collection::vec(event(), 1..120),
        device in 1..6_usize,
    ) {
        let ratios = vec![1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        let options = CurveOptions { ratios, ..options(4, device) };
        let mut curve = HitCurve::new(options);
        let capacities: Vec<_> = curve.candidates().map(|candidate| candidate.pages).collect();
        let most = *capacities.last().expect("one at least");
        let mut naive = Naive::default();
        let mut hits = vec![0; capacities.len()];
        for event in events {
            match event {
                Event::Lookup(keys) => {
                    for (hits, capacity) in hits.iter_mut().zip(&capacities) {
                        *hits += 4 * naive.hits(&keys, *capacity) as u64;
                    }
                    curve.lookup(&keys, keys.len() * 4 + 1);
                    naive.touch(&keys, false, most);
                }
                Event::Publish(keys) => {
                    curve.publish(&keys, keys.len());
                    naive.touch(&keys, true, most);
                }
                Event::Abort(keys) => {
                    curve.abort(&keys);
                    naive.pages.retain(|page| page.1 || !keys.contains(&page.0));
                }
                Event::Reset => {
                    curve.reset(ResetReason::Flush);
                    naive.pages.clear();
                }
            }
            let found: Vec<_> = curve.candidates().map(|candidate| candidate.hit_tokens).collect();
            prop_assert_eq!(&found, &hits);
            prop_assert!(found.is_sorted(), "a larger cache never hits less");
            prop_assert!(curve.lookup_tokens() - curve.cold_tokens() >= hits[hits.len() - 1]);
            prop_assert_eq!(curve.tracked_pages(), naive.pages.len());
            curve.list.check();
        }
    }
}

#[test]
fn memory_is_bounded_by_the_largest_candidate() {
    let mut curve = HitCurve::new(options(16, 1000));
    for first in 0..400_000_u64 {
        let keys: Vec<u64> =
            (0..5).map(|at| (first * 5 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        curve.lookup(&keys, 80);
        curve.publish(&keys, keys.len());
    }
    assert_eq!(curve.tracked_pages(), 32_000);
    assert!(curve.list.bytes() <= 64 * 32_000, "{} bytes", curve.list.bytes());
    assert_eq!(curve.cold_tokens(), 2_000_000 * 16);
    assert!(curve.candidates().all(|candidate| candidate.hit_tokens == 0 && candidate.warm));
}

#[test]
fn what_nobody_has_computed_yet_is_no_hit_and_is_forgotten_with_its_request() {
    let mut curve = HitCurve::new(CurveOptions { computes_last_token: true, ..options(4, 100) });
    let hits = |curve: &HitCurve| curve.candidates().next().expect("the device").hit_tokens;
    let keys = [11, 12, 13];
    curve.lookup(&keys, 12);
    curve.lookup(&keys, 12);
    assert_eq!(hits(&curve), 0, "both compute it");
    curve.publish(&keys[..2], 2);
    curve.lookup(&keys, 12);
    assert_eq!(hits(&curve), 8);
    curve.abort(&keys);
    assert_eq!(curve.tracked_pages(), 2);
    curve.publish(&keys, keys.len());
    curve.lookup(&keys, 12);
    assert_eq!(hits(&curve), 16, "the last token is always computed");
    curve.lookup(&keys, 13);
    assert_eq!(hits(&curve), 28);
    assert_eq!((curve.requests(), curve.lookup_tokens()), (5, 61));
}

#[test]
fn with_a_window_ratios_that_would_need_too_many_pages_are_left_out() {
    let window = Some(CurveWindow { device_pages: 2, retention: Retention::All });
    let options = CurveOptions { window, ..options(4, 10) };
    let curve = HitCurve::new(CurveOptions { max_pages: 45, ..options.clone() });
    let ratios: Vec<f64> = curve.candidates().map(|candidate| candidate.ratio).collect();
    assert_eq!(ratios, [0.0, 0.5, 1.0, 2.0, 4.0]);
    let curve = HitCurve::new(CurveOptions { max_pages: 4, ..options });
    assert_eq!(curve.candidates().count(), 3, "the device alone can always be followed");
}

#[test]
fn resets_are_counted_by_reason_and_leave_the_counters() {
    let mut curve = HitCurve::new(options(4, 100));
    for _ in 0..2 {
        curve.lookup(&[1, 2], 8);
        curve.publish(&[1, 2], 2);
    }
    curve.reset(ResetReason::Weights);
    curve.reset(ResetReason::Flush);
    curve.reset(ResetReason::Weights);
    assert_eq!(ResetReason::ALL.map(|reason| curve.resets(reason)), [1, 2, 0]);
    assert_eq!((curve.tracked_pages(), curve.lookup_tokens(), curve.cold_tokens()), (0, 16, 8));
    assert!(curve.candidates().all(|candidate| candidate.hit_tokens == 8 && !candidate.warm));
}

#[test]
fn pages_of_an_answer_are_found_and_their_last_one_keeps_its_window() {
    let window = Some(CurveWindow { device_pages: 10, retention: Retention::Tail });
    let mut curve = HitCurve::new(CurveOptions { window, ..options(4, 100) });
    curve.lookup(&[1, 2], 8);
    curve.publish(&[1, 2], 2);
    curve.publish(&[1, 2, 3, 4], 2);
    curve.lookup(&[1, 2, 3, 4, 5], 20);
    assert!(curve.candidates().all(|candidate| candidate.hit_tokens == 16));
    curve.lookup(&[1, 2, 3], 12);
    let found = curve.candidates().next().expect("the device");
    assert_eq!((found.hit_tokens, found.window_loss_tokens), (24, 4), "page 3 has none");
}

#[test]
fn a_sample_of_the_pages_is_close_to_all_of_them() {
    for (name, tokens, device) in [
        ("agentic_p256.jsonl.gz", 256, 8350),
        ("conversation_p512.jsonl.gz", 512, 4175),
        ("synthetic_p512.jsonl.gz", 512, 4175),
    ] {
        let requests = requests(name);
        let total: usize = requests.iter().map(|request| request.tokens).sum();
        let exact = replay(&requests, options(tokens, device), |_, _| {});
        let (mut sum, mut worst, mut count) = (0.0, 0_f64, 0.0);
        for seed in 0..8 {
            let options = CurveOptions { max_pages: 16_384, ..options(tokens, device) };
            let mut curve = HitCurve::with_seed(options, seed);
            for request in &requests {
                let keys = keys(request);
                curve.lookup(&keys, request.tokens);
                curve.publish(&keys, keys.len());
                assert!(curve.tracked_pages() <= 16_384);
            }
            assert!(curve.sampling_ratio() < 1.0, "{name}");
            for ((ratio, exact), found) in exact.iter().zip(curve.candidates()) {
                assert_eq!(*ratio, found.ratio);
                let error = (found.hit_tokens as f64 - *exact as f64).abs() / total as f64;
                (sum, worst, count) = (sum + error, worst.max(error), count + 1.0);
            }
        }
        println!("{name}: mean {:.4}, worst {worst:.4}", sum / count);
        assert!(sum / count <= 0.01, "{name}: mean {:.4}", sum / count);
        assert!(worst <= 0.025, "{name}: {worst:.4}");
    }
}
