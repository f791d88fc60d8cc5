//! The hit-ratio curve: what was estimated, and what each size of a host tier would cost.

use std::sync::OnceLock;

use engine::CurveSnapshot;
use kv_cache::{CANDIDATE_RATIOS, PlanInput};
use metric_catalog::install::{CounterHandle, GaugeHandle, Registry, TimeHandle};
use metric_catalog::labels::{CurveReset, HostRatio, NumaNode, Pool};
use metric_catalog::server as catalog;

use super::gauges::Follower;
use crate::config::Resolved;

/// Ratios that the curve is drawn for, ascending: the usual ones, and the one in force.
#[must_use]
pub fn candidates(resolved: &Resolved) -> Vec<f64> {
    let in_force = resolved.hierarchy.as_ref().map(|tier| tier.plan.ratio);
    let mut ratios: Vec<f64> = CANDIDATE_RATIOS.into_iter().chain(in_force).collect();
    ratios.sort_by(f64::total_cmp);
    ratios.dedup();
    ratios
}

/// A ratio as a label value: no trailing zeros.
fn label(ratio: f64) -> HostRatio {
    HostRatio::new(ratio.to_string())
}

/// The node as a label value; `any` for ranks that are bound to none.
fn node(node: Option<u32>) -> NumaNode {
    NumaNode::new(node.map_or_else(|| "any".to_owned(), |node| node.to_string()))
}

/// What sizes would cost: numbers of the configuration, set once.
pub(super) fn record_costs(registry: &Registry, resolved: &Resolved) {
    let Some(input) = &resolved.tier else { return };
    for ratio in candidates(resolved) {
        for share in input.nodes(ratio) {
            let labels = (label(ratio), node(share.node));
            registry.gauge(catalog::KV_HIT_CURVE_REQUIRED_BYTES, labels).set_count(share.bytes);
        }
        for (pool, slots) in slots(input, ratio) {
            let labels = (label(ratio), Pool::new(pool));
            registry.gauge(catalog::KV_HIT_CURVE_CAPACITY_SLOTS, labels).set_count(slots);
        }
    }
    for share in input.nodes(1.0) {
        let limits = [share.room, input.room.host, input.room.group, input.room.locked];
        // What is not known bounds nothing; a host of which nothing is known shows no headroom.
        let room = limits.into_iter().flatten().min().unwrap_or(0);
        registry.gauge(catalog::HICACHE_HEADROOM_BYTES, (node(share.node),)).set_count(room);
    }
}

/// Host slots of each mirrored part at `ratio`, those of all ranks alike.
fn slots(input: &PlanInput, ratio: f64) -> impl Iterator<Item = (&'static str, u64)> {
    input.pools.iter().flat_map(move |pool| {
        let pages = pool.sizing.pages(pool.device_pages, ratio) as u64;
        pool.parts.iter().filter(|part| part.host).map(move |part| (part.name, pages))
    })
}

#[derive(Debug)]
struct CandidateHandles {
    hits: Follower,
    loss: Follower,
    warm: GaugeHandle,
}

/// Handles of the estimate.
#[derive(Debug)]
pub(super) struct CurveGauges {
    registry: Registry,
    /// One per candidate of the estimator, which knows them once it runs.
    candidates: OnceLock<Vec<CandidateHandles>>,
    lookup_tokens: Follower,
    cold_tokens: Follower,
    tracked: GaugeHandle,
    sampling: GaugeHandle,
    dropped: Follower,
    flushes: Follower,
    cpu: TimeHandle,
}

impl CurveGauges {
    pub(super) fn new(registry: &Registry) -> Self {
        let follow = |counter: CounterHandle| Follower::new(counter);
        let flushed = (CurveReset::Flush,);
        Self {
            registry: registry.clone(),
            candidates: OnceLock::new(),
            lookup_tokens: follow(registry.counter(catalog::KV_HIT_CURVE_LOOKUP_TOKENS, ())),
            cold_tokens: follow(registry.counter(catalog::KV_HIT_CURVE_COLD_TOKENS, ())),
            tracked: registry.gauge(catalog::KV_HIT_CURVE_TRACKED_SLOTS, ()),
            sampling: registry.gauge(catalog::KV_HIT_CURVE_SAMPLING, ()),
            dropped: follow(registry.counter(catalog::KV_HIT_CURVE_DROPPED_REQUESTS, ())),
            flushes: follow(registry.counter(catalog::KV_HIT_CURVE_RESETS, flushed)),
            cpu: registry.time(catalog::KV_HIT_CURVE_UPDATE_SECONDS, ()),
        }
    }

    pub(super) fn set(&self, curve: &CurveSnapshot) {
        let registry = &self.registry;
        let handles = self.candidates.get_or_init(|| {
            let handles = curve.candidates.iter().map(|candidate| {
                let ratio = || (label(candidate.ratio),);
                let loss = registry.counter(catalog::KV_HIT_CURVE_WINDOW_LOSS_TOKENS, ratio());
                CandidateHandles {
                    hits: Follower::new(
                        registry.counter(catalog::KV_HIT_CURVE_HIT_TOKENS, ratio()),
                    ),
                    loss: Follower::new(loss),
                    warm: registry.gauge(catalog::KV_HIT_CURVE_WARM, ratio()),
                }
            });
            handles.collect()
        });
        for (handles, candidate) in handles.iter().zip(&curve.candidates) {
            handles.hits.follow(candidate.hit_tokens);
            handles.loss.follow(candidate.window_loss_tokens);
            handles.warm.set_count(u64::from(candidate.warm));
        }
        self.lookup_tokens.follow(curve.lookup_tokens);
        self.cold_tokens.follow(curve.cold_tokens);
        self.tracked.set_count(curve.tracked_pages as u64);
        self.sampling.set(curve.sampling_ratio);
        self.dropped.follow(curve.dropped);
        self.flushes.follow(curve.flushes);
        self.cpu.set_total(curve.cpu);
    }
}
