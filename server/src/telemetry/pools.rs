//! KV pools: each named part of each pool of page ids, on each rank and in each tier.
//!
//! Parts that share the page ids of a pool have its counts of slots, and bytes by their own page.

use engine::PoolSnapshot;
use kv_cache::{Evictions, HostStats, PoolStats};
use metric_catalog::install::{GaugeHandle, Registry};
use metric_catalog::labels::{
    DerivedFrom, EvictReason, Layers, Layout, PageTokens, Pool, SlotBytes, SlotState, Tier, TpRank,
};
use metric_catalog::server as catalog;

use types::Pages;

use super::all;
use super::gauges::Follower;
use crate::cli::spelled;
use crate::config::Resolved;
use crate::host_tier::Facts;

/// A part as it is shown.
pub(super) struct Shown {
    /// Which pool of page ids it belongs to.
    pub(super) index: usize,
    pub(super) name: &'static str,
    layers: usize,
    /// Bytes of a page on one rank.
    page_bytes: u64,
    /// The pool whose page ids it borrows.
    derived_from: Option<&'static str>,
    /// Whether the host tier mirrors it.
    host: bool,
}

/// Every part, and a pool itself where none of its parts has its name: it is then an anchor of page
/// ids without bytes.
fn shown(resolved: &Resolved) -> Vec<Shown> {
    let mut all = Vec::new();
    for (index, pool) in resolved.kv.iter().enumerate() {
        if pool.parts.iter().all(|part| part.name != pool.name) {
            let (name, layers, page_bytes, derived_from) = (pool.name, 0, 0, None);
            let host = pool.parts.iter().any(|part| part.host);
            all.push(Shown { index, name, layers, page_bytes, derived_from, host });
        }
        all.extend(pool.parts.iter().map(|part| Shown {
            index,
            name: part.name,
            layers: part.layers.len(),
            page_bytes: part.page_bytes(),
            derived_from: (part.name != pool.name).then_some(pool.name),
            host: part.host,
        }));
    }
    all
}

/// Those that a host tier has, too, whether there is one or not.
pub(super) fn mirrored(resolved: &Resolved) -> Vec<Shown> {
    shown(resolved).into_iter().filter(|part| part.host).collect()
}

/// Every tier there is, with its parts and how rows lie in it.
fn tiers(resolved: &Resolved) -> Vec<(Tier, Vec<Shown>, String)> {
    // Device memory is page first on this back-end.
    let mut tiers = vec![(Tier::Device, shown(resolved), "page_first".to_owned())];
    if let Some(host) = &resolved.hierarchy {
        tiers.push((Tier::Host, mirrored(resolved), spelled(host.layout)));
    }
    tiers
}

/// Handles of all parts in all tiers.
pub(super) fn gauges(registry: &Registry, resolved: &Resolved) -> Vec<PoolGauges> {
    let ranks = resolved.tp_size;
    let of_tier = |(tier, parts, _): (Tier, Vec<Shown>, String)| {
        let handles = parts.iter().map(|part| PoolGauges::new(registry, tier, part, ranks));
        handles.collect::<Vec<_>>()
    };
    tiers(resolved).into_iter().flat_map(of_tier).collect()
}

/// What pages are made of, as an info metric.
pub(super) fn record_geometry(registry: &Registry, resolved: &Resolved) {
    let parts = tiers(resolved);
    let parts = parts
        .iter()
        .flat_map(|(tier, parts, layout)| parts.iter().map(move |part| (*tier, part, layout)));
    for (tier, part, layout) in parts {
        let geometry = (
            tier,
            Pool::new(part.name),
            Layers::new(part.layers.to_string()),
            PageTokens::new(resolved.page_tokens.to_string()),
            SlotBytes::new(part.page_bytes.to_string()),
            Layout::new(layout.clone()),
            DerivedFrom::new(part.derived_from.unwrap_or("none")),
        );
        registry.gauge(catalog::KV_POOL_INFO, geometry).set(1.0);
    }
}

/// Handles of one rank.
#[derive(Debug)]
struct RankGauges {
    capacity_bytes: GaugeHandle,
    capacity_slots: GaugeHandle,
    /// By state.
    used_bytes: Vec<GaugeHandle>,
    used_slots: Vec<GaugeHandle>,
}

/// What a tier says of a pool, both in the same words.
struct Usage {
    capacity: Pages,
    active: Pages,
    cached: Pages,
    hits: u64,
    failures: u64,
    evicted: Evictions,
}

