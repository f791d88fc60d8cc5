use std::time::Duration;

use fake_node::{NodeShape, Shape, Tree};
use metric_catalog::page::Page;

use super::*;
use crate::config::RdmaPort;
use crate::slot::{CollectorName, ErrorKind, Now, View};

const GIB: u64 = 1 << 30;

fn root(tree: &Tree) -> Root {
    Root::at(tree.path())
}

/// One collection into a new slot, and what is seen of it.
fn collect<T>(
    name: CollectorName,
    collect: impl FnOnce(&Slot<T>) -> Result<T, CollectError>,
) -> View<T> {
    let slot = Slot::new(name, Duration::from_secs(1));
    let now = Now::read();
    slot.begin(now);
    let result = collect(&slot);
    slot.finish(now, result);
    slot.view(now)
}

fn numa_of(tree: &Tree) -> View<NumaFacts> {
    collect(CollectorName::Numa, |slot| numa(&root(tree), slot))
}

fn rdma_of(tree: &Tree) -> View<RdmaFacts> {
    collect(CollectorName::Rdma, |slot| rdma(&root(tree), slot))
}

/// Samples without what the catalog says of families.
fn samples(put: impl FnOnce(&mut Page)) -> Vec<String> {
    let mut page = Page::new();
    put(&mut page);
    let text = page.render();
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn headroom_is_of_nodes_of_which_all_is_known() {
    let node = |id| NodeShape::new(id, 256 * GIB).memory("MemFree", 100 * GIB);
    let nodes = vec![node(0).cpus(0..4), node(3), NodeShape::new(4, 0).cpus(4..8)];
    let tree = Shape { nodes, ..Shape::small() }.build();
    let facts = numa_of(&tree).facts.expect("it is readable");
    // File 64 GiB, shared 16, dirty 1 MiB, writeback half of it; slabs 4 GiB: four fifths of that.
    let reclaimable = (52 * GIB - 3 * (1 << 19)) / 5 * 4;
    let high = |pages: u64| pages * root(&tree).page_bytes();
    let room = |pages, reserve| (100 * GIB + reclaimable - high(pages) - reserve) as i64;
    let default = 256 * GIB / 20;
    let expect = BTreeMap::from([(0, room(17_016, default)), (3, room(17_000, default))]);
    assert_eq!(facts.headroom(None), expect, "a node without memory has no room to speak of");
    assert_eq!(facts.headroom(Some(0))[&3], room(17_000, 0));
    // A node of memory only is not judged by what is kept free of it.
    assert_eq!(facts.reserves(None), BTreeMap::from([(0, default)]));
    assert_eq!(facts.reserves(Some(GIB)), BTreeMap::from([(0, GIB)]));
    tree.remove("proc/zoneinfo");
    let view = numa_of(&tree);
    assert!(view.facts.expect("memory is known").headroom(None).is_empty());
    assert!(!view.status.success, "and it is said why");
}

#[test]
fn one_node_is_all_of_them_if_no_other_may_have_memory() {
    let only = |tree: &Tree| numa_of(tree).facts.expect("it is readable").only();
    assert_eq!(only(&Tree::small()), Some(0));
    let of_cpus = NodeShape::new(4, 0).cpus(4..8);
    let nodes = vec![NodeShape::new(1, 256 * GIB).cpus(0..4), of_cpus];
    assert_eq!(only(&Shape { nodes, ..Shape::small() }.build()), Some(1));
    let tree = Tree::two_socket();
    assert_eq!(only(&tree), None);
    tree.write(format!("{}/meminfo", Tree::node_path(1)), "nonsense\n");
    assert_eq!(only(&tree), None, "the other may have memory");
}

#[test]
fn a_bad_file_is_told_and_the_rest_is_shown() {
    let tree = Tree::two_socket();
    tree.write(format!("{}/meminfo", Tree::node_path(1)), "nonsense\n");
    let view = numa_of(&tree);
    let status = &view.status;
    assert!(!status.success && status.is_fresh());
    let error = status.error.as_ref().expect("a reason").to_string();
    assert!(error.contains("node1/meminfo") && error.contains("nonsense"), "{error}");
    assert_eq!(status.errors[ErrorKind::Malformed.index()], 1);
    let lines = samples(|page| page::numa(&view, None, page));
    assert!(lines.contains(&format!(
        "sightline_node_numa_memory_total_bytes{{numa_node=\"0\"}} {}",
        1_u64 << 40
    )));
    let other: Vec<_> = lines.iter().filter(|line| line.contains("numa_node=\"1\"")).collect();
    assert_eq!(other.len(), 6 + 2, "allocations and distances are files of their own: {other:?}");

    tree.write(format!("{}/meminfo", Tree::node_path(0)), "nonsense\n");
    let view = numa_of(&tree);
    assert!(view.facts.is_none(), "nothing is known of any node");
    assert!(view.status.error.is_some_and(|error| error.to_string().contains("node0")));
}

#[test]
fn what_a_node_lacks_is_no_failure() {
    let tree = Shape { psi: false, ..Shape::default() }.build();
    let numa = numa_of(&tree).status;
    let pressure = collect(CollectorName::Pressure, |slot| pressure(&root(&tree), slot)).status;
    let rdma = rdma_of(&tree).status;
    for (status, word) in [(numa, "CONFIG_NUMA"), (pressure, "psi=1"), (rdma, "RDMA")] {
        assert!(status.unsupported.is_some_and(|why| why.contains(word)), "{word}");
        assert_eq!((status.error, status.errors.iter().sum::<u64>()), (None, 0));
    }
}

#[test]
fn gauges_go_and_counters_stay() {
    let tree = Tree::small();
    let slot = Slot::new(CollectorName::Numa, Duration::from_secs(1));
    let now = Now::read();
    slot.finish(now, numa(&root(&tree), &slot));
    let lines = |at| samples(|page| page::numa(&slot.view(at), None, page));
    let fresh = lines(now);
    assert_eq!(fresh.len(), 9 + 2 + 6 + 1, "{fresh:?}");
    let old = lines(now + Duration::from_secs(4));
    assert_eq!(old.len(), 6);
    assert!(old.iter().all(|line| line.contains("page_allocations_total")), "{old:?}");
}

#[test]
fn a_required_port_that_is_not_there_is_down() {
    let tree = Tree::two_socket();
    let wanted = ["mlx5_0:1", "mlx5_1:2"].map(|text| text.parse::<RdmaPort>().expect("a port"));
    let up = |view: &View<RdmaFacts>| {
        let lines = samples(|page| page::rdma(view, &wanted, page));
        let mut shown = lines
            .iter()
            .filter(|line| line.contains("rdma_port_up") || line.contains("rdma_port_required"));
        shown.by_ref().map(|line| line.split("rdma_port_").nth(1).unwrap().to_owned()).collect()
    };
    let view = rdma_of(&tree);
    let lines: Vec<String> = up(&view);
    let expect = [
        "up{device=\"mlx5_0\",port=\"1\",numa_node=\"0\"} 1",
        "up{device=\"mlx5_1\",port=\"1\",numa_node=\"1\"} 1",
        "up{device=\"mlx5_1\",port=\"2\",numa_node=\"none\"} 0",
        "required{device=\"mlx5_0\",port=\"1\",numa_node=\"0\"} 1",
        "required{device=\"mlx5_1\",port=\"1\",numa_node=\"1\"} 0",
        "required{device=\"mlx5_1\",port=\"2\",numa_node=\"none\"} 1",
    ];
    assert_eq!(lines, expect);
    // A port whose files are bad is not told from one that is not there: nothing is said.
    tree.set_port_state(0, "9: ODD");
    let lines: Vec<String> = up(&rdma_of(&tree));
    assert_eq!(lines, [expect[1], expect[4]]);
    // No device at all.
    tree.remove("sys/class/infiniband");
    let lines: Vec<String> = up(&rdma_of(&tree));
    assert_eq!(lines.len(), 4);
    assert!(lines.iter().all(|line| line.contains("numa_node=\"none\"")), "{lines:?}");
}
