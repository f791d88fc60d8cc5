use super::*;
use crate::hostcache::{Placed, Sizes};

const GB: u64 = 1_000_000_000;

fn cache(source: CacheSource, pools: &[(&str, NodeId, Option<u64>, Option<u64>)]) -> Cache {
    let pools = pools.iter().map(|(pool, node, planned, allocated)| {
        let sizes = Sizes { planned: *planned, allocated: *allocated };
        (((*pool).to_owned(), *node), sizes)
    });
    Cache {
        source,
        pools: Pools(pools.collect()),
        ratio: Some(2.0),
        unit_bytes: None,
        target: None,
        placed: None,
    }
}

/// A tier of one pool that has all it asked for.
fn whole(gigabytes: u64) -> Cache {
    let bytes = Some(gigabytes * GB);
    cache(CacheSource::Log, &[("kv", None, bytes, bytes)])
}

fn known<'a>(name: &'a str, cache: &'a Cache, node: NodeId) -> Known<'a> {
    Known { name, cache: Some(cache), node, running: Some(true), ..Known::default() }
}

fn rooms(rooms: &[(u32, i64)]) -> BTreeMap<u32, i64> {
    rooms.iter().map(|(node, gigabytes)| (*node, gigabytes * GB as i64)).collect()
}

/// On a machine that has the nodes with room and no other.
fn join(services: &[Known<'_>], headroom: &BTreeMap<u32, i64>) -> Join {
    let only = headroom.keys().next().copied().filter(|_| headroom.len() == 1);
    super::join(services, headroom, only)
}

#[test]
fn what_a_log_said_is_held_only_by_what_runs() {
    let tier = whole(20);
    let held = |source, running| {
        let tier = Cache { source, ..tier.clone() };
        let service = Known { running, ..known("a", &tier, Some(0)) };
        let joined = join(&[service], &rooms(&[(0, 30), (1, 50)]));
        (joined.services["a"].allocated(), joined.services["a"].ratio_max)
    };
    assert_eq!(held(CacheSource::Log, Some(true)), (Some(20 * GB), Some(5.0)));
    assert_eq!(held(CacheSource::Log, None), (None, None));
    assert_eq!(held(CacheSource::Log, Some(false)), (Some(0), Some(3.0)));
    // A page that answers is of something that runs.
    assert_eq!(held(CacheSource::Metrics, None), (Some(20 * GB), Some(5.0)));
}

#[test]
fn a_node_that_could_not_be_read_is_still_one() {
    let tier = whole(20);
    // Two nodes, and nothing is known of the second: what is bound to none is not on the first.
    let joined = super::join(&[known("a", &tier, None)], &rooms(&[(0, 30)]), None);
    assert!(joined.services["a"].nodes.contains_key(&None));
    assert_eq!(joined.nodes[&0].outstanding, 0);
}

#[test]
fn the_incident() {
    // 150 GB wanted on a node of 240 GB; ratio 2.0 gave 20 GB, and 200 GB are left.
    let prefill = whole(20);
    let wanted = Known { target: Some(150 * GB), ..known("prefill", &prefill, Some(0)) };
    let joined = join(&[wanted], &rooms(&[(0, 200), (1, 200)]));
    let service = &joined.services["prefill"];
    assert_eq!(service.target, Some((150 * GB, TargetFrom::Config)));
    assert_eq!(service.bytes_per_ratio, Some(10e9));
    // 2.0 x (20 + 200) / 20.
    assert_eq!(service.ratio_max, Some(22.0));
    // So 150 GB are ratio 15, and they fit.
    assert_eq!(150e9 / 10e9, 15.0);
    assert_eq!(service.nodes[&Some(0)].outstanding(), Some(0));
    assert_eq!(joined.nodes[&0].left(), 200 * GB as i64);
}

#[test]
fn the_incident_with_the_pools_that_its_log_named() {
    // Four ranks of 1670 pages: 15,294,207,360 bytes each. 138.8 GB are left of the node.
    let bytes = Some(4 * 15_294_207_360);
    let log = cache(CacheSource::Log, &[("all of them", None, bytes, bytes)]);
    let joined = join(&[known("prefill", &log, Some(0))], &BTreeMap::from([(0, 138_823_170_560)]));
    let service = &joined.services["prefill"];
    assert_eq!(service.bytes_per_ratio, Some(30_588_414_720.0));
    // (138,823,170,560 + 61,176,829,440) / 30,588,414,720 = 200 GB / 30.59 GB.
    let largest = service.ratio_max.expect("a ratio");
    assert!((largest - 6.538_423).abs() < 1e-6, "{largest}");
    // The ratio of 20 that was thought of asks for 611.8 GB.
    assert!(20.0 * 30_588_414_720.0 > 611e9 && largest < 20.0);
}

#[test]
fn what_others_have_yet_to_take_is_left_to_them() {
    let (first, second) =
        (whole(20), cache(CacheSource::Plan, &[("kv", Some(0), Some(50 * GB), None)]));
    let starting = Known { running: Some(false), ..known("second", &second, None) };
    let joined = join(&[known("first", &first, Some(0)), starting], &rooms(&[(0, 200)]));
    assert_eq!(joined.nodes[&0], NodeJoin { headroom: 200 * GB as i64, outstanding: 50 * GB });
    assert_eq!(joined.nodes[&0].left(), 150 * GB as i64);
    // 2 x (20 + 200 - 50) / 20.
    assert_eq!(joined.services["first"].ratio_max, Some(17.0));
    // It holds nothing yet: 200 GB at 25 GB a unit. Its own 50 GB are not taken from it.
    assert_eq!(joined.services["second"].bytes_per_ratio, Some(25e9));
    assert_eq!(joined.services["second"].ratio_max, Some(8.0));
    // On another node nobody is in the way.
    let elsewhere = join(&[known("first", &first, Some(1))], &rooms(&[(0, 200), (1, 180)]));
    assert_eq!(elsewhere.services["first"].ratio_max, Some(20.0));
}

#[test]
fn a_tier_on_two_nodes_is_bounded_by_the_fuller_one() {
    let pools = [
        ("kv", Some(0), Some(30 * GB), Some(30 * GB)),
        ("kv", Some(1), Some(10 * GB), Some(10 * GB)),
    ];
    let uneven = cache(CacheSource::Metrics, &pools);
    let joined = join(&[known("a", &uneven, None)], &rooms(&[(0, 60), (1, 10)]));
    // Node 0: 2 x (30 + 60) / 30 = 6; node 1: 2 x (10 + 10) / 10 = 4.
    assert_eq!(joined.services["a"].ratio_max, Some(4.0));
    assert_eq!(joined.services["a"].planned(), Some(40 * GB));
    assert_eq!(joined.services["a"].allocated(), Some(40 * GB));
}

#[test]
fn who_is_bound_to_no_node_may_use_all_of_them() {
    let tier = whole(20);
    let joined = join(&[known("a", &tier, None)], &rooms(&[(0, 30), (1, 50)]));
    assert_eq!(joined.machine.headroom, 80 * GB as i64);
    assert_eq!(joined.services["a"].ratio_max, Some(10.0));
    assert_eq!(joined.services["a"].local_ratio, None);
    // One node is all of them.
    let joined = join(&[known("a", &tier, None)], &rooms(&[(0, 30)]));
    assert_eq!(joined.services["a"].ratio_max, Some(5.0));
    assert!(joined.services["a"].nodes.contains_key(&Some(0)));
}

#[test]
fn a_node_that_is_full_has_room_for_less() {
    let tier = whole(20);
    let less = join(&[known("a", &tier, Some(0))], &rooms(&[(0, -5)]));
    assert_eq!(less.services["a"].ratio_max, Some(1.5));
    assert_eq!(less.nodes[&0].left(), -5 * GB as i64);
    let nothing = join(&[known("a", &tier, Some(0))], &rooms(&[(0, -50)]));
    assert_eq!(nothing.services["a"].ratio_max, Some(0.0));
}

#[test]
fn what_cannot_be_known_is_absent() {
    let tier = whole(20);
    // A node that nobody knows, or no node at all.
    let joined = join(&[known("a", &tier, Some(7))], &rooms(&[(0, 200)]));
    assert_eq!(joined.services["a"].ratio_max, None);
    assert_eq!(joined.services["a"].bytes_per_ratio, Some(10e9));
    assert_eq!(join(&[known("a", &tier, None)], &rooms(&[])).services["a"].ratio_max, None);
    // No ratio: neither a unit nor a largest.
    let sized = Cache { ratio: None, ..whole(20) };
    let joined = join(&[known("a", &sized, Some(0))], &rooms(&[(0, 200)]));
    assert_eq!(joined.services["a"].bytes_per_ratio, None);
    assert_eq!(joined.services["a"].ratio_max, None);
    // Unless the configuration has it.
    let told = Known { ratio: Some(4.0), ..known("a", &sized, Some(0)) };
    assert_eq!(join(&[told], &rooms(&[(0, 200)])).services["a"].ratio_max, Some(44.0));
    // A plan of a service that runs: nobody knows what it holds.
    let plan = cache(CacheSource::Plan, &[("kv", Some(0), Some(50 * GB), None)]);
    let joined = join(&[known("a", &plan, None)], &rooms(&[(0, 200)]));
    assert_eq!(joined.services["a"].ratio_max, None);
    assert_eq!(joined.services["a"].planned(), Some(50 * GB));
    assert_eq!(joined.services["a"].allocated(), None);
    assert_eq!(joined.nodes[&0].outstanding, 0);
    // Nothing at all, and a server without a tier.
    let bare = Known { name: "a", target: Some(GB), ..Known::default() };
    let joined = join(&[bare], &rooms(&[(0, 200)]));
    assert_eq!(joined.services["a"].source, None);
    assert_eq!(joined.services["a"].target, Some((GB, TargetFrom::Config)));
    let none = cache(CacheSource::Metrics, &[]);
    let joined = join(&[known("a", &none, Some(0))], &rooms(&[(0, 200)]));
    assert_eq!(joined.services["a"].ratio_max, None);
    assert_eq!(joined.services["a"].planned(), Some(0));
}

#[test]
fn a_service_that_does_not_run_holds_nothing_whatever_its_log_says() {
    let tier = whole(20);
    let down = Known { running: Some(false), ..known("a", &tier, Some(0)) };
    let joined = join(&[down], &rooms(&[(0, 220)]));
    assert_eq!(joined.services["a"].allocated(), Some(0));
    assert_eq!(joined.nodes[&0].outstanding, 20 * GB);
    // The memory is back in the headroom, so the largest ratio is the same: 220 / 10.
    assert_eq!(joined.services["a"].ratio_max, Some(22.0));
}

#[test]
fn the_unit_that_a_source_says_is_taken() {
    // Rounded up to pages, 20 GB are a little more than twice the device.
    let tier = Cache { unit_bytes: Some(9 * GB), target: Some(150 * GB), ..whole(20) };
    let joined = join(&[known("a", &tier, Some(0))], &rooms(&[(0, 70)]));
    assert_eq!(joined.services["a"].bytes_per_ratio, Some(9e9));
    assert_eq!(joined.services["a"].ratio_max, Some(10.0));
    assert_eq!(joined.services["a"].target, Some((150 * GB, TargetFrom::Metrics)));
}

#[test]
fn where_pools_lie() {
    let resident = |shmem: [u64; 2]| {
        let node = |shmem: u64| Resident { anon: 7 * GB, shmem: shmem * GB };
        BTreeMap::from([(0, node(shmem[0])), (1, node(shmem[1]))])
    };
    let tier = whole(20);
    let local = |shmem, node| {
        let service = Known { resident: resident(shmem), ..known("a", &tier, node) };
        join(&[service], &rooms(&[(0, 200), (1, 200)])).services["a"].local_ratio
    };
    assert_eq!(local([20, 0], Some(0)), Some(1.0));
    assert_eq!(local([15, 5], Some(0)), Some(0.75));
    assert_eq!(local([15, 5], Some(1)), Some(0.25));
    // No node was planned; or the pools are not in shared memory at all.
    assert_eq!(local([20, 0], None), None);
    assert_eq!(local([3, 0], Some(0)), None);
    // What the server has sampled itself is better.
    let sampled = Cache { placed: Some(Placed { local: 3, total: 4 }), ..whole(20) };
    let service = Known { resident: resident([20, 0]), ..known("a", &sampled, Some(0)) };
    assert_eq!(join(&[service], &rooms(&[])).services["a"].local_ratio, Some(0.75));
}

#[test]
fn sizes_beyond_counting_are_not_known() {
    let pools = [("a", Some(0), Some(u64::MAX), Some(u64::MAX)), ("b", Some(0), Some(1), Some(1))];
    let joined = join(&[known("a", &cache(CacheSource::Plan, &pools), None)], &rooms(&[(0, 1)]));
    assert_eq!(joined.services["a"].planned(), None);
    assert_eq!(joined.services["a"].ratio_max, None);
}
