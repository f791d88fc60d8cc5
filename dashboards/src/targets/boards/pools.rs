//! Memory: the device's pools, the prefix cache and the host tier behind it.

use crate::build::{line, section};
use crate::ir::{Color, Dashboard, Section, Stack};
use crate::targets::answers::Composed;
use crate::targets::panels::{Fold, composed_over_time, now, over_time, words};
use crate::targets::subject;
use metric_catalog::engines::Engine;
use metric_catalog::engines::signal::Signal;
use metric_catalog::slo;

/// The board of device pools.
pub(super) fn kv_pools(engine: Engine) -> Dashboard {
    subject::board(
        engine,
        "kv-pools",
        "KV pools",
        "How full the device's KV pools are, what is taken back for lack of room, and what the \
         prefix cache saves.",
        vec![occupancy(engine), reuse(engine)],
    )
}

fn occupancy(engine: Engine) -> Section {
    let worst = now(
        engine,
        Signal::KvDeviceUsageRatio,
        Fold::Max,
        words("pool-active-now", "Fullest pool", "The fullest device pool of all processes."),
        |draft| draft.threshold(slo::POOL_ACTIVE_RATIO, Color::Orange).span(5),
    );
    let active = composed_over_time(
        engine,
        Composed::PoolUsage,
        words(
            "pool-active",
            "Used by live requests",
            "Share of each pool that live requests pin. Above the line requests are taken back: \
             run fewer at a time, or shorter ones.",
        ),
        ("", ""),
        |draft| draft.threshold(slo::POOL_ACTIVE_RATIO, Color::Orange).threshold_lines().max(1.0),
    );
    let preemptions = over_time(
        engine,
        Signal::PreemptionsRate,
        words(
            "preemptions",
            "Taken back",
            "Running requests that lost their place; their work is done again. Above the line more \
             is lost than won: lower the largest batch.",
        ),
        |draft| {
            draft
                .threshold(slo::RETRACTIONS_PER_SECOND, Color::Orange)
                .threshold_lines()
                .no_value("none taken back")
        },
    );
    let size = composed_over_time(
        engine,
        Composed::PoolSize,
        words(
            "pool-tokens",
            "Tokens in the pool",
            "What the device pool is used for. Cached tokens give way to live requests.",
        ),
        (
            "vLLM exports the used share of its pool, not its size in tokens: that is a label \
             value of an info metric.",
            "Gauges of the size of the pool and of what of it is cached.",
        ),
        |draft| draft.stacked(Stack::Sum),
    );
    section(
        "occupancy",
        "Occupancy",
        vec![line(8, vec![worst, active]), line(8, vec![preemptions, size])],
    )
}

fn reuse(engine: Engine) -> Section {
    let ratio = over_time(
        engine,
        Signal::PrefixHitRatio,
        words(
            "prefix-hit",
            "Prompt tokens reused",
            "Share of prompt tokens whose KV was there. It depends on the traffic; a sudden fall \
             with the same traffic is a cache that was lost, or requests that go elsewhere.",
        ),
        |draft| draft.max(1.0).no_value("no traffic"),
    );
    let tiers = over_time(
        engine,
        Signal::PrefixHitByTier,
        words("hits-by-tier", "Hits by tier", "Where reused KV came from."),
        |draft| draft.stacked(Stack::Sum).no_value("no hits"),
    );
    let evictions = over_time(
        engine,
        Signal::KvEvictionsRate,
        words(
            "evictions",
            "Evictions",
            "What the device's cache loses. Many with few hits: the cache only churns, and a host \
             tier behind it would help.",
        ),
        |draft| draft.no_value("none evicted"),
    );
    section("reuse", "Prefix cache", vec![line(8, vec![ratio, tiers, evictions])])
}

/// The board of the host tier.
pub(super) fn hicache(engine: Engine) -> Dashboard {
    subject::board(
        engine,
        "hicache",
        "Host cache",
        "The host tier behind the device's cache: is it full, does it give anything back, how fast \
         are the copies, and did it get the memory it was meant to have.",
        vec![fill(engine), copies(engine), memory(engine)],
    )
}

fn fill(engine: Engine) -> Section {
    let usage = over_time(
        engine,
        Signal::KvHostUsageRatio,
        words(
            "host-pool-fill",
            "Host tier",
            "Used share of the host tier. Full is as it should be; full with many drops and few \
             hits, it is too small for the traffic.",
        ),
        |draft| {
            draft.threshold(slo::HOST_POOL_FULL_RATIO, Color::Yellow).threshold_lines().max(1.0)
        },
    );
    let pools = over_time(
        engine,
        Signal::KvHostUsageByPool,
        words("host-by-pool", "Host tier by pool", "Used share of each pool of the host tier."),
        |draft| draft,
    );
    let dropped = composed_over_time(
        engine,
        Composed::HostDropped,
        words(
            "host-dropped",
            "Lost by the host tier",
            "What could not be kept or copied. With hits from the host it is a tier that is too \
             small; without, one that is not needed.",
        ),
        ("", ""),
        |draft| draft.no_value("nothing lost"),
    );
    section("fill", "How full", vec![line(8, vec![usage, pools, dropped])])
}

fn copies(engine: Engine) -> Section {
    let load = over_time(
        engine,
        Signal::HicacheLoadBytesRate,
        words("host-load", "Host to device", "KV that comes back: what the tier is for."),
        |draft| draft.no_value("no copies"),
    );
    let backup = over_time(
        engine,
        Signal::HicacheBackupBytesRate,
        words("host-backup", "Device to host", "KV that is put aside."),
        |draft| draft.no_value("no copies"),
    );
    let bandwidth = over_time(
        engine,
        Signal::HicacheBandwidth,
        words(
            "copy-bandwidth",
            "Speed of copies",
            "Bytes by second of copying, host to device. Half of what the bus can do: memory on \
             the wrong NUMA node, or a slot with fewer lanes.",
        ),
        |draft| draft.no_value("no copies"),
    );
    let seconds = composed_over_time(
        engine,
        Composed::CopySeconds,
        words("copy-duration", "Duration of copies", "How long one copy takes."),
        (
            "vLLM counts the time in copies, not how long each takes.",
            "Histograms of the duration of copies.",
        ),
        |draft| draft.no_value("no copies"),
    );
    section(
        "copies",
        "Copies",
        vec![line(8, vec![load, backup]), line(8, vec![bandwidth, seconds])],
    )
}

fn memory(engine: Engine) -> Section {
    let bytes = over_time(
        engine,
        Signal::HostCacheBytes,
        words("host-bytes", "Bytes wanted and got", "Whether the tier has the size it should."),
        |draft| draft,
    );
    let numa = over_time(
        engine,
        Signal::HostCacheNumaPlacement,
        words(
            "numa-placement",
            "NUMA placement",
            "Whether the tier lies on the node of its device; the other node costs half of the \
             bandwidth.",
        ),
        |draft| draft,
    );
    section("memory", "Memory of the host", vec![line(7, vec![bytes, numa])])
}
