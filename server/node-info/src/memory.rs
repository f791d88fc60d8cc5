//! `/proc/meminfo` and the memory limit of the control group.

use crate::{FactError, Root, read};

/// Memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// `MemTotal` of the host.
    pub total: u64,
    /// `MemAvailable` of the host: free plus what the kernel can give back without swapping.
    pub available: u64,
    /// `memory.max` of the control group; `None` where there is no limit.
    pub group_limit: Option<u64>,
    /// What the control group uses, less its reclaimable page cache; 0 where there is none.
    pub group_used: u64,
}

impl Memory {
    /// What this process can still take: the host's available memory, or what is left of the
    /// control group's limit where that is less.
    #[must_use]
    pub fn usable(&self) -> u64 {
        match self.group_limit {
            Some(limit) => self.available.min(limit.saturating_sub(self.group_used)),
            None => self.available,
        }
    }
}

pub(crate) fn read(root: &Root) -> Result<Memory, FactError> {
    let path = root.proc("meminfo");
    let text = read::text(&path)?;
    let field = |field: &'static str| {
        meminfo(&text, field).ok_or_else(|| FactError::Field { path: path.clone(), field })
    };
    let group_limit = root.own_group_file("memory.max").and_then(|text| text.trim().parse().ok());
    let used = root.own_group_file("memory.current").and_then(|text| text.trim().parse().ok());
    let cache = root.own_group_file("memory.stat").map_or(0, |text| reclaimable(&text));
    Ok(Memory {
        total: field("MemTotal")?,
        available: field("MemAvailable")?,
        group_limit,
        group_used: used.unwrap_or(0_u64).saturating_sub(cache),
    })
}

/// `MemAvailable:   24576 kB` as bytes.
fn meminfo(text: &str, field: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    kib(value)
}

/// `  24576 kB` as bytes.
pub(crate) fn kib(value: &str) -> Option<u64> {
    let kib = value.trim().strip_suffix("kB")?.trim();
    read::digits::<u64>(kib)?.checked_mul(1024)
}

/// Page cache that the kernel drops before it kills: the file LRU lists.
fn reclaimable(stat: &str) -> u64 {
    stat.lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(key, _)| matches!(*key, "inactive_file" | "active_file"))
        .filter_map(|(_, value)| value.parse::<u64>().ok())
        .fold(0, u64::saturating_add)
}
