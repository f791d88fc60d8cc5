//! The page that a registry renders, as a scraper sees it.

use std::collections::BTreeSet;

use super::*;
use crate::labels::*;

fn registry() -> Registry {
    Registry::new(Role::Unified, "m").expect("the catalog can be exported")
}

fn value(page: &str, series: &str) -> f64 {
    let line = page
        .lines()
        .find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')))
        .unwrap_or_else(|| panic!("no series {series} on the page:\n{page}"));
    line.rsplit(' ').next().expect("a sample has a value").parse().expect("a number")
}

#[test]
fn every_closed_family_is_there_at_zero() {
    let page = registry().render();
    for info in crate::all().filter(|info| info.is_closed()) {
        assert!(page.contains(&format!("# HELP {} {}\n", info.name, info.help)), "{}", info.name);
        assert!(
            page.contains(&format!("# TYPE {} {}\n", info.name, info.kind.as_str())),
            "{}",
            info.name
        );
        let per_series = match info.kind {
            Kind::Counter | Kind::Gauge => 1,
            Kind::Histogram => info.buckets.len() + 3,
        };
        let samples = page
            .lines()
            .filter(|line| {
                line.strip_prefix(info.name).is_some_and(|rest| {
                    ["{", "_bucket{", "_sum{", "_count{"].iter().any(|end| rest.starts_with(end))
                })
            })
            .count();
        assert_eq!(samples, info.combinations().len() * per_series, "{}", info.name);
    }
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        assert!(line.ends_with(" 0"), "{line}");
        assert!(line.contains("engine_role=\"unified\",model_name=\"m\""), "{line}");
    }
}

#[test]
fn order_is_fixed_and_buckets_keep_theirs() {
    let first = registry().render();
    assert_eq!(first, registry().render());
    let names: Vec<_> = first.lines().filter(|line| line.starts_with("# TYPE ")).collect();
    let sorted: BTreeSet<_> = names.iter().copied().collect();
    assert_eq!(names, sorted.into_iter().collect::<Vec<_>>());
    let edges: Vec<_> = first
        .lines()
        .filter(|line| line.starts_with("sightline_inter_token_latency_seconds"))
        .map(|line| line.split(",le=\"").nth(1).and_then(|rest| rest.split('"').next()))
        .collect();
    let expected: Vec<_> = crate::buckets::ITL
        .iter()
        .map(|edge| Some(edge.to_string()))
        .chain([Some("+Inf".to_owned()), None, None])
        .collect();
    assert_eq!(edges, expected.iter().map(Option::as_deref).collect::<Vec<_>>());
}

#[test]
fn handles_record() {
    let registry = registry();
    let retracted = registry.gauge(server::QUEUE_REQUESTS, (Queue::Retracted,));
    retracted.set_count(3);
    retracted.increment();
    let invalid =
        registry.counter(server::REQUESTS_REJECTED, (RejectReason::Invalid, Priority::Normal));
    invalid.increment();
    invalid.add(2);
    let busy = registry.time(server::FORWARD_BUSY_SECONDS, (Phase::Mixed, TpRank::new("0")));
    busy.add(Duration::from_millis(1500));
    busy.add(Duration::from_nanos(7));
    let ttft = registry.histogram(server::TIME_TO_FIRST_TOKEN, (Streaming::True,));
    ttft.record_duration(Duration::from_millis(60));
    ttft.record(1e6);
    registry.run_upkeep();
    let page = registry.render();
    let constant = "engine_role=\"unified\",model_name=\"m\"";
    let at = |name: &str, labels: &str| value(&page, &format!("{name}{{{constant}{labels}}}"));
    assert_eq!(at("sightline_queue_requests", ",queue=\"retracted\""), 4.0);
    assert_eq!(
        at("sightline_requests_rejected_total", ",reason=\"invalid\",priority=\"normal\""),
        3.0
    );
    let seconds = at("sightline_forward_busy_seconds_total", ",phase=\"mixed\",tp_rank=\"0\"");
    assert_eq!(seconds, 1.500_000_007);
    let bucket = |le| {
        let labels = format!(",streaming=\"true\",le=\"{le}\"");
        at("sightline_time_to_first_token_seconds_bucket", &labels)
    };
    assert_eq!([bucket("0.05"), bucket("0.1"), bucket("600"), bucket("+Inf")], [0., 1., 1., 2.]);
}

