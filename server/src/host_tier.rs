//! The host tier as it was allocated: what start-up knows for good once its memory is there.
//!
//! How the tier is used is the engine's to say ([`engine::EngineSnapshot`]); how it was sized is
//! the plan's ([`crate::config::HierarchyPlan`]).

use std::fmt;
use std::time::Duration;

use memory_pool::{HostMemory, HostNote};
use types::Bytes;

use crate::cli::{MemLayout, WritePolicy};
use crate::config::Resolved;

/// What one part of a pool takes on one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartFacts {
    /// The index pool whose page ids it shares.
    pub pool: &'static str,
    /// The part, a label value.
    pub part: &'static str,
    /// The rank.
    pub rank: usize,
    /// Pages of the tier.
    pub pages: usize,
    /// Bytes of these pages.
    pub bytes: Bytes,
    /// Bytes taken from the system for them: more by less than one of its pages per slab.
    pub mapped: Bytes,
    /// Number of maps.
    pub slabs: usize,
}

/// The tier's memory, as it was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// Every mirrored part on every rank; empty for models that keep no bytes.
    pub parts: Vec<PartFacts>,
    /// Bytes that the flags in force ask for, all ranks: the size that was given, or the ratio
    /// times the pools of the device.
    pub requested: Bytes,
    /// Bytes that somebody wants it to have, from `--hicache-target` or else `--hicache-budget`.
    pub target: Option<Bytes>,
    /// Bytes that the plan comes to, all ranks.
    pub planned: Bytes,
    /// Bytes of the pages that there are, all ranks; 0 for models that keep no bytes.
    pub allocated: Bytes,
    /// Host to device ratio in force.
    pub ratio: f64,
    /// Where the memory lies, by sampling, ascending; empty where the system does not say.
    pub placement: Vec<(u32, Bytes)>,
    /// The NUMA node that each rank's memory was asked for; `None`: none in particular.
    pub nodes: Vec<Option<u32>>,
    /// When pages are copied.
    pub policy: WritePolicy,
    /// How they lie.
    pub layout: MemLayout,
    /// What is not as it was asked for, though it works.
    pub notes: Vec<HostNote>,
    /// How long it took.
    pub time: Duration,
}

impl Facts {
    /// The facts of `memory`, which was made for the tier of `resolved` in `time`; without memory,
    /// those of a model that keeps no bytes. `None` where there is no tier.
    #[must_use]
    pub fn new(resolved: &Resolved, memory: Option<&HostMemory>, time: Duration) -> Option<Self> {
        let tier = resolved.hierarchy.as_ref()?;
        let parts = memory.map(|memory| parts(resolved, memory)).unwrap_or_default();
        let planned = Bytes(tier.plan.total_bytes);
        let budget = resolved.settings.cache.hicache_budget.map(|budget| Bytes(budget.0));
        Some(Self {
            requested: tier.requested.unwrap_or(planned),
            target: tier.target.or(budget),
            planned,
            allocated: parts.iter().map(|part| part.bytes).sum(),
            ratio: tier.plan.ratio,
            placement: memory.map(HostMemory::placement).unwrap_or_default(),
            nodes: tier.nodes.clone(),
            policy: tier.policy,
            layout: tier.layout,
            notes: memory.map(HostMemory::notes).unwrap_or_default(),
            parts,
            time,
        })
    }

    /// Bytes taken from the system, all ranks.
    #[must_use]
    pub fn mapped(&self) -> Bytes {
        self.parts.iter().map(|part| part.mapped).sum()
    }

    /// The parts as `pool.part/rank=bytes`, one after the other.
    #[must_use]
    pub fn parts_line(&self) -> String {
        let part = |part: &PartFacts| {
            format!("{}.{}/{}={}", part.pool, part.part, part.rank, part.bytes.0)
        };
        listed(self.parts.iter().map(part))
    }

    /// The placement as `node=bytes`, one after the other.
    #[must_use]
    pub fn placement_line(&self) -> String {
        listed(self.placement.iter().map(|(node, bytes)| format!("{node}={}", bytes.0)))
    }

    /// The node of each rank, one after the other.
    #[must_use]
    pub fn nodes_line(&self) -> String {
        let name = |node: &Option<u32>| node.map_or("any".to_owned(), |node| node.to_string());
        listed(self.nodes.iter().map(name))
    }
}

fn parts(resolved: &Resolved, memory: &HostMemory) -> Vec<PartFacts> {
    let pools: Vec<_> = memory
        .parts()
        .map(|(part, pool)| (part.name, resolved.kv[usize::from(pool.0)].name))
        .collect();
    let bytes = memory.bytes().into_iter();
    let part = |own: memory_pool::HostBytes| {
        let pool = pools.iter().find(|(part, _)| *part == own.part);
        let (_, pool) = pool.expect("what has bytes is a part");
        let memory_pool::HostBytes { part, rank, pages, bytes, mapped, slabs } = own;
        PartFacts { pool, part, rank, pages, bytes, mapped, slabs }
    };
    bytes.map(part).collect()
}

/// Words with commas between them.
fn listed(words: impl Iterator<Item = impl fmt::Display>) -> String {
    words.map(|word| word.to_string()).collect::<Vec<_>>().join(",")
}
