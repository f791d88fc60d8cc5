//! The page that a registry renders, as a scraper sees it.

use std::collections::BTreeSet;

use super::*;
use crate::labels::*;
use crate::{pair, router};

const ENGINES: [Role; 3] = [Role::Unified, Role::Prefill, Role::Decode];

fn registry() -> Registry {
    registry_of(Role::Unified)
}

fn registry_of(role: Role) -> Registry {
    Registry::new(role, "m").expect("the catalog can be exported")
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
    for role in ENGINES {
        every_closed_family_of_a_role_is_there_at_zero(role);
    }
}

fn every_closed_family_of_a_role_is_there_at_zero(role: Role) {
    let page = registry_of(role).render();
    for info in crate::all().filter(|info| !info.is_of(role)) {
        assert!(!page.contains(&format!("# HELP {} ", info.name)), "{} at {role:?}", info.name);
    }
    for info in crate::all().filter(|info| info.is_closed() && info.is_of(role)) {
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
        assert_eq!(samples, info.combinations(role).len() * per_series, "{}", info.name);
    }
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        assert!(line.ends_with(" 0"), "{line}");
        let constants = format!("{{engine_role=\"{}\",model_name=\"m\"", role.as_str());
        assert!(line.contains(&constants), "{line}");
    }
}

#[test]
fn a_router_has_series_of_itself_and_of_each_model() {
    let router = Registry::router().expect("the catalog can be exported");
    let itself = router.render();
    let samples = |page: &str| -> Vec<String> {
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    };
    for line in samples(&itself) {
        assert!(line.contains("{engine_role=\"router\""), "{line}");
        let of_none = line.contains("model_name=\"none\"");
        assert_eq!(of_none, line.starts_with("sightline_http_"), "{line}");
        assert_eq!(of_none, line.contains("model_name"), "{line}");
    }
    let [a, b] = ["a", "b"].map(|name| router.model(name));
    a.counter(router::ROUTER_REQUESTS, (RouterPolicy::CacheAware, RouterOutcome::Ok)).add(3);
    // Asking again for a model leaves what was counted.
    let gauge = router.model("a").gauge(router::ROUTER_WORKERS_DECLARED, (WorkerRole::Decode,));
    gauge.set(2.0);
    router.model("a").gauge(router::ROUTER_WORKERS_DECLARED, (WorkerRole::Decode,));
    let page = router.render();
    let of = |model: &str| {
        let label = format!("{{engine_role=\"router\",model_name=\"{model}\"");
        samples(&page).iter().filter(|line| line.contains(&label)).count()
    };
    assert_eq!(
        (of("a"), of("a") + of("b")),
        (of("b"), samples(&page).len() - samples(&itself).len())
    );
    let at = |name: &str, labels: &str| {
        value(&page, &format!("sightline_{name}{{engine_role=\"router\"{labels}}}"))
    };
    let routed = ",policy=\"cache_aware\",outcome=\"ok\"";
    assert_eq!(at("router_requests_total", &format!(",model_name=\"a\"{routed}")), 3.0);
    assert_eq!(at("router_requests_total", &format!(",model_name=\"b\"{routed}")), 0.0);
    let declared = ",worker_role=\"decode\"";
    assert_eq!(at("router_workers_declared", &format!(",model_name=\"a\"{declared}")), 2.0);
    let answered = |route| {
        format!(",model_name=\"none\",route=\"{route}\",method=\"GET\",status_code=\"200\"")
    };
    assert_eq!(at("http_requests_total", &answered("/metrics")), 0.0);
    let posted = ",model_name=\"b\",route=\"/v1/completions\",method=\"POST\",status_code=\"502\"";
    assert_eq!(at("http_requests_total", posted), 0.0);
    let chat = (Route::ChatCompletions, Method::Post, StatusCode::S200);
    let place = |registry: &Registry| {
        let all = registry.counters(server::HTTP_REQUESTS);
        let wanted = <(Route, Method, StatusCode)>::all().iter().position(|set| *set == chat);
        all[wanted.expect("it is a combination")].is_some()
    };
    assert_eq!([place(&router), place(&b)], [false, true]);
    assert!(Registry::new(Role::Router, "a").is_err());
}

