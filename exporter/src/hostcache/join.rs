//! What services' host caches and nodes' memory say together: what is still to be taken from a
//! node, and how large a host tier could be.
//!
//! A pure function over facts. What cannot be known is `None`, never 0.

use std::collections::BTreeMap;

use super::{Cache, CacheSource, NodeId, Pools};

/// What is known of one service.
#[derive(Debug, Clone, Default)]
pub struct Known<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its host tier, from the best source that has it.
    pub cache: Option<&'a Cache>,
    /// The node it is meant for: what the configuration says, else the one its processes are bound
    /// to.
    pub node: NodeId,
    /// The ratio it was started with, where the configuration says so.
    pub ratio: Option<f64>,
    /// What the operator wants, where the configuration says so.
    pub target: Option<u64>,
    /// Whether its processes run; a service that does not holds nothing. `None`: nobody knows.
    pub running: Option<bool>,
    /// Memory of its control group by node, where the kernel says so.
    pub resident: BTreeMap<u32, Resident>,
}

/// Memory of a control group on a node that a host tier can be part of, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resident {
    /// Memory of its processes alone.
    pub anon: u64,
    /// Shared memory, in which SGLang has its host pools.
    pub shmem: u64,
}

/// Where the wanted size was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetFrom {
    /// The exporter's configuration.
    Config,
    /// The service's page of metrics.
    Metrics,
}

/// Bytes planned and allocated on one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OnNode {
    /// What the flags in force ask for; `None` if that is not known of every pool.
    pub planned: Option<u64>,
    /// What is held; likewise.
    pub allocated: Option<u64>,
}

impl OnNode {
    /// What is still to be taken; `None` if that is not known.
    #[must_use]
    pub fn outstanding(&self) -> Option<u64> {
        Some(self.planned?.saturating_sub(self.allocated?))
    }
}

/// What the facts say of one service.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServiceJoin {
    /// Where sizes were read; `None` where no source has any.
    pub source: Option<CacheSource>,
    /// Sizes by pool and node, each on the node it is meant for.
    pub pools: Pools,
    /// The same by node.
    pub nodes: BTreeMap<NodeId, OnNode>,
    /// What the operator wants, in bytes.
    pub target: Option<(u64, TargetFrom)>,
    /// Host pages as a multiple of device pages, now.
    pub ratio: Option<f64>,
    /// Host bytes of one unit of ratio.
    pub bytes_per_ratio: Option<f64>,
    /// The largest ratio that its nodes have room for; 0 where they have none.
    pub ratio_max: Option<f64>,
    /// Share of its host pools that lies where it was meant to, from 0 to 1.
    pub local_ratio: Option<f64>,
}

impl ServiceJoin {
    /// Planned bytes of all nodes; `None` if that is not known of every pool.
    #[must_use]
    pub fn planned(&self) -> Option<u64> {
        self.nodes.values().try_fold(0_u64, |sum, node| sum.checked_add(node.planned?))
    }

    /// Allocated bytes of all nodes; `None` if that is not known of every pool.
    #[must_use]
    pub fn allocated(&self) -> Option<u64> {
        self.nodes.values().try_fold(0_u64, |sum, node| sum.checked_add(node.allocated?))
    }
}

/// What the facts say of one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeJoin {
    /// What can still be taken from it; negative where the reserve is touched.
    pub headroom: i64,
    /// What services that are bound to it have yet to take, as far as that is known.
    pub outstanding: u64,
}

impl NodeJoin {
    /// What is left once every service has what it asked for; negative where that does not fit.
    #[must_use]
    pub fn left(&self) -> i64 {
        self.headroom.saturating_sub_unsigned(self.outstanding)
    }
}

/// What the facts say together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Join {
    /// By name of the service.
    pub services: BTreeMap<String, ServiceJoin>,
    /// By node; only nodes whose headroom is known.
    pub nodes: BTreeMap<u32, NodeJoin>,
    /// All nodes together, with what services have yet to take that are bound to none.
    pub machine: NodeJoin,
}

