//! What no request to a server moves for certain, and the tests that drive it instead.

use metric_catalog::def::Values;

/// A metric, the values of a label with bars between or nothing for all of it, and the test.
pub(crate) const ELSEWHERE: &[(&str, &str, Test)] = &[
    ("sightline_kv_hit_curve_dropped_requests_total", "", CURVE),
    ("sightline_kv_store_reads_total", "absent|timeout|error|truncated|corrupt", STORE),
    ("sightline_kv_store_reads_total", "foreign|model|layout|collision", STORE),
    ("sightline_kv_store_writes_total", "queue_full|no_room|timeout|error|closed|busy", STORE),
    ("sightline_kv_store_writes_total", "present", STORE),
    ("sightline_kv_store_deleted_objects_total", "", STORE),
    ("sightline_kv_store_prefixes_total", "timeout|no_host_room|busy", STORE),
    ("sightline_hicache_transfer_failures_total", "no_host_room", COPIES),
    ("sightline_hicache_wait_seconds_total", "", WAITS),
    ("sightline_hicache_held_requests_total", "", WAITS),
    ("sightline_kv_pool_alloc_failures_total", "host", PARTS),
    ("sightline_kv_transfer_errors_total", "bootstrap|alloc|wire|bootstrap_timeout", ENDS),
    ("sightline_kv_transfer_errors_total", "waiting_timeout|connect|alloc|checksum", ENDS),
    ("sightline_kv_transfer_errors_total", "peer_gone|protocol|restore_failed|internal", ENDS),
    ("sightline_kv_transfer_errors_total", "peer_abort|local_abort", ENDS),
    ("sightline_kv_transfers_total", "error", ENDS),
    ("sightline_kv_link_violations_total", "", LINKS),
    ("sightline_kv_link_stray_messages_total", "", LINKS),
    ("sightline_router_holds_total", "", AWAY),
    ("sightline_router_holds_total", "routed|expired|full|client_gone|draining", AWAY),
    ("sightline_router_holds_total", "refused", AWAY_FULL),
    ("sightline_router_hold_duration_seconds", "", AWAY),
    ("sightline_router_discovery_failures_total", "", DISCOVERY),
    ("sightline_http_requests_total", "502", PAIR_FAILURE),
    ("sightline_requests_aborted_total", "transfer", GIVEN_UP),
    ("sightline_http_requests_total", "/admin/workers|/admin/workers/{worker}", LISTING),
    ("sightline_http_request_duration_seconds", "/admin/workers|/admin/workers/{worker}", LISTING),
];

/// A file of the repository, and the name of a test in it.
pub(crate) type Test = (&'static str, &'static str);
const ENDS: Test =
    ("server/src/telemetry/transfer/tests.rs", "ends_are_counted_once_by_result_and_by_reason");
const LINKS: Test =
    ("server/src/telemetry/transfer/tests.rs", "what_breaks_the_protocol_of_a_link_is_counted");
const AWAY: Test = (
    "server/router/src/serve/tests/away.rs",
    "requests_wait_for_the_only_worker_and_are_answered_when_it_is_back",
);
const AWAY_FULL: Test =
    ("server/router/src/serve/tests/away.rs", "a_worker_that_comes_back_full_refuses_who_waited");
const DISCOVERY: Test = (
    "server/router/src/serve/tests/discovery.rs",
    "a_file_is_followed_and_a_broken_one_keeps_the_list",
);
const LISTING: Test =
    ("server/router/src/serve/tests/listing.rs", "a_worker_is_added_asked_and_removed");
const GIVEN_UP: Test = (
    "server/src/telemetry/transfer/tests.rs",
    "what_is_given_up_is_counted_at_its_stage_and_by_whom",
);
const PAIR_FAILURE: Test = ("server/src/tests/pair.rs", "a_peer_that_is_not_there_is_named");
const CURVE: Test = (
    "server/engine/src/curve/tests.rs",
    "events_that_find_the_queue_full_are_counted_and_nobody_waits",
);
const STORE: Test =
    ("server/src/telemetry/tests.rs", "what_the_store_did_is_counted_by_its_result");
const WAITS: Test = ("server/src/telemetry/tests.rs", "what_a_step_lost_to_copies_is_counted");
const PARTS: Test = (
    "server/src/telemetry/tests.rs",
    "every_part_that_is_mirrored_is_shown_in_both_tiers_on_every_rank",
);
const COPIES: Test =
    ("server/src/telemetry/tests.rs", "copies_are_counted_by_direction_part_and_rank_and_once");

#[test]
fn what_is_driven_elsewhere_is_declared_and_its_test_is_there() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    for (name, value, (file, test)) in ELSEWHERE {
        let info = metric_catalog::all().find(|info| info.name == *name);
        let info = info.unwrap_or_else(|| panic!("{name} is not declared"));
        let values = info.labels.iter().filter_map(|label| match label.values {
            Values::Closed(values) => Some(values),
            Values::Open { .. } => None,
        });
        let values: Vec<&str> = values.flatten().copied().collect();
        for value in value.split('|').filter(|value| !value.is_empty()) {
            assert!(values.contains(&value), "{name} has no label value {value}");
        }
        let text = std::fs::read_to_string(format!("{root}/{file}")).unwrap_or_default();
        assert!(text.contains(&format!("fn {test}(")), "{file} has no test {test}");
    }
}
