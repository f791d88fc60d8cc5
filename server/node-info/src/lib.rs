//! Facts about the host, read from `/proc`, `/sys` and the control groups under roots that tests
//! and containers replace.
//!
//! It judges nothing: what a number means for a flag or for a health check is decided by whoever
//! asked. It keeps no state and never writes. What is read is bounded, whatever a file says of
//! itself; a file whose `open` or `read` never returns hangs the caller, who has a thread for that.
//!
//! Facts have three values: a number; *absent*, where this kernel or device has no such thing; and
//! an error, where it should be there and cannot be had. Where many things of one kind are read,
//! each stands for itself: a bad file costs one entry and is told as a [`Problem`].
#![forbid(unsafe_code)]

mod cgroup;
mod memory;
mod mempolicy;
mod numa;
mod pci;
mod pressure;
mod process;
mod rdma;
mod read;
mod status;
mod zones;

use std::path::{Path, PathBuf};

pub use cgroup::{Cgroup, CgroupNode, Hierarchy, Limit, MemoryEvents};
pub use memory::Memory;
pub use mempolicy::{Mempolicy, Mode};
pub use numa::memory::{NodeMemory, default_reserve, headroom};
pub use numa::{Allocations, Distance, HugePages, Node, Policy, list};
pub use pci::{Aer, Card, Link};
pub use pressure::{Pressure, Resource, Stall};
pub use process::Process;
pub use rdma::{Port, PortErrors, PortState};
pub use read::{FactError, FactKind, Found, Problem};
pub use status::ProcessStatus;
pub use zones::Watermarks;

/// The places where the kernel's files are found: `/proc`, `/sys`, `/sys/fs/cgroup` and `/` outside
/// of tests and containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    procfs: PathBuf,
    sysfs: PathBuf,
    cgroupfs: PathBuf,
    rootfs: PathBuf,
}

impl Default for Root {
    fn default() -> Self {
        Self::at("/")
    }
}

