//! Rules that every declaration keeps.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::labels::*;
use crate::promql::LATER_LABELS;
use crate::server;

#[test]
fn names_are_unique_and_well_formed() {
    let mut names = BTreeSet::new();
    for info in crate::all() {
        let name = info.name;
        assert!(names.insert(name), "{name} twice");
        assert!(name.starts_with(info.source.prefix()), "{name}");
        let word = |word: &str| {
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        };
        assert!(name.split('_').all(word), "{name}");
        for stem in ["_sum", "_count", "_bucket"] {
            assert!(!name.ends_with(stem), "{name}");
        }
        for unit in ["ms", "us", "milliseconds", "mb", "gb", "kb", "percent", "minutes"] {
            assert!(name.split('_').all(|word| word != unit), "{name}");
        }
    }
    assert!(names.len() > 50);
}

#[test]
fn kinds_show_in_names() {
    for info in crate::all() {
        let name = info.name;
        assert_eq!(info.kind == Kind::Counter, name.ends_with("_total"), "{name}");
        assert_eq!(info.kind == Kind::Histogram, !info.buckets.is_empty(), "{name}");
        if info.kind == Kind::Histogram {
            let units = ["_seconds", "_tokens", "_requests", "_ratio"];
            assert!(units.iter().any(|unit| name.ends_with(unit)), "{name}");
            assert!(info.buckets.is_sorted_by(|a, b| a < b), "{name}");
            assert!((4..40).contains(&info.buckets.len()), "{name}");
        }
        if name.ends_with("_info") {
            assert_eq!(info.unit, Unit::Flag, "{name}");
        }
    }
}

#[test]
fn helps_are_sentences() {
    for info in crate::all() {
        let (name, help) = (info.name, info.help);
        assert!(help.len() >= 10 && help.ends_with('.'), "{name}: {help}");
        assert!(help.starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit()), "{name}");
        assert!(!help.contains("  ") && !help.contains('\n'), "{name}: {help:?}");
    }
}

#[test]
fn labels_are_bounded_and_their_own() {
    let mut sets: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for info in crate::all() {
        let names: Vec<_> = info.labels.iter().map(|label| label.name).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{}", info.name);
        for label in info.labels {
            let common = info.common_labels().contains(&label.name);
            assert!(!common, "{} of {}", label.name, info.name);
            assert!(!LATER_LABELS.contains(&label.name) && label.name != "le");
            match label.values {
                Values::Closed(values) => {
                    let distinct: BTreeSet<_> = values.iter().collect();
                    assert_eq!(distinct.len(), values.len(), "{}", label.name);
                    assert!(values.iter().all(|v| !v.is_empty() && v.len() <= 80));
                }
                Values::Open { bound, why, .. } => {
                    assert!(bound > 0 && bound <= 1024 && why.len() > 10, "{}", label.name);
                }
            }
        }
        sets.insert(info.name, names);
    }
    let used = &sets["sightline_kv_pool_used_bytes"];
    let capacity = &sets["sightline_kv_pool_capacity_bytes"];
    assert_eq!(&used[..capacity.len()], capacity.as_slice());
}

#[test]
fn help_lists_the_values_of_the_label_it_explains() {
    for info in crate::all() {
        for label in info.labels {
            let Values::Closed(values) = label.values else { continue };
            if info.help.contains(&format!("{} is ", label.name)) {
                for value in values {
                    assert!(info.help.contains(value), "{} does not say {value}", info.name);
                }
            }
        }
    }
}

#[test]
fn impossible_combinations_are_not_made() {
    let combinations = server::HTTP_REQUESTS.info().combinations(Role::Unified);
    let has = |values: [&str; 3]| combinations.iter().any(|set| set == &values);
    assert!(has(["/v1/completions", "POST", "429"]));
    assert!(has(["/v1/models", "OTHER", "405"]));
    assert!(has(["other", "DELETE", "404"]));
    assert!(!has(["/v1/completions", "GET", "200"]));
    assert!(!has(["/metrics", "GET", "429"]));
    assert!(combinations.len() < 200, "{}", combinations.len());
    let aborts = server::REQUESTS_ABORTED.info().combinations(Role::Unified);
    let has = |values: [&str; 3]| aborts.iter().any(|set| set == &values);
    assert!(has(["queued", "client", "client_gone"]) && has(["decode", "server", "slow_client"]));
    assert!(!has(["queued", "server", "slow_client"]) && !has(["decode", "client", "shutdown"]));
    let aborts = server::REQUESTS_ABORTED.info().combinations(Role::Prefill);
    assert!(aborts.iter().any(|set| set == &["bootstrap", "peer", "peer_abort"]));
    assert!(aborts.iter().all(|set| set[1] != "client" && set[0] != "decode"));
    let of_roles = crate::all().filter(|info| info.source != Source::Node);
    for info in of_roles.filter(|info| info.is_closed()) {
        for (place, label) in info.labels.iter().enumerate() {
            let Values::Closed(values) = label.values else { continue };
            for value in values {
                let at =
                    |role: &Role| info.combinations(*role).iter().any(|set| set[place] == *value);
                let occurs = Role::ALL.iter().any(at);
                assert!(occurs, "{value} of {} never occurs in {}", label.name, info.name);
            }
        }
    }
}

