//! KV pools: each named part of each pool of page ids, on each rank.
//!
//! Parts that share the page ids of a pool have its counts of slots, and bytes by their own page.

use engine::PoolSnapshot;
use metric_catalog::install::{GaugeHandle, Registry};
use metric_catalog::labels::{
    DerivedFrom, EvictReason, Layers, Layout, PageTokens, Pool, SlotBytes, SlotState, Tier, TpRank,
};
use metric_catalog::server as catalog;

use super::all;
use super::gauges::Follower;
use crate::config::Resolved;

/// A part as it is shown.
struct Shown {
    /// Which pool of page ids it belongs to.
    index: usize,
    name: &'static str,
    layers: usize,
    /// Bytes of a page on one rank.
    page_bytes: u64,
    /// The pool whose page ids it borrows.
    derived_from: Option<&'static str>,
}

/// Every part, and a pool itself where none of its parts has its name: it is then an anchor of page
/// ids without bytes.
fn shown(resolved: &Resolved) -> Vec<Shown> {
    let mut all = Vec::new();
    for (index, pool) in resolved.kv.iter().enumerate() {
        if pool.parts.iter().all(|part| part.name != pool.name) {
            let (name, layers, page_bytes, derived_from) = (pool.name, 0, 0, None);
            all.push(Shown { index, name, layers, page_bytes, derived_from });
        }
        all.extend(pool.parts.iter().map(|part| Shown {
            index,
            name: part.name,
            layers: part.layers.len(),
            page_bytes: part.page_bytes(),
            derived_from: (part.name != pool.name).then_some(pool.name),
        }));
    }
    all
}

/// Handles of all parts.
pub(super) fn gauges(registry: &Registry, resolved: &Resolved) -> Vec<PoolGauges> {
    shown(resolved).iter().map(|part| PoolGauges::new(registry, part, resolved.tp_size)).collect()
}

/// What pages are made of, as an info metric.
pub(super) fn record_geometry(registry: &Registry, resolved: &Resolved) {
    for part in shown(resolved) {
        let geometry = (
            Tier::Device,
            Pool::new(part.name),
            Layers::new(part.layers.to_string()),
            PageTokens::new(resolved.page_tokens.to_string()),
            SlotBytes::new(part.page_bytes.to_string()),
            Layout::new("page_first"),
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

/// Handles of one part.
#[derive(Debug)]
pub(super) struct PoolGauges {
    index: usize,
    page_bytes: u64,
    ranks: Vec<RankGauges>,
    hits: Follower,
    evicted: Vec<Follower>,
    failures: Follower,
}

impl PoolGauges {
    fn new(registry: &Registry, part: &Shown, ranks: usize) -> Self {
        let (tier, pool) = (Tier::Device, Pool::new(part.name));
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
            index: part.index,
            page_bytes: part.page_bytes,
            ranks: (0..ranks).map(rank).collect(),
            hits: Follower::new(hits),
            evicted: all(evicted),
            failures: Follower::new(failures),
        }
    }

    /// Sets them from the pools of page ids.
    pub(super) fn set(&self, pools: &[PoolSnapshot]) {
        let Some(pool) = pools.get(self.index).map(|pool| &pool.device) else { return };
        for rank in &self.ranks {
            rank.capacity_slots.set_count(pool.capacity.0);
            rank.capacity_bytes.set_count(pool.capacity.0 * self.page_bytes);
            for state in SlotState::ALL {
                let used = match state {
                    SlotState::Active => pool.used_active.0,
                    SlotState::Cached => pool.used_cached.0,
                };
                rank.used_slots[state.index()].set_count(used);
                rank.used_bytes[state.index()].set_count(used * self.page_bytes);
            }
        }
        for reason in EvictReason::ALL {
            self.evicted[reason.index()].follow(match reason {
                EvictReason::Capacity => pool.evicted_pages.capacity,
                EvictReason::Pressure => pool.evicted_pages.pressure,
                EvictReason::Flush => pool.evicted_pages.flush,
            });
        }
        self.hits.follow(pool.hit_pages);
        self.failures.follow(pool.alloc_failures);
    }
}
