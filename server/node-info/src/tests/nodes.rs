//! Nodes, zones and pressure.

use std::time::Duration;

use fake_node::{NodeShape, Shape, Tree};

use crate::{
    Distance, FactKind, NodeMemory, Resource, Root, Watermarks, default_reserve, headroom, zones,
};

pub(super) fn root(tree: &Tree) -> Root {
    Root::at(tree.path())
}

fn two_nodes() -> Tree {
    let node = NodeShape::new(0, 64 << 30)
        .cpus(0..8)
        .memory("MemFree", 20 << 30)
        .memory("FilePages", 10 << 30)
        .memory("AnonPages", 5 << 30)
        .memory("Shmem", 4 << 30)
        .memory("Slab", 3 << 30)
        .memory("SReclaimable", 1 << 30)
        .memory("Dirty", 1 << 20)
        .memory("Writeback", 1 << 20)
        .memory("KernelStack", 16 << 20)
        .memory("PageTables", 32 << 20)
        .memory("SecPageTables", 16 << 20)
        .huge(2 << 20, 1024, 24)
        .huge(1 << 30, 4, 4);
    let nodes = vec![NodeShape::new(1, 64 << 30).cpus(8..16), node];
    Shape { nodes, ..Shape::small() }.build()
}

#[test]
fn a_node_is_read_whole() {
    let found = root(&two_nodes()).numa().expect("readable").expect("there are nodes");
    assert_eq!(found.problems, []);
    let [node, other] = found.entries.as_slice() else { panic!("{found:?}") };
    assert_eq!((node.id, other.id), (0, 1));
    let memory = node.memory.expect("readable");
    assert_eq!((memory.total, memory.free), (64 << 30, 20 << 30));
    assert_eq!((memory.file, memory.shmem), (Some(10 << 30), Some(4 << 30)));
    // 10 GiB less 4 GiB shared, 1 MiB dirty, 1 MiB on its way out, plus 1 GiB of slabs.
    assert_eq!(memory.reclaimable(), (7 << 30) - (2 << 20));
    assert_eq!(node.available(), (27 << 30) - (2 << 20));
    // 1024 pages of 2 MiB and 4 of 1 GiB, taken or not.
    assert_eq!(node.huge_bytes(), Some(6 << 30));
    // 64 - 20 free - 5 anon - 10 file - 3 slab - 64 MiB of stacks and tables - 6 huge.
    assert_eq!(node.unaccounted(), Some((20 << 30) - (64 << 20)));
    let pools = node.huge_pages.as_ref().expect("readable");
    assert_eq!(pools.iter().map(|pool| pool.free).collect::<Vec<_>>(), [24, 4]);
    let pages = node.allocations.expect("readable");
    assert_eq!((pages.hit, pages.miss, pages.foreign), (1_000_000, 2_000, 3_000));
    assert_eq!((pages.interleave_hit, pages.local_node, pages.other_node), (400, 990_000, 12_000));
    assert_eq!(node.cpus, (0..8).collect::<Vec<_>>());
    let far = |to, distance| Distance { to, distance };
    assert_eq!(node.distances, [far(0, 10), far(1, 21)]);
    assert_eq!(other.distances, [far(0, 21), far(1, 10)]);
}

#[test]
fn ids_may_have_holes_and_nodes_no_cpus() {
    let tree = Tree::sparse();
    let found = root(&tree).numa().expect("readable").expect("there are nodes");
    assert_eq!(found.problems, []);
    let ids: Vec<_> = found.entries.iter().map(|node| node.id).collect();
    assert_eq!(ids, [0, 2, 5]);
    let to: Vec<_> = found.entries[1].distances.iter().map(|one| (one.to, one.distance)).collect();
    assert_eq!(to, [(0, 21), (2, 10), (5, 21)], "columns are the nodes on line");
    assert!(found.entries[2].cpus.is_empty());
    assert_eq!(found.entries[2].memory.map(|memory| memory.total), Some(64 << 30));
    let marks = root(&tree).watermarks().expect("readable");
    assert_eq!(marks.iter().map(|marks| marks.node).collect::<Vec<_>>(), [0, 2, 5]);
    assert_eq!(root(&tree).nodes().len(), 3);
}

