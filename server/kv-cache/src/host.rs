//! The host tier as the rest of the engine sees it: its options, its counts, and the copies that
//! it wants.

use types::{PageId, Pages, PoolId};

/// When a page gets a copy in host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WritePolicy {
    /// As soon as it is published.
    #[default]
    WriteThrough,
    /// When a prefix hit uses it for the first time.
    WriteThroughSelective,
    /// When its device page is needed for something else.
    WriteBack,
}

/// The tier of pages in host memory behind the device's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostTier {
    /// Host pages of each pool, in the order of `PoolId`; at least the device pages of that pool.
    pub pages: Vec<usize>,
    /// When pages are copied to the host.
    pub policy: WritePolicy,
    /// A prefix is loaded from the host only when that saves at least so many tokens.
    pub load_back_threshold: usize,
    /// Whether a store is behind the tier: pages that come into host memory are reported
    /// ([`PoolSet::take_new_runs`](crate::PoolSet::take_new_runs)).
    pub storage: bool,
}

impl HostTier {
    /// The threshold that published engines use, in tokens.
    pub const LOAD_BACK_THRESHOLD: usize = 10;
}

/// Which way pages are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the device to the host.
    Backup,
    /// From the host to the device.
    Load,
}

/// Pages that shall be copied. They stay where they are on both tiers until
/// [`PoolSet::finish_copy`](crate::PoolSet::finish_copy) is told how it ended. Orders are carried
/// out in the order in which they are given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyOrder {
    /// Names the order; never used twice.
    pub id: u64,
    /// Which way.
    pub direction: Direction,
    /// Pool, device page and host page of each.
    pub pages: Vec<(PoolId, PageId, PageId)>,
    /// The copy must be done before anything is computed: its device pages are given to somebody
    /// else already.
    pub urgent: bool,
}

/// How a copy ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyEnd {
    /// All bytes are where they should be.
    Done,
    /// Nothing was copied, because too much was waiting.
    Dropped,
    /// It went wrong; the target's bytes are anything.
    Failed,
}

/// What [`PageTable::attach_prefix`](crate::PageTable::attach_prefix) took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attached {
    /// Tokens published or taken in all, whole pages.
    pub tokens: usize,
    /// Of these, those that the device alone would not have given: this call has ordered loads from
    /// the host for them. Whoever computes waits for the loads.
    pub host_tokens: usize,
}

/// Pages that got no copy in host memory, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DroppedBackups {
    /// Every host page belongs to a page of the device, or is being copied.
    pub no_host_room: u64,
    /// Too many copies were waiting.
    pub queue: u64,
}

/// Usage of a pool's host pages; plain values. Free, active and cached pages add up to the
/// capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostStats {
    /// The pool's name.
    pub name: &'static str,
    /// Pages there are.
    pub capacity: Pages,
    /// Pages that belong to a page of the device or that are being copied: they are not given up.
    pub used_active: Pages,
    /// Pages that are on the host alone; they are given up when room is needed.
    pub used_cached: Pages,
    /// Pages that prefix hits loaded from the host.
    pub hit_pages: u64,
    /// Pages on the host alone that were given up.
    pub evicted_pages: crate::Evictions,
    /// Times that no host page could be had.
    pub alloc_failures: u64,
    /// Pages that got no copy.
    pub backups_dropped: DroppedBackups,
}
