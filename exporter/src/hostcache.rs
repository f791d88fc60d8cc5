//! How much host memory the KV caches of this node's services were meant to have and have, and what
//! is left for more.
//!
//! Sizes of a service come from one source at a time, best first: its own page of metrics, its
//! start log, a planner's file. The join with what the node has is a pure function ([`join`]).
//! Nothing here reads page maps of a process.

pub mod collect;
pub mod expo;
pub mod follow;
pub mod join;
pub mod journal;
pub mod ours;
pub mod page;
pub mod plan_file;
pub mod start_log;

#[cfg(test)]
mod fuzz;

use std::collections::BTreeMap;

pub use collect::{CacheFacts, Found, start};

/// A NUMA node, or none in particular.
pub type NodeId = Option<u32>;

/// Most pools of a model; whoever names more is not believed.
const POOLS_MAX: usize = 32;

/// Longest name of a pool.
const NAME_MAX: usize = 64;

/// Most nodes of a machine: Linux numbers them from 0 to one less.
const NODES_MAX: u32 = 1024;

/// Whether a word can be the name of a pool: it becomes a label.
fn is_pool(name: &str) -> bool {
    let sane = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(sane)
}

/// The begin of a word that is no name, as a message shows it.
fn shown(name: &str) -> String {
    name.chars().take(NAME_MAX).collect()
}

/// Stands for the pools of a service whose sizes are known only together.
pub const ALL_POOLS: &str = "all";

/// Where sizes were read, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheSource {
    /// The server's own page of metrics.
    Metrics,
    /// Its start log.
    Log,
    /// A planner's file.
    Plan,
}

impl CacheSource {
    /// The name, as in labels and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Log => "log",
            Self::Plan => "plan",
        }
    }
}

/// Host bytes of one pool on one node, all ranks there together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    /// What the flags in force ask for, if known.
    pub planned: Option<u64>,
    /// What the server says it holds, if known.
    pub allocated: Option<u64>,
}

/// Host bytes by pool and node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pools(pub BTreeMap<(String, NodeId), Sizes>);

impl Pools {
    /// Pools of ranks that are spread over nodes as `weights` are; of no node in particular where
    /// there are none. All ranks of a pool are of one size.
    fn spread<'a>(
        pools: impl IntoIterator<Item = (&'a str, Option<u64>, Option<u64>)>,
        weights: &BTreeMap<NodeId, u64>,
    ) -> Self {
        let all: u128 = weights.values().map(|weight| u128::from(*weight)).sum();
        let anywhere = BTreeMap::from([(None, 1)]);
        let (weights, all) = if all == 0 { (&anywhere, 1) } else { (weights, all) };
        let mut spread = BTreeMap::new();
        for (pool, planned, allocated) in pools {
            for (node, weight) in weights {
                // The quotient is at most `bytes`.
                let part = |bytes: u64| (u128::from(bytes) * u128::from(*weight) / all) as u64;
                let sizes = Sizes { planned: planned.map(part), allocated: allocated.map(part) };
                spread.insert((pool.to_owned(), *node), sizes);
            }
        }
        Self(spread)
    }

    /// The same pools with those of no node in particular on `node`.
    #[must_use]
    pub fn bound_to(&self, node: NodeId) -> Self {
        let place = |((pool, own), sizes): (&(String, NodeId), &Sizes)| {
            ((pool.clone(), own.or(node)), *sizes)
        };
        Self(self.0.iter().map(place).collect())
    }
}

/// Bytes of host pools where they were meant to lie, and altogether, by sampling.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Placed {
    /// On the planned node, or on any where none was planned.
    pub local: u64,
    /// On all nodes.
    pub total: u64,
}

/// The host tier of one service, from one source.
#[derive(Debug, Clone, PartialEq)]
pub struct Cache {
    /// Where it was read.
    pub source: CacheSource,
    /// Sizes; empty for a service without a host tier.
    pub pools: Pools,
    /// Host pages as a multiple of device pages.
    pub ratio: Option<f64>,
    /// Host bytes of one unit of ratio, all ranks, if the source says so.
    pub unit_bytes: Option<u64>,
    /// What the operator told the server to wish for.
    pub target: Option<u64>,
    /// Where its memory lies, if the source says so.
    pub placed: Option<Placed>,
}
