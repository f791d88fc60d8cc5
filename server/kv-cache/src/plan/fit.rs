//! Whether a tier fits, and how large one that does can be.

use super::PlanInput;

/// Room on one NUMA node: free and reclaimable memory, less what is kept for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeRoom {
    /// The node.
    pub node: u32,
    /// Bytes.
    pub bytes: u64,
}

/// Who says how much there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// The free memory of a NUMA node.
    Node(u32),
    /// The free memory of the nodes together, for ranks that are bound to none.
    Nodes,
    /// The memory that the host has left.
    Host,
    /// The limit of the control group, less what the group uses.
    Group,
    /// The limit of locked memory.
    Locked,
}

impl Limit {
    /// Its name within a sentence about memory.
    #[must_use]
    pub fn short_name(self) -> String {
        match self {
            Self::Node(node) => format!("node {node}"),
            Self::Nodes | Self::Host | Self::Group | Self::Locked => self.to_string(),
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Node(node) => write!(f, "NUMA node {node}"),
            Self::Nodes => f.write_str("the NUMA nodes together"),
            Self::Host => f.write_str("the host"),
            Self::Group => f.write_str("the control group"),
            Self::Locked => f.write_str("the limit of locked memory"),
        }
    }
}

/// What there is. What is not known bounds nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Room {
    /// The NUMA nodes that the ranks may use; empty where they are not known.
    pub nodes: Vec<NodeRoom>,
    /// What the host has left in all.
    pub host: Option<u64>,
    /// What the control group has left.
    pub group: Option<u64>,
    /// What may be locked; `None` also where nothing is to be locked.
    pub locked: Option<u64>,
}

impl Room {
    /// Room of a node, or of all nodes together for `None`.
    #[must_use]
    pub fn of(&self, node: Option<u32>) -> Option<u64> {
        match node {
            Some(node) => self.nodes.iter().find(|room| room.node == node).map(|room| room.bytes),
            None if self.nodes.is_empty() => None,
            None => Some(self.nodes.iter().fold(0, |sum, room| sum.saturating_add(room.bytes))),
        }
    }
}

/// A limit that the tier exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// Whose.
    pub limit: Limit,
    /// Bytes wanted there.
    pub wanted: u64,
    /// Bytes that are there.
    pub room: u64,
}

impl Shortage {
    /// Bytes that are missing.
    #[must_use]
    pub const fn missing(&self) -> u64 {
        self.wanted.saturating_sub(self.room)
    }
}

/// The largest ratio that fits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Largest {
    /// No limit is known.
    Unknown,
    /// Not even as much as the device has.
    Nothing,
    /// This one, of two decimals at most.
    Ratio(f64),
}

/// Every limit that the tier exceeds at `ratio`.
pub(super) fn shortages(input: &PlanInput, ratio: f64) -> Vec<Shortage> {
    let demands = demands(input, ratio).into_iter();
    let short = demands.filter(|demand| demand.wanted > demand.room);
    short.collect()
}

/// Every known limit with what is wanted of it at `ratio`.
fn demands(input: &PlanInput, ratio: f64) -> Vec<Shortage> {
    let (room, total) = (&input.room, input.total_bytes(ratio));
    let whole =
        [(Limit::Host, room.host), (Limit::Group, room.group), (Limit::Locked, room.locked)];
    let whole = whole
        .into_iter()
        .filter_map(|(limit, room)| Some(Shortage { limit, wanted: total, room: room? }));
    let nodes = input.nodes(ratio).into_iter().filter_map(|share| {
        let (limit, wanted) = match share.node {
            Some(node) => (Limit::Node(node), share.bytes),
            // Those that are bound elsewhere take of the same sum.
            None => (Limit::Nodes, total),
        };
        Some(Shortage { limit, wanted, room: share.room? })
    });
    nodes.chain(whole).collect()
}

/// The largest ratio that fits.
pub(super) fn largest(input: &PlanInput) -> Largest {
    if demands(input, 1.0).is_empty() {
        return Largest::Unknown;
    }
    let fits = |ratio| shortages(input, ratio).is_empty();
    largest_where(input, fits).map_or(Largest::Nothing, Largest::Ratio)
}

/// The largest ratio from 1 on, in steps of a hundredth, at which `holds`, which holds below every
/// ratio at which it does; `None` where it does not at 1.
pub(super) fn largest_where(input: &PlanInput, holds: impl Fn(f64) -> bool) -> Option<f64> {
    let at = |hundredths: u64| hundredths as f64 / 100.0;
    if !holds(1.0) {
        return None;
    }
    // Page ids end the search where bytes do not.
    let pages = input.pools.iter().map(|pool| pool.device_pages).max().unwrap_or(1).max(1);
    let (mut low, mut high) = (100, (super::PAGES_MAX / pages) as u64 * 100 + 1);
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if holds(at(middle)) { low = middle } else { high = middle }
    }
    Some(at(low))
}
