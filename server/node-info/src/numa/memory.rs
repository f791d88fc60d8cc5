//! `nodeN/meminfo`, and how much of a node can still be taken.

use crate::Watermarks;
use crate::memory::kib;
use crate::read::Bad;

/// Memory of a NUMA node, in bytes. What this kernel does not tell is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeMemory {
    /// `MemTotal`. It changes while a machine runs, where memory is plugged in.
    pub total: u64,
    /// `MemFree`.
    pub free: u64,
    /// `FilePages`: page cache, shared memory included.
    pub file: Option<u64>,
    /// `AnonPages`: memory of processes.
    pub anon: Option<u64>,
    /// `Shmem`: shared and temporary memory, which counts as page cache and cannot be dropped.
    pub shmem: Option<u64>,
    /// `Dirty`: page cache that must be written before it can be dropped.
    pub dirty: Option<u64>,
    /// `Writeback`: page cache that is being written.
    pub writeback: Option<u64>,
    /// `Slab`: caches of the kernel.
    pub slab: Option<u64>,
    /// `SReclaimable`: the part of them that it can shrink.
    pub slab_reclaimable: Option<u64>,
    /// `KernelStack`.
    pub kernel_stack: Option<u64>,
    /// `PageTables`.
    pub page_tables: Option<u64>,
    /// `SecPageTables`: page tables of guests and devices (since Linux 6.1).
    pub sec_page_tables: Option<u64>,
    /// `Mlocked`: locked in memory by processes.
    pub mlocked: Option<u64>,
}

impl NodeMemory {
    /// Page cache and slabs that the kernel gives back without swapping: shared memory is none of
    /// it, nor is what must be written first. 0 where the kernel does not tell shared memory from
    /// the rest.
    #[must_use]
    pub fn reclaimable(&self) -> u64 {
        let cache = match (self.file, self.shmem) {
            (Some(file), Some(shmem)) => file
                .saturating_sub(shmem)
                .saturating_sub(self.dirty.unwrap_or(0))
                .saturating_sub(self.writeback.unwrap_or(0)),
            _ => 0,
        };
        cache.saturating_add(self.slab_reclaimable.unwrap_or(0))
    }

    /// What can be had without swapping: free memory and what is reclaimable.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.free.saturating_add(self.reclaimable()).min(self.total)
    }

    /// Bytes that no counter of the kernel explains, given those in pools of huge pages: what
    /// drivers pinned, for one. 0 where the counters, which are not read in one instant, explain
    /// more than there is; `None` where one is unknown.
    #[must_use]
    pub fn unaccounted(&self, huge: u64) -> Option<u64> {
        let known = [
            self.free,
            self.anon?,
            self.file?,
            self.slab?,
            self.kernel_stack?,
            self.page_tables?,
            // Kernels that do not count them count them nowhere.
            self.sec_page_tables.unwrap_or(0),
            huge,
        ];
        Some(self.total.saturating_sub(known.into_iter().fold(0, u64::saturating_add)))
    }
}

/// What can still be taken from a node before it swaps or kills, in bytes: free memory and four
/// fifths of what is reclaimable, less the high watermarks, below which the kernel begins to
/// reclaim, and less `reserve`. Negative where the reserve is touched.
#[must_use]
pub fn headroom(memory: &NodeMemory, watermarks: &Watermarks, reserve: u64) -> i64 {
    // Not all of the page cache can be dropped at once: what runs is mapped from it.
    let reclaimable = memory.reclaimable() / 5 * 4;
    let have = i128::from(memory.free) + i128::from(reclaimable);
    let keep = i128::from(watermarks.high) + i128::from(reserve);
    let room = (have - keep).clamp(i128::from(i64::MIN), i128::from(i64::MAX));
    i64::try_from(room).expect("clamped to what fits")
}

/// What is kept free of a node where the operator does not say: a twentieth, at least 8 GiB, but
/// never more than an eighth: a small node would be all reserve.
#[must_use]
pub const fn default_reserve(total: u64) -> u64 {
    const LEAST: u64 = 8 << 30;
    let (share, most) = (total / 20, total / 8);
    let wanted = if share > LEAST { share } else { LEAST };
    if wanted < most { wanted } else { most }
}

/// `Node 0 MemTotal:   1000 kB`, a field a line.
pub(crate) fn parse(text: &str, id: u32) -> Result<NodeMemory, Bad> {
    let prefix = format!("Node {id} ");
    let mut memory = NodeMemory::default();
    let (mut total, mut free) = (None, None);
    for line in text.lines() {
        let Some(line) = line.strip_prefix(&prefix) else {
            return Err(Bad::new("node of a line", line));
        };
        let Some((name, value)) = line.split_once(':') else {
            return Err(Bad::new("line", line));
        };
        let (field, place) = match name {
            "MemTotal" => ("MemTotal", &mut total),
            "MemFree" => ("MemFree", &mut free),
            "FilePages" => ("FilePages", &mut memory.file),
            "AnonPages" => ("AnonPages", &mut memory.anon),
            "Shmem" => ("Shmem", &mut memory.shmem),
            "Dirty" => ("Dirty", &mut memory.dirty),
            "Writeback" => ("Writeback", &mut memory.writeback),
            "Slab" => ("Slab", &mut memory.slab),
            "SReclaimable" => ("SReclaimable", &mut memory.slab_reclaimable),
            "KernelStack" => ("KernelStack", &mut memory.kernel_stack),
            "PageTables" => ("PageTables", &mut memory.page_tables),
            "SecPageTables" => ("SecPageTables", &mut memory.sec_page_tables),
            "Mlocked" => ("Mlocked", &mut memory.mlocked),
            _ => continue,
        };
        *place = Some(kib(value).ok_or_else(|| Bad::new(field, value.trim()))?);
    }
    memory.total = total.ok_or_else(|| Bad::missing("MemTotal"))?;
    memory.free = free.ok_or_else(|| Bad::missing("MemFree"))?;
    if memory.free > memory.total {
        return Err(Bad::new("MemFree", "more than MemTotal"));
    }
    Ok(memory)
}
