//! NUMA nodes, pressure and RDMA ports: what pages say of trees that are whole, broken, changed
//! while it runs, and that hang.

use std::time::Duration;

use fake_node::{Group, NodeShape, Shape, Tree};

use crate::harness::{Exporter, Page, eventually};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// How long a scrape may take at most, whatever hangs: far more than it does, on busy machines.
const FAST: Duration = Duration::from_secs(1);

/// The program on a tree, collecting five times a second: what is dropped goes within a second.
fn start(tree: &Tree, more: &[&str]) -> Exporter {
    let path = |path: std::path::PathBuf| path.display().to_string();
    let (procfs, sysfs, groups) = (path(tree.procfs()), path(tree.sysfs()), path(tree.cgroupfs()));
    let rootfs = path(tree.path().to_owned());
    let mut args = vec!["--no-nvml", "--no-kmsg", "--path.procfs", &procfs, "--path.sysfs", &sysfs];
    args.extend(["--path.cgroupfs", &groups, "--path.rootfs", &rootfs]);
    for interval in ["numa=200ms", "pressure=200ms", "rdma=200ms", "cgroup=200ms", "page=50ms"] {
        args.extend(["--interval", interval]);
    }
    args.extend(more);
    Exporter::start(&args)
}

fn node(page: &Page, family: &str, node: &str) -> Option<f64> {
    page.value(&format!("sightline_node_numa_{family}"), &[("numa_node", node)])
}

fn collector(page: &Page, family: &str, name: &str) -> Option<f64> {
    page.value(&format!("sightline_node_collector_{family}"), &[("collector", name)])
}

fn errors(page: &Page, name: &str, error: &str) -> Option<f64> {
    let labels = [("collector", name), ("error", error)];
    page.value("sightline_node_collector_errors_total", &labels)
}

/// The first page that shows this family, and on which the collector has this success. No scrape on
/// the way takes long.
fn settled(exporter: &Exporter, name: &str, success: f64, family: &str) -> Page {
    exporter.page_where(&format!("{name} has {success} and {family}"), |page| {
        assert!(page.took < FAST, "a scrape took {:?}", page.took);
        collector(page, "success", name) == Some(success) && !page.all(family, &[]).is_empty()
    })
}

const TOTAL: &str = "sightline_node_numa_memory_total_bytes";
const WAITING: &str = "sightline_node_pressure_waiting_seconds_total";
const PORT_UP: &str = "sightline_node_rdma_port_up";
const RESIDENT: &str = "sightline_node_service_numa_resident_bytes";

fn two_nodes() -> Shape {
    let first = NodeShape::new(0, 64 * GIB)
        .cpus(0..8)
        .memory("MemFree", 20 * GIB)
        .memory("FilePages", 10 * GIB)
        .memory("AnonPages", 5 * GIB)
        .memory("Shmem", 4 * GIB)
        .memory("Slab", 3 * GIB)
        .memory("SReclaimable", GIB)
        .memory("Dirty", MIB)
        .memory("Writeback", MIB)
        .memory("Mlocked", 2 * GIB)
        .memory("KernelStack", 16 * MIB)
        .memory("PageTables", 32 * MIB)
        .memory("SecPageTables", 16 * MIB)
        .huge(2 * MIB, 1024, 0)
        .huge(GIB, 4, 0);
    let nodes = vec![first, NodeShape::new(1, 64 * GIB).cpus(8..16)];
    Shape { nodes, hcas: 1, ..Shape::small() }
}

