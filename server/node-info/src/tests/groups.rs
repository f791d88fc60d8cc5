//! Control groups and processes.

use std::path::Path;

use fake_node::{Group, Shape, Tree};

use super::nodes::root;
use crate::{CgroupNode, FactKind, Hierarchy, Limit, MemoryEvents, Mode, cgroup, mempolicy};

const UNIT: &str = "/system.slice/server.service";

fn group() -> Group {
    Group {
        nodes: vec![(0, 150 << 30, 2 << 30), (1, 1 << 20, 0)],
        max: Some(200 << 30),
        swap: 4096,
        oom_kills: 3,
        mems: "0-1".into(),
        processes: vec![4243, 4242],
        ..Group::default()
    }
}

#[test]
fn a_group_is_read_node_by_node() {
    let tree = Tree::two_socket();
    tree.set_group(UNIT, &group());
    assert_eq!(root(&tree).hierarchy(), Hierarchy::V2);
    for path in [UNIT, UNIT.trim_start_matches('/')] {
        let read = root(&tree).cgroup(Path::new(path)).expect("it is there");
        assert_eq!(read.problems, []);
        assert_eq!(read.current, Some((152 << 30) + (1 << 20)));
        assert_eq!((read.max, read.high), (Some(Limit::Bytes(200 << 30)), Some(Limit::Unlimited)));
        assert_eq!(read.swap, Some(4096));
        let events = MemoryEvents { high: 0, max: 0, oom: 3, oom_kill: 3 };
        assert_eq!(read.events, Some(events));
        let node = |node, anon, file| CgroupNode { node, anon, file, ..CgroupNode::default() };
        let nodes = vec![node(0, 150 << 30, 2 << 30), node(1, 1 << 20, 0)];
        assert_eq!(nodes[0].resident(), 152 << 30);
        assert_eq!(read.nodes, Some(nodes));
        assert_eq!(read.mems, Some(vec![0, 1]));
        assert_eq!(read.processes, Some(vec![4242, 4243]));
    }
}

#[test]
fn what_a_group_does_not_tell_is_absent() {
    let tree = Tree::small();
    tree.set_group(UNIT, &group());
    for file in ["memory.swap.current", "memory.numa_stat", "cgroup.procs"] {
        tree.remove(format!("sys/fs/cgroup{UNIT}/{file}"));
    }
    tree.write(format!("sys/fs/cgroup{UNIT}/memory.current"), "lots\n");
    let read = root(&tree).cgroup(Path::new(UNIT)).expect("it is there");
    assert_eq!((read.swap, read.nodes, read.processes, read.current), (None, None, None, None));
    assert!(read.max.is_some() && read.mems.is_some());
    let [problem] = read.problems.as_slice() else { panic!("{:?}", read.problems) };
    assert!(problem.reason.contains("memory.current") && problem.reason.contains("lots"));
    tree.write(format!("sys/fs/cgroup{UNIT}/cgroup.procs"), "");
    let read = root(&tree).cgroup(Path::new(UNIT)).expect("it is there");
    assert_eq!(read.processes, Some(Vec::new()), "a group may be empty");
    tree.remove(format!("sys/fs/cgroup{UNIT}"));
    let gone = root(&tree).cgroup(Path::new(UNIT)).expect_err("it is not there");
    assert_eq!(gone.kind(), FactKind::Missing);
}

#[test]
fn groups_of_version_1_are_recognised_and_said() {
    let tree = Shape { cgroup_v1: true, ..Shape::small() }.build();
    assert_eq!(root(&tree).hierarchy(), Hierarchy::V1);
    let error = root(&tree).cgroup(Path::new(UNIT)).expect_err("there is no version 2");
    assert_eq!(error.kind(), FactKind::Unsupported);
    assert!(error.to_string().contains("version 1"), "{error}");
    tree.remove("sys/fs/cgroup/memory");
    assert_eq!(root(&tree).hierarchy(), Hierarchy::Absent);
    let error = root(&tree).cgroup(Path::new(UNIT)).expect_err("there is none");
    assert_eq!(error.kind(), FactKind::Unsupported);
}

#[test]
fn a_path_stays_among_the_groups() {
    let tree = Tree::small();
    tree.write("sys/fs/secret/memory.current", "1\n");
    let error = root(&tree).cgroup(Path::new("/../secret")).expect_err("it is none of ours");
    assert_eq!(error.kind(), FactKind::Unsupported);
}