impl Usage {
    const fn device(pool: &PoolStats) -> Self {
        Self {
            capacity: pool.capacity,
            active: pool.used_active,
            cached: pool.used_cached,
            hits: pool.hit_pages,
            failures: pool.alloc_failures,
            evicted: pool.evicted_pages,
        }
    }

    const fn host(pool: &HostStats) -> Self {
        Self {
            capacity: pool.capacity,
            active: pool.used_active,
            cached: pool.used_cached,
            hits: pool.hit_pages,
            failures: pool.alloc_failures,
            evicted: pool.evicted_pages,
        }
    }

    fn of(tier: Tier, pool: &PoolSnapshot) -> Option<Self> {
        match tier {
            Tier::Device => Some(Self::device(&pool.device)),
            Tier::Host => pool.host.as_ref().map(Self::host),
        }
    }
}

/// Handles of one part in one tier.
#[derive(Debug)]
pub(super) struct PoolGauges {
    tier: Tier,
    part: &'static str,
    index: usize,
    page_bytes: u64,
    ranks: Vec<RankGauges>,
    hits: Follower,
    evicted: Vec<Follower>,
    failures: Follower,
}

impl PoolGauges {
    fn new(registry: &Registry, tier: Tier, part: &Shown, ranks: usize) -> Self {
        let pool = Pool::new(part.name);
        let rank = |rank: usize| {
            let rank = TpRank::new(rank.to_string());
            let size = (tier, pool.clone(), rank.clone());
            let state = |state: SlotState| (tier, pool.clone(), rank.clone(), state);
            RankGauges {
                capacity_bytes: registry.gauge(catalog::KV_POOL_CAPACITY_BYTES, size.clone()),
                capacity_slots: registry.gauge(catalog::KV_POOL_CAPACITY_SLOTS, size),
                used_bytes: all(|used| registry.gauge(catalog::KV_POOL_USED_BYTES, state(used))),
                used_slots: all(|used| registry.gauge(catalog::KV_POOL_USED_SLOTS, state(used))),
            }
        };
        let evicted = |reason: EvictReason| {
            let labels = (tier, pool.clone(), reason);
            Follower::new(registry.counter(catalog::KV_POOL_EVICTED_SLOTS, labels))
        };
        let in_pool = (tier, pool.clone());
        let hits = registry.counter(catalog::KV_POOL_HIT_SLOTS, in_pool.clone());
        let failures = registry.counter(catalog::KV_POOL_ALLOC_FAILURES, in_pool);
        Self {
            tier,
            part: part.name,
            index: part.index,
            page_bytes: part.page_bytes,
            ranks: (0..ranks).map(rank).collect(),
            hits: Follower::new(hits),
            evicted: all(evicted),
            failures: Follower::new(failures),
        }
    }

    /// While the engine is not there yet: the host tier has its memory before weights are read.
    pub(super) fn set_allocated(&self, facts: &Facts) {
        let own =
            facts.parts.iter().filter(|part| self.tier == Tier::Host && part.part == self.part);
        for part in own {
            let Some(rank) = self.ranks.get(part.rank) else { continue };
            rank.capacity_slots.set_count(part.pages as u64);
            rank.capacity_bytes.set_count(part.bytes.0);
        }
    }

    /// Sets them from the pools of page ids.
    pub(super) fn set(&self, pools: &[PoolSnapshot]) {
        let usage = pools.get(self.index).and_then(|pool| Usage::of(self.tier, pool));
        let Some(usage) = usage else { return };
        for rank in &self.ranks {
            rank.capacity_slots.set_count(usage.capacity.0);
            rank.capacity_bytes.set_count(usage.capacity.0 * self.page_bytes);
            for state in SlotState::ALL {
                let used = match state {
                    SlotState::Active => usage.active.0,
                    SlotState::Cached => usage.cached.0,
                };
                rank.used_slots[state.index()].set_count(used);
                rank.used_bytes[state.index()].set_count(used * self.page_bytes);
            }
        }
        for reason in EvictReason::ALL {
            self.evicted[reason.index()].follow(match reason {
                EvictReason::Capacity => usage.evicted.capacity,
                EvictReason::Pressure => usage.evicted.pressure,
                EvictReason::Flush => usage.evicted.flush,
            });
        }
        self.hits.follow(usage.hits);
        self.failures.follow(usage.failures);
    }
}