#[test]
fn each_file_of_a_node_stands_for_itself() {
    let tree = two_nodes();
    let at = |file: &str| format!("{}/{file}", Tree::node_path(1));
    tree.remove(at("numastat"));
    tree.write(at("distance"), "10 x\n");
    tree.write(at("hugepages/hugepages-2048kB/nr_hugepages"), "many\n");
    let found = root(&tree).numa().expect("readable").expect("there are nodes");
    let [whole, part] = found.entries.as_slice() else { panic!("{found:?}") };
    assert!(whole.allocations.is_some() && whole.unaccounted().is_some());
    assert!(part.memory.is_some() && part.cpus.len() == 8);
    assert_eq!((part.allocations, part.unaccounted()), (None, None));
    assert!(part.distances.is_empty() && part.huge_pages.is_none());
    let kinds: Vec<_> = found.problems.iter().map(|problem| problem.kind).collect();
    assert_eq!(kinds, [FactKind::Malformed, FactKind::Malformed, FactKind::Missing]);
    for (problem, said) in found.problems.iter().zip(["\"10 x\"", "\"many\"", "numastat"]) {
        assert!(problem.path.starts_with(tree.path()), "{problem:?}");
        assert!(problem.reason.contains(said), "{problem}");
    }
}

#[test]
fn memory_that_cannot_be_is_no_memory() {
    for text in [
        "",
        "Node 1 MemTotal: 1000 kB\n",
        "Node 1 MemTotal: 1000 kB\nNode 1 MemFree: 10",
        "Node 1 MemTotal: 1000 kB\nNode 1 MemFree: 10\n",
        "Node 1 MemTotal: 1000 kB\nNode 1 MemFree: -10 kB\n",
        "Node 1 MemTotal: 1000 kB\nNode 1 MemFree: 1001 kB\n",
        "Node 0 MemTotal: 1000 kB\nNode 0 MemFree: 10 kB\n",
        "Node 1 MemTotal: 99999999999999999 kB\nNode 1 MemFree: 10 kB\n",
        "MemTotal: 1000 kB\nMemFree: 10 kB\n",
    ] {
        let tree = two_nodes();
        tree.write(format!("{}/meminfo", Tree::node_path(1)), text);
        let found = root(&tree).numa().expect("readable").expect("there are nodes");
        assert_eq!(found.entries[1].memory, None, "{text:?}");
        assert_eq!(found.problems.len(), 1, "{text:?}");
        assert_eq!(root(&tree).nodes().len(), 1, "the planner counts on what can be read");
    }
}

#[test]
fn nodes_come_and_go() {
    let mut tree = Tree::two_socket();
    let root = root(&tree);
    let free = |root: &Root| {
        let nodes = root.nodes();
        nodes.iter().map(|node| (node.id, node.memory.map_or(0, |m| m.free))).collect::<Vec<_>>()
    };
    assert_eq!(free(&root), [(0, 512 << 30), (1, 512 << 30)]);
    tree.set_node_free(1, 7 << 30);
    assert_eq!(free(&root), [(0, 512 << 30), (1, 7 << 30)]);
    tree.remove_node(0);
    assert_eq!(free(&root), [(1, 7 << 30)]);
    let found = root.numa().expect("readable").expect("there is a node");
    assert_eq!(found.problems, [], "the other's distances have one column now");
    let path = tree.path().to_owned();
    drop(tree);
    assert!(!path.exists(), "a tree leaves nothing behind");
    assert_eq!(root.numa().expect("nothing is no error"), None);
    assert_eq!(root.watermarks().expect_err("missing").kind(), FactKind::Missing);
}

#[test]
fn headroom_is_what_is_left_of_what_can_be_had() {
    let memory = NodeMemory {
        total: 256 << 30,
        free: 100 << 30,
        file: Some(60 << 30),
        shmem: Some(10 << 30),
        ..NodeMemory::default()
    };
    let marks = |high| Watermarks { high, ..Watermarks::default() };
    // 100 free, four fifths of 50 reclaimable, less 2 of watermarks, less a reserve of 12.8.
    let reserve = default_reserve(memory.total);
    assert_eq!(reserve, (256 << 30) / 20);
    assert_eq!(headroom(&memory, &marks(2 << 30), reserve), (138 << 30) - (256 << 30) / 20);
    assert_eq!(default_reserve(64 << 30), 8 << 30);
    assert_eq!(default_reserve(100 << 30), 8 << 30);
    assert_eq!(default_reserve(8 << 30), 1 << 30, "of a small node, an eighth");
    assert_eq!(default_reserve(0), 0);
    let full = NodeMemory { free: 1 << 30, file: None, ..memory };
    assert_eq!(headroom(&full, &marks(2 << 30), 8 << 30), -(9 << 30));
    assert_eq!(headroom(&full, &marks(u64::MAX), u64::MAX), i64::MIN);
    let vast = NodeMemory { free: u64::MAX, ..memory };
    assert_eq!(headroom(&vast, &marks(0), 0), i64::MAX);
}

