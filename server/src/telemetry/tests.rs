//! Values of the engine on the page, where a served request cannot drive every one of them.

use engine::StorageStats;
use engine::{EngineSnapshot, EngineState, Observer, PoolSnapshot, StageTimes, StepPhase};
use engine::{RetractedSnapshot, StepStats};
use kv_cache::{DroppedBackups, Evictions, HostStats, PoolStats};
use kv_store::StoreStats;
use memory_pool::{CopyBusy, CopyStats, PartCopies};
use metric_catalog::install::Registry;
use metric_catalog::labels::Role;
use std::sync::Arc;
use std::time::Duration;
use types::{Bytes, Clock, Pages, Time};

use super::gauges::{Gauges, Snapshot};
use super::observe::{EngineObserver, Objectives};
use crate::config::{Host, Resolved, resolve};
use crate::host_tier::{Facts, PartFacts};
use crate::lifecycle::Phase;
use crate::source::Source;
use crate::tests::rig::settings;

/// The smallest model whose pools have several parts, one of them on the device alone.
const MODEL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/tiny-deepseek-v4");

pub(super) fn resolved(flags: &str) -> Resolved {
    let settings = settings(&format!("--model {MODEL} --kv-pool-bytes 16MiB {flags}"));
    let facts = Source::parse(&settings).and_then(|source| source.inspect(&settings));
    let host = Host::read(&node_info::Root::default());
    resolve(&settings, &facts.expect("a model"), &host).expect("the flags can work")
}

/// The same on two ranks, whether the model can be split or not.
fn on_two_ranks(flags: &str) -> Resolved {
    Resolved { tp_size: 2, ..resolved(flags) }
}

fn registry(resolved: &Resolved) -> Registry {
    Registry::new(Role::Unified, &resolved.model_name).expect("a registry")
}

/// The values of the series of this metric whose text has all of `parts`.
pub(super) fn values(page: &str, metric: &str, parts: &[&str]) -> Vec<f64> {
    let name = format!("sightline_{metric}{{");
    let lines = page.lines().filter(|line| line.starts_with(&name));
    let chosen = lines.filter(|line| parts.iter().all(|part| line.contains(part)));
    chosen
        .map(|line| line.rsplit(' ').next().and_then(|value| value.parse().ok()))
        .map(|value| value.expect("a number"))
        .collect()
}

pub(super) fn sum(page: &str, metric: &str, parts: &[&str]) -> f64 {
    values(page, metric, parts).iter().sum()
}

/// A pool whose device pages are all in use, and three times as many on the host.
fn pool(name: &'static str) -> PoolSnapshot {
    let device = PoolStats {
        name,
        page_bytes: Bytes(1),
        capacity: Pages(8),
        used_active: Pages(2),
        used_cached: Pages(6),
        alloc_failures: 0,
        hit_pages: 5,
        evicted_pages: Evictions::default(),
        query_tokens: 0,
    };
    let host = HostStats {
        name,
        capacity: Pages(24),
        used_active: Pages(8),
        used_cached: Pages(13),
        hit_pages: 17,
        evicted_pages: Evictions { capacity: 3, pressure: 4, flush: 5 },
        alloc_failures: 6,
        backups_dropped: DroppedBackups { no_host_room: 9, queue: 11 },
    };
    PoolSnapshot { device, host: Some(host) }
}

pub(super) fn snapshot(resolved: &Resolved, copies: CopyStats) -> Snapshot {
    let engine = EngineSnapshot {
        state: EngineState::Ready,
        failure: None,
        running: 0,
        running_limit: 1,
        waiting: 0,
        retracted: RetractedSnapshot::default(),
        bootstrap: engine::QueueSnapshot::default(),
        inflight_send: engine::QueueSnapshot::default(),
        prealloc: engine::QueueSnapshot::default(),
        transfer: engine::QueueSnapshot::default(),
        landed: engine::QueueSnapshot::default(),
        held: engine::HeldSnapshot::default(),
        pools: resolved.kv.iter().map(|kv| pool(kv.name)).collect(),
        copies,
        storage: None,
        last_iteration: Time::ZERO,
        iterations: 0,
    };
    let (queue, curve, tier, store, link) = (None, None, None, None, None);
    let engine = Some(engine);
    Snapshot { now: Time::ZERO, phase: Phase::Ready, queue, engine, curve, tier, store, link }
}

