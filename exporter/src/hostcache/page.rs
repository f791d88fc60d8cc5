//! The families of host caches.

use std::collections::BTreeMap;

use metric_catalog::labels::{self, HostcacheSource, NumaNode, Pool, TargetSource};
use metric_catalog::node as catalog;
use metric_catalog::page::Page;

use super::join::{Join, Known, Resident, TargetFrom, join};
use super::{CacheSource, NodeId};
use crate::facts::Facts;
use crate::service::State;

/// Joins what is known of services with the headroom of each node, in bytes.
#[must_use]
pub fn of_facts(states: &[State<'_>], facts: &Facts, headroom: &BTreeMap<u32, i64>) -> Join {
    let caches = facts.hostcache.facts.as_deref();
    let known = states.iter().map(|state| {
        let service = state.service;
        let found = caches.and_then(|caches| caches.0.get(&service.name));
        Known {
            name: &service.name,
            cache: found.and_then(|found| found.cache.as_ref()),
            node: state.node(),
            ratio: service.ratio,
            target: service.target,
            running: state.is_running(),
            resident: resident(state),
        }
    });
    let only = facts.numa.facts.as_ref().and_then(|numa| numa.only());
    join(&known.collect::<Vec<_>>(), headroom, only)
}

fn resident(state: &State<'_>) -> BTreeMap<u32, Resident> {
    let nodes = state.usage.and_then(|usage| usage.group.as_ref()?.nodes.as_ref());
    let of =
        |node: &node_info::CgroupNode| (node.node, Resident { anon: node.anon, shmem: node.shmem });
    nodes.into_iter().flatten().map(of).collect()
}

/// Puts what the join says on the page.
pub fn hostcache(states: &[State<'_>], joined: &Join, page: &mut Page) {
    for state in states {
        let Some(service) = joined.services.get(&state.service.name) else { continue };
        let name = || labels::Service::new(state.service.name.clone());
        if let Some((bytes, from)) = service.target {
            let from = match from {
                TargetFrom::Config => TargetSource::Config,
                TargetFrom::Metrics => TargetSource::Metrics,
            };
            page.gauge(catalog::HOSTCACHE_TARGET, (name(), from), bytes as f64);
        }
        let Some(source) = service.source.map(label) else { continue };
        for ((pool, node), sizes) in &service.pools.0 {
            let labels = || (name(), Pool::new(pool.clone()), id(*node), source);
            if let Some(planned) = sizes.planned {
                page.gauge(catalog::HOSTCACHE_PLANNED, labels(), planned as f64);
            }
            if let Some(allocated) = sizes.allocated {
                page.gauge(catalog::HOSTCACHE_ALLOCATED, labels(), allocated as f64);
            }
        }
        for (node, own) in resident(state) {
            let bytes = own.anon.saturating_add(own.shmem);
            page.gauge(catalog::HOSTCACHE_RESIDENT, (name(), id(Some(node))), bytes as f64);
        }
        let ratios = [
            (catalog::HOSTCACHE_LOCAL, service.local_ratio),
            (catalog::HICACHE_RATIO_MAX, service.ratio_max),
            (catalog::HICACHE_BYTES_PER_RATIO, service.bytes_per_ratio),
        ];
        for (metric, value) in ratios {
            if let Some(value) = value {
                page.gauge(metric, (name(),), value);
            }
        }
    }
}

const fn label(source: CacheSource) -> HostcacheSource {
    match source {
        CacheSource::Metrics => HostcacheSource::Metrics,
        CacheSource::Log => HostcacheSource::Log,
        CacheSource::Plan => HostcacheSource::Plan,
    }
}

fn id(node: NodeId) -> NumaNode {
    NumaNode::new(node.map_or_else(|| "any".to_owned(), |node| node.to_string()))
}