/// Joins what is known of services with the headroom of each node. `only` is the one node that
/// has, or may have, memory; everything is bound to it.
#[must_use]
pub fn join(services: &[Known<'_>], headroom: &BTreeMap<u32, i64>, only: NodeId) -> Join {
    let sized = services.iter().map(|known| (known.name.to_owned(), sizes(known, only)));
    let mut joined = Join {
        services: sized.collect(),
        nodes: headroom
            .iter()
            .map(|(node, headroom)| (*node, NodeJoin { headroom: *headroom, outstanding: 0 }))
            .collect(),
        machine: NodeJoin {
            headroom: headroom.values().fold(0, |sum, room| sum.saturating_add(*room)),
            outstanding: 0,
        },
    };
    for (node, own) in joined.services.values().flat_map(|service| &service.nodes) {
        let outstanding = own.outstanding().unwrap_or_default();
        let all = &mut joined.machine.outstanding;
        *all = all.saturating_add(outstanding);
        if let Some(at) = node.and_then(|node| joined.nodes.get_mut(&node)) {
            at.outstanding = at.outstanding.saturating_add(outstanding);
        }
    }
    let ratios: Vec<Option<f64>> =
        services.iter().map(|known| largest_ratio(&joined, known)).collect();
    for (known, ratio) in services.iter().zip(ratios) {
        if let Some(service) = joined.services.get_mut(known.name) {
            service.ratio_max = ratio;
        }
    }
    joined
}

/// Everything about a service that other services have no part in.
fn sizes(known: &Known<'_>, only: NodeId) -> ServiceJoin {
    let of_metrics = known.cache.and_then(|cache| cache.target);
    let target = known.target.map(|bytes| (bytes, TargetFrom::Config));
    let target = target.or(of_metrics.map(|bytes| (bytes, TargetFrom::Metrics)));
    let Some(cache) = known.cache else { return ServiceJoin { target, ..ServiceJoin::default() } };
    let mut pools = cache.pools.bound_to(known.node.or(only));
    for sizes in pools.0.values_mut() {
        sizes.allocated = match (known.running, cache.source) {
            (Some(false), _) => Some(0),
            // A log tells of a start, and nothing of an end.
            (None, CacheSource::Log) => None,
            (None, CacheSource::Metrics | CacheSource::Plan) | (Some(true), _) => sizes.allocated,
        };
    }
    let mut nodes: BTreeMap<NodeId, OnNode> = BTreeMap::new();
    for ((_, node), sizes) in &pools.0 {
        let zero = OnNode { planned: Some(0), allocated: Some(0) };
        let at = nodes.entry(*node).or_insert(zero);
        let sum = |sum: Option<u64>, more: Option<u64>| sum?.checked_add(more?);
        at.planned = sum(at.planned, sizes.planned);
        at.allocated = sum(at.allocated, sizes.allocated);
    }
    let ratio = cache.ratio.or(known.ratio);
    let mut service = ServiceJoin {
        source: Some(cache.source),
        pools,
        nodes,
        target,
        ratio,
        ..ServiceJoin::default()
    };
    service.bytes_per_ratio = unit(&service, cache.unit_bytes);
    service.local_ratio = local(&service, cache, &known.resident);
    service
}

/// Host bytes of one unit of ratio: as the source says, else what the ratio in force led to.
fn unit(service: &ServiceJoin, said: Option<u64>) -> Option<f64> {
    let planned = service.planned().filter(|planned| *planned > 0);
    let derived = || Some(planned? as f64 / service.ratio?);
    said.map(|bytes| bytes as f64).or_else(derived)
}

/// The ratio at which the first of its nodes is full, with what others have yet to take left to
/// them.
fn largest_ratio(joined: &Join, known: &Known<'_>) -> Option<f64> {
    let service = joined.services.get(known.name)?;
    let (unit, planned) = (service.bytes_per_ratio?, service.planned()?);
    if planned == 0 || unit <= 0.0 {
        return None;
    }
    let mut largest = f64::INFINITY;
    for (node, own) in service.nodes.iter().filter(|(_, own)| own.planned != Some(0)) {
        let at = match node {
            Some(node) => joined.nodes.get(node)?,
            None if joined.nodes.is_empty() => return None,
            None => &joined.machine,
        };
        let others = at.outstanding.saturating_sub(own.outstanding()?);
        let room = at.headroom as f64 - others as f64 + own.allocated? as f64;
        // The tier lies on its nodes in the proportions that were planned.
        let share = own.planned? as f64 / planned as f64;
        largest = largest.min(room / (unit * share));
    }
    largest.is_finite().then_some(largest.max(0.0))
}

/// The share of its pools that lies where it was meant to. What the server has sampled is best;
/// else shared memory of its control group, if there is enough of it to be the pools.
fn local(service: &ServiceJoin, cache: &Cache, resident: &BTreeMap<u32, Resident>) -> Option<f64> {
    if let Some(placed) = cache.placed {
        return (placed.total > 0).then(|| placed.local as f64 / placed.total as f64);
    }
    let planned_on = |node: &u32| service.nodes.contains_key(&Some(*node));
    let bound = !service.nodes.is_empty() && service.nodes.keys().all(Option::is_some);
    let shared: u64 = resident.values().map(|node| node.shmem).sum();
    let own = resident.iter().filter(|(node, _)| planned_on(node));
    let local: u64 = own.map(|(_, node)| node.shmem).sum();
    let allocated = service.allocated().filter(|bytes| *bytes > 0)?;
    // A tenth may not have been touched yet; less is not the pools at all.
    let is_pools = shared >= allocated / 10 * 9;
    (bound && is_pools).then(|| local as f64 / shared as f64)
}

#[cfg(test)]
mod tests;