#[test]
fn kinds_of_kernel_memory_are_added_up() {
    let text = "anon N0=1 N3=2\nfile N0=10\nshmem N0=4\nkernel_stack N0=100\npagetables N3=200\n\
                slab_reclaimable N0=1000 N3=2000\nslab_unreclaimable N0=5\nfile_mapped N0=9\n";
    let nodes = cgroup::numa_stat(text).expect("as the kernel writes it");
    let first = CgroupNode { node: 0, anon: 1, file: 10, shmem: 4, kernel: 1105 };
    let other = CgroupNode { node: 3, anon: 2, kernel: 2200, ..CgroupNode::default() };
    assert_eq!(nodes, [first, other]);
    for bad in ["", "anon N0=1\n", "anon N0=x\nfile N0=1\n", "anon 0=1\nfile N0=1\n", "anon\n"] {
        assert!(cgroup::numa_stat(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn a_process_says_what_it_locks() {
    let tree = Tree::small();
    tree.set_process(4242, 150 << 30, 3 << 30, "0-1", "bind:0");
    let status = root(&tree).process_status(4242).expect("it runs");
    assert_eq!((status.locked, status.pinned), (Some(150 << 30), Some(3 << 30)));
    assert_eq!(status.resident, Some(800_000 * 1024));
    assert_eq!(status.mems_allowed, Some(vec![0, 1]));
    let gone = root(&tree).process_status(1).expect_err("it does not run");
    assert_eq!(gone.kind(), FactKind::Missing);
    tree.write("proc/7/status", "Name:\tkthreadd\nState:\tS (sleeping)\n");
    let status = root(&tree).process_status(7).expect("a thread of the kernel");
    assert_eq!((status.locked, status.mems_allowed), (None, None));
    tree.write("proc/7/status", "Name:\tx\nVmLck:\tsome kB\n");
    assert_eq!(root(&tree).process_status(7).expect_err("bad").kind(), FactKind::Malformed);
}

#[test]
fn every_policy_of_the_kernel_is_known() {
    let read = |line: &str| {
        let head = &line.as_bytes()[..line.len().min(64)];
        mempolicy::parse(head).expect("as the kernel writes it").expect("a policy")
    };
    let line = |policy: &str| format!("55ade1920000 {policy} file=/usr/bin/server mapped=2 N0=2\n");
    for (policy, mode, nodes) in [
        ("default", Mode::Default, vec![]),
        ("local", Mode::Local, vec![]),
        ("prefer:1", Mode::Prefer, vec![1]),
        ("prefer (many):0,2", Mode::PreferMany, vec![0, 2]),
        ("bind:0-1", Mode::Bind, vec![0, 1]),
        ("bind=static:1", Mode::Bind, vec![1]),
        ("bind=relative|balancing:3", Mode::Bind, vec![3]),
        ("interleave:0-3", Mode::Interleave, vec![0, 1, 2, 3]),
        ("weighted interleave:0-1", Mode::WeightedInterleave, vec![0, 1]),
    ] {
        let read = read(&line(policy));
        assert_eq!((read.mode, read.nodes), (mode, Some(nodes)), "{policy}");
    }
    let holes: String = (0..40).map(|node| format!("{},", node * 2)).collect();
    let long = read(&line(&format!("bind:{holes}80")));
    assert_eq!((long.mode, long.nodes), (Mode::Bind, None), "half a list is no list");
    assert_eq!(read("55ade1920000 bind:0\n").nodes, Some(vec![0]), "a line may end there");
    for bad in
        ["x", "zz default \n", "55 bond:0 \n", "55 bind:x \n", "55 bind \n", "55 defaults \n"]
    {
        assert!(mempolicy::parse(bad.as_bytes()).is_err(), "{bad:?}");
    }
    assert_eq!(mempolicy::parse(b"").expect("nothing mapped"), None);
}

#[test]
fn a_policy_belongs_to_a_process() {
    let tree = Tree::small();
    tree.set_process(4242, 0, 0, "0", "bind:0");
    let policy = root(&tree).mempolicy(4242).expect("readable").expect("it has memory");
    assert_eq!((policy.mode, policy.nodes), (Mode::Bind, Some(vec![0])));
    tree.remove("proc/4242/numa_maps");
    assert_eq!(root(&tree).mempolicy(4242).expect("a kernel without nodes"), None);
    assert_eq!(root(&tree).mempolicy(9).expect_err("nobody").kind(), FactKind::Missing);
}
