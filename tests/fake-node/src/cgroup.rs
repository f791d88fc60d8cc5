//! Control groups, and processes in them.

use std::fmt::Write as _;

use crate::Tree;

/// A control group of version 2, as its files show it, in bytes.
#[derive(Debug, Clone, Default)]
pub struct Group {
    /// Memory per node: id, memory of processes, page cache.
    pub nodes: Vec<(u32, u64, u64)>,
    /// `memory.max`; `None` is `max`.
    pub max: Option<u64>,
    /// `memory.high`; `None` is `max`.
    pub high: Option<u64>,
    /// `memory.swap.current`.
    pub swap: u64,
    /// Processes that were killed.
    pub oom_kills: u64,
    /// `cpuset.mems.effective`.
    pub mems: String,
    /// Processes in it.
    pub processes: Vec<u32>,
}

pub(crate) fn write(tree: &Tree) {
    if tree.shape.cgroup_v1 {
        tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    } else {
        let controllers = "cpuset cpu io memory hugetlb pids\n";
        tree.write("sys/fs/cgroup/cgroup.controllers", controllers);
    }
}

impl Tree {
    /// Writes the files of a group, `/system.slice/x.service`, or writes them anew.
    pub fn set_group(&self, path: &str, group: &Group) {
        let file = |name: &str, text: String| {
            let folder = format!("sys/fs/cgroup/{}", path.trim_start_matches('/'));
            self.write(format!("{folder}/{name}"), text);
        };
        let limit = |bytes: Option<u64>| match bytes {
            Some(bytes) => format!("{bytes}\n"),
            None => "max\n".to_owned(),
        };
        let current: u64 = group.nodes.iter().map(|(_, anon, cache)| anon + cache).sum();
        file("memory.current", format!("{current}\n"));
        file("memory.max", limit(group.max));
        file("memory.high", limit(group.high));
        file("memory.swap.current", format!("{}\n", group.swap));
        file(
            "memory.events",
            format!(
                "low 0\nhigh 0\nmax 0\noom {0}\noom_kill {0}\noom_group_kill 0\n",
                group.oom_kills
            ),
        );
        file("memory.numa_stat", numa_stat(group));
        file("cpuset.mems.effective", format!("{}\n", group.mems));
        let pids = group.processes.iter().map(|pid| format!("{pid}\n"));
        file("cgroup.procs", pids.collect());
    }

    /// Writes what is read of a process: its locked and pinned bytes, the nodes it may use, and the
    /// policy on its first mapping (`bind:0`).
    pub fn set_process(&self, pid: u32, locked: u64, pinned: u64, mems: &str, policy: &str) {
        let status = format!(
            "Name:\tserver\nState:\tS (sleeping)\nPid:\t{pid}\nVmPeak:\t  900000 kB\n\
             VmLck:\t{:8} kB\nVmPin:\t{:8} kB\nVmRSS:\t  800000 kB\nThreads:\t1\n\
             Mems_allowed:\t00000000,00000003\nMems_allowed_list:\t{mems}\n",
            locked / 1024,
            pinned / 1024
        );
        self.write(format!("proc/{pid}/status"), status);
        let maps = format!(
            "55ade1920000 {policy} file=/usr/bin/server mapped=2 N0=2 kernelpagesize_kB=4\n\
             55ade1922000 {policy} anon=600 dirty=600 N0=600 kernelpagesize_kB=4\n"
        );
        self.write(format!("proc/{pid}/numa_maps"), maps);
    }
}

fn numa_stat(group: &Group) -> String {
    let line = |kind: &str, bytes: &dyn Fn(&(u32, u64, u64)) -> u64| {
        let mut line = kind.to_owned();
        for entry in &group.nodes {
            write!(line, " N{}={}", entry.0, bytes(entry)).expect("a string takes all");
        }
        line + "\n"
    };
    [
        line("anon", &|(_, anon, _)| *anon),
        line("file", &|(_, _, cache)| *cache),
        line("kernel_stack", &|_| 0),
        line("pagetables", &|_| 0),
        line("shmem", &|_| 0),
        line("file_mapped", &|(_, _, cache)| *cache),
        line("workingset_refault_anon", &|_| 0),
    ]
    .concat()
}