#[test]
fn values_are_those_of_the_files() {
    let mut tree = two_nodes().build();
    let exporter = start(&tree, &["--reserve", "2GiB", "--rdma.require", "mlx5_0:1"]);
    let page = settled(&exporter, "numa", 1.0, TOTAL);
    let gib = |family: &str| node(&page, family, "0").map(|bytes| bytes / GIB as f64);
    for (family, expect) in [
        ("memory_total_bytes", 64.0),
        ("memory_free_bytes", 20.0),
        ("memory_file_bytes", 10.0),
        ("memory_anon_bytes", 5.0),
        ("memory_shmem_bytes", 4.0),
        ("memory_slab_bytes", 3.0),
        ("memory_hugetlb_bytes", 6.0),
        ("memory_mlocked_bytes", 2.0),
        // 64 less 20, 10, 5, 3, 6 and 64 MiB of stacks and tables.
        ("memory_unaccounted_bytes", 20.0 - 0.0625),
    ] {
        assert_eq!(gib(family), Some(expect), "{family}");
    }
    // 20 free; 10 of files less 4 shared and 2 MiB to be written, and 1 of slabs, four fifths of
    // it; 17,016 pages of watermarks; 2 of reserve.
    let reclaimable = (7 * GIB - 2 * MIB) / 5 * 4;
    let headroom = 20 * GIB + reclaimable - 17_016 * 4096 - 2 * GIB;
    assert_eq!(node(&page, "headroom_bytes", "0"), Some(headroom as f64));
    for (outcome, count) in [
        ("hit", 1_000_000.0),
        ("miss", 2_000.0),
        ("foreign", 3_000.0),
        ("interleave_hit", 400.0),
        ("local_node", 990_000.0),
        ("other_node", 12_000.0),
    ] {
        let labels = [("numa_node", "1"), ("outcome", outcome)];
        let family = "sightline_node_numa_page_allocations_total";
        assert_eq!(page.value(family, &labels), Some(count), "{outcome}");
    }
    for (from, to, distance) in [("0", "0", 10.0), ("0", "1", 21.0), ("1", "0", 21.0)] {
        let labels = [("numa_node", from), ("to", to)];
        assert_eq!(page.value("sightline_node_numa_distance", &labels), Some(distance));
    }
    let page = settled(&exporter, "rdma", 1.0, PORT_UP);
    devices(&settled(&exporter, "pressure", 1.0, WAITING), &page);

    tree.set_node_free(1, 3 * GIB);
    let free = (3 * GIB) as f64;
    exporter.page_where("it follows", |page| node(page, "memory_free_bytes", "1") == Some(free));
}

/// What [`two_nodes`] says besides memory.
fn devices(pressure: &Page, rdma: &Page) {
    let stall = |kind: &str, resource: &str| {
        let family = format!("sightline_node_pressure_{kind}_seconds_total");
        pressure.value(&family, &[("resource", resource)])
    };
    assert_eq!((stall("waiting", "cpu"), stall("stalled", "cpu")), (Some(2.5), Some(0.0)));
    assert_eq!((stall("waiting", "memory"), stall("stalled", "memory")), (Some(1.5), Some(0.75)));
    assert_eq!((stall("waiting", "io"), stall("stalled", "io")), (Some(4.0), Some(3.0)));
    assert_eq!((stall("waiting", "irq"), stall("stalled", "irq")), (None, Some(0.125)));
    let port = [("device", "mlx5_0"), ("port", "1"), ("numa_node", "0")];
    let value = |family: &str| rdma.value(&format!("sightline_node_rdma_{family}"), &port);
    assert_eq!(value("port_up"), Some(1.0));
    assert_eq!(value("port_required"), Some(1.0));
    assert_eq!(value("port_rate_bytes_per_second"), Some(50e9));
    assert_eq!(value("transmit_bytes_total"), Some(4e6), "the kernel counts words of 4 bytes");
    assert_eq!(value("receive_bytes_total"), Some(8e6));
    for (family, kind, count) in [
        ("errors_total", "symbol_error", 3.0),
        ("errors_total", "link_downed", 1.0),
        ("errors_total", "out_of_sequence", 5.0),
        ("errors_total", "packet_seq_err", 6.0),
        ("errors_total", "local_ack_timeout", 7.0),
        ("errors_total", "rnr_nak_retry", 8.0),
        ("congestion_events_total", "cnp_sent", 9.0),
        ("congestion_events_total", "cnp_handled", 10.0),
    ] {
        let labels = [&port[..], &[("kind", kind)]].concat();
        let family = format!("sightline_node_rdma_{family}");
        assert_eq!(rdma.value(&family, &labels), Some(count), "{kind}");
    }
}