#[test]
fn units_come_from_names() {
    let cases = [
        ("sightline_http_requests_in_flight", Unit::Requests),
        ("sightline_requests_admitted_total", Unit::Requests),
        ("sightline_preempted_tokens_total", Unit::Tokens),
        ("sightline_ready_timestamp_seconds", Unit::Timestamp),
        ("process_start_time_seconds", Unit::Timestamp),
        ("process_cpu_seconds_total", Unit::Seconds),
        ("sightline_kv_pool_used_slots", Unit::Slots),
        ("sightline_build_info", Unit::Flag),
        ("sightline_engine_state", Unit::Flag),
        ("sightline_preemptions_total", Unit::Count),
        ("sightline_metrics_series", Unit::Count),
        ("process_open_fds", Unit::Count),
        ("sightline_node_gpu_power_limit_watts", Unit::Watts),
        ("sightline_node_gpu_energy_joules_total", Unit::Joules),
        ("sightline_node_gpu_clock_max_hertz", Unit::Hertz),
        ("sightline_node_rdma_port_rate_bytes_per_second", Unit::BytesPerSecond),
        ("sightline_node_hicache_bytes_per_ratio", Unit::Bytes),
    ];
    for (name, unit) in cases {
        assert_eq!(Unit::of_name(name), unit, "{name}");
    }
    for info in crate::all() {
        let time = info.kind == Kind::Counter && info.unit == Unit::Seconds;
        assert_eq!(time, info.name.ends_with("_seconds_total"), "{}", info.name);
    }
}

#[test]
fn foreign_text_is_folded_into_closed_values() {
    assert_eq!(Method::from_name("POST"), Method::Post);
    assert_eq!(Method::from_name("post"), Method::Other);
    assert_eq!(Method::from_name("FOO42"), Method::Other);
    for code in StatusCode::ALL {
        let number: u16 = code.as_str().parse().expect("a status is a number");
        assert_eq!(StatusCode::from_code(number), *code);
    }
    let folded = [201, 302, 401, 422, 501, 505, 999].map(StatusCode::from_code);
    use StatusCode::{S200, S400, S500};
    assert_eq!(folded, [S200, S200, S400, S400, S500, S500, S500]);
}

#[test]
fn closed_labels_index_their_tables() {
    for (place, outcome) in Outcome::ALL.iter().enumerate() {
        assert_eq!(outcome.index(), place);
    }
}

#[test]
fn a_role_has_no_more_series_than_it_must() {
    for info in crate::all() {
        assert_eq!(info.roles.is_empty(), info.source == Source::Node, "{}", info.name);
        let of_leaving = |name| ["peer", "worker", "generation"].contains(&name);
        let leaves = info.labels.iter().filter(|label| of_leaving(label.name));
        assert_eq!(info.leaves(), leaves.count() > 0, "{}", info.name);
        assert!(!info.leaves() || info.kind != Kind::Histogram, "{}", info.name);
        for role in info.roles.iter().filter(|_| info.is_closed()) {
            assert!(!info.combinations(*role).is_empty(), "{} at {role:?}", info.name);
        }
    }
    let of = |role: Role| crate::all().filter(|info| info.is_of(role)).count();
    let pair = crate::pair::ALL.len();
    assert!(crate::pair::ALL.iter().all(|info| !info.is_of(Role::Unified)));
    assert!(crate::router::ALL.iter().all(|info| info.roles == [Role::Router]));
    assert_eq!(of(Role::Decode), of(Role::Unified) + pair);
    // What a prefill worker's clients feel is felt elsewhere.
    let unfelt =
        crate::all().filter(|info| info.is_of(Role::Unified) && !info.is_of(Role::Prefill));
    let unfelt: Vec<_> = unfelt.map(|info| info.name).collect();
    assert_eq!(of(Role::Prefill) + unfelt.len(), of(Role::Unified) + pair);
    assert!(unfelt.contains(&"sightline_slo_requests_total"), "{unfelt:?}");
    let model = server::HTTP_REQUESTS.info();
    let values = |route: &'static str| [route, "GET", "200"].map(Cow::Borrowed);
    assert_eq!(model.per(&values("/metrics")), Per::Process);
    assert_eq!(model.per(&values("/v1/completions")), Per::Model);
}

#[test]
fn paths_fold_into_a_closed_set() {
    let check = |path: &str, expect: Route| assert_eq!(Route::of_path(path), expect, "{path}");
    check("/v1/chat/completions", Route::ChatCompletions);
    check("/v1/models", Route::Models);
    check("/v1/models/a/b", Route::Model);
    check("/v1/models/", Route::Other);
    check("/v1/models/{model}", Route::Model);
    check("/readyz", Route::Health);
    check("/health", Route::Health);
    check("/admin/config", Route::AdminConfig);
    check("/admin/workers/127.0.0.1:8000/drain", Route::AdminWorker);
    check("/admin/workers//drain", Route::Other);
    check("/admin/workers", Route::AdminWorkers);
    check("/admin/workers/127.0.0.1:8000", Route::AdminListed);
    check("/admin/workers/x/y", Route::Other);
    check("other", Route::Other);
    check("/", Route::Other);
}