/// Bytes of each part in each direction, each figure another one.
fn copies(parts: &[&'static str], ranks: usize) -> CopyStats {
    let bytes = |rank: usize, place: usize| (100 * rank + place + 1) as u64;
    let of_rank = |rank: usize| {
        let part = move |(place, part): (usize, &&'static str)| PartCopies {
            part,
            rank,
            backup_bytes: bytes(rank, place),
            load_bytes: 1000 * bytes(rank, place),
        };
        parts.iter().enumerate().map(part)
    };
    let busy = |rank: usize| CopyBusy {
        rank,
        backup: Duration::from_millis(500 + rank as u64),
        load: Duration::from_secs(2),
    };
    CopyStats {
        pending_backups: 7,
        pending_loads: 2,
        parts: (0..ranks).flat_map(of_rank).collect(),
        busy: (0..ranks).map(busy).collect(),
    }
}

#[test]
fn every_part_that_is_mirrored_is_shown_in_both_tiers_on_every_rank() {
    let resolved = on_two_ranks("--enable-hierarchical-cache --hicache-ratio 3");
    let registry = registry(&resolved);
    let gauges = Gauges::new(&registry, Clock::start(), &resolved);
    gauges.set(&snapshot(&resolved, CopyStats::default()));
    let page = registry.render();
    let (mut bytes, mut parts) = (0.0, 0);
    for pool in &resolved.kv {
        for part in &pool.parts {
            let name = format!("pool=\"{}\"", part.name);
            for rank in ["tp_rank=\"0\"", "tp_rank=\"1\""] {
                let of = |metric: &str, more: &[&str]| {
                    values(&page, metric, &[&[&name, "tier=\"host\"", rank], more].concat())
                };
                if !part.host {
                    assert!(of("kv_pool_capacity_slots", &[]).is_empty(), "{}", part.name);
                    continue;
                }
                let size = part.page_bytes() as f64;
                assert_eq!(of("kv_pool_capacity_slots", &[]), [24.0]);
                assert_eq!(of("kv_pool_capacity_bytes", &[]), [24.0 * size]);
                assert_eq!(of("kv_pool_used_bytes", &["active"]), [8.0 * size]);
                assert_eq!(of("kv_pool_used_bytes", &["cached"]), [13.0 * size]);
                bytes += 24.0 * size;
                parts += 1;
            }
            let device = values(&page, "kv_pool_capacity_slots", &[&name, "tier=\"device\""]);
            assert_eq!(device, [8.0, 8.0], "{}", part.name);
        }
    }
    assert!(parts >= 8, "{parts}");
    assert_eq!(sum(&page, "kv_pool_capacity_bytes", &["tier=\"host\""]), bytes);
    let c4 = &["pool=\"deepseek_v4_c4\"", "tier=\"host\""];
    assert_eq!(values(&page, "kv_pool_hit_slots_total", c4), [17.0]);
    assert_eq!(values(&page, "kv_pool_alloc_failures_total", c4), [6.0]);
    for (reason, count) in [("capacity", 3.0), ("pressure", 4.0), ("flush", 5.0)] {
        let reason = format!("reason=\"{reason}\"");
        let evicted = values(&page, "kv_pool_evicted_slots_total", &[c4[0], c4[1], &reason]);
        assert_eq!(evicted, [count]);
    }
    let info = ["tier=\"host\"", "derived_from=\"kv\"", "layout=\"page_first\""];
    assert_eq!(sum(&page, "kv_pool_info", &info), 3.0, "the parts of the full pool");
    assert_eq!(sum(&page, "config_info", &["hicache_mode=\"write_through\""]), 1.0);
}

#[test]
fn copies_are_counted_by_direction_part_and_rank_and_once() {
    let resolved = on_two_ranks("--enable-hierarchical-cache");
    let registry = registry(&resolved);
    let gauges = Gauges::new(&registry, Clock::start(), &resolved);
    let mirrored = resolved.kv.iter().flat_map(|pool| &pool.parts).filter(|part| part.host);
    let parts: Vec<_> = mirrored.map(|part| part.name).collect();
    for _ in 0..2 {
        gauges.set(&snapshot(&resolved, copies(&parts, 2)));
    }
    let page = registry.render();
    for (place, part) in parts.iter().enumerate() {
        for rank in 0..2 {
            let labels = [format!("pool=\"{part}\""), format!("tp_rank=\"{rank}\"")];
            let moved = |direction| {
                let labels = [labels[0].as_str(), labels[1].as_str(), direction];
                values(&page, "hicache_transfer_bytes_total", &labels)
            };
            let bytes = (100 * rank + place + 1) as f64;
            assert_eq!(moved("\"backup\""), [bytes]);
            assert_eq!(moved("\"load\""), [1000.0 * bytes]);
        }
    }
    let busy = |parts: &[&str]| values(&page, "hicache_transfer_busy_seconds_total", parts);
    assert_eq!(busy(&["\"backup\"", "tp_rank=\"1\""]), [0.501]);
    assert_eq!(busy(&["\"load\"", "tp_rank=\"0\""]), [2.0]);
    assert_eq!(values(&page, "hicache_pending_operations", &["\"backup\""]), [7.0]);
    assert_eq!(values(&page, "hicache_pending_operations", &["\"load\""]), [2.0]);
    let dropped = |reason: &str| {
        let labels = ["pool=\"deepseek_v4_c4\"", "direction=\"backup\"", reason];
        values(&page, "hicache_transfer_failures_total", &labels)
    };
    assert_eq!(dropped("no_host_room"), [9.0]);
    assert_eq!(dropped("queue_full"), [11.0]);
}

#[test]
fn what_was_wanted_stands_beside_what_is_asked_for() {
    let sizes = |flags: &str| {
        let resolved = resolved(flags);
        let registry = registry(&resolved);
        drop(Gauges::new(&registry, Clock::start(), &resolved));
        let page = registry.render();
        let plan = resolved.hierarchy.map(|tier| tier.plan);
        let of = |metric: &str| sum(&page, metric, &[]);
        let [target, asked] = ["hicache_target_bytes", "hicache_requested_bytes"].map(of);
        (target, asked, of("hicache_ratio"), plan)
    };
    let (target, asked, ratio, _) = sizes("");
    assert_eq!((target, asked, ratio), (0.0, 0.0, 0.0), "there is no tier");
    let on = "--enable-hierarchical-cache";
    let (target, asked, ratio, plan) = sizes(&format!("{on} --hicache-ratio 2"));
    let planned = plan.expect("a tier").total_bytes as f64;
    assert_eq!((target, asked, ratio), (0.0, planned, 2.0));
    let (target, asked, ..) = sizes(&format!("{on} --hicache-ratio 2 --hicache-target 150GB"));
    assert_eq!((target, asked), (150e9, planned), "asked for much less than is wanted");
    let (target, asked, ratio, plan) = sizes(&format!("{on} --hicache-budget 64MB"));
    assert_eq!((target, asked), (64e6, 64e6));
    let plan = plan.expect("a tier");
    assert!(plan.total_bytes as f64 <= asked && ratio > 1.0, "{plan:?}");
}

#[test]
fn bytes_on_another_node_than_meant_are_told_apart() {
    let resolved = on_two_ranks("--enable-hierarchical-cache");
    let shown = |nodes: &[Option<u32>], placement: &[(u32, u64)]| {
        let registry = registry(&resolved);
        let gauges = Gauges::new(&registry, Clock::start(), &resolved);
        let mut facts = Facts::new(&resolved, None, Duration::ZERO).expect("a tier");
        let part = |rank: usize| PartFacts {
            pool: "kv",
            part: "kv",
            rank,
            pages: 1,
            bytes: Bytes(90),
            mapped: Bytes(100),
            slabs: 1,
        };
        facts.parts = vec![part(0), part(1)];
        facts.nodes = nodes.to_vec();
        facts.placement = placement.iter().map(|(node, bytes)| (*node, Bytes(*bytes))).collect();
        let snapshot = snapshot(&resolved, CopyStats::default());
        gauges.set(&Snapshot { tier: Some(Arc::new(facts)), ..snapshot });
        let page = registry.render();
        let on = |node: u32| {
            ["true", "false"].map(|local| {
                let labels = [format!("numa_node=\"{node}\""), format!("local=\"{local}\"")];
                sum(&page, "host_pool_numa_bytes", &labels.each_ref().map(String::as_str))
            })
        };
        [on(0), on(1)]
    };
    let both = &[Some(0), Some(1)];
    assert_eq!(shown(both, &[(0, 100), (1, 100)]), [[100.0, 0.0], [100.0, 0.0]]);
    assert_eq!(shown(both, &[(0, 160), (1, 40)]), [[100.0, 60.0], [40.0, 0.0]]);
    assert_eq!(shown(&[Some(1), Some(1)], &[(0, 50), (1, 150)]), [[0.0, 50.0], [150.0, 0.0]]);
    assert_eq!(shown(&[None, None], &[(0, 50), (1, 150)]), [[50.0, 0.0], [150.0, 0.0]]);
    assert_eq!(shown(&[None, Some(0)], &[(0, 50), (1, 150)]), [[50.0, 0.0], [100.0, 50.0]]);
    assert_eq!(shown(both, &[]), [[0.0; 2]; 2], "the system does not say");
}

#[test]
fn the_tier_shows_its_size_while_weights_are_read() {
    let resolved = on_two_ranks("--enable-hierarchical-cache");
    let registry = registry(&resolved);
    let gauges = Gauges::new(&registry, Clock::start(), &resolved);
    let mut facts = Facts::new(&resolved, None, Duration::ZERO).expect("a tier");
    let (pool, part, rank) = ("kv", "deepseek_v4_c4", 1);
    let (pages, bytes, mapped, slabs) = (7, Bytes(70), Bytes(100), 1);
    facts.parts = vec![PartFacts { pool, part, rank, pages, bytes, mapped, slabs }];
    let (queue, engine, curve) = (None, None, None);
    let (now, phase, tier) = (Time::ZERO, Phase::Loading, Some(Arc::new(facts)));
    let (store, link) = (None, None);
    gauges.set(&Snapshot { now, phase, queue, engine, curve, tier, store, link });
    let page = registry.render();
    let sizes = ["slots", "bytes"].map(|unit| {
        let metric = format!("kv_pool_capacity_{unit}");
        let own = ["tier=\"host\"", "pool=\"deepseek_v4_c4\"", "tp_rank=\"1\""];
        (sum(&page, &metric, &[]), sum(&page, &metric, &own))
    });
    assert_eq!(sizes, [(7.0, 7.0), (70.0, 70.0)], "and nothing else, the device has none yet");
}

/// A step that took a second.
pub(super) fn step() -> StepStats<'static> {
    static NO_TIME: std::sync::OnceLock<StageTimes> = std::sync::OnceLock::new();
    StepStats {
        now: Time::ZERO,
        phase: StepPhase::Prefill,
        duration: Duration::from_secs(1),
        busy: Duration::from_secs(1),
        rank_busy: &[],
        requests: 1,
        tokens: 3,
        prompt_tokens: 3,
        cached_device_tokens: 16,
        cached_host_tokens: 32,
        cached_storage_tokens: 64,
        cached_remote_tokens: 0,
        recomputed_tokens: 0,
        generated_tokens: 0,
        preemptions: engine::Preemptions::default(),
        copy_waits: engine::CopyWaits::default(),
        first_tokens: &[],
        inter_token: &[],
        queue_exits: &[],
        ages: &[],
        copies: &[],
        stages: NO_TIME.get_or_init(StageTimes::default),
    }
}

