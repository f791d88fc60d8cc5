//! The host tier: what it was meant to be, and what is copied into and out of it.
//!
//! Its pools are in `pools`, with those of the device.

use std::time::Duration;

use engine::EngineSnapshot;
use metric_catalog::install::{GaugeHandle, Registry, TimeHandle};
use metric_catalog::labels::{CopyDirection, CopyFailure, Local, NumaNode, Pool, TpRank};
use metric_catalog::server as catalog;
use types::Bytes;

use super::gauges::Follower;
use super::{all, pools};
use crate::config::Resolved;
use crate::host_tier::Facts;

/// How large the tier was meant to be: numbers of the configuration, set once.
pub(super) fn record_sizes(registry: &Registry, resolved: &Resolved) {
    // Before there is memory, so that a long allocation has something to be compared with.
    let Some(facts) = Facts::new(resolved, None, Duration::ZERO) else { return };
    let set = |metric, bytes: Bytes| registry.gauge(metric, ()).set_count(bytes.0);
    set(catalog::HICACHE_REQUESTED_BYTES, facts.requested);
    set(catalog::HICACHE_TARGET_BYTES, facts.target.unwrap_or_default());
    registry.gauge(catalog::HICACHE_RATIO, ()).set(facts.ratio);
}

/// What lies on each node: bytes that were meant for it or for none in particular, and others.
fn placed(facts: &Facts) -> Vec<(u32, [u64; 2])> {
    let meant = |wanted: Option<u32>| {
        let ranks = facts.parts.iter().filter(|part| facts.nodes.get(part.rank) == Some(&wanted));
        ranks.map(|part| part.mapped.0).sum::<u64>()
    };
    let mut anywhere = meant(None);
    let of_node = |&(node, bytes): &(u32, Bytes)| {
        let own = meant(Some(node)).min(bytes.0);
        let free = anywhere.min(bytes.0 - own);
        anywhere -= free;
        (node, [own + free, bytes.0 - own - free])
    };
    facts.placement.iter().map(of_node).collect()
}

/// No bytes on any node, where there are none or nobody knows.
fn record_nothing(registry: &Registry) {
    for local in Local::ALL {
        let labels = (NumaNode::new("any"), *local);
        registry.gauge(catalog::HOST_POOL_NUMA_BYTES, labels).set(0.0);
    }
}

/// Handles of one part on one rank.
#[derive(Debug)]
struct PartHandles {
    part: &'static str,
    rank: usize,
    /// By direction.
    bytes: Vec<Follower>,
}

/// Handles of a part whose pages may get no copy.
#[derive(Debug)]
struct DropHandles {
    index: usize,
    /// By reason.
    dropped: Vec<Follower>,
}

/// Handles of all copies. They are there without a tier, too, at 0.
#[derive(Debug)]
pub(super) struct HostGauges {
    registry: Registry,
    /// By direction.
    pending: Vec<GaugeHandle>,
    parts: Vec<PartHandles>,
    /// By rank and direction.
    busy: Vec<Vec<TimeHandle>>,
    drops: Vec<DropHandles>,
}

impl HostGauges {
    pub(super) fn new(registry: &Registry, resolved: &Resolved) -> Self {
        let rank_label = |rank: usize| TpRank::new(rank.to_string());
        let mirrored = pools::mirrored(resolved);
        let ranks = 0..resolved.tp_size;
        let parts = mirrored.iter().flat_map(|part| ranks.clone().map(|rank| (part.name, rank)));
        let part = |(part, rank): (&'static str, usize)| {
            let labels = |direction| (direction, Pool::new(part), rank_label(rank));
            let bytes = all(|direction| {
                let counter = registry.counter(catalog::HICACHE_TRANSFER_BYTES, labels(direction));
                Follower::new(counter)
            });
            PartHandles { part, rank, bytes }
        };
        let busy = |rank: usize| {
            let labels = |direction| (direction, rank_label(rank));
            all(|way| registry.time(catalog::HICACHE_TRANSFER_BUSY_SECONDS, labels(way)))
        };
        let drops = |part: &pools::Shown| {
            let labels = |reason| (CopyDirection::Backup, Pool::new(part.name), reason);
            let follower = |reason: CopyFailure| {
                let metric = catalog::HICACHE_TRANSFER_FAILURES;
                Follower::new(registry.counter(metric, labels(reason)))
            };
            DropHandles { index: part.index, dropped: all(follower) }
        };
        if resolved.hierarchy.is_none() {
            // Where there is a tier, its nodes are known once its memory lies there.
            record_nothing(registry);
        }
        Self {
            registry: registry.clone(),
            pending: all(|way| registry.gauge(catalog::HICACHE_PENDING_OPERATIONS, (way,))),
            parts: parts.map(part).collect(),
            busy: ranks.clone().map(busy).collect(),
            drops: mirrored.iter().map(drops).collect(),
        }
    }

    /// Where the memory of the tier lies.
    pub(super) fn place(&self, facts: &Facts) {
        if facts.placement.is_empty() {
            record_nothing(&self.registry);
        }
        for (node, [own, other]) in placed(facts) {
            for local in Local::ALL {
                let labels = (NumaNode::new(node.to_string()), *local);
                let bytes = match local {
                    Local::True => own,
                    Local::False => other,
                };
                self.registry.gauge(catalog::HOST_POOL_NUMA_BYTES, labels).set_count(bytes);
            }
        }
    }

    pub(super) fn set(&self, engine: &EngineSnapshot) {
        let copies = &engine.copies;
        for way in CopyDirection::ALL {
            self.pending[way.index()].set_count(match way {
                CopyDirection::Load => copies.pending_loads as u64,
                CopyDirection::Backup => copies.pending_backups as u64,
            });
        }
        for handles in &self.parts {
            let is = |part: &&memory_pool::PartCopies| {
                part.part == handles.part && part.rank == handles.rank
            };
            let Some(part) = copies.parts.iter().find(is) else { continue };
            for way in CopyDirection::ALL {
                handles.bytes[way.index()].follow(match way {
                    CopyDirection::Load => part.load_bytes,
                    CopyDirection::Backup => part.backup_bytes,
                });
            }
        }
        for busy in &copies.busy {
            let Some(handles) = self.busy.get(busy.rank) else { continue };
            for way in CopyDirection::ALL {
                handles[way.index()].set_total(match way {
                    CopyDirection::Load => busy.load,
                    CopyDirection::Backup => busy.backup,
                });
            }
        }
        for handles in &self.drops {
            let host = engine.pools.get(handles.index).and_then(|pool| pool.host.as_ref());
            let Some(host) = host else { continue };
            for reason in CopyFailure::ALL {
                handles.dropped[reason.index()].follow(match reason {
                    CopyFailure::NoHostRoom => host.backups_dropped.no_host_room,
                    CopyFailure::QueueFull => host.backups_dropped.queue,
                });
            }
        }
    }
}
