//! Facts about the host, read from `/proc` and `/sys` under a root that tests replace.
//!
//! It judges nothing: what a number means for a flag is decided by whoever asked. It keeps no
//! state and never writes.
#![forbid(unsafe_code)]

mod memory;
mod numa;
mod process;

use std::fs;
use std::path::{Path, PathBuf};

pub use memory::Memory;
pub use numa::{Node, Policy, list};
pub use process::Process;

/// A file of the kernel could not be read or understood.
#[derive(Debug, thiserror::Error)]
pub enum FactError {
    /// The file is missing or unreadable.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The path as it was asked for, root included.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is there, but the value is not what the kernel documents.
    #[error("{path} has no usable {field}")]
    Field {
        /// The path as it was asked for, root included.
        path: PathBuf,
        /// The field that was looked for.
        field: &'static str,
    },
}

/// The place where `proc` and `sys` are found: `/` outside of tests.
#[derive(Debug, Clone)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Self {
        Self(PathBuf::from("/"))
    }
}

impl Root {
    /// Facts below `path` instead of `/`.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
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
    /// not say.
    #[must_use]
    pub fn nodes(&self) -> Vec<Node> {
        numa::nodes(self)
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
        let limits = self.read("proc/self/limits").ok()?;
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
        let text = self.cgroup_file("cpu.max")?;
        let (quota, period) = text.trim().split_once(' ')?;
        let (quota, period) = (quota.parse::<usize>().ok()?, period.parse::<usize>().ok()?);
        (period > 0).then(|| quota.div_ceil(period).max(1))
    }

    /// A file of the control group of this process, else of the root group as a container sees
    /// it. `None` where neither exists.
    fn cgroup_file(&self, name: &str) -> Option<String> {
        let own = self.read("proc/self/cgroup").ok().and_then(|groups| {
            let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
            self.read(format!("sys/fs/cgroup{}/{name}", path.trim_end_matches('/'))).ok()
        });
        own.or_else(|| self.read(format!("sys/fs/cgroup/{name}")).ok())
    }

    fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.0.join(relative)
    }

    fn read(&self, relative: impl AsRef<Path>) -> Result<String, FactError> {
        let path = self.path(relative);
        fs::read_to_string(&path).map_err(|source| FactError::Read { path, source })
    }
}

#[cfg(test)]
mod tests;