#[test]
fn a_missing_file_costs_what_it_tells() {
    let tree = Tree::two_socket();
    tree.remove(format!("{}/numastat", Tree::node_path(1)));
    tree.write(format!("{}/meminfo", Tree::node_path(0)), "Node 0 MemTotal: lots kB\n");
    let exporter = start(&tree, &[]);
    let page = settled(&exporter, "numa", 0.0, TOTAL);
    assert_eq!(node(&page, "memory_total_bytes", "0"), None, "no partial garbage");
    assert_eq!(node(&page, "headroom_bytes", "0"), None);
    assert_eq!(node(&page, "memory_total_bytes", "1"), Some((1_u64 << 40) as f64));
    let allocations = "sightline_node_numa_page_allocations_total";
    assert_eq!(page.all(allocations, &[("numa_node", "0")]).len(), 6);
    assert_eq!(page.all(allocations, &[("numa_node", "1")]).len(), 0);
    assert!(errors(&page, "numa", "missing") >= Some(1.0));
    assert!(errors(&page, "numa", "malformed") >= Some(1.0));
    assert_eq!(collector(&page, "supported", "numa"), Some(1.0));
    assert!(eventually(|| exporter.log().contains("node0/meminfo")), "{}", exporter.log());

    let mended = "Node 0 MemTotal: 2 kB\nNode 0 MemFree: 1 kB\n";
    tree.write(format!("{}/meminfo", Tree::node_path(0)), mended);
    exporter.page_where("what is mended is back", |page| {
        node(page, "memory_free_bytes", "0") == Some(1024.0)
    });
    tree.remove("sys/devices/system/node");
    let page = exporter.page_where("a kernel without nodes", |page| {
        collector(page, "supported", "numa") == Some(0.0)
    });
    assert_eq!(page.all(TOTAL, &[]), []);
}

#[test]
fn a_node_may_go_while_it_runs() {
    let mut tree = Tree::two_socket();
    let exporter = start(&tree, &[]);
    let page = settled(&exporter, "numa", 1.0, TOTAL);
    assert_eq!(page.all("sightline_node_numa_distance", &[]).len(), 4);
    tree.remove_node(1);
    let page = exporter.page_where("one node is left, and nothing fails", |page| {
        node(page, "memory_total_bytes", "1").is_none()
            && collector(page, "success", "numa") == Some(1.0)
            && page.all("sightline_node_numa_distance", &[]).len() == 1
    });
    assert_eq!(page.all(TOTAL, &[]).len(), 1);
}

#[test]
fn ids_may_have_holes() {
    let tree = Tree::sparse();
    let exporter = start(&tree, &[]);
    let page = settled(&exporter, "numa", 1.0, TOTAL);
    let totals = ["0", "2", "5"].map(|id| node(&page, "memory_total_bytes", id));
    assert_eq!(totals, [256.0, 256.0, 64.0].map(|gib| Some(gib * GIB as f64)));
    let to = [("numa_node", "2"), ("to", "5")];
    assert_eq!(page.value("sightline_node_numa_distance", &to), Some(21.0));
    assert_eq!(page.all("sightline_node_numa_headroom_bytes", &[]).len(), 3);
    assert_eq!(node(&page, "memory_total_bytes", "1"), None);
}

#[test]
fn what_a_kernel_does_not_count_is_no_failure() {
    let tree = Shape { psi_since_5_13: false, ..Shape::small() }.build();
    let exporter = start(&tree, &[]);
    let page = settled(&exporter, "pressure", 1.0, WAITING);
    let stalled = page.all("sightline_node_pressure_stalled_seconds_total", &[]);
    assert_eq!(stalled.len(), 2, "neither the CPU's nor that of interrupts: {stalled:?}");
    tree.psi_off();
    let page = exporter.page_where("pressure is switched off", |page| {
        collector(page, "supported", "pressure") == Some(0.0)
    });
    assert!(
        page.all("sightline_node_collector_errors_total", &[("collector", "pressure")])
            .iter()
            .all(|(_, count)| *count == 0.0)
    );
    assert_eq!(collector(&page, "supported", "rdma"), Some(0.0));
    assert_eq!(page.all(PORT_UP, &[]), []);
}

/// A pipe hangs whoever opens it, as a driver's file in a bad state does.
#[test]
fn a_file_that_hangs_costs_its_own_values() {
    let tree = Tree::two_socket();
    let exporter = start(&tree, &[]);
    let page = settled(&exporter, "numa", 1.0, TOTAL);
    assert_eq!(page.all("sightline_node_numa_memory_free_bytes", &[]).len(), 2);
    let file = format!("{}/meminfo", Tree::node_path(1));
    let text = tree.read(&file);
    tree.fifo(&file);
    let mut slowest = Duration::ZERO;
    let page = exporter.page_where("it is stuck and its gauges are gone", |page| {
        slowest = slowest.max(page.took);
        collector(page, "stuck_seconds", "numa") >= Some(0.5)
            && page.all("sightline_node_numa_memory_free_bytes", &[]).is_empty()
    });
    assert!(slowest < FAST, "a scrape took {slowest:?}");
    let counters = page.all("sightline_node_numa_page_allocations_total", &[]);
    assert_eq!(counters.len(), 12, "counters stay");
    assert_eq!(page.all("sightline_node_numa_headroom_bytes", &[]), []);
    let stuck = collector(&page, "stuck_seconds", "numa");
    exporter.page_where("it grows", |page| {
        collector(page, "stuck_seconds", "numa") > stuck.map(|time| time + 0.3)
    });
    // The others go on.
    tree.pressure("memory", 99_000_000, Some(0));
    exporter.page_where("pressure is fresh", |page| {
        page.value(WAITING, &[("resource", "memory")]) == Some(99.0)
    });
    // Let go, it reads what is there now.
    tree.end_fifo(&file, text);
    let page = exporter.page_where("it works again", |page| {
        collector(page, "success", "numa") == Some(1.0)
            && page.all("sightline_node_numa_memory_free_bytes", &[]).len() == 2
    });
    assert_eq!(errors(&page, "numa", "malformed"), Some(1.0), "an empty file is none");
    exporter.page_where("nothing is stuck", |page| {
        collector(page, "stuck_seconds", "numa") == Some(0.0)
    });
}

