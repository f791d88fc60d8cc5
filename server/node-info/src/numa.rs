//! `/sys/devices/system/node`, and which of its nodes this process may use.

pub(crate) mod memory;

use std::path::Path;

use crate::read::{self, Bad, Found};
use crate::{FactError, Mode, NodeMemory, Problem, Root, mempolicy};

/// Below it each node has a folder.
const NODES: &str = "devices/system/node";

/// A NUMA node that is on line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// Its memory; a node of CPUs only has a total of 0. `None` where it could not be read.
    pub memory: Option<NodeMemory>,
    /// Pools of huge pages, ascending by size of a page; empty where the kernel has none, `None`
    /// where they could not be read.
    pub huge_pages: Option<Vec<HugePages>>,
    /// Where its pages were allocated; `None` where that could not be read.
    pub allocations: Option<Allocations>,
    /// Its CPUs, ascending; empty for a node of memory only, and where they could not be read.
    pub cpus: Vec<u32>,
    /// Relative distances to every node on line, its own (10) included, ascending by node; empty
    /// where they could not be read.
    pub distances: Vec<Distance>,
}

/// How far a node is, as the firmware says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Distance {
    /// The other node.
    pub to: u32,
    /// 10 is local; 20 is twice as far.
    pub distance: u32,
}

/// Huge pages of one size on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugePages {
    /// Bytes of one page.
    pub page_bytes: u64,
    /// Pages in the pool.
    pub total: u64,
    /// Pages of it that nobody has.
    pub free: u64,
    /// Pages beyond the configured size of the pool.
    pub surplus: u64,
}

/// `numastat` of a node: pages since the start of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocations {
    /// Wanted here and had here.
    pub hit: u64,
    /// Had here and wanted elsewhere.
    pub miss: u64,
    /// Wanted here and had elsewhere.
    pub foreign: u64,
    /// Wanted here by an interleave policy, and had here.
    pub interleave_hit: u64,
    /// Had here by a process that ran here.
    pub local_node: u64,
    /// Had here by a process that ran elsewhere.
    pub other_node: u64,
}

impl Node {
    /// What can be had here without swapping, in bytes: [`NodeMemory::available`], 0 where the
    /// memory could not be read.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.memory.map_or(0, |memory| memory.available())
    }

    /// Bytes in all pools of huge pages, taken or not; `None` where they could not be read.
    #[must_use]
    pub fn huge_bytes(&self) -> Option<u64> {
        let pools = self.huge_pages.as_ref()?;
        let bytes = |pool: &HugePages| pool.total.saturating_mul(pool.page_bytes);
        Some(pools.iter().map(bytes).fold(0, u64::saturating_add))
    }

    /// Bytes that no counter of the kernel explains, such as what drivers pinned; `None` where one
    /// of the counters is unknown.
    #[must_use]
    pub fn unaccounted(&self) -> Option<u64> {
        self.memory?.unaccounted(self.huge_bytes()?)
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

pub(crate) fn read(root: &Root) -> Result<Option<Found<Node>>, FactError> {
    let folder = root.sys(NODES);
    let Some(names) = read::names(&folder)? else { return Ok(None) };
    let mut ids: Vec<u32> =
        names.iter().filter_map(|name| read::digits(name.strip_prefix("node")?)).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut found = Found::default();
    // The columns of `distance` are the nodes on line, ascending; so are the folders.
    for &id in &ids {
        let node = node(&folder.join(format!("node{id}")), id, &ids, &mut found);
        found.entries.push(node);
    }
    Ok(Some(found))
}

/// Each file of a node stands for itself.
fn node(folder: &Path, id: u32, ids: &[u32], found: &mut Found<Node>) -> Node {
    let problems = &mut found.problems;
    let memory = file(&folder.join("meminfo"), problems, |text| memory::parse(text, id));
    let cpus = file(&folder.join("cpulist"), problems, cpus);
    let distances = file(&folder.join("distance"), problems, |text| distances(text, ids));
    let huge_pages = match huge_pages(&folder.join("hugepages")) {
        Ok(pools) => Some(pools),
        Err(error) => {
            problems.push(error.into());
            None
        }
    };
    Node {
        id,
        memory,
        huge_pages,
        allocations: file(&folder.join("numastat"), problems, allocations),
        cpus: cpus.unwrap_or_default(),
        distances: distances.unwrap_or_default(),
    }
}

/// What `parse` makes of a file, or a problem.
fn file<T>(
    path: &Path,
    problems: &mut Vec<Problem>,
    parse: impl FnOnce(&str) -> Result<T, Bad>,
) -> Option<T> {
    read::required_with(path, parse).map_err(|error| problems.push(error.into())).ok()
}

/// `0-3,8-11`, or nothing.
fn cpus(text: &str) -> Result<Vec<u32>, Bad> {
    strict_list(text).ok_or_else(|| Bad::new("list of CPUs", text.trim()))
}

/// `10 21`: one number for each of `ids`.
pub(crate) fn distances(text: &str, ids: &[u32]) -> Result<Vec<Distance>, Bad> {
    let numbers: Option<Vec<u32>> = text.split_whitespace().map(read::digits).collect();
    let numbers = numbers.ok_or_else(|| Bad::new("distances", text.trim()))?;
    if numbers.len() != ids.len() {
        return Err(Bad::new("one distance for each node", text.trim()));
    }
    let pairs = ids.iter().zip(numbers);
    Ok(pairs.map(|(&to, distance)| Distance { to, distance }).collect())
}

/// `numa_hit 123`, a counter a line.
pub(crate) fn allocations(text: &str) -> Result<Allocations, Bad> {
    let count = |field: &'static str| {
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(' '));
        read::number(line.ok_or_else(|| Bad::missing(field))?, field)
    };
    Ok(Allocations {
        hit: count("numa_hit")?,
        miss: count("numa_miss")?,
        foreign: count("numa_foreign")?,
        interleave_hit: count("interleave_hit")?,
        local_node: count("local_node")?,
        other_node: count("other_node")?,
    })
}

