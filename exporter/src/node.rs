//! Memory of NUMA nodes, pressure, and RDMA ports: read on a thread each, shown as read.
//!
//! A file that is bad costs what it tells and nothing else: the rest is shown, and the collection
//! counts as failed, with the file and the reason. What is read is in `node_info`; what a number
//! means is judged elsewhere.

pub mod page;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use node_info::{
    Found, Node, Port, Pressure, Problem, Root, Watermarks, default_reserve, headroom,
};

use crate::config::Config;
use crate::facts::Slots;
use crate::slot::{CollectError, Slot, Stop, run_blocking};

/// Memory of every NUMA node that is on line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NumaFacts {
    /// The nodes, ascending.
    pub nodes: Vec<Node>,
    /// Watermarks of nodes, ascending; empty where they could not be read.
    pub watermarks: Vec<Watermarks>,
    /// What could not be read.
    pub problems: Vec<Problem>,
}

impl NumaFacts {
    /// What can still be taken from each node, in bytes, with `reserve` kept free of each, or the
    /// default reserve. Only nodes that have memory, and of which all of it is known.
    #[must_use]
    pub fn headroom(&self, reserve: Option<u64>) -> BTreeMap<u32, i64> {
        let room = |node: &Node| {
            let memory = node.memory.filter(|memory| memory.total > 0)?;
            let marks = self.watermarks.iter().find(|marks| marks.node == node.id)?;
            Some((node.id, headroom(&memory, marks, in_force(reserve, memory.total))))
        };
        self.nodes.iter().filter_map(room).collect()
    }

    /// What is kept free of each node, in bytes: `reserve`, or the default one. Only nodes that are
    /// judged by it: those with memory, as far as that is known, and with CPUs. Memory without them
    /// is of cards or expanders and may be given away whole.
    #[must_use]
    pub fn reserves(&self, reserve: Option<u64>) -> BTreeMap<u32, u64> {
        let kept = |node: &Node| {
            let memory = node.memory.filter(|memory| memory.total > 0)?;
            self.may_have_cpus(node).then(|| (node.id, in_force(reserve, memory.total)))
        };
        self.nodes.iter().filter_map(kept).collect()
    }

    /// The node with memory, where there is only one: one whose memory could not be read may have
    /// some, too.
    #[must_use]
    pub fn only(&self) -> Option<u32> {
        let may_have = |node: &&Node| node.memory.is_none_or(|memory| memory.total > 0);
        let mut nodes = self.nodes.iter().filter(may_have);
        let first = nodes.next()?;
        nodes.next().is_none().then_some(first.id)
    }

    /// Whether a node has CPUs, or its list of them could not be read.
    #[must_use]
    pub fn may_have_cpus(&self, node: &Node) -> bool {
        let list = Path::new(&format!("node{}", node.id)).join("cpulist");
        let unread = || self.problems.iter().any(|problem| problem.path.ends_with(&list));
        !node.cpus.is_empty() || unread()
    }
}

/// What is kept free of a node of `total` bytes.
fn in_force(reserve: Option<u64>, total: u64) -> u64 {
    reserve.unwrap_or_else(|| default_reserve(total))
}

/// Pressure, a resource an entry.
pub type PressureFacts = Found<Pressure>;

/// RDMA ports.
pub type RdmaFacts = Found<Port>;

/// Starts the three collectors. They end with `stop`; one that hangs is left behind.
///
/// # Errors
/// The system gives no thread.
pub fn start(config: &Config, slots: &Slots, stop: &Stop) -> io::Result<()> {
    let (root, slot) = (config.root(), slots.numa.clone());
    run_blocking(slots.numa.clone(), stop.clone(), move || numa(&root, &slot))?;
    let (root, slot) = (config.root(), slots.pressure.clone());
    run_blocking(slots.pressure.clone(), stop.clone(), move || pressure(&root, &slot))?;
    let (root, slot) = (config.root(), slots.rdma.clone());
    run_blocking(slots.rdma.clone(), stop.clone(), move || rdma(&root, &slot))
}

fn numa(root: &Root, slot: &Slot<NumaFacts>) -> Result<NumaFacts, CollectError> {
    let found = root.numa()?.filter(|found| !found.entries.is_empty());
    let Found { entries: nodes, mut problems } = found.ok_or_else(|| {
        CollectError::unsupported("this kernel knows no NUMA nodes (CONFIG_NUMA)")
    })?;
    let watermarks = root.watermarks().unwrap_or_else(|error| {
        problems.push(error.into());
        Vec::new()
    });
    let any = nodes.iter().any(|node| node.memory.is_some());
    tell(slot, &problems, any)?;
    Ok(NumaFacts { nodes, watermarks, problems })
}

fn pressure(root: &Root, slot: &Slot<PressureFacts>) -> Result<PressureFacts, CollectError> {
    let off = "this kernel counts no pressure (psi=1 on its command line switches it on)";
    let found = root.pressure()?.ok_or_else(|| CollectError::unsupported(off))?;
    tell(slot, &found.problems, !found.entries.is_empty())?;
    Ok(found)
}

fn rdma(root: &Root, slot: &Slot<RdmaFacts>) -> Result<RdmaFacts, CollectError> {
    let found = root.ports()?.unwrap_or_default();
    if found.entries.is_empty() && found.problems.is_empty() {
        return Err(CollectError::unsupported("this node has no RDMA port"));
    }
    tell(slot, &found.problems, !found.entries.is_empty())?;
    Ok(found)
}

/// Tells problems to the slot; where there is nothing besides, the first of them is the result.
fn tell<T>(slot: &Slot<T>, problems: &[Problem], any: bool) -> Result<(), CollectError> {
    let mut errors = problems.iter().cloned().map(CollectError::from);
    if !any && let Some(first) = errors.next() {
        return Err(first);
    }
    errors.for_each(|error| slot.incomplete(error));
    Ok(())
}

#[cfg(test)]
mod tests;
