//! NUMA nodes: their memory, their zones, the machine's sum of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use crate::Tree;

/// A NUMA node.
#[derive(Debug, Clone)]
pub struct NodeShape {
    /// Its number.
    pub id: u32,
    /// Its CPUs, ascending.
    pub cpus: Vec<u32>,
    /// `meminfo` of the node, in bytes by the kernel's names, multiples of 1024.
    pub memory: BTreeMap<&'static str, u64>,
    /// Huge pages: bytes of a page, pages in the pool, free ones.
    pub huge_pages: Vec<(u64, u64, u64)>,
    /// `numastat`: hit, miss, foreign, interleave_hit, local_node, other_node.
    pub allocations: [u64; 6],
    /// Watermarks of its normal zone, in pages: min, low, high.
    pub watermarks: [u64; 3],
}

impl NodeShape {
    /// A node of `total` bytes, half of it free, a quarter of it page cache.
    #[must_use]
    pub fn new(id: u32, total: u64) -> Self {
        let part = |parts: u64| total / 64 * parts / 1024 * 1024;
        let memory = [
            ("MemTotal", total),
            ("MemFree", part(32)),
            ("FilePages", part(16)),
            ("AnonPages", part(8)),
            ("Shmem", part(4)),
            ("Mlocked", part(2)),
            ("Slab", part(2)),
            ("SReclaimable", part(1)),
            ("SUnreclaim", part(1)),
            ("Dirty", 1 << 20),
            ("Writeback", 1 << 19),
            ("KernelStack", 16 << 20),
            ("PageTables", 32 << 20),
            ("SecPageTables", 1 << 20),
        ];
        Self {
            id,
            cpus: Vec::new(),
            memory: memory.into(),
            huge_pages: vec![(2 << 20, 0, 0), (1 << 30, 0, 0)],
            allocations: [1_000_000, 2_000, 3_000, 400, 990_000, 12_000],
            watermarks: [11_000, 14_000, 17_000],
        }
    }

    /// With these CPUs.
    #[must_use]
    pub fn cpus(self, cpus: Range<u32>) -> Self {
        Self { cpus: cpus.collect(), ..self }
    }

    /// With `bytes` of a kind of memory (`MemFree`, `Shmem`, ...).
    #[must_use]
    pub fn memory(mut self, field: &'static str, bytes: u64) -> Self {
        self.memory.insert(field, bytes);
        self
    }

    /// With a pool of huge pages: bytes of a page, pages, free ones.
    #[must_use]
    pub fn huge(mut self, page_bytes: u64, total: u64, free: u64) -> Self {
        self.huge_pages.retain(|(bytes, _, _)| *bytes != page_bytes);
        self.huge_pages.push((page_bytes, total, free));
        self
    }
}

