//! `/sys/devices/system/node`, and which of its nodes this process may use.

use crate::{Root, memory::meminfo};

/// Below it each node has a folder.
const NODES: &str = "sys/devices/system/node";

/// A NUMA node with memory. Sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// `MemTotal`.
    pub total: u64,
    /// `MemFree`.
    pub free: u64,
    /// `FilePages`: page cache, shared memory included.
    pub file_pages: u64,
    /// `Shmem`: shared and temporary memory, which counts as page cache and cannot be dropped.
    pub shmem: u64,
    /// `Dirty`: page cache that must be written before it can be dropped.
    pub dirty: u64,
    /// `SReclaimable`: caches of the kernel that it can shrink.
    pub slab_reclaimable: u64,
    /// Its CPUs.
    pub cpus: Vec<u32>,
    /// Relative distance to every node, its own (10) included, in the order of the nodes; empty
    /// where the system does not say.
    pub distances: Vec<u32>,
}

impl Node {
    /// What can be had without swapping: free memory, and the page cache and slabs that the kernel
    /// gives back. Shared memory is none of it, although the page cache counts it.
    #[must_use]
    pub const fn available(&self) -> u64 {
        let cache = self.file_pages.saturating_sub(self.shmem).saturating_sub(self.dirty);
        let sum = self.free.saturating_add(cache).saturating_add(self.slab_reclaimable);
        if sum < self.total { sum } else { self.total }
    }
}

/// Where the memory of a process may lie.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// The nodes that its control group allows, ascending; empty where the system does not say.
    pub allowed: Vec<u32>,
    /// The nodes that its own policy binds it to (`numactl --membind`), ascending; empty where it
    /// is not bound.
    pub bound: Vec<u32>,
}

impl Policy {
    /// Whether memory on `node` can be had under this policy.
    #[must_use]
    pub fn permits(&self, node: u32) -> bool {
        let within = |nodes: &[u32]| nodes.is_empty() || nodes.contains(&node);
        within(&self.allowed) && within(&self.bound)
    }
}

pub(crate) fn nodes(root: &Root) -> Vec<Node> {
    let Ok(entries) = std::fs::read_dir(root.path(NODES)) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let ids = names.filter_map(|name| name.strip_prefix("node")?.parse::<u32>().ok());
    let mut nodes: Vec<Node> = ids.filter_map(|id| node(root, id)).collect();
    nodes.sort_unstable_by_key(|node| node.id);
    nodes
}

/// `None` for a node that has no memory or does not say how much.
fn node(root: &Root, id: u32) -> Option<Node> {
    let file = |name: &str| root.read(format!("{NODES}/node{id}/{name}"));
    let text = file("meminfo").ok()?;
    // `Node 0 MemTotal:   1000 kB`
    let prefix = format!("Node {id} ");
    let lines: String = text
        .lines()
        .map(|line| line.strip_prefix(&prefix).unwrap_or(line))
        .flat_map(|line| [line, "\n"])
        .collect();
    let field = |name: &str| meminfo(&lines, name);
    let total = field("MemTotal").filter(|total| *total > 0)?;
    let or_none = |name: &str| field(name).unwrap_or(0);
    Some(Node {
        id,
        total,
        free: field("MemFree")?,
        file_pages: or_none("FilePages"),
        shmem: or_none("Shmem"),
        dirty: or_none("Dirty"),
        slab_reclaimable: or_none("SReclaimable"),
        cpus: file("cpulist").map(|text| list(&text)).unwrap_or_default(),
        distances: file("distance").map_or_else(
            |_| Vec::new(),
            |text| text.split_whitespace().filter_map(|number| number.parse().ok()).collect(),
        ),
    })
}

pub(crate) fn policy(root: &Root) -> Policy {
    let status = root.read("proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:"));
    Policy { allowed: allowed.map(list).unwrap_or_default(), bound: bound(root) }
}

/// The nodes of a `bind` policy. The kernel shows the policy of the process on every mapping that
/// has none of its own, and the first mapping is the program's text, which nobody binds.
fn bound(root: &Root) -> Vec<u32> {
    let maps = root.read("proc/self/numa_maps").unwrap_or_default();
    let policy = maps.lines().next().and_then(|line| line.split_whitespace().nth(1));
    // `bind:0-1`, with the flags of the policy before the colon: `bind=static:0`.
    let nodes = policy.and_then(|policy| policy.strip_prefix("bind")?.split_once(':'));
    nodes.map(|(_, nodes)| list(nodes)).unwrap_or_default()
}

/// A list of the kernel, `0-3,8`, as numbers, ascending; what is no number is skipped.
#[must_use]
pub fn list(text: &str) -> Vec<u32> {
    /// No machine has more; a broken file must not fill the memory.
    const MOST: u32 = 1 << 16;
    let mut numbers: Vec<u32> = text
        .trim()
        .split(',')
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (first.trim().parse().ok()?, last.trim().parse::<u32>().ok()?);
            Some(first..=last.min(MOST))
        })
        .flatten()
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}