#[test]
fn what_a_role_does_not_export_is_not_recorded() {
    let prefill = registry_of(Role::Prefill);
    prefill.counter(server::SLO_REQUESTS, (Slo::Ttft, SloResult::Good)).add(1);
    prefill.histogram(server::TIME_TO_FIRST_TOKEN, (Streaming::True,)).record(1.0);
    assert!(!prefill.render().contains("sightline_slo_requests_total"));
    assert!(!prefill.exports(server::SLO_REQUESTS, &(Slo::Ttft, SloResult::Good)));
    assert!(prefill.exports(server::QUEUE_REQUESTS, &(Queue::Bootstrap,)));
    let unified = registry();
    assert!(!unified.exports(server::QUEUE_REQUESTS, &(Queue::Bootstrap,)));
    unified.gauge(server::QUEUE_REQUESTS, (Queue::Bootstrap,)).set(0.0);
    let count = |page: &str| page.matches("\nsightline_queue_requests{").count();
    assert_eq!([count(&unified.render()), count(&prefill.render())], [2, 4]);
}

#[cfg(debug_assertions)]
#[test]
fn a_value_that_a_role_never_has_is_a_mistake() {
    let unified = registry();
    let queue = unified.gauge(server::QUEUE_REQUESTS, (Queue::Prealloc,));
    let set = std::panic::AssertUnwindSafe(|| queue.set(1.0));
    assert!(std::panic::catch_unwind(set).is_err());
}

#[test]
fn series_of_a_peer_come_and_go() {
    let registry = registry_of(Role::Decode);
    let ok = |peer: &'static str| {
        let labels = (TransferSide::Recv, Peer::new(peer), TransferResult::Ok);
        registry.counter(pair::KV_TRANSFERS, labels)
    };
    let busy = (TransferSide::Recv, Peer::new("a:1"), TpRank::new("0"));
    registry.time(pair::KV_TRANSFER_BUSY_SECONDS, busy).add(Duration::from_millis(1500));
    registry.gauge(pair::KV_TRANSFER_HELD_BYTES, (Peer::new("a:1"),)).set(0.5);
    let [a, b] = ["a:1", "b \"2\""].map(ok);
    a.add(2);
    ok("a:1").increment();
    let page = registry.render();
    let own = "{engine_role=\"decode\",model_name=\"m\"";
    let at = |page: &str, peer: &str| {
        let labels = format!(",side=\"recv\",peer=\"{peer}\",result=\"ok\"}}");
        value(page, &format!("sightline_kv_transfers_total{own}{labels}"))
    };
    assert_eq!([at(&page, "a:1"), at(&page, "b \\\"2\\\"")], [3.0, 0.0]);
    let labels = ",side=\"recv\",peer=\"a:1\",tp_rank=\"0\"}";
    let seconds = format!("sightline_kv_transfer_busy_seconds_total{own}{labels}");
    assert_eq!(value(&page, &seconds), 1.5);
    let held = format!("sightline_kv_transfer_held_bytes{own},peer=\"a:1\"}}");
    assert_eq!(value(&page, &held), 0.5);
    assert_eq!(page.matches("# TYPE sightline_kv_transfers_total counter\n").count(), 1);
    registry.remove(&Peer::new("a:1"));
    let page = registry.render();
    assert!(!page.contains("a:1") && page.contains("b \\\"2"), "{page}");
    a.increment();
    b.increment();
    let page = registry.render();
    assert!(!page.contains("a:1"), "an old handle brings nothing back");
    assert_eq!(at(&page, "b \\\"2\\\""), 1.0);
    ok("a:1").increment();
    assert_eq!(at(&registry.render(), "a:1"), 1.0, "it begins again");
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
    assert_eq!(
        some.lines().count(),
        2 + server::QUEUE_REQUESTS.info().combinations(Role::Unified).len()
    );
    assert!(some.starts_with("# HELP sightline_queue_requests "), "{some}");
    assert_eq!(filter(&page, &[]), page);
}

#[test]
fn disabled_records_nothing() {
    let registry = Registry::disabled();
    registry.counter(server::GENERATION_TOKENS, ()).increment();
    registry.run_upkeep();
    let handles = registry.counters(server::HTTP_REQUESTS);
    assert!(handles.iter().all(Option::is_some), "nothing is undeclared where nothing is kept");
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
    let declared = server::REQUESTS_ABORTED.info().combinations(Role::Unified);
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