#[test]
fn watermarks_are_those_of_zones_not_of_cpus() {
    let tree = two_nodes();
    // A zone more in the first node; the lists per CPU have a `high:` of their own.
    let marks = root(&tree).watermarks().expect("readable");
    let page = root(&tree).page_bytes();
    let first = Watermarks {
        node: 0,
        min: 11_010 * page,
        low: 14_013 * page,
        high: 17_016 * page,
        managed: ((64 << 30) / 4096 + 3_840) * page,
    };
    assert_eq!(marks[0], first);
    assert_eq!((marks[1].node, marks[1].high), (1, 17_000 * page));
    for text in ["", "\n", "Node x, zone DMA\n", "Node 0, zone DMA\n min 1\n low 2\n high 3\n"] {
        assert!(zones::parse(text, 4096).is_err(), "{text:?}");
    }
    let text = "Node 0, zone DMA\n min 1\n low 2\n high 18446744073709551615\n managed 3\n";
    assert!(zones::parse(text, 4096).is_err(), "more bytes than there are numbers");
}

#[test]
fn a_page_has_the_size_that_the_kernel_says() {
    let tree = two_nodes();
    assert_eq!(root(&tree).page_bytes(), 4096, "where nobody says");
    let words =
        |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
    tree.write("proc/self/auxv", words(&[16, 0x1f, 6, 65_536, 0, 0]));
    assert_eq!(root(&tree).page_bytes(), 65_536);
    assert_eq!(root(&tree).watermarks().expect("readable")[1].high, 17_000 * 65_536);
    for odd in [words(&[6, 1000]), words(&[6]), vec![6, 0, 0], Vec::new()] {
        tree.write("proc/self/auxv", odd);
        assert_eq!(root(&tree).page_bytes(), 4096);
    }
    if cfg!(target_os = "linux") {
        assert!(Root::default().page_bytes() >= 4096);
    }
}

#[test]
fn pressure_is_what_this_kernel_counts() {
    let tree = Tree::small();
    let found = root(&tree).pressure().expect("readable").expect("it is on");
    assert_eq!(found.problems, []);
    let total = |resource, of: fn(&crate::Pressure) -> Option<crate::Stall>| {
        let entry = found.entries.iter().find(|entry| entry.resource == resource)?;
        of(entry).map(|stall| stall.total)
    };
    let micros = |micros| Some(Duration::from_micros(micros));
    assert_eq!(total(Resource::Cpu, |entry| entry.waiting), micros(2_500_000));
    assert_eq!(total(Resource::Memory, |entry| entry.stalled), micros(750_000));
    assert_eq!(total(Resource::Irq, |entry| entry.waiting), None, "nobody counts it");
    assert_eq!(total(Resource::Irq, |entry| entry.stalled), micros(125_000));
    let cpu = found.entries[0].waiting.expect("counted");
    assert_eq!(cpu.average, [0.015, 0.0075, 0.0025]);

    let old = Shape { psi_since_5_13: false, ..Shape::small() }.build();
    let found = root(&old).pressure().expect("readable").expect("it is on");
    let known: Vec<_> = found.entries.iter().map(|entry| entry.resource).collect();
    assert_eq!(known, [Resource::Cpu, Resource::Memory, Resource::Io]);
    assert_eq!((found.entries[0].stalled, found.problems.len()), (None, 0));

    old.psi_off();
    assert_eq!(root(&old).pressure().expect("absent is no failure"), None);
}

#[test]
fn bad_pressure_costs_one_resource() {
    let tree = Tree::small();
    for text in [
        "some avg10=0.00 avg60=0.00 avg300=0.00\n",
        "some avg10=nan avg60=0.00 avg300=0.00 total=1\n",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=1",
        "none\n",
        "",
    ] {
        tree.write("proc/pressure/io", text);
        let found = root(&tree).pressure().expect("readable").expect("it is on");
        assert_eq!((found.entries.len(), found.problems.len()), (3, 1), "{text:?}");
    }
    for resource in Resource::ALL {
        tree.write(format!("proc/pressure/{}", resource.name()), "none\n");
    }
    assert_eq!(root(&tree).pressure().expect_err("all bad").kind(), FactKind::Malformed);
}
