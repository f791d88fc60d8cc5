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
