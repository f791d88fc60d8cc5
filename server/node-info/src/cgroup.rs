//! Control groups, version 2: memory of a service, node by node.

use std::path::{Component, Path};

use crate::numa::strict_list;
use crate::read::{self, Bad};
use crate::{FactError, Problem, Root};

/// Which control groups a node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hierarchy {
    /// Version 2: one tree for everything.
    V2,
    /// Version 1: a tree for each controller, memory among them. Tells no memory per node that
    /// could be read cheaply, nor what was killed.
    V1,
    /// None that is mounted where it was looked for.
    Absent,
}

/// A limit in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// `max`: there is none.
    Unlimited,
    /// So many.
    Bytes(u64),
}

/// Memory of a control group and of all below it, in bytes. What this kernel or this group does not
/// tell is `None`, and so is what could not be read, with a problem.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cgroup {
    /// `memory.current`: all that is charged to it.
    pub current: Option<u64>,
    /// `memory.max`: beyond it, the kernel kills.
    pub max: Option<Limit>,
    /// `memory.high`: beyond it, the kernel slows it down.
    pub high: Option<Limit>,
    /// `memory.swap.current`.
    pub swap: Option<u64>,
    /// `memory.events`.
    pub events: Option<MemoryEvents>,
    /// `memory.numa_stat` (since Linux 5.10), ascending by node.
    pub nodes: Option<Vec<CgroupNode>>,
    /// `cpuset.mems.effective`: the nodes it may use, ascending.
    pub mems: Option<Vec<u32>>,
    /// `cgroup.procs`: processes in the group itself, ascending. A megabyte of them is read at
    /// most; a group with more is a problem.
    pub processes: Option<Vec<u32>>,
    /// What could not be read.
    pub problems: Vec<Problem>,
}

/// What happened to a group for lack of memory, since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryEvents {
    /// It was slowed down.
    pub high: u64,
    /// It reached its limit.
    pub max: u64,
    /// Memory could not be had.
    pub oom: u64,
    /// Processes that were killed.
    pub oom_kill: u64,
}

/// Memory of a group on one node, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CgroupNode {
    /// The node.
    pub node: u32,
    /// Memory of its processes.
    pub anon: u64,
    /// Page cache, shared memory included.
    pub file: u64,
    /// Shared and temporary memory.
    pub shmem: u64,
    /// Kernel memory: stacks, page tables and slabs.
    pub kernel: u64,
}

impl CgroupNode {
    /// All of it.
    #[must_use]
    pub const fn resident(&self) -> u64 {
        self.anon.saturating_add(self.file).saturating_add(self.kernel)
    }
}

pub(crate) fn hierarchy(root: &Root) -> Hierarchy {
    let has = |name: &str| root.cgroupfs.join(name).exists();
    if has("cgroup.controllers") {
        Hierarchy::V2
    } else if has("memory") || has("unified") {
        Hierarchy::V1
    } else {
        Hierarchy::Absent
    }
}

pub(crate) fn read(root: &Root, path: &Path) -> Result<Cgroup, FactError> {
    let folder = root.group(path);
    let refuse = |why| Err(FactError::Unsupported { path: folder.clone(), why });
    if path.components().any(|part| part == Component::ParentDir) {
        return refuse("a path of a control group has no `..`");
    }
    match hierarchy(root) {
        Hierarchy::V2 => {}
        Hierarchy::V1 => {
            return refuse(
                "control groups are of version 1, which tells no memory per node; version 2 does \
                 (systemd.unified_cgroup_hierarchy=1)",
            );
        }
        Hierarchy::Absent => return refuse("no control groups are mounted here"),
    }
    std::fs::metadata(&folder)
        .map_err(|source| FactError::Read { path: folder.clone(), source })?;
    let mut problems = Vec::new();
    let problems_of = &mut problems;
    let mut group = Cgroup {
        current: file(&folder, "memory.current", problems_of, |text| {
            read::number(text, "memory.current")
        }),
        max: file(&folder, "memory.max", problems_of, limit),
        high: file(&folder, "memory.high", problems_of, limit),
        swap: file(&folder, "memory.swap.current", problems_of, |text| {
            read::number(text, "memory.swap.current")
        }),
        events: file(&folder, "memory.events", problems_of, events),
        nodes: file(&folder, "memory.numa_stat", problems_of, numa_stat),
        mems: file(&folder, "cpuset.mems.effective", problems_of, |text| {
            strict_list(text).ok_or_else(|| Bad::new("list of nodes", text.trim()))
        }),
        processes: pids(&folder, problems_of),
        problems: Vec::new(),
    };
    group.problems = problems;
    Ok(group)
}