/// The page after these steps.
fn observed(steps: &[StepStats<'_>]) -> String {
    let resolved = Resolved { tp_size: 2, ..resolved("") };
    let registry = registry(&resolved);
    let second = Duration::from_secs(1);
    let objectives = Objectives { ttft: second, itl: second, e2e: second };
    let mut observer = EngineObserver::new(&registry, objectives, &resolved);
    steps.iter().for_each(|step| observer.on_step(step));
    registry.render()
}

#[test]
fn prompt_tokens_are_told_apart_by_their_source() {
    let page = observed(&[step(), step()]);
    let from = |source: &str| sum(&page, "prompt_tokens_total", &[source]);
    let all =
        ["computed", "device", "host", "storage"].map(|source| from(&format!("\"{source}\"")));
    assert_eq!(all, [6.0, 32.0, 64.0, 128.0]);
}

#[test]
fn ages_of_pages_and_times_of_copies_are_spread_out() {
    use engine::{Age, AgeEvent, CacheTier, CopyTime, Direction};
    let age = |event, age, pages| Age {
        pool: types::PoolId(0),
        tier: CacheTier::Device,
        event,
        age: Duration::from_secs(age),
        pages,
    };
    let ages = [age(AgeEvent::Evicted, 200, 7), age(AgeEvent::Reused, 2, 3)];
    let copies = [Direction::Load, Direction::Backup, Direction::Load]
        .map(|direction| CopyTime { direction, busy: Duration::from_millis(30) });
    let page = observed(&[StepStats { ages: &ages, copies: &copies, ..step() }]);
    let aged = |event: &str, le: &str| {
        let labels = ["\"device\"", event, &format!("le=\"{le}\"")];
        sum(&page, "kv_page_age_seconds_bucket", &labels)
    };
    assert_eq!([aged("evicted", "120"), aged("evicted", "300")], [0.0, 7.0]);
    assert_eq!([aged("reused", "1"), aged("reused", "3")], [0.0, 3.0]);
    let took = |way: &str| sum(&page, "hicache_transfer_duration_seconds_sum", &[way]);
    assert!((took("load") - 0.06).abs() < 1e-9 && (took("backup") - 0.03).abs() < 1e-9);
}

#[test]
fn what_a_step_lost_to_copies_is_counted() {
    let [loads, urgent_time] = [125, 250].map(Duration::from_millis);
    let copy_waits = engine::CopyWaits { loads, urgent: 1, urgent_time, held: 3 };
    let page = observed(&[StepStats { copy_waits, ..step() }, step()]);
    let waited = |cause: &str| sum(&page, "hicache_wait_seconds_total", &[cause]);
    assert_eq!([waited("\"loads\""), waited("\"urgent\"")], [0.125, 0.25]);
    assert_eq!(sum(&page, "hicache_held_requests_total", &[]), 3.0);
}

#[test]
fn each_rank_is_busy_for_as_long_as_it_computes() {
    let ranks = [3, 5].map(Duration::from_secs);
    let page = observed(&[StepStats { rank_busy: &ranks, ..step() }, step()]);
    let busy = |rank: &str| sum(&page, "forward_busy_seconds_total", &["\"prefill\"", rank]);
    assert_eq!(busy("tp_rank=\"0\""), 4.0, "what is known of the whole is the first rank's");
    assert_eq!(busy("tp_rank=\"1\""), 5.0);
}

#[test]
fn what_the_store_did_is_counted_by_its_result() {
    let resolved = resolved("--enable-hierarchical-cache");
    let registry = registry(&resolved);
    let gauges = Gauges::new(&registry, Clock::start(), &resolved);
    let store = StoreStats {
        hits: 1,
        misses: [2, 3, 4, 5, 6, 7, 8, 9, 10],
        read_bytes: 11,
        read_time: Duration::from_millis(500),
        writes: 12,
        present: 13,
        drops: [14, 15, 16, 17, 18],
        written_bytes: 19,
        write_time: Duration::from_millis(1500),
        evictions: 20,
        broken_deleted: 21,
        listed: true,
        entries: 22,
        held_bytes: 23,
        max_bytes: 24,
        queued_bytes: 25,
    };
    let storage = StorageStats {
        reading: 26,
        queued: 27,
        backups: 28,
        lookups: 29,
        found: 30,
        asked_pages: 31,
        arrived_pages: 32,
        entered_pages: 33,
        timeouts: 34,
        no_host_room: 35,
        busy: 36,
        backups_dropped: 37,
    };
    for _ in 0..2 {
        let mut snapshot = snapshot(&resolved, CopyStats::default());
        snapshot.store = Some(store);
        if let Some(engine) = &mut snapshot.engine {
            engine.storage = Some(storage);
        }
        gauges.set(&snapshot);
    }
    let page = registry.render();
    let of = |metric: &str, values: &[&str]| -> Vec<f64> {
        let value = |value: &&str| sum(&page, metric, &[&format!("=\"{value}\"")]);
        values.iter().map(value).collect()
    };
    let misses = ["absent", "timeout", "error", "truncated", "corrupt"];
    assert_eq!(of("kv_store_reads_total", &misses), [2.0, 3.0, 4.0, 5.0, 6.0]);
    let strangers = ["foreign", "model", "layout", "collision", "hit"];
    assert_eq!(of("kv_store_reads_total", &strangers), [7.0, 8.0, 9.0, 10.0, 1.0]);
    let kept = ["written", "present", "busy"];
    assert_eq!(of("kv_store_writes_total", &kept), [12.0, 13.0, 37.0]);
    let drops = ["queue_full", "no_room", "timeout", "error", "closed"];
    assert_eq!(of("kv_store_writes_total", &drops), [14.0, 15.0, 16.0, 17.0, 18.0]);
    let ways = ["read", "write"];
    assert_eq!(of("kv_store_transfer_bytes_total", &ways), [11.0, 19.0]);
    assert_eq!(of("kv_store_transfer_seconds_total", &ways), [0.5, 1.5]);
    assert_eq!(of("kv_store_deleted_objects_total", &["capacity", "broken"]), [20.0, 21.0]);
    let events = ["looked_up", "found", "timeout", "no_host_room", "busy"];
    assert_eq!(of("kv_store_prefixes_total", &events), [29.0, 30.0, 34.0, 35.0, 36.0]);
    let steps = ["asked", "arrived", "entered"];
    assert_eq!(of("kv_store_prefetched_slots_total", &steps), [31.0, 32.0, 33.0]);
    assert_eq!(of("kv_store_waiting_requests", &["reading", "queued"]), [26.0, 27.0]);
    let held = ["objects", "held_bytes", "limit_bytes", "queued_bytes"];
    let held = held.map(|what| sum(&page, &format!("kv_store_{what}"), &[]));
    assert_eq!(held, [22.0, 23.0, 24.0, 25.0]);
}