#[test]
fn open_labels_appear_with_their_handle_and_are_escaped() {
    let registry = registry();
    let labels = (Op::new("attention \"q\\k\""), Format::new("q4_1"), Kernel::new("avx2"));
    registry.gauge(server::KERNEL_INFO, labels).set(1.0);
    let page = registry.render();
    let line = page.lines().find(|line| line.starts_with("sightline_kernel_info{"));
    let line = line.expect("the series is on the page");
    assert!(line.contains(r#"op="attention \"q\\k\"",format="q4_1",kernel="avx2"} 1"#), "{line}");
}

#[test]
fn constant_labels_are_escaped() {
    let registry = Registry::new(Role::Unified, "a \"b\"\n\\c").expect("any name will do");
    let page = registry.render();
    let line = page.lines().find(|line| line.starts_with("sightline_running_requests{"));
    let expected =
        r#"sightline_running_requests{engine_role="unified",model_name="a \"b\"\n\\c"} 0"#;
    assert_eq!(line, Some(expected));
}

#[test]
fn the_page_counts_itself() {
    let registry = registry();
    let first = registry.render();
    let second = registry.render();
    let constant = "{engine_role=\"unified\",model_name=\"m\"}";
    let count = value(&second, &format!("sightline_metrics_series{constant}"));
    let samples = first.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(count, samples as f64);
    assert!(count < 2000.0, "{count} series");
    let renders = format!("sightline_metrics_render_duration_seconds_count{constant}");
    assert_eq!(value(&second, &renders), 1.0);
}

#[test]
fn filter_keeps_whole_families() {
    let page = registry().render();
    let some = filter(&page, &["sightline_queue_requests", "sightline_no_such_metric"]);
    assert_eq!(some.lines().count(), 2 + Queue::ALL.len());
    assert!(some.starts_with("# HELP sightline_queue_requests "), "{some}");
    assert_eq!(filter(&page, &[]), page);
}

#[test]
fn disabled_records_nothing() {
    let registry = Registry::disabled();
    registry.counter(server::GENERATION_TOKENS, ()).increment();
    registry.run_upkeep();
    assert_eq!(registry.render(), "");
}

#[test]
fn empty_model_name_is_refused() {
    assert!(matches!(Registry::new(Role::Unified, ""), Err(InstallError::EmptyModelName)));
}

#[test]
fn there_is_a_handle_for_each_declared_combination_in_order() {
    let registry = registry();
    let handles = registry.counters(server::REQUESTS_ABORTED);
    for (at, handle) in (1..).zip(&handles) {
        handle.iter().for_each(|handle| handle.add(at));
    }
    let declared = server::REQUESTS_ABORTED.info().combinations();
    let (page, mut at) = (registry.render(), 0);
    for stage in AbortStage::ALL.iter().map(|stage| stage.as_str()) {
        for initiator in AbortInitiator::ALL.iter().map(|initiator| initiator.as_str()) {
            for reason in AbortReason::ALL.iter().map(|reason| reason.as_str()) {
                let known = declared.iter().any(|values| *values == [stage, initiator, reason]);
                assert_eq!(handles[at].is_some(), known, "{stage} {initiator} {reason}");
                at += 1;
                let own =
                    format!("stage=\"{stage}\",initiator=\"{initiator}\",reason=\"{reason}\"");
                let line = page.lines().find(|line| line.contains(&own));
                let expect = known.then(|| format!("}} {at}"));
                assert!(line.is_none_or(|line| line.ends_with(&expect.unwrap_or_default())));
                assert_eq!(line.is_some(), known, "{own}");
            }
        }
    }
    assert_eq!(at, handles.len());
}