#[test]
fn a_file_without_end_eats_no_memory() {
    let tree = Tree::two_socket();
    for path in ["proc/zoneinfo", "proc/pressure/io"] {
        tree.remove(path);
        std::os::unix::fs::symlink("/dev/zero", tree.path().join(path)).expect("a link");
    }
    let exporter = start(&tree, &["--no-sandbox"]);
    let page = settled(&exporter, "numa", 0.0, TOTAL);
    assert!(errors(&page, "numa", "malformed") >= Some(1.0));
    assert_eq!(page.all("sightline_node_numa_memory_free_bytes", &[]).len(), 2);
    assert_eq!(page.all("sightline_node_numa_headroom_bytes", &[]), []);
    let page = settled(&exporter, "pressure", 0.0, WAITING);
    assert_eq!(page.all(WAITING, &[]).len(), 2);
    let status = std::fs::read_to_string(format!("/proc/{}/status", exporter.pid()));
    let status = status.expect("it runs");
    let mut peak = status.lines().filter_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.next().and_then(|text| text.trim().strip_suffix("kB")?.trim().parse().ok());
    let peak: u64 = peak.expect("a number of kB");
    assert!(peak < 128 << 10, "it took {peak} kB");
}

#[test]
fn control_groups_of_version_1_are_said() {
    let tree = Shape { cgroup_v1: true, ..Shape::two_socket() }.build();
    let exporter = start(&tree, &["--service", "server,cgroup=/system.slice/server.service"]);
    let page = exporter.page_where("no group can be read", |page| {
        collector(page, "supported", "cgroup") == Some(0.0)
    });
    assert_eq!(page.all("sightline_node_service_memory_current_bytes", &[]), []);
    assert!(eventually(|| exporter.log().contains("version 1")), "{}", exporter.log());
    let page = settled(&exporter, "numa", 1.0, TOTAL);
    assert_eq!(page.all("sightline_node_numa_memory_free_bytes", &[]).len(), 2);
    drop(exporter);

    let tree = Tree::two_socket();
    let nodes = vec![(0, 150 * GIB, GIB), (1, MIB, 0)];
    tree.set_group("/system.slice/server.service", &Group { nodes, ..Group::default() });
    let exporter = start(&tree, &["--service", "server,cgroup=/system.slice/server.service"]);
    let page = settled(&exporter, "cgroup", 1.0, RESIDENT);
    let on = |node| {
        let labels = [("service", "server"), ("numa_node", node)];
        page.value(RESIDENT, &labels)
    };
    assert_eq!((on("0"), on("1")), (Some((151 * GIB) as f64), Some(MIB as f64)));
}

#[test]
fn a_port_goes_down_and_away() {
    let tree = Tree::two_socket();
    let exporter = start(&tree, &["--rdma.require", "mlx5_1:1"]);
    let up = |page: &Page, device: &str, node: &str| {
        let labels = [("device", device), ("numa_node", node)];
        page.value(PORT_UP, &labels)
    };
    let page = settled(&exporter, "rdma", 1.0, PORT_UP);
    assert_eq!((up(&page, "mlx5_0", "0"), up(&page, "mlx5_1", "1")), (Some(1.0), Some(1.0)));
    tree.set_port_state(1, "1: DOWN");
    let page = exporter.page_where("down", |page| up(page, "mlx5_1", "1") == Some(0.0));
    assert_eq!(up(&page, "mlx5_0", "0"), Some(1.0));
    tree.remove("sys/class/infiniband/mlx5_1");
    exporter.page_where("a required port that is gone is down", |page| {
        up(page, "mlx5_1", "none") == Some(0.0) && up(page, "mlx5_1", "1").is_none()
    });
}