/// A folder for each size, `hugepages-2048kB`.
fn huge_pages(folder: &Path) -> Result<Vec<HugePages>, FactError> {
    let size = |name: &str| {
        let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
        read::digits::<u64>(kib)?.checked_mul(1024)
    };
    let mut pools = Vec::new();
    for name in read::names(folder)?.unwrap_or_default() {
        let Some(page_bytes) = size(&name) else { continue };
        let count = |file: &'static str| {
            let path = folder.join(&name).join(file);
            read::required_with(&path, |text| read::number(text, file))
        };
        pools.push(HugePages {
            page_bytes,
            total: count("nr_hugepages")?,
            free: count("free_hugepages")?,
            surplus: count("surplus_hugepages")?,
        });
    }
    pools.sort_unstable_by_key(|pool| pool.page_bytes);
    Ok(pools)
}

pub(crate) fn policy(root: &Root) -> Policy {
    let status = read::text(&root.proc("self/status")).unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:"));
    // The kernel shows the policy of the process on every mapping that has none of its own, and the
    // first mapping is the program's text, which nobody binds.
    let own = mempolicy::read(root, "self").ok().flatten();
    let bound = own.filter(|policy| policy.mode == Mode::Bind).and_then(|policy| policy.nodes);
    Policy { allowed: allowed.map(list).unwrap_or_default(), bound: bound.unwrap_or_default() }
}

/// No machine has more CPUs or nodes; a broken file must not fill the memory.
const MOST: u32 = 1 << 16;

/// A list of the kernel, `0-3,8`, as numbers, ascending; what is no number is skipped, and so is
/// what is beyond 65,536.
#[must_use]
pub fn list(text: &str) -> Vec<u32> {
    collect(text.trim().split(',').filter_map(range))
}

/// A list of the kernel; `None` where any of it is no number, or beyond 65,536.
pub(crate) fn strict_list(text: &str) -> Option<Vec<u32>> {
    let text = text.trim();
    if text.is_empty() {
        return Some(Vec::new());
    }
    let ranges: Option<Vec<(u32, u32)>> = text.split(',').map(range).collect();
    let ranges = ranges?;
    ranges
        .iter()
        .all(|(first, last)| first <= last && *last <= MOST)
        .then(|| collect(ranges.into_iter()))
}

/// `0-3` or `8`.
fn range(text: &str) -> Option<(u32, u32)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((read::digits(first.trim())?, read::digits(last.trim())?))
}

/// The numbers of all ranges, each once, however often a file repeats them.
fn collect(ranges: impl Iterator<Item = (u32, u32)>) -> Vec<u32> {
    let mut ranges: Vec<(u32, u32)> = ranges.collect();
    ranges.sort_unstable();
    let mut numbers = Vec::new();
    for (first, last) in ranges {
        let next = numbers.last().map_or(0, |last: &u32| last + 1);
        numbers.extend(first.max(next)..=last.min(MOST));
    }
    numbers
}
