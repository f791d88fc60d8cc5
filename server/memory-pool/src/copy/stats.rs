//! What the copy threads count, without locks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Direction;

/// What was copied since the start; counters only grow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyStats {
    /// Backups submitted that have not ended, or were not polled since.
    pub pending_backups: usize,
    /// Loads submitted that have not ended, or were not polled since.
    pub pending_loads: usize,
    /// One per rank and part, rank after rank, in the order of `HostMemory::parts`.
    pub parts: Vec<PartCopies>,
    /// One per rank.
    pub busy: Vec<CopyBusy>,
}

/// Bytes of one part on one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartCopies {
    /// The part.
    pub part: &'static str,
    /// The rank.
    pub rank: usize,
    /// Bytes that went to the host.
    pub backup_bytes: u64,
    /// Bytes that came from the host.
    pub load_bytes: u64,
}

/// For how long pages of one rank were being copied: the union of the intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyBusy {
    /// The rank.
    pub rank: usize,
    /// To the host.
    pub backup: Duration,
    /// From the host.
    pub load: Duration,
}

/// The counters. A rank's pages are moved by one thread, one piece after another, so that times
/// can be added up: intervals of a rank never overlap.
pub(super) struct Tally {
    parts: usize,
    /// Per direction, rank and part.
    bytes: Vec<AtomicU64>,
    /// Nanoseconds per direction and rank.
    busy: Vec<AtomicU64>,
}

impl Tally {
    pub(super) fn new(ranks: usize, parts: usize) -> Self {
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self { parts, bytes: zeros(2 * ranks * parts), busy: zeros(2 * ranks) }
    }

    fn ranks(&self) -> usize {
        self.busy.len() / 2
    }

    pub(super) fn add_bytes(&self, direction: Direction, rank: usize, part: usize, bytes: u64) {
        let at = (direction.index() * self.ranks() + rank) * self.parts + part;
        self.bytes[at].fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_busy(&self, direction: Direction, rank: usize, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.busy[direction.index() * self.ranks() + rank].fetch_add(nanos, Ordering::Relaxed);
    }

    pub(super) fn fill(
        &self,
        names: impl Iterator<Item = &'static str> + Clone,
        stats: &mut CopyStats,
    ) {
        let bytes = |direction: Direction, rank: usize, part: usize| {
            let at = (direction.index() * self.ranks() + rank) * self.parts + part;
            self.bytes[at].load(Ordering::Relaxed)
        };
        let busy = |direction: Direction, rank: usize| {
            let nanos = &self.busy[direction.index() * self.ranks() + rank];
            Duration::from_nanos(nanos.load(Ordering::Relaxed))
        };
        stats.parts.clear();
        stats.busy.clear();
        for rank in 0..self.ranks() {
            stats.parts.extend(names.clone().enumerate().map(|(number, part)| PartCopies {
                part,
                rank,
                backup_bytes: bytes(Direction::Backup, rank, number),
                load_bytes: bytes(Direction::Load, rank, number),
            }));
            stats.busy.push(CopyBusy {
                rank,
                backup: busy(Direction::Backup, rank),
                load: busy(Direction::Load, rank),
            });
        }
    }
}