/// A file of a group, or `None` and perhaps a problem.
fn file<T>(
    folder: &Path,
    name: &str,
    problems: &mut Vec<Problem>,
    parse: impl FnOnce(&str) -> Result<T, Bad>,
) -> Option<T> {
    // A group may go while it is read: then all that is left of it is absent.
    read::optional_with(&folder.join(name), parse).unwrap_or_else(|error| {
        problems.push(error.into());
        None
    })
}

/// The processes of a group: the one file that may be empty.
fn pids(folder: &Path, problems: &mut Vec<Problem>) -> Option<Vec<u32>> {
    let path = folder.join("cgroup.procs");
    let parse = |text: String| match text.as_str() {
        "" => Ok(Vec::new()),
        text => read::whole(text).and_then(processes),
    };
    let pids = read::optional(&path)
        .and_then(|text| text.map(parse).transpose().map_err(|bad| bad.at(&path)));
    pids.unwrap_or_else(|error| {
        problems.push(error.into());
        None
    })
}

/// `max`, or a number.
pub(crate) fn limit(text: &str) -> Result<Limit, Bad> {
    match text.trim() {
        "max" => Ok(Limit::Unlimited),
        bytes => read::number(bytes, "limit").map(Limit::Bytes),
    }
}

/// `oom_kill 0`, a counter a line; kernels add some over time.
pub(crate) fn events(text: &str) -> Result<MemoryEvents, Bad> {
    let count = |field: &'static str| {
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(' '));
        read::number(line.ok_or_else(|| Bad::missing(field))?, field)
    };
    Ok(MemoryEvents {
        high: count("high")?,
        max: count("max")?,
        oom: count("oom")?,
        oom_kill: count("oom_kill")?,
    })
}

/// `anon N0=1000 N1=2000`, a kind a line, in bytes.
pub(crate) fn numa_stat(text: &str) -> Result<Vec<CgroupNode>, Bad> {
    let mut nodes: Vec<CgroupNode> = Vec::new();
    let (mut anon, mut file) = (false, false);
    for line in text.lines() {
        let (kind, values) = line.split_once(' ').ok_or_else(|| Bad::new("line", line))?;
        let place: fn(&mut CgroupNode) -> &mut u64 = match kind {
            "anon" => |node| &mut node.anon,
            "file" => |node| &mut node.file,
            "shmem" => |node| &mut node.shmem,
            "kernel_stack" | "pagetables" | "sec_pagetables" | "slab_reclaimable"
            | "slab_unreclaimable" => |node| &mut node.kernel,
            _ => continue,
        };
        anon |= kind == "anon";
        file |= kind == "file";
        for value in values.split_whitespace() {
            let (node, bytes) = share(value).ok_or_else(|| Bad::new("memory of a node", value))?;
            let index = match nodes.binary_search_by_key(&node, |entry| entry.node) {
                Ok(index) => index,
                Err(index) => {
                    nodes.insert(index, CgroupNode { node, ..CgroupNode::default() });
                    index
                }
            };
            let sum = place(&mut nodes[index]);
            *sum = sum.saturating_add(bytes);
        }
    }
    if anon && file { Ok(nodes) } else { Err(Bad::missing(if anon { "file" } else { "anon" })) }
}

/// `N0=1000`.
fn share(word: &str) -> Option<(u32, u64)> {
    let (node, bytes) = word.strip_prefix('N')?.split_once('=')?;
    Some((read::digits(node)?, read::digits(bytes)?))
}

/// A number a line; nothing where no process is left.
pub(crate) fn processes(text: &str) -> Result<Vec<u32>, Bad> {
    let bad = |line| Bad::new("number of a process", line);
    let pids = text.lines().map(|line| read::digits(line).ok_or_else(|| bad(line)));
    let mut pids: Vec<u32> = pids.collect::<Result<_, _>>()?;
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}