impl Root {
    /// Facts below `path` instead of `/`: `path/proc`, `path/sys` and `path/sys/fs/cgroup`.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        let rootfs = path.into();
        Self {
            procfs: rootfs.join("proc"),
            sysfs: rootfs.join("sys"),
            cgroupfs: rootfs.join("sys/fs/cgroup"),
            rootfs,
        }
    }

    /// Reads `/proc` at `path`; the other places stay.
    #[must_use]
    pub fn with_procfs(self, path: impl Into<PathBuf>) -> Self {
        Self { procfs: path.into(), ..self }
    }

    /// Reads `/sys` at `path`; the other places stay, that of the control groups too.
    #[must_use]
    pub fn with_sysfs(self, path: impl Into<PathBuf>) -> Self {
        Self { sysfs: path.into(), ..self }
    }

    /// Reads `/sys/fs/cgroup` at `path`; the other places stay.
    #[must_use]
    pub fn with_cgroupfs(self, path: impl Into<PathBuf>) -> Self {
        Self { cgroupfs: path.into(), ..self }
    }

    /// Takes `path` for `/`; the other places stay.
    #[must_use]
    pub fn with_rootfs(self, path: impl Into<PathBuf>) -> Self {
        Self { rootfs: path.into(), ..self }
    }

    /// Where `/proc` is read.
    #[must_use]
    pub fn procfs(&self) -> &Path {
        &self.procfs
    }

    /// Where `/sys` is read.
    #[must_use]
    pub fn sysfs(&self) -> &Path {
        &self.sysfs
    }

    /// Where the control groups are read.
    #[must_use]
    pub fn cgroupfs(&self) -> &Path {
        &self.cgroupfs
    }

    /// What is taken for `/`.
    #[must_use]
    pub fn rootfs(&self) -> &Path {
        &self.rootfs
    }

    /// Memory of the host and the limit of the control group this process lives in.
    ///
    /// # Errors
    /// `/proc/meminfo` is missing or has no `MemAvailable`. A missing control group is no error:
    /// it means that there is no limit.
    pub fn memory(&self) -> Result<Memory, FactError> {
        memory::read(self)
    }

    /// Numbers of this process, for its own metrics.
    ///
    /// # Errors
    /// `/proc/self/stat` or `/proc/stat` is missing or malformed.
    pub fn process(&self) -> Result<Process, FactError> {
        process::read(self)
    }

    /// The NUMA nodes that have memory, ascending; empty where the system has no such thing or does
    /// not say. For whoever plans; [`Root::numa`] also tells of nodes without memory and of
    /// problems.
    #[must_use]
    pub fn nodes(&self) -> Vec<Node> {
        let found = self.numa().ok().flatten().unwrap_or_default();
        let memory = |node: &Node| node.memory.is_some_and(|memory| memory.total > 0);
        found.entries.into_iter().filter(memory).collect()
    }

    /// Every NUMA node that is on line, ascending by id, from `/sys/devices/system/node`; ids may
    /// be sparse, and nodes may lack CPUs or memory. `None` where this kernel knows no nodes.
    ///
    /// # Errors
    /// The folder of the nodes is there and cannot be listed.
    pub fn numa(&self) -> Result<Option<Found<Node>>, FactError> {
        numa::read(self)
    }

    /// Watermarks of every NUMA node, zones added up, ascending by node, from `/proc/zoneinfo`.
    ///
    /// # Errors
    /// The file is missing or not what the kernel writes.
    pub fn watermarks(&self) -> Result<Vec<Watermarks>, FactError> {
        zones::read(self)
    }

    /// Bytes of a page of memory: what this process was told when it started (`AT_PAGESZ`), 4096
    /// where that cannot be had.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        zones::page_bytes(self)
    }

    /// Pressure stall information of the whole node, a resource an entry. `None` where this kernel
    /// has none or where it is switched off.
    ///
    /// # Errors
    /// None of the files can be read, and they should be readable.
    pub fn pressure(&self) -> Result<Option<Found<Pressure>>, FactError> {
        pressure::read(self)
    }

    /// Which control groups this node has.
    #[must_use]
    pub fn hierarchy(&self) -> Hierarchy {
        cgroup::hierarchy(self)
    }

    /// Memory facts of the control group at `path`, counted from the root of the groups
    /// (`/system.slice/x.service`; a leading `/` changes nothing). A file of it that cannot be
    /// read costs its own value.
    ///
    /// # Errors
    /// There is no such group; `path` leaves the groups; the groups are of version 1, which does
    /// not say what is asked here.
    pub fn cgroup(&self, path: &Path) -> Result<Cgroup, FactError> {
        cgroup::read(self, path)
    }

    /// What `/proc/PID/status` says of the memory of a process.
    ///
    /// # Errors
    /// There is no such process, or the file is not what the kernel writes.
    pub fn process_status(&self, pid: u32) -> Result<ProcessStatus, FactError> {
        status::read(self, pid)
    }

    /// The memory policy of a process, from the first 64 bytes of `/proc/PID/numa_maps`. Never more
    /// is read: the kernel walks the page tables of whatever it prints, and whoever maps memory in
    /// that process waits meanwhile. `None` for a process without memory, and where the kernel
    /// knows no policies.
    ///
    /// # Errors
    /// There is no such process, it belongs to somebody else, or the line is not what the kernel
    /// writes.
    pub fn mempolicy(&self, pid: u32) -> Result<Option<Mempolicy>, FactError> {
        mempolicy::read(self, &pid.to_string())
    }

    /// PCI devices of `vendor` (NVIDIA is `0x10de`) that show or compute: class display, VGA or 3D.
    /// Ascending by address. `None` where the node has no PCI bus. A file of a card that cannot be
    /// read costs its value and is a problem: the card is still counted. Reading these files asks
    /// the kernel, never the driver of the card.
    ///
    /// # Errors
    /// The folder of the devices cannot be listed.
    pub fn cards(&self, vendor: u16) -> Result<Option<Found<Card>>, FactError> {
        pci::read(self, vendor)
    }

    /// Ports of the node's RDMA devices, ascending by device and port. `None` where it has none.
    ///
    /// # Errors
    /// The folder of the devices cannot be listed.
    pub fn ports(&self) -> Result<Option<Found<Port>>, FactError> {
        rdma::read(self)
    }

    /// Where the memory of this process may lie.
    #[must_use]
    pub fn policy(&self) -> Policy {
        numa::policy(self)
    }

    /// Bytes that this process may lock in memory (the soft limit); `None` where there is no limit
    /// or the system does not say.
    #[must_use]
    pub fn lockable(&self) -> Option<u64> {
        let limits = read::text(&self.proc("self/limits")).ok()?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// Whole cores this process may use: the smaller of its affinity and its CPU quota, at
    /// least 1.
    #[must_use]
    pub fn cores(&self) -> usize {
        let affinity = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.cpu_quota().map_or(affinity, |quota| affinity.min(quota)).max(1)
    }

    /// `cpu.max` of the control group (v2), rounded up to whole cores.
    fn cpu_quota(&self) -> Option<usize> {
        let text = self.own_group_file("cpu.max")?;
        let (quota, period) = text.trim().split_once(' ')?;
        let (quota, period) = (quota.parse::<usize>().ok()?, period.parse::<usize>().ok()?);
        (period > 0).then(|| quota.div_ceil(period).max(1))
    }

    /// A file of the control group of this process, else of the root group as a container sees
    /// it. `None` where neither exists.
    fn own_group_file(&self, name: &str) -> Option<String> {
        let own = read::text(&self.proc("self/cgroup")).ok().and_then(|groups| {
            let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
            read::text(&self.group(Path::new(path)).join(name)).ok()
        });
        own.or_else(|| read::text(&self.cgroupfs.join(name)).ok())
    }

    fn proc(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.procfs.join(relative)
    }

    fn sys(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.sysfs.join(relative)
    }

    /// A control group, whether its path begins with `/` or not.
    fn group(&self, path: &Path) -> PathBuf {
        self.cgroupfs.join(path.strip_prefix("/").unwrap_or(path))
    }
}

#[cfg(test)]
mod tests;
