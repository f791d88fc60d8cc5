use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// A made-up host; the folder goes with the value.
struct Host(PathBuf);

impl Host {
    fn new(files: &[(&str, &str)]) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!(
            "sightline-node-info-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let root = std::env::temp_dir().join(name);
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a file has a folder")).expect("folder");
            fs::write(path, text).expect("file");
        }
        Self(root)
    }

    fn root(&self) -> Root {
        Root::at(&self.0)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

const MEMINFO: &str = "MemTotal:       32000 kB\nMemFree:         1000 kB\n\
                       MemAvailable:   16000 kB\n";

#[test]
fn without_a_group_the_host_decides() {
    let host = Host::new(&[("proc/meminfo", MEMINFO)]);
    let memory = host.root().memory().expect("meminfo is complete");
    assert_eq!(memory.total, 32_000 * 1024);
    assert_eq!(memory.group_limit, None);
    assert_eq!(memory.usable(), 16_000 * 1024);
}

#[test]
fn the_limit_of_the_own_group_counts_less_what_it_uses() {
    let host = Host::new(&[
        ("proc/meminfo", MEMINFO),
        ("proc/self/cgroup", "0::/user/app\n"),
        ("sys/fs/cgroup/user/app/memory.max", "8192000\n"),
        ("sys/fs/cgroup/user/app/memory.current", "3000000\n"),
        (
            "sys/fs/cgroup/user/app/memory.stat",
            "anon 1\ninactive_file 900000\nactive_file 100000\n",
        ),
        ("sys/fs/cgroup/user/app/cpu.max", "150000 100000\n"),
        ("sys/fs/cgroup/memory.max", "1\n"),
    ]);
    let memory = host.root().memory().expect("meminfo is complete");
    assert_eq!(memory.group_used, 2_000_000);
    assert_eq!(memory.usable(), 6_192_000);
    assert!(host.root().cores() <= 2, "a quota of 1.5 cores is 2 threads at most");
}

#[test]
fn a_group_without_limit_says_max() {
    let host = Host::new(&[
        ("proc/meminfo", MEMINFO),
        ("proc/self/cgroup", "0::/\n"),
        ("sys/fs/cgroup/memory.max", "max\n"),
        ("sys/fs/cgroup/cpu.max", "max 100000\n"),
    ]);
    assert_eq!(host.root().memory().expect("meminfo is complete").group_limit, None);
    assert!(host.root().cores() >= 1);
}

#[test]
fn what_is_missing_is_named() {
    let host = Host::new(&[("proc/meminfo", "MemTotal: 5 kB\n")]);
    let error = host.root().memory().expect_err("MemAvailable is missing").to_string();
    assert!(error.contains("MemAvailable"), "{error}");
    let error = host.root().process().expect_err("there is no stat").to_string();
    assert!(error.contains("proc/self/stat"), "{error}");
}

#[test]
fn a_process_with_brackets_in_its_name() {
    let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 7 0 1000 8192000 300 \
                18446744073709551615";
    let host = Host::new(&[
        ("proc/self/stat", stat),
        ("proc/stat", "cpu 1 2 3\nbtime 1700000000\n"),
        ("proc/self/limits", "Limit  Soft  Hard  Units\nMax open files  1024  4096  files\n"),
        ("proc/self/fd/0", ""),
        ("proc/self/fd/1", ""),
    ]);
    let process = host.root().process().expect("stat is complete");
    let expect = Process {
        cpu_seconds: 3.0,
        start_seconds: 1_700_000_010.0,
        virtual_bytes: 8_192_000,
        resident_bytes: 300 * 4096,
        threads: 7,
        open_files: 2,
        max_files: 1024,
    };
    assert_eq!(process, expect);
}

#[test]
fn the_real_host_answers() {
    let root = Root::default();
    if !cfg!(target_os = "linux") {
        return;
    }
    let memory = root.memory().expect("Linux has /proc/meminfo");
    assert!(memory.available > 0 && memory.available <= memory.total);
    assert!(root.process().expect("Linux has /proc/self").resident_bytes > 0);
}

/// Whatever this machine has is understood: absent and forbidden is allowed, malformed is not.
#[test]
fn the_real_host_is_understood() {
    let root = Root::default();
    if !cfg!(target_os = "linux") {
        return;
    }
    let mut problems: Vec<Problem> = Vec::new();
    if let Some(found) = root.numa().expect("the folder can be listed") {
        let known = found.entries.iter().filter(|node| node.memory.is_some());
        assert!(known.count() > 0, "{:?}", found.problems);
        problems.extend(found.problems);
    }
    problems.extend(root.watermarks().err().map(Problem::from));
    problems.extend(root.pressure().map_or_else(
        |error| vec![error.into()],
        |found| found.map_or_else(Vec::new, |found| found.problems),
    ));
    let own = std::process::id();
    let status = root.process_status(own).expect("this process runs");
    assert!(status.resident.is_some_and(|bytes| bytes > 0));
    problems.extend(root.mempolicy(own).err().map(Problem::from));
    let cards = root.cards(0x10de).ok().flatten().unwrap_or_default();
    let ports = root.ports().ok().flatten().unwrap_or_default();
    problems.extend(cards.problems.into_iter().chain(ports.problems));
    problems.retain(|problem| problem.kind == FactKind::Malformed);
    assert_eq!(problems, []);
}

/// Two nodes of 256 GB, one of them full of page cache and shared memory; a third without memory.
fn two_nodes(rest: &[(&str, &str)]) -> Host {
    let base = "sys/devices/system/node";
    let [zero, one, two] = [0, 1, 2].map(|node| format!("{base}/node{node}"));
    let at = |folder: &str, name: &str| format!("{folder}/{name}");
    let files = [
        (
            at(&zero, "meminfo"),
            "Node 0 MemTotal:       250000000 kB\nNode 0 MemFree:        100000000 kB\n\
             Node 0 FilePages:      120000000 kB\nNode 0 Shmem:           40000000 kB\n\
             Node 0 Dirty:             500000 kB\nNode 0 SReclaimable:     1000000 kB\n",
        ),
        (at(&zero, "cpulist"), "0-3,8-11\n"),
        (at(&zero, "distance"), "10 21\n"),
        (
            at(&one, "meminfo"),
            "Node 1 MemTotal:       250000000 kB\nNode 1 MemFree:        240000000 kB\n",
        ),
        (at(&one, "cpulist"), "4-7\n"),
        (at(&two, "meminfo"), "Node 2 MemTotal:       0 kB\nNode 2 MemFree:       0 kB\n"),
        (at(base, "possible"), "0-2\n"),
    ];
    let files: Vec<(&str, &str)> =
        files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    Host::new(&[files, rest.to_vec()].concat())
}

#[test]
fn nodes_with_memory_are_read() {
    let nodes = two_nodes(&[]).root().nodes();
    assert_eq!(nodes.iter().map(|node| node.id).collect::<Vec<_>>(), [0, 1]);
    let (full, empty) = (&nodes[0], &nodes[1]);
    // Shared memory and dirty pages are page cache that cannot be had.
    assert_eq!(
        full.available(),
        (100_000_000 + 120_000_000 - 40_000_000 - 500_000 + 1_000_000) * 1024
    );
    assert_eq!(full.cpus, [0, 1, 2, 3, 8, 9, 10, 11]);
    assert_eq!(full.distances, [], "two distances for three nodes are no distances");
    assert_eq!(empty.available(), 240_000_000 * 1024);
    assert_eq!((empty.cpus.len(), empty.memory.and_then(|memory| memory.shmem)), (4, None));
    assert_eq!(Host::new(&[("proc/meminfo", MEMINFO)]).root().nodes(), []);
}

#[test]
fn the_policy_is_what_group_and_process_allow() {
    let policy = |status: &str, maps: &str| {
        two_nodes(&[("proc/self/status", status), ("proc/self/numa_maps", maps)]).root().policy()
    };
    let free = policy("Mems_allowed_list:\t0-1\n", "00400000 default file=/bin/x mapped=1 N0=1\n");
    assert_eq!((free.allowed.as_slice(), free.bound.as_slice()), (&[0, 1][..], &[][..]));
    assert!(free.permits(0) && free.permits(1) && !free.permits(2));
    for bind in ["bind:1", "bind=static:1"] {
        let bound = policy("Mems_allowed_list:\t0-1\n", &format!("00400000 {bind} file=/bin/x\n"));
        assert_eq!(bound.bound, [1], "{bind}");
        assert!(!bound.permits(0) && bound.permits(1));
    }
    let spread = policy("Mems_allowed_list:\t1\n", "00400000 interleave:0-1 file=/bin/x\n");
    assert!(!spread.permits(0) && spread.permits(1));
    let unknown = two_nodes(&[]).root().policy();
    assert!(unknown.permits(7), "what is not known forbids nothing");
}

#[test]
fn locked_memory_has_a_limit_or_none() {
    let lockable = |line: &str| Host::new(&[("proc/self/limits", line)]).root().lockable();
    let head = "Limit                     Soft Limit           Hard Limit           Units\n";
    let line = |soft: &str| format!("{head}Max locked memory         {soft}   unlimited  bytes\n");
    assert_eq!(lockable(&line("8388608")), Some(8 << 20));
    assert_eq!(lockable(&line("unlimited")), None);
    assert_eq!(lockable("nothing"), None);
}

mod bounds;
mod devices;
mod fuzz;
mod groups;
mod nodes;