/// Numbers, ascending, as the kernel lists them: `0-3,8`.
pub(crate) fn list(numbers: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let text = ranges.iter().map(|&(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    text.collect::<Vec<_>>().join(",")
}

const BASE: &str = "sys/devices/system/node";

pub(crate) fn write(tree: &Tree) {
    let ids: Vec<u32> = tree.shape.nodes.iter().map(|node| node.id).collect();
    if ids.is_empty() {
        return;
    }
    for file in ["online", "possible", "has_memory"] {
        tree.write(format!("{BASE}/{file}"), list(&ids) + "\n");
    }
    for (index, node) in tree.shape.nodes.iter().enumerate() {
        let folder = format!("{BASE}/node{}", node.id);
        tree.write(format!("{folder}/cpulist"), list(&node.cpus) + "\n");
        let far = |other: usize| if other == index { "10" } else { "21" };
        let distances: Vec<&str> = (0..ids.len()).map(far).collect();
        tree.write(format!("{folder}/distance"), distances.join(" ") + "\n");
        let names =
            ["numa_hit", "numa_miss", "numa_foreign", "interleave_hit", "local_node", "other_node"];
        let counts = names.iter().zip(node.allocations);
        let text: String = counts.map(|(name, count)| format!("{name} {count}\n")).collect();
        tree.write(format!("{folder}/numastat"), text);
        for (bytes, total, free) in &node.huge_pages {
            let pool = format!("{folder}/hugepages/hugepages-{}kB", bytes / 1024);
            tree.write(format!("{pool}/nr_hugepages"), format!("{total}\n"));
            tree.write(format!("{pool}/free_hugepages"), format!("{free}\n"));
            tree.write(format!("{pool}/surplus_hugepages"), "0\n");
        }
        meminfo(tree, node);
    }
    machine(tree);
    zoneinfo(tree);
}

fn meminfo(tree: &Tree, node: &NodeShape) {
    let id = node.id;
    let mut text = String::new();
    for (field, bytes) in &node.memory {
        writeln!(text, "Node {id} {:<16}{:>12} kB", format!("{field}:"), bytes / 1024)
            .expect("a string takes all");
    }
    let pages = node.huge_pages.iter().find(|(bytes, _, _)| *bytes == 2 << 20);
    let (_, total, free) = pages.copied().unwrap_or_default();
    writeln!(text, "Node {id} HugePages_Total: {total:>6}\nNode {id} HugePages_Free:  {free:>6}")
        .expect("a string takes all");
    tree.write(format!("{BASE}/node{id}/meminfo"), text);
}

/// `/proc/meminfo`: the nodes added up.
fn machine(tree: &Tree) {
    let sum = |field: &str| {
        let nodes = tree.shape.nodes.iter();
        nodes.map(|node| node.memory.get(field).copied().unwrap_or(0)).sum::<u64>() / 1024
    };
    let available = sum("MemFree") + sum("FilePages") - sum("Shmem") + sum("SReclaimable");
    let fields = [
        ("MemTotal", sum("MemTotal")),
        ("MemFree", sum("MemFree")),
        ("MemAvailable", available),
        ("Buffers", 0),
        ("Cached", sum("FilePages")),
        ("Dirty", sum("Dirty")),
        ("AnonPages", sum("AnonPages")),
        ("Shmem", sum("Shmem")),
        ("Slab", sum("Slab")),
        ("SwapTotal", 0),
        ("SwapFree", 0),
    ];
    let line = |(field, kib): &(&str, u64)| format!("{:<16}{kib:>12} kB\n", format!("{field}:"));
    tree.write("proc/meminfo", fields.iter().map(line).collect::<String>());
}

/// `/proc/zoneinfo`: a normal zone for each node, and the small one that the first begins with.
fn zoneinfo(tree: &Tree) {
    let mut text = String::new();
    for (index, node) in tree.shape.nodes.iter().enumerate() {
        if index == 0 {
            zone(&mut text, node, "DMA", [10, 13, 16], 3_840);
        }
        let managed = node.memory.get("MemTotal").copied().unwrap_or(0) / 4096;
        zone(&mut text, node, "Normal", node.watermarks, managed);
    }
    tree.write("proc/zoneinfo", text);
}

fn zone(text: &mut String, node: &NodeShape, name: &str, marks: [u64; 3], managed: u64) {
    let [min, low, high] = marks;
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    line(format!("Node {}, zone {name:>8}", node.id));
    line("  per-node stats\n      nr_free_pages 7\n  pages free     1000".to_owned());
    for (field, pages) in [
        ("boost", 0),
        ("min", min),
        ("low", low),
        ("high", high),
        ("spanned", managed),
        ("present", managed),
        ("managed", managed),
    ] {
        line(format!("        {field:<8} {pages}"));
    }
    line("        protection: (0, 0, 0, 0, 0)\n      nr_free_pages 1000\n  pagesets".to_owned());
    for cpu in &node.cpus {
        // Lists of a CPU have a `high` of their own, with a colon.
        line(format!("    cpu: {cpu}"));
        for (field, value) in [("count:", 10), ("high:", 378), ("batch:", 63)] {
            line(format!("              {field:<8} {value}"));
        }
        line("  vm stats threshold: 12".to_owned());
    }
    text.push_str("  node_unreclaimable:  0\n  start_pfn:           1\n");
}

impl Tree {
    /// Sets a kind of memory of a node (`MemFree`, `Shmem`, ...), in bytes.
    ///
    /// # Panics
    /// There is no such node.
    pub fn set_memory(&mut self, id: u32, field: &'static str, bytes: u64) {
        let node = self.shape.nodes.iter_mut().find(|node| node.id == id);
        node.expect("a node of the tree").memory.insert(field, bytes);
        let node = self.shape.nodes.iter().find(|node| node.id == id);
        meminfo(self, node.expect("a node of the tree"));
        machine(self);
    }

    /// Free memory of a node, in bytes.
    ///
    /// # Panics
    /// There is no such node.
    pub fn set_node_free(&mut self, id: u32, bytes: u64) {
        self.set_memory(id, "MemFree", bytes);
    }

    /// Takes a node off line: its folder goes, and the others forget it.
    pub fn remove_node(&mut self, id: u32) {
        self.shape.nodes.retain(|node| node.id != id);
        self.remove(Self::node_path(id));
        write(self);
    }

    /// The folder of a node, relative to the root.
    #[must_use]
    pub fn node_path(id: u32) -> String {
        format!("{BASE}/node{id}")
    }
}
