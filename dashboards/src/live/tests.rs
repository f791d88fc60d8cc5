use super::*;
use crate::client;

fn target(interval: &str) -> client::Target {
    let json = serde_json::json!({"scrapeInterval": interval});
    serde_json::from_value(json).expect("a target")
}

#[test]
fn most_targets_give_the_interval_and_rates_get_four_of_them() {
    let of = |intervals: &[&str]| {
        let active = intervals.iter().map(|interval| target(interval)).collect();
        usual_interval(&Targets { active })
    };
    assert_eq!(of(&[]), None);
    assert_eq!(of(&["", "?"]), None);
    assert_eq!(of(&["15s", "1m", "15s", "5s"]), Some(15.0));
    assert_eq!(of(&["5s", "1m"]), Some(60.0));
    assert_eq!(rate_interval(15.0, 15.0), 60.0);
    assert_eq!(rate_interval(300.0, 15.0), 315.0);
}

#[test]
fn values_are_taken_literally_in_regular_expressions() {
    assert_eq!(escaped("10.0.0.1:80"), r"10\\.0\\.0\\.1:80");
    assert_eq!(escaped(r#"a"b\c(d)"#), r#"a\"b\\\\c\\(d\\)"#);
}

#[test]
fn only_known_absences_are_waived_and_each_says_why() {
    assert!(waivers::reason("ALERTS").is_some_and(|reason| reason.contains("alert")));
    assert_eq!(waivers::reason("up"), None);
    assert!(waivers::reason("vllm:time_per_output_token_seconds_bucket").is_some());
    assert_eq!(waivers::reason(metric_catalog::server::SERVED_MODEL_INFO.name()), None);
}

#[test]
fn every_waiver_names_series_that_exist() {
    let families = [
        metric_catalog::node::GPU_TEMPERATURE.name(),
        metric_catalog::node::RDMA_PORT_UP.name(),
        metric_catalog::node::HOSTCACHE_RESIDENT.name(),
        metric_catalog::node::HICACHE_RATIO_MAX.name(),
        metric_catalog::node::SERVICE_STATE.name(),
        metric_catalog::promql::recorded::QUEUE_DRAIN.name,
    ];
    for name in families {
        assert!(waivers::reason(name).is_some_and(|reason| !reason.is_empty()), "{name}");
    }
    assert_eq!(waivers::reason(metric_catalog::node::HEALTHY.name()), None);
    assert_eq!(waivers::reason(metric_catalog::node::NUMA_HEADROOM.name()), None);
}
